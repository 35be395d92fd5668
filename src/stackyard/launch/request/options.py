"""The options of schedulers and launchers, and how they are parsed.

Sources: `sbatch --help` and `srun --help` of Slurm 22.05 with the additions of the 23.02 to 24.11 manuals; IBM Spectrum
LSF's `bsub` and JSM's `jsrun` manual pages; OpenPBS's `qsub`; `flux-run(1)`; `mpirun(1)` of Open MPI and MPICH;
`torchrun --help`; `deepspeed --help`; `accelerate launch --help`; `horovodrun --help`; the manuals of Apptainer and
Shifter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from stackyard.core.hints import nearest
from stackyard.core.late import dataclass


@dataclass(frozen=True)
class Table:
    """Options of one program: short and long names to a canonical one; which take a value; which may take one.

    `style` "getopt": ``-n4``, ``--nodes=4``, ``--nodes 4``, unique beginnings of long names; "single": long names with
    one hyphen too (LSF, mpirun), no values joined to a short name; "python": argparse, ``_`` and ``-`` are alike.
    """

    valued: Mapping[str, str]
    flags: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    style: str = "getopt"
    pairs: frozenset[str] = frozenset()
    """Names whose value is two words, ``-env NAME VALUE``, unless the first of them is ``NAME=VALUE``."""

    def canonical(self, name: str) -> str | None:
        """The canonical name of an option as written, without hyphens; None if unknown."""
        name = name.replace("-", "_") if self.style == "python" else name
        every = {**self.optional, **self.flags, **self.valued}
        if name in every:
            return every[name]
        if self.style == "getopt" and len(name) > 2:
            candidates = {every[key] for key in every if key.startswith(name)}
            return candidates.pop() if len(candidates) == 1 else None
        return None

    def nearest(self, name: str) -> str | None:
        """The known long name nearest to a misspelt one, or None."""
        every = [option for option in {**self.valued, **self.flags, **self.optional} if len(option) > 1]
        return next(iter(nearest(name, every, cutoff=0.82)), None)


@dataclass(frozen=True)
class Option:
    """One option as given: its canonical name ("" if unknown), its spelling, and its value."""

    name: str
    written: str
    value: str = ""


@dataclass(frozen=True)
class Reading:
    """Options, the words after them, and whether an unknown option makes the rest doubtful."""

    options: tuple[Option, ...]
    rest: tuple[str, ...]
    doubtful: bool = False

    def get(self, name: str) -> str | None:
        """The last value of an option, as getopt programs use it; None if not given."""
        return next((option.value for option in reversed(self.options) if option.name == name), None)


_MOST_VALUES = 2
"""Words after an option that can be its values (mpirun's ``--mca NAME VALUE``)."""


def read_options(table: Table, words: Sequence[str], *, all_words: bool = False) -> Reading:
    """Parse options up to the first other word (`all_words`: skip such words)."""
    options: list[Option] = []
    doubtful = False
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--" or ((not word.startswith("-") or word == "-") and not all_words):
            at += word == "--"
            break
        at += 1
        if not word.startswith("-"):
            continue
        more, used, sure = _option(table, word, words[at : at + _MOST_VALUES])
        options += more
        at += used
        doubtful = doubtful or not sure
    return Reading(tuple(options), tuple(words[at:]), doubtful)


def mapped(reading: Reading) -> Reading:
    """An mpirun's options with Open MPI's ``--map-by ppr:4:node:pe=8`` evaluated: ranks per node, cores of each."""
    mapping = (reading.get("map-by") or "").lower()
    ranks, cores = re.match(r"ppr:(\d+):node(?![^:])", mapping), re.search(r":pe=(\d+)", mapping)
    counts = {"ppn": ranks, "depth": cores}
    said = [Option(name, "map-by", match[1]) for name, match in counts.items() if match and reading.get(name) is None]
    return replace(reading, options=(*reading.options, *said))


def _option(table: Table, word: str, after: Sequence[str]) -> tuple[list[Option], int, bool]:
    """The options in one word, the number of following words that are values, and whether that is certain."""
    if not word.startswith("--") and table.style == "getopt":
        return _short(table, word, after)
    name, equals, value = word.lstrip("-").partition("=")
    canonical = table.canonical(name)
    if canonical is None:
        if not word.startswith("--") and len(word) > 2 and word[1] in table.valued:
            return [Option(table.valued[word[1]], "-" + word[1], word[2:])], 0, True
        unsure = not equals and bool(after) and not after[0].startswith("-")
        return [Option("", name, value)], 0, not unsure
    if equals:
        return [Option(canonical, name, value)], 0, True
    if canonical in table.valued.values() and name.replace("-", "_") not in table.flags and name not in table.flags:
        if canonical in table.optional.values() and name in table.optional:
            return [Option(canonical, name)], 0, True
        values = 2 if name in table.pairs and after and "=" not in after[0] else 1
        joined = "=" if canonical == "env" else " "
        return [Option(canonical, name, joined.join(after[:values]))], min(values, len(after)), True
    return [Option(canonical, name)], 0, True


def _short(table: Table, word: str, after: Sequence[str]) -> tuple[list[Option], int, bool]:
    """Parse ``-n4``, ``-n 4``, ``-n=4``, ``-lu``: letters up to the first one with a value."""
    options: list[Option] = []
    for index, letter in enumerate(word[1:], 1):
        rest = word[index + 1 :]
        if letter in table.valued:
            value, used = (rest, 0) if rest else ((after[0], 1) if after else ("", 0))
            return [*options, Option(table.valued[letter], letter, value.removeprefix("="))], used, True
        if letter in table.optional:
            return [*options, Option(table.optional[letter], letter, rest.removeprefix("="))], 0, True
        if letter not in table.flags:
            return [*options, Option("", letter, rest)], 0, not (after and not after[0].startswith("-"))
        options.append(Option(table.flags[letter], letter))
    return options, 0, True


def names(words: str, short: str = "") -> dict[str, str]:
    """Long names as their own canonical names; `short` has ``letter:name`` pairs that map to one of them."""
    pairs = (pair.partition(":") for pair in short.split())
    return {word: word for word in words.split()} | {letter: name for letter, _, name in pairs}
