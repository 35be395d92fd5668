"""The pip part with an empty cache, against pip: the same locked wheels, downloaded and installed."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from benchmarks import inputs
from benchmarks.building import Ours, plain_conda
from benchmarks.measure import Figure, alternate, figure_of
from benchmarks.tools import environment, scratch, stackyard

TARGET = 5.0


def measure(pairs: int = 3) -> list[Figure]:
    """The pip step of a deploy against ``pip install`` without a cache, with and without its bytecode."""
    from support.testbed import real_channel

    with scratch("cold") as directory:
        file = inputs.environment_file(directory / "environment.yml", real_channel())
        stackyard(directory, "lock", file, "--name", "research", "--version", "1")
        _, count = inputs.bare_inputs(Path(f"{file}.lock"), directory / "bare")
        ours = Ours(directory, file, keep_bytecode=True, empty=["uv"])
        figures = []
        for options, target, note in (
            ([], TARGET, "pip compiles bytecode as it installs, ours is made later and once; see the next line"),
            (["--no-compile"], None, "neither side compiles"),
        ):
            made = alternate(lambda: _step(ours), lambda words=options: _pip(directory, words), pairs, warm_up=0)
            figures.append(
                figure_of(
                    f"pip part, {count} packages, empty cache: how much faster",
                    " ".join(["pip install", *options]), made, target, at_least=True, unit="s", note=note,
                )
            )  # fmt: skip
    return figures


def _step(ours: Ours) -> float:
    ours()
    return ours.phases["pip"]


def _pip(directory: Path, options: list[str]) -> float:
    """Install the locked versions with pip into a new prefix; only pip is timed, and it need not solve anything."""
    prefix, env = directory / "bare" / "prefix", environment(directory)
    shutil.rmtree(prefix, ignore_errors=True)
    plain_conda(directory, prefix, directory / "bare" / "cache" / "conda", env)
    argv = [prefix / "bin" / "python", "-m", "pip", "--no-input", "install", "--quiet", "--no-cache-dir", "--no-deps"]
    argv += ["--root-user-action", "ignore"]
    started = time.perf_counter()
    subprocess.run([*argv, *options, "-r", directory / "bare" / "requirements.txt"], env=env, check=True)
    return time.perf_counter() - started
