"""From a lock to a published module, against the plain tools that do no more than install the same lock.

The checks before publishing are timed apart: their time, as the report tells it, is taken off ours and shown beside it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import inputs
from benchmarks.measure import Figure, alternate, figure_of
from benchmarks.tools import HERE, PYTHON, STACKYARD, environment, scratch, stackyard

FIRST_TARGET = 1.2
CACHED_TARGET = 0.5


def measure(pairs: int = 4) -> list[Figure]:
    """The first build of these packages, and one whose bytecode is in the cache; all downloads are cached for both."""
    from support.testbed import real_channel

    with scratch("build") as directory:
        file = inputs.environment_file(directory / "environment.yml", real_channel())
        stackyard(directory, "lock", file, "--name", "research", "--version", "1")
        conda, pip = inputs.bare_inputs(Path(f"{file}.lock"), directory / "bare")
        figures = []
        for cached, target in ((False, FIRST_TARGET), (True, CACHED_TARGET)):
            ours = Ours(directory, file, keep_bytecode=cached)
            made = alternate(ours, lambda: bare(directory), pairs)
            checks, phases = statistics.median(ours.checks), ", ".join(f"{k} {v:.1f}" for k, v in ours.phases.items())
            figures.append(
                figure_of(
                    f"lock to publish, {'bytecode cached' if cached else 'first time'}",
                    "py-rattler + uv pip install + compileall", made, target, unit="s",
                    note=f"{conda} conda and {pip} pip packages; checks apart ({checks:.1f} s); last phases: {phases}",
                )
            )  # fmt: skip
    return figures


class Ours:
    """One deploy into a yard in which only the cache is left; returns its seconds without the checks.

    `empty` names caches that are emptied before, too.
    """

    def __init__(self, directory: Path, file: Path, *, keep_bytecode: bool, empty: Sequence[str] = ()) -> None:
        self.directory, self.file = directory, file
        self.empty = [*empty, *([] if keep_bytecode else ["bytecode"])]
        self.checks: list[float] = []
        self.phases: dict[str, float] = {}

    def __call__(self) -> float:
        """Deploy once."""
        forget(self.directory / "yard", self.empty)
        argv = [
            "--yard",
            self.directory / "yard",
            "deploy",
            self.file,
            "--name",
            "research",
            "--version",
            "1",
            "--locked",
        ]
        started = time.perf_counter()
        done = subprocess.run(
            [STACKYARD, *argv], env=environment(self.directory), capture_output=True, text=True, check=False
        )
        taken = time.perf_counter() - started
        if done.returncode != 0:
            raise SystemExit(f"the deploy exited with status {done.returncode}\n{done.stdout}\n{done.stderr}")
        (root,) = (self.directory / "yard" / "stacks" / "research").iterdir()
        checks = json.loads((root / "report.json").read_text())["seconds"]
        self.checks.append(checks)
        self.phases = json.loads((root / "record.json").read_text())["timings_s"]
        return taken - checks


def forget(yard: Path, caches: list[str]) -> None:
    """Make a yard as good as new but for its caches; `caches` are emptied as well."""
    for name in ("stacks", "generations", "modules", "cache/memo", *(f"cache/{cache}" for cache in caches)):
        path = yard / name
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


def bare(directory: Path) -> float:
    """Install the same lock with the plain tools, whose caches are warm after the first time; returns seconds."""
    prefix, cache = directory / "bare" / "prefix", directory / "bare" / "cache"
    shutil.rmtree(prefix, ignore_errors=True)
    env = environment(directory)
    started = time.perf_counter()
    plain_conda(directory, prefix, cache / "conda", env)
    uv = [PYTHON.with_name("uv"), "pip", "install", "--quiet", "--preview-features", "pylock", "--no-deps"]
    uv += ["--cache-dir", cache / "uv", "--python", prefix / "bin" / "python", "--break-system-packages"]
    subprocess.run([*uv, "-r", directory / "bare" / "pylock.toml"], env=env, check=True)
    compile_all = [prefix / "bin" / "python", "-m", "compileall", "-q", "-j", "0", prefix / "lib"]
    subprocess.run(compile_all, env=env, check=False, capture_output=True)  # status 1: templates that are not Python
    return time.perf_counter() - started


def plain_conda(directory: Path, prefix: Path, cache: Path, env: dict[str, str]) -> None:
    """The conda part alone, by py-rattler."""
    argv = [PYTHON, HERE / "bare_conda.py", directory / "bare" / "conda.json", prefix, cache]
    subprocess.run([*argv], env=env, check=True)
