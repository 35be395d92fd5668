"""Measure the figures and compare them with their targets: ``python benchmarks/run.py [NAME...] [--json FILE]``."""

from __future__ import annotations

import argparse
import compileall
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Figure
from benchmarks.tools import REPOSITORY

BENCHMARKS = {
    "starting": "--version, list, and a deploy that changes nothing",
    "loading": "module load and unload",
    "collecting": "gc --dry-run of a large yard",
    "removing": "a tree removed by descriptors and by paths",
    "completing": "a TAB in each shell",
    "checking": "fsck --deep beside sha256sum",
    "building": "lock to publish, first and second time",
    "cold": "the pip part with an empty cache",
    "extending": "an extension by one package, a clone, a venv",
    "extending_shared": "an extension and clones on a file system that answers late",
    "sharing": "a second variant that shares most packages",
    "starting_ranks": "eight ranks on four nodes",
    "mapping": "a map of the Python API over Slurm, and submitit's",
    "studies": "a study of six runs, and a loop of sbatch",
    "reports": "a report of a study of 500 runs",
    "cataloguing": "a catalogue of 500 revisions, and its search in a slow browser",
    "many_nodes": "the hub with 10,000 simulated agents",
    "staging": "files on 64 nodes, by the agents and without",
    "stalled": "a job whose run directory hangs for a minute",
    "probing": "the probe in each start of Python",
    "agent_cpu": "the agent beside 8 ranks of 390 threads",
    "meeting": "looking for connections between ranks",
    "images": "an environment as one file on a slow shared file system",
    "images_sif": "a stack and its base as one SIF file",
    "images_wrap": "a command of a wrapped image",
    "images_oci": "a second revision as an OCI image in a registry",
    "tracing": "a step outside of the traced ones",
    "layout": "layouts and launch lines for 10,000 nodes",
}


def main(words: Sequence[str] | None = None) -> None:
    """Run the benchmarks that are named, or all; exit code 3 where a target was not reached and ``--strict`` is on."""
    options = _options(words)
    compileall.compile_dir(REPOSITORY / "src", quiet=1)  # as an installation has it, also with PYTHONDONTWRITEBYTECODE
    figures: list[Figure] = []
    for name in options.names or BENCHMARKS:
        print(f"measuring {name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
        started = time.monotonic()
        module = importlib.import_module(f"benchmarks.{name}")
        made = module.measure(options.pairs) if options.pairs else module.measure()
        print(f"  {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        figures += made
    if options.json:
        text = json.dumps([figure.to_json() for figure in figures], indent=2, ensure_ascii=False) + "\n"
        Path("/dev/stdout" if options.json == "-" else options.json).write_text(text)
    if options.json != "-":
        print(table(figures))
    if options.strict and any(figure.reached is False for figure in figures):
        sys.exit(3)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    lines = ", ".join(f"{name} ({text})" for name, text in BENCHMARKS.items())
    parser.add_argument("names", nargs="*", metavar="NAME", help=lines)
    parser.add_argument("--pairs", type=int, help="how many pairs to measure (default: as many as each one needs)")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - for standard output")
    parser.add_argument("--strict", action="store_true", help="exit code 3 where a target was not reached")
    options = parser.parse_args(words)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    return options


def table(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    heads = ("what", "against", "measured", "spread", "target", "reached", "medians")
    rows = [heads, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    notes = [f"- {figure.name}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([*lines, "", *notes])


def _row(figure: Figure) -> tuple[str, ...]:
    low, high = figure.spread
    reached = {True: "yes", False: "no", None: ""}[figure.reached]
    target = "" if figure.target is None else f"{'>=' if figure.at_least else '<='} {figure.target:g}"
    measured, spread = f"{figure.ratio:.2f}", f"{low:.2f} - {high:.2f}"
    return (figure.name, figure.against, measured, spread, target, reached, figure.absolute)


if __name__ == "__main__":
    main()
