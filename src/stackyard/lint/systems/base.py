"""`System`: what a program that starts containers for a job has for options, and what each of them means.

A file of this package is a table for one system. `uses` has what a script says in its words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stackyard.core.findings import Severity
from stackyard.inputs.reading.imagename import is_host
from stackyard.launch.request.options import Table
from stackyard.lint.shell.words import CLOSE, OPEN, is_known

IMAGES = (".sif", ".simg", ".img", ".sqsh", ".squashfs", ".SIF")
"""The ends of the names of image files."""


@dataclass(frozen=True)
class Bind:
    """A file or directory of the host in the image. `flags`: ``ro``, joined by ``+``."""

    source: str
    target: str
    flags: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.source, self.target, self.flags)))


@dataclass(frozen=True)
class Fault:
    """Text that does not follow a system's grammar: what is wrong, and the better text.

    `severity`: refused, or a warning where the program goes on with something else, or a note where a version does.
    """

    text: str
    better: str = ""
    severity: Severity = "refused"


@dataclass(frozen=True)
class System:
    """One system.

    Attributes:
        name: in sentences.
        runtime: its name in ``launch.container.runtime``; empty if `launch` does not start it.
        table: its options, of the program before the ranks' or of srun and sbatch.
        meanings: of each option, by its canonical name. image; binds: host directories in it; workdir: where the
            program starts; variables: what passes from the host; kept: a word that the same
            system takes from a job file; ours: what Stackyard does by itself. Another text is the reason for which no
            job file is made.
        programs: the names of the program before the ranks', with the verb that starts a container; empty if srun does.
        environment: options by the variable that stands for them, where the line has none.
        binds: the directories in the value of an option, and what is wrong with it.
        faults: what is wrong with the name of an image.
        registry: whether an image without a path is that of a registry.
        encloses: whether ``#SBATCH`` puts the batch script itself into the image.
        positional: whether the image is the word before the program.
    """

    name: str
    runtime: str
    table: Table
    meanings: Mapping[str, str]
    programs: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    binds: Callable[[str], Found] = lambda value: ([], [])
    faults: Callable[[str], list[Fault]] = lambda image: []
    registry: bool = True
    encloses: bool = False
    positional: bool = False

    @property
    def words(self) -> frozenset[str]:
        """The names of its options, one for each."""
        return frozenset((*self.table.valued.values(), *self.table.flags.values(), *self.meanings))


def meant(**names: str) -> dict[str, str]:
    """The meanings of options from their names by meaning."""
    return {name: meaning for meaning, words in names.items() for name in words.split()}


HOLE = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")
"""A piece of a word that is known only at run time."""


Found = tuple[list[Bind], list[Fault]]
"""The directories in a text, and what is wrong with it."""


def pieces(text: str, separator: str) -> list[str]:
    """The text split at a separator, but not within a value that is known only at run time."""
    masked = HOLE.sub(lambda hole: "\0" * len(hole.group()), text)
    ends = [at for at, letter in enumerate(masked) if letter == separator]
    return [text[start:end] for start, end in zip([0, *(end + 1 for end in ends)], [*ends, len(text)], strict=True)]


def colon_binds(value: str, separator: str, fault: Callable[[str, str, str], Fault | None]) -> Found:
    """The directories in ``SRC[:DST[:FLAGS]]``, separated; `fault` judges an entry, its source and its target."""
    binds, faults = list[Bind](), list[Fault]()
    for entry in pieces(value, separator) if separator else [value]:
        source, target, flags = (*pieces(entry, ":"), "", "", "")[:3]
        wrong = fault(entry, source, target or source)
        if wrong:
            faults.append(wrong)
        else:
            binds.append(Bind(source, target or source, flags))
    return binds, faults


def is_path(text: str) -> bool:
    """Whether a text can be a path that begins with ``/`` or ``.``; what is known only at run time can."""
    return text.startswith(("/", ".", OPEN))


def registry_of(image: str) -> str:
    """The registry before the first slash of ``nvcr.io/nvidia/pytorch:25.01``; empty for a name of Docker Hub."""
    first, slash, _ = image.partition("/")
    return first if slash and is_known(first) and is_host(first) else ""


def slashed(image: str, system: str, schemes: Sequence[str] = ()) -> list[Fault]:
    """What is wrong with a reference in the grammar of Docker, ``[REGISTRY/]NAME[:TAG]``."""
    scheme, separator, rest = image.partition("://")
    if separator and scheme not in schemes:
        return [Fault(f"{system} takes no {scheme}:// before an image", rest.replace("#", "/"))]
    if "#" in image:
        return [Fault(f"{system} does not know # in the name of an image, which is Enroot's", image.replace("#", "/"))]
    return []
