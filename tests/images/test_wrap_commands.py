"""Which programs of an image are wrapped, without an image."""

from __future__ import annotations

import pytest

from stackyard.core.errors import InputError
from stackyard.images.inventory import Inventory, InventoryEntry
from stackyard.images.wrap.commands import chosen

PROGRAM, FILE = InventoryEntry("-", "rwxr-xr-x"), InventoryEntry("-", "rw-r--r--")
IMAGE = Inventory(
    {
        "/bin": InventoryEntry("l", "rwxrwxrwx", "usr/bin"),
        "/usr": InventoryEntry("d", "rwxr-xr-x"),
        "/usr/bin": InventoryEntry("d", "rwxr-xr-x"),
        "/usr/bin/sh": InventoryEntry("l", "rwxrwxrwx", "/bin/dash"),
        "/usr/bin/dash": PROGRAM,
        "/usr/bin/round": InventoryEntry("l", "rwxrwxrwx", "round"),
        "/usr/bin/out": InventoryEntry("l", "rwxrwxrwx", "../../../../usr/bin/dash"),
        "/usr/bin/data": FILE,
        "/usr/bin/odd name": PROGRAM,
        "/opt": InventoryEntry("d", "rwxr-xr-x"),
        "/opt/bin": InventoryEntry("d", "rwxr-xr-x"),
        "/opt/bin/python3": PROGRAM,
        "/opt/bin/dash": PROGRAM,
        "/opt/bin/[": PROGRAM,
    }
)
PATH = ("/opt/bin", "/bin")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("dash", {"dash": "/opt/bin/dash"}),
        ("/bin/dash", {"dash": "/bin/dash"}),
        ("sh", {"sh": "/bin/sh"}),
        ("python=/opt/bin/python3", {"python": "/opt/bin/python3"}),
        ("/opt/bin/*", {"[": "/opt/bin/[", "dash": "/opt/bin/dash", "python3": "/opt/bin/python3"}),
        ("d*", {"dash": "/opt/bin/dash"}),
        ("all", {"[": "/opt/bin/[", "dash": "/opt/bin/dash", "out": "/bin/out", "python3": "/opt/bin/python3",
                 "sh": "/bin/sh"}),
    ],
)  # fmt: skip
def test_found(wanted: str, found: dict[str, str]) -> None:
    assert chosen(IMAGE, [wanted], PATH) == found


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("pyton3", "did you mean python3?"),
        ("/bin/python3", "it is not on the image's PATH; write its path: /opt/bin/python3"),
        ("zzz*", "the image's PATH is /opt/bin:/bin"),
        ("data", "the image's PATH is /opt/bin:/bin"),
        ("round", "the image's PATH is /opt/bin:/bin"),
    ],
)
def test_not_found(wanted: str, hint: str) -> None:
    with pytest.raises(InputError, match="in the image") as raised:
        chosen(IMAGE, ["dash", wanted], PATH)
    assert raised.value.hint == hint


def test_one_name_is_one_program() -> None:
    with pytest.raises(InputError, match="2 programs for one name"):
        chosen(IMAGE, ["x=/opt/bin/[!p]*"], PATH)
    with pytest.raises(InputError, match="no command with a plain name"):
        chosen(IMAGE, ["/bin/odd*"], PATH)


def test_the_directories_that_are_not_empty() -> None:
    assert IMAGE.directories_with_files == ["opt", "usr"]
