"""Commands of root while another account exchanges names: nothing of root's or the owner's changes."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostilebed import Bed, hostile_bed
from hostiletable import VICTIM
from hostilethings import Sentinel

from support.accounts import Account, Accounts

pytestmark = [pytest.mark.long, pytest.mark.slow]
TRIES = int(os.environ.get("STACKYARD_TRIES", "2"))
EXCHANGE = """
import ctypes, os, sys
libc, words = ctypes.CDLL(None), [os.fsencode(word) for word in sys.argv[1:]]
folders = {os.path.dirname(word): 0 for word in words}
for name in folders:
    folders[name] = os.open(name, os.O_PATH)
split = os.path.split
pairs = [(folders[split(a)[0]], split(a)[1], split(b)[1]) for a, b in zip(words[::2], words[1::2])]
os.write(1, b"ready\\n")
while True:
    for folder, one, other in pairs:
        libc.renameat2(folder, one, folder, other, 2)
"""
"""By descriptors: the names are exchanged also where their directory has been moved to, as into the trash."""
WIDE = 100


@dataclass(frozen=True)
class Race:
    """A command, and the names that are exchanged while it runs."""

    kind: str
    line: str
    pairs: Callable[[Bed, Account], list[tuple[Path, Path]]]


@contextmanager
def exchanging(account: Account, pairs: list[tuple[Path, Path]]) -> Iterator[None]:
    """Another account exchanges the names of each pair, again and again."""
    words = [str(path) for pair in pairs for path in pair]
    python = account.bin / "python"
    with account.popen(python, "-c", EXCHANGE, *words, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.kill()


def _own(account: Account, path: Path, *, directory: bool = False, mode: int | None = None) -> Path:
    path.mkdir(parents=True) if directory else path.write_text("2020-01-01 run tool/1.0-py3-1\n")
    os.chown(path, account.uid, -1)
    if mode is not None:
        path.chmod(mode)
    return path


def _lure(account: Account, path: Path, target: Path) -> Path:
    path.symlink_to(target)
    os.chown(path, account.uid, -1, follow_symlinks=False)
    return path


def _targets(bed: Bed) -> list[Path]:
    trees = {sentinel.root: sentinel for sentinel in bed.sentinels}
    return [root / name for root in trees for name in ("folder", "file", "program")]


def _lures_in(bed: Bed, account: Account, directory: Path, count: int) -> list[tuple[Path, Path]]:
    """Directories with modes that a removal has to change, each with a link that takes its place."""
    pairs = []
    for number in range(count):
        inner = _own(account, directory / f"d{number}", directory=True, mode=0o4077)
        _own(account, inner / "inner")
        pairs.append((inner, _lure(account, directory / f".x{number}", _targets(bed)[number % len(_targets(bed))])))
    return pairs


def notes(bed: Bed, account: Account) -> list[tuple[Path, Path]]:
    """Old files in usage/, and notes, each with a link, a directory or a pipe that takes its place."""
    pairs = []
    for number in range(4):
        note = _own(account, bed.yard.usage / f"h{number}.{account.uid}.2020-01.log")
        other = _own(account, bed.yard.usage / f"x{number}", directory=True, mode=0o4077)
        pairs += [(note, other), *_lures_in(bed, account, other, WIDE)]
    for number, target in enumerate(_targets(bed)):
        note = _own(account, bed.yard.usage / f"l{number}.{account.uid}.2020-01.log")
        pairs.append((note, _lure(account, bed.yard.usage / f"y{number}", target)))
    for place in (bed.yard.uses, bed.yard.children):
        note = _own(account, place / f"tool~1.0-py3-1@h.1.{account.uid}.json")
        os.mkfifo(place / "pipe", 0o666)
        os.chown(place / "pipe", account.uid, -1)
        pairs.append((note, place / "pipe"))
    return pairs


def thrown(bed: Bed, account: Account) -> list[tuple[Path, Path]]:
    """Things in the trash whose directories become links, and the directories of their contents too."""
    bed.make_trash(account.uid, "20200101T000000-cccccccccccc")
    item = bed.yard.thrown("20200101T000000-cccccccccccc")
    pairs = []
    content = _own(account, item / "content", directory=True, mode=0o4077)
    pairs += _lures_in(bed, account, content, WIDE)
    for name in ("content", "doomed"):
        pairs.append((item / name, _lure(account, item / f".{name}", bed.own_sentinel.root / "folder")))
    return pairs


def revision(bed: Bed, account: Account) -> list[tuple[Path, Path]]:
    """The directory of a stack, of a revision, and what is in it."""
    pairs = []
    root = bed.yard.root / VICTIM
    for path in (root / "prefix", root / "lock", root / "recipe", root, root.parent):
        pairs.append((path, _lure(account, path.with_name(f".x-{path.name}"), bed.own_sentinel.root / "folder")))
    for name in ("record.json", "module.json", "files.json"):
        pairs.append((root / name, _lure(account, root / f".x-{name}", bed.own_sentinel.root / "file")))
    return pairs


def layout(bed: Bed, account: Account) -> list[tuple[Path, Path]]:
    """What an artefact is read from."""
    directory = bed.beside / "layout"
    blobs = sorted((directory / "blobs/sha256").iterdir())
    pairs = [(blob, _lure(account, blob.with_name(f"x{blob.name}"), bed.sentinel.root / "file")) for blob in blobs]
    return [*pairs, (directory / "index.json", _lure(account, directory / "x.json", bed.sentinel.root / "file"))]


def prefix(bed: Bed, account: Account) -> list[tuple[Path, Path]]:
    """Files and directories of a virtual environment."""
    directory = bed.beside / "prefix"
    packages = directory / "lib/python3.11/site-packages"
    subprocess.run(["python3", "-m", "venv", "--without-pip", directory], check=True)
    pairs = []
    for number in range(WIDE):
        inner = packages / f"d{number}"
        inner.mkdir()
        (inner / "__init__.py").write_text("")
        pairs.append((inner, packages / f"x{number}"))
        (packages / f"x{number}").symlink_to(_targets(bed)[number % len(_targets(bed))])
    subprocess.run(["chown", "-hR", str(account.uid), directory], check=True)
    return pairs


RACES = [
    Race("root", "gc", notes),
    Race("root", "gc --now", notes),
    Race("service", "gc --now", notes),
    Race("service", "gc --now", thrown),
    Race("group", "gc", thrown),
    Race("group", "gc --now", thrown),
    Race("user", "gc --now", thrown),
    Race("group", "fsck --repair", revision),
    Race("service", "fsck --repair", revision),
    Race("group", "fsck --repair", thrown),
    Race("group", "move {new}", revision),
    Race("root", "move {new}", notes),
    Race("group", "remove tool/1.0", revision),
    Race("root", "remove tool/1.0", notes),
    Race("group", "share tool/1.0 --with group:{group}", revision),
    Race("user", "share tool/1.0 --with group:{group}", revision),
    Race("root", "pull oci:{beside}/layout:real", layout),
    Race("group", "pull oci:{beside}/layout:real", layout),
    Race("root", "adopt {beside}/prefix --name taken", prefix),
    Race("group", "adopt {beside}/prefix --name taken", prefix),
    Race("group", "verify tool/1.0 --repair", revision),
]


@pytest.fixture(scope="module")
def bed(accounts: Accounts) -> Iterator[Bed]:
    with hostile_bed(accounts) as made:
        made.fresh("service")
        made.control("fsck --repair")
        yield made


@pytest.mark.parametrize("race", RACES, ids=lambda race: f"{race.kind}: {race.line}: {race.pairs.__name__}")
def test_nothing_changes_while_names_are_exchanged(bed: Bed, race: Race) -> None:
    seen = Counter[str]()
    bed.findings.clear()
    for _ in range(TRIES):
        bed.fresh(race.kind)
        account = bed.attacker_of(race.pairs is notes or race.pairs in (layout, prefix))
        pairs = race.pairs(bed, account)
        if account == bed.owner:  # what leads to its own files changes nothing that it could not change
            bed.own_sentinel = bed.sentinel
        meanwhile = exchanging(account, pairs)
        found = bed.attack("root", race.line, race.pairs.__name__, meanwhile=meanwhile, published=False)
        seen.update({each.rpartition(": ")[2][:40] for each in found})
    print(f"{race.kind:8} {race.line[:40]:40} {race.pairs.__name__:9} {sum(seen.values())} of {TRIES} {dict(seen)}")
    assert not bed.findings, "\n".join(bed.findings)


def test_the_sentinel_shows_a_change(common: Path) -> None:
    tree = Sentinel(common / "tree", 0)
    tree.make()
    before = tree.state()
    (tree.root / "file").chmod(0o640)
    assert tree.state() != before
