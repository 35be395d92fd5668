"""``stackyard.Executor``: functions as jobs, here and on a real Slurm."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, as_completed, wait
from pathlib import Path

import cloudpickle
import pytest

import stackyard
from stackyard.core.errors import InputError, MissingError
from stackyard.launch.api.options import OptionFields
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.status import array_tasks, cancel_task
from support.processes import wait_for
from support.slurmcli import Work

ONE = OptionFields(cores_per_rank=1, launcher="local", oversubscribe=True)
TWO = OptionFields(ranks_per_node=2, **ONE)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # pytest's own modules cannot be imported by ranks


class Diverged(Exception):
    """An exception of a user."""


class Stubborn(Exception):
    """One that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("no")
        self.lock = threading.Lock()


def scaled(rate: float, factor: float = 1) -> tuple[int, float]:
    print("rate", rate, flush=True)
    if rate < 0:
        raise Diverged(f"rate {rate}")
    return int(os.environ["RANK"]), rate * factor


def whereabouts() -> tuple[int, str]:
    return int(os.environ["RANK"]), os.uname().nodename


def end(how: str) -> None:
    if os.environ["RANK"] != os.environ.get("VICTIM", "0"):
        time.sleep(60)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stubborn":
        raise Stubborn
    sys.exit(3)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_functions_return_what_each_rank_returned(here: Path) -> None:
    heard: list[object] = []
    with stackyard.Executor(**TWO) as executor:
        future = executor.submit(scaled, 2.0, factor=3)
        future.add_done_callback(heard.append)
        assert future.result(timeout=240) == (0, 6.0)
        assert future.results() == [(0, 6.0), (1, 6.0)]
    assert heard == [future] and future.done() and not future.running() and not future.cancel()
    assert future.run.log(rank=1) == "rate 2.0\n" and future.run.state == "done"
    private = list((future.run.directory / "call").rglob("*.pkl"))
    assert len(private) == 4 and {path.stat().st_mode & 0o777 for path in private} == {0o600}
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(scaled, 1)


def test_a_sweep_gives_results_in_order_or_as_they_come(here: Path) -> None:
    with stackyard.Executor(**ONE) as executor:
        assert list(executor.map(scaled, [1, 2, 3], [10, 10, 10], chunksize=2)) == [(0, 10), (0, 20), (0, 30)]
        assert len(stackyard.runs()) == 2
        futures = executor.submit_each(scaled, [1.5, -1])
        assert set(as_completed(futures, timeout=240)) == set(futures)
        assert [future.exception() is None for future in futures] == [True, False]
        assert list(executor.map(scaled, [])) == []
        with pytest.raises(concurrent.futures.TimeoutError):  # the builtin one since Python 3.11
            list(executor.map(time.sleep, [1], timeout=0.01))


def test_an_exception_comes_back_with_rank_host_and_traceback(here: Path) -> None:
    with stackyard.Executor(**TWO) as executor, pytest.raises(Diverged, match="rate -1") as caught:
        executor.submit(scaled, -1).result()
    cause = caught.value.__cause__
    assert isinstance(cause, stackyard.RemoteTraceback) and (cause.host, cause.rank in (0, 1)) == (
        os.uname().nodename,
        True,
    )
    assert "in scaled" in cause.text and "call-scaled.py" not in cause.text and f"rank {cause.rank} on" in str(cause)


@pytest.mark.parametrize(("how", "kind"), [("exit", "SystemExit"), ("stubborn", "Stubborn")])
def test_what_cannot_be_raised_here_is_named(here: Path, how: str, kind: str) -> None:
    with stackyard.Executor(**ONE) as executor, pytest.raises(stackyard.RankFailed, match=kind) as caught:
        executor.submit(end, how).result()
    assert (caught.value.rank, caught.value.host, caught.value.kind) == (0, os.uname().nodename, kind)
    assert "in end" in caught.value.text


def test_a_job_without_a_result_names_the_first_failure(here: Path) -> None:
    with stackyard.Executor(**TWO, variables={"VICTIM": "1"}) as executor:
        future = executor.submit(end, "killed")
        with pytest.raises(stackyard.RunFailed, match="rank 1 on .*SIGKILL") as caught:  # noqa: RUF043
            future.result()
    assert (caught.value.state, caught.value.rank, caught.value.run) == ("failed", 1, future.run)
    assert "memory" in caught.value.cause and caught.value.hint


def test_a_rank_that_leaves_before_it_returns_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        if os.environ["RANK"] == "1":
            os._exit(0)

    monkeypatch.setattr("stackyard.launch.api.tasks.VISIBLE_S", 0.2)
    with stackyard.Executor(**TWO) as executor, pytest.raises(stackyard.RunFailed, match="rank 1 exited with status 0"):
        executor.submit(leave).result()


