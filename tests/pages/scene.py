"""How the blocks of one page are typed: what is there before, what the page leaves to the reader, how lines end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from support import fences
from support.desk import Desk

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.name: path for part in ("tutorial", "howto") for path in sorted((DOCS / part).glob("*.md"))}
NOT_RUN = DOCS / "not-run.txt"

Prepare = Callable[[Desk], AbstractContextManager[None]]


@dataclass(frozen=True)
class Scene:
    """Blocks of a page that are typed in one shell, one after the other.

    Args:
        page: its file's name.
        blocks: which of its blocks of commands, from 1; of another page by name, ``page.md#1``.
        prepare: makes what the page takes as given, and takes it away.
        before: lines that the prose before a block asks for, by the block.
        ends: the exit status of lines that do not end with 0; several where it is the machine that decides.
        other: beginnings of shown lines that this machine has no counterpart of, with the reason.
        nodes: whether there is a Slurm of four nodes.
        shared: whether other accounts can enter the directory in which all of it is.
        long: whether it takes too long for `make test`.
    """

    page: str
    blocks: tuple[int | str, ...]
    prepare: Prepare
    before: Mapping[int | str, tuple[str, ...]] = field(default_factory=dict)
    ends: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    nodes: bool = False
    shared: bool = False
    long: bool = False

    @property
    def name(self) -> str:
        return f"{self.page}-{'-'.join(str(each) for each in self.blocks if isinstance(each, int))}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its blocks."""
        return tuple(each if isinstance(each, str) else f"{self.page}#{each}" for each in self.blocks)

    def commands(self) -> Iterator[fences.Command]:
        """What is typed, in order."""
        found = {block.name: block for block in every_block()}
        for block, name in zip(self.blocks, self.names, strict=True):
            yield from map(fences.Command, self.before.get(block, ()))
            yield from found[name].commands


@cache
def every_block() -> tuple[fences.Block, ...]:
    """The blocks of commands of all pages."""
    return tuple(block for page in PAGES.values() for block in fences.blocks(page))


def plainly(prepare: Callable[[Desk], None]) -> Prepare:
    """A scene that needs no taking away."""

    @contextmanager
    def prepared(desk: Desk) -> Iterator[None]:
        prepare(desk)
        yield

    return prepared
