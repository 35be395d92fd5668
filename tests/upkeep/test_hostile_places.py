"""Each place of a yard and beside it, made hostile by the account that may write there, and every verb over it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import hostiletable
import pytest
from hostilebed import KINDS, Bed, hostile_bed
from hostiletable import BESIDE, IN_YARD, SPOTS, Place, table
from hostilethings import COSTLY, HOSTILITIES, Hostility

from stackyard.cli.main import VERBS
from stackyard.yard import layout
from stackyard.yard.layout import Yard
from support.accounts import Accounts

PLACES = {place.name: place for place in table()}
EVERYTHING = os.environ.get("STACKYARD_HOSTILE") == "all"
"""Each place with each hostility in a yard of each kind: half an hour."""
CHEAP = [each for each in HOSTILITIES if each.name not in COSTLY]


def test_every_place_of_the_layout_has_a_row() -> None:
    tree = (layout.__doc__ or "").partition("<yard>/")[2]
    begun = [line.partition("   ")[0] for line in tree.splitlines() if re.match(r"  [a-z]", line)]
    drawn = {word for line in begun for word in re.findall(r"(?:^|  )([a-z]+(?:\.json|/)?)(?=[ <{/]|\S*$)", line)}
    named = {path.partition("/")[0] for path in hostiletable.properties(Yard)}
    rows = {name.rstrip("/") for name in PLACES if name not in BESIDE}
    assert {name.rstrip("/") for name in drawn} | named == rows
    assert set(IN_YARD) | set(BESIDE) == set(PLACES), "a row of docs/reference/places.md without hostile paths"


def test_every_verb_has_a_row_and_a_command_line() -> None:
    assert set(VERBS) == set(hostiletable.VERBS)
    assert {verb for place in PLACES.values() for verb in place.verbs} == set(VERBS)


@pytest.fixture(scope="module")
def bed(accounts: Accounts) -> Iterator[Bed]:
    with hostile_bed(accounts) as made:
        yield made


@dataclass(frozen=True)
class Cell:
    """One run: a line of a verb, as whom, over which place with what in it."""

    kind: str
    role: int
    line: str
    place: Place
    spots: list[tuple[str, Hostility]]

    def run(self, bed: Bed) -> None:
        """Run it in a fresh yard; what is wrong is kept in the bed's findings."""
        bed.kind = self.kind
        if bed.attacker(self.place) is None:
            return
        bed.fresh(self.kind)
        bed.plant(self.place, self.spots)
        roles = list(bed.people)
        what = sorted({hostility.name for _, hostility in self.spots})
        bed.attack(roles[self.role % len(roles)], self.line, f"{self.place.name} ({', '.join(what[:3])})")


def _mixed(place: Place, first: int) -> list[tuple[str, Hostility]]:
    """The paths of a place, each with another hostility, from this one on."""
    return [(path, CHEAP[(first + number) % len(CHEAP)]) for number, path in enumerate(SPOTS[place.name])]


def diagonal() -> list[Cell]:
    """Every place, every hostility and every verb at least once, each verb over a place that it reads."""
    seen = Counter[str]()
    cells: list[Cell] = []

    def add(line: str, place: Place) -> None:
        number, rounds = len(cells) % len(KINDS), len(cells) // len(KINDS)
        seen[place.name] += 1
        cells.append(Cell(KINDS[number], rounds, line, place, _mixed(place, len(cells))))

    for verb, lines in hostiletable.VERBS.items():
        reading = [place for place in PLACES.values() if verb in place.verbs]
        add(lines[-1], min(reading, key=lambda each: seen[each.name]))
    for place in PLACES.values():
        if not seen[place.name]:
            add(hostiletable.VERBS[place.verbs[0]][0], place)
    return cells


def matrix(kind: str) -> list[Cell]:
    """Every hostility at all paths of every place, each with another line of the verbs that read it."""
    cells = []
    for number, place in enumerate(PLACES.values()):
        lines = [line for verb in place.verbs for line in hostiletable.VERBS[verb]]
        rounds = max(len(HOSTILITIES), len(lines))
        for at in range(KINDS.index(kind) if not EVERYTHING else 0, rounds, 1 if EVERYTHING else len(KINDS)):
            hostility = HOSTILITIES[at % len(HOSTILITIES)]
            paths = SPOTS[place.name]
            part = paths[at % 5 :: 5] if len(paths) > 12 else paths
            if (at // len(KINDS)) % 3 == 2 and place.is_replaced:
                part = [place.name.rstrip("/")]  # all of it
            if hostility.name in COSTLY:
                part = [part[at % len(part)]]
            line = lines[(at + number) % len(lines)]
            cells.append(Cell(kind, (at + number) // 4, line, place, [(path, hostility) for path in part]))
    return cells


def _require_nothing_found(bed: Bed, cells: list[Cell]) -> None:
    bed.fresh("service")
    bed.control("fsck --repair")
    bed.findings.clear()
    for cell in cells:
        cell.run(bed)
    assert not bed.findings, "\n".join(bed.findings)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_diagonal_of_places_hostilities_and_verbs(bed: Bed, kind: str) -> None:
    _require_nothing_found(bed, [cell for cell in diagonal() if cell.kind == kind])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_place_with_every_hostility(bed: Bed, kind: str) -> None:
    _require_nothing_found(bed, matrix(kind))


def test_the_diagonal_has_everything_once() -> None:
    cells = diagonal()
    assert {cell.place.name for cell in cells} == set(PLACES)
    assert {each.name for cell in cells for _, each in cell.spots} == {each.name for each in CHEAP}
    assert {cell.line.split()[0] for cell in cells} == set(VERBS)
    assert {cell.kind for cell in cells} == set(KINDS)
