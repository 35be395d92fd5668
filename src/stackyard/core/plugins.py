"""Plug-ins: objects of other distributions, found through entry points in Stackyard's own site-packages.

`docs/design/037-plugins.md` has what a plug-in may be. Only the site-packages of the interpreter that runs Stackyard
are read, never ``sys.path``: the PYTHONPATH of a loaded stack must not add code to the program that launches it. They
are read only for a name that is not built in, since `importlib.metadata` takes longer than most commands.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.core.hints import did_you_mean
from stackyard.core.late import dataclass

T = TypeVar("T")
PROTOCOL = 1
"""The version of what Stackyard calls and passes; a plug-in's module has it as ``STACKYARD_PROTOCOL``."""


@dataclass(frozen=True)
class EntryPoint:
    """One line of an ``entry_points.txt``.

    Attributes:
        value: ``module:attribute``.
        distribution: the name and the version of its distribution, from the directory's name.
    """

    name: str
    value: str
    distribution: str

    def __str__(self) -> str:
        return f"{self.name} ({self.distribution})"


@dataclass(frozen=True)
class Plugin:
    """A loaded plug-in object; `source` describes its origin for records and messages."""

    object: Any
    source: EntryPoint


def directories() -> list[Path]:
    """The site-packages of the interpreter that runs Stackyard."""
    import sysconfig  # late: only for a name that is not built in

    return [Path(path) for path in dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))]


def installed(group: str) -> dict[str, EntryPoint]:
    """The plug-ins that distributions offer in a group, by name.

    Raises:
        StackyardError: two distributions offer the same name, or a file cannot be read.
    """
    points: dict[str, EntryPoint] = {}
    for file in sorted(file for directory in directories() for file in directory.glob("*.dist-info/entry_points.txt")):
        name, _, version = file.parent.name.removesuffix(".dist-info").partition("-")
        for key, value in _lines(file, group):
            point = EntryPoint(key, value, f"{name} {version}")
            if key in points:
                both = f"{points[key].distribution} and {point.distribution}"
                raise StackyardError(f"two plug-ins are called {key}: {both}",
                                     hint=f"uninstall one of them from {file.parents[1]}")  # fmt: skip
            points[key] = point
    return points


def load(group: str, name: str) -> Plugin | None:
    """The plug-in of this name; None if no distribution offers it. Not for built-in names.

    Raises:
        StackyardError: it cannot be imported, or was written for another version of the protocol.
    """
    point = installed(group).get(name)
    if point is None:
        return None
    module, _, attribute = point.value.partition(":")
    try:
        with _own_path():
            __import__(module)
        target: Any = sys.modules[module]
        version = getattr(target, "STACKYARD_PROTOCOL", None)
        for part in attribute.split("."):
            target = getattr(target, part)
    except Exception as error:
        raise StackyardError(f"cannot load the plug-in {point}: {type(error).__name__}: {error}",
                             hint="install another version of it, or uninstall it") from error  # fmt: skip
    if version != PROTOCOL:
        has = "does not say its protocol" if version is None else f"has protocol {version}"
        raise StackyardError(f"cannot use the plug-in {point}: its module {module} {has}, not {PROTOCOL}",
                             hint=f"install a version of it with STACKYARD_PROTOCOL = {PROTOCOL}")  # fmt: skip
    return Plugin(target, point)


_FOUND: dict[tuple[str, str], Plugin] = {}


def find(group: str, name: str, known: Mapping[str, T], kind: Any, what: str, hint: str) -> T:
    """The object of this name: built-in, else from a plug-in.

    Args:
        known: the built-in objects.
        kind: its required class or protocol.
        what: the noun for messages: ``launcher``.
        hint: the hint if it is not found; ``{}`` is the list of the known ones.

    Raises:
        InputError: no object has this name.
        StackyardError: the plug-in cannot be used.
    """
    loaded: T = known[name] if name in known else find_plugin(group, name, known, kind, what, hint).object
    return loaded


def find_plugin(
    group: str, name: str, known: Iterable[str], kind: Any, what: str, hint: str, where: Where | None = None
) -> Plugin:
    """The plug-in of this name, which is loaded once; as `find`, for a name that is not built-in.

    Args:
        where: the place of the name in a file.
    """
    plugin = _FOUND.get((group, name)) or load(group, name)
    if plugin is None:
        names = (*known, *installed(group))
        hints = (
            did_you_mean(name, names),
            hint.format(", ".join(names)) if names else "install the plug-in that has it",
        )
        raise InputError(f"no such {what}: {name}", where=where, hint=" ".join(filter(None, hints)))
    if not isinstance(plugin.object, kind) or getattr(plugin.object, "name", name) != name:
        message = f"cannot use the plug-in {plugin.source}: {plugin.source.value} is not a {what} of this name"
        raise StackyardError(message, hint="report it to its authors")
    if missing := _missing(plugin.object):
        raise StackyardError(f"cannot use the plug-in {plugin.source}: {plugin.source.value} does not set {missing}",
                             hint="report it to its authors")  # fmt: skip
    _FOUND[group, name] = plugin
    return plugin


def _missing(instance: object) -> str:
    """The attributes that Stackyard's classes require of an object and that it lacks."""
    import inspect  # late: only for a plug-in

    classes = [cls for cls in type(instance).__mro__ if cls.__module__.startswith("stackyard.")]
    declared = dict.fromkeys(name for cls in classes for name in inspect.get_annotations(cls))
    return ", ".join(name for name in declared if not hasattr(instance, name))


def used() -> dict[str, str]:
    """The plug-ins in use, each with its distribution and version, for records."""
    return {f"{group.partition('.')[2]} {name}": plugin.source.distribution for (group, name), plugin in _FOUND.items()}


@contextlib.contextmanager
def calling(plugin: Plugin, what: str) -> Iterator[None]:
    """Within a ``with`` block, report a plug-in's exception with its name, distribution and version."""
    try:
        yield
    except StackyardError:
        raise
    except Exception as error:
        raise StackyardError(f"{what} failed in the plug-in {plugin.source}: {type(error).__name__}: {error}",
                             hint="report it to its authors; --debug prints the traceback") from error  # fmt: skip


def _lines(file: Path, group: str) -> Iterator[tuple[str, str]]:
    """The entries of one group: ``name = module:attribute``, without extras and comments."""
    section = ""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StackyardError(f"cannot read the entry points of {file.parent.name}: {error}") from error
    for line in text.splitlines():
        bare = line.partition("#")[0].strip()
        if bare.startswith("["):
            section = bare.strip("[] ")
        elif section == group and "=" in bare:
            key, _, value = bare.partition("=")
            yield key.strip(), value.partition("[")[0].strip()


@contextlib.contextmanager
def _own_path() -> Iterator[None]:
    """Import without the directories of PYTHONPATH, which may have a module of the same name."""
    before = list(sys.path)
    foreign = {Path(path).absolute() for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path}
    sys.path[:] = [path for path in before if Path(path).absolute() not in foreign - {*directories()}]
    try:
        yield
    finally:
        sys.path[:] = before
