"""`stackyard init`: what it says of sites by recorded answers of their schedulers, and what is kept of an edited file.

The records have the fields and figures of public ones (the cluster documentation of AI for Oncology, UBC, LARCC and
others for Slurm; ALCF's for PBS; Flux's and LSF's own), written anew; those marked so follow the format alone.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stackyard.init import here, probes
from stackyard.init.here import Cores
from stackyard.init.merge import merge
from stackyard.init.model import Ask
from stackyard.init.survey import survey
from stackyard.inputs.sites.site import load_site
from stackyard.inputs.sites.sitemodels import Site
from support.cli import stackyard

CONFIG = "SLURM_VERSION    = {version}\nClusterName      = {name}\nSelectType       = select/cons_tres\n"


def node(name: str, cores: tuple[int, int, int], memory: int, **fields: Any) -> str:
    """A line of ``scontrol -o show node``."""
    sockets, per_socket, smt = cores
    total = sockets * per_socket * smt
    values = {
        "Arch": "x86_64", "CoresPerSocket": per_socket, "CPUAlloc": 0, "CPUEfctv": total, "CPUTot": total,
        "AvailableFeatures": "(null)", "ActiveFeatures": "(null)", "Gres": "(null)",
        "OS": "Linux 5.14.0-503.38.1.el9_5.x86_64 #1 SMP PREEMPT_DYNAMIC Wed Apr 16 16:38:39 UTC 2025",
        "RealMemory": memory, "Sockets": sockets, "State": "IDLE", "ThreadsPerCore": smt, "Partitions": "main",
        **fields,
    }  # fmt: skip
    return " ".join([f"NodeName={name}", *(f"{key}={value}" for key, value in values.items())])


def partition(name: str, **fields: Any) -> str:
    """A line of ``scontrol -o show partition``."""
    values = {"Default": "NO", "MaxNodes": "UNLIMITED", "MaxTime": "UNLIMITED", "MinNodes": 0, "OverSubscribe": "NO",
              "State": "UP", **fields}  # fmt: skip
    return " ".join([f"PartitionName={name}", *(f"{key}={value}" for key, value in values.items())])


def programs(directory: Path, answers: Mapping[str, str]) -> dict[str, str]:
    """An environment in which these command lines, and no other of their programs, have answers."""
    directory.mkdir()
    for program in {line.split()[0] for line in answers}:
        cases = "".join(
            f"  {shlex.quote(line.partition(' ')[2])}) cat <<'END'\n{text}\nEND\n  ;;\n"
            for line, text in answers.items()
            if line.split()[0] == program
        )
        (directory / program).write_text(f'#!/bin/sh\ncase "$*" in\n{cases}  *) echo "no: $*" >&2; exit 1 ;;\nesac\n')
        (directory / program).chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin", "HOME": str(directory)}


def slurm(name: str, version: str, nodes: list[str], partitions: list[str], **more: str) -> dict[str, str]:
    """Slurm's answers."""
    config = CONFIG.format(name=name, version=version)
    return {"scontrol show config": config, "scontrol -o show node": "\n".join(nodes),
            "scontrol -o show partition": "\n".join(partitions), **more}  # fmt: skip


def site_of(tmp_path: Path, answers: Mapping[str, str]) -> tuple[Site, str]:
    """The site that is written by these answers, as it is read again; and its text."""
    found = survey(programs(tmp_path / "bin", answers))
    file = tmp_path / "site.yaml"
    file.write_text(found.text())
    return load_site(file), found.text()


