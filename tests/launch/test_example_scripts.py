"""The batch scripts of the example sites: kept beside the site file, and taken by the scheduler's own rules.

Each is what ``stackyard --site site.yaml submit ... --dry-run`` prints; directories and the interpreter are replaced,
and STACKYARD_WRITE_GOLDEN=1 writes them anew. The heads go to a real Slurm, or to the stand-ins of LSF and PBS.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from stackyard.inputs.sites.site import load_site
from support.cli import STACKYARD, inside
from support.slurm import SlurmCluster
from support.standins import MACHINES, Family, standins

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEED = EXAMPLES.parent.parent / "shared" / "seeds"
USUAL = ("-t", "60", "-A", "PROJ")
JOBS: dict[tuple[str, str], tuple[str, ...]] = {
    ("summit-open-ce", "submit-2-nodes"): ("-N", "2", *USUAL),
    ("summit-open-ce", "submit-2-nodes-one-rack"): ("-N", "2", *USUAL, "--pack", "racks"),
    ("summit-open-ce", "submit-144-nodes-by-racks"): ("-N", "144", *USUAL, "--pack", "racks", "--backend", "horovod"),
    ("summit-containers", "submit-in-image"): ("-N", "2", *USUAL, "--backend", "horovod", "--container", "powerai.sif"),
    ("lumi", "submit-4-nodes"): ("-N", "4", *USUAL),
    ("lumi", "submit-in-image"): ("-N", "4", *USUAL, "--container", "pytorch.sif"),
    ("frontier", "submit-8-nodes"): ("-N", "8", *USUAL),
    ("perlmutter", "submit-4-gpu-nodes"): ("-N", "4", *USUAL, "--qos", "regular"),
    ("perlmutter", "submit-4-cpu-nodes"): ("-N", "4", *USUAL, "--qos", "regular", "--node-kind", "cpu"),
    ("longhorn", "submit-2-nodes"): ("-N", "2", *USUAL),
    ("slurm-cluster", "submit-2-nodes"): ("-N", "2", *USUAL),
    ("polaris", "submit-10-nodes"): ("-N", "10", *USUAL),
}  # fmt: skip
IDS = [f"{site}-{name}" for site, name in JOBS]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a program in it and beside it, and images; their content does not matter here."""
    here, beside = tmp_path / "here", tmp_path / "resnet"
    for directory in (here, beside):
        directory.mkdir()
        (directory / "train.py").write_text("import torch\n")
    for image in ("powerai.sif", "pytorch.sif"):
        (here / image).touch()
    monkeypatch.chdir(here)
    return here


def program(words: tuple[str, ...]) -> str:
    """What the README submits: in an image a copy, since a container has the current directory and not its parent."""
    return "train.py" if "--container" in words else "../resnet/train.py"


def small(work: Path) -> dict[str, str]:
    """A small environment, since a script for PBS hands on what of the person's matters to a job."""
    home = str(work / ".home")
    return {"PATH": "/usr/bin:/bin", "HOME": home, "SCRATCH": home, "LANG": "C.UTF-8"}


