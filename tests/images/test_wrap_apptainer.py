"""Wrapped images on a machine without user namespaces, where Apptainer may make containers: it makes each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.python_bed import VENV, python_bed
from images.wrap_bed import Wrapped, bed
from stackyard.core.errors import MissingError
from support import images, programs, usernsroot

pytestmark = pytest.mark.real
NO_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces\nexec "$@"'
"""A container's root: Apptainer runs there as its set-user-ID installation runs for others, with rights of its own."""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapped]:
    for name in ("mksquashfs", "squashfuse", "unshare", "gcc"):
        programs.need(name)
    try:
        path = images.environ()["PATH"]
    except MissingError as error:
        pytest.skip(str(error))
    made = bed(tmp_path_factory.mktemp("wrap"))
    made.environ = {"PATH": path}
    bound = made.directory / "bound"
    bound.mkdir()
    (bound / "file").write_text("of the host\n")
    made.wrap("--version", "host", "--bind", f"{bound}:/data/new:ro")
    made.end()
    yield made
    made.end()


def off(tool: Wrapped, *words: str, expect: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, usernsroot.__file__, "sh", "-ec", NO_NAMESPACES, "sh"]
    return tool.run(*start, *words, expect=expect, **more)  # type: ignore[arg-type]


def test_a_command_is_as_it_is_elsewhere(tool: Wrapped, tmp_path: Path) -> None:
    words = ["a b", "", "*", "'\"$HOME", "\n", "ü"]
    done = off(tool, tool.command("say"), *words, cwd=tmp_path)
    assert done.stdout == "a b||*|'\"$HOME|\n|ü|\n" + f"{tmp_path}\n"
    assert not done.stderr
    assert not tool.servers()
    assert off(tool, tool.command("copy"), stdin="one\n").stdout == "one\n"
    off(tool, tool.command("code"), "7", expect=7)


def test_its_container_is_the_same(tool: Wrapped) -> None:
    script = "cat /etc/os-release /data/new/file /data/own; env; ls /; say z"
    own = {"LD_LIBRARY_PATH": "/host", "APPTAINER_BIND": "/no/such", "MY_OWN": "a b"}
    here = tool.sh(script, **own).splitlines()
    there = off(tool, str(tool.root / "launch"), "sh", "-c", script, **own).stdout.splitlines()
    ours = {"_", "OLDPWD", "SHLVL", "LC_CTYPE", "PATH"}  # a shell's own, and those of the script that starts it
    ours |= {"singularity", ".singularity.d", "environment", ".exec", "sbin", "lib", "usr", "var"}  # Apptainer's own
    changed = {line.partition("=")[0] for line in set(here) ^ set(there)}
    assert changed <= ours, changed
    assert "LD_LIBRARY_PATH=/opt/tool/lib" in there
    assert there[:3] == ["ID=small", "of the host", "of the image"]


def test_a_python_of_a_virtual_environment(tool: Wrapped, tmp_path: Path) -> None:
    made = python_bed(tmp_path)
    made.environ = tool.environ
    made.wrap("--commands", "python,tool")
    made.end()
    assert off(made, made.command("tool")).stdout == "beside it\n"
    code = "import inbase, sys; print(inbase.x, sys.prefix)"
    assert off(made, made.command("python"), "-c", code).stdout == f"of the environment {VENV}\n"
    off(made, made.command("python"), "-m", "venv", "--without-pip", str(tmp_path / "v"))
    done = off(made, f"{tmp_path}/v/bin/python", "-c", "import sys; print(sys.prefix)")
    assert done.stdout == f"{tmp_path}/v\n"


def test_without_it_what_is_missing_is_named(tool: Wrapped) -> None:
    done = off(tool, tool.command("say"), expect=4, PATH="/usr/bin:/bin")
    assert "user namespaces" in done.stderr
    assert "Apptainer or Singularity: not found" in done.stderr
