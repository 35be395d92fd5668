"""At the end of the year: what the yard takes beside a fresh one, whether it is whole, and whether it answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from year import SITE_FILE, Year, check

from stackyard.yard.cache.audit import audit, unfinished
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import read_record
from stackyard.yard.write import trash
from support.forked import Person
from support.sizes import taken

MOST_TIMES = 1.3


def look(year: Year, say: Callable[[str], None]) -> None:
    shown = year.entries()
    say(f"{len(shown)} visible revisions of {len(generations.entries(year.yard))}; {dict(year.counts)}")
    answers(year)
    whole(year, say)
    small(year, shown, say)


def answers(year: Year) -> None:
    """What people type often shows something."""
    for words in (("list",), ("list", "--usage"), ("usage",), ("history",), ("show", year.stacks[0].name)):
        check(bool(year.shared(year.root, *words).out), f"{words} shows nothing")


def whole(year: Year, say: Callable[[str], None]) -> None:
    """Every visible revision verifies, every extension works, every cached file has its hash, nothing is left over."""
    done = year.shared(year.staff[2], "verify")
    say(f"verify: {done.out.splitlines()[-1]}")
    year.use_extensions()
    check(audit(year.yard) == [], f"{audit(year.yard)}")
    left = [*unfinished(year.yard), *(item.what for item in trash.items(year.yard))]
    check(not left, f"left in the yard: {left}")
    for paths in revisions.directories(year.yard):
        check(paths.record.exists(), f"{paths.root} is not complete")


def small(year: Year, shown: list[Entry], say: Callable[[str], None]) -> None:
    """The yard takes at most 1.3 times of what the same people take who deploy all that is visible to a fresh one."""
    fresh = Yard(year.yard.root.with_name("fresh"))
    site = (year.place / "site.yaml").read_text().replace(str(year.yard.root), str(fresh.root))
    (year.place / SITE_FILE).write_text(site)
    for number, entry in enumerate(sorted(shown, key=lambda e: e.created)):
        directory = year.place / "again" / str(number)
        directory.mkdir(parents=True)
        shutil.copy(Path(entry.folder) / "recipe/stack.yaml", directory / "stack.yaml")
        shutil.copy(Path(entry.folder) / "lock/stack.lock", directory / "stack.yaml.lock")
        words = ("--site", year.place / SITE_FILE, "--yard", fresh.root, "deploy", "--locked", directory / "stack.yaml")
        year.stage.start(owner(year, entry), *words).wait()
    again = {read_record(paths.record).input_hash for paths in revisions.directories(fresh)}
    check(again == {entry.input_hash for entry in shown}, "the fresh yard has other revisions")
    ours, theirs = taken(year.yard.root), taken(fresh.root)
    say(f"the yard {ours}, a fresh one {theirs}: {ours[0] / theirs[0]:.2f} and {ours[1] / theirs[1]:.2f} times")
    for name in sorted(os.listdir(year.yard.root)):
        say(f"  {name}: {taken(year.yard.root / name)}, {taken(fresh.root / name)}")
    check(ours[0] <= MOST_TIMES * theirs[0], f"{ours[0]:,} bytes, and {theirs[0]:,} in a fresh yard")
    check(ours[1] <= MOST_TIMES * theirs[1], f"{ours[1]:,} inodes, and {theirs[1]:,} in a fresh yard")


def owner(year: Year, entry: Entry) -> Person:
    uid = (Path(entry.folder) / "record.json").stat().st_uid
    return next((person for person in year.staff if person.uid == uid), year.root)
