"""Lmod's spider cache of one generation, made by Lmod's own ``spider`` program and kept among the modulefiles.

It lies in ``modules/__spider`` (a name that Lmod does not take for a module) and so flips together with its generation.
A site makes its users' Lmod read it with ``LMOD_RC=<yard>/modules/__spider/lmodrc.lua``. Where Lmod is not installed
there is no cache: Lmod reads the modulefiles then, which is slower and otherwise the same.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.errors import StackyardError
from stackyard.expose.lua import quote
from stackyard.host import command, modules
from stackyard.yard import atomic

FOLDER = "__spider"


def write_cache(folder: Path, visible: Path) -> bool:
    """Write the cache of the modules in `folder`, which users will see as `visible`. False where Lmod is not here.

    Raises:
        StackyardError: Lmod could not read a modulefile; its words are the detail.
    """
    program = modules.find_spider()
    if program is None:
        return False
    result = command.run([program, "-o", "spiderT", folder], env=command.clean_environment(), timeout_s=300)
    if str(folder) not in result.stdout:
        raise StackyardError("Lmod's spider did not read the new modules", detail=result.output)
    place = folder / FOLDER
    atomic.write_text(place / "timestamp", "")
    atomic.write_text(place / "spiderT.lua", result.stdout.replace(str(folder), str(visible)))
    atomic.write_text(place / "lmodrc.lua", lmodrc(visible / FOLDER))
    return True


def lmodrc(place: Path) -> str:
    """The text of the file that LMOD_RC names, for a cache that users see at `place`."""
    directory, timestamp = quote(str(place)), quote(str(place / "timestamp"))
    return f"scDescriptT = {{\n   {{ dir = {directory}, timestamp = {timestamp} }},\n}}\n"
