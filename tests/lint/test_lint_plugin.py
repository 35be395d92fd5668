"""Heads of a scheduler that a plug-in adds, judged by its own data; and heads of which nothing is known."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stackyard.core import plugins
from stackyard.core.errors import StackyardError
from stackyard.inputs.sites.sitemodels import Site
from stackyard.lint.api import lint_text, to_intent
from stackyard.lint.report import LintReport
from support.pluginvenv import install, venv_with_plugins

BODY = "export OMP_NUM_THREADS=1\nmpirun -n 16 ./a.out\n"
SGE = "#!/bin/bash\n#$ -N demo\n#$ -pe mpi 16\n#$ -l h_rt=2:00:00,h_vmem=4G\n#$ -cwd\n"


def site(kind: str) -> Site:
    return Site.model_validate({"name": "here", "scheduler": {"kind": kind}})


def found(report: LintReport) -> list[tuple[int, str, str]]:
    return [(each.where.line if each.where else 0, each.rule, each.severity) for each in report.findings]


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return venv_with_plugins(tmp_path_factory.mktemp("plugins"))


class Bed:
    """A directory with a site that names Grid Engine, and a Stackyard with the plug-in that has it."""

    def __init__(self, directory: Path, venv: Path) -> None:
        self.directory, self.venv = directory, venv
        (directory / "site.yaml").write_text("name: here\nscheduler: {kind: sge, queue: all.q, launcher: mpirun}\n")

    def run(self, text: str, *words: str, site: bool = True) -> subprocess.CompletedProcess[str]:
        (self.directory / "job.sh").write_text(text)
        options = ["--site", "site.yaml"] if site else []
        argv = [self.venv / "bin/python", "-m", "stackyard", *options, "lint", *words, "job.sh"]
        environ = {**os.environ, "HOME": str(self.directory)}
        return subprocess.run(argv, cwd=self.directory, env=environ, capture_output=True, text=True, check=False)

    def lint(self, text: str, *, site: bool = True) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.run(text, "--json", site=site).stdout)["job.sh"]
        return said


@pytest.fixture
def bed(venv: Path, tmp_path: Path) -> Bed:
    return Bed(tmp_path, venv)


def test_a_good_head_of_the_example(bed: Bed) -> None:
    said = bed.lint(SGE + BODY)
    assert said["judged"] and said["scheduler"] == "sge" and said["findings"] == []
    assert said["asks"] == {"tasks": 16, "time_min": 120}
    shown = bed.run(SGE + BODY).stdout
    assert shown == "job.sh: sge, 120 min; starts mpirun\n  clean\n".replace("sge", "Grid Engine")


@pytest.mark.parametrize(
    ("line", "rule", "says", "remedy"),
    [
        ("-l h_rt=2h", "time-format", "'2h' is not a valid wall time for Grid Engine", "#$ -l h_rt=2:00:00"),
        ("-hold_jod 17", "unknown-option", "unknown option 'hold_jod': did you mean 'hold_jid'?", "#$ -hold_jid 17"),
        ("-Z 3", "unknown-option", "qsub has no option -Z", "remove it"),
        ("-pe mpi", "option-without-value", "-pe has no value: qsub rejects the directive", "#$ -pe mpi VALUE"),
        ("-hold_jid_ad 3", "options-together", "qsub does not take -hold_jid_ad without -t", "add -t"),
    ],
)
def test_what_grid_engine_rejects(bed: Bed, line: str, rule: str, says: str, remedy: str) -> None:
    head = "#!/bin/bash\n#$ -l h_rt=1:00:00\n" if "h_rt" not in line else "#!/bin/bash\n"
    said = bed.lint(f"{head}#$ {line}\n./a.out\n")
    assert [(each["rule"], each["severity"]) for each in said["findings"]] == [(rule, "refused")]
    assert says in said["findings"][0]["message"] and said["findings"][0]["better"] == remedy
    assert said["exit_code"] == 3


def test_what_grid_engine_takes_and_wastes(bed: Bed) -> None:
    array = "#!/bin/bash\n#$ -t 1-8\n#$ -o out.log\n./a.out $SGE_TASK_ID\n"
    assert [each["rule"] for each in bed.lint(array)["findings"]] == ["time-missing", "array-output"]
    for name in ("out.$TASK_ID.log", "logs", "logs/", "/dev/null"):
        assert [each["rule"] for each in bed.lint(array.replace("out.log", name))["findings"]] == ["time-missing"], name
    more = SGE + BODY.replace("-n 16", "-n 32") + "# openmpi\n"
    assert [each["rule"] for each in bed.lint(more)["findings"]] == ["more-ranks-than-slots"]


def test_a_job_file_of_a_judged_script(bed: Bed) -> None:
    more = "#$ -A proj -q long.q -j y -l gpu=1,h_vmem=4G\n"
    done = bed.run(SGE + more + BODY, "--fix")
    assert done.returncode == 0, done.stderr
    text = (bed.directory / "job.sh.job.yaml").read_text()
    for part in ("time_min: 120", "account: proj", "queue: long.q", "name: demo"):
        assert part in text, text
    assert "-l gpu=1,h_vmem=4G" in text and "-j y" in text and "-pe mpi 16: check nodes" in text


def test_grid_engine_is_judged_without_the_site_too(bed: Bed) -> None:
    said = bed.lint(SGE + BODY, site=False)
    assert said["judged"] and said["findings"] == [] and said["scheduler"] == "sge"


HEADS = [
    "#OAR -l /nodes=2",
    "#COBALT -n 2",
    "#PJM -L node=2",
    "#MSUB -q batch",
    "#DSUB -n 2",
    "#JSUB -n 2",
    "#HQ --cpus=2",
    "#CCS -N demo",
    "#QSUB -q batch",
    "#@ node = 2",
    "# @ wall_clock_limit = 1:00:00",
    "# @QUEUE",
]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", ["", "sge", "slurm"])
def test_an_unknown_head_is_neither_clean_nor_another_schedulers(head: str, kind: str) -> None:
    """Where no plug-in has the scheduler that site.yaml names, too."""
    report = lint_text(f"#!/bin/bash\n{head}\n{BODY}", site(kind), name="job.sh")
    assert found(report) == [(2, "not-understood", "note")]
    assert "not judged" in report.findings[0].message
    assert not report.judged and "head not judged" in report.summary and "no scheduler" not in report.summary
    intent, notes = to_intent(report.script)
    assert intent.program == ("./a.out",) and any(head.rsplit(maxsplit=1)[-1] in note for note in notes)
    assert ("LoadLeveler" in report.findings[0].message) is ("@" in head)


@pytest.mark.parametrize(
    "comment", ["# @author someone", "#@param x = 3", "# mail: me@node = 2", "#HQ is busy", "#CC -O3", "#BSUBS -n 2"]
)
def test_a_comment_is_no_unknown_head(comment: str) -> None:
    report = lint_text(f"#!/bin/bash\n{comment}\n{BODY}", name="job.sh")
    assert report.judged and "not-understood" not in [rule for _, rule, _ in found(report)]


def test_a_line_of_another_scheduler_beside_slurms() -> None:
    report = lint_text(f"#!/bin/bash\n#SBATCH -n 16 -t 10\n# @ node = 2\n{BODY}", name="job.sh")
    assert found(report) == [(3, "not-understood", "note")] and report.script.scheduler == "slurm"


OAR = """
from stackyard.launch.plan.schedulers.directives import DirectiveScheduler

