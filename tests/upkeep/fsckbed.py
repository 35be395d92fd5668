"""Two stacks that share a package, really deployed and published, for checks of their files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from support import smallyard
from support.channel import PLACEHOLDER, Package, make_channel
from support.cli import Done, inside

SHARED = "share/lib/data"
OWN = "bin/tool"


def packages() -> list[Package]:
    """One that both stacks have, and one with its prefix in a file."""
    shared = {SHARED: "d" * 5000, "share/lib/more": "m" * 300, "bin/lib": ("#!/bin/sh\necho lib\n", 0o755)}
    tool = {OWN: (f"#!/bin/sh\necho {PLACEHOLDER}\n", 0o755), "share/tool/text": "text\n" * 100}
    return [
        Package("lib", "1.5", files=shared),
        Package("tool", "2.0", files=tool, depends=("lib",)),
    ]


@dataclass(frozen=True)
class Bed:
    """A directory with a channel, two files and a yard."""

    directory: Path

    @property
    def yard(self) -> Yard:
        return Yard(self.directory / "yard")

    @property
    def channel(self) -> Path:
        return self.directory / "channel"

    def environ(self) -> dict[str, str]:
        (self.directory / "home").mkdir(exist_ok=True)
        return {
            "HOME": str(self.directory / "home"),
            "STACKYARD_HOME": str(self.yard.root),
            "STACKYARD_SITE": str(smallyard.give_site(self.directory)),
        }

    def write(self) -> list[Path]:
        """The channel and both files."""
        make_channel(self.channel, packages())
        files = []
        for name, wanted in (("one", "tool"), ("two", "lib")):
            files.append(self.directory / f"{name}.yaml")
            files[-1].write_text(
                f"name: {name}\nversion: '1'\nenvironment:\n  channels: ['{self.channel.as_uri()}']\n"
                f"  dependencies: [{wanted}]\n"
            )
        return files

    def run(self, *words: str | Path, expect: int | None = 0, **more: str) -> Done:
        return inside(*words, expect=expect, **self.environ(), **more)

    def fsck(self, *words: str | Path, expect: int | None = 0) -> Done:
        return self.run("fsck", *words, expect=expect)

    def paths(self, name: str) -> RevisionPaths:
        return RevisionPaths(self.yard.stacks / name / "1-default-1")

    def file(self, name: str, inside_of: str) -> Path:
        return self.paths(name).prefix / inside_of


def flip(path: Path, *, offset: int | None = None) -> None:
    """Another byte in a file, in all its names; its size and its time stay."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2 if offset is None else offset] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def in_open_directory(path: Path, change: Callable[[Path], object]) -> None:
    """Change a sealed directory, as its owner could."""
    mode = path.parent.stat().st_mode
    path.parent.chmod(0o755)
    change(path)
    path.parent.chmod(mode)


def without_channel(bed: Bed) -> None:
    """Nothing can be fetched any more."""
    shutil.rmtree(bed.channel)
