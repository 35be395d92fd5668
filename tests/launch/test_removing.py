"""``~--flag``: a generated flag left out of the launch line or of the head of the script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launcherbed import LAYOUTS

from stackyard.core.errors import InputError
from stackyard.launch.plan import launchers, removing
from stackyard.launch.plan.model import LaunchRequest
from support.cli import Done, stackyard
from support.slurmcli import SHAPE, Work

SITE = """\
name: t
nodes: {n: {cores: 4}}
scheduler: {kind: %s, launcher_options: [--verbose]}
"""


def plan(tmp_path: Path, *words: str, kind: str = "slurm", verb: str = "submit", expect: int = 0) -> Done:
    (tmp_path / "site.yaml").write_text(SITE % kind)
    return stackyard(
        "--site", tmp_path / "site.yaml", verb, *words, "-r", "2", "-t", "5", *(("--dry-run",) * (verb != "explain")),
        "./program", cwd=tmp_path, expect=expect, timeout_s=240,
    )  # fmt: skip


def test_a_flag_of_the_launch_line(tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    before, after = plan(tmp_path).out, plan(tmp_path, "--launcher-arg=~--kill-on-bad-exit").out
    assert "--kill-on-bad-exit=1" in before
    assert "--kill-on-bad-exit" not in after.partition("starts the ranks with")[2]
    assert before.count("--verbose") == 1  # the site's, once


def test_a_directive_of_the_head(tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    assert "#SBATCH --exclusive" in plan(tmp_path).out
    after = plan(tmp_path, "--scheduler-arg=~--exclusive", "--scheduler-arg=--licenses=a").out
    assert "#SBATCH --exclusive" not in after
    assert "#SBATCH --licenses=a" in after


def test_one_of_several_flags_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    words = ("--launcher", "mpirun", "--scheduler-arg=~-l walltime")
    text = plan(tmp_path, *words, kind="pbs").out
    assert "walltime" not in "".join(line for line in text.splitlines() if line.startswith("#PBS"))
    assert "#PBS -l select=" in text


def test_explain_says_what_it_was_for(tmp_path: Path) -> None:
    done = plan(tmp_path, "--launcher-arg=~--wait", "--scheduler-arg=~--time", "--as", "srun", verb="explain")
    assert "--wait=0 is left out" in done.out
    assert "ranks that finish early do not terminate the others" in " ".join(done.out.split())
    assert "--time=0:05:00 is left out" in done.out


@pytest.mark.parametrize(
    ("word", "said", "hint"),
    [
        ("--launcher-arg=~--nothing", "the launch line of srun has no --nothing", "--kill-on-bad-exit, --wait"),
        ("--launcher-arg=~--kill", "has no --kill", "--kill-on-bad-exit"),
        ("--launcher-arg=~srun", "", ""),
        ("--scheduler-arg=~--nothing", "the head of the script (#SBATCH) has no --nothing", "--nodes"),
    ],
)
def test_an_unknown_flag_is_an_error_that_lists_the_others(tmp_path: Path, word: str, said: str, hint: str) -> None:
    (tmp_path / "program").touch()
    if not said:  # not a flag: passed on like any other word
        assert "'~srun'" in plan(tmp_path, word).out
        return
    err = " ".join(plan(tmp_path, word, expect=2).err.split())
    assert said in err
    assert hint in err


@pytest.mark.parametrize("name", launchers.TABLE)
def test_every_flag_of_every_launcher_can_be_left_out(name: str) -> None:
    layout, scheduler = LAYOUTS["summit"]
    if name == "local":
        return
    line = launchers.get(name).line(LaunchRequest(layout, scheduler, mpi=True))
    for reason in line.reasons[1:]:
        left = removing.line_without(line, [" ".join(reason.words)])
        assert len(left.words) <= len(line.words) - len(reason.words)
        assert [finding.rule for finding in left.findings[len(line.findings) :]] == ["flag-removed"]
    with pytest.raises(InputError, match="has no --nothing"):
        removing.line_without(line, ["--nothing"])


@pytest.mark.real
def test_a_step_without_it_on_a_real_slurm(work: Work) -> None:
    work.allocated("launch", *SHAPE, "--launcher-arg=~--kill-on-bad-exit", "exit.py", "0")
    record = json.loads((work.last / "record.json").read_text())
    assert "--kill-on-bad-exit" not in record["plan"]["command"]
    assert record["intent"]["launcher_args"] == ["~--kill-on-bad-exit"]
    assert any(finding["rule"] == "flag-removed" for finding in record["plan"]["findings"])