STACKYARD_PROTOCOL = 1


class Oar(DirectiveScheduler):
    name, prefix, submit_program, job_variable = "oar", "#OAR", "oarsub", "OAR_JOB_ID"
    head_options = {
        "-l": "value", "-l nodes": "nodes", "-l core": "cpus_per_task", "-l walltime": "time", "-q": "queue",
        "-n": "name", "--name": "name", "--mem": "memory", "--array": "value", "--array-param-file": "value",
    }
    head_excludes = (("--array", "--array-param-file"),)
    time_pattern = r"(?P<hours>\\d+)(:(?P<minutes>\\d+)(:(?P<seconds>\\d+))?)?"


oar = Oar()
wrong = Oar()
wrong.head_options = {"-n": "nodez"}
lost = Oar()
lost.head_needs = {"-n": ("--other",)}
silent = Oar()
silent.head_options, silent.head_excludes = {}, ()
"""


@pytest.fixture
def oar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "site-packages"
    directory.mkdir()
    monkeypatch.setattr(plugins, "directories", lambda: [directory])
    monkeypatch.syspath_prepend(directory)
    names = ("oar", "wrong", "lost", "silent")
    install(directory, "oar_site", "[stackyard.schedulers]\n" + "".join(f"{n} = oar_site:{n}\n" for n in names), OAR)


@pytest.mark.usefixtures("oar")
def test_another_schedulers_words() -> None:
    text = "#!/bin/bash\n#OAR -l /nodes=2/core=8,walltime=1:30:00\n#OAR --name=demo --mem=4G -q gpu\n./a.out\n"
    report = lint_text(text, site("oar"), name="job.sh")
    request = report.script.request
    assert (request.nodes, request.cpus_per_task, request.time_min, request.memory_mib) == (2, 8, 90, 4096)
    assert (request.name, request.queue) == ("demo", "gpu") and report.findings == () and report.judged
    assert report.summary.startswith("oar, 2 nodes, 8 cores per task, 90 min")
    both = lint_text(text.replace("--mem=4G", "--array 3 --array-param-file f"), site("oar"), name="job.sh")
    assert found(both) == [(3, "options-together", "refused")]
    late = lint_text(text.replace("1:30:00", "90m"), site("oar"), name="job.sh")
    assert found(late) == [(2, "time-format", "refused")] and late.findings[0].remedy == "#OAR -l walltime=1:30:00"


@pytest.mark.usefixtures("oar")
def test_a_head_of_a_built_in_scheduler_is_judged_by_its_own_table() -> None:
    report = lint_text("#!/bin/bash\n#SBATCH --ntask=4 -t 10\nsrun ./a.out\n", site("oar"), name="job.sh")
    assert report.script.scheduler == "slurm" and found(report) == [(2, "unknown-option", "refused")]


@pytest.mark.usefixtures("oar")
def test_a_plugin_without_a_description_is_not_judged() -> None:
    report = lint_text("#!/bin/bash\n#OAR -l nodes=2\n./a.out\n", site("silent"), name="job.sh")
    assert found(report) == [(2, "not-understood", "note")] and not report.judged


@pytest.mark.usefixtures("oar")
@pytest.mark.parametrize(
    ("kind", "says"), [("wrong", "unknown meanings: nodez"), ("lost", "not in head_options: other")]
)
def test_a_wrong_description_is_the_failure_of_the_plugin(kind: str, says: str) -> None:
    with pytest.raises(StackyardError, match=rf"in the plug-in {kind} \(oar_site 1.0\): ValueError: .*{says}"):
        lint_text("#!/bin/bash\n#OAR -n 2\n./a.out\n", site(kind), name="job.sh")
