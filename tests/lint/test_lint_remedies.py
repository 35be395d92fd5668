"""Remedies in the script's own words: its program, its tag, its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.findings import Finding
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site
from stackyard.lint.api import lint_file, lint_text
from stackyard.lint.rules.base import Case
from stackyard.lint.script import parse_script

HEAD = "#!/bin/bash\n#SBATCH --time=10 --nodes=2 --ntasks-per-node=4 -c 8 --gpus-per-node=4\n"


def only(text: str, rule: str, site: Site | None = None) -> Finding:
    """The one finding of a rule."""
    (finding,) = (each for each in lint_text(text, site, name="job.sh").findings if each.rule == rule)
    return finding


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("srun -n 8 -c 8 python3 -u train.py --lr 1", "srun -n 8 -c 8 bash -c '{} exec python3 -u train.py --lr 1'"),
        ("srun -c 8 bash -c 'python -u train.py'", "srun -c 8 bash -c '{} exec python train.py'"),
        ("srun -c 8 apptainer exec i.sif python train.py", "srun -c 8 bash -c '{} exec apptainer exec i.sif python"),
        ("srun -c 8 ./worker.sh 3", "srun -c 8 bash -c '{} exec ./worker.sh 3'"),
        ("srun -c 8 python -m train", "srun -c 8 bash -c '{} exec python -m train'"),
        ("srun -c 8 python -m package", "srun -c 8 bash -c '{} exec python -m package'"),
    ],
)
def test_the_variables_are_set_before_the_programs_own_words(tmp_path: Path, line: str, remedy: str) -> None:
    join = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/__main__.py"):
        (tmp_path / name).write_text(join)
    (tmp_path / "worker.sh").write_text("exec python train.py\n")
    (tmp_path / "job.sh").write_text(HEAD + line)
    findings = lint_file(tmp_path / "job.sh").findings
    (finding,) = (each for each in findings if each.rule == "group-without-variables")
    variables = "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS"
    assert remedy.format(variables) in finding.remedy


@pytest.mark.parametrize(
    ("head", "rule", "remedy"),
    [
        ("#FLUX: --cores-per-slots=4", "unknown-option", "#FLUX: --cores-per-slot=4"),
        ("# flux: --cores-per-slots=4", "unknown-option", "# flux: --cores-per-slot=4"),
        ("#flux: -N1\n#flux: --time-limit=2:00", "time-format", "#flux: -t 2h"),
        ("#FLUX: -N 1\n# flux: -t 1h", "flux-directive", "#FLUX: -t 1h"),
        ("#BSUB -lnslots 2", "unknown-option", "#BSUB -ln_slots 2"),
        ("#SBATCH --ntask-per-node=4", "unknown-option", "#SBATCH --ntasks-per-node=4"),
    ],
)
def test_a_directive_is_mended_in_its_own_form(head: str, rule: str, remedy: str) -> None:
    assert only(f"#!/bin/bash\n{head}\n./a\n", rule).remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("#SBTACH --gres=gpu:4", True), ("#SBATH -N 2", True), ("#BATCH - a word", False),
        ("#SBTACH --no-such=4", False), ("##SBATCH -N 2", False), ("#SEARCH -n 4", False),
    ],
)  # fmt: skip
def test_a_misspelt_tag(row: str, found: bool) -> None:
    report = lint_text(f"#!/bin/bash\n#SBATCH -N 1 -t 1\n{row}\n./a\n")
    assert any(each.rule == "directive-misspelt" for each in report.findings) == found


def test_jsrun_sets_are_those_of_the_sites_nodes() -> None:
    text = "#!/bin/bash\n#BSUB -nnodes 2 -W 10\njsrun -n2 -r1 -a1 -c40 -g1 -brs python train.py\n"
    site = Site(nodes={"n": NodeKind(cores=40, gpu=Gpu(count=4))})
    assert only(text, "jsrun-one-gpu", site).remedy.startswith("jsrun -n8 -r4 -a1 -g1 -c10 -bpacked:10 ...")
    assert "-r GPUS_OF_A_NODE" in only(text, "jsrun-one-gpu").remedy


def test_a_worker_script_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "worker.sh").write_text("conda activate a\n")
    case = Case(parse_script(HEAD + "srun ./worker.sh"), directories=(tmp_path,))
    first = case.worker(case.launches[0])
    (tmp_path / "worker.sh").write_text("")
    assert first and case.worker(case.launches[0]) is first
