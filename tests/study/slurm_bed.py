"""A study on the test cluster: its program, and what its directory says."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from support.slurmcli import Work

SPEED = """\
import os, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
time.sleep(float(words.get("--sleep", "0.2")))
rank = int(os.environ["RANK"])
nodes = int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"])
if "--fail-on" in words and int(words["--fail-on"]) == nodes and rank == 0:
    sys.exit("no such data")
if rank == 0:
    batch = float(words.get("--batch", "16"))
    print(f"images/s: {100 * nodes + batch + int(words.get('--add', '0')):.1f}", flush=True)
"""
"""A program with a metric; what it prints depends on its words and on the number of nodes."""
MEASURE = ("--measure", r"images/s=images/s: (\S+)")
SHAPE = ("-r", "1", "-c", "1", "-g", "0", "-t", "3", "--shared")


def table(study: Path) -> list[dict[str, str]]:
    """The rows of a study's table."""
    return list(csv.DictReader((study / "table.csv").open()))


def points(study: Path) -> dict[str, list[dict[str, Any]]]:
    """The attempts of each point that has begun, by its name."""
    files = sorted((study / "points").glob("*.json"))
    return {file.stem: json.loads(file.read_text())["attempts"] for file in files}


def done(study: Path) -> int:
    """How many runs that count have ended well."""
    return sum(attempts[-1]["state"] == "done" for name, attempts in points(study).items() if not is_warmup(name))


def is_warmup(name: str) -> bool:
    """Whether a point is a warm-up, by its name."""
    return re.fullmatch(r".*-w\d\d", name) is not None


def submitted(study: Path) -> Counter[str]:
    """How many attempts of each job there are."""
    return Counter(path.parent.name for path in (study / "jobs").glob("*/*"))


def jobs_of(work: Work, study: Path) -> dict[str, str]:
    """The scheduler's number of each job's last attempt."""
    found = {}
    for attempt in sorted((study / "jobs").glob("*/*/run")):
        found[attempt.parent.parent.name] = work.status(study / attempt.read_text().strip())["job"]
    return found
