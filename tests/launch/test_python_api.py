"""``stackyard.launch``, ``submit`` and ``runs`` as a Python program calls them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import stackyard
import stackyard.launch.api.calls  # the name `launch` is then set by the import system
from stackyard.core.errors import InputError, MissingError
from stackyard.launch.api.options import OptionFields
from stackyard.launch.request.intent import BatchOptions, Intent
from support.cli import stackyard as stackyard_command
from support.processes import wait_for
from support.slurmcli import Work

HELLO = "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], *sys.argv[1:], flush=True)\n"
FAIL = HELLO + "if os.environ['RANK'] == '1': sys.exit(3)\nimport time; time.sleep(600)\n"
BLOCK = HELLO + "import time; time.sleep(600)\n"
TWO = stackyard.launch.api.options.OptionFields(
    ranks_per_node=2, cores_per_rank=1, gpus_per_rank=0, launcher="local", oversubscribe=True
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with programs."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"hello": HELLO, "fail": FAIL, "block": BLOCK}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_the_package_is_light_until_it_is_used() -> None:
    text = """import sys, stackyard
    assert not {'importlib.metadata', 'typing', 'stackyard.launch', 'pydantic'} & set(sys.modules), sys.modules
    from stackyard import Run, RunFailed, launch, runs
    assert 'stackyard.launch.api.calls' in sys.modules and callable(launch) and 'submit' in dir(stackyard)
    import stackyard.launch.api.runs as door
    assert door.list_runs and stackyard.launch is launch
    """
    subprocess.run([sys.executable, "-c", text.replace("\n    ", "\n")], check=True)


def test_the_keyword_arguments_are_the_fields_of_a_request() -> None:
    fields = {**Intent.model_fields, **BatchOptions.model_fields}
    of_a_terminal = {"debug_rank", "stdin_rank"}
    assert set(OptionFields.__annotations__) == set(fields) - {"program", "batch", "unanswered"} - of_a_terminal
    for name, kind in get_type_hints(OptionFields).items():
        assert (type(None) in get_args(kind)) == (type(None) in get_args(fields[name].annotation)), name


def test_a_program_is_launched_and_its_run_found_again(here: Path) -> None:
    heard: list[str] = []
    run = stackyard.launch("hello.py", 0.5, here / "x", **TWO, show=heard.append)
    assert "".join(heard) == f"rank 0 of 2 0.5 {here / 'x'}\n"
    assert (run.state, run.code, run.how, run.nodes, run.hosts) == ("done", 0, "launch", 1, (os.uname().nodename,))
    assert run.log(1).startswith("rank 1 of 2") and run.seconds > 0
    assert stackyard.runs() == [run] == stackyard.runs(here / "runs", everywhere=True) == [stackyard.find_run("last")]
    assert repr(run).startswith(f"<Run {run.name} done: hello.py 0.5 x>")
    assert "rank 0 of 2" in (run.directory / "batch.log").read_text()
    with pytest.raises(InputError, match="no log of rank 7"):
        run.log(7)
    again = stackyard_command("launch", "--again", run.name)
    assert again.out == f"rank 0 of 2 0.5 {here / 'x'}\n"


def test_the_recorded_call_is_the_call_without_secrets(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "from-the-shell-7391")
    run = stackyard.launch("hello.py", **TWO, variables={"API_KEY": "hunter2-hunter2"}, passed=["HF_TOKEN"])
    text = (run.directory / "record.json").read_text()
    assert "stackyard.launch('hello.py', ranks_per_node=2" in text
    assert not {name for name in run.directory.rglob("*") if name.is_file() and "hunter2" in name.read_text()}
    assert "from-the-shell" not in text


def test_a_failure_is_an_exception_that_names_rank_host_and_hint(here: Path) -> None:
    with pytest.raises(stackyard.RunFailed, match=r"rank 1 on .* exited with status 3") as caught:
        stackyard.launch("fail.py", **TWO)
    error = caught.value
    assert (error.state, error.code, error.rank, error.host) == ("failed", 3, 1, os.uname().nodename)
    assert error.run.log(1).startswith("rank 1") and error.hint and str(error.run.directory) in error.hint
    assert str(error).endswith(f"\nhint: {error.hint}")
    assert "rank 1 of 2" in str(error)
    assert stackyard.launch("fail.py", **TWO, raises=False).state == "failed"


def test_what_cannot_be_is_refused_before_anything_is_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="'nodez'; did you mean nodes"):
        stackyard.launch("hello.py", nodez=2)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="time_min"):
        stackyard.submit("hello.py", time_min=-1)
    with pytest.raises(InputError, match=r"gone\.py not found"):
        stackyard.launch("gone.py", **TWO)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingError, match="no scheduler found"):
        stackyard.submit("hello.py")
    assert not (here / "runs").exists()


def test_an_interrupt_ends_the_ranks_and_is_raised(here: Path) -> None:
    def interrupt(text: str) -> None:
        if "rank 0" in text:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        stackyard.launch("block.py", **TWO, show=interrupt)
    assert stackyard.find_run("last").state == "cancelled"


def test_a_launch_from_a_thread_is_cancelled_by_another(here: Path) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            stackyard.launch("block.py", **TWO)
        except stackyard.RunFailed as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: bool(stackyard.runs()) and "rank 0" in _log(stackyard.runs()[0]))
    run = stackyard.find_run("last")
    with pytest.raises(TimeoutError, match=r"is running after 0\.2 s"):
        run.wait(timeout=0.2)
    run.cancel()
    thread.join(120)
    assert [error.state for error in failed if isinstance(error, stackyard.RunFailed)] == ["cancelled"]


def test_the_ranks_end_with_a_program_that_is_killed(here: Path) -> None:
    text = "import stackyard, sys; stackyard.launch('block.py', cores_per_rank=1, ranks_per_node=1, launcher='local')"
    with subprocess.Popen([sys.executable, "-c", text], cwd=here) as caller:
        wait_for(lambda: bool(stackyard.runs()) and "rank 0" in _log(stackyard.runs()[0]))
        caller.kill()
    wait_for(lambda: stackyard.runs()[0].status.over)
    assert stackyard.runs()[0].state == "cancelled"


def test_a_launch_that_cannot_start_is_a_failure_with_the_reason(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(stackyard.RunFailed, match="Fatal Python error"):
        stackyard.launch("hello.py", **TWO)


def _log(run: stackyard.Run) -> str:
    path = run.directory / "logs" / "rank-00000.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.real
def test_a_program_is_submitted_waited_for_and_cancelled(work_here: Work) -> None:
    shape = OptionFields(nodes=2, ranks_per_node=1, cores_per_rank=1, gpus_per_rank=0, time_min=5)
    first, second = (stackyard.submit("exit.py", code, **shape) for code in (0, 4))
    assert first.job and first.wait(timeout=240).state == "done" and len(first.hosts) == 2
    assert "python -c 'import stackyard; stackyard.submit('\"'\"'exit.py" in (first.directory / "job.sh").read_text()
    with pytest.raises(stackyard.RunFailed, match="exited with status 4"):
        second.wait(timeout=240)
    third = stackyard.submit("block.py", **shape)
    work_here.up()
    third.cancel()
    assert third.wait(timeout=240, raises=False).state == "cancelled"
    array = stackyard.submit("exit.py", 0, **{**shape, "nodes": 1}, array="0-1")
    array.wait(timeout=240)
    assert array.task_states() == {"0": "done", "1": "done"} and [task.log() for task in array.tasks]
    work_here.nothing_left()
