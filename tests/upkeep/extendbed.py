"""A site with a small published base, and a user's yard below it."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support import modules, testbed
from support.cli import STACKYARD, Done, stackyard

INDEX = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


def offline(directory: Path, wheels: Path, idle_s: int) -> dict[str, str]:
    """The variables of a user whose pip has these wheels and no index; images are let go after some seconds."""
    own = {"HOME": str(directory / "home"), "STACKYARD_IMAGE_IDLE_S": str(idle_s), "STACKYARD_TMP": str(directory)}
    return {**own, "PIP_FIND_LINKS": str(wheels), **INDEX}


@dataclass
class Bed:
    """Where the site's and the user's yards are, and how both are used."""

    directory: Path
    channel: Path
    wheels: Path

    @property
    def site(self) -> Path:
        return self.directory / "site.yaml"

    @property
    def site_yard(self) -> Path:
        return self.directory / "sw"

    @property
    def yard(self) -> Path:
        return self.directory / "mine"

    def environ(self) -> dict[str, str]:
        return offline(self.directory, self.wheels, idle_s=20)

    def write_site(self) -> None:
        (self.directory / "home").mkdir(exist_ok=True)
        self.site.write_text(f"yard: {self.site_yard}\nuser_yard: {self.yard}\npip: {{find_links: [{self.wheels}]}}\n")

    def publish(self, *, name: str = "sci", version: str = "1.0", conda: str = "pytest", more: str = "") -> Done:
        """Publish a base: conda's Python and pytest, whose command is of use; and pip packages."""
        return self.publish_text(
            f"name: {name}\nversion: '{version}'\nenvironment:\n  channels: [{more}'{self.channel.as_uri()}']\n"
            f"  dependencies: [python=3.11, {conda}, {{pip: [pygments, idna]}}]\n"
        )

    def publish_text(self, text: str) -> Done:
        """Publish what a stack.yaml of this text describes."""
        file = self.directory / "stack.yaml"
        file.write_text(text)
        return self.staff("deploy", file)

    def staff(self, *words: str | Path, expect: int = 0) -> Done:
        return stackyard("--site", self.site, "--yard", self.site_yard, *words, expect=expect, **self.environ())

    def user(self, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
        own = {**self.environ(), **variables}
        return stackyard("--site", self.site, *words, expect=expect, cwd=self.directory, **own)

    def loaded(self, module: str, *lines: str, system: str = "lmod", expect: int = 0) -> str:
        """The output of a shell's lines behind ``module load MODULE``; `stackyard` is there with the user's options."""
        site = shlex.quote(str(self.site))
        script = "\n".join(
            [
                modules.initialise(system, "bash"),
                f'stackyard() {{ {shlex.quote(str(STACKYARD))} --site {site} "$@"; }}',
                f"module use {self.site_yard}/modules {self.yard}/modules",
                f"module load {module} || exit 9",
                *lines,
            ]
        )
        done = subprocess.run(
            ["bash", "--norc", "--noprofile", "-c", script], capture_output=True, text=True, check=False, timeout=300,
            cwd=self.directory, env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self.environ()},
        )  # fmt: skip
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


def bed(directory: Path, channel: Path) -> Bed:
    """A bed without anything published."""
    made = Bed(directory, channel, testbed.wheels(testbed.HERE / "wheels.txt"))
    made.write_site()
    return made
