"""Searches for tests: a space, a program that goes on from its checkpoint, and what a journal says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

SPACE = """\
format: 1
parameters:
  lr: {loguniform: [1e-5, 1e-1]}
  width: {int: [8, 256]}
  opt: {choice: [sgd, adam]}
metric: {name: loss}
resource: epoch
rungs: {min: 1, max: 9}
"""
TRAIN = """\
import json, math, os, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
state = os.path.join(os.environ["STACKYARD_CHECKPOINT"], "epoch")
first = int(open(state).read()) if os.path.exists(state) else 0
base = abs(math.log10(float(words["--lr"])) + 2.5) + abs(int(words["--width"]) - 64) / 100
base += (words["--opt"] == "sgd") * 0.1
for epoch in range(first + 1, int(os.environ["STACKYARD_BUDGET"]) + 1):
    time.sleep(float(words.get("--sleep", "0")))
    print(json.dumps({"epoch": epoch, "loss": round(base + 1 / epoch, 6), "from": first}))
    with open(state + ".new", "w") as stream:
        stream.write(str(epoch))
    os.replace(state + ".new", state)
"""


def events(root: Path, kind: str = "") -> list[dict[str, Any]]:
    """The events of a journal, as far as their lines are finished."""
    file = root / "journal.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [event for event in map(json.loads, lines) if kind in ("", event["event"])]


def results(root: Path) -> Counter[tuple[int, int]]:
    """How often each trial has a result at each rung."""
    return Counter((e["trial"], e["rung"]) for e in events(root, "ended") if e["state"] != "interrupted")


def rungs(root: Path) -> dict[int, dict[int, float]]:
    """The value of each trial at each rung."""
    found: dict[int, dict[int, float]] = {}
    for event in events(root, "ended"):
        if event["state"] == "done":
            found.setdefault(event["rung"], {})[event["trial"]] = event["value"]
    return found
