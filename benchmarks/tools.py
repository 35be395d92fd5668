"""What all benchmarks use: the programs, and a scratch directory with a home and a yard of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
STACKYARD = Path(sys.executable).with_name("stackyard")
PYTHON = Path(sys.executable)
"""The interpreter of the environment itself; a version manager's shim would make the comparison easier."""

sys.path.insert(0, str(REPOSITORY / "tests"))  # the channels of the tests


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A directory for one benchmark; everything in it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix=f"stackyard-bench-{name}-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def environment(directory: Path) -> dict[str, str]:
    """The caller's environment with a home in `directory`, so that no settings of yours play a part."""
    home = directory / "home"
    home.mkdir(exist_ok=True)
    dropped = ("STACKYARD_", "CONDA_", "XDG_", "LMOD_RC", "MODULEPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {**kept, "HOME": str(home)}


def stackyard(directory: Path, *words: str | Path) -> Any:
    """Run a verb on the yard of `directory` and return its JSON, or its text where it printed none."""
    argv = [STACKYARD, "--yard", directory / "yard", *words]
    done = subprocess.run(
        [str(word) for word in argv], env=environment(directory), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        command = " ".join(map(str, argv))
        raise SystemExit(f"{command} exited with status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout) if "--json" in words else done.stdout