def test_only_the_last_attempt_counts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(leaves: bool) -> str:
        if os.environ["STACKYARD_ATTEMPT"] == "1":
            raise Diverged
        if leaves:
            os._exit(0)
        return os.environ["STACKYARD_ATTEMPT"]

    monkeypatch.setattr("stackyard.launch.api.tasks.VISIBLE_S", 0.2)
    with stackyard.Executor(**TWO, restarts=1) as executor:
        assert executor.submit(again, False).results() == ["2", "2"]
        with pytest.raises(stackyard.RunFailed, match="rank 0 exited with status 0"):
            executor.submit(again, True).result()


def test_what_is_returned_must_be_plain_enough(here: Path) -> None:
    with (
        stackyard.Executor(**ONE) as executor,
        pytest.raises(stackyard.RankFailed, match="cannot pickle what") as caught,
    ):
        executor.submit(threading.Lock).result()
    assert caught.value.hint and "file" in caught.value.hint


def test_running_and_waiting_jobs_are_cancelled(here: Path) -> None:
    with stackyard.Executor(**ONE) as executor:
        first, second = executor.submit_each(time.sleep, [600, 600])
        wait_for(first.running)
        assert second.cancel() and first.cancel() and first.cancelled()
        assert not wait([first, second], timeout=240).not_done
        with pytest.raises(CancelledError):
            first.result()
    assert [run.state for run in stackyard.runs()] == ["cancelled", "cancelled"]


def test_an_interrupt_of_the_block_ends_what_runs_here(here: Path) -> None:
    with pytest.raises(KeyboardInterrupt), stackyard.Executor(**ONE) as executor:
        future = executor.submit(time.sleep, 60)
        wait_for(future.running)
        signal.raise_signal(signal.SIGINT)
    assert future.cancelled() and future.run.state == "cancelled"


