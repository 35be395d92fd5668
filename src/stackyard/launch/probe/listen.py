"""The half of the probe that answers requests and runs traces, in processes that have imported a framework.

A thread waits on the process's UNIX socket; it is not one of `threading`, so that programs that count their threads see
none. Of the standard library it imports what starts quickly: the parts in C. Python 3.6 or newer; see the package.
"""
# ruff: noqa: PTH101, PTH108, PTH110, PTH118, PTH123, SIM105

import _signal  # type: ignore[import-not-found]
import _socket
import _thread
import atexit
import os
import select
import sys
import time
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TRACE, FRAMEWORKS = "STACKYARD_TRACE_", ("torch", "tensorflow", "jax")
LINE_LIMIT, READ_S, MAIN_S = 1 << 16, 5.0, 1.0
TERM = 15


class Probe:
    """The traces of this process, and its socket."""

    def __init__(self, here: "str") -> "None":
        self.here, self.pid, self.worker = here, os.getpid(), _is_worker()
        self.rank = int(os.environ.get("RANK") or os.environ.get("STACKYARD_TASK") or 0)
        self.frameworks = []  # type: list[str]
        self.traces = {}  # type: dict[str, Any]
        self.results = {}  # type: dict[str, dict[str, Any]]
        self.until = {}  # type: dict[str, float]
        self.masks = {}  # type: dict[int, Any]
        self.listening = self.ending = False
        self.woken, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    # in the program's own thread

    def imported(self, framework: "str") -> "None":
        """A framework has been imported, or (empty) the program has just begun."""
        if os.getpid() != self.pid or framework in self.frameworks:
            return
        self.frameworks += [framework] if framework else []
        if framework == "torch" and "STACKYARD_PROBE_SIGNAL" in os.environ:
            _record(getattr(sys.modules["torch"], "__version__", ""))
        wanted = [name[len(TRACE) :].lower() for name in os.environ if name.startswith(TRACE) and not self.worker]
        for name in wanted:
            if name == framework or (not framework and name not in FRAMEWORKS):
                self._try(self._begin, name)
        if not self.listening:
            self.listening = True
            atexit.register(self.end)
            _thread.start_new_thread(self._serve, (_bound(self.here, f"{self.pid}.sock"),))

    def _begin(self, name: "str") -> "None":
        import json

        self.start(name, json.loads(os.environ[TRACE + name.upper()]))
        if _signal.getsignal(TERM) != _signal.SIG_DFL:
            return
        try:
            _signal.signal(TERM, self.terminated)
            if hasattr(os, "register_at_fork"):  # Python 3.7: forked processes share what wakes the probe
                before = _signal.set_wakeup_fd(self.wake)
                if before != -1:
                    _signal.set_wakeup_fd(before)
                os.register_at_fork(before=self._fork, after_in_parent=self._unmask, after_in_child=self._forked)
        except ValueError:  # not the main thread
            pass

    def _fork(self) -> "None":
        """Hold SIGTERM back until the new process has left the descriptor that wakes this one."""
        self.masks[_thread.get_ident()] = _signal.pthread_sigmask(_signal.SIG_BLOCK, [TERM])

    def _unmask(self) -> "None":
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.masks.pop(_thread.get_ident(), ()))

    def _forked(self) -> "None":
        """In a forked process: its SIGTERM is not this one's."""
        if _signal.getsignal(TERM) == self.terminated:
            _signal.signal(TERM, _signal.SIG_DFL)
        before = _signal.set_wakeup_fd(-1)
        if before not in (-1, self.wake):
            _signal.set_wakeup_fd(before)
        self._unmask()

    def terminated(self, number: "int", _frame: "object") -> "None":
        """The handler of SIGTERM: as without one, but for the traces."""
        self.end()
        _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def end(self) -> "None":
        """Stop all traces and remove the socket."""
        self.ending = True
        if os.getpid() == self.pid:
            for name in list(self.traces):
                self._try(self.stop, name)
            _remove(os.path.join(self.here, f"{self.pid}.sock"))

    def _try(self, what: "Any", name: "str") -> "None":
        try:
            what(name)
        except Exception as error:
            sys.stderr.write(f"stackyard: trace {name}: {_said(error)}\n")

    # traces

    def start(self, name: "str", options: "dict[str, Any]") -> "dict[str, Any]":
        """Load a trace and start it."""
        if name in self.traces and self._runs(name):
            raise ValueError(f"{name} is traced already")
        trace = self.traces.get(name) or self.trace(name)
        trace.start(dict({"rank": self.rank}, **options))
        self.results.pop(name, None)
        self.traces[name] = trace
        if options.get("seconds") and not getattr(trace, "ends_itself", False):
            self.until[name] = time.monotonic() + float(options["seconds"])
        return {}

    def trace(self, name: "str") -> "Any":
        """Load a trace. Raises ValueError if there is none of this name."""
        if not name.isidentifier() or not os.path.exists(os.path.join(self.here, name + "_trace.py")):
            raise ValueError(f"no such trace: {name}")
        return self.load(name + "_trace")

    def load(self, name: "str") -> "Any":
        """Run a file of the probe as a module of its own."""
        module = type(sys)("stackyard_" + name)
        SourceFileLoader(module.__name__, os.path.join(self.here, name + ".py")).exec_module(module)
        return module

    def stop(self, name: "str") -> "dict[str, Any]":
        """Stop a trace; what it has written."""
        self.until.pop(name, None)
        if name not in self.results:
            self.results[name] = self.traces[name].stop()
        return self.results[name]

    def _runs(self, name: "str") -> "bool":
        return name not in self.results and bool(getattr(self.traces[name], "running", lambda: True)())

    # in the probe's thread

    def _serve(self, address: "Any") -> "None":
        waits = select.poll()
        waits.register(address, select.POLLIN)
        waits.register(self.woken, select.POLLIN)
        while os.getpid() == self.pid:
            now = time.monotonic()
            for name in [name for name, until in list(self.until.items()) if until <= now]:
                self._try(self.stop, name)
            left = [max(0.0, until - now) for until in list(self.until.values())]
            for number, _ in waits.poll(1000 * min(left) if left else None):
                if number == address.fileno():
                    self._answer(_socket.socket(fileno=address._accept()[0]))
                elif TERM in os.read(self.woken, 64):
                    self._terminate()

    def _terminate(self) -> "None":
        """SIGTERM has come; the program's thread may wait in C, for ever."""
        until = time.monotonic() + MAIN_S
        while time.monotonic() < until and not self.ending:
            time.sleep(0.05)
        if not self.ending:
            self.end()
            if _signal.getsignal(TERM) == self.terminated:
                os._exit(128 + TERM)

    def _answer(self, guest: "Any") -> "None":
        """Serve one request; whatever it brings, the program goes on."""
        import json

        try:
            guest.settimeout(READ_S)
            line = b""
            while not line.endswith(b"\n") and len(line) < LINE_LIMIT:
                line += guest.recv(LINE_LIMIT) or b"\n"
            answer = dict(self._do(json.loads(line.decode())), ok=True)
        except Exception as error:
            answer = {"ok": False, "error": _said(error)}
        try:
            guest.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass
        finally:
            guest.close()

    def _do(self, request: "dict[str, Any]") -> "dict[str, Any]":
        what = request["do"]
        if what == "state":
            traces = {n: {"running": self._runs(n), "result": self.results.get(n)} for n in list(self.traces)}
            return {"pid": self.pid, "rank": self.rank, "worker": self.worker, "frameworks": self.frameworks,
                    "traces": traces}  # fmt: skip
        if what == "start":
            return self.start(request["trace"], request.get("options", {}))
        if what == "stop":
            names = [request["trace"]] if "trace" in request else list(self.traces)
            return {"stopped": {name: self.stop(name) for name in names}}
        if what == "recorder":
            return dict(self.load("recorder").dump(request["output"], self.rank))
        raise ValueError(f"no such request: {what}")


