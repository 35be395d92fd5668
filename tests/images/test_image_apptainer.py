"""Images on a machine without user namespaces or without squashfuse, where Apptainer is installed: it mounts them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_bed import Revision, make

from stackyard.core.errors import MissingError
from stackyard.images.squashfs import mounts
from support import images, usernsroot

pytestmark = pytest.mark.real
NO_SQUASHFUSE = "for x in /usr/bin/squashfuse*; do mount --bind /etc/passwd $x; done\n"
NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces\n"
"""A container's root: Apptainer runs there as its set-user-ID installation runs for others, with rights of its own."""


@pytest.fixture(scope="module")
def path() -> str:
    try:
        return images.environ()["PATH"]
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["compiled", "script"])
def demo(request: pytest.FixtureRequest, tmp_path: Path, path: str) -> Iterator[Revision]:
    made = make(tmp_path, script=request.param == "script")
    shutil.chown(made.paths.prefix, "nobody")
    made.environ = {"PATH": path}
    yield made
    made.end()


def run(demo: Revision, set_up: str, *words: str, expect: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
    """Run words as the root of a user namespace, after a piece of shell."""
    start = [sys.executable, usernsroot.__file__, "sh", "-ec", f'{set_up}exec "$@"', "sh"]
    return demo.run(*start, *words, expect=expect, **more)  # type: ignore[arg-type]


def test_a_command_is_as_it_is_elsewhere(demo: Revision, tmp_path: Path) -> None:
    words = ["a b", "", "*", "'\"$HOME", "\n", "ü"]
    place = tmp_path / "some where"
    place.mkdir()
    done = run(demo, NO_NAMESPACES, demo.command("say"), *words, cwd=place)
    assert done.stdout == "a b||*|'\"$HOME|\n|ü|\n" + f"{place}\n"
    assert not done.stderr and not demo.servers()
    done = run(demo, NO_NAMESPACES, demo.command("greet"), "x")
    assert done.stdout.splitlines()[0] == f"-x|{demo.command('greet')}|x|"
    assert run(demo, NO_NAMESPACES, demo.command("copy"), stdin="one\ntwo\n").stdout == "one\ntwo\n"
    run(demo, NO_NAMESPACES, demo.command("code"), "7", expect=7)


def test_its_environment_is_that_of_the_caller(demo: Revision) -> None:
    own = {"LD_LIBRARY_PATH": "/mine", "APPTAINER_BIND": "/no/such/place", "LINES_OF": "a\nb='c'\n", "PS1": "mine> "}
    expected = run(demo, NO_NAMESPACES, "env", "-0", **own).stdout
    found = run(demo, NO_NAMESPACES, str(demo.paths.launcher), "env", "-0", **own).stdout
    ours = {"_", "OLDPWD", "SHLVL", "PWD"}  # a shell's own
    assert {each for each in expected.split("\0") if each.partition("=")[0] not in ours} == {
        each for each in found.split("\0") if each.partition("=")[0] not in ours
    }


def test_ten_thousand_arguments(demo: Revision) -> None:
    words = [str(number) for number in range(10_000)]
    assert run(demo, NO_NAMESPACES, demo.command("say"), *words).stdout.splitlines()[0] == "|".join(words) + "|"


def test_other_images_are_mounted_beside_it(demo: Revision, tmp_path: Path) -> None:
    two = make(tmp_path, "two", data="of two\n")
    shutil.chown(two.paths.prefix, "nobody")
    inner = f"{demo.command('pick')}; {two.command('pick')}"
    loaded = f"{two.paths.root}:/no/such:{demo.paths.root}"
    done = run(demo, NO_NAMESPACES, str(demo.paths.launcher), "sh", "-c", inner, STACKYARD_IMAGES=loaded)
    assert done.stdout == "data\nof two\n"


def test_where_it_is_not_installed_either(demo: Revision) -> None:
    demo.environ = {}
    done = run(demo, NO_NAMESPACES, demo.command("pick"), expect=4)
    assert done.stderr.startswith(f"stackyard: cannot mount {demo.paths.image}: ")
    assert "user namespaces are switched off" in done.stderr and "Apptainer or Singularity: not found" in done.stderr
    assert "hint: `stackyard image status`" in done.stderr


def test_what_it_reports_is_shown(demo: Revision) -> None:
    done = run(demo, NO_NAMESPACES + NO_SQUASHFUSE, demo.command("pick"), expect=4)
    assert done.stderr.startswith(f"stackyard: cannot mount {demo.paths.image}: squashfuse_ll not found\n")
    assert "FATAL" in done.stderr and f"{demo.paths.root} is not usable on this machine" in done.stderr
    assert run(demo, NO_NAMESPACES, demo.command("pick")).stdout == "data\n", "nothing was noted"


def test_its_file_system_server_serves_where_there_is_no_other(
    demo: Revision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's package has no copy of squashfuse_ll, as its makers' own have: a program stands in for these."""
    asked = subprocess.run([images.apptainer(), "buildcfg", "LIBEXECDIR"], capture_output=True, text=True, check=True)
    libexec = tmp_path / "libexec"
    (libexec / "apptainer" / "bin").mkdir(parents=True)
    shutil.copy("/usr/bin/squashfuse_ll", libexec / "apptainer" / "bin" / "squashfuse_ll")
    assert Path(asked.stdout.strip()).is_dir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apptainer").write_text(f'#!/bin/sh\n[ "$*" != "buildcfg LIBEXECDIR" ] || echo {libexec}\n')
    (tmp_path / "bin" / "apptainer").chmod(0o755)
    demo.environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{NO_SQUASHFUSE}exec "$@"', "sh"]
    assert demo.run(*words, demo.command("pick")).stdout == "data\n"
    assert len(demo.servers()) == 1
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert mounts.file_system_server() == libexec / "apptainer" / "bin" / "squashfuse_ll"


def test_the_way_is_named(path: str) -> None:
    show = (
        "from stackyard.images.squashfs import mounts\nfor way in mounts.ways(): print(way.name, way.works, way.detail)"
    )
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", show]
    off = [sys.executable, usernsroot.__file__, "sh", "-ec", f'{NO_NAMESPACES}exec "$@"', "sh"]

    def last(*before: str, **env: str) -> str:
        environ = {"PATH": path, "PYTHONPATH": str(Path(mounts.__file__).parents[3]), **env}
        done = subprocess.run([*before, *words], env=environ, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    assert last(*off, PATH="/usr/bin:/bin") == "Apptainer False apptainer or singularity not found"
    assert "not installed with set-user-ID" in last(*off) and "user namespaces: " in last(*off)