def submit(work: Path, site: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [STACKYARD, "--site", EXAMPLES / site / "site.yaml", "submit", *words, "--dry-run", program(words)]
    done = subprocess.run(argv, cwd=work, env=small(work), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def planned(work: Path, site: str, *words: str) -> str:
    """The same script, made in this process."""
    with mock.patch.dict(os.environ, small(work), clear=True):
        return inside("--site", EXAMPLES / site / "site.yaml", "submit", *words, "--dry-run", program(words)).out


def golden(text: str, work: Path) -> str:
    """With the same directories everywhere."""
    for found, shown in (
        (r"\d{4}-\d\d-\d\d-001", "2026-11-21-001"),
        (r"(?<=exec )\S+/python\S*", "/opt/stackyard/bin/python"),
        (re.escape(f"{EXAMPLES}/"), "/opt/stackyard/examples/"),
        (re.escape(str(work / ".home")), "/home/user"),
        (re.escape(str(work)), "/home/user/work"),
    ):
        text = re.sub(found, shown, text)
    return re.sub(r"(?m)(?:^#   .*\n)+", _folded, text)


def _folded(match: re.Match[str]) -> str:
    """A comment, folded anew: the real directories have another length."""
    words = match[0].replace("\n#   ", " ").strip()[1:].strip()
    lines = textwrap.wrap(words, 112, break_long_words=False, break_on_hyphens=False)
    return "".join(f"#   {line}\n" for line in lines)


@pytest.mark.parametrize(("site", "name"), JOBS, ids=IDS)
def test_the_script_is_the_one_that_is_kept(site: str, name: str, work: Path) -> None:
    done = submit(work, site, *JOBS[site, name])
    text = golden(done.stdout, work)
    file = EXAMPLES / site / "golden" / f"{name}.sh"
    if os.environ.get("STACKYARD_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.read_text() == text
    assert "{" not in re.sub(r"\*\{select\[.*\]\}|\$\{\w+\}", "", text)
    shell = subprocess.run(["bash", "-n"], input=done.stdout, capture_output=True, text=True, check=False)
    assert (shell.returncode, shell.stderr) == (0, "")


def test_no_script_is_left_over() -> None:
    kept = {(path.parts[-3], path.stem) for path in EXAMPLES.glob("*/golden/*.sh")}
    assert kept == set(JOBS)


SLURM = [(site, name) for site, name in JOBS if load_site(EXAMPLES / site / "site.yaml").scheduler.kind == "slurm"]
OTHERS: dict[str, tuple[Family, str, int]] = {
    "summit-open-ce": ("lsf", "summit", 150),
    "summit-containers": ("lsf", "summit", 4),
    "polaris": ("pbs", "polaris", 16),
}


@pytest.mark.parametrize(("site", "name"), [job for job in JOBS if job[0] in OTHERS])
def test_the_scheduler_and_the_launcher_take_it(site: str, name: str, work: Path) -> None:
    """bsub or qsub read the head, and the launch line places as many ranks as there are."""
    family, machine, nodes = OTHERS[site]
    grown = dict(MACHINES[machine], hosts=[f"n{number:03d}" for number in range(nodes)])
    env = standins(work / "state", family, machine=grown)
    script = planned(work, site, *JOBS[site, name])
    (work / "job.sh").write_text(re.sub(r"(?m)^(cd|exec) .*", "exit 0", script))
    csm = family == "lsf"
    taken = _run(["bsub" if csm else "qsub", "job.sh"], work, env)
    assert "submitted" in taken if csm else taken.strip().endswith(".pbs")
    wanted = int(JOBS[site, name][1])
    env = standins(work / "state", family, machine=grown, inside=True, nodes=wanted)
    line = _commented(script, "starts the ranks with")
    (work / "runs").mkdir(exist_ok=True)  # the job, which runs now, has its output there
    words = ["true" if word.endswith("/rank.sh") else word for word in line]
    if "--hostfile" in words:
        words[words.index("--hostfile") + 1] = env["PBS_NODEFILE"]
    _run(words, work, env)
    placed = json.loads(Path(env["STANDIN_PLACEMENT"]).read_text())["ranks"]
    per_node = len({rank["local_rank"] for rank in placed})
    assert len(placed) == wanted * per_node
    assert len({rank["host"] for rank in placed}) == wanted


def _run(words: list[str], work: Path, env: dict[str, str]) -> str:
    done = subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def _commented(script: str, title: str) -> list[str]:
    """The words of the comment below a title."""
    lines = script.split(f"# {title}:\n")[1].splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("#   "))
    return shlex.split(" ".join(line[4:] for line in lines[:end]))


@pytest.mark.real
@pytest.mark.parametrize(("site", "name"), SLURM, ids=[f"{s}-{n}" for s, n in SLURM])
def test_a_real_slurm_reads_the_head(site: str, name: str, work: Path, slurm: SlurmCluster) -> None:
    """sbatch --test-only: every option is known and well formed. What this cluster lacks (a partition of that name, so
    many cores, features) is taken out or cut down first."""
    script = planned(work, site, *JOBS[site, name])
    kept = [
        line for line in script.splitlines() if not re.match(r"#SBATCH --(partition|account|qos|constraint)=", line)
    ]
    small = {"nodes": "2", "cpus-per-task": "1", "ntasks-per-node": "2", "threads-per-core": "1", "mem": "100M"}
    text = "\n".join(_small(line, small) for line in kept) + "\n"
    (work / "job.sh").write_text(text)
    done = slurm.run("sbatch", "--test-only", work / "job.sh", check=False)
    assert re.search(r"sbatch: Job \d+ to start at", done.output), f"{done.output}\n{text}"
    broken = text.replace("#SBATCH --nodes=2", "#SBATCH --nodes=2 --no-such-option", 1)
    (work / "job.sh").write_text(broken)
    assert "unrecognized option" in slurm.run("sbatch", "--test-only", work / "job.sh", check=False).output


def _small(line: str, small: dict[str, str]) -> str:
    match = re.match(r"#SBATCH --([a-z-]+)=", line)
    if match and match[1] in small:
        return f"#SBATCH --{match[1]}={small[match[1]]}"
    return re.sub(r"(--gres=gpu|--gpus-per-node=|--gpus-per-task=)\S*", _one_gpu, line)


def _one_gpu(match: re.Match[str]) -> str:
    return "--gres=gpu:1" if match[1] == "--gres=gpu" else f"{match[1]}1"


def _blank_free(text: str) -> str:
    return re.sub(r"\s+", "", text.replace('"', ""))


def test_the_lines_of_the_page_about_summit() -> None:
    """Its two reservations and its jsrun lines, as words; the page spaces and quotes the two differently."""
    found = sorted(SEED.glob("004_*.txt"))
    if not found:
        pytest.skip("the page about Summit is not beside this checkout")
    page = found[0].read_text(encoding="utf-8").splitlines()
    reservations = [_blank_free(line) for line in page if re.match(r"\s*#BSUB (-R 1|-R \"1|-csm|-n )", line)]
    assert len(reservations) == 6
    kept = {
        name: (EXAMPLES / "summit-open-ce/golden" / f"{name}.sh").read_text()
        for s, name in JOBS
        if s == "summit-open-ce"
    }
    for name, lines in (("submit-2-nodes-one-rack", reservations[:3]), ("submit-144-nodes-by-racks", reservations[3:])):
        ours = [_blank_free(line) for line in kept[name].splitlines()]
        assert [line for line in lines if line not in ours] == []
    for name, text in kept.items():
        words = _commented(text, "starts the ranks with")
        assert {"-r1", "-g6", "-a6", "-c42", "-bpacked:7"} <= set(words), name
    image = (EXAMPLES / "summit-containers/golden/submit-in-image.sh").read_text()
    inside: list[Any] = _commented(image, "and rank.sh runs")
    assert inside[:3] == ["singularity", "exec", "--nv"]
