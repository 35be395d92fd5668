"""Layouts and launch lines for 10,000 nodes of 8 ranks against those for 100: time per rank, and memory in all."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, alternate, figure_of

LARGE, SMALL = 10_000, 100
LAUNCHERS = ("srun", "jsrun", "mpirun", "mpich", "pals", "flux")
"""All that can start ranks on several nodes."""
MEMORY_TARGET_MB = 200
SITE = Path(__file__).resolve().parents[1] / "examples" / "frontier" / "site.yaml"


def measure(pairs: int = 7) -> list[Figure]:
    """Planning, naming every rank's place, and rendering for each launcher; memory of a process that does it all."""
    growth = LARGE / SMALL
    figures = [
        _against_small("layout", plan, pairs, growth),
        _against_small("every rank's place", places, pairs, growth),
    ]
    figures += [_against_small(f"layout and {name} line", lambda n, x=name: line(n, x), pairs, growth)
                for name in LAUNCHERS]  # fmt: skip
    return [*figures, _traced(growth), _memory(min(pairs, 3))]


def plan(nodes: int) -> Any:
    """The layout of that many nodes of Frontier, eight ranks each, with names."""
    from stackyard.inputs.sites.site import load_site
    from stackyard.launch.layout.nodes import pick_kind
    from stackyard.launch.layout.placing import plan_layout
    from stackyard.launch.request.intent import Intent

    hosts = tuple(f"frontier{number:05d}" for number in range(1, nodes + 1))
    return plan_layout(Intent(nodes=nodes), pick_kind(_kept(load_site), Intent()), hosts)


def places(nodes: int) -> Any:
    """Go through the places of all ranks, keeping none."""
    return deque(plan(nodes).places(), maxlen=0)


def line(nodes: int, name: str) -> Any:
    """The command line and the files of one launcher."""
    from stackyard.inputs.sites.site import load_site
    from stackyard.launch.plan.launchers import get
    from stackyard.launch.plan.model import LaunchRequest

    return get(name).line(LaunchRequest(plan(nodes), _kept(load_site).scheduler))


_SITES: list[Any] = []


def _kept(load: Callable[[Path], Any]) -> Any:
    """The site, read once: reading it is not what is measured."""
    if not _SITES:
        _SITES.append(load(SITE))
    return _SITES[0]


def _against_small(name: str, what: Callable[[int], object], pairs: int, growth: float) -> Figure:
    taken = alternate(lambda: _time(what, LARGE), lambda: _time(what, SMALL), pairs)
    note = f"there are {growth:g} times as many ranks"
    return figure_of(f"{name}, {LARGE} nodes x 8", f"{SMALL} nodes x 8", taken, growth, note=note)


def _time(what: Callable[[int], object], nodes: int) -> float:
    started = time.perf_counter()
    what(nodes)
    return time.perf_counter() - started


def _traced(growth: float) -> Figure:
    """What Python allocates at its highest for a layout and the largest of the renderings."""
    pair = (max(_peak(LARGE, name) for name in LAUNCHERS), max(_peak(SMALL, name) for name in LAUNCHERS))
    note = "peak of Python's own allocations, over all launchers"
    return figure_of("memory of layout and line", f"{SMALL} nodes x 8", [pair], growth, note=note, unit="")


def _peak(nodes: int, name: str) -> float:
    line(nodes, name)
    tracemalloc.start()
    line(nodes, name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return float(peak)


def _memory(times: int) -> Figure:
    """A fresh process that plans and renders for every launcher, by its own highest resident size."""
    pairs = [(_resident(), MEMORY_TARGET_MB * 1e6) for _ in range(times)]
    name = f"resident memory, {LARGE} nodes x 8, all launchers"
    return figure_of(name, f"{MEMORY_TARGET_MB} MB", pairs, 1.0, note="a process of its own", unit="")


def _resident() -> float:
    program = (
        "import resource\nfrom benchmarks import layout\n"
        f"for name in {LAUNCHERS!r}: layout.line({LARGE}, name)\n"
        f"layout.places({LARGE})\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    return float(done.stdout) * 1024