A6000 = (2, 32, 2)
SITES: dict[str, tuple[dict[str, str], dict[str, tuple[int, int, int, int, str, str]]]] = {
    "kosmos": (slurm("kosmos", "21.08.8", [
        node("aristarchus", A6000, 980330, Gres="gpu:8(S:0-1)", Partitions="a6000", State="MIXED",
             ActiveFeatures="rtxa6000"),
        node("ptolemaeus", A6000, 980330, Gres="gpu:8(S:0-1)", Partitions="a6000", ActiveFeatures="rtxa6000"),
        node("euctemon", A6000, 980330, Gres="gpu:8(S:0-1)", Partitions="a100", ActiveFeatures="a100"),
        node("gaia", (2, 64, 2), 490000, Partitions="cpu"),
    ], [partition("a6000", MaxTime="7-00:00:00"), partition("a100", MaxTime="7-00:00:00"),
        partition("cpu", MaxTime="30-00:00:00")]),
        {"a6000": (64, 64, 2, 8, "a6000", ""), "a100": (64, 64, 2, 8, "a100", ""),
         "cpu": (128, 128, 2, 0, "cpu", "")}),
    "rcl": (slurm("rcl", "25.05", [
        node("rcl-nv2.ece.ubc.ca", (2, 56, 2), 2060000, CPUEfctv=192, CoreSpecCount=16, State="MIXED",
             Gres="gpu:nvidia_b200:4(S:0),gpu:nvidia_b200_2g.45gb:8,gpu:nvidia_b200_3g.90gb:4")],
        [partition("main", Default="YES")]),
        {"b200": (96, 112, 2, 4, "main", "")}),
    "larcc": (slurm("larcc", "24.11.4", [
        *(node(f"larcc-cpu{n}", (2, 64, 1), 515002, Partitions="compute") for n in (1, 2, 3)),
        node("larcc-gpu1", (2, 64, 1), 515002, Partitions="gpu", Gres="gpu:a100:4(S:0-1),shard:a100:16(S:0-1)"),
        node("larcc-gpu2", (2, 4, 1), 1000, Partitions="gpu", State="DOWN+DRAIN",
             Reason="load a=b was high [root@2026-01-01T00:00:00]")],
        [partition("compute", Default="YES", MaxTime="3-00:00:00"), partition("gpu", MaxTime="2-00:00:00")]),
        {"cpu": (128, 128, 1, 0, "compute", ""), "a100": (128, 128, 1, 4, "gpu", "")}),
    "interactive": (slurm("buildtest", "24.05.4", [
        node("cpu-a-1", (2, 64, 1), 4096000, Partitions="cpu,preempted",
             ActiveFeatures="cpu,compute,largemem,amd_7h12"),
        *(node(f"cpu-b-{n}", (2, 64, 1), 1024000, Partitions="cpu,preempted",
               ActiveFeatures="cpu,compute,amd_7h12") for n in (1, 2, 3))],
        [partition("cpu", Default="YES", MaxTime="180-00:00:00"), partition("preempted", MaxTime="1-00:00:00")]),
        {"cpu-1000gib": (128, 128, 1, 0, "cpu", ""), "cpu-4000gib": (128, 128, 1, 0, "cpu", "largemem")}),
    "clariden": (slurm("clariden", "24.11", [
        *(node(f"nid00{n}", (4, 72, 1), 870000, Arch="aarch64", Partitions="normal,debug", Gres="gpu:4")
          for n in (5000, 5001))],
        [partition("normal", Default="YES", MaxTime="12:00:00", OverSubscribe="EXCLUSIVE"),
         partition("debug", MaxTime="01:30:00", MaxNodes=10, OverSubscribe="EXCLUSIVE")]),
        {"gpu": (288, 288, 1, 4, "normal", "")}),
    "by-format-frontier": (slurm("frontier", "24.05", [
        *(node(f"frontier0{n}", (1, 64, 2), 512000, CoreSpecCount=8, CPUEfctv=112, Partitions="batch",
               Gres="gpu:8(S:0)", ActiveFeatures="nvme") for n in (1001, 1002))],
        [partition("batch", Default="YES", MaxTime="1-00:00:00", OverSubscribe="EXCLUSIVE")]),
        {"gpu": (56, 64, 2, 8, "batch", "")}),
    "by-format-lumi": (slurm("lumi", "23.02", [
        node("nid005000", (4, 16, 2), 491520, CoreSpecCount=8, CPUEfctv=112, Partitions="standard-g,dev-g",
             Gres="gpu:mi250:8(S:0-3)"),
        *(node(f"nid00100{n}", (2, 64, 2), 229376, Partitions="standard") for n in (1, 2))],
        [partition("standard-g", MaxTime="2-00:00:00", OverSubscribe="EXCLUSIVE"),
         partition("dev-g", MaxTime="03:00:00", MaxNodes=32), partition("standard", MaxTime="2-00:00:00")]),
        {"cpu": (128, 128, 2, 0, "standard", ""), "mi250": (56, 64, 2, 8, "standard-g", "")}),
}  # fmt: skip


