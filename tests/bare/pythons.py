"""What must work with every Python: each module is imported, a stack with a compiled sdist is deployed, and the unit
tests of the rooms that need no conda channel pass."""

from __future__ import annotations

from support.systems import System

IMPORT_ALL = """
import importlib, pkgutil, stackyard
names = [found.name for found in pkgutil.walk_packages(stackyard.__path__, "stackyard.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        of_stacks = ("horovod", "jax", "memray", "mpi4py", "ray", "tensorflow", "torch")  # where these modules run
        if error.name not in of_stacks:
            raise
print(len(names), "modules")
"""
TESTS = "tests/core/test_late.py tests/inputs tests/yard tests/make/test_build_wheels.py"
CHOSEN = "not build_wheels or archives"
PLUGINS = "pytest pytest-rerunfailures pytest-timeout"
UNTIL_S = 900


def check_python(system: System) -> str:
    """Try it with the Python of the system's ``.venv``. Returns the version."""
    (system.root / "tmp/all.py").write_text(IMPORT_ALL)
    assert " modules" in system.succeeds(".venv/bin/python -W error::SyntaxWarning /tmp/all.py")
    (system.root / "tmp/sdist").mkdir()
    (system.root / "tmp/sdist/requirements.txt").write_text("docopt==0.6.2\n")  # an sdist is all there is
    system.succeeds(".venv/bin/stackyard --yard /tmp/yard deploy /tmp/sdist/requirements.txt")
    system.succeeds(".venv/bin/stackyard --yard /tmp/yard run sdist -- python -c 'import docopt'")
    system.succeeds(f".venv/bin/python -m pip install --quiet {PLUGINS} hypothesis filelock", timeout_s=UNTIL_S)
    system.succeeds(f".venv/bin/python -m pytest -q {TESTS} -k '{CHOSEN}'", timeout_s=UNTIL_S)
    return system.succeeds(".venv/bin/python -c 'import platform; print(platform.python_version())'").strip()
