"""A real conda prefix that others made, and a yard into which it is adopted."""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from stackyard.yard.revision.record import BuildRecord, read_record
from support import modules
from support.cli import Done, inside

ACTIVATE = 'export CLIMATE_DATA="$CONDA_PREFIX/share/climate"\n'


def conda_prefix(prefix: Path, channel: Path, *specs: str) -> Path:
    """A conda prefix as conda or micromamba leave it, outside of every yard."""
    from rattler import install, solve

    async def make() -> None:
        records = await solve(sources=[channel.as_uri()], specs=list(specs))
        await install(records, prefix, cache_dir=prefix.with_name("pkgs"), show_progress=False)

    asyncio.run(make())
    return prefix


@dataclass
class Bed:
    """Where the prefix and the yard are."""

    directory: Path
    prefix: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    def run(self, *words: str | Path, expect: int | None = 0) -> Done:
        return inside("--yard", self.yard, *words, expect=expect, HOME=str(self.directory), **self.variables)

    def record(self, revision: int = 1) -> BuildRecord:
        return read_record(next(self.yard.glob(f"stacks/climate/*-{revision}/record.json")))

    def loaded(self, *lines: str, system: str = "lmod") -> str:
        script = "\n".join([modules.initialise(system, "bash"), f"module use {self.yard}/modules", *lines])
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "LANG": "C.UTF-8", **self.variables}
        done = subprocess.run(
            ["bash", "--norc", "--noprofile", "-c", script], capture_output=True, text=True, check=False, env=environ
        )
        return done.stdout + done.stderr


def tree_of(directory: Path) -> dict[str, tuple[int, int]]:
    """Names, sizes and times of all files."""
    found = (path for path in directory.rglob("*") if not path.is_dir())
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in found}