@pytest.mark.parametrize("name", SITES)
def test_the_kinds_of_nodes_of_a_site_with_slurm(tmp_path: Path, name: str) -> None:
    answers, expected = SITES[name]
    site, text = site_of(tmp_path, answers)
    found = {
        kind: (one.cores, one.all_cores or one.cores, one.smt, one.gpu.count, one.queue, one.constraint)
        for kind, one in site.nodes.items()
    }
    assert {kind: found.get(kind) for kind in expected} == expected, text
    assert len(site.nodes) == len(expected)
    assert (site.scheduler.kind, site.scheduler.launcher) == ("slurm", "srun")
    assert site.scheduler.exclusive == (name in ("clariden", "by-format-frontier"))
    assert all("# " in line for line in text.splitlines() if ": " in line and not line.lstrip().startswith(("-", "#")))


def test_what_a_scheduler_says_is_text_and_nothing_else(tmp_path: Path) -> None:
    evil = 'x"}\n  injected: {kind: "'
    answers = slurm(evil, "24.05", [node("n1", (1, 4, 1), 8000, Partitions="a: b#c", Gres="gpu:true:1")],
                    [partition("a: b#c", Default="YES")])  # fmt: skip
    site, text = site_of(tmp_path, answers)
    assert "injected" not in text.replace("x-injected", "") or site.name.startswith("x"), text
    (kind,) = site.nodes.values()
    assert kind.queue == "a: b#c" and kind.gpu.model == "true"


def test_settings_and_queues_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "_RUNTIMES", ())
    answers = SITES["clariden"][0] | {
        "srun --mpi=list": "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions: pmix_v5",
        "srun --help": "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n          [pyxis] the image",
        "scontrol show topology": "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=nid[005000-005003]\n"
                                  "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=nid[005004-005007]\nSwitchName=top Level=1",
    }  # fmt: skip
    site, text = site_of(tmp_path, answers)
    assert site.scheduler.mpi == "pmix" and site.scheduler.version == "24.11" and site.scheduler.rack_nodes == 4
    assert site.launch.container.runtime == "pyxis" and "told by Slurm: srun has --container-image" in text
    assert [(row.name, row.max_nodes, row.time_min) for row in site.scheduler.queues] == [
        ("normal", 0, 720), ("debug", 10, 90)
    ]  # fmt: skip
    assert {one.platform for one in site.nodes.values()} == {"linux-aarch64"}


def test_a_runtime_for_image_files_is_not_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "_RUNTIMES", ("apptainer",))
    answers = SITES["clariden"][0] | {
        "srun --help": "      --container-image=IMAGE\n      --uenv=x",
        "apptainer --version": "",
    }
    site, text = site_of(tmp_path, answers)
    assert site.launch.container.runtime == ""
    line = next(line for line in text.splitlines() if line.startswith("# launch: {container: {runtime: pyxis}}"))
    assert "told by Slurm" in line and "not set, since there are others: apptainer, uenv" in line


@pytest.mark.parametrize("program", ["podman-hpc", "shifter"])
def test_a_runtime_on_path_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(here, "_RUNTIMES", (program,))
    answers = SITES["clariden"][0] | {
        f"{program} --version": "",
        "srun --help": "--image=x" if program[0] == "s" else "",
    }
    site, text = site_of(tmp_path, answers)
    assert site.launch.container.runtime == program and "launch:\n  container: {runtime:" in text


