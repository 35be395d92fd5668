"""What an extension by one small pip package costs, beside what users do today: a clone of the base, or a bare venv.

A clone as conda documents it is ``conda create --clone``, for which you give the path of a conda in
``STACKYARD_BENCH_CONDA`` (conda itself is no part of this repository). Beside it, and without it, `cp` links each
file (the least that a clone can take), or copies each (as across file systems); then `pip install`. The venv is that
of the base's Python with ``--system-site-packages``, then `uv pip install`: no lock, no module, no checks; once with
the pip that venv puts into it, once without. All of them have the wheel in their cache and the same index. The base
has seventy packages, of which pip is one. Of each pair the CPU seconds of all processes are compared too: other work
on the machine changes them less.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from benchmarks import inputs
from benchmarks.measure import Figure, alternate, figure_of, seconds
from benchmarks.tools import environment, scratch, stackyard
from stackyard.host.tools import uv
from stackyard.inputs.models import PipOptions
from stackyard.inputs.pip.settings import settings
from stackyard.inputs.sites.sitemodels import PipPolicy

CLONE_TARGET, INODES_TARGET, VENV_TARGET, START_TARGET = 1 / 20, 1 / 50, 2.0, 1.1
PACKAGE = "xmltodict"
STARTS = 21
Way = Callable[[], float]
CONDA = os.environ.get("STACKYARD_BENCH_CONDA", "")


def measure(pairs: int = 3) -> list[Figure]:
    """Seconds and directory entries of an extension against clones and a venv, and the start of its Python."""
    with scratch("extend") as directory:
        ways = Ways(directory, deployed(directory))
        against = {
            **ways.clones(),
            "python -m venv --system-site-packages, uv pip install": (ways.venv(), VENV_TARGET),
            "the same with --without-pip": (ways.venv("--without-pip"), VENV_TARGET),
        }
        figures = [ways.compared(name, *against[name], pairs) for name in against]
        return [*(figure for both in figures for figure in both), _entries(ways), *_starts(ways)]


def deployed(directory: Path) -> Path:
    """Deploy the base into the yard of a directory. Returns its prefix."""
    from support.testbed import real_channel

    file = directory / "base" / "environment.yml"
    file.parent.mkdir()
    inputs.environment_file(file, real_channel())
    stackyard(directory, "deploy", file, "--version", "1")
    return Path(stackyard(directory, "show", "base", "--json")["prefix"])


def _cpu() -> float:
    """Seconds of CPU that all programs which have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Ways:
    """The ways to add a package to a base."""

    def __init__(self, directory: Path, base: Path) -> None:
        self.directory, self.base = directory, base
        self.environ = {**environment(directory), "PYTHONNOUSERSITE": "1"}
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # pip and venv as people have them
        self.index = uv.index_options(settings(PipPolicy(), PipOptions(), self.environ)[0])
        self.made = directory / "made"
        self._numbers = count()
        self.extension = Path()
        self.cloned = 0

    def compared(
        self,
        name: str,
        theirs: Way,
        target: float,
        pairs: int,
        *,
        meter: Callable[[], float] = _cpu,
        what: str = "CPU seconds",
        unit: str = "s",
    ) -> tuple[Figure, Figure]:
        """Time of an extension and of another way, pair by pair, and what a meter says; the wheel is in all caches."""
        spent: dict[Way, list[float]] = {self.extend: [], theirs: []}

        def noted(way: Way) -> Way:
            def run() -> float:
                shutil.rmtree(self.made, ignore_errors=True)
                before = meter()
                taken = way()
                spent[way].append(meter() - before)
                return taken

            return run

        times = alternate(noted(self.extend), noted(theirs), pairs)
        metered = list(zip(spent[self.extend][1:], spent[theirs][1:], strict=True))  # without the warm-up
        extension = f"extension by {PACKAGE}"
        return (
            figure_of(f"{extension}: time", name, times, target, unit="s"),
            figure_of(f"{extension}: {what}", name, metered, None, unit=unit),
        )

    def clones(self) -> dict[str, tuple[Way, float]]:
        """The ways that make a whole environment, by name, with what an extension may take of their time."""
        return {
            **({"conda create --clone, pip install": (self.conda_clone, CLONE_TARGET)} if CONDA else {}),
            "cp, every file linked, pip install": (self.clone("-al"), CLONE_TARGET),
            "cp, every file copied, pip install": (self.clone("-a"), CLONE_TARGET),
        }

    def extend(self) -> float:
        """`stackyard extend`, with all that it does: solve, build, verify, publish."""
        name = f"mine{next(self._numbers)}"
        started = time.perf_counter()
        stackyard(self.directory, "extend", "--base", "base", "--name", name, "--pip", PACKAGE)
        taken = time.perf_counter() - started
        self.extension = Path(stackyard(self.directory, "show", name, "--json")["path"])
        return taken

    def clone(self, how: str) -> Way:
        """A copy of the base by ``cp``, writable for pip, and pip's installation into it."""

        def make() -> float:
            return seconds(["cp", how, self.base, self.made]) + self._with_pip()

        return make

    def conda_clone(self) -> float:
        """A clone by conda."""
        self.environ["CONDA_PKGS_DIRS"] = str(self.directory / "conda-packages")
        return self._timed([CONDA, "create", "-q", "-y", "--clone", self.base, "-p", self.made]) + self._with_pip()

    def _with_pip(self) -> float:
        subprocess.run(["find", self.made, "-type", "d", "-exec", "chmod", "u+w", "{}", "+"], check=True)
        for mark in self.made.glob("lib/python*/EXTERNALLY-MANAGED"):
            mark.unlink()
        taken = self._timed([self.made / "bin/python", "-m", "pip", "install", PACKAGE])
        self.cloned = _count(self.made)
        return taken

    def venv(self, *options: str) -> Way:
        """A virtual environment that sees the packages of the base."""

        def make() -> float:
            words = [self.base / "bin/python", "-m", "venv", "--system-site-packages", *options, self.made]
            install = [uv.program(), "pip", "install", *self.index, "--python", self.made / "bin/python", PACKAGE]
            return self._timed(words) + self._timed(install)

        return make

    def _timed(self, words: Sequence[str | os.PathLike[str]]) -> float:
        return seconds(words, env=self.environ)


def _entries(ways: Ways) -> Figure:
    """Entries of directories, which is what a quota of files counts where nothing can be linked."""
    pair = (float(_count(ways.extension)), float(ways.cloned))
    figure = figure_of("extension: files, links and directories", "a clone", [pair], INODES_TARGET, unit="")
    absolute = f"{pair[0]:,.0f} : {pair[1]:,.0f}"
    return Figure(
        figure.name, figure.against, figure.ratios, figure.target, figure.at_least, absolute, "with the drift directory"
    )


def _starts(ways: Ways) -> list[Figure]:
    """The start of Python and the import of numpy, in the extension and in its base."""
    theirs, ours = ways.base / "bin/python", ways.extension / "prefix/bin/python"

    def start(python: Path, code: str) -> Callable[[], float]:
        return lambda: seconds([python, "-c", code], env=ways.environ)

    return [
        figure_of(
            f"extension: {what}", "in its base", alternate(start(ours, code), start(theirs, code), STARTS), target
        )
        for what, code, target in (
            ("start of Python", "pass", START_TARGET),
            ("start and import numpy", "import numpy", START_TARGET),
        )
    ]


def _count(directory: Path) -> int:
    return sum(len(directories) + len(files) for _, directories, files in os.walk(directory))
