"""Each module can be imported first: a circle shows only when one begins with its other end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stackyard

ROOT = Path(stackyard.__file__).parent
EACH = """\
import importlib, os, sys
import click, pydantic, ruamel.yaml  # what most need: once, before the forks
for name in sys.stdin.read().split():
    if not (child := os.fork()):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing = error.name or "" if isinstance(error, ModuleNotFoundError) else "stackyard"
            if missing.startswith("stackyard"):  # torch and the like belong to a stack
                print(f"{name}: {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.long
def test_each_module_can_be_the_first() -> None:
    names = [".".join(("stackyard", *file.relative_to(ROOT).with_suffix("").parts)) for file in ROOT.rglob("*.py")]
    done = subprocess.run(
        [sys.executable, "-c", EACH], input="\n".join(names), text=True, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
