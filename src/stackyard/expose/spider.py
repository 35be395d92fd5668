"""Lmod's spider cache of one generation, written by Lmod's own ``spider`` program next to the modulefiles.

It is in ``modules/__spider`` (a name that Lmod does not treat as a module), so it is published together with its
generation. ``LMOD_RC=<yard>/modules/__spider/lmodrc.lua`` makes users' Lmod read it. If Lmod is not installed when the
generation is written it has no cache; Lmod then reads the modulefiles, which is slower.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.expose.modulefiles.lua import quote
from stackyard.host.machine import modules
from stackyard.host.run import command
from stackyard.yard.write import atomic

DIRECTORY = "__spider"


def write_cache(directory: Path, visible: Path) -> bool:
    """Write the cache of the modules in `directory`, whose final path is `visible`. False without Lmod.

    Raises:
        StackyardError: Lmod could not read a modulefile; the detail has its output.
    """
    program = modules.find_spider()
    if program is None:
        return False
    result = command.run([program, "-o", "spiderT", directory], env=command.clean_environment(), timeout_s=300)
    if str(directory) not in result.stdout:
        raise StackyardError("Lmod's spider failed to read the new modules", detail=result.output)
    place = directory / DIRECTORY
    atomic.write_text(place / "timestamp", "", top=directory)
    atomic.write_text(place / "spiderT.lua", result.stdout.replace(str(directory), str(visible)), top=directory)
    atomic.write_text(place / "lmodrc.lua", lmodrc(visible / DIRECTORY), top=directory)
    return True


def lmodrc(place: Path) -> str:
    """The text of the file for LMOD_RC, for a cache at the final path `place`."""
    directory, timestamp = quote(str(place)), quote(str(place / "timestamp"))
    return f"scDescriptT = {{\n   {{ dir = {directory}, timestamp = {timestamp} }},\n}}\n"
