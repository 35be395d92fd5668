"""A stack without pip explains what to do instead, and what it says works, whatever its Python is."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from buildbed import build, conda_packages, locked, wheel

from stackyard.lock.lockfile.model import PipPackage
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord


def typed(record: BuildRecord, line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line typed in a shell where the module is loaded."""
    environ = {"PATH": f"{record.prefix}/bin:/usr/bin:/bin", "HOME": str(cwd), "PYTHONNOUSERSITE": "1"}
    return subprocess.run(["bash", "-c", line], cwd=cwd, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture(params=["conda", "host"])
def record(request: pytest.FixtureRequest, yard: Yard, wheelhouse: dict[str, PipPackage]) -> BuildRecord:
    conda = conda_packages(request.getfixturevalue("channel"), ("python",)) if request.param == "conda" else ()
    return build(yard, locked(conda, [wheelhouse["idna"]]))


def test_what_stands_for_pip_says_what_works(record: BuildRecord, tmp_path: Path) -> None:
    for command in ("pip list", "pip3 install idna", "python -m pip install idna", "pip3.11 --version"):
        if command.startswith("pip3.") and not record.interpreter["version"].startswith("3.11"):
            continue
        done = typed(record, command, tmp_path)
        assert (done.returncode, done.stdout) == (1, ""), command
        assert done.stderr.startswith("pip: the module demo/1.0-py311-1 never changes")
        assert "already satisfied" not in done.stderr
    package = wheel(tmp_path / "wheels", "extra", {"extra.py": b"import idna\n"})
    steps = [line.strip() for line in done.stderr.splitlines() if line.startswith("    ")][1:]
    assert "stackyard extend --base demo/1.0-py311-1 --name mine --pip NAME" in done.stderr
    assert steps[-1] == "pip install NAME"
    mark = next(Path(record.prefix).glob("lib/python*/EXTERNALLY-MANAGED")).read_text()
    assert "stackyard extend --base demo/1.0-py311-1 --name mine --pip PACKAGE" in mark, "what a pip of one's own says"
    steps[-1] = f"pip install -q --no-index {package.url}"
    code = "import extra, pip, sys; print(extra.idna.__file__, pip.__file__, sys.prefix)"
    own = typed(record, " && ".join([*steps, f"python -c {shlex.quote(code)}"]), tmp_path)
    assert own.returncode == 0, own.stderr
    assert own.stdout.split()[0].startswith(record.prefix), "the environment sees the stack's packages"
    assert own.stdout.split()[1].startswith(f"{tmp_path}/DIR/"), "it has a pip of its own"
    if record.interpreter["source"] == "conda":  # where it sees the stack's packages, it sees what stands for pip
        line = "python -m venv --without-pip --system-site-packages bare && bare/bin/python -m pip"
        bare = typed(record, line, tmp_path)
        assert bare.returncode == 1
        assert "no module named pip in" in bare.stderr
        assert "never changes" not in bare.stderr


def test_a_stack_with_pip_keeps_it(yard: Yard, wheelhouse: dict[str, PipPackage], tmp_path: Path) -> None:
    package = wheel(tmp_path, "pip", {"pip/__init__.py": b"", "pip/__main__.py": b"print('its own pip')\n"})
    made = build(yard, locked(pip=[package]))
    assert typed(made, "python -m pip", tmp_path).stdout == "its own pip\n"
    assert not (Path(made.prefix) / "bin/pip").exists()
