"""The payload of a revision: its files, the places of its programs, and how to run them.

Modules, checks, `stackyard run` and launches use the payload of a record, so a new form of payload is one more class
here, a name in `FormKind` and its rows in `yard.kinds.table`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stackyard.core.errors import InputError, MissingError
from stackyard.core.late import dataclass
from stackyard.yard.kinds.table import FormKind
from stackyard.yard.revision.directories import RevisionPaths

if TYPE_CHECKING:
    from stackyard.yard.disk import DiskUse

Packing = Literal["prefix", "squashfs"]
"""How a stack's files can be asked to be kept."""
STUB = ".stub"
"""The file in a tree of stubs: where it is visible, the image is not mounted on the prefix."""


@dataclass(frozen=True)
class Form:
    """The form in which a revision's files are kept.

    Attributes:
        kind: ``prefix``: separate files; ``squashfs``: one image, mounted on the prefix when used; ``container``: a
            third-party image, whose commands run inside it.
        file: the image, relative to the revision; `sha256`, `bytes` and `entries` (files, links, directories) describe
            it.
        packed_with: the program that packed it, with its options.
        order: the files that a start reads first, in their order in the image.
        launcher: sha256 of the program behind its stubs; empty: made by an earlier version, which did not record it.
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
        """The form as JSON values: for a prefix only its kind."""
        return asdict(self) if self.kind != "prefix" else {"kind": self.kind}


@dataclass(frozen=True)
class Prefix:
    """Files at one absolute path, used in place; a conda prefix and a virtual environment have the same layout.

    Attributes:
        kind: its name in the record.
        packing: the setting in a stack's file that requests this form.
        is_packed: whether its files are in an image that is mounted on `root`, with stubs in their place.
        is_system: whether its programs have their own root directory, so that its files are not accessible on the host.
    """

    root: Path
    kind: ClassVar[FormKind] = "prefix"
    packing: ClassVar[Packing] = "prefix"
    is_packed: ClassVar[bool] = False
    is_system: ClassVar[bool] = False

    @property
    def program_directories(self) -> tuple[Path, ...]:
        """The directories for PATH, in order."""
        return (self.root / "bin",)

    @property
    def manuals(self) -> Path:
        """The directory for MANPATH."""
        return self.root / "share" / "man"

    @property
    def python(self) -> Path:
        """Its interpreter; the path does not exist in a stack without Python."""
        return self.program("python")

    def program(self, name: str) -> Path:
        """The path for a program of this name, which need not exist."""
        return self.program_directories[0] / name

    def site_packages(self, python_version: str) -> Path:
        """CPython's package directory for this version, unless its conda package defines another."""
        return self.root / "lib" / f"python{'.'.join(python_version.split('.')[:2])}" / "site-packages"

    @property
    def package_directories(self) -> tuple[Path, ...]:
        """All its package directories, for any version of Python."""
        libraries = [directory for directory in self.root.glob("lib*") if not directory.is_symlink()]
        return tuple(sorted(path for directory in libraries for path in directory.glob("python*/site-packages")))

    def on_top(self, interpreter: Mapping[str, str], name: str = "DIR") -> list[str]:
        """The commands that create and activate a user's environment on top, once the module is loaded.

        An environment made from a virtual one (on the host's Python or uv's) is its sibling: it sees the packages of
        the same base only, so the path of this one is added to it.

        Args:
            interpreter: the source of its Python, as in the record.
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
        """A PATH with its programs before `rest`."""
        return os.pathsep.join([*map(str, self.program_directories), rest])

    def command(self, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The argument list and environment that run a command in it.

        Args:
            environ: the environment of the loaded module.
        """
        return list(argv), dict(environ)

    @property
    def is_visible(self) -> bool:
        """Whether this process can read its files at their paths."""
        return True

    @property
    def listed(self) -> tuple[Path, ...]:
        """Its entries for the variable `IMAGES`."""
        return ()

    @property
    def has_stubs(self) -> bool:
        """Whether this process sees stubs in place of its files, also if their marker was removed."""
        return False

    @property
    def image(self) -> Path | None:
        """The image that its files are in."""
        return None

    @property
    def launcher(self) -> Path | None:
        """The program through which its commands start."""
        return None

    @property
    def launcher_sha256(self) -> str:
        """The recorded hash of that program; empty: none."""
        return ""

    def finds(self, program: str, environ: Mapping[str, str]) -> bool:
        """Whether a command can be started, as far as the host can tell."""
        from stackyard.host.run.command import which

        return which(program, environ) is not None

    def use(self, measured: DiskUse) -> DiskUse:
        """Its present disk use, given the measurement at its build."""
        return measured

    def size(self, measured: DiskUse) -> dict[str, Any]:
        """Its form, bytes, files (inodes), and number of entries inside, including files shared with the cache."""
        use = self.use(measured)
        files = use.inodes_new + use.inodes_shared
        return {"form": self.kind, "bytes": use.bytes_new + use.bytes_shared, "files": files, "entries": files}

    def require_image(self, module: str) -> None:
        """Raises InputError: it has no image."""
        raise InputError(
            f"{module} has no image: its files are in {self.root}",
            hint="`stackyard deploy --image squashfs FILE` makes a revision with one",
        )

    def require_mountable(self, module: str, rev: str) -> None:
        """Raises InputError: it has no image to mount on its prefix. `rev`: its name as given."""
        self.require_image(module)

    def changed(self, image: Path, *, read: Path | None = None, deep: bool = True) -> str:
        """How an image visibly differs from the record; empty: it does not.

        Args:
            image: its present path, since its yard may have been moved.
            read: a copy of it to read instead.
            deep: compare every byte, not the size alone.
        """
        return ""

    def facts(self) -> dict[str, Any]:
        """The recorded facts about an image: hash, size, entries, and the packing program."""
        return {}


