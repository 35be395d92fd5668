"""What a board shows, where its tool comes from, the line that it prints, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from board.boardbed import HTTP, ON_SOCKET, Shown, answering, asked, board, listening
from stackyard.board import prepared as board_module
from stackyard.board.prepared import Board, prepared
from stackyard.board.surroundings import Surroundings
from stackyard.board.tools import TABLE, Tool, find, of_command
from stackyard.core import plugins
from stackyard.core.errors import InputError
from stackyard.host.run.identity import hostname, whoami
from stackyard.inputs.sites.jobmodels import BoardPolicy
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.jobs.workspace import Workspace
from stackyard.yard.layout import Yard
from study.metricsbed import run_of
from support import torchstack
from support.cli import STACKYARD, inside, stackyard
from support.pluginvenv import install
from support.watched import nothing_left


def start(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(list(map(str, words)), text=True, **options)


def answer(shown: Shown, path: str = "/") -> str:
    return subprocess.run(asked(shown.socket, path), check=True, text=True, stdout=subprocess.PIPE).stdout


def workspace(site: Site | None = None, **environ: str) -> Workspace:
    return Workspace(site or Site(), Yard(Path("/none")), None, Path("runs"), environ, ("stackyard",))


def line(login: str = "", **environ: str) -> str:
    where = workspace(Site(board=BoardPolicy(login=login)), PATH="/none", **environ)
    shown = Board(where, TABLE["tensorboard"], "runs", (Path("/runs"),), Surroundings(None, {}))
    return shown.line_to_type(Path("/tmp/d/s"), 6006)


def test_the_line_to_type() -> None:
    me, here = whoami(), hostname()
    plain = f"ssh -N -L 6006:/tmp/d/s {me}@{here}"
    assert line() == plain
    assert line(login=here) == plain
    assert line(login=f"{here}.example.org") == f"{plain}.example.org"
    assert line(login="login.example.org") == f"ssh -N -L 6006:/tmp/d/s -J {me}@login.example.org {me}@{here}"
    assert f"'{me}@a; rm'" in line(login="a; rm")


def test_tools_are_rows_and_a_plug_in_adds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(tool.has("port") != tool.has("socket") and tool.has("directory") for tool in TABLE.values())
    monkeypatch.setattr(plugins, "directories", lambda: [tmp_path])
    monkeypatch.setattr(plugins, "_FOUND", {})
    monkeypatch.syspath_prepend(tmp_path)
    code = (
        "from stackyard.board.tools import Tool\nSTACKYARD_PROTOCOL = 1\nROW = Tool('netron', ('netron', '{port}'))\n"
    )
    install(tmp_path, "one_netron", "[stackyard.boards]\nnetron = one_netron:ROW\n", code)
    assert find("netron").words == ("netron", "{port}")
    with pytest.raises(InputError, match="no such tool: tensorbord") as error:
        find("tensorbord")
    assert "did you mean tensorboard?" in str(error.value.hint) and "aim, netron" in str(error.value.hint)


def test_the_words_of_a_tool_are_filled_in_once() -> None:
    tool = Tool("x", ("x", "--port={port}", "{directory}"))
    assert tool.command(Path("/a/{port}/{socket}"), Path("/s"), 80) == ["x", "--port=80", "/a/{port}/{socket}"]
    with pytest.raises(InputError, match=r"cannot tell where x listens: neither \{port\} nor \{socket\}"):
        of_command(["x", "{directory}"])


def test_a_run_shows_the_files_that_it_wrote(tmp_path: Path) -> None:
    paths = run_of(tmp_path, "", code={"directory": str(tmp_path)})
    tool = Tool("x", (sys.executable, "{port}"), part=".tfevents.", below="mlruns")
    with pytest.raises(InputError, match="2026-11-28-001 has written no files for x"):
        prepared(workspace(), str(paths.root), tool, "")
    for directory in (paths.root / "tb", paths.root / "tb" / "val", tmp_path / "logs" / "a"):
        directory.mkdir(parents=True)
        (directory / "events.out.tfevents.1").touch()
    shown = prepared(workspace(), str(paths.root), tool, "")
    assert shown.places == (paths.root / "tb", tmp_path / "logs" / "a")
    links = shown.place(tmp_path / "links")
    found = {path.relative_to(links): path.readlink() for path in links.rglob("*") if path.is_symlink()}
    inside = paths.root.relative_to(tmp_path) / "tb"
    assert found == {inside: paths.root / "tb", Path("logs/a"): tmp_path / "logs" / "a"}
    (paths.root / "mlruns").mkdir()
    other = prepared(workspace(), str(paths.root), Tool("y", (sys.executable, "{port}"), below="mlruns"), "")
    assert other.place(links) == paths.root / "mlruns" and other.name == paths.name


def test_what_is_missing_is_said_before_anything_starts(tmp_path: Path) -> None:
    own = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    (tmp_path / "python3").symlink_to(sys.executable)
    said = inside("board", tmp_path, "--tool", "optuna-dashboard", expect=4, **own).err
    assert f"optuna-dashboard not found in this shell ({tmp_path}/python3)" in said
    assert "add the package optuna-dashboard to the stack, or name a stack that has it: --stack REV" in said
    assert (
        "no_such not found in this shell" in inside("board", tmp_path, "--", "no_such", "{port}", expect=4, **own).err
    )
    assert "no such run: nothing" in inside("board", "nothing", expect=2, **own).err
    assert "exclude each other" in inside("board", tmp_path, "--tool", "aim", "--", "x", "{port}", expect=2).err
    assert "starting" not in said


def test_a_tool_that_fails_shows_what_it_said(tmp_path: Path) -> None:
    done = stackyard("board", tmp_path, "--", "python3", "-c", "import sys; sys.exit('no such data {port}')", expect=1)
    assert "exited with status 1" in done.err and "no such data 8000" in done.err and "ssh" not in done.out


def test_a_socket_of_its_own_below_a_long_directory(tmp_path: Path) -> None:
    """sun_path has room for 107 bytes."""
    (tmp_path / "tool.py").write_text(ON_SOCKET)
    long = tmp_path / ("x" * 80)
    long.mkdir()
    words = (STACKYARD, "board", tmp_path, "--port", "6007", "--", "python3", tmp_path / "tool.py", "{socket}")
    with board(partial(start, env=os.environ | {"TMPDIR": str(long)}), *words) as shown:
        assert answer(shown) == "here\n"
        assert shown.socket.parent.parent == Path("/tmp") and "-L 6007:" in shown.said
        assert "http://localhost:6007/" in shown.said


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_nothing_is_left(tmp_path: Path, how: str) -> None:
    process = start(STACKYARD, "board", tmp_path, *HTTP, stdout=-1, stderr=-1)
    shown = answering(process)
    assert len(shown.processes) >= 3
    process.send_signal(getattr(signal, how))
    if how == "SIGKILL":  # its directory is removed by the next command of this account
        assert process.wait(30) == -signal.SIGKILL and not nothing_left(str(shown.socket.parent))
        stackyard("list", expect=None)
        return
    assert shown.ended() == 128 + getattr(signal, how)
    process.communicate()


@pytest.mark.parametrize("session", [True, False], ids=["setsid", "foreground"])
def test_it_ends_with_its_terminal(tmp_path: Path, session: bool) -> None:
    """In a session of its own it gets no SIGHUP."""
    ours, theirs = pty.openpty()
    words = (STACKYARD, "board", tmp_path, *HTTP)
    process = start(*words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=session)
    os.close(theirs)
    seen = b""

    def lines() -> str:
        nonlocal seen
        seen += os.read(ours, 4096)
        return seen.decode()

    shown = answering(process, lines)
    time.sleep(0.3)
    os.close(ours)
    assert shown.ended() != 0


def test_tensorboard_of_a_stack_shows_a_run(tmp_path: Path) -> None:
    yard = torchstack.tensorboard_yard()
    python = torchstack.python(yard)
    code = "import sys\nfrom tensorboard.summary import Writer\n"
    code += "w = Writer(sys.argv[1])\nw.add_scalar('loss', 1.0, 1)\nw.close()"
    module = f"{python.parents[3].name}/{python.parents[2].name}"
    paths = run_of(tmp_path, "", stack={"module": module, "folder": "/none"}, code={"directory": str(tmp_path)})
    for directory in (paths.root / "tb", tmp_path / "logs" / "a"):
        subprocess.run([python, "-c", code, directory], check=True)
    with board(start, STACKYARD, "--yard", yard, "board", paths.root) as shown:
        assert f"tensorboard shows {paths.name}" in shown.said and "-L 6006:" in shown.said
        tags = json.loads(answer(shown, "/data/plugin/scalars/tags"))
        assert {name: list(tag) for name, tag in tags.items()} == {
            f"runs/{paths.name}/tb": ["loss"], "logs/a": ["loss"],
        }  # fmt: skip
        assert "<title>TensorBoard</title>" in answer(shown)
        assert listening(shown.processes) == [] and len(shown.processes) >= 2
        assert shown.socket.stat().st_mode & 0o777 == 0o600


def test_the_programs_of_a_stack_do_not_see_our_modules(tmp_path: Path) -> None:
    """They are started by their path, whose directory has an `api`, a `tools` and others."""
    (tmp_path / "tensorboard.py").write_text(
        "import sys\ntry:\n    import tools\nexcept ImportError:\n    sys.exit(66)\n"
    )
    words = [sys.executable, str(Path(board_module.__file__).with_name("socket_server.py")), "tensorboard", "s", "d"]
    assert subprocess.run(words, env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False).returncode == 66
