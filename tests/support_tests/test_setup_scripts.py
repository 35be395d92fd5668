"""What `make install` and `make test` say on a machine that lacks something, and where they may not install it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support import realness
from support.programs import TABLE, Program, missing, table

TESTS = Path(__file__).parents[1]
SCRIPTS = TABLE.parent
NOBODY = 65534


def as_a_user(
    script: str, directory: Path, programs: tuple[str, ...], **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of the checkout, from a copy, as a user who is not root, with only these programs on PATH."""
    (directory / "scripts").mkdir(exist_ok=True)
    copy = Path(shutil.copy(SCRIPTS / script, directory / "scripts"))
    if not (directory / "scripts" / TABLE.name).exists():
        shutil.copy(TABLE, directory / "scripts")
    (directory / "bin").mkdir()
    for name in ("sh", "dirname", "id", "tr", "find", *programs):
        found = shutil.which(name)
        assert found, name
        (directory / "bin" / name).symlink_to(found)
    words = ["/bin/sh", copy]
    if os.geteuid() == 0:
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words]
        for path in (directory, *directory.parents):
            if path.stat().st_uid == 0 and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o055)
    environ = {"PATH": str(directory / "bin"), **environ}
    setpriv = shutil.which("setpriv") or "setpriv"
    argv = [setpriv if word == "setpriv" else word for word in words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=240, check=False)


def test_install_without_python_names_the_packages(tmp_path: Path) -> None:
    done = as_a_user("make-venv.sh", tmp_path, ())
    assert done.returncode == 4
    assert "Python 3.10 or newer not found on PATH" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr


def test_install_with_a_python_that_is_none_says_which(tmp_path: Path) -> None:
    done = as_a_user("make-venv.sh", tmp_path, ("false",), PYTHON="false")
    assert done.returncode == 4
    assert "PYTHON=false is not a Python of version 3.10 or newer" in done.stderr


def test_install_without_ensurepip_names_its_package(tmp_path: Path) -> None:
    shim = tmp_path / "shim"
    shim.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; *print*) echo python3.11-venv;; esac\n')
    shim.chmod(0o755)
    done = as_a_user("make-venv.sh", tmp_path, (), PYTHON=str(shim))
    assert done.returncode == 4
    assert "ensurepip not found" in done.stderr
    assert "apt-get install python3.11-venv" in done.stderr


@pytest.mark.parametrize("required,code", [("", 0), ("1", 4)])
def test_missing_programs_are_named_with_their_packages(tmp_path: Path, required: str, code: int) -> None:
    done = as_a_user("test-programs.sh", tmp_path, ("bash",), STACKYARD_REQUIRE_REAL=required)
    assert done.returncode == code
    missing, hint = done.stderr.splitlines()
    assert " zsh" in missing and " bash" not in missing
    assert hint.split().count("libopenmpi-dev") == 1


HEADER = "bash,/no/such/*/mpi.h"


def test_a_wrapper_without_its_header_is_missing(tmp_path: Path) -> None:
    """mpicc.mpich is in a package that only recommends the one with mpi.h."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / TABLE.name).write_text(
        f"# comment\nbash  bash  bash  loads\nwrapper  lib-dev  {HEADER}  C\n"
    )
    done = as_a_user("test-programs.sh", tmp_path, ("bash",))
    assert "missing: wrapper\n" in done.stderr and "apt-get install lib-dev (" in done.stderr
    assert not Program("wrapper", "lib-dev", tuple(HEADER.split(",")), "C").here


def test_a_skip_names_the_package_and_is_never_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "here", False)
    assert missing("mpicc.mpich") == "not on this machine: mpicc.mpich (package libmpich-dev)"
    assert not [name for name in table() if realness.allowed().search(missing(name) or "")]


def test_only_the_table_says_which_programs_there_are() -> None:
    with pytest.raises(KeyError):
        missing("gfortran")
    says = re.compile(r"skip\([^)]*(?:not on this machine|not found on PATH)")
    found = {path.name for path in TESTS.rglob("*.py") if says.search(path.read_text())}
    assert found == {"test_realness.py", "test_lock_export.py"}, "use support.programs.need"
