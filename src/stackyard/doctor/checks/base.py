"""The definition of a check: a row of the table (`doctor.checks.table`), what it looks at, and its words.

The words of each finding are in findings.yaml, so that a check has only the condition. No check uses the network,
writes, or starts a program that may take seconds.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import StackyardError
from stackyard.core.findings import Finding
from stackyard.core.late import dataclass
from stackyard.core.quoting import LONG, plain
from stackyard.inputs.workspace import Workspace

About = Literal["shell", "machine", "yard"]
_MOST_BYTES = 1 << 20


class Surroundings:
    """What checks look at.

    Attributes:
        environ: the variables of the shell.
        root: the root directory of the machine; a captured tree works too.
        workspace: finds the site and the yard, which may be on a file system that does not answer.
    """

    def __init__(self, environ: Mapping[str, str], workspace: Callable[[], Workspace], root: Path = Path("/")) -> None:
        self.environ, self.root = environ, root
        self._lock, self._find = threading.Lock(), functools.cache(workspace)

    def workspace(self) -> Workspace:
        """The site and the yard, looked for once. Raises as `inputs.sites.settings.Settings.workspace`."""
        with self._lock:
            return self._find()

    def read(self, path: str) -> str:
        """The beginning of a file below the root, without the last line break; empty if it cannot be read."""
        try:
            with (self.root / path).open("rb") as stream:
                return stream.read(_MOST_BYTES).decode("utf-8", "replace").rstrip("\n")
        except OSError:
            return ""

    def paths(self, variable: str) -> list[str]:
        """The parts of a variable that is a list of paths, empty ones left out."""
        return [part for part in self.environ.get(variable, "").split(os.pathsep) if part]

    @cached_property
    def fabric(self) -> list[str]:
        """The devices of InfiniBand, RoCE, Omni-Path and Slingshot, as paths below the root."""
        return [f"{top}/{name}" for top in ("sys/class/infiniband", "sys/class/cxi") for name in self.names(top)]

    @cached_property
    def cluster(self) -> bool:
        """Whether this machine works together with others: it has a batch system, or a fabric."""
        return bool(self.fabric) or any((self.root / path).exists() for path in listed("signs_of_a_cluster"))

    @cached_property
    def plain_cores(self) -> bool:
        """Whether the kernel writes a core file where the program was started, and gives it to no program."""
        return self.read("proc/sys/kernel/core_pattern").startswith("core")

    @cached_property
    def large(self) -> bool:
        """Whether programs with many workers run here: it has GPUs or many cores."""
        gpus = self.names("proc/driver/nvidia/gpus") or self.names("sys/class/kfd/kfd/topology/nodes")[2:]
        return bool(gpus) or len(os.sched_getaffinity(0)) >= 16

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory below the root; empty if it cannot be read."""
        try:
            return sorted(os.listdir(self.root / path))  # noqa: PTH208
        except OSError:
            return []


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        look: yields what it finds; nothing on a healthy machine.
        reads: the places that may not answer; empty: it reads the kernel's files and the environment alone.
    """

    name: str
    about: About
    look: Callable[[Surroundings], Iterable[Finding]]
    reads: str = ""


@functools.cache
def words() -> Mapping[str, Any]:
    """The content of findings.yaml: the words of findings by name, and lists of names that checks look for.

    Raises:
        StackyardError: it is invalid (a test keeps it valid).
    """
    from stackyard.inputs.reading.yamlfile import packaged

    values: Mapping[str, Any] = packaged(__package__, "findings.yaml")
    return values


def listed(name: str) -> list[Any]:
    """A list of findings.yaml."""
    values: list[Any] = words()["lists"][name]
    return values


def said(rule: str, how: str = "remedy", /, **values: object) -> Finding:
    """A finding, with its words from findings.yaml.

    Args:
        how: which of its remedies applies.
        values: what the words name in braces; control characters in them are replaced.
    """
    row = words()["findings"][rule]
    safe = {name: plain(str(value), LONG) for name, value in values.items()}
    try:
        message, reason, remedy = (str(row[key]).format_map(safe) for key in ("message", "reason", how))
    except KeyError as error:
        raise StackyardError(f"findings.yaml: {rule}: missing {error}") from error
    return Finding(rule, row.get("severity", "warning"), message, reason, remedy)
