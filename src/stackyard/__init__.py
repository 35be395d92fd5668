"""Stackyard turns one declarative file into a deep-learning software stack that a cluster can use.

From Python, jobs are started with `launch`, `submit` and `Executor`, and found with `runs` and `find_run`
(docs/howto/from-python.md), which are imported when they are first used. This module imports
nothing, since every command waits for it, and runs on Python 3.6, since programs on nodes may import it.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    _PLACES = {
        "Executor": "executor", "Future": "executor", "RankFailed": "failures", "RemoteTraceback": "failures",
        "Run": "handles", "RunFailed": "failures", "find_run": "calls", "runs": "calls", "submit": "calls",
    }  # fmt: skip

    def __getattr__(name):
        """A function or class of the Python API. `launch` is the package of this name, which can be called."""
        from importlib import import_module

        if name == "launch":
            return import_module("stackyard.launch")
        if name not in _PLACES:
            raise AttributeError("module 'stackyard' has no attribute %r" % name)  # noqa: UP031
        return getattr(import_module("stackyard.launch.api." + _PLACES[name]), name)

    def __dir__():
        return sorted([*globals(), "launch", *_PLACES])