def _is_worker() -> "bool":
    """Whether multiprocessing started this process, which has the variables of its rank."""
    with open("/proc/self/cmdline", "rb") as stream:
        words = stream.read(4096)
    return any(b"multiprocessing." + name in words for name in (b"spawn", b"forkserver", b"resource_tracker"))


def _record(version: "str") -> "None":
    """Switch PyTorch's flight recorder on where it is off by default, under the name that it had then."""
    parts = version.split(".")
    if len(parts) > 1 and parts[1].isdigit() and (parts[0], int(parts[1])) < ("2", 9):
        os.environ.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")


def _bound(here: "str", name: "str") -> "Any":
    """A listening socket in this private directory, of any length: a socket's address has 107 bytes."""
    directory = os.open(here, os.O_RDONLY)
    try:
        path = f"/proc/self/fd/{directory}/{name}"
        _remove(path + ".new")
        bound = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        bound.bind(path + ".new")
        os.chmod(path + ".new", 0o600)
        bound.listen(8)
        os.rename(path + ".new", path)  # it answers from now on
        return bound
    finally:
        os.close(directory)


def _remove(path: "str") -> "None":
    try:
        os.unlink(path)
    except OSError:
        pass


def _said(error: "Exception") -> "str":
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


_probe, _window = [], []  # type: list[Probe], list[Any]


def get(here: "str") -> "Probe":
    """The probe of this process; `here` is the directory of its files."""
    if not _probe:
        _probe.append(Probe(here))
    return _probe[0]


def window() -> "Any":
    """What the traces share, window.py, once the first of them needs it."""
    if not _window:
        _window.append(_probe[0].load("window"))
    return _window[0]
