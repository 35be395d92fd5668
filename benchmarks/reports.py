"""How long `stackyard report` takes for a study of 500 runs, and how large its page is."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.tools import STACKYARD, scratch

RUNS = 500
MOST_S, MOST_BYTES = 2.0, 1_000_000


def measure(pairs: int = 5) -> list[Figure]:
    """Seconds from the command line to the written page, and its size."""
    from study.handmade import make_study, noisy

    with scratch("reports") as directory:
        study = make_study(
            directory / "study", noisy(), variants=("native", "image"), repeat=49, nodes=(1, 2, 4, 8, 16)
        )
        seconds = tuple(_report(study, directory / "report.html") for _ in range(pairs))
        size = (directory / "report.html").stat().st_size
    return [
        Figure(
            "a report of 500 runs as HTML: seconds", "none", seconds, MOST_S, False, f"{min(seconds):.2f} s at best"
        ),
        Figure("a report of 500 runs as HTML: bytes", "none", (float(size),), MOST_BYTES, False, f"{size:,} bytes"),
    ]


def _report(study: Path, page: Path) -> float:
    started = time.monotonic()
    subprocess.run([STACKYARD, "report", study, "-o", page], check=True, capture_output=True)
    return time.monotonic() - started
