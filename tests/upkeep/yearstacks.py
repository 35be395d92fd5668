"""The stacks of the simulated year: small packages that change as real ones do, and mostly stay the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from support.channel import Content, Package, make_channel
from support.tinywheel import wheel

PLAIN = ("abinit", "cptwok", "espresso", "gromacs", "hdf", "lammps", "netcdf", "openmpi", "petsc", "siesta")
PYTHON = ("climate", "learning")
STACKS = (*PLAIN, *PYTHON)
MAJORS, MINORS, FIXES = 4, 12, 30
SELDOM = 0.25
"""How often stacks with Python change beside the others: they take much longer to build."""
DATA_FILES, OWN_FILES = 100, 20


@dataclass
class Stack:
    """A stack, and what its file says now."""

    name: str
    major: int = 1
    minor: int = -1
    fix: int = 0
    revision: int = 0

    @property
    def is_python(self) -> bool:
        return self.name in PYTHON

    @property
    def version(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def expected(self) -> str:
        """The directory of the revision that its file describes."""
        return f"{self.version}-{'py3' if self.is_python else 'default'}-{self.revision}"

    def change(self, chance: random.Random, *, whole: bool = False) -> None:
        """A newer version; or the same with another package, which makes another revision of it."""
        kind = 1.0 if whole else chance.random()
        if self.minor >= 0 and kind < 0.3 and self.fix < FIXES:
            self.fix, self.revision = self.fix + 1, self.revision + 1
            return
        self.fix, self.revision = 0, 1
        if (kind > 0.9 or self.minor == MINORS) and self.minor >= 0 and self.major < MAJORS:
            self.major, self.minor = self.major + 1, 0
        else:
            self.minor += 1

    def text(self, place: Path) -> str:
        """Its stack.yaml."""
        wanted = [f"{self.name}=={self.version}", *([f"fix=={self.fix}.0"] if self.fix else [])]
        head = f"name: {self.name}\nversion: '{self.version}'\n"
        if self.is_python:
            host = "interpreter: {source: host}\n"
            return f"{head}{host}environment: {{dependencies: [{{pip: {wanted}}}]}}\n".replace("'", '"')
        channel = (place / "channel").as_uri()
        return f"{head}environment: {{channels: ['{channel}'], dependencies: {wanted}}}\n"


def make_packages(place: Path, deploys: int, users: int) -> None:
    """The channel of the conda packages, and the wheels."""
    packages = [Package("fix", f"{n}.0", files={"share/fix/note": f"fix {n}\n"}) for n in range(1, FIXES + 1)]
    for name in PLAIN:
        packages += [_data(name, major) for major in range(1, MAJORS + 1)]
        packages += [_program(name, major, minor) for major in range(1, MAJORS + 1) for minor in range(MINORS + 1)]
    make_channel(place / "channel", packages)
    wheels = place / "wheels"
    for n in range(1, FIXES + 1):
        wheel(wheels, "fix", f"{n}.0")
    for name in PYTHON:
        for major in range(1, MAJORS + 1):
            for minor in range(MINORS + 1):
                wheel(wheels, name, f"{major}.{minor}")
    for number in range(users):
        wheel(wheels, f"addon{number}", "1.0")


def _data(name: str, major: int) -> Package:
    files: dict[str, Content] = {
        f"share/{name}/data/{n // 50}/{n}": f"{name} {major} {n}\n" * 50 for n in range(DATA_FILES)
    }
    return Package(f"{name}-data", f"{major}.0", files=files, suffix=".conda")


def _program(name: str, major: int, minor: int) -> Package:
    version = f"{major}.{minor}"
    text = f'#!/bin/sh\necho "{name} {version}"\n[ -z "$1" ] || exec sleep "$1"\n'
    files: dict[str, Content] = {f"bin/{name}": (text, 0o755)}
    files |= {f"share/{name}/own/{n}": f"{name} {version} {n}\n" for n in range(OWN_FILES)}
    return Package(name, version, depends=(f"{name}-data {major}.*",), files=files, suffix=".conda")
