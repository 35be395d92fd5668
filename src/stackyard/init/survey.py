"""Asks the scheduler and this machine, and writes or renews a site.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.init import flux, here, kinds, lsf, pbs, probes, slurm, surroundings
from stackyard.init.here import Here
from stackyard.init.merge import merge
from stackyard.init.model import Ask, Cluster, Reader
from stackyard.init.text import site_text
from stackyard.yard.write import atomic

READERS: tuple[Reader, ...] = (slurm, lsf, pbs, flux)
"""The first whose programs are here is asked; Flux last, which also runs inside jobs of the others."""


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        unanswered: what could not be asked, in sentences.
    """

    cluster: Cluster | None
    kinds: tuple[kinds.Kind, ...]
    here: Here
    around: surroundings.Surroundings
    unanswered: tuple[str, ...]

    def text(self, seen: Mapping[str, Here] | None = None) -> str:
        """The site.yaml; `seen`: by the name of a kind, a node of it that was looked at (`probes`)."""
        return site_text(self.cluster, self.kinds, self.here, self.around, seen or {})


@dataclass(frozen=True)
class Renewal:
    """What `write` would write.

    Attributes:
        text: the new content of the file.
        changed: what the machine says now and did not at the last time, as lines of a diff; empty at the first time.
        kept: lines that were edited by hand, each with what the machine says now instead.
    """

    text: str
    before: str | None
    changed: tuple[str, ...]
    kept: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


def survey(environ: Mapping[str, str], root: Path = Path("/")) -> Survey:
    """Ask the scheduler, and look at this machine. Nothing is written, and no job is submitted.

    Args:
        root: the directory of this machine's files, for a captured tree.
    """
    cluster, unanswered = _cluster(environ)
    seen = here.look(environ, root)
    found = tuple(kinds.kinds(cluster)) if cluster else ()
    return Survey(cluster, found, seen, surroundings.look(seen, environ), unanswered)


def _cluster(environ: Mapping[str, str]) -> tuple[Cluster | None, tuple[str, ...]]:
    """What the first scheduler tells that answers, and what could not be asked."""
    silent: list[str] = []
    for reader in READERS:
        ask = Ask(environ)
        if reader.is_here(ask):
            cluster = reader.read(ask)
            if cluster.nodes or cluster.queues or cluster.name:
                return cluster, (*silent, *ask.unanswered)
            silent.append(f"{cluster.title} does not answer: {'; '.join(ask.unanswered[:1])}")
    return None, tuple(silent)


def renewal(file: Path, text: str) -> Renewal:
    """Join a new text with a file that may have been edited since it was last written.

    Raises:
        InputError: the file was not written by `write`, so that nothing tells what was edited.
    """
    before, base = _read(file), _read(_beside(file, "init"))
    if before is None:
        return Renewal(text, None, (), ())
    if base is None:
        hint = f"see what it would write: stackyard init -o -; or write beside it: stackyard init -o {file}.new"
        raise InputError(f"{file} exists, and was not written by `stackyard init`", hint=hint)
    joined = merge(base, before, text)
    changed = [line for line in unified_diff(base.splitlines(), text.splitlines(), n=0, lineterm="")
               if not line.startswith(("---", "+++", "@@"))]  # fmt: skip
    kept = tuple((tuple(mine), tuple(told)) for mine, told in joined.kept)
    return Renewal(joined.text, before, tuple(changed), kept)


def write(file: Path, made: Renewal, text: str, seen: Mapping[str, Here]) -> None:
    """Write the file; beside it the text without the hand's changes, with which the next time compares, and what jobs
    saw of nodes, which the next time knows without new ones.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if made.text != made.before:
        atomic.write_text(file, made.text)
    atomic.write_text(_beside(file, "init"), text)
    if seen:
        lines = [f"{name} {probes.report(here)}" for name, here in sorted(seen.items())]
        atomic.write_text(_beside(file, "nodes"), "\n".join([*lines, ""]))


def remembered(file: Path) -> dict[str, Here]:
    """What jobs saw of nodes when the file was last written, by the name of their kind."""
    pairs = (line.partition(" ") for line in (_read(_beside(file, "nodes")) or "").splitlines())
    found = {name: probes.read(text) for name, _, text in pairs}
    return {name: here for name, here in found.items() if isinstance(here, Here)}


def _beside(file: Path, what: str) -> Path:
    return file.with_name(f".{file.name}.{what}")


def _read(file: Path) -> str | None:
    try:
        return at.read_regular(file).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
