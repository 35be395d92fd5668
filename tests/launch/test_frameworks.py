"""Every row of docs/reference/frameworks.md on two nodes of a real Slurm: what is typed there is typed here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import programs, venvs
from support.slurm import SlurmCluster
from support.slurmcli import SHAPE, Work, working

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "frameworks.md"
PROGRAMS = Path(__file__).with_name("frameworks")
HERE = "this table"
"""The last column of a row whose line is typed by this file."""
ENVIRON = {
    "DS_ACCELERATOR": "cpu",  # else DeepSpeed looks for GPUs
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of the page: the line to type, what the ranks print and how many of them, and what proves it."""

    name: str
    typed: str
    seen: str
    by: str

    @property
    def words(self) -> list[str]:
        return shlex.split(re.findall(r"`stackyard launch ([^`]+)`", self.typed)[0])

    @property
    def lines(self) -> list[str]:
        text, times = re.findall(r"`([^`]+)` by (\d)", self.seen)[0]
        return [text] * int(times)


def _rows() -> list[Row]:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines() if "|" in line]
    return [Row(name, typed, seen, by) for name, typed, _, seen, by in (row for row in cells[2:] if len(row) == 5)]


OWN = [row for row in _rows() if row.by == HERE]


def test_every_row_has_its_test_and_every_program_its_row() -> None:
    rows = _rows()
    assert len({row.name for row in rows}) == len(rows) > 20
    for row in rows:
        if match := re.fullmatch(r"`(tests/\S+\.py)::(\w+)`", row.by):
            assert f"def {match[2]}(" in (ROOT / match[1]).read_text(), row
        else:
            assert row.by == HERE or row.by.startswith("not tested: "), row
    typed = {Path(word).name for row in OWN for word in row.words}
    assert {path.name for path in PROGRAMS.glob("*.py")} <= typed


@pytest.fixture(scope="module")
def stack() -> dict[str, str]:
    """The variables of a shell in which the environment of all frameworks is active."""
    try:
        python = venvs.frameworks()
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    place = python.parents[1]
    kept = {
        "TORCH_EXTENSIONS_DIR": str(place / "torch_extensions")
    }  # DeepSpeed compiles an operator at the first start
    return {**ENVIRON, **kept, "VIRTUAL_ENV": str(place), "PATH": f"{python.parent}:{os.environ['PATH']}"}


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path, stack: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    for name, value in stack.items():
        monkeypatch.setenv(name, value)
    with working(slurm, tmp_path) as work:
        shutil.copytree(PROGRAMS, work.directory, dirs_exist_ok=True)
        for mpi in ("openmpi", "mpich"):
            words = [programs.need(f"mpicc.{mpi}"), "hello_mpi.c", "-o", f"hello_{mpi}"]
            subprocess.run(words, cwd=work.directory, check=True)
        yield work


@pytest.mark.long
@pytest.mark.real
@pytest.mark.parametrize("row", OWN, ids=lambda row: row.name)
def test_a_row(work: Work, row: Row) -> None:
    pairs = zip(SHAPE[::2], SHAPE[1::2], strict=True)
    shape = [word for option, value in pairs if option not in row.words for word in (option, value)]
    done = work.allocated("launch", *shape, *row.words, salloc=("-N2", "--ntasks-per-node=2", "--cpus-per-task=2"))
    logs = "\n".join(log.read_text() for log in work.last.glob("logs/rank-*.log"))
    first = row.lines[0].split()[0]
    said = re.findall(rf"^(?:\[\w+\]:)?({first} .*)$", logs, re.MULTILINE)
    assert said == row.lines, f"{logs}\n{done.err}"


@pytest.mark.long
@pytest.mark.real
def test_lightning_requeues_its_job(work: Work) -> None:
    """At the signal of a time limit it writes a checkpoint and requeues the job itself: one run, of two starts."""
    work.run("submit", *SHAPE, "-t", "5", "--requeue", "lit.py", "requeue")
    assert (work.status()["state"], work.status()["attempts"]) == ("done", 2)
    first, second = ([log.read_text() for log in sorted(place.glob("logs/rank-*.log"))]
                     for place in (work.last / "attempts" / "1", work.last))  # fmt: skip
    assert len(first) == len(second) == 2
    assert all("begins at epoch 0\n" in log and "world 2" not in log for log in first), first
    assert all("begins at epoch 1\n" in log and "world 2, sum 3\n" in log for log in second), second
