"""A small revision that is an image: a few scripts and files, stubs, and a launcher; without a deploy."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stackyard.core.change import EnvironmentChange
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import launcher, stubs
from stackyard.yard.revision.directories import RevisionPaths
from support.processes import end_image_servers, image_servers

COMMANDS = {
    "say": '#!/bin/sh\nprintf "%s|" "$@"; echo; pwd\n',
    "code": '#!/bin/sh\nexit "$1"\n',
    "wait": "#!/bin/sh\necho ready; exec sleep 600\n",
    "copy": "#!/bin/sh\ncat\n",
    "space": "#!/bin/sh\nreadlink /proc/self/ns/mnt\n",
    "pick": '#!/bin/sh\ncat "${0%/bin/*}/share/data"\n',
}


@dataclass
class Revision:
    """A revision's directory, and how its commands are run."""

    paths: RevisionPaths
    tmp: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def command(self, name: str) -> str:
        return str(self.paths.prefix / "bin" / name)

    @property
    def is_script(self) -> bool:
        """Whether its launcher is a shell script."""
        return self.paths.launcher.read_bytes().startswith(b"#!")

    def env(self, **variables: str) -> dict[str, str]:
        kept = {"PATH": os.environ["PATH"], "STACKYARD_TMP": str(self.tmp), "STACKYARD_IMAGE_IDLE_S": "60"}
        return {**kept, **self.environ, **variables}

    def run(
        self, *words: str, expect: int = 0, stdin: str = "", cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(words, env=self.env(**variables), input=stdin, cwd=cwd, capture_output=True, text=True,
                              timeout=240, check=False)  # fmt: skip
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def servers(self) -> list[int]:
        """The file system servers of this revision."""
        return image_servers(self.paths.image)

    def end(self) -> None:
        end_image_servers(self.paths.image)


@functools.cache
def _compiled(*, adopted: bool) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory, "launch")
        assert launcher.make(made, adopted=adopted).startswith("compiled")
        return made.read_bytes()


def make(
    directory: Path, name: str = "demo", *, script: bool = False, data: str = "data\n", original: str = ""
) -> Revision:
    """Pack a tree and make what lies around its image. `original`: the paths at which an adopted one is seen too."""
    paths = RevisionPaths(directory / name)
    tree = directory / f"{name}-tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "share").mkdir()
    (tree / "share" / "data").write_text(data)
    for command, text in COMMANDS.items():
        (tree / "bin" / command).write_text(text)
        (tree / "bin" / command).chmod(0o755)
    (tree / "bin" / "python").symlink_to("say")
    (tree / "bin" / "greet").write_bytes(os.fsencode(f"#!{paths.prefix}/bin/python -x\n"))
    (tree / "bin" / "greet").chmod(0o755)
    paths.root.mkdir()
    if original:
        paths.original.parent.mkdir()
        paths.original.write_text(original)
    squashfs.pack(tree, paths.image)
    stubs.make(tree, paths.prefix, paths.prefix, EnvironmentChange())
    paths.launcher.write_bytes(launcher.script().encode() if script else _compiled(adopted=bool(original)))
    paths.launcher.chmod(0o755)
    tmp = directory / "node"
    tmp.mkdir(exist_ok=True)
    return Revision(paths, tmp)


def confined(set_up: str, *words: str) -> list[str]:
    """The words, run in a mount namespace of its own after a piece of shell."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f"{set_up}\nexec {shlex.join(words)}"]
