"""The program's entry point; for root, the owner of the yard determines the account (`host.account.supervisor`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OF_THE_MACHINE = ("mount", "unmount", "autofs")
"""Commands of `image` that root runs for all users of a node: they mount, and change nothing in a yard."""
_IN_NO_YARD = ("help", "config", "init")
"""Verbs that neither read nor write a yard, and name the one that counts."""
_WITH_VALUE = ("--yard", "--site")
_begun: list[bool] = []


def main() -> None:
    """Run the command line."""
    begin()
    from stackyard.cli.main import main as run

    run()


def begin() -> None:
    """Continue as the owner of the yard that the command line names; once."""
    if _begun:
        return
    _begun.append(True)
    if "STACKYARD_SUPERVISOR" in os.environ:
        from stackyard.host.account import supervised

        supervised.connect()
    elif os.geteuid() == 0:
        _begin_as_root(sys.argv[1:])


def _begin_as_root(words: list[str]) -> None:
    options, rest = _options(words)
    if not rest or rest[0].startswith("-") or rest[0] in _IN_NO_YARD:
        return
    from stackyard.host.account import supervisor  # late: `--version` needs none

    if rest[:1] == ["image"] and rest[1:2] and rest[1] in _OF_THE_MACHINE:
        supervisor.FOR_THE_MACHINE.append(True)
    elif (yard := _named(options)) is None:
        _default(options.get("--site"))
    else:
        supervisor.supervise(yard, giving=rest[0] == "fsck" and "--repair" in rest)


def _named(options: dict[str, str]) -> Path | None:
    """The yard of a command line, if it or the environment names one."""
    root = options.get("--yard") or os.environ.get("STACKYARD_HOME")
    return Path(os.path.expanduser(root)) if root else None  # noqa: PTH111


def _options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options before the verb, the last of each kind, and the rest: parsed as by click."""
    flags: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("--"):
        name, equals, value = words[at].partition("=")
        if name in _WITH_VALUE and not equals and at + 1 < len(words):
            at, value = at + 1, words[at + 1]
        if name in _WITH_VALUE:
            flags[name] = value
        elif name != "--debug":
            break
        at += 1
    return flags, words[at:]


def _default(site: str | None) -> None:
    """Restart with root's yard from a site's file, if it belongs to another account."""
    from stackyard.core.errors import StackyardError
    from stackyard.host.account import supervisor
    from stackyard.inputs.api import Settings

    try:
        path = Settings(site_option=Path(site) if site else None).yard_root()
        account = supervisor.owner(path)
    except (StackyardError, OSError):
        return  # the command says what is wrong
    if account != 0:
        os.environ["STACKYARD_HOME"] = str(path)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    main()
