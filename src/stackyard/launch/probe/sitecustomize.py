"""Python runs this at its start, since its directory is on PYTHONPATH; see the package.

It has to be quick and harmless in every Python process of a rank, of any version: even Python 2 can parse it.
"""
# ruff: noqa: PTH100, PTH108, PTH118, PTH120, SIM105, UP004, UP031

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments

HERE = os.path.dirname(os.path.abspath(__file__))
FRAMEWORKS = ("torch", "tensorflow", "jax")
TRACE = "STACKYARD_TRACE_"


class AfterImport(object):
    """On `sys.meta_path`: tells the probe when a framework has been imported."""

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        """The framework's own spec, with a loader that tells of it; None for everything else."""
        if name not in FRAMEWORKS:
            return None
        spec = None  # type: Any
        for finder in sys.meta_path:
            if spec is None and finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
        run = getattr(getattr(spec, "loader", None), "exec_module", None)  # type: Any

        def exec_module(module):
            # type: (Any) -> None
            run(module)
            tell(name)

        if run is not None:
            try:
                spec.loader.exec_module = exec_module
            except AttributeError:  # it is compiled, and accepts none: the framework works, and is not traced
                pass
        return spec


def tell(framework):
    # type: (str) -> None
    """Tell the other half of the probe, which is loaded now, what has been imported; empty: nothing yet."""
    try:
        probe = sys.modules.get("stackyard_probe")
        if probe is None:
            from importlib.machinery import SourceFileLoader

            probe = sys.modules["stackyard_probe"] = type(sys)("stackyard_probe")
            SourceFileLoader("stackyard_probe", os.path.join(HERE, "listen.py")).exec_module(probe)
        probe.get(HERE).imported(framework)
    except Exception as error:
        give_up(error)


def give_up(error):
    # type: (Exception) -> None
    """Say why the probe is off in this process. The program goes on."""
    sys.stderr.write("stackyard: the probe is off in process %d: %r\n" % (os.getpid(), error))


def dump_on(number):
    # type: (int) -> None
    """Write the stacks of all threads on a signal that is not used here, into a file that only descriptors lead to.

    The agent of the node sends it, and finds the descriptor: the link of one has the name, the file its number.
    """
    import _signal  # type: ignore[import-not-found]
    import faulthandler

    if _signal.getsignal(number) == _signal.SIG_DFL:
        name = os.path.join(HERE, "%d.stacks" % os.getpid())
        out = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.unlink(name)
        os.write(out, b"fd %d\n" % out)
        faulthandler.register(number, file=out, all_threads=True)


def start_by(method):
    # type: (str) -> None
    """Set how multiprocessing starts processes, as its default: the program may choose another way, as always."""
    from multiprocessing import context

    context._default_context._default_context = context._concrete_contexts[method]  # type: ignore[attr-defined]


def begin():
    # type: () -> None
    """Switch on what the variables of this rank ask for."""
    sys.meta_path.insert(0, AfterImport())
    if os.environ.get("STACKYARD_PROBE_SIGNAL"):
        dump_on(int(os.environ["STACKYARD_PROBE_SIGNAL"]))
    if os.environ.get("STACKYARD_START_METHOD"):
        start_by(os.environ["STACKYARD_START_METHOD"])
    if any(name.startswith(TRACE) and name[len(TRACE) :].lower() not in FRAMEWORKS for name in os.environ):
        tell("")


sys.path[:] = [_place for _place in sys.path if os.path.abspath(_place or ".") != HERE]  # no import looks there again
if sys.version_info >= (3, 6) and os.environ.get("STACKYARD_PROBE") != "off":
    try:
        begin()
    except Exception as _error:
        give_up(_error)
_own = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the site's own, which this one has hidden
except ImportError as _error:
    if getattr(_error, "name", "sitecustomize") != "sitecustomize":
        raise
    if _own is not None:
        sys.modules["sitecustomize"] = _own
