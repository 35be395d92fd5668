"""A licence that each user accepts, where only the module was loaded: the first command asks for it, and only once."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import modules, programs, testbed
from support.accounts import Account, Accounts, common_directory
from support.atterminal import answered
from support.cli import stackyard

pytestmark = pytest.mark.real

SHOWS = "python -c 'import os, sys; print(os.environ[\"DEMO_ACCEPT\"], sys.argv, sys.orig_argv[0], sys.prefix)'"


@dataclass(frozen=True)
class Bed:
    """The site's yard, in which staff published a stack with a licence, and a user."""

    directory: Path
    anna: Account

    @property
    def revision(self) -> Path:
        return self.directory / "site/stacks/demo/1-py3-1"

    def loaded(self, line: str, system: str = "lmod", name: str = "demo") -> list[str]:
        lines = [modules.initialise(system, "bash"), f"module use {self.directory}/site/modules", f"module load {name}"]
        return ["bash", "--norc", "--noprofile", "-c", "\n".join([*lines, line])]

    def typed(self, line: str, says: str) -> str:
        """What anna sees who types this after loading the module, and answers."""
        environ = self.anna.environment(PAGER="cat")

        def start(at: int) -> subprocess.Popen[str]:
            return self.anna.popen(*self.loaded(line), stdin=at, stdout=at, stderr=at, env=environ)

        return answered(start, says)

    def stackyard(self, *words: str | Path, expect: int = 0) -> str:
        done = self.anna.stackyard("--site", self.directory / "site.yaml", *words, expect=expect)
        return done.out + done.err


@pytest.fixture(scope="module")
def bed(accounts: Accounts) -> Iterator[Bed]:
    yield from _published(accounts, "prefix")


def _published(accounts: Accounts, form: str) -> Iterator[Bed]:
    programs.need("lmod")
    with common_directory() as directory:
        made = Bed(directory, accounts.user("anna"))
        (directory / "site.yaml").write_text(f"yard: {directory}/site\nmodules: {{formats: [lua, tcl]}}\n")
        stack = directory / "demo" / "stack.yaml"
        stack.parent.mkdir()
        (stack.parent / "terms of it.txt").write_text("You may, if you say so.\n")
        licence = {"name": "Terms of 'it'", "text": "terms of it.txt", "variable": "DEMO_ACCEPT"}
        pip = ["--no-index", f"--find-links={testbed.wheels(testbed.HERE / 'wheels.txt')}", "idna"]
        python = {"source": "host", "path": os.path.realpath(accounts.bin / "python")}
        value = {"name": "demo", "version": "1", "image": form, "licences": [licence], "interpreter": python}
        stack.write_text(json.dumps({**value, "environment": {"dependencies": [{"pip": pip}]}}))
        yard = ("--site", directory / "site.yaml", "--yard", directory / "site")
        own = {"XDG_CONFIG_HOME": str(directory / "config")}
        stackyard(*yard, "deploy", stack, "--accept-licence", licence["name"], **own)
        yield made


@pytest.fixture(autouse=True)
def _nothing_accepted(bed: Bed) -> None:
    for name in (".config", ".local"):
        shutil.rmtree(bed.anna.home / name, ignore_errors=True)


def test_without_a_terminal_it_says_what_to_type_and_that_is_enough(bed: Bed) -> None:
    refused = bed.anna.run(*bed.loaded("echo loaded; python -c 'print(1)'"), expect=4)
    assert refused.out == "loaded\n"
    assert f"stackyard: licence not accepted by {bed.anna.name}: Terms of 'it', of demo/1-py3-1\n" in refused.err
    hint = next(line for line in refused.err.splitlines() if "hint:" in line)
    typed = hint.partition("accept it: ")[2].partition("; or set")[0]
    assert hint.endswith("; or set DEMO_ACCEPT=yes")
    bed.stackyard(*shlex.split(typed)[1:])
    assert bed.anna.run(*bed.loaded(SHOWS)).out.startswith("yes ['-c'] ")


def test_the_account_that_accepted_it_for_the_build_is_not_asked(bed: Bed) -> None:
    staff = {**os.environ, "XDG_CONFIG_HOME": str(bed.directory / "config")}
    done = subprocess.run(bed.loaded(SHOWS), capture_output=True, text=True, check=True, env=staff)
    assert done.stdout.startswith("yes ['-c'] ")
    bed.anna.run(*bed.loaded(SHOWS), expect=4)


def test_programs_of_the_stack_with_the_names_that_it_uses_are_not_asked(bed: Bed, tmp_path: Path) -> None:
    """A stack may ship coreutils: then `id` in front of it is a link to the script too, which would start itself."""
    shutil.copytree(bed.revision / "asking", tmp_path / "asking", symlinks=True)
    for name in ("id", "sed", "date", "getent", "cut", "mkdir", "mv"):
        (tmp_path / "asking" / name).symlink_to(".ask")
    environ = {"PATH": f"{tmp_path}/asking:{os.environ['PATH']}", "XDG_CONFIG_HOME": ""}
    words = [str(tmp_path / "asking" / "python"), "-c", ""]
    for home in ({"HOME": str(tmp_path)}, {}):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, env={**environ, **home}, capture_output=True, text=True,
                              check=False, timeout=240)  # fmt: skip
        assert (done.returncode, done.stderr.count("licence not accepted by root:")) == (4, 1), done.stderr


