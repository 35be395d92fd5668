"""Removal on a full file system or quota: the yard frees its reserve, and the removal is tried again.

It frees the reserve (`yard.write.reserve`) and the modulefiles of former generations. These are as many as those of the
next generation, and can be made again from the records. After a kill, the next `gc` removes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from stackyard.core.errors import StackyardError
from stackyard.host.files import space
from stackyard.host.run.identity import this_process
from stackyard.upkeep.gc import garbage
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic, reserve, within

Result = TypeVar("Result")
HINT = "`stackyard gc --now` deletes what is in the trash; or delete some other file of this file system or quota"


def despite_full(yard: Yard, act: Callable[[], Result], tell: Callable[[str], object]) -> Result:
    """Run an action that frees space or undoes a step; on a full disk, free the yard's reserve and try once more.

    Args:
        act: the action, which can be repeated after a failure at any point.
        tell: is called with a sentence if the reserve was needed.

    Raises:
        StackyardError: the reserve was not enough (the hint has a command); or raised by `act`.
    """
    try:
        return act()
    except (StackyardError, OSError) as error:
        if not _is_full(error):
            raise
        if not give_up(yard):
            raise _nothing_left(error) from error
    tell(f"no space left in {yard.root}: its reserve is used; `stackyard gc --now` deletes what is in the trash")
    try:
        return act()
    except (StackyardError, OSError) as error:
        raise _nothing_left(error) if _is_full(error) else error from error


def give_up(yard: Yard) -> bool:
    """Free the reserve and the old modulefiles; whether there were any."""
    freed = reserve.give_up(yard)
    for number, paths in enumerate(garbage.former(yard, keep=0)):
        if disk.is_directory(paths.modules):
            me = this_process()
            aside = yard.draft(f"{me.host}-{me.pid}-{me.token}-{number}").root
            with suppress(OSError):  # of another account, or collected meanwhile
                within.rename(yard.root, paths.modules, aside)
                atomic.fault_point("given-up")
                freed = True
                disk.delete_tree(aside, yard.root)
    return freed


def _is_full(error: Exception) -> bool:
    return isinstance(error, disk.DiskFull) or space.is_full(error)


def _nothing_left(error: Exception) -> disk.DiskFull:
    message = error.message if isinstance(error, StackyardError) else f"no space left: {error}"
    return disk.DiskFull(message, hint=HINT)
