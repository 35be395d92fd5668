"""A small image of others, and a wrapped revision of it: its commands, and how they are run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.basebed import oci, of_directory, system
from images.image_bed import COMMANDS
from support import programs
from support.cli import Done, inside
from support.processes import end_image_servers, image_servers

EXTRA = ("head", "sleep", "tty", "stat", "touch", "mkdir", "test", "true")
ENV = ("PATH=/opt/tool/bin:/bin", "CUDA_HOME=/usr/local/cuda", "LD_LIBRARY_PATH=/opt/tool/lib")


def image(directory: Path, **files: str) -> Path:
    """A system with a shell, and the commands in /opt/tool/bin; `files`: more of them, with their text."""
    root = system(directory)
    for name in EXTRA:
        (root / "bin" / name).symlink_to("busybox")
    tools = root / "opt/tool/bin"
    tools.mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data/own").write_text("of the image\n")
    (root / "etc/conf").symlink_to("/data/own")
    for name, text in {**COMMANDS, **files}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return root


@dataclass
class Wrapped:
    """A yard with a wrapped image, in a directory that holds the image and the stack's file too."""

    directory: Path
    name: str = "tool"
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    def stackyard(self, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
        """The command line, in this yard and directory."""
        before = Path.cwd()
        os.chdir(self.directory)
        try:
            return inside("--yard", self.yard, *words, expect=expect, STACKYARD_TMP=str(self.node), **variables)
        finally:
            os.chdir(before)

    def wrap(self, *words: str | Path, expect: int | None = 0, image: str | Path = "oci:layout") -> Done:
        asked = [] if "--commands" in words else ["--commands", "/opt/tool/bin/*"]
        return self.stackyard("wrap", image, "--name", self.name, *asked, *words, expect=expect)

    @property
    def node(self) -> Path:
        """The private directory of a node."""
        made = self.directory / "node"
        made.mkdir(exist_ok=True)
        return made

    @property
    def roots(self) -> list[Path]:
        return sorted((self.yard / "stacks" / self.name).glob("*-*"))

    @property
    def root(self) -> Path:
        (found,) = self.roots
        return found

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "record.json").read_text())
        return found

    def command(self, name: str) -> str:
        return str(self.root / "prefix/bin" / name)

    def env(self, **variables: str) -> dict[str, str]:
        kept = {"PATH": os.environ["PATH"], "STACKYARD_TMP": str(self.node), "STACKYARD_IMAGE_IDLE_S": "60",
                "HOME": str(self.directory)}  # fmt: skip
        return {**kept, **self.environ, **variables}

    def run(
        self, *words: str, expect: int = 0, stdin: str = "", cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(words, env=self.env(**variables), input=stdin, cwd=cwd or self.directory, timeout=240,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def sh(self, script: str, expect: int = 0, cwd: Path | None = None, **variables: str) -> str:
        """A piece of shell in the container."""
        return self.run(str(self.root / "launch"), "sh", "-c", script, expect=expect, cwd=cwd, **variables).stdout

    def servers(self) -> list[int]:
        """The file system servers of this yard."""
        return image_servers(self.yard)

    def end(self) -> None:
        end_image_servers(self.yard)


def need(*more: str) -> None:
    """Skip a test where a program is missing that wrapping takes."""
    for name in ("mksquashfs", "squashfuse", "unshare", "gcc", *more):
        programs.need(name)


def bed(directory: Path, **files: str) -> Wrapped:
    """A directory with an OCI layout of the image; nothing is wrapped yet."""
    root = image(directory / "system", **files)
    labels = {"org.opencontainers.image.title": "a tool"}
    oci(directory / "layout", [of_directory(root)], Env=ENV, WorkingDir="/data", Labels=labels)
    return Wrapped(directory)