def test_at_a_terminal_it_asks_once(bed: Bed) -> None:
    shown = bed.typed(f"{SHOWS}; echo status=$?", says="n")
    assert "You may, if you say so.\nDo you accept the licence Terms of 'it' of demo/1-py3-1? [y/N]: " in shown
    assert "licence not accepted by" in shown and shown.endswith("status=4\n")
    shown = bed.typed(f"{SHOWS}; echo status=$?", says="y")
    assert "Do you accept" in shown and shown.endswith("status=0\n") and "yes ['-c'] " in shown
    assert "Do you accept" not in bed.typed(SHOWS, says="")
    assert "yes" in bed.anna.run(*bed.loaded(f"{SHOWS} < /dev/null | cat", system="lmod")).out


def test_what_was_accepted_there_holds_for_stackyard_too(bed: Bed) -> None:
    bed.typed("python -c pass", says="yes")
    (entry,) = json.loads(bed.stackyard("licences", "list", "--json"))
    assert (entry["name"], entry["who"], entry["uid"]) == ("Terms of 'it'", bed.anna.name, bed.anna.uid)
    (recorded,) = json.loads((bed.directory / "site/licences.json").read_text())["acceptances"]
    assert entry["sha256"] == recorded["sha256"] and entry["variable"] == "DEMO_ACCEPT"
    assert bed.stackyard("run", "demo", "--", "sh", "-c", "echo $DEMO_ACCEPT") == "yes\n"


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_the_command_is_that_of_the_stack_with_its_words(bed: Bed, system: str) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    program = f"{bed.revision}/prefix/bin/python"
    done = bed.anna.run(*bed.loaded(f"export DEMO_ACCEPT=agreed; {SHOWS} 'a  b' '*' ''; command -v python", system))
    first, second = done.out.splitlines()
    assert first.startswith(f"agreed ['-c', 'a  b', '*', ''] {program} ")
    assert second == f"{bed.revision}/asking/python"
    left = bed.anna.run(*bed.loaded("module unload demo; command -v python; echo $PATH", system)).out
    assert "stacks" not in left


def test_a_mark_of_somebody_else_does_not_count(bed: Bed) -> None:
    bed.typed("python -c pass", says="y")
    (mark,) = (bed.anna.home / ".config/stackyard/licences").iterdir()
    os.chown(mark, 0, 0)
    bed.anna.run(*bed.loaded("python -c pass"), expect=4)
    assert "licence not accepted by" in bed.stackyard("run", "demo", "true", expect=4)


def test_a_home_that_cannot_be_written_is_an_error_with_another_way(bed: Bed) -> None:
    (bed.anna.home / ".config").write_text("")
    shown = bed.typed("python -c pass; echo status=$?", says="y")
    assert "cannot keep in" in shown and "set DEMO_ACCEPT=yes in this shell" in shown and shown.endswith("status=4\n")
    (bed.anna.home / ".config").unlink()


def test_a_changed_script_is_found_and_written_again(bed: Bed) -> None:
    words = ("--site", bed.directory / "site.yaml", "--yard", bed.directory / "site", "verify", "demo")
    own = {"XDG_CONFIG_HOME": str(bed.directory / "config")}
    script = bed.revision / "asking/.ask"
    script.chmod(0o755)
    script.write_text("#!/bin/sh\n")
    assert "the file was changed after it was written" in stackyard(*words, expect=3, **own).out
    stackyard(*words, "--repair", **own)
    bed.anna.run(*bed.loaded("python -c pass"), expect=4)


def test_it_asks_before_an_image_is_mounted(accounts: Accounts) -> None:
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    for made in _published(accounts, "squashfs"):
        short = {**os.environ, "STACKYARD_IMAGE_IDLE_S": "1", "STACKYARD_TMP": str(made.directory)}
        words = made.loaded(SHOWS)
        refused = subprocess.run(words, capture_output=True, text=True, check=False, env=short)
        assert refused.returncode == 4 and "licence not accepted by root" in refused.stderr
        assert not list(made.directory.glob(".stackyard-images-*"))
        done = subprocess.run(words, capture_output=True, text=True, check=True, env={**short, "DEMO_ACCEPT": "yes"})
        assert done.stdout.startswith("yes ['-c'] ") and done.stdout.endswith(f"{made.revision}/prefix\n")


def test_an_extension_asks_its_builder_and_is_then_used_as_any(bed: Bed) -> None:
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    file = bed.anna.home / "requirements.txt"
    bed.anna.run("tee", file.name)
    file.write_text(f"--no-index\n--find-links={wheels}\nsix\n")
    extend = ("extend", "--name", "mine", "--base", "demo", "-r", file)
    refused = bed.stackyard(*extend, expect=4)
    assert "licence not accepted by" in refused and "--accept-licence" in refused
    bed.stackyard(*extend, "--accept-licence", "Terms of 'it'")
    yard = next(row["yard"] for row in json.loads(bed.stackyard("list", "--json")) if row["stack"] == "mine")
    line = (
        f"module use {yard}/modules; module load mine; python -c 'import os, six; print(os.environ[\"DEMO_ACCEPT\"])'"
    )
    assert bed.anna.run(*bed.loaded(line)).out == "yes\n"


def test_it_starts_no_process_of_its_own_once_it_is_accepted(bed: Bed) -> None:
    """All that it costs then is a shell that becomes the program: it runs for an account that may start nothing."""

    def line(program: str) -> list[str]:
        return ["bash", "-c", f"ulimit -u 1; export DEMO_ACCEPT=yes; {program} -S -E -c 'print(1)'; exit"]

    python = bed.revision / "asking/python"
    bed.anna.run(*line(str(python)), expect=254)  # the limit holds
    assert bed.anna.run(*line(f"exec {python}")).out == "1\n"
