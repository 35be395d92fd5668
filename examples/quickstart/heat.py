"""Heat spreads over a plate that is cut into strips, one per MPI rank; rank 0 draws it.

    mpiexec -n 2 python heat.py [--steps 48] [--width 72] [--height 44]

Every step each rank sends its edge rows to its neighbours and gets theirs (a halo exchange), then averages. At the end
rank 0 does the same alone and compares: the parallel answer must be the same to the last bit.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from mpi4py import MPI
from rich.console import Console
from rich.live import Live
from rich.text import Text

WORLD = MPI.COMM_WORLD
SHADES = " .:-=+*#%@"


def plate(height: int, width: int) -> np.ndarray:
    """The temperatures at the start, between 0 and 1: a ring, a hot spot in it and a hot edge on the left."""
    y, x = np.mgrid[0:height, 0:width]
    distance = np.hypot((x - width / 2) / 2, y - height / 2)
    ring = (distance > height * 0.30) & (distance < height * 0.36)
    return np.where(ring | (distance < height * 0.08) | (x == 0), 1.0, 0.0)


def relax(padded: np.ndarray) -> np.ndarray:
    """One step: every inner cell becomes the mean of itself and its four neighbours; the left and right edges stay."""
    inner = padded[1:-1].copy()
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    inner[:, 1:-1] = 0.2 * (padded[1:-1, 1:-1] + around)
    return inner


def pad(strip: np.ndarray, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """A strip with one row of its neighbours on either side."""
    return np.vstack((above[None], strip, below[None]))


def exchange(strip: np.ndarray) -> np.ndarray:
    """Trade edge rows with the ranks above and below; the plate's own edge is its own neighbour."""
    up = WORLD.rank - 1 if WORLD.rank > 0 else MPI.PROC_NULL
    down = WORLD.rank + 1 if WORLD.rank + 1 < WORLD.size else MPI.PROC_NULL
    above, below = strip[0].copy(), strip[-1].copy()
    WORLD.Sendrecv(strip[0].copy(), dest=up, recvbuf=below, source=down)
    WORLD.Sendrecv(strip[-1].copy(), dest=down, recvbuf=above, source=up)
    return pad(strip, above, below)


def colour(value: float) -> str:
    """Black, red, yellow, white for 0 to 1."""
    red, green, blue = (round(255 * min(max(3 * value - offset, 0.0), 1.0)) for offset in (0.0, 1.0, 2.0))
    return f"#{red:02x}{green:02x}{blue:02x}"


def picture(cells: np.ndarray, colours: bool) -> Text:
    """Two rows of cells per line of text: half blocks in colour, or shades of plain characters."""
    shown = np.sqrt(cells)
    text = Text(no_wrap=True)
    for top, bottom in zip(shown[::2], shown[1::2], strict=False):
        for high, low in zip(top, bottom, strict=True):
            if colours:
                text.append("▀", style=f"{colour(high)} on {colour(low)}")
            else:
                text.append(SHADES[min(int((high + low) / 2 * len(SHADES)), len(SHADES) - 1)])
        text.append("\n")
    return text


def serial(cells: np.ndarray, steps: int) -> np.ndarray:
    """The same computation without MPI."""
    for _ in range(steps):
        cells = relax(pad(cells, cells[0], cells[-1]))
    return cells


def simulate(strip: np.ndarray, steps: int, console: Console) -> np.ndarray | None:
    """Run all steps; rank 0 gets the whole plate at the end, and draws it on the way if someone is watching."""
    watched = WORLD.bcast(console.is_terminal, root=0)
    every = max(steps // 16, 1) if watched else steps
    with (
        Live(console=console, refresh_per_second=30, transient=True) if watched and WORLD.rank == 0 else console as live
    ):
        for step in range(1, steps + 1):
            strip = relax(exchange(strip))
            if step % every == 0 or step == steps:
                parts = WORLD.gather(strip, root=0)
                if isinstance(live, Live) and parts is not None:
                    live.update(picture(np.vstack(parts), True), refresh=True)
                    time.sleep(0.05)
    return np.vstack(parts) if parts is not None else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Heat on a plate, one strip per MPI rank.")
    for name, default in (("steps", 48), ("width", 72), ("height", 44)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    start = plate(options.height, options.width)
    console = Console(quiet=WORLD.rank > 0, width=max(options.width, 80), highlight=False)
    began = time.perf_counter()
    cells = simulate(np.array_split(start, WORLD.size)[WORLD.rank], options.steps, console)
    seconds = time.perf_counter() - began
    if cells is None:
        return 0
    same = np.array_equal(cells, serial(start, options.steps))
    console.print(picture(cells, console.is_terminal))
    library = MPI.Get_library_version().split("\n")[0].replace("\t", " ").strip()
    console.print(f"{WORLD.size} ranks, {options.steps} steps, {seconds:.2f} s; numpy {np.__version__}, {library}")
    console.print(f"Heat is the same on {WORLD.size} ranks as on one: {'yes' if same else 'NO'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