IMAGES = "STACKYARD_IMAGES"
"""The revisions whose images the launcher has to mount in one namespace: those whose modules are loaded."""


@dataclass(frozen=True)
class Image(Prefix):
    """A prefix whose files are in one image, which is mounted on `root`, else stubs are there.

    Each stub is a link for one command to a program that mounts the image in a user's namespace and executes the same
    path again.

    Attributes:
        home: the directory of its revision, where that is not the one above `root`.
    """

    form: Form = field(default_factory=lambda: Form("squashfs"))
    home: Path | None = None
    kind: ClassVar[FormKind] = "squashfs"
    packing: ClassVar[Packing] = "squashfs"
    is_packed: ClassVar[bool] = True

    @property
    def paths(self) -> RevisionPaths:
        """The directory of its revision."""
        return RevisionPaths(self.home or self.root.parent)

    @property
    def image(self) -> Path:
        """The image beside the stubs."""
        return self.paths.image

    @property
    def launcher(self) -> Path:
        """The program behind the stubs, which runs a given command with the image mounted."""
        return self.paths.launcher

    @property
    def launcher_sha256(self) -> str:
        """The recorded hash; earlier versions recorded none."""
        return self.form.launcher

    @property
    def is_visible(self) -> bool:
        """Whether the image is mounted in the namespace of this process.

        Raises:
            MissingError: the mounted file system does not answer.
        """
        from stackyard.host.files import automount

        automount.require_answer(self.root)
        return not (self.root / STUB).exists()

    @property
    def has_stubs(self) -> bool:
        """Whether the image is not mounted on its prefix here."""
        return self.is_packed and not (self.is_visible and os.path.ismount(self.root))

    @property
    def listed(self) -> tuple[Path, ...]:
        """The directory of the revision."""
        return (self.paths.root,)

    def use(self, measured: DiskUse) -> DiskUse:
        """The disk use of one image file; the stubs beside it are not counted."""
        from stackyard.yard.disk import DiskUse  # late: a launch needs only the names here

        return DiskUse(bytes_new=self.form.bytes, inodes_new=1)

    def size(self, measured: DiskUse) -> dict[str, Any]:
        """The size, including the entries of the image."""
        return {**Prefix.size(self, measured), "entries": self.form.entries}

    def require_image(self, module: str) -> None:
        """Does nothing: it has an image."""

    def require_mountable(self, module: str, rev: str) -> None:
        """Does nothing: it has a mountable image."""

    def changed(self, image: Path, *, read: Path | None = None, deep: bool = True) -> str:
        """Whether the image differs from its recorded hash, or at least from its size."""
        from stackyard.host.files.hashing import sha256_file

        if deep:
            same = sha256_file(read or image) == self.form.sha256
            return "" if same else f"{image} has changed: its hash is not the one in the record"
        size = (read or image).stat().st_size
        return "" if size == self.form.bytes else f"{image} has {size} bytes, {self.form.bytes} in its record"

    def facts(self) -> dict[str, Any]:
        """The facts in its form."""
        form = self.form
        return {"sha256": form.sha256, "bytes": form.bytes, "entries": form.entries, "packed_with": form.packed_with}

    def command(self, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command of a prefix, started through the launcher.

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
    """Commands of an image that is a complete system: they run with it as their root directory.

    On the host `root` has stubs. In the container it has links to the image's programs, so a command's path is valid on
    both sides.
    """

    form: Form = field(default_factory=lambda: Form("container"))
    kind: ClassVar[FormKind] = "container"
    packing: ClassVar[Packing] = "prefix"
    is_packed: ClassVar[bool] = False
    is_system: ClassVar[bool] = True

    @property
    def settings(self) -> Path:
        """The settings file with which the launcher creates the container."""
        return self.inside / ".container"

    @property
    def inside(self) -> Path:
        """The directory that the container has in place of `root`."""
        return self.root / ".inside"

    @property
    def listed(self) -> tuple[Path, ...]:
        """None: other programs do not see the image."""
        return ()

    def finds(self, program: str, environ: Mapping[str, str]) -> bool:
        """True: the contents of a container are known only inside it."""
        return True

    def require_mountable(self, module: str, rev: str) -> None:
        """Raises InputError, always: only its own commands mount it."""
        raise InputError(
            f"{module} is a wrapped image: it is the root of its commands, and mounted for them",
            hint=f"to look at its files: stackyard shell {rev}",
        )


Payload = Prefix
"""Any payload: what has an image is one too."""
KINDS: Mapping[str, type[Prefix]] = {"prefix": Prefix, "squashfs": Image, "container": Container}


def payload_of(form: Form, root: str, home: Path | None = None) -> Payload:
    """The payload of a record; `home`: its directory, where that is not the one above its prefix.

    Raises:
        ValueError: the form is unknown.
    """
    kind_class = KINDS.get(form.kind)
    if kind_class is None:
        raise ValueError(f"unknown form {form.kind!r} (known: {', '.join(KINDS)})")
    return kind_class(Path(root), form, home) if issubclass(kind_class, Image) else kind_class(Path(root))


def check_container(form: Form, facts: Mapping[str, Any]) -> None:
    """Check that the record of a wrapped image is complete and valid.

    Raises:
        ValueError: it is not.
    """
    kinds = {"source": str, "digest": str, "labels": dict, "mode": str, "commands": dict, "shell": str}
    wrong = [key for key, kind in kinds.items() if not isinstance(facts.get(key), kind)]
    if (form.kind == "container" or facts) and wrong:
        raise ValueError(f"container: no {', '.join(wrong)}")
    texts = (text for key in ("labels", "commands") for text in (facts.get(key) or {}).values())
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("container: a label or command that is not a text")
