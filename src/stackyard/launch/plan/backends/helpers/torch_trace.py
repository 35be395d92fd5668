"""A Python program under PyTorch's profiler: ``torch_trace.py --output=F [--steps=A-B] -- [python] train.py ...``.

Without `--steps` the whole program is traced, which is large for a long one. With it, tracing starts after A and stops
after B calls of an optimizer's ``step()``. The trace is written when tracing stops, even if the program fails.
"""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]


class Trace:
    """The profiler and the number of steps so far."""

    def __init__(self, output: str, first: int, last: int) -> None:
        self.output, self.first, self.last = output, first, last
        self.steps = 0
        self.profiler: Any = None
        self.done = False

    def begin(self) -> None:
        """Start tracing."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self.profiler = torch.profiler.profile(activities=activities)
        self.profiler.start()

    def end(self) -> None:
        """Stop tracing and write the trace, once."""
        if self.profiler is not None and not self.done:
            self.done = True
            self.profiler.stop()
            self.profiler.export_chrome_trace(self.output)

    def after_step(self, *_: object) -> None:
        """Called after every step of an optimizer."""
        self.steps += 1
        if self.profiler is None and self.first <= self.steps < self.last:
            self.begin()
        elif self.steps >= self.last:
            self.end()


def main(arguments: list[str]) -> None:
    """Run the program, traced."""
    cut = arguments.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", default="")
    options = parser.parse_args(arguments[:cut])
    program = arguments[cut + 1 :]
    while program and not (program[0].endswith(".py") or program[0] == "-m"):
        program = program[1:]
    if not program:
        sys.exit("stackyard: the torch profiler can trace only a *.py program or a module (-m)")
    first, _, last = options.steps.partition("-")
    trace = Trace(options.output, int(first or 0), int(last or first or sys.maxsize))
    if options.steps:
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(trace.after_step)
    if trace.first == 0:
        trace.begin()
    try:
        run(program)
    finally:
        trace.end()


def run(program: list[str]) -> None:
    """Run a script or a module as python would."""
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
