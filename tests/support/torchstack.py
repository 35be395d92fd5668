"""Deployed stacks that train: torch with mpi4py (`torch_yard`), and torch with Horovod (`horovod_yard`).

A prefix cannot be moved, so each is deployed where it stays, in ``.cache``, and found there by later runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from stackyard.core.errors import MissingError
from support import programs
from support.testbed import cache_directory

EXAMPLES = Path(__file__).parents[2] / "examples"
STACKYARD = Path(sys.executable).with_name("stackyard")
HOME = os.environ.get("HOME", "/")  # of the person who runs the tests: where pip.conf may be
HOROVOD_TOOLS = ("cmake", "g++", "mpicxx", "mpirun", "patch")
DEPLOY_S = 3600
_OPTIMIZED = "        HOROVOD_WITH_PYTORCH: 1\n"


def torch_yard() -> Path:
    """A yard with the stack of examples/resnet; half a minute the first time.

    Raises:
        MissingError: it could not be deployed, with what was printed.
    """
    place = torch_example().parent
    with FileLock(f"{place}.lock"):
        if not (place / "yard" / "modules").exists():  # published last
            # a directory of its own, so that the lock of the stack does not land in the checkout
            copy = shutil.copytree(EXAMPLES / "resnet", place / "example", dirs_exist_ok=True)
            _deploy(place / "yard", copy / "stack.yaml")
    return place / "yard"


def torch_example() -> Path:
    """The copy of examples/resnet that `torch_yard` deploys, with its lock."""
    digest = _digest(EXAMPLES / "resnet" / name for name in ("stack.yaml", "requirements.txt"))
    return cache_directory() / f"torch-{digest}" / "example"


def tensorboard_yard() -> Path:
    """A yard with TensorBoard; ten seconds the first time.

    Raises:
        MissingError: it could not be deployed, with what was printed.
    """
    place = cache_directory() / "tensorboard"
    with FileLock(f"{place}.lock"):
        if not (place / "yard" / "modules").exists():  # published last
            place.mkdir(parents=True, exist_ok=True)
            (place / "requirements.txt").write_text("tensorboard\n")
            _deploy(place / "yard", place / "requirements.txt")
    return place / "yard"


def horovod_yard() -> Path:
    """A yard with the stack of examples/kaust-horovod, ``.cache/horovod-yard``; minutes of compiling the first time.

    Compiled without optimization, which takes half the time. When the example has changed it is deployed in the same
    yard again, which builds no more than it must.

    Raises:
        MissingError: a tool is missing, or it could not be deployed.
    """
    programs.require(*HOROVOD_TOOLS)
    yard, example = cache_directory().parent / "horovod-yard", EXAMPLES / "kaust-horovod"
    inputs = sorted(path for path in example.rglob("*") if path.is_file() and path.suffix != ".md")
    digest = _digest([*inputs, Path(__file__)])
    made = yard.with_name(f"{yard.name}.made-of")
    with FileLock(f"{yard}.lock"):
        if not (made.exists() and made.read_text() == digest):
            stack = shutil.copytree(example, horovod_example(), dirs_exist_ok=True) / "stack.yaml"
            stack.write_text(stack.read_text().replace(_OPTIMIZED, f"{_OPTIMIZED}        HOROVOD_DEBUG: 1\n"))
            _deploy(yard, stack)
            made.write_text(digest)
    return yard


def horovod_example() -> Path:
    """The copy of examples/kaust-horovod that `horovod_yard` deploys, with its lock."""
    return cache_directory() / "horovod-example"


def python(yard: Path) -> Path:
    """The Python of the revision that the bare name loads, in a yard with one stack."""
    shown = subprocess.run([STACKYARD, "--yard", yard, "list", "--json"], check=True, text=True, stdout=subprocess.PIPE)
    (newest,) = (revision for revision in json.loads(shown.stdout) if revision["default"])
    return Path(newest["path"]) / "prefix" / "bin" / "python"


def _digest(inputs: Iterable[Path]) -> str:
    """What a stack is made of, this interpreter included."""
    digest = hashlib.sha256(f"{sys.base_prefix} {sys.version}".encode())
    for path in inputs:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _deploy(yard: Path, stack: Path) -> None:
    """Deploy with pip's own configuration in force, which a test's HOME would hide."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STACKYARD_", "XDG_"))}
    done = subprocess.run([STACKYARD, "--yard", yard, "deploy", stack], env=kept | {"HOME": HOME},
                          capture_output=True, text=True, check=False, timeout=DEPLOY_S)  # fmt: skip
    if done.returncode:
        printed = f"{done.stdout}\n{done.stderr}"[-4000:]
        raise MissingError(
            f"{stack} could not be deployed: exited with status {done.returncode}\n{printed}",
            hint="the tests need a package index; pip's configuration (pip.conf, PIP_*) is used",
            detail=printed,
        )
