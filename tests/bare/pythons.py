"""What must work with every Python: the wheel in an environment that has nothing else, with the quickstart; each module
is imported, a stack with a compiled sdist is deployed, and the unit tests of the rooms that need no conda channel pass.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from stackyard import __version__
from support import distributions
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


@cache
def _wheel() -> tuple[str, bytes]:
    """The name and the bytes of a wheel of this checkout."""
    with tempfile.TemporaryDirectory() as place:
        wheel = distributions.wheel_of(distributions.built(Path(place), "--wheel"))
        return wheel.name, wheel.read_bytes()


def check_wheel(system: System) -> None:
    """Install the wheel with the system's own python3 into an empty environment, and deploy the quickstart from it."""
    name, content = _wheel()
    (system.root / "tmp" / name).write_bytes(content)
    shutil.copytree(distributions.REPOSITORY / "examples/quickstart", system.root / "tmp/quickstart")
    system.succeeds(
        f"python3 -m venv /tmp/empty && /tmp/empty/bin/python -m pip install -q /tmp/{name}", directory="/tmp"
    )
    stackyard = "/tmp/empty/bin/stackyard --yard /tmp/from-wheel"
    assert system.succeeds(f"{stackyard} --version", directory="/tmp").strip() == f"stackyard, version {__version__}"
    system.succeeds(f"{stackyard} deploy quickstart/stack.yaml", directory="/tmp")
    ran = system.succeeds(
        f"{stackyard} run quickstart -- mpiexec -n 2 python -m mpi4py.bench helloworld", directory="/tmp"
    )
    assert "process 1 of 2" in ran
    system.succeeds(
        "test -s /tmp/empty/share/bash-completion/completions/stackyard.bash && rm -r /tmp/empty /tmp/from-wheel"
    )


def check_python(system: System) -> str:
    """Try it with the Python of the system's ``.venv``. Returns the version."""
    check_wheel(system)
    (system.root / "tmp/all.py").write_text(IMPORT_ALL)
    assert " modules" in system.succeeds(".venv/bin/python -W error::SyntaxWarning /tmp/all.py")
    (system.root / "tmp/sdist").mkdir()
    (system.root / "tmp/sdist/requirements.txt").write_text("docopt==0.6.2\n")  # an sdist is all there is
    system.succeeds(".venv/bin/stackyard --yard /tmp/yard deploy /tmp/sdist/requirements.txt")
    system.succeeds(".venv/bin/stackyard --yard /tmp/yard run sdist -- python -c 'import docopt'")
    system.succeeds(f".venv/bin/python -m pip install --quiet {PLUGINS} hypothesis filelock", timeout_s=UNTIL_S)
    system.succeeds(f".venv/bin/python -m pytest -q {TESTS} -k '{CHOSEN}'", timeout_s=UNTIL_S)
    return system.succeeds(".venv/bin/python -c 'import platform; print(platform.python_version())'").strip()
