"""Writes the stubs of a wrapped image, and the directory that its container has in their place."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

from stackyard.host.files.elf import mapped
from stackyard.images.wrap.starts import Starts, settings_file
from stackyard.yard import disk
from stackyard.yard.kinds.payload import STUB, Container
from stackyard.yard.write.atomic import write_text

_TEXT = """The commands in bin/ run in a container of ../image.sqsh. To look at its files: stackyard shell MODULE
"""
OWN = ".own"
"""The directory of links to what commands start in place of their path in the revision; see `Starts.own`."""
MAKERS = ".makes"
"""That of `Starts.makers`."""


def write(payload: Container, programs: Mapping[str, str], settings: str, how: Starts = Starts()) -> None:  # noqa: B008
    """Write the stubs, the contents of the container in their place, and the container's settings."""
    root, inside = payload.root, payload.inside
    for place in (payload.program_directories[0], inside, *(root / tree.place for tree in how.trees)):
        disk.remove_tree(place)
    _links(root / "bin", dict.fromkeys(programs, "../../launch"))
    for tree in how.trees:
        _links(root / tree.place / "bin", dict.fromkeys(tree.programs, "../../../../launch"))
        _links(inside / tree.place / "bin", tree.programs)
        for number, text in enumerate(tree.environments.values()):
            write_text(inside / settings_file(tree, number), text)
    _links(inside / "bin", {})
    add_links(payload, programs, how)
    write_text(root / STUB, _TEXT)
    write_text(payload.settings, settings)


def add_links(payload: Container, programs: Mapping[str, str], how: Starts) -> None:
    """Write or correct the links by which commands start in the container, which may be running."""
    inside, by_launcher = payload.inside, is_static(payload.launcher)
    for name, path in programs.items():
        place = how.own.get(name, path)
        beside = place if place.startswith("/") else f"../{place}"
        _link(inside / "bin" / name, "../../launch" if name in how.own and by_launcher else beside)
        if name in how.own:
            _link(inside / OWN / name, beside)
        if name in how.makers:
            _link(inside / MAKERS / name, f"../{how.makers[name]}")
    for tree in how.trees:
        for name, path in tree.files.items():
            _link(inside / tree.place / name, path)


def _links(directory: Path, leads: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, target in leads.items():
        _link(directory / name, target)


def _link(path: Path, target: str) -> None:
    if path.is_symlink() and str(path.readlink()) == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def is_static(program: Path) -> bool:
    """Whether a program needs no loader, so that it starts in any system."""
    return mapped(program, _has_no_loader, False)


def _has_no_loader(data: mmap.mmap) -> bool:
    from elftools.elf.elffile import ELFFile

    return not any(part.header.p_type == "PT_INTERP" for part in ELFFile(cast(BinaryIO, data)).iter_segments())
