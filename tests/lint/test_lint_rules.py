"""Rules that need more than a script, reports, and the page on the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site
from stackyard.lint.api import lint_file, lint_text
from stackyard.lint.reference import reference_text
from stackyard.lint.rules import TABLE

HEAD = "#!/bin/bash\n#SBATCH --time=10\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=8\n"
SRUN = HEAD + "srun ./solver\n"


def site(version: str = "", **scheduler: object) -> Site:
    kind = NodeKind(cores=64, sockets=2, gpu=Gpu(count=4, vendor="nvidia"))
    made = Scheduler.model_validate({"kind": "slurm", "version": version, **scheduler})
    return Site(name="x", nodes={"gpu": kind}, scheduler=made)


def rules(text: str, where: Site | None = None) -> dict[str, str]:
    return {finding.rule: finding.severity for finding in lint_text(text, where, name="job.sh").findings}


@pytest.mark.parametrize(
    ("version", "severity"), [("22.05.8", "warning"), ("23.11", "warning"), ("21.08", None), ("", "note")]
)
def test_cores_not_inherited_depends_on_the_version(version: str, severity: str | None) -> None:
    assert rules(SRUN, site(version)).get("srun-cpus-not-inherited") == severity


@pytest.mark.parametrize("better", ["srun -c 8 ./solver", "export SRUN_CPUS_PER_TASK=8\nsrun ./solver"])
def test_cores_said_again_are_no_finding(better: str) -> None:
    assert "srun-cpus-not-inherited" not in rules(SRUN.replace("srun ./solver", better), site("23.11"))


def test_without_a_site_it_is_a_note_and_the_exit_code_is_0() -> None:
    report = lint_text(SRUN, name="job.sh")
    assert [finding.severity for finding in report.findings] == ["note"]
    assert report.exit_code == 0


def test_idle_cores_and_too_many_of_them() -> None:
    few = SRUN.replace("--cpus-per-task=8", "--cpus-per-task=4").replace("srun", "srun -c 4")
    assert rules(few, site("23.11"))["idle-cores"] == "warning"
    assert rules(SRUN.replace("task=8", "task=32"), site("23.11"))["idle-cores"] == "refused"
    assert "idle-cores" not in rules(few, site("23.11", exclusive=False))


def test_more_gpus_than_a_node_has() -> None:
    text = SRUN.replace("--cpus-per-task=8", "--gpus-per-node=8")
    assert rules(text, site())["more-gpus-than-node"] == "refused"
    assert "more-gpus-than-node" not in rules(text)


def test_gpus_per_task_under_select_linear() -> None:
    text = SRUN.replace("--cpus-per-task=8", "--gpus-per-task=1")
    assert rules(text, site("24.11", linear=True))["per-task-gres-linear"] == "refused"
    assert "per-task-gres-linear" not in rules(text, site("24.05", linear=True))


@pytest.mark.parametrize(("exclusive", "severity"), [(True, "note"), (False, "warning")])
def test_a_fixed_port_matters_on_shared_nodes(exclusive: bool, severity: str) -> None:
    text = SRUN.replace("srun", "export MASTER_PORT=29500\nsrun")
    assert rules(text, site("21.08", exclusive=exclusive))["fixed-port"] == severity


def test_sockets_of_the_site() -> None:
    kind = NodeKind(cores=40, sockets=2, gpu=Gpu(count=4))
    lassen = Site(nodes={"batch": kind}, scheduler=Scheduler(kind="lsf", csm=True))
    text = "#!/bin/bash\n#BSUB -nnodes 1\n#BSUB -W 9\njsrun -r1 -g4 -a{} -c40 -bpacked:{} ./a\n"
    assert "straddling-ranks" in rules(text.format(3, 13), lassen)
    assert "straddling-ranks" not in rules(text.format(4, 10), lassen)


@pytest.mark.parametrize(("ranks", "width"), [(3, 14), (4, 10), (5, 8), (7, 6), (8, 5)])
def test_the_straddle_table_of_a_42_core_set(ranks: int, width: int) -> None:
    text = f"#!/bin/bash\n#BSUB -nnodes 1\n#BSUB -W 9\njsrun -r1 -g6 -a{ranks} -c42 -bpacked:{width} ./a\n"
    finding = next(each for each in lint_text(text, name="j").findings if each.rule == "straddling-ranks")
    assert f"rank {ranks // 2} " in finding.message


@pytest.mark.parametrize(("ranks", "width"), [(2, 21), (6, 7), (12, 3), (14, 3), (42, 1)])
def test_clean_sets(ranks: int, width: int) -> None:
    text = f"#!/bin/bash\n#BSUB -nnodes 1\n#BSUB -W 9\njsrun -r1 -g6 -a{ranks} -c42 -bpacked:{width} ./a\n"
    assert "straddling-ranks" not in rules(text)


@pytest.mark.parametrize(
    ("program", "severity"),
    [
        ("DataLoader(d, num_workers=4)", "warning"),
        ("DataLoader(d, num_workers=args.n)", "note"),
        ("DataLoader(d)", None),
        ("DataLoader(d, num_workers=0)", None),
        ('DataLoader(d, num_workers=4, multiprocessing_context="forkserver")', None),
    ],
)
def test_forking_loaders_by_source(tmp_path: Path, program: str, severity: str | None) -> None:
    (tmp_path / "train.py").write_text(f"import horovod.torch as hvd\nloader = {program}\n")
    job = tmp_path / "job.sh"
    job.write_text(SRUN.replace("./solver", "-c 8 python train.py"))
    found = {finding.rule: finding.severity for finding in lint_file(job).findings}
    assert found.get("fork-under-mpi") == severity


def test_a_source_that_keeps_its_index_in_range(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("torch.cuda.set_device(local_rank % torch.cuda.device_count())\n")
    job = tmp_path / "job.sh"
    job.write_text(SRUN.replace("./solver", "-c 8 --gpus-per-task=1 python train.py"))
    assert lint_file(job).exit_code == 0


def test_carriage_returns() -> None:
    report = lint_text(SRUN.replace("\n", "\r\n"), name="job.sh")
    assert [(f.rule, f.severity) for f in report.findings if f.severity != "note"] == [("dos-line-ends", "refused")]
    assert report.exit_code == 3


def test_the_report_as_data() -> None:
    report = lint_text(SRUN.replace("srun", "srun -N 9"), name="job.sh")
    data = json.loads(json.dumps(report.to_json()))
    assert data["asks"]["nodes"] == 2 and data["exit_code"] == 3 and data["scheduler"] == "slurm"
    finding = next(each for each in data["findings"] if each["rule"] == "more-tasks-than-job")
    assert finding["line"] == 6 and finding["better"] and finding["reason"]
    assert data["launches"][0]["kind"] == "srun"
    assert report.summary.startswith("Slurm, 2 nodes, 4 tasks per node")


def test_every_rule_says_what_it_is() -> None:
    for rule in TABLE.values():
        assert rule.title.endswith(".") and rule.reason and rule.example and rule.instead and rule.evidence, rule.name


def test_the_page_is_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "lint.md"
    assert page.read_text() == reference_text()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("#SBATCH -o $X\n${PROGRAM}\n", ["directive-variable"]),
        ("#SBATCH -o a\n${PROGRAM}\n./a\n", []),
        ("#SBATCH -o $X\n${HEADER}\n#SBATCH -n 2\n./a\n", []),
        ("./a\n${HEADER}\n#SBATCH -n 2\n", ["directive-late"]),
    ],
)
def test_only_a_line_of_the_head_is_filled_in(lines: str, said: list[str]) -> None:
    """``${NAME}`` alone on a line may also be the program."""
    report = lint_text(f"#!/bin/bash\n#SBATCH -t 10\n{lines}")
    assert [each.rule for each in report.findings] == said


@pytest.mark.parametrize(
    ("row", "where", "found"),
    [
        ("#SBATCH --workdir=/a", site("18.08"), None),
        ("#SBATCH --workdir=/a", site("20.11"), "option-removed"),
        ("#SBATCH --mail-type=all,Time_Limit_90", None, None),
        ("#SBATCH --mail-type=<TYPE>", None, None),
        ("#SBATCH --mail-type=START,END", None, "mail-type-unknown"),
        ("#BSUB \u2013R x", None, "dash-not-hyphen"),
        ("srun --help", None, None),
        ("srun $OPTIONS", None, None),
        ("srun -n 1", None, "srun-without-program"),
        ("bsub next.lsf", None, "bsub-without-input"),
        ("bsub < next.lsf", None, None),
        ("bsub -n 1 next.lsf", None, None),
    ],
)
def test_what_is_refused_at_once(row: str, where: Site | None, found: str | None) -> None:
    head = "#!/bin/bash\n" if row.startswith("#BSUB") else "#!/bin/bash\n#SBATCH --time=10\n#SBATCH --mem=1G\n"
    new = ("option-removed", "mail-type-unknown", "dash-not-hyphen", "srun-without-program", "bsub-without-input")
    assert [each for each in rules(f"{head}{row}\n", where) if each in new] == ([found] if found else [])