def test_secrets_are_not_sent_but_passed_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2-hunter2")
    token = os.environ["HF_TOKEN"]
    with stackyard.Executor(**ONE, passed=["HF_TOKEN"]) as executor:
        for function, arguments in ((lambda: token, ()), (len, (token,))):
            with pytest.raises(InputError, match="the value of HF_TOKEN"):
                executor.submit(function, *arguments)
        assert not (here / "runs").exists()
        assert executor.submit(lambda: len(os.environ["HF_TOKEN"])).result() == 15
    kept = [path for path in here.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert kept == []


def test_what_cannot_run_is_refused_before_anything_is_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()
    with pytest.raises(InputError, match="cannot pickle the function"):
        stackyard.Executor(**ONE).submit(lambda: lock)
    bare = here / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", here / "bare"], check=True)
    with pytest.raises(MissingError, match="cloudpickle not found in the Python of"):
        stackyard.Executor(**ONE, python=str(bare)).submit(whereabouts)
    monkeypatch.setattr(sys, "version_info", (3, 9, 0, "final", 0))
    with pytest.raises(InputError, match=r"this one is 3\.9"):
        stackyard.Executor(**ONE, python=str(bare)).submit(whereabouts)
    with pytest.raises(InputError, match="array"):
        stackyard.Executor(array="1-2")
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(MissingError, match="cloudpickle not found") as caught:
        stackyard.Executor(**ONE).submit(whereabouts)
    assert caught.value.hint == 'pip install "stackyard[python-api]"'
    assert not (here / "runs").exists()


def test_a_rank_says_that_its_python_cannot_run_the_function(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = here / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", here / "bare"], check=True)
    monkeypatch.setattr("stackyard.launch.api.executor.check_python", lambda job, python: None)  # as in a container
    with stackyard.Executor(**ONE, python=str(bare)) as executor:
        with pytest.raises(stackyard.RankFailed, match="cloudpickle not found"):
            executor.submit(whereabouts).result()
        monkeypatch.setattr(sys, "version_info", (3, 9, 0, "final", 0))
        with pytest.raises(stackyard.RankFailed, match=r"pickled by Python 3\.9"):
            executor.submit(whereabouts).result()


def test_modules_beside_a_script_are_found(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "mine.py").write_text("def twice(x):\n    return 2 * x\n")
    (here / "sub" / "main.py").write_text(
        "import mine, stackyard\n"
        "class Answer:\n    def __init__(self, x): self.x = x\n"
        "def call(x): return Answer(mine.twice(x))\n"
        f"with stackyard.Executor(**{dict(ONE)}) as executor:\n"
        "    answer = executor.submit(call, 21).result()\n"
        "    print(answer.x, type(answer) is Answer, executor.submit(mine.twice, 4).result())\n"
    )
    done = subprocess.run([sys.executable, "sub/main.py"], capture_output=True, text=True, check=False)
    assert done.stdout == "42 True 8\n", done.stderr


SHAPE = OptionFields(cores_per_rank=1, gpus_per_rank=0, time_min=5)


@pytest.mark.real
def test_functions_run_on_the_nodes_of_a_cluster(work_here: Work) -> None:
    with stackyard.Executor(**SHAPE, nodes=2, ranks_per_node=1) as executor:
        good, bad = executor.submit(whereabouts), executor.submit(scaled, -1)
        places = good.results(timeout=240)
        assert [rank for rank, _ in places] == [0, 1] and len({host for _, host in places}) == 2
        error = bad.exception(timeout=240)
    assert isinstance(error, Diverged) and isinstance(error.__cause__, stackyard.RemoteTraceback)
    assert error.__cause__.host in {f"n{number}" for number in range(1, 5)}
    assert good.run.how == "submit" and "stackyard.Executor(" in (good.run.directory / "job.sh").read_text()


@pytest.mark.real
def test_a_sweep_is_one_array_of_which_tasks_fail_and_are_cancelled_alone(work_here: Work) -> None:
    def task(rate: float) -> float:
        if rate == 9:
            time.sleep(300)
        return scaled(rate)[1]

    with stackyard.Executor(**SHAPE, max_at_once=3) as executor:
        good, bad, long = executor.submit_each(task, [1, -1, 9])
        assert len(stackyard.runs()) == 1 and good.result(timeout=240) == 1
        assert isinstance(bad.exception(timeout=240), Diverged)
        wait_for(long.running)
        assert long.run.directory.name == "3" and long.cancel() and long.cancelled()
    assert "--array=1-3%3" in (stackyard.find_run("last").directory / "job.sh").read_text()
    assert stackyard.find_run("last").code == 1  # as recorded
    assert stackyard.find_run("last").status.tasks == {"done": 1, "failed": 1, "cancelled": 1}
    work_here.nothing_left()


@pytest.mark.long
@pytest.mark.real
def test_a_job_that_another_cancels_is_a_failure_and_a_held_one_can_be_cancelled(work_here: Work) -> None:
    with stackyard.Executor(**SHAPE, scheduler_args=["--hold"]) as executor:
        held = executor.submit_each(time.sleep, [1, 1])
        cancelled = [future.cancel() for future in held]
        assert cancelled == [True, True], [future.exception() for future in held if not future.cancelled()]
    with stackyard.Executor(**SHAPE) as executor:
        future = executor.submit(time.sleep, 300)
        wait_for(future.running, 120)
        work_here.cluster.run("scancel", future.run.job)
        with pytest.raises(stackyard.RunFailed, match="cancelled") as caught:
            future.result(timeout=240)
    assert caught.value.state == "cancelled"
    work_here.nothing_left()


@pytest.mark.real
def test_what_is_seen_while_a_job_is_cancelled_is_not_its_failure(
    work_here: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm forgets a task of an array that is cancelled before its start; the others stay as they are."""

    def slowly(paths: RunPaths, index: str) -> None:
        cancel_task(paths, index)
        time.sleep(3)

    monkeypatch.setattr("stackyard.launch.api.tasks.cancel_task", slowly)
    with stackyard.Executor(**SHAPE, scheduler_args=["--hold"]) as executor:
        first, second = executor.submit_each(time.sleep, [1, 1])
        assert first.cancel() and first.cancelled() and not second.done()
        found = array_tasks(RunPaths(first.run.directory))
        assert [found[index].state for index in sorted(found)] == ["cancelled", "queued"], found
        assert second.cancel() and second.cancelled()
    work_here.nothing_left()


@pytest.mark.long
@pytest.mark.real
def test_the_scheduler_is_asked_seldom_for_many_jobs(work_here: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = work_here.directory / "asked"
    (work_here.directory / "bin").mkdir()
    for name in ("squeue", "scontrol", "sacct"):
        script = work_here.directory / "bin" / name
        script.write_text(f'#!/bin/sh\necho "{name} $*" >> {asked}\nexec {shutil.which(name) or "false"} "$@"\n')
        script.chmod(0o755)
    with stackyard.Executor(**SHAPE) as executor:
        began = time.monotonic()
        futures = [executor.submit(time.sleep, 3) for _ in range(4)]
        monkeypatch.setenv("PATH", f"{work_here.directory / 'bin'}:{os.environ['PATH']}")
        wait(futures, timeout=240)
        took = time.monotonic() - began
    queries = asked.read_text().splitlines() if asked.exists() else []
    assert [future.exception() for future in futures] == [None] * 4
    assert len(queries) <= 2 * (took + 2), queries  # a query that finds nothing is repeated with another program


@pytest.mark.long
@pytest.mark.real
def test_within_an_allocation_functions_run_there(work_here: Work) -> None:
    (work_here.directory / "sweep.py").write_text(
        "import os, stackyard\n"
        "def where(number): return number, os.environ['RANK'], os.uname().nodename\n"
        f"with stackyard.Executor(**{dict(SHAPE)}, nodes=2, ranks_per_node=1) as executor:\n"
        "    print(*executor.submit(where, 1).results())\n"
        "    print(list(executor.map(where, [2, 3])), [run.how for run in stackyard.runs()])\n"
    )
    argv = ["salloc", "-Q", "--partition=debug", "-N2", sys.executable, "-W", "ignore", "sweep.py"]
    environ = work_here.cluster.environ()
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert "(1, '0', 'n" in done.stdout and "(1, '1', 'n" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("(3, '0', ") == 1 and "['launch', 'launch', 'launch']" in done.stdout
