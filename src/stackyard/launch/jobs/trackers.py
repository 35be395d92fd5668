"""What experiment trackers left in a run directory (`plan.offline`), and how to upload or read it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stackyard.core.findings import counted
from stackyard.launch.records.find import handle
from stackyard.launch.records.paths import RunPaths


def sync_lines(paths: RunPaths, module: str) -> Iterator[str]:
    """Sentences with what to type on a node with internet; none if the trackers wrote nothing there.

    Args:
        module: the stack that has the trackers; empty: the environment of your shell.
    """
    if count := sum(name.startswith("offline-run-") for name in _names(paths.root / "wandb")):
        stack = f"stackyard run {module} -- " if module else ""
        where = f"{shlex.quote(str(paths.root / 'wandb'))}/offline-run-*"
        yield f"{counted(count, 'offline run')} of Weights & Biases; to upload: {stack}wandb sync {where}"
    if any(not name.startswith(".") for name in _names(paths.root / "mlruns")):
        yield f"MLflow wrote into {paths.root / 'mlruns'}; to look at it: stackyard board {handle(paths)} --tool mlflow"


def _names(directory: Path) -> list[str]:
    with suppress(OSError):
        return [path.name for path in directory.iterdir()]
    return []
