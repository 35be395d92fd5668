"""Command lines that are wrong: what a person reads, a hint that can be typed, no colours where none are wanted."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.accounts import Accounts
from support.cli import STACKYARD, inside, stackyard

WRONG = {
    ("ls",): ("no such command: stackyard ls", "did you mean `stackyard list`?"),
    ("depoy", "x"): ("no such command: stackyard depoy", "did you mean `stackyard deploy`?"),
    ("xyzzy",): ("no such command: stackyard xyzzy", "`stackyard --help` lists all"),
    ("help", "nope"): ("no such command: stackyard nope", "`stackyard --help` lists all"),
    ("runs", "sho"): ("no such command: stackyard runs sho", "did you mean `stackyard runs show`?"),
    ("deploy", "--nmae", "x"): ("no such option: --nmae", "did you mean --name? `stackyard deploy --help` lists all"),
    ("list", "--yard", "/y"): ("no such option: --yard", "it comes before the verb: stackyard --yard ... list"),
    ("deploy",): ("missing argument FILE...", "for example: stackyard deploy stack.yaml; `stackyard deploy --help`"),
    ("launch", "-r", "x", "a.py"): ("--ranks-per-node: 'x' is not a valid integer", "`stackyard launch --help`"),
    ("launch", "--name"): ("option '--name' requires an argument", "`stackyard launch --help`"),
    ("share", "mine"): ("missing option '--with'", "for example: stackyard share"),
    ("recipe", "mine"): ("missing option '--as': containerfile or def", "for example: stackyard recipe"),
    ("--site", ".", "list"): ("cannot use the site file {cwd}: it is a directory", "name the file: {cwd}/site.yaml"),
    ("show", "x" * 5000): ("no such revision in {cwd}/yard: " + "x" * 160 + "...", "list the published"),
    ("deploy", "e.yml", "--name", "x" * 300): (
        "--name: '" + "x" * 60 + "...' is not a module name",
        "use at most 201 letters",
    ),
    ("launch", "none.py", "x" * 5000): ("none.py not found in {cwd}", "give the program's path"),
    ("wrap", "none.sif", "--commands", "python"): ("no such image: {cwd}/none.sif", "check the path"),
    ("diff", "x" * 5000, "y"): ("no such revision in {cwd}/yard: " + "x" * 160 + "...", "list the published"),
    ("launch", "-np", "4", "a.py"): ("no such option: -n", "ranks are counted per node: -r RANKS on each of -N NODES"),
    ("launch", "--nproc_per_node=4", "a.py"): ("no such option: --nproc_per_node", "use --ranks-per-node;"),
    ("history", "--since", "x"): ("no such option: --since", "`stackyard history --help` lists all"),
    ("default", "a", "b"): ("got unexpected extra argument (b)", "for example: stackyard default "),
    ("runs", "follow"): ("no such command: stackyard runs follow", "did you mean `stackyard runs attach`?"),
    ("run", "--with", "x", "python"): ("no such option: --with", "the revision comes first: stackyard run REV -- CMD"),
    ("lint", "."): ("cannot read .: Is a directory", "name a file in it"),
    ("deploy", "https://a.org/x.yml"): ("https://a.org/x.yml is a URL, not a file", "download it first"),
    ("deploy", "e.yml", "--on", "gpu"): ("--on gpu: no such node kind on this site", "describe them under `nodes:`"),
    ("launch", "."): ("cannot run .: it is a directory", "name the program in it: train.py"),
}


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(words)[:40])
def test_what_is_wrong_and_what_to_type(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yml").write_text("dependencies: [six]\n")
    wrong, remedy = (text.format(cwd=tmp_path) for text in WRONG[words])
    error, hint = inside(*words, expect=2, STACKYARD_HOME=str(tmp_path / "yard")).err.splitlines()
    assert error == f"error: {wrong}"
    assert hint.startswith(f"  hint: {remedy}")
    assert [each.name for each in tmp_path.iterdir()] == ["e.yml"], "nothing was written"


UNUSABLE = ("täst", "", "x" * 300, ".", "..", "a/b", "/x", "a\nb", "-x", " ", "a b", "a@b", ".x", "x.lua", "t\udce4st")
"""Names that no module can have: Lmod, a file system or a shell would take them for something else."""
GIVEN = (
    ("deploy", "--dry-run", "stack.yaml"), ("deploy", "stack.yaml"), ("lock", "stack.yaml"),
    ("mirror", "stack.yaml", "--to", "m"), ("adopt", "venv"), ("wrap", "x.sif", "--commands", "x"),
)  # fmt: skip


@pytest.mark.parametrize("option", ["--name", "--version"])
@pytest.mark.parametrize("words", GIVEN, ids=lambda words: " ".join(words[:2]))
def test_a_name_that_no_module_can_have_is_refused_and_not_changed(
    words: tuple[str, ...], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stack.yaml").write_text("environment: {dependencies: [python=3.11]}\n")
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    before = sorted(tmp_path.rglob("*"))
    for name in UNUSABLE:
        said = inside(*words, f"{option}={name}", expect=2, STACKYARD_HOME=str(tmp_path / "yard")).err
        shown = ascii(name if len(name) < 61 else name[:60] + "...")
        assert said.startswith(f"error: {option}: {shown} is not a module name\n  hint: use at most 201 letters"), said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_of_a_directory_that_is_changed_is_told_by_a_dry_run_too(tmp_path: Path) -> None:
    (tmp_path / "täst").mkdir()
    (tmp_path / "täst/stack.yaml").write_text("version: '1'\nmodules: {variables: {WORD: a}}\n")
    again = inside("--yard", tmp_path / "yard", "deploy", tmp_path / "täst/stack.yaml", "--dry-run")
    assert "the name 'täst' becomes 't-st', a valid module name" in again.err


def test_a_group_without_a_verb_shows_its_help() -> None:
    shown = inside("image", expect=2).err
    assert shown.startswith("Usage: stackyard image") and "Commands:" in shown and "error:" not in shown


def on_a_terminal(*words: str, **variables: str) -> str:
    """What a terminal shows of a command line."""
    ours, theirs = pty.openpty()
    environ = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")} | {"TERM": "xterm"}
    done = subprocess.Popen([STACKYARD, *words], stdout=theirs, stderr=theirs, stdin=theirs, env=environ | variables)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the program has closed its side
            break
    done.wait(60)
    os.close(ours)
    return shown.decode()


@pytest.mark.parametrize("unwanted", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_colours_where_they_are_not_wanted(unwanted: dict[str, str], tmp_path: Path) -> None:
    yard = shlex.join(["--yard", str(tmp_path)])
    for words in ((*shlex.split(yard), "show", "nothing"), ("depoy",), (*shlex.split(yard), "lint", __file__)):
        assert "\x1b[" in on_a_terminal(*words)
        assert "\x1b[" not in on_a_terminal(*words, **unwanted)


def test_lines_of_a_table_end_with_their_text(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    stackyard("launch", "train.py", cwd=tmp_path, HOME=str(tmp_path))
    shown = stackyard("runs", cwd=tmp_path, HOME=str(tmp_path)).out.splitlines()
    assert len(shown) == 2 and not [line for line in shown if line != line.rstrip()]


def test_lists_of_nothing_tell_what_to_type(tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path), "STACKYARD_HOME": str(tmp_path / "yard")}
    assert "stackyard kernel install REV" in inside("kernel", "list", "--prefix", tmp_path, **own).out
    assert inside("image", "status", **own).out.startswith("no images; ")


def test_ctrl_c_while_it_starts_leaves_no_traceback(tmp_path: Path) -> None:
    late = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    (tmp_path / "click.py").write_text(late)
    done = stackyard("list", expect=-signal.SIGINT, PYTHONPATH=str(tmp_path))
    assert (done.out, done.err) == ("", "")


HEARD = """
import sys
def heard(event, args):
    if event == "import":
        import _signal
        if "stackyard.cli" in sys.modules and _signal.getsignal(2) is _signal.default_int_handler:
            print("heard:", args[0], file=sys.stderr)
