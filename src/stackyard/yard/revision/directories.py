"""The paths in the directory of one revision, one base image, one generation; `stackyard.yard.layout` has the tree.

They ask for nothing but their own directory, so that a program in a revision needs no yard.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.core.late import dataclass


@dataclass(frozen=True)
class RevisionPaths:
    """The directory of one revision. It counts as built once `record` exists, which is written last."""

    root: Path

    @classmethod
    def of(cls, directory: str | Path) -> RevisionPaths:
        """The paths of a revision whose directory a record or a manifest names."""
        return cls(Path(directory))

    @property
    def yard(self) -> Path:
        """The root of the yard that it is in."""
        return self.root.parents[2]

    def top(self) -> Path | None:
        """Of a removed revision its yard, below which no link is followed to it; None: links are followed."""
        return self.yard if self.root.parent.parent.name == "trash" else None

    @property
    def prefix(self) -> Path:
        """The installed software; never changed after the record is written."""
        return self.root / "prefix"

    @property
    def image(self) -> Path:
        """All files of the prefix in one, where the revision is an image; `prefix` then holds stubs."""
        return self.root / "image.sqsh"

    @property
    def launcher(self) -> Path:
        """The program behind each stub: it mounts the image where that is not mounted, and runs the command in it."""
        return self.root / "launch"

    @property
    def lock(self) -> Path:
        """The lock that it was built from."""
        return self.root / "lock" / "stack.lock"

    @property
    def recipe(self) -> Path:
        """Copies of the input files."""
        return self.root / "recipe"

    @property
    def record(self) -> Path:
        """The marker: what was built, from what, how."""
        return self.root / "record.json"

    @property
    def spare(self) -> Path:
        """The same text as `record`: it is read in place of a damaged one, and that is restored from it."""
        return self.root / "record.spare.json"

    @property
    def files(self) -> Path:
        """What every file of `prefix`, `lock` and `recipe` holds; the record has its hash."""
        return self.root / "files.json"

    @property
    def adopted(self) -> Path:
        """Of an adopted revision: the files of its prefix, which is elsewhere, with sizes and times."""
        return self.root / "adopted.json"

    @property
    def damaged(self) -> Path:
        """The files that cannot be made again as they were: the revision is not reused by a deploy."""
        return self.root / "damaged.json"

    @property
    def report(self) -> Path:
        """The last verification."""
        return self.root / "report.json"

    @property
    def checks(self) -> Path:
        """What the revision is verified against, where that changed after its build."""
        return self.root / "checks.json"

    @property
    def check_scripts(self) -> Path:
        """Copies of the scripts in `checks`."""
        return self.root / "checks"

    @property
    def junit(self) -> Path:
        """The same verification as JUnit XML."""
        return self.root / "report.xml"

    @property
    def module(self) -> Path:
        """The operations of its module, frozen when the modulefile was first written."""
        return self.root / "module.json"

    @property
    def condarc(self) -> Path:
        """The site's policy for environments that users create on top of it; CONDARC names this file."""
        return self.root / "condarc"

    @property
    def drift(self) -> Path:
        """Of an extension: what its user installed since, which no record has."""
        return self.root / "drift"

    @property
    def commands(self) -> Path:
        """Scripts for the commands that its module offers, where it does not offer the whole stack."""
        return self.root / "commands"

    @property
    def signatures(self) -> Path:
        """Signatures of `record` and `module`, one for each signer."""
        return self.root / "signatures"

    def signature(self, key: str) -> Path:
        """One of them, by a name of its key."""
        return self.signatures / f"{key}.sig"

    @property
    def asking(self) -> Path:
        """The links that ask for licences before the commands of their names run."""
        return self.root / "asking"

    @property
    def building(self) -> Path:
        """The lease of the process that builds here, with the inputs; removed once the record is written."""
        return self.root / "building"

    @property
    def log(self) -> Path:
        """The output of every program that the build ran."""
        return self.root / "build.log"

    @property
    def work(self) -> Path:
        """Scratch space of the build, removed at its end."""
        return self.root / ".work"


@dataclass(frozen=True)
class BasePaths:
    """The directory of one base image. It gets its name once everything is in it."""

    root: Path

    @property
    def record(self) -> Path:
        """What was imported, from where, by whom."""
        return self.root / "base.json"

    @property
    def image(self) -> Path:
        """All its files, as one SquashFS."""
        return self.root / "root.sqsh"

    @property
    def layout(self) -> Path:
        """The same as an OCI layout: its layers, unchanged."""
        return self.root / "oci"


@dataclass(frozen=True)
class GenerationPaths:
    """The directory of one generation."""

    root: Path

    @property
    def modules(self) -> Path:
        """Its modulefiles, run-command files and spider cache."""
        return self.root / "modules"

    @property
    def manifest(self) -> Path:
        """The revisions that it publishes."""
        return self.root / "manifest.json"

    @property
    def packed(self) -> Path:
        """The same of an old generation, packed."""
        return self.root / "manifest.json.gz"

    @property
    def owner(self) -> Path:
        """The process that writes it; removed once users see it."""
        return self.mark("")

    def mark(self, token: str) -> Path:
        """A process that moves the link to it; a token of ``*`` is the pattern of all, that of the `owner` too."""
        return self.root / f"owner{token}.json"
