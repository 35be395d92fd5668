"""``stackyard profile RUN``: a run that is running now."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.launch.api.profiling import ProfileRequest, profile_run
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.run.agentfile import plan_of
from stackyard.launch.run.asking.requester import Requester
from support import torchstack
from support.accounts import Accounts
from support.cli import stackyard
from support.processes import wait_for
from support.watched import Running, local_line, make_plan

PROGRAMS = Path(__file__).parent / "programs"
STACKYARD = Path(sys.executable).with_name("stackyard")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    for name in ("PYTHONPATH", "STACKYARD_PROBE"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def running(
    tmp_path: Path, *words: str | Path, python: Path = Path(sys.executable), place: Path | None = None
) -> Iterator[RunPaths]:
    """A launch of two ranks, once its program runs; cancelled with the block."""
    environ = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "STACKYARD_HOME": f"{tmp_path}/home"}
    argv = [STACKYARD, "launch", "--launcher", "local", "-r", "2", "--grace", "1", "--", *words]
    with (tmp_path / "out.log").open("w") as out:
        process = subprocess.Popen(argv, cwd=tmp_path, env=environ, stdout=out, stderr=out)
    try:
        wait_for(lambda: list(tmp_path.glob("runs/*/status.json")) or process.poll() is not None, 120)
        (root,) = (tmp_path / "runs").iterdir()
        wait_for(lambda: process.poll() is not None or len(sockets(place or tmp_path)) == 2, 120)
        assert process.poll() is None, (tmp_path / "out.log").read_text()
        yield RunPaths(root)
    finally:
        process.terminate()
        process.wait(60)


def sockets(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("stackyard-*/probe/*.sock"))


@pytest.mark.real
@pytest.mark.long
def test_an_unchanged_program_under_a_shell(tmp_path: Path) -> None:
    try:
        python = torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    with running(tmp_path, "bash", "-c", f"python {PROGRAMS}/trains.py {tmp_path}/end; exit $?", python=python) as run:
        wait_for((tmp_path / "end.up").exists, 120)
        shown = stackyard("profile", run.name, "--steps", "4", cwd=tmp_path)
        (first,) = shown.out.split()
        assert first == f"{run.main.profile}/torch/rank-00000.pt.trace.json.gz"
        names = {event["name"] for event in json.loads(gzip.decompress(Path(first).read_bytes()))["traceEvents"]}
        assert {name for name in names if name.startswith("ProfilerStep")} == {f"ProfilerStep#{n}" for n in range(4)}
        # a second time: ranks, seconds; the earlier traces are set aside
        words = ("profile", "last", "--for", "0.5s", "--ranks", "0,1", "--shapes", "--json")
        again = json.loads(stackyard(*words, cwd=tmp_path).out)
        assert [(one["rank"], one["error"]) for one in again["ranks"]] == [(0, ""), (1, "")]
        assert sorted(p.name for p in (run.main.profile / "torch").iterdir()) == [
            "rank-00000.pt.trace.json.gz", "rank-00001.pt.trace.json.gz",
        ]  # fmt: skip
        assert (run.main.profile / "torch-1" / Path(first).name).exists()
        refused = stackyard("profile", "last", "--ranks", "7", cwd=tmp_path, expect=2)
        assert "rank 7 of" in refused.err and "ranks that can be: 0, 1" in refused.err
        assert "profiled (torch" in stackyard("runs", cwd=tmp_path).out
        (tmp_path / "end").touch()
        wait_for(lambda: json.loads(run.status.read_text())["state"] == "done", 60)


def test_what_cannot_be_traced(tmp_path: Path) -> None:
    """A framework without a profiler, a program without a framework, a run that has ended, another secret."""
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "train.py").write_text("import torch, time\ntime.sleep(300)")
    with running(tmp_path, tmp_path / "train.py") as run:
        with pytest.raises(StackyardError, match="cannot trace 1 rank: "):
            profile_run(run, ProfileRequest(steps=5), print)
        agent = run.main.agent
        text = agent.read_text()
        agent.write_text(text.replace(plan_of(text)["secret"], "0" * 64))
        with pytest.raises(StackyardError, match="cannot connect to the launch") as caught:
            Requester(run.main, "node7")
        assert "run this command on node7" in (caught.value.hint or "")
        agent.write_text(text)
        agent.chmod(0o644)
        with pytest.raises(InputError, match="is another user's, or open to others"):
            profile_run(run, ProfileRequest(steps=5), print)
    assert "not running: cancelled" in stackyard("profile", "last", cwd=tmp_path, expect=2).err


def test_requests_reach_every_node(tmp_path: Path) -> None:
    """Two "nodes" of two ranks; one request to all, one to a single process; while others ask too."""
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "train.py").write_text("import torch, time\nprint('up', flush=True)\ntime.sleep(300)")
    argv = (sys.executable, f"{tmp_path}/train.py")
    run = Running(tmp_path / "step", make_plan(local_line(2, 2), 2, 2, *argv), probe=True, start_s=120.0, grace_s=1.0)
    try:
        run.until("up", 4)
        with closing(Requester(run.step, "")) as one, closing(Requester(run.step, "")) as other:
            states = one.ask({"do": "state"})
            assert sorted(int(state.values["rank"]) for state in states) == [0, 1, 2, 3]
            (last,) = [state for state in states if state.values["rank"] == 3]
            (only,) = other.ask({"do": "state"}, {last.task: [last.pid]})
            assert only.values["rank"] == 3
            (wrong,) = other.ask({"do": "start", "trace": "none"}, {last.task: [last.pid]})
            assert wrong.error == "no such trace: none"
            os.kill(last.pid, signal.SIGSTOP)  # it does not answer; the others, and the launch, go on
            assert (
                len(one.ask({"do": "state"}, {state.task: [state.pid] for state in states if state is not last})) == 3
            )
            os.kill(last.pid, signal.SIGKILL)
    finally:
        result = run.end()
    assert result.first is not None and result.first.task == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--steps", "5", "--for", "10s"), "--steps with --for"), (("--for", "soon"), "--for soon: not a time"),
     (("--for", "0s"), "not a time"), (("--ranks", "a"), "--ranks a: not a list of ranks")],
)  # fmt: skip
def test_refuses(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in stackyard("profile", "last", *words, cwd=tmp_path, expect=2).err


ASK = """
import sys
from pathlib import Path
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.asking.requester import Requester
Requester(StepPaths(Path(sys.argv[1])), "")
"""
LOOK = "import os, sys; os.stat(sys.argv[1])"


def test_a_run_of_another_user(
    tmp_path: Path, accounts: Accounts, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused by its record, by the file with its secret, and by the directory with the sockets."""
    monkeypatch.setenv("STACKYARD_TMP", str(common))
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "train.py").write_text("import torch, time\ntime.sleep(300)")
    with running(tmp_path, tmp_path / "train.py", place=common) as run:
        other, copy = accounts.user("other"), common / "run"
        copy.mkdir()
        for name in ("record.json", "status.json", "agent.py"):
            (copy / name).write_bytes((run.root / name).read_bytes())
            (copy / name).chmod(0o600 if name == "agent.py" else 0o644)
        copy.chmod(0o755)
        assert "belongs to root, not to you" in other.stackyard("profile", copy, expect=2).err
        denied = other.python(ASK, copy, expect=None)
        assert denied.code and "cannot read" in denied.err
        for sock in sockets(common):
            looked = other.python(LOOK, sock, expect=None)
            assert looked.code and "PermissionError" in looked.err
