"""What a second variant costs that has most packages in common with the first one, in time and on disk."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from benchmarks import inputs
from benchmarks.measure import Figure, disk_bytes, figure_of
from benchmarks.tools import scratch, stackyard

BYTES_TARGET = 0.15
TIME_TARGET = 0.25
SECOND = ("jmespath", "xmltodict", "tomli-w", "sortedcontainers", "parse", "pyjwt", "blinker")
"""Seven pip packages that the second variant has in place of seven of the first one's: a tenth of all."""
REPLACED = ("absl-py", "termcolor", "tabulate", "toolz", "einops", "flatbuffers", "networkx")


def measure(pairs: int = 3) -> list[Figure]:
    """Bytes that the yard grows by, and time of the deploy, from a lock and an empty cache; with and without checks."""
    from support.testbed import real_channel

    with scratch("share") as directory:
        second = [*(name for name in inputs.PIP if name not in REPLACED), *SECOND]
        files = [directory / "first" / "environment.yml", directory / "second" / "environment.yml"]
        for file, pip in zip(files, (inputs.PIP, second), strict=True):
            file.parent.mkdir()
            inputs.environment_file(file, real_channel(), pip=pip)
            stackyard(directory, "lock", file, "--version", "1")
        rows = [_round(directory, files) for _ in range(pairs)]
        names = ("bytes on disk", "time, checks apart", "time with all checks")
        targets = (BYTES_TARGET, TIME_TARGET, None)
        note = f"share of the packages in common: {_shared(directory):.0%}"
        return [
            figure_of(
                f"second variant: {name}", "the first variant", [row[column] for row in rows], target,
                unit="" if column == 0 else "s", note=note if column == 0 else "",
            )
            for column, (name, target) in enumerate(zip(names, targets, strict=True))
        ]  # fmt: skip


def _round(directory: Path, files: list[Path]) -> list[tuple[float, float]]:
    """Deploy both into an empty yard; (second, first) of bytes, seconds without the checks, and seconds."""
    shutil.rmtree(directory / "yard", ignore_errors=True)
    used, apart, whole = [0.0], [], []
    for file in files:
        started = time.perf_counter()
        stackyard(directory, "deploy", file, "--version", "1", "--locked")
        whole.append(time.perf_counter() - started)
        (root,) = (directory / "yard" / "stacks" / file.parent.name).iterdir()
        apart.append(whole[-1] - json.loads((root / "report.json").read_text())["seconds"])
        used.append(disk_bytes(directory / "yard") - sum(used))
    return [(used[2], used[1]), (apart[1], apart[0]), (whole[1], whole[0])]


def _shared(directory: Path) -> float:
    """The share of the second variant's packages that the first one has, too."""
    first, second = (
        {(p["name"], p["version"], p["kind"]) for p in stackyard(directory, "show", name, "--json")["packages"]}
        for name in ("first", "second")
    )
    return len(first & second) / len(second)