sys.addaudithook(heard)
"""


def test_no_module_is_imported_before_ctrl_c_is_silent(tmp_path: Path) -> None:
    """What our first module imports shows a traceback in whichever line of it the signal arrives."""
    (tmp_path / "sitecustomize.py").write_text(HEARD)
    done = stackyard("--version", PYTHONPATH=str(tmp_path))
    heard = {line.removeprefix("heard: ") for line in done.err.splitlines()}
    assert heard == {"gc"}  # both are built in, and the hook itself has the other one


INTERRUPTED = """
import os, sys, signal
sys.argv = ["stackyard", "--version"]
from stackyard.cli import main

def interrupted(at):
    left = [at]
    def trace(frame, event, _):
        if frame.f_code.co_filename != main.__file__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGINT)
        return trace
    sys.settrace(trace)
    main.main()

for at in range(1, 1000):
    child = os.fork()
    if not child:
        interrupted(at)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(at, status, flush=True)
    if status == 0:
        break
"""


def test_ctrl_c_at_any_line_of_the_beginning_and_the_end_leaves_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    ends = [int(line.split()[1]) for line in lines if line.split()[0].isdigit()]
    assert "Traceback" not in done.stderr
    assert len(ends) > 10 and set(ends[:-1]) <= {130, -signal.SIGINT} and ends[-1] == 0


def test_files_that_may_not_be_read(accounts: Accounts, common: Path) -> None:
    user = accounts.user("carl")
    for name in ("environment.yml", "closed/site.yaml"):
        (common / name).parent.mkdir(exist_ok=True)
        (common / name).write_text("dependencies: [six]\n")
    (common / "environment.yml").chmod(0o600)
    (common / "closed").chmod(0o700)
    refused = user.stackyard("deploy", common / "environment.yml", expect=2).err
    assert f"error: cannot read {common}/environment.yml: permission denied\n  hint: ask its owner" in refused
    refused = user.stackyard("--site", common / "closed/site.yaml", "list", expect=2).err
    assert f"error: cannot read the site file {common}/closed/site.yaml: Permission denied\n  hint: check" in refused


def test_a_current_directory_that_was_removed(tmp_path: Path) -> None:
    line = f"mkdir gone; cd gone; rmdir ../gone; exec {STACKYARD} runs"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("  hint: the current directory was removed: change to another (cd)\n")


def test_a_variable_of_the_yards_path_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_SUCH_SCRATCH", "STACKYARD_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "site.yaml").write_text("user_yard: $NO_SUCH_SCRATCH/yard\n")
    refused = inside("--site", tmp_path / "site.yaml", "list", expect=2).err
    assert refused == (
        "error: unset variable in the yard's path: $NO_SUCH_SCRATCH/yard\n"
        "  hint: set it: export NO_SUCH_SCRATCH=DIRECTORY; or use --yard\n"
    )
