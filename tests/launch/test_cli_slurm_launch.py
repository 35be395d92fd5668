"""``stackyard launch`` on a real Slurm, and everything that can go wrong with it, as a person sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from support.slurm import Loss, SlurmCluster
from support.slurmcli import SHAPE, Work, working

pytestmark = pytest.mark.real
RANKS = SHAPE[2:]
SOON = ("--lost-timeout", "5")


def test_a_rank_that_fails_ends_those_that_wait(work: Work) -> None:
    done = work.allocated("launch", *RANKS, "exit.py", "3", "block", expect=3)
    assert re.search(r"error: rank 1 on n\d exited with status 3", done.err)
    assert f"{work.last}/rank.sh" in done.err
    assert work.status()["state"] == "failed"
    work.nothing_left()


def test_what_srun_prints_of_the_others_is_no_output_of_the_rank_that_failed(work: Work) -> None:
    (work.directory / "silent.py").write_text(
        "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(300)\n"
    )
    done = work.allocated("launch", *RANKS, "silent.py", expect=3)
    shown = done.err.partition("exited with status 3")[2]
    assert "logs:" in shown
    assert not re.search("Terminat|CANCELLED|143|Killed", shown), shown


def test_a_killed_rank_is_named(work: Work) -> None:
    started = work.start("launch", *RANKS, "block.py", salloc=("-N2",))
    work.up()
    os.kill(_rank(work, 1), signal.SIGKILL)
    _, err = started.communicate(timeout=240)
    assert started.returncode == 137
    assert re.search(r"rank 1 on n\d was killed by signal 9 \(SIGKILL\)", err)
    work.nothing_left()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_to_the_launch_end_all_ranks(work: Work, number: signal.Signals, code: int) -> None:
    started = work.start("launch", *SHAPE, "block.py")
    work.up()
    started.send_signal(number)
    _, err = started.communicate(timeout=240)
    assert started.returncode == code, err
    assert "cancelled: all ranks terminated" in err
    assert work.status()["state"] == "cancelled"
    work.nothing_left()


def test_a_second_interrupt_does_not_wait(work: Work) -> None:
    (work.directory / "deaf.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\n"
        "print('up', flush=True)\ntime.sleep(300)\n"
    )
    started = work.start("launch", *SHAPE, "--grace", "200", "deaf.py")
    work.up()
    started.send_signal(signal.SIGINT)
    work.until(lambda: all("told" in log.read_text() for log in (work.last / "logs").glob("rank-*.log")))
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=240)  # they would have been given 200 s
    assert started.returncode == 130
    work.nothing_left()


def test_ranks_do_not_outlive_a_launch_that_was_killed(work: Work) -> None:
    started = work.start("launch", *RANKS, "block.py", salloc=("-N2",))
    work.up()
    os.kill(work.watcher(), signal.SIGKILL)
    started.communicate(timeout=240)
    work.nothing_left()
    assert work.run("runs", "--json").value[0]["state"] == "lost"


def test_a_launch_is_cancelled_from_another_shell(work: Work) -> None:
    started = work.start("launch", *SHAPE, "block.py")
    work.up()
    work.run("runs", "cancel", "last")
    started.communicate(timeout=240)
    assert started.returncode == 130
    work.nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "how"), [pytest.param("launch", "cut", marks=pytest.mark.long), ("submit", "power")])
def test_a_lost_node_is_named_within_seconds(
    slurm_exclusive: SlurmCluster, tmp_path: Path, verb: str, how: Loss
) -> None:
    with working(slurm_exclusive, tmp_path) as work:
        started = work.start(verb, "-N", "3", *RANKS, *SOON, "block.py", salloc=("-N3",) if verb == "launch" else None)
        work.up(3)
        began = time.time()
        slurm_exclusive.lose_node("n3", how)
        work.until(lambda: bool(work.events("node-lost")))
        noticed = work.events("node-lost")[0]["time"] - began
        print(f"named {noticed:.1f} s after the node was lost")
        work.until(lambda: work.status()["state"] == "node-lost")
        ended = work.status()["ended"] - began
        if verb == "launch":
            slurm_exclusive.run("scancel", "--user=root", check=False)
        _, err = started.communicate(timeout=240)
        print(f"all ended after {ended:.1f} s")
        assert started.returncode == 1, err
        assert "heartbeat timeout: n3" in err
        assert noticed < 60, "5 s of silence, and a slow machine"
        for node in ("n1", "n2"):
            assert not [line for line in slurm_exclusive.processes(node).values() if "block.py" in line]


def test_fewer_nodes_than_the_allocation_and_more(work: Work) -> None:
    done = work.allocated("launch", "-N", "1", "-r", "2", *RANKS[2:], "exit.py", "0", salloc=("-N3", "-c2"))
    assert "rank 0 of 2" in done.out
    assert len(work.status()["hosts"]) == 1
    done = work.allocated("launch", *RANKS, "-t", "5", "-A", "other", "--dry-run", "exit.py", "0")
    assert "--time, --account ignored: the nodes are already allocated" in done.err
    done = work.allocated("launch", "-N", "4", *RANKS, "exit.py", "0", salloc=("-N3",), expect=2)
    assert "4 nodes requested, but this allocation has 3" in done.err
    done = work.run("launch", "-N", "5", *RANKS, "exit.py", "0", expect=2)
    assert "5 nodes requested, but partition debug has 4" in done.err
    assert "-N 4" in done.err
    assert len(list((work.directory / "runs").iterdir())) == 1


def test_the_partition_is_that_of_the_only_kind(work: Work) -> None:
    site = work.directory.parent / "site.yaml"
    site.write_text(site.read_text().replace("    cores: 32\n", "    cores: 32\n    queue: elsewhere\n"))
    shown = work.run("submit", "-N", "50", *RANKS, "--dry-run", "exit.py", "0")  # of which Slurm here knows nothing
    assert "#SBATCH --partition=elsewhere" in shown.out


def test_a_launch_outside_of_an_allocation_makes_one(work: Work) -> None:
    work.run("launch", *SHAPE, "-p", "short", "-A", "project", "-t", "1", "-J", "named", "exit.py", "0")
    words = ("--array", "0-1", "--scheduler-arg=--nodelist=n3,n4")
    shown = work.run("launch", *SHAPE, *words, "--dry-run", "exit.py", "0")
    assert "--nodelist=n3,n4" in shown.out
    assert "--array ignored: no batch job is created" in shown.err
    command = json.loads((work.last / "record.json").read_text())["plan"]["command"]
    assert "--partition=short" in command
    assert "--account=project" in command
    assert "--time=0:01:00" in command
    completed = (work.cluster.directory / "log" / "jobcomp.txt").read_text()
    assert re.search(r"Name=named .*Partition=short TimeLimit=1 ", completed)


def test_a_launch_waits_for_its_nodes_as_long_as_it_takes(work: Work) -> None:
    started = work.start("launch", *SHAPE, "--launcher-arg=--begin=now+4", "exit.py", "0")
    out, err = started.communicate(timeout=240)
    assert started.returncode == 0, err
    assert "] queued" in err
    assert out.startswith("rank 0 of 2")


@pytest.mark.parametrize("words", [
    ("launch", "exit.py", "0"), ("launch", "exit.py", "4"), ("launch", "--dry-run", "exit.py", "0"),
    ("submit", "exit.py", "0"), ("submit", "exit.py", "4"), ("submit", "--dry-run", "exit.py", "0"),
    ("explain", "exit.py"),
])  # fmt: skip
def test_json_is_all_that_is_printed(work: Work, words: tuple[str, ...]) -> None:
    done = work.run(words[0], *SHAPE, "--json", *words[1:], expect=4 if words[-1] == "4" else 0)
    value: Any = done.value
    assert isinstance(value, dict)
    if "--dry-run" in words or words[0] == "explain":
        assert not (work.directory / "runs").exists()
    else:
        assert value["code"] == int(words[-1])


def test_srun_is_not_told_cores_behind_our_back(work: Work) -> None:
    done = work.allocated("launch", *RANKS[:2], "-c", "2", *RANKS[4:], "exit.py", "0",
                          salloc=("-N2", "-c4", "env", "SRUN_CPUS_PER_TASK=9"))  # fmt: skip
    assert "rank 0 of 2" in done.out


def _rank(work: Work, rank: int) -> int:
    """The process of a rank, by what it printed."""
    return int((work.last / "logs" / f"rank-{rank:05d}.log").read_text().split()[2])
