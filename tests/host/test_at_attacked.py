"""Root removes, changes modes and copies in a directory whose owner exchanges what is in it meanwhile.

``STACKYARD_ATTACKS=100`` tries each kind of exchange a hundred times.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stackyard.host.files import at, copying
from stackyard.yard.revision import contents
from stackyard.yard.write.permissions import Policy, settle
from support.accounts import Accounts
from support.exchanged import CONTENTS, KINDS, Arena

TRIES = int(os.environ.get("STACKYARD_ATTACKS", "1"))


def remove(content: Path) -> None:
    with at.parent(content.parent, content) as place:
        at.remove_tree(*place)


def set_modes(content: Path) -> None:
    owner = content.stat().st_uid
    with at.directory(content, content) as directory:
        for name in at.names(directory):
            with suppress(OSError):
                at.set_mode(directory, name, lambda status: status.st_mode | stat.S_IRWXU, (owner,))


def copy(content: Path) -> None:
    owner, copies = content.stat().st_uid, content.parent / "copy"
    with at.directory(content, content) as directory, at.directory(copies, copies) as target:
        for number, name in enumerate(at.names(directory)):
            with suppress(OSError):
                copying.copy_tree((directory, name), (target, f"{os.urandom(6).hex()}-{number}"), (owner,))


def seal(content: Path) -> None:
    contents.seal(content, contents.scan(content), directories=True)


def settled(content: Path) -> None:
    settle(content, Policy(0o022))


def by_path(content: Path) -> None:
    """What none of them does any more."""
    for entry in os.scandir(content):
        with suppress(OSError):
            os.chmod(entry.path, os.lstat(entry.path).st_mode | stat.S_IRWXU)
    for entry in os.scandir(content):
        with suppress(OSError):
            if stat.S_ISREG(os.lstat(entry.path).st_mode):
                shutil.copy2(entry.path, content.parent / "copy" / os.urandom(8).hex())


@pytest.mark.parametrize("act", [remove, set_modes, copy, seal, settled])
def test_nothing_outside_is_touched(accounts: Accounts, common: Path, act: Callable[[Path], None]) -> None:
    arena = Arena(common, accounts.user("mallory"))
    tried = [(kind, content) for kind in KINDS for content in CONTENTS] * TRIES
    found = {(*each, harm) for each in tried for harm in arena.tried(act, *each)}
    assert not found


def test_the_same_attack_breaks_what_goes_by_paths(accounts: Accounts, common: Path) -> None:
    arena = Arena(common, accounts.user("mallory"))
    found: set[str] = set()
    for _ in range(60):
        found |= arena.tried(by_path, "link", "files")
        if any(text.startswith("secret got mode") for text in found):
            return
    raise AssertionError(f"the attack finds nothing that can be broken: {found}")
