"""The places of an account's own files: its home directory, and the XDG directories below it.

A container may run under an id without an account, and without HOME. Such a process has no home: paths that need one
raise a clear error, and caches are not kept.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stackyard.core.errors import MissingError

NOWHERE = Path(os.devnull, "stackyard")
"""A path that cannot exist, where what is written is lost with an OSError."""


def find() -> Path | None:
    """Your home directory: $HOME, else that of your account; None if neither is known."""
    named = os.environ.get("HOME")
    if named:
        return Path(named)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def expanded(text: str) -> Path:
    """A path with ``~`` or ``~name`` replaced by the home directory.

    Raises:
        MissingError: it is below your home, and you have none.
        KeyError: the account that it names does not exist.
    """
    first, slash, rest = text.partition("/")
    if not first.startswith("~"):
        return Path(text)
    if first == "~":
        home = find()
        if home is None:
            raise no_home(f"cannot resolve {text}")
    else:
        home = Path(pwd.getpwnam(first[1:]).pw_dir)
    return home / rest if slash else home


def xdg(variable: str, below_home: str) -> Path | None:
    """The directory that an XDG variable names, else the one below the home directory; None without both."""
    named = os.environ.get(variable)
    home = find()
    if named:
        return Path(named)
    return home / below_home if home else None


@contextmanager
def named() -> Iterator[None]:
    """Within a ``with`` block, HOME is set, for libraries that fail without it; without a home to a missing path."""
    if find() is not None:
        yield
        return
    before = dict(os.environ)
    os.environ["HOME"] = "/nonexistent"  # Debian's word for it
    try:
        yield
    finally:
        del os.environ["HOME"]
        os.environ.update({"HOME": ""} if "HOME" in before else {})


def no_home(what: str, hint: str = "set HOME: export HOME=DIRECTORY") -> MissingError:
    """The error if a home directory is needed: `what` failed."""
    return MissingError(f"{what}: HOME is not set, and user {os.getuid()} has no account on this machine", hint=hint)
