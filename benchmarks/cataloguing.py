"""How long `stackyard catalogue` takes for 500 revisions of 400 packages, and its search on a slow processor."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from benchmarks.tools import STACKYARD, scratch

STACKS, PACKAGES, REVISIONS = 40, 400, 500
SLOWER = 4
"""How much the processor is slowed down in the browser."""
_SYLLABLES = (
    "py",
    "tor",
    "num",
    "ten",
    "cu",
    "da",
    "net",
    "lib",
    "flow",
    "vis",
    "jax",
    "ray",
    "opt",
    "hydra",
    "mpi",
    "xla",
)
_LOADED = """return new Promise(done => {
  const started = performance.now();
  document.getElementById('q').focus();
  const script = document.querySelector('script[src$="packages.js"]');
  script.addEventListener('load', () => done(performance.now() - started));
})"""
_ASKED = """const field = document.getElementById('q'), started = performance.now();
field.value = arguments[0];
field.form.requestSubmit();
document.body.offsetHeight;  // laid out
return performance.now() - started"""
Pool = list[str]


def measure(pairs: int = 5) -> list[Figure]:
    """A first run, a run after one deploy, the first page, and what a reader waits for."""
    from catalogue import yards
    from stackyard.yard.layout import Yard

    with scratch("catalogue") as directory:
        yard, out = Yard(directory / "yard"), directory / "out"
        make(yard.root)
        first = tuple(_run(yard.root, directory / f"out{n}") for n in range(min(pairs, 3)))
        _run(yard.root, out)
        again = []
        for number in range(min(pairs, 3)):
            record = yards.revision(yard, "stack00", f"2027.{number}", _packages(random.Random(number), _pool()))
            yards.publish(yard, [yards.entry(record)])
            again.append(_run(yard.root, out))
        size = (out / "index.html").stat().st_size
        seen = _in_browser(directory, out, pairs)
    name = f"a catalogue of {REVISIONS} revisions with {PACKAGES} packages each"
    slow = f"with the processor slowed down {SLOWER} times"
    return [
        _figure(f"{name}: processor seconds", [cpu for cpu, _ in first], 10, "s"),
        _figure(f"{name}: seconds", [wall for _, wall in first], 10, "s"),
        _figure(f"{name}, again after one deploy: processor seconds", [cpu for cpu, _ in again], 2, "s"),
        _figure(f"{name}, again after one deploy: seconds", [wall for _, wall in again], 2, "s"),
        _figure("its first page: bytes", [size], 200_000, "bytes"),
        _figure(f"its first page is ready, {slow}: seconds", seen["ready"], 1, "s"),
        _figure(f"its index of packages is loaded, {slow}: seconds", seen["index"], 1, "s"),
        _figure(f"an answer of its search, {slow}: seconds", seen["search"], 0.05, "s"),
    ]


def _figure(name: str, values: list[float], target: float, unit: str) -> Figure:
    shown = f"{min(values):.3g} to {max(values):.3g} {unit}"
    return Figure(name, "none", tuple(map(float, values)), target, False, shown, f"load {os.getloadavg()[0]:.1f}")


def _run(yard: Path, out: Path) -> tuple[float, float]:
    """Processor and wall seconds of one run."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([STACKYARD, "--yard", yard, "catalogue", "-o", out], check=True, capture_output=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - started
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def make(root: Path, revisions: int = REVISIONS, packages: int = PACKAGES) -> None:
    """A yard in which each version of a stack has other versions of one package in seven."""
    from catalogue import yards
    from stackyard.yard.layout import Yard

    chance, pool, yard, entries = random.Random(7), _pool(), Yard(root), []
    for stack in range(STACKS):
        state: dict[str, tuple[int, int, int]] = {}
        for number in range(len(range(stack, revisions, STACKS))):
            found = list(_versions(chance, state, pool, packages))
            more = {"asked": list(state)[:9], "checks": yards.passed(), "summary": "Made for a benchmark"}
            version = f"20{20 + number // 2}.{1 + 6 * (number % 2):02d}"
            record = yards.revision(yard, f"stack{stack:02d}", version, found, **more)
            entries.append(yards.entry(record))
    yards.publish(yard, entries)


def _pool() -> Pool:
    chance = random.Random(3)
    names = {"".join(chance.choice(_SYLLABLES) for _ in range(chance.randint(2, 4))) for _ in range(2600)}
    return sorted(names)[:1500]


def _packages(chance: random.Random, pool: Pool) -> list[Any]:
    return list(_versions(chance, {}, pool, PACKAGES))


def _versions(chance: random.Random, state: dict[str, tuple[int, int, int]], pool: Pool, count: int) -> Iterator[Any]:
    from catalogue import yards

    if not state:
        names = [*pool[: count * 5 // 8], *chance.sample(pool[count * 5 // 8 :], count - count * 5 // 8)]
        state.update({name: (chance.randint(0, 3), chance.randint(0, 20), 0) for name in names})
    for name, (major, minor, _) in state.items():
        if chance.random() < 0.15:
            state[name] = (major, minor + 1, chance.randint(0, 3))
        yield yards.package(name, ".".join(map(str, state[name])), ("MIT", "BSD-3-Clause", "")[len(name) % 3])


def _in_browser(directory: Path, out: Path, pairs: int) -> Mapping[str, list[float]]:
    """Seconds until the page is ready, until the index is loaded after the first focus, and of each search."""
    from support.browser import browser

    seconds: dict[str, list[float]] = {"ready": [], "index": [], "search": []}
    with browser(directory, (400, 800)) as page:
        page.devtools("Emulation.setCPUThrottlingRate", rate=SLOWER)
        for _ in range(pairs):
            page.open((out / "index.html").as_uri())
            seconds["ready"].append(
                page.script("return performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
            )
            seconds["index"].append(page.script(_LOADED) / 1000)
            for text in ("n", "torch", "pytornum 1.", "zzzz", "pyra"):
                seconds["search"].append(page.script(_ASKED, text) / 1000)
    return seconds
