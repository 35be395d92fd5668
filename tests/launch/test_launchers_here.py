"""What starts ranks on one machine: spawn.py, Open MPI and hydra, each really run, with the binding that results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launcherbed import ready

from stackyard.host.run.command import Result, run, which
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.launchers import get
from stackyard.launch.plan.launchers.local import SPAWN
from stackyard.launch.plan.model import LaunchRequest
from support.processes import wait_for

CPUS = sorted(os.sched_getaffinity(0))
SHOW = "grep Cpus_allowed_list /proc/self/status | sed 's/.*:.//'"


def layout_of(cores: list[tuple[int, ...]], **changes: Any) -> Layout:
    """Ranks on this machine, with these of its cores."""
    node = Node("here", (NodeDomain(0, tuple(range(os.cpu_count() or 1))),), os.cpu_count() or 1)
    slots = tuple(Slot(rank, own) for rank, own in enumerate(cores))
    return Layout(node, (Block(0, 1, slots),), **changes)


def spawn(*words: str, timeout_s: float = 120, **extra: str) -> Result:
    argv = [sys.executable, "-I", "-S", str(SPAWN), *words]
    return run(argv, env=dict(os.environ) | extra, timeout_s=timeout_s, check=False)


# ------------------------------------------------------------------------------------------------ spawn.py


def test_local_ranks_know_who_they_are_and_stay_where_they_belong(tmp_path: Path) -> None:
    layout = layout_of([(CPUS[0],), (CPUS[-1],), (CPUS[0],)])
    line = get("local").line(LaunchRequest(layout, Scheduler()))
    names = "$STACKYARD_TASK $STACKYARD_TASKS $STACKYARD_LOCAL_TASK $STACKYARD_LOCAL_TASKS $STACKYARD_NODE"
    done = run([*ready(line, tmp_path), "sh", "-c", f"echo {names} $({SHOW})"])
    expected = [f"{rank} 3 {rank} 3 0 {cpu}" for rank, cpu in enumerate((CPUS[0], CPUS[-1], CPUS[0]))]
    assert sorted(done.stdout.splitlines()) == expected
    assert done.stderr == ""
    assert line.family == "stackyard"


def test_planned_cpus_that_are_not_there_are_said_once() -> None:
    done = spawn("--cpus", "5000-5003", "--cpus", str(CPUS[0]), "--cpus", "", "--", "sh", "-c", SHOW)
    whole = run(["sh", "-c", SHOW]).stdout.strip()
    assert done.stdout.split() == [whole] * 3
    assert done.stderr.count("some of the planned CPUs are not available here") == 1
    assert done.returncode == 0


def test_the_exit_code_is_that_of_the_first_failure_and_nobody_else_is_ended(tmp_path: Path) -> None:
    after = "after() { until [ -s $1 ] && ! kill -0 $(cat $1) 2>/dev/null; do sleep 0.05; done; }"
    ends = "0) after 2; echo end; exit 3;; 1) exit 7;; 2) after 1; kill -9 $$;;"
    program = f"cd {tmp_path}; {after}; echo $$ > $STACKYARD_TASK; case $STACKYARD_TASK in {ends} esac"
    done = spawn(*["--cpus", ""] * 4, "--", "sh", "-c", program)
    assert done.returncode == 7
    assert done.stdout == "end\n"


def test_a_signal_that_ends_a_rank_is_its_code() -> None:
    assert spawn("--cpus", "", "--", "sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV


def test_a_program_that_is_not_there() -> None:
    done = spawn("--cpus", "", "--", "/no/such/program")
    assert done.returncode == 126
    assert "stackyard: failed to start /no/such/program: No such file or directory" in done.stderr


@pytest.mark.parametrize("words", [(), ("--",), ("--cpus", "0"), ("--cpus", "0", "--"), ("--cpu", "0", "--", "true"),
                                   ("--cpus", "x", "--", "true"), ("true",)])  # fmt: skip
def test_a_line_that_is_not_understood(words: tuple[str, ...]) -> None:
    done = spawn(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("stackyard: spawn.py: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_all_ranks_and_what_they_started(number: signal.Signals, tmp_path: Path) -> None:
    # the shell starts a child that must get the signal too, and both say so
    program = f'for s in INT TERM USR1; do trap "echo got-$s >> {tmp_path}/got; exit 5" $s; done; ' \
              f'sh -c \'trap "echo child >> {tmp_path}/got; exit 0" INT TERM USR1; echo . >> {tmp_path}/up; ' \
              'while :; do sleep 0.05; done\' & while :; do sleep 0.05; done'  # fmt: skip
    argv = [sys.executable, "-I", "-S", str(SPAWN), "--cpus", "", "--cpus", "", "--", "bash", "-c", program]
    process = subprocess.Popen(argv, start_new_session=True)
    expected = 2 if number == signal.SIGINT else 4
    try:
        wait_for(lambda: _lines(tmp_path / "up") >= 2)
        process.send_signal(number)
        assert process.wait(60) == 5
        wait_for(lambda: _lines(tmp_path / "got") >= expected)
        got = sorted((tmp_path / "got").read_text().split())
        name = f"got-{number.name.removeprefix('SIG')}"
        # a shell's background child ignores SIGINT, as POSIX has it
        assert got == ([name] * 2 if number == signal.SIGINT else ["child"] * 2 + [name] * 2)
    finally:
        _end_session(process.pid)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def _end_session(leader: int) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def test_it_starts_in_little_time() -> None:
    before = os.times()
    for _ in range(5):
        spawn("--cpus", "", "--", "true")
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used / 5 < 0.5, "of a core, whatever else runs on it"


# ------------------------------------------------------------------------------------------------ MPI launchers


def _mpi(name: str, command: str) -> Any:
    return pytest.param(name, marks=pytest.mark.skipif(which(command) is None, reason=f"no {command} on this machine"))


MPI = [_mpi("mpirun", "mpirun"), _mpi("mpich", "mpiexec.hydra")]
RANK = {"mpirun": "$OMPI_COMM_WORLD_RANK", "mpich": "$PMI_RANK"}
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def started(name: str, layout: Layout, step: Path, **changes: Any) -> dict[int, str]:
    """Each rank's CPUs."""
    line = get(name).line(LaunchRequest(layout, Scheduler(), mpi=True, **changes))
    program = ["sh", "-c", f"echo {RANK[name]} $({SHOW})"]
    done = run([*ready(line, step), *program], env=dict(os.environ) | ROOT, timeout_s=240)
    return {int(rank): cpus for rank, cpus in (row.split() for row in done.stdout.splitlines())}


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("hosts", [(), ("localhost",)])
@pytest.mark.parametrize("name", MPI)
def test_mpi_ranks_stay_on_their_cores(name: str, hosts: tuple[str, ...], tmp_path: Path) -> None:
    assert started(name, layout_of([(0,), (1,)], hosts=hosts), tmp_path) == {0: "0", 1: "1"}
    assert started(name, layout_of([(0, 1), (1,)], hosts=hosts), tmp_path) == {0: "0-1", 1: "1"}


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("name", MPI)
def test_more_ranks_than_cores(name: str, tmp_path: Path) -> None:
    layout = layout_of([(0,), (1,), (0,), (1,)], hosts=("localhost",))
    assert started(name, layout, tmp_path) == {0: "0", 1: "1", 2: "0", 3: "1"}


@pytest.mark.parametrize("name", MPI)
def test_a_variable_goes_along(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "a b,c")
    line = get(name).line(LaunchRequest(layout_of([(0,)]), Scheduler(), mpi=True, variables=("MINE",)))
    done = run([*ready(line, tmp_path), "printenv", "MINE"], env=dict(os.environ) | ROOT, timeout_s=240)
    assert done.stdout.strip() == "a b,c"
