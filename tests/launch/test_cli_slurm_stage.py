"""``--stage`` on a real Slurm: four nodes with a directory each, jobs beside each other, and a node that is lost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real
RANKS = ("-r", "1", "-c", "1", "-g", "0")
READ = """\
import hashlib, os, sys, time
stage = os.environ["STACKYARD_STAGE"]
name = hashlib.sha256(open(os.path.join(stage, "data/big"), "rb").read()).hexdigest()
print(name, os.uname().nodename, stage, os.environ["STACKYARD_ATTEMPT"], flush=True)
if sys.argv[1:] == [os.environ["STACKYARD_ATTEMPT"]] and os.environ["RANK"] == "1":
    sys.exit(9)
"""


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path, read=READ) as made:
        (made.directory / "data").mkdir()
        (made.directory / "data/big").write_bytes(os.urandom(3_000_000))
        yield made


def said(work: Work) -> list[list[str]]:
    return [log.read_text().split() for log in sorted(work.last.glob("logs/rank-*.log"))]


def nothing_staged(work: Work) -> bool:
    return not list((work.directory / "disk").iterdir())


def test_every_node_has_it_on_its_own_disk(work: Work) -> None:
    done = work.allocated("launch", *RANKS, "--stage", "data", "read.py", salloc=("-N4",))
    assert "staging 2.9 MiB to 4 nodes" in done.err
    assert "staged 2.9 MiB on each of 4 nodes in" in done.err
    assert len({line[0] for line in said(work)}) == 1
    for _, host, place, _ in said(work):
        assert place.startswith(f"{work.directory}/disk/stackyard-stage-{os.getuid()}-")
        assert place.endswith(f"-{host}/files")
    assert len({line[1] for line in said(work)}) == 4
    assert nothing_staged(work)


def test_two_jobs_stage_the_same_at_the_same_time(work: Work) -> None:
    """Each on the same two nodes, and each has its own copy; the second attempt of a job has that of the first."""
    words = ("submit", "-N", "2", *RANKS, "--restarts", "1", "--stage", "data", "--scheduler-arg=--nodelist=n1,n2")
    started = [work.start(*words, "read.py", "1") for _ in range(2)]
    shown = [one.communicate(timeout=240)[1] for one in started]
    assert [one.returncode for one in started] == [0, 0], shown
    for directory in (work.directory / "runs").iterdir():
        places = {log.read_text().split()[2] for log in directory.rglob("rank-*.log")}
        assert len(places) == 2, "two nodes, whatever the attempt"
        assert json.loads((directory / "stage.json").read_text())["nodes"] == 0
        assert json.loads((directory / "attempts/1/result.json").read_text())["staged"]["nodes"] == 2
    assert nothing_staged(work)


@pytest.mark.long
def test_a_node_that_is_lost_while_files_are_staged(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    """It is named, its place is taken by a spare one, and what the other one has is not copied again."""
    with working(slurm_exclusive, tmp_path, read=READ) as work:
        (work.directory / "data").mkdir()
        (work.directory / "data/big").touch()
        os.truncate(work.directory / "data/big", 1 << 30)
        words = ("-N", "2", *RANKS, "--restarts", "1", "--lost-timeout", "5", "--stage", "data")
        started = work.start("launch", *words, "--launcher-arg=--no-kill", "read.py", salloc=("-N3", "--no-kill"))
        work.until(lambda: work.status()["phase"].startswith("staging"))
        slurm_exclusive.lose_node("n2", "cut")
        work.until(lambda: bool(work.events("node-lost")))
        out, err = started.communicate(timeout=240)
        assert started.returncode == 0, (out, err)
        assert "attempt 2, after: heartbeat timeout: n2" in err
        assert {line[1] for line in said(work)} == {"n1", "n3"}
        time.sleep(0.1)
        slurm_exclusive.restore_node("n2")
