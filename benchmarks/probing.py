"""What the probe costs each start of a Python of a rank, in CPU milliseconds: present, and on.

"On" is the upper limit: with the signal for stacks, a framework that imports nothing that the probe needs too (torch
imports all of it), the socket, its thread, and a trace that is loaded and started.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.tools import scratch

STARTS = 20
PRESENT_MS, ON_MS = 5.0, 15.0
TRACE = "def start(options): pass\ndef stop(): return {'files': [], 'steps': None}\n"


def measure(pairs: int = 8) -> list[Figure]:
    """CPU seconds of starts with and without the probe in turn, pair by pair."""
    with scratch("probe") as directory:
        environ = _laid_out(directory)
        present = {"PYTHONPATH": f"{directory}/probe:{environ['PYTHONPATH']}"}
        on = {**present, "STACKYARD_PROBE_SIGNAL": "43", "STACKYARD_TRACE_TORCH": '{"output_dir": "/"}'}
        return [
            _figure("the probe present", "python -c pass", ("pass",), environ, present, pairs, PRESENT_MS),
            _figure("the probe on, nothing imported", "python -c pass", ("pass",), environ, on, pairs, ON_MS),
            _figure("the probe on, with socket and trace", "the same import", ("import torch",), environ, on, pairs,
                    ON_MS),
        ]  # fmt: skip


def _laid_out(directory: Path) -> dict[str, str]:
    """The probe's files as an agent writes them, a framework of one line, and the environment without the probe."""
    from stackyard.launch.run.agentfile import probe_files

    for name, text in {**probe_files(), "torch_trace.py": TRACE, "../other/torch.py": ""}.items():
        path = directory / "probe" / name
        path.parent.mkdir(exist_ok=True)
        (directory / "other").mkdir(exist_ok=True)
        path.write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STACKYARD"))}
    return {**kept, "PYTHONPATH": str(directory / "other")}


def _figure(
    name: str, against: str, code: Sequence[str], environ: Mapping[str, str], more: Mapping[str, str], pairs: int,
    target: float,
) -> Figure:  # fmt: skip
    """The difference of each pair, in milliseconds for one start; who is first alternates."""
    both = (dict(environ), {**environ, **more})
    for one in both:
        _cpu_ms(code, one, 2)  # bytecode
    differences, bare = [], []
    for pair in range(pairs):
        found = {side: _cpu_ms(code, both[side], STARTS) for side in ((0, 1) if pair % 2 else (1, 0))}
        differences.append(found[1] - found[0])
        bare.append(found[0])
    middle = sorted(bare)[pairs // 2]
    return Figure(f"{name}: CPU ms more for a start of Python", against, tuple(differences), target,
                  absolute=f"{middle:.1f} ms without it")  # fmt: skip


def _cpu_ms(code: Sequence[str], environ: Mapping[str, str], starts: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(starts):
        subprocess.run([sys.executable, "-c", *code], env=dict(environ), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / starts
