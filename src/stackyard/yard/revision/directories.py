"""The paths in the directory of one revision, one base image, one generation; `stackyard.yard.layout` has the tree.

They ask for nothing but their own directory, so that a program in a revision needs no yard.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.core.below import Below
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
        """For a removed revision its yard, below which no link is followed to it; None: links are followed."""
        return self.yard if self.root.parent.parent.name == "trash" else None

    prefix = Below("prefix")
    """The installed software; never changed after the record is written."""
    image = Below("image.sqsh")
    """All files of the prefix in one, where the revision is an image; `prefix` then holds stubs."""
    launcher = Below("launch")
    """The program behind each stub: it mounts the image where that is not mounted, and runs the command in it."""
    lock = Below("lock/stack.lock")
    """The lock that it was built from."""
    recipe = Below("recipe")
    """Copies of the input files."""
    record = Below("record.json")
    """The marker: what was built, from what, how."""
    spare = Below("record.spare.json")
    """The same text as `record`: it is read in place of a damaged one, and that is restored from it."""
    files = Below("files.json")
    """What every file of `prefix`, `lock` and `recipe` holds; the record has its hash."""
    adopted = Below("adopted.json")
    """Of an adopted revision: the files of its prefix, which is elsewhere, with sizes and times."""
    original = Below("lock/original")
    """Of an adopted prefix in an image: its path as given, and without links; the image is mounted there too."""
    damaged = Below("damaged.json")
    """The files that cannot be made again as they were: the revision is not reused by a deploy."""
    report = Below("report.json")
    """The last verification."""
    checks = Below("checks.json")
    """What the revision is verified against, where that changed after its build."""
    check_scripts = Below("checks")
    """Copies of the scripts in `checks`."""
    junit = Below("report.xml")
    """The same verification as JUnit XML."""
    module = Below("module.json")
    """The operations of its module, frozen when the modulefile was first written."""
    condarc = Below("condarc")
    """The site's policy for environments that users create on top of it; CONDARC names this file."""
    drift = Below("drift")
    """Of an extension: what its user installed since, which no record has."""
    commands = Below("commands")
    """Scripts for the commands that its module offers, where it does not offer the whole stack."""
    signatures = Below("signatures")
    """Signatures of `record` and `module`, one for each signer."""

    def signature(self, key: str) -> Path:
        """The path of one signature, by a name of its key."""
        return self.signatures / f"{key}.sig"

    asking = Below("asking")
    """The links that ask for licences before the commands of their names run."""
    building = Below("building")
    """The lease of the process that builds here, with the inputs; removed once the record is written."""
    log = Below("build.log")
    """The output of every program that the build ran."""
    work = Below(".work")
    """Scratch space of the build, removed at its end."""


@dataclass(frozen=True)
class BasePaths:
    """The directory of one base image. It gets its final name once it is complete."""

    root: Path

    record = Below("base.json")
    """What was imported, from where, by whom."""
    image = Below("root.sqsh")
    """All its files, as one SquashFS."""
    layout = Below("oci")
    """The same as an OCI layout: its layers, unchanged."""


@dataclass(frozen=True)
class GenerationPaths:
    """The directory of one generation."""

    root: Path

    modules = Below("modules")
    """Its modulefiles, run-command files and spider cache."""
    envs = Below("envs")
    """Links to its conda prefixes, by the names under which users' conda finds them."""
    names = Below("names")
    """The names that shells complete, a line each: ``r REVISION`` or ``s STACK``."""
    manifest = Below("manifest.json")
    """The revisions that it publishes."""
    packed = Below("manifest.json.gz")
    """The same of an old generation, packed."""

    @property
    def owner(self) -> Path:
        """The identity of the process that writes it; removed after publication."""
        return self.mark("")

    def mark(self, token: str) -> Path:
        """The mark of a process that moves the link to it; with ``*`` the pattern of all, including `owner`."""
        return self.root / f"owner{token}.json"
