"""A yard with one revision of each sort: conda, pip on a host's Python, an image, an extension, an adopted prefix."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extendbed import offline

from support import testbed
from support.cli import Done, stackyard

POST = '#!/bin/sh\nmkdir -p "$CONDA_PREFIX/share" && echo "made at $CONDA_PREFIX" > "$CONDA_PREFIX/share/where"\n'
CONDA = """\
name: sci
version: "1.0"
environment:
  channels: ["{channel}"]
  dependencies: [python=3.11, six=1.17, {{pip: [-r parts/more.txt]}}]
run: {{variables: {{SCI_HOME: "{{prefix}}/share"}}}}
post: parts/post.sh
checks: [{{name: it says hello, script: parts/hello.sh}}]
licences: [{{name: Sci, text: parts/terms.txt}}]
"""
PIP = """\
name: {name}
version: "2"
image: {form}
interpreter: host
environment: {{dependencies: [{{pip: [idna]}}]}}
"""


@dataclass
class Bed:
    """Where the yard is, and how it is used."""

    directory: Path
    channel: Path
    wheels: Path

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    @property
    def site(self) -> Path:
        return self.directory / "site.yaml"

    def environ(self) -> dict[str, str]:
        return offline(self.directory, self.wheels, idle_s=5)

    def run(
        self,
        *words: str | Path,
        yard: Path | None = None,
        expect: int | None = 0,
        cwd: Path | None = None,
        **variables: str,
    ) -> Done:
        own = {**self.environ(), **variables}
        return stackyard(
            "--site", self.site, "--yard", yard or self.yard, *words, expect=expect, cwd=cwd or self.directory, **own
        )

    def rows(self, yard: Path | None = None) -> dict[str, dict[str, Any]]:
        """What `list --all` says of each revision."""
        return {row["module"]: row for row in self.run("list", "--all", "--json", yard=yard).value}

    def write(self) -> None:
        (self.directory / "home").mkdir()
        self.site.write_text(f"pip: {{find_links: [{self.wheels}]}}\nmodules: {{formats: [lua, tcl]}}\n")
        parts = self.directory / "sci" / "parts"
        parts.mkdir(parents=True)
        (parts / "post.sh").write_text(POST)
        (parts / "hello.sh").write_text("#!/bin/sh\npython -c 'import six, idna; print(\"hello\")'\n")
        (parts / "more.txt").write_text("idna\n")
        (parts / "terms.txt").write_text("Be kind.\n")
        for script in ("post.sh", "hello.sh"):
            (parts / script).chmod(0o755)
        (self.directory / "sci" / "stack.yaml").write_text(CONDA.format(channel=self.channel.as_uri()))
        for name, form in (("plain", "prefix"), ("packed", "squashfs")):
            (self.directory / name).mkdir()
            (self.directory / name / "stack.yaml").write_text(PIP.format(name=name, form=form))

    def publish(self) -> None:
        """All of it, a generation for each."""
        self.run("deploy", self.directory / "sci" / "stack.yaml", "--accept-licence", "Sci")
        for name in ("plain", "packed"):
            self.run("deploy", self.directory / name / "stack.yaml")
        self.run("extend", "--name", "mine", "--base", "sci", "--pip", "iniconfig")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.directory / "tools"], check=True)
        self.run("adopt", self.directory / "tools", "--name", "tools", "--version", "3")


def bed(directory: Path, channel: Path) -> Bed:
    """A bed without anything published."""
    made = Bed(directory, channel, testbed.wheels(testbed.HERE / "wheels.txt"))
    made.write()
    return made
