"""An example in a directory of its own, its channels on this machine, and shells in which its modules are loaded."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stackyard.lock.lockfile import text
from stackyard.lock.lockfile.model import LockedVariant
from support import modules
from support.channel import Package, make_channel
from support.cli import Done, stackyard
from support.sitechannels import mirrors
from support.wheelpkg import host_subdir

EXAMPLES = Path(__file__).parents[2] / "examples"
POWER = "linux-ppc64le"


class Example:
    """A copy of one example, with its stacks untouched.

    ``site.yaml`` is the site but for the places of its channels; ``here.yaml`` has this machine's platform too.

    Args:
        config: the account's configuration; None: that of the test, or for what tests share the caller's own.
    """

    def __init__(self, name: str, directory: Path, channels: Mapping[str, Path], config: Path | None = None) -> None:
        self.config = config
        self.directory = Path(shutil.copytree(EXAMPLES / name, directory / name))
        self.yard = directory / "yard"
        site = self.site("site.yaml")
        site["channels"]["mirrors"] = {**site["channels"].get("mirrors", {}), **mirrors(channels)}
        self.write("site.yaml", site)
        site["platforms"] = [*dict.fromkeys((*site["platforms"], host_subdir()))]
        self.write("here.yaml", site)

    def site(self, name: str) -> Any:
        """A site file of the copy, to be changed."""
        return YAML().load(self.directory / name)

    def write(self, name: str, document: Any) -> None:
        """A YAML file beside the others."""
        with (self.directory / name).open("w") as stream:
            YAML().dump(document, stream)

    def run(self, *words: str | Path, site: str = "here.yaml", expect: int | None = 0) -> Done:
        """``stackyard`` in the yard of this example. Words that are its files are given with their directory."""
        own = [self.directory / word if (self.directory / word).is_file() else word for word in words]
        variables = {"XDG_CONFIG_HOME": str(self.config)} if self.config else {}
        return stackyard("--yard", self.yard, "--site", self.directory / site, *own, expect=expect, **variables)

    def locked(self, file: str) -> tuple[LockedVariant, ...]:
        """The variants in the lock of a file."""
        path = self.directory / f"{file}.lock"
        return text.parse(path.read_text(), str(path)).variants

    def published(self) -> dict[str, dict[str, Any]]:
        """What is listed, by module."""
        return {entry["module"]: entry for entry in self.run("list", "--json").value}

    def typed(self, system: str, place: Path, lines: Sequence[str], shell: str = "bash", **variables: str) -> str:
        """What a shell prints for these lines after ``module use``; a skip where the module system is missing."""
        if reason := modules.missing(system, shell):
            pytest.skip(reason)
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(place), "LANG": "C.UTF-8", "TERM": "dumb", **variables}
        start = [modules.initialise(system, shell), f"module use {self.yard}/modules", *lines]
        return modules.run(shell, "\n".join(start) + "\n", environ, place)


def versions(variant: LockedVariant) -> dict[str, str]:
    """The conda packages of a locked variant by name."""
    return {package.name: package.version for package in variant.conda}


def pinned(file: Path) -> list[str]:
    """The requirements of an environment.yml, one word each: ``name=version``, and those of pip ``name==version``."""
    return [line.split()[1] for line in file.read_text().splitlines() if "  - " in line]


def powerai_channel(directory: Path) -> Path:
    """A channel with the three packages that IBM's image held."""
    needs = ("python 3.6.*",)
    return make_channel(directory, [
        Package("python", "3.6.13", subdir=POWER, files={"share/python": "3.6.13\n"}),
        Package("tensorflow-gpu", "1.10.0", subdir=POWER, files={"share/tf": "1.10.0\n"}, depends=needs),
        Package("pytorch", "0.4.1", subdir=POWER, files={"share/torch": "0.4.1\n"}, depends=needs),
    ])  # fmt: skip
