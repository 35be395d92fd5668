"""What a revision holds, and how it is used: the one place that knows where programs lie inside.

Modules, checks, `stackyard run` and launches ask the payload of a record, so that another form of payload is one more
class here and a branch in `payload_of`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

from stackyard.core.errors import MissingError
from stackyard.core.late import dataclass

Packing = Literal["prefix", "squashfs"]
"""How a stack's files can be asked to be kept."""
FormKind = Literal["prefix", "squashfs", "container"]
FORMS: tuple[FormKind, ...] = get_args(FormKind)
STUB = ".stub"
"""The file in a tree of stubs: where it is visible, the image is not mounted on the prefix."""


@dataclass(frozen=True)
class Form:
    """How the files of a revision are kept.

    Attributes:
        kind: ``prefix``: each for itself; ``squashfs``: in one image, which is mounted on the prefix when it is used;
            ``container``: in an image of others, whose commands run in it.
        file: the image, relative to the revision; `sha256`, `bytes` and `entries` (files, links, directories) are its.
        packed_with: the program that packed it, and how.
        order: the files that a start reads first, in the order in which they lie in the image.
        launcher: sha256 of the program behind its stubs; empty: an earlier version made it, and did not record that.
    """

    kind: FormKind = "prefix"
    file: str = ""
    sha256: str = ""
    bytes: int = 0
    entries: int = 0
    packed_with: str = ""
    order: tuple[str, ...] = ()
    launcher: str = ""

    def to_json(self) -> dict[str, Any]:
        """The form as JSON values: of a prefix only its kind."""
        return asdict(self) if self.kind != "prefix" else {"kind": self.kind}


@dataclass(frozen=True)
class Prefix:
    """Files at one absolute path, used where they lie; a conda prefix and a virtual environment look alike inside."""

    root: Path

    @property
    def program_folders(self) -> tuple[Path, ...]:
        """The directories that PATH needs, the first one first."""
        return (self.root / "bin",)

    @property
    def manuals(self) -> Path:
        """The directory that MANPATH needs."""
        return self.root / "share" / "man"

    @property
    def python(self) -> Path:
        """Its interpreter; does not exist where the stack has none."""
        return self.program("python")

    def program(self, name: str) -> Path:
        """Where a program of this name is, or would be."""
        return self.program_folders[0] / name

    def site_packages(self, python_version: str) -> Path:
        """Where CPython of this version looks for packages, unless its own package says otherwise."""
        return self.root / "lib" / f"python{'.'.join(python_version.split('.')[:2])}" / "site-packages"

    @property
    def package_folders(self) -> tuple[Path, ...]:
        """All its directories of packages, of whichever version of Python."""
        libraries = [folder for folder in self.root.glob("lib*") if not folder.is_symlink()]
        return tuple(sorted(found for folder in libraries for found in folder.glob("python*/site-packages")))

    def on_top(self, interpreter: Mapping[str, str], name: str = "DIR") -> list[str]:
        """The commands that create and activate an environment of one's own on top, once the module is loaded.

        An environment made from a virtual one (on the host's Python or uv's) is its sibling: it sees the packages of
        the same base only, so the path of this one is added to it.

        Args:
            interpreter: where its Python comes from, as in the record.
            name: the directory of the environment.
        """
        if interpreter.get("source") not in ("host", "uv"):
            return [f"python -m venv --system-site-packages {name}", f". {name}/bin/activate"]
        packages = self.site_packages(interpreter["version"])
        inner = Prefix(Path(name)).site_packages(interpreter["version"])
        return [
            f"python -m venv {name}",
            f"echo {shlex.quote(str(packages))} > {inner}/stack.pth",
            f". {name}/bin/activate",
        ]

    def search_path(self, rest: str) -> str:
        """A PATH that has its programs before `rest`."""
        return os.pathsep.join([*map(str, self.program_folders), rest])

    def command(self, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """How a command is run in it: the argument list to start, and its environment.

        Args:
            environ: the environment of the loaded module.
        """
        return list(argv), dict(environ)

    @property
    def is_visible(self) -> bool:
        """Whether its files can be read by this process, at their paths."""
        return True

    @property
    def listed(self) -> tuple[Path, ...]:
        """What the variable `IMAGES` names for it."""
        return ()


IMAGES = "STACKYARD_IMAGES"
"""The revisions whose images the launcher has to mount in one namespace: those whose modules are loaded."""


@dataclass(frozen=True)
class Image(Prefix):
    """The same files in one image, which is mounted on `root`. Where it is not, `root` holds stubs: one link for each
    command, to a program that mounts it in a namespace of the user's and executes the same path again."""

    @property
    def launcher(self) -> Path:
        """The program behind the stubs. With a command, it runs that where the image is mounted."""
        return self.root.parent / "launch"

    @property
    def is_visible(self) -> bool:
        """Whether the image is mounted in the namespace of this process.

        Raises:
            MissingError: what is mounted there does not answer.
        """
        from stackyard.host.files import automount

        automount.require_answer(self.root)
        return not (self.root / STUB).exists()

    @property
    def listed(self) -> tuple[Path, ...]:
        """The revision."""
        return (self.root.parent,)

    def command(self, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """As that of a prefix, begun by the launcher.

        Raises:
            MissingError: the launcher was removed, or the automounter that should mount the image does not answer.
        """
        from stackyard.host.files import automount  # late: the read commands only look at records

        if not self.launcher.exists():
            raise MissingError(
                f"{self.launcher} not found: the files of this revision were removed",
                hint="restore them from a copy, or move the revision away and deploy it again",
            )
        automount.require_answer(self.root)
        return [str(self.launcher), *argv], dict(environ)


@dataclass(frozen=True)
class Container(Image):
    """Commands of an image that is a system of its own: they run with it as their root.

    On the host `root` holds stubs. In the container it holds links to the image's programs, so that a path of a command
    is good on both sides.
    """

    @property
    def settings(self) -> Path:
        """How the launcher makes the container."""
        return self.inside / ".container"

    @property
    def inside(self) -> Path:
        """What the container has in the place of `root`."""
        return self.root / ".inside"

    @property
    def listed(self) -> tuple[Path, ...]:
        """None: no other program sees the image."""
        return ()


Payload = Prefix | Image
"""Every form of payload."""


def payload_of(form: Form, root: str) -> Payload:
    """The payload of a record.

    Raises:
        ValueError: the form is unknown.
    """
    if form.kind not in FORMS:
        raise ValueError(f"unknown form {form.kind!r} (known: {', '.join(FORMS)})")
    kinds: dict[str, type[Payload]] = {"squashfs": Image, "container": Container}
    return kinds.get(form.kind, Prefix)(Path(root))


def check_container(form: Form, found: Mapping[str, Any]) -> None:
    """Whether what a record says of a wrapped image is all there, and of its kind.

    Raises:
        ValueError: it is not.
    """
    kinds = {"source": str, "digest": str, "labels": dict, "mode": str, "commands": dict, "shell": str}
    wrong = [key for key, kind in kinds.items() if not isinstance(found.get(key), kind)]
    if (form.kind == "container" or found) and wrong:
        raise ValueError(f"container: no {', '.join(wrong)}")
    texts = (text for key in ("labels", "commands") for text in (found.get(key) or {}).values())
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("container: a label or command that is not a text")
