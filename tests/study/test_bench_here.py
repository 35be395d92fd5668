"""Studies on this machine, without a scheduler: killed, continued, on a full disk, with a stack that is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from study.slurm_bed import MEASURE, SPEED, done, points, table
from support import smallyard
from support.cli import STACKYARD, Done, stackyard

SHAPE = ("-r", "1", "-c", "1", "-g", "0")


class Here:
    """A directory with the program, in which studies are made."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.study = directory, directory / "studies" / "speed"
        (directory / "speed.py").write_text(SPEED)

    def bench(self, *words: str | Path, expect: int | None = 0) -> Done:
        return stackyard(
            "bench", *words, cwd=self.directory, expect=expect, STACKYARD_HOME=str(self.directory / "yard")
        )

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen([str(STACKYARD), "bench", *map(str, words)], cwd=self.directory, text=True,
                                env={**os.environ, "STACKYARD_HOME": str(self.directory / "yard")},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def until(good: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not good():
        assert time.monotonic() < end, "waited for 60 s"
        time.sleep(0.02)


def test_a_study_that_is_killed_between_and_in_runs_is_continued(here: Here) -> None:
    words: list[str | Path] = [
        "speed.py",
        "--vary",
        "add=0,1000",
        "--repeat",
        "3",
        *SHAPE,
        *MEASURE,
        "--",
        "--sleep",
        "0.4",
    ]
    for least in (1, 2, 4):
        run = here.start(*words)
        until(lambda least=least: done(here.study) >= least)
        time.sleep(0.05 * least)
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=60)
        words = ["--continue", here.study]
    before = points(here.study)
    here.bench(*words, expect=3)  # three pairs have no verdict
    after = points(here.study)
    assert len(after) == 8 and {attempts[-1]["state"] for attempts in after.values()} == {"done"}
    for name, attempts in after.items():
        assert [one["state"] for one in attempts[:-1]] == ["interrupted"] * (len(attempts) - 1), "what was done is kept"
        if name in before and before[name][-1]["state"] == "done":
            assert attempts == before[name]
    assert [float(row["value"]) for row in table(here.study)] == [
        116.0 + (1000 if row["variant"] == "add=1000" else 0) for row in table(here.study)
    ]


def test_further_runs_until_the_median_is_known(here: Here) -> None:
    shown = here.bench("speed.py", "--until", "5%", "--repeat", "3", *SHAPE, *MEASURE)
    assert "1 node: ±5 % will take some 6 runs, by the first 3" in shown.err
    rows = table(here.study)
    assert [row["repeat"] for row in rows if row["warmup"] == "0"] == list("123456")
    assert sum(row["warmup"] == "1" for row in rows) == 1, "the machine is warm"


def test_a_run_without_the_metric_is_no_result(here: Here) -> None:
    shown = here.bench(
        "speed.py", "--repeat", "1", "--warmup-runs", "0", *SHAPE, "--measure", r"s=seconds (\d+)", expect=1
    )
    assert "n0001-job-a01-r01: no-value" in shown.err and "s" in shown.err
    (row,) = table(here.study)
    assert (row["state"], row["value"]) == ("no-value", "")


def test_a_run_that_was_profiled_while_it_ran_is_no_result(here: Here) -> None:
    program = here.directory / "speed.py"
    started = "import os; os.makedirs(os.environ['STACKYARD_STEP'] + '/profile/torch')  # as `stackyard profile RUN`\n"
    program.write_text(started + SPEED)
    words = ("speed.py", "--repeat", "1", "--warmup-runs", "0", *SHAPE, *MEASURE)
    shown = here.bench(*words, expect=1)
    assert "n0001-job-a01-r01: no-value: profiled (torch): its times do not count; `stackyard bench --cont" in shown.err
    program.write_text(SPEED)
    here.bench("--continue", here.study, "--retry-failed")
    assert [one["state"] for one in points(here.study)["n0001-job-a01-r01"]] == ["no-value", "done"]


def test_what_is_wrong_is_said_before_anything_is_written(here: Here) -> None:
    wrong = {
        ("nothing.py",): "nothing.py not found",
        ("speed.py", "--nodes", "2"): "2 nodes requested, but no scheduler found",
        ("speed.py", "--compare", "a/1,b/2"): "no such revision in yard: a/1",
        ("speed.py", "--compare", "plain:/nowhere,plain:/tmp"): "/nowhere has no bin/python",
        ("speed.py", "--sleep", "1"): "no such option: --sleep",
        ("speed.py", "--measure", "speed=("): "not NAME=PATTERN",
        ("speed.py", "--", "--batch", "{rank}"): "cannot calculate {rank}: rank is not known",
        ("speed.py", "--profile", "torch"): "a study does not count profiled runs (torch)",
        ("--continue", "."): "is not a study: it has no study.json",
        (): "no program and no study.yaml",
    }
    for words, why in wrong.items():
        shown = here.bench(*words, expect=2)
        assert why in shown.err and "hint: " in shown.err and "Traceback" not in shown.err, shown.err
    assert not (here.directory / "studies").exists()


def test_a_directory_with_something_in_it_is_no_place_for_a_study(here: Here) -> None:
    (here.directory / "notes").mkdir()
    (here.directory / "notes/mine.txt").write_text("keep")
    shown = here.bench("speed.py", "-o", "notes", *SHAPE, *MEASURE, expect=2)
    assert "notes is not empty" in shown.err and os.listdir(here.directory / "notes") == ["mine.txt"]


def test_a_variant_that_changes_is_another_study(here: Here) -> None:
    smallyard.make(here.directory / "yard", "1.0", "2.0")
    words = ("speed.py", "--compare", "tool/1.0,tool/2.0", "--repeat", "1", "--warmup-runs", "0", *SHAPE, *MEASURE)
    here.bench(*words, "--", "--fail-on", "1", expect=1)
    assert {row["state"] for row in table(here.study)} == {"failed"}
    about = here.study / "study.json"
    about.write_text(about.read_text().replace("tool/2.0-py311-1", "tool/2.0-py311-9"))
    shown = here.bench("--continue", here.study, "--retry-failed", expect=2)
    assert "the variant tool-2.0 has changed since this study began: its module was tool/2.0-py311-9" in shown.err


def test_a_stack_that_was_removed_is_said(here: Here) -> None:
    smallyard.make(here.directory / "yard", "1.0", "2.0")
    words = ("speed.py", "--with", "tool/1.0", "--repeat", "1", "--warmup-runs", "0", *SHAPE, *MEASURE)
    here.bench(*words, "--", "--fail-on", "1", expect=1)
    stackyard("--yard", here.directory / "yard", "remove", "tool/1.0-py311-1")
    shown = here.bench("--continue", here.study, "--retry-failed", expect=None)
    assert shown.code in (2, 4) and "tool/1.0" in shown.err and "Traceback" not in shown.err


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that is soon full."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k,mode=755", "tmpfs", str(place)]
    if (result := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"a file system of its own cannot be mounted here: {result.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_full_disk_loses_no_result(here: Here, small: Path) -> None:
    study = small / "study"
    words = ("speed.py", "--repeat", "12", *SHAPE, *MEASURE)
    shown = here.bench(*words, "-o", study, expect=1)
    assert "no space left" in shown.err.lower() and "Traceback" not in shown.err
    before = {name: attempts for name, attempts in points(study).items() if attempts[-1]["state"] == "done"}
    assert before
    subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
    here.bench("--continue", study)
    after = points(study)
    assert done(study) == 12 and all(after[name] == attempts for name, attempts in before.items())


def test_a_study_file_is_the_same_as_options(here: Here) -> None:
    (here.directory / "study.yaml").write_text(
        "format: 1\nname: same\njob: {program: [speed.py], ranks_per_node: 1, cores_per_rank: 1}\n"
        "repeat: 2\nwarmup_runs: 0\nmeasure: [{name: images/s, pattern: 'images/s: (.*)', unit: 1/s}]\n"
    )
    here.bench("study.yaml", "--repeat", "1")
    (row,) = table(here.directory / "studies" / "same")
    assert (row["value"], row["unit"], row["repeat"]) == ("116.0", "1/s", "1")


def test_a_plain_environment_runs_its_own_python(here: Here) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", here.directory / "venv"], check=True)
    (here.directory / "which.py").write_text("import sys\nprint('in', len(sys.prefix), sys.prefix)\n")
    words = ("which.py", "--compare", "plain:venv,other=plain:venv", "--repeat", "1", "--warmup-runs", "0", *SHAPE)
    here.bench(*words, "--measure", r"length=in (\d+)", expect=3)  # one pair has no verdict
    rows = table(here.directory / "studies" / "which")
    assert {float(row["value"]) for row in rows} == {float(len(str(here.directory / "venv")))}


def test_a_study_of_another_account_is_not_carried_out(here: Here) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another account")
    here.bench("speed.py", "--repeat", "1", *SHAPE, *MEASURE, "--", "--fail-on", "1", expect=1)
    os.chown(here.study / "study.json", 65534, 65534)
    shown = here.bench("--continue", here.study, "--retry-failed", expect=2)
    assert "belongs to nobody, who alone can continue it" in shown.err
    assert {len(attempts) for attempts in points(here.study).values()} == {1}


def test_names_in_its_files_lead_nowhere_else(here: Here) -> None:
    here.bench("speed.py", "--repeat", "1", "--warmup-runs", "0", *SHAPE, *MEASURE)
    (point,) = (here.study / "points").iterdir()
    good = point.read_text()
    point.write_text(good.replace('"run": "runs/', '"run": "../../'))
    assert "not a run directory of this study" in here.bench("--continue", here.study, expect=2).err
    point.write_text(good)
    (job,) = (here.study / "jobs").glob("*.json")
    job.write_text(job.read_text().replace('"job"', '"../../job"'))
    assert "not a run of a variant" in here.bench("--continue", here.study, expect=2).err
