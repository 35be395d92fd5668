"""Stackyard turns one declarative file into a deep-learning software stack that a cluster can use.

From Python, stacks are published with `deploy` and looked at with `list`, `show` and `verify`
(docs/reference/python.md); jobs are started with `launch`, `submit` and `Executor`, and found with `runs` and
`find_run` (docs/howto/from-python.md). All of these are imported when they are first used. This module imports nothing
of this package, since every command waits for it, and runs on Python 3.6, since programs on nodes may import it.
"""

import sys

__version__ = "1.0.0rc1"

_JOBS = "launch.api."
_PLACES = {
    "Executor": _JOBS + "executor", "Future": _JOBS + "executor", "RankFailed": _JOBS + "failures",
    "RemoteTraceback": _JOBS + "failures", "Run": _JOBS + "handles", "RunFailed": _JOBS + "failures",
    "find_run": _JOBS + "calls", "launch": _JOBS + "calls", "runs": _JOBS + "calls", "submit": _JOBS + "calls",
    "deploy": "calls", "extend": "calls", "list": "calls", "lock": "calls", "remove": "calls", "show": "calls",
    "verify": "calls",
}  # fmt: skip
"""The functions and classes of the Python API, each with its module."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stackyard.calls import deploy as deploy
    from stackyard.calls import extend as extend
    from stackyard.calls import list as list
    from stackyard.calls import lock as lock
    from stackyard.calls import remove as remove
    from stackyard.calls import show as show
    from stackyard.calls import verify as verify
    from stackyard.launch.api.calls import find_run as find_run
    from stackyard.launch.api.calls import launch as launch
    from stackyard.launch.api.calls import runs as runs
    from stackyard.launch.api.calls import submit as submit
    from stackyard.launch.api.executor import Executor as Executor
    from stackyard.launch.api.executor import Future as Future
    from stackyard.launch.api.failures import RankFailed as RankFailed
    from stackyard.launch.api.failures import RemoteTraceback as RemoteTraceback
    from stackyard.launch.api.failures import RunFailed as RunFailed
    from stackyard.launch.api.handles import Run as Run
else:
    _ROOMS = ("deploy", "launch", "lock", "verify")

    def __getattr__(name):
        """A function or class of the Python API. Some have the name of a room, which is then a package to be called."""
        from importlib import import_module

        if name in _ROOMS:
            return import_module("stackyard." + name)
        if name not in _PLACES:
            raise AttributeError("module 'stackyard' has no attribute %r" % name)  # noqa: UP031
        return getattr(import_module("stackyard." + _PLACES[name]), name)

    def __dir__():
        return sorted([*globals(), *_PLACES])


class _CallableModule(type(sys)):  # type: ignore[misc]
    """The type of the package of a room that the Python API has a function of the same name for."""

    def __call__(self, *words: "Any", **options: "Any") -> "Any":
        """See the function."""
        from importlib import import_module

        name = self.__name__.rpartition(".")[2]
        return getattr(import_module("stackyard." + _PLACES[name]), name)(*words, **options)


def callable_room(name: str) -> None:
    """Make a room's package callable if the Python API has a function of its name, which the package hides."""
    sys.modules[name].__class__ = _CallableModule
