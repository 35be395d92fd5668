"""Every launcher on well-known machines: the text as it is reviewed, and the lines that sites themselves publish."""

from __future__ import annotations

import os
import re

import pytest
from launcherbed import CSM, FRONTIER, GOLDEN, LAYOUTS, LUMI_G, PERLMUTTER, SLURM, SUMMIT, packed, text_of

from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.launchers import TABLE, default_name, get
from stackyard.launch.plan.model import LaunchRequest


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_golden_file_is_what_is_rendered(name: str) -> None:
    layout, scheduler = LAYOUTS[name]
    text = text_of(layout, scheduler, mpi=True)
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("STACKYARD_WRITE_GOLDEN"):
        golden.write_text(text)
    assert golden.read_text().split() == text.split()


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("launcher", TABLE)
def test_every_word_has_a_reason(name: str, launcher: str) -> None:
    layout, scheduler = LAYOUTS[name]
    single = launcher == "local"
    distribution = "block" if single or launcher == "pals" else layout.distribution
    layout = Layout(
        layout.node, (layout.blocks[0].__class__(0, 1 if single else 2, layout.slots),), layout.gpu_visibility,
        distribution, smt=layout.smt, hosts=("a1", "a2")[: 1 if single else 2],
    )  # fmt: skip
    line = get(launcher).line(LaunchRequest(layout, scheduler, mpi=True))
    assert tuple(word for reason in line.reasons for word in reason.words) == line.words
    assert all(reason.words and len(reason.reason.split()) >= 2 for reason in line.reasons)
    assert not any(reason.reason.endswith(".") for reason in line.reasons)
    named = set(re.findall(r"\{step\}/([\w.]+)", " ".join(line.words)))
    assert named == set(line.files)


def options(text: str) -> set[str]:
    """jsrun's short options as joined words: ``-n 1 -bpacked:7`` is {-n1, -bpacked:7}."""
    return {a + b for a, b in re.findall(r"(?<!\S)(-[a-zA-Z])\s?([\w:]+)", text)}


def jsrun(layout: Layout, **changes: bool) -> tuple[str, ...]:
    return get("jsrun").line(LaunchRequest(layout, CSM, **changes)).words


def test_summit_has_the_words_of_its_own_guide() -> None:
    """docs.olcf.ornl.gov, IBM WML CE and Open CE on Summit: six ranks of seven cores on each node."""
    words = set(jsrun(packed(SUMMIT, 6, 7), mpi=True, gpu_aware_mpi=True))
    published = {"jsrun", "-r1", "-g6", "-a6", "-c42", "-bpacked:7"}
    assert published <= words
    assert words - published == {"-n2", "-dpacked", "-X1", "--smpiargs=-gpu"}


def test_summit_has_the_words_of_the_container_guide() -> None:
    published = options("jsrun -n 1 -a 6 -c 42 -g 6 -r 1 singularity exec --nv /path/to/image ./run-benchmark.sh")
    words = set(jsrun(packed(SUMMIT, 6, 7, nodes=1), mpi=True))
    assert published == {"-n1", "-a6", "-c42", "-g6", "-r1"}
    assert published <= words
    assert words - published == {"jsrun", "-bpacked:7", "-dpacked", "-X1"}


DDL = (
    "mpirun -x LSB_JOBID -x PATH -x PYTHONPATH -x LD_LIBRARY_PATH -x LSB_MCPU_HOSTS -gpu --rankfile RANKFILE -n 12 "
    "-mca plm_rsh_num_concurrent 12"
)
DDL_HOSTS = "g28n14:0,2,4,6,8,10;g28n15:1,3,5,7,9,11"


def test_mpirun_has_the_words_that_ddlrun_printed() -> None:
    """What is DDL's own is left out: -disable_gdr and its variables with values."""
    hosts = tuple(part.split(":")[0] for part in DDL_HOSTS.split(";"))
    layout = packed(SUMMIT, 6, 7, distribution="cyclic", hosts=hosts)
    names = ("LSB_JOBID", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LSB_MCPU_HOSTS")
    own = ("-mca", "plm_rsh_num_concurrent", "12")
    request = LaunchRequest(layout, CSM, mpi=True, gpu_aware_mpi=True, spectrum=True, variables=names, args=own)
    line = get("mpirun").line(request)
    ours = [word.replace("{step}/rankfile", "RANKFILE") for word in line.words]
    extra = ["--hostfile", "{step}/hostfile"]
    assert sorted(ours) == sorted([*DDL.split(), *extra])
    dealt: dict[str, list[int]] = {}
    for rank, host in re.findall(r"^rank (\d+)=(\S+) slot=[01]:\d+-\d+$", line.files["rankfile"], re.MULTILINE):
        dealt.setdefault(host, []).append(int(rank))
    assert ";".join(f"{host}:{','.join(map(str, ranks))}" for host, ranks in dealt.items()) == DDL_HOSTS
    assert line.files["rankfile"].splitlines()[0] == "rank 0=g28n14 slot=0:0-6"


def test_lumi_has_the_masks_of_its_own_guide() -> None:
    """docs.lumi-supercomputer.eu, GPU binding: the cores next to GCD 0 to 7, core 0 of each group left out."""
    words = get("srun").line(LaunchRequest(packed(LUMI_G, 8, 7), SLURM)).words
    masks = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"
    assert f"--cpu-bind=mask_cpu:{masks}" in words
    assert not any(word.startswith(("--threads-per-core", "--hint", "-c")) for word in words)


def test_frontier_has_the_words_of_its_own_guide() -> None:
    """docs.olcf.ornl.gov, Frontier: srun -c7 --gpus-per-task=1 --gpu-bind=closest with eight reserved cores."""
    scheduler = Scheduler(kind="slurm", gpu_request="gpus-per-task", core_spec=8)
    layout = packed(FRONTIER, 8, 7, gpu_visibility="own")
    words = get("srun").line(LaunchRequest(layout, scheduler)).words
    text = " ".join(words)
    assert "-N 2 -n 16 --ntasks-per-node=8" in text
    assert "-S 8 -c 7 --threads-per-core=1 --cpu-bind=threads --gpus-per-task=1 --gpu-bind=closest" in text


def test_perlmutter_counts_hardware_threads_where_it_uses_them() -> None:
    plain = get("srun").line(LaunchRequest(packed(PERLMUTTER, 4, 16), SLURM)).words
    both = get("srun").line(LaunchRequest(packed(PERLMUTTER, 4, 16, smt=2), SLURM)).words
    assert "-c 16 --threads-per-core=1 --cpu-bind=threads" in " ".join(plain)
    assert "-c 32 --threads-per-core=2 --cpu-bind=cores" in " ".join(both)


@pytest.mark.parametrize(
    ("scheduler", "name"),
    [
        (Scheduler(kind="slurm"), "srun"), (CSM, "jsrun"), (Scheduler(kind="lsf"), "mpirun"),
        (Scheduler(kind="pbs", launcher="pals"), "pals"), (Scheduler(kind="pbs", launcher="mpirun"), "mpirun"),
        (Scheduler(kind="flux"), "flux"), (Scheduler(kind="none"), "local"), (Scheduler(), "local"),
    ],
)  # fmt: skip
def test_each_scheduler_has_its_launcher(scheduler: Scheduler, name: str) -> None:
    assert default_name(scheduler) == name
    assert get(name).name == name