POLARIS: dict[str, Any] = {
    "pbs_version": "2022.1.1.20220926110806", "pbs_server": "polaris-pbs-01",
    "nodes": {
        name: {"ntype": "PBS", "state": state, "pcpus": 64, "jobs": ["1147579"], "resources_available": {
            "arch": "linux", "gputype": "A100", "host": name, "mem": "527672488kb", "ncpus": 64, "ngpus": 4,
            "system": "polaris", "tier0": "x3006-g1"}}
        for name, state in (("x3006c0s13b1n0", "free"), ("x3008c0s37b1n0", "job-exclusive"), ("x3009c0s19b0n0", "down"))
    },
}  # fmt: skip


def with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a login node whose cores have two hardware threads."""
    monkeypatch.setattr(here, "cores", lambda _: Cores(64, 2, 2, "split"))


def test_polaris_by_its_pbsnodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_threads(monkeypatch)
    queues = {"Queue": {"prod": {"enabled": "True", "started": "True", "resources_min": {"nodect": 10},
                                 "resources_max": {"nodect": 496, "walltime": "24:00:00"}}}}  # fmt: skip
    site, text = site_of(tmp_path, {
        "pbsnodes -a -F json": json.dumps(POLARIS), "qstat -Q -f -F json": json.dumps(queues),
        "mpiexec --version": "mpiexec: Cray PALS version 1.2.4",
    })  # fmt: skip
    (kind,) = site.nodes.values()
    assert (kind.cores, kind.smt, kind.gpu.count, kind.gpu.model) == (32, 2, 4, "A100") and kind.memory_gib == 503.2
    assert (site.scheduler.kind, site.scheduler.launcher) == ("pbs", "pals")
    (row,) = site.scheduler.queues
    assert (row.name, row.min_nodes, row.max_nodes, row.time_min) == ("prod", 10, 496, 1440)
    assert "2 nodes: x3006c0s13b1n0" in text and "PBS counts 64 CPUs" in text


def test_flux_by_its_r(tmp_path: Path) -> None:
    r = {"version": 1, "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-63", "gpu": "0-3"}},
                   {"rank": "4", "children": {"core": "0-31"}}],
        "nodelist": ["fluke[0-3]", "login1"], "properties": {"batch": "0-3"}}}  # fmt: skip
    site, _ = site_of(tmp_path, {"flux getattr size": "5", "flux resource R": json.dumps(r),
                                 "flux config get queues": json.dumps({"batch": {}, "debug": {}})})  # fmt: skip
    found = sorted((one.cores, one.gpu.count) for one in site.nodes.values())
    assert found == [(32, 0), (64, 4)] and site.scheduler.launcher == "flux"


def test_summit_after_the_format_of_lsf(tmp_path: Path) -> None:
    head = "HOST_NAME                       type       model  cpuf ncpus maxmem maxswp server RESOURCES"
    rows = [f"{host}  {kind}  POWER9  250.0  42  {memory}  -  Yes (CN)"
            for host, kind, memory in ((name, "LINUXPPC64LE", "606G") for name in ("a01n01", "a01n02"))]  # fmt: skip
    site, text = site_of(tmp_path, {
        "lshosts -w": "\n".join([head, *rows, "batch5  LINUXPPC64LE  POWER9  250.0  -  -  -  No ()"]),
        "bhosts -w": "HOST_NAME STATUS JL/U MAX\na01n01 ok - 42\na01n02 closed_Excl - 42\n",
        "bhosts -gpu -w": "HOST_NAME GPU_ID MODEL MUSED MRSV NJOBS\n" + "\n".join(
            f"{host if gpu == 0 else '      '} {gpu} TeslaV100_SXM2 0M 0M 0"
            for host in ("a01n01", "a01n02") for gpu in range(6)),
        "bqueues -l": "QUEUE: batch\n  -- default queue\n\nPARAMETERS/STATISTICS\nPRIO NICE STATUS\n"
                      " 30  20  Open:Active\nRUNLIMIT\n 1440.0 min\nSCHEDULING POLICIES:  EXCLUSIVE\n",
        "lsid": "IBM Spectrum LSF Standard 10.1.0.9\nMy cluster name is summit\n",
        "jsrun --version": "jsrun", "badmin showconf mbd": "EGO_DEFINE_NCPUS = cores",
    })  # fmt: skip
    (kind,) = site.nodes.values()
    assert (kind.platform, kind.cores, kind.gpu.count) == ("linux-ppc64le", 42, 6), text
    assert (site.name, site.scheduler.launcher, site.scheduler.csm) == ("summit", "jsrun", True)
    assert [(row.name, row.time_min) for row in site.scheduler.queues] == [("batch", 1440)]


def test_a_scheduler_that_does_not_answer_is_named_and_left_out(tmp_path: Path) -> None:
    environ = programs(tmp_path / "bin", {"scontrol x": ""})
    found = survey(environ)
    assert found.cluster is None and found.unanswered[0].startswith("Slurm does not answer: scontrol show config: no:")
    (tmp_path / "site.yaml").write_text(found.text())
    assert load_site(tmp_path / "site.yaml").scheduler.launcher == "local"


def test_a_question_without_an_answer_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackyard.init.model.TIMEOUT_S", 0.2)
    (tmp_path / "scontrol").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "scontrol").chmod(0o755)
    ask = Ask({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert ask("scontrol", "show", "config") == "" and "timed out after 0.2 s" in ask.unanswered[0]


def run_init(directory: Path, environ: Mapping[str, str], *words: str) -> str:
    """`stackyard init` on the file of a directory; its output."""
    return stackyard("init", "-o", str(directory / "site.yaml"), *words, **environ).out


def test_a_second_run_keeps_what_was_edited_and_shows_what_changed(tmp_path: Path) -> None:
    answers, _ = SITES["larcc"]
    environ = programs(tmp_path / "bin", answers)
    assert "next:" in run_init(tmp_path, environ)
    file = tmp_path / "site.yaml"
    assert run_init(tmp_path, environ).startswith("unchanged:")
    edited = file.read_text().replace("cores: 128 ", "cores: 120 ", 1).replace("name: larcc", "name: my-larcc")
    file.write_text(edited.replace("scheduler:", "pins: [numpy <2]\n\nscheduler:"))
    more = {**answers, "scontrol -o show node": answers["scontrol -o show node"].replace("gpu:a100:4", "gpu:a100:8")}
    said = run_init(tmp_path, programs(tmp_path / "bin2", more))
    assert "+    gpu: {count: 8" in said and "kept as you edited" not in said
    site = load_site(file)
    assert site.name == "my-larcc" and site.pins == ("numpy <2",)
    assert (site.nodes["cpu"].cores, site.nodes["a100"].gpu.count) == (120, 8)
    fewer = {
        **answers,
        "scontrol -o show node": answers["scontrol -o show node"]
        .replace("CoresPerSocket=64", "CoresPerSocket=48")
        .replace("CPUTot=128", "CPUTot=96")
        .replace("CPUEfctv=128", "CPUEfctv=96"),
    }
    before = file.read_bytes()
    dry = run_init(tmp_path, programs(tmp_path / "bin3", fewer), "--dry-run")
    assert "would write" in dry and file.read_bytes() == before
    said = run_init(tmp_path, programs(tmp_path / "bin4", fewer))
    assert "kept as you edited it: cores: 120" in said and "the machine says now: cores: 96" in said
    assert load_site(file).nodes["cpu"].cores == 120


def test_a_file_of_somebody_else_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("name: by-hand\n")
    done = stackyard("init", "-o", str(tmp_path / "site.yaml"), expect=2)
    assert "was not written by `stackyard init`" in done.err and "init -o -" in done.err
    assert (tmp_path / "site.yaml").read_text() == "name: by-hand\n"
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]


@pytest.mark.parametrize(("base", "mine", "new", "text", "kept"), [
    ("a\nb\nc", "a\nB\nc", "a\nb\nC", "a\nB\nC", 0),
    ("a\nb\nc\nd", "A\nb\nc\nd", "a\nb\nc\nD", "A\nb\nc\nD", 0),
    ("a\nb", "a\nx\nb", "a\nb\ny", "a\nx\nb\ny", 0),
    ("a\nb", "a", "a\nB", "a", 1),
    ("a\nb", "a\nc", "a\nc", "a\nc", 0),
    ("", "x", "y", "x", 1),
])  # fmt: skip
def test_merge(base: str, mine: str, new: str, text: str, kept: int) -> None:
    found = merge(base, mine, new)
    assert found.text == text + "\n" and len(found.kept) == kept


def test_the_cores_of_a_machine_with_gpus(tmp_path: Path) -> None:
    for cpu in range(8):  # two sockets of two cores, threads split
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu % 4 // 2}\n")
        (topology / "core_id").write_text(f"{cpu % 2}\n")
    for number, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        (tmp_path / f"sys/devices/system/node/node{number}").mkdir(parents=True)
        (tmp_path / f"sys/devices/system/node/node{number}/cpulist").write_text(cpus + "\n")
    for address, numa in (("0000:07:00.0", 1), ("0000:48:00.0", 0)):
        (tmp_path / f"proc/driver/nvidia/gpus/{address}").mkdir(parents=True)
        (tmp_path / f"sys/bus/pci/devices/{address}").mkdir(parents=True)
        (tmp_path / f"sys/bus/pci/devices/{address}/numa_node").write_text(f"{numa}\n")
    assert here.cores(tmp_path) == Cores(4, 2, 2, "split", ((0, "0-1", (1,)), (1, "2-3", (0,))))


def test_a_report_of_a_node_is_read_among_other_lines_and_nothing_else() -> None:
    seen = here.look(os.environ)
    assert probes.read(f"Job <7> is submitted\n{probes.report(seen)}\nbye") == seen
    for text in ("", "stackyard-node: [1]", "stackyard-node: {", 'stackyard-node: {"machine": {"gpus": 3}}'):
        assert isinstance(probes.read(text), str)


@pytest.mark.real
def test_init_on_a_slurm_of_four_nodes_explains_as_the_file_by_hand(tmp_path: Path) -> None:
    from support.slurm import SlurmCluster

    cluster = SlurmCluster.shared()
    try:
        environ = cluster.environ(HOME=str(tmp_path))
        run_init(tmp_path, environ)
        by_hand = tmp_path / "by-hand.yaml"
        by_hand.write_text("nodes: {h100: {cores: 32, memory_gib: 7.8, queue: debug, "
                           "gpu: {count: 4, vendor: nvidia, model: h100}}}\n"
                           "scheduler: {kind: slurm, exclusive: false, queue: debug}\n")  # fmt: skip
        (tmp_path / "train.py").write_text("import torch\n")
        shown = [
            stackyard("--site", str(file), "explain", "-N", "2", "train.py", cwd=tmp_path, **environ).out
            for file in (tmp_path / "site.yaml", by_hand)
        ]
        assert shown[0] == shown[1] and "-N 2 -n 8" in shown[0]
        said = run_init(tmp_path, environ, "--probe")
        assert "microarchitecture" in said and "seen on n" in (tmp_path / "site.yaml").read_text()
        assert run_init(tmp_path, environ).startswith("unchanged:"), "what was seen is remembered"
    finally:
        cluster.stop()


def test_it_asks_nothing_and_needs_no_scheduler(tmp_path: Path) -> None:
    words = ["sh", "-c", 'exec "$0" -m stackyard init -o site.yaml <&-', sys.executable]
    environ = {"PATH": "/nowhere:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and (tmp_path / "site.yaml").exists(), done.stderr


def test_a_site_file_of_an_account_counts_without_one_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "stackyard").mkdir()
    (tmp_path / "stackyard/site.yaml").write_text("pins: {\n")
    done = stackyard("list", XDG_CONFIG_HOME=str(tmp_path), STACKYARD_SITE="", STACKYARD_HOME="", expect=2)
    assert f"{tmp_path}/stackyard/site.yaml" in done.err
