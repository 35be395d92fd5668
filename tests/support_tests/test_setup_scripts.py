"""What `make install` and `make test` say on a machine that lacks something, and where they may not install it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
NOBODY = 65534


def as_a_user(script: str, folder: Path, programs: tuple[str, ...], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the checkout, from a copy, as a user who is not root, with only these programs on PATH."""
    (folder / "scripts").mkdir()
    copy = Path(shutil.copy(SCRIPTS / script, folder / "scripts"))
    (folder / "bin").mkdir()
    for name in ("sh", "dirname", "id", "tr", "find", *programs):
        found = shutil.which(name)
        assert found, name
        (folder / "bin" / name).symlink_to(found)
    words = ["/bin/sh", copy]
    if os.geteuid() == 0:
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words]
        for path in (folder, *folder.parents):
            if path.stat().st_uid == 0 and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o055)
    environ = {"PATH": str(folder / "bin"), **environ}
    setpriv = shutil.which("setpriv") or "setpriv"
    argv = [setpriv if word == "setpriv" else word for word in words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)


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
    assert "libopenmpi-dev" in hint
