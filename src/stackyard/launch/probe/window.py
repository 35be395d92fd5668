"""What the traces of all frameworks share: when a trace begins and ends, and where its files go.

A trace is either of steps ``[first, last)`` or of some seconds. Its `Tool` (torch's profiler, TensorFlow's ...) is
started and stopped by a `Window`, which counts the steps. Nothing here raises into the traced program: what fails is
said once on stderr, the trace ends, and the program goes on.

Loaded by path in the user's Python, from 3.6 on; standard library alone.
"""
# ruff: noqa: PTH103, PTH108, PTH110, PTH118, PTH119, SIM105

import ctypes
import gc
import gzip
import importlib.util
import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Trace:
    """What a trace file offers to the probe: `start`, `stop` and `running`.

    Args:
        make: makes a tool and its counter of steps, or None, from options; raises ValueError if they cannot be met.
    """

    def __init__(self, name: str, make: "Callable[[dict[str, Any]], tuple[Any, Any]]") -> None:
        self.name, self.make = name, make
        self.window = None  # type: Any

    def start(self, options: "dict[str, Any]") -> None:
        """Trace with these options. Raises ValueError if that is not possible."""
        if self.running():
            raise ValueError(f"{self.name}: this process is being traced already")
        self.window = None
        if "ranks" in options and os.environ.get("RANK", "") not in map(str, options["ranks"]):
            return  # one variable for all ranks of a task, and for what starts them
        tool, counter = self.make(options)
        asked = is_asked() and bool(options.get("steps"))
        if asked and counter is not None:
            counter.check()
        self.window = Window(tool, options, running=asked)
        _on_warning(self.stop)
        self.window.open(counter)

    def stop(self) -> "dict[str, Any]":
        """End the trace; what was written."""
        return {"files": [], "steps": None, "error": ""} if self.window is None else dict(self.window.stop())

    def running(self) -> bool:
        """Whether it waits for its first step or records."""
        return self.window is not None and self.window.state != "ended"


def _on_warning(end: "Callable[[], Any]") -> None:
    """End the trace with the signal that the job's time is about to end, unless the program handles it; it goes on."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda _number, _frame: end())


WAIT_S = 300.0
"""How long a request waits for the main thread, which may write a trace of a gigabyte."""


class Window:
    """From when to when a tool records, in steps or in seconds.

    Args:
        tool: has `name`; ``begin(step)``, ``mark(step)`` when another step begins, ``end() -> list of files``,
            ``drop()`` what was recorded; and `warm_up`, how many steps before the first one it needs (torch: 1).
        running: the program's steps have begun before: the trace begins with the first whole one, which is number 0.
    """

    def __init__(self, tool: "Any", options: "dict[str, Any]", running: bool = False) -> None:
        self.tool, self.seconds, self.delay = (
            tool,
            options.get("duration") or options.get("seconds"),
            options.get("delay") or 0,
        )
        self.steps = options.get("steps")
        self.first, self.last = self.steps or (0, sys.maxsize)  # type: int, int
        self.count = -1 - tool.warm_up if running and self.steps else 0
        self.counter = None  # type: Any
        self.state, self.error, self.files = "waiting", "", []  # type: str, str, list[str]
        self.pid, self.lock = os.getpid(), threading.RLock()

    def open(self, counter: "Any") -> None:
        """Begin now, after the delay, or with a step that `counter` finds: ``attach(window)``, `detach`, `advice`."""
        self.counter = counter
        if counter is not None:
            counter.attach(self)
        if self.steps:
            if self.count >= max(0, self.first - self.tool.warm_up):
                self._begin()
        elif self.delay:
            later(self.delay, lambda: in_main_thread(self._begin))
        else:
            in_main_thread(self._begin)

    def _begin(self) -> None:
        with self.lock:  # until it has begun, which takes seconds at first, it cannot end
            if self.state == "waiting" and self.pid == os.getpid():
                self._try(self.tool.begin, self.count)
                self.state = "ended" if self.error else "recording"
                if self.seconds and not self.error:
                    later(self.seconds, self.stop)

    def restart(self) -> None:
        """What was counted so far were batches of data that no step of training used."""
        with self.lock:
            if self.state == "recording":
                self.state = "waiting"
                self._try(self.tool.drop)
            if self.state == "waiting":
                self.count = 0

    def boundary(self) -> None:
        """A step has ended and the next one begins; called in the thread that trains."""
        if self.pid != os.getpid():
            return
        with self.lock:
            self.count += 1
            if self.state == "waiting" and self.steps and self.count >= self.first - self.tool.warm_up:
                self._begin()
            elif self.state == "recording" and self.count >= self.last:
                self.close()
            elif self.state == "recording":
                self._try(self.tool.mark, self.count)

    def close(self) -> "dict[str, Any]":
        """End the trace and write it, once. Returns what was written: ``files``, ``steps``, ``error``."""
        with self.lock:
            if self.state != "ended" and self.pid == os.getpid():
                was, self.state = self.state, "ended"
                if self.counter is not None:
                    self._try(self.counter.detach)
                if was == "recording":
                    self._try(self._end)
                elif self.steps:
                    why = getattr(self.counter, "advice", "") if self.count <= 0 else "trace earlier ones"
                    self._say(f"the program ended after {max(0, self.count)} steps, before step {self.first}: {why}")
                else:
                    self._say("its time came after the end, or the main thread was busy outside Python")
        steps = [max(0, self.first), min(self.count, self.last)] if self.files and self.steps else None
        return {"files": self.files, "steps": steps, "error": self.error}

    def stop(self) -> "dict[str, Any]":
        """`close` in the main thread, waiting for it, unless any thread will do; for the probe's own thread."""
        if getattr(self.tool, "any_thread", False):
            return self.close()
        ended = threading.Event()

        def end() -> None:
            self.close()
            ended.set()

        in_main_thread(end)
        if not ended.wait(WAIT_S):
            return {"files": [], "steps": None, "error": "the main thread has been busy outside Python for 300 s"}
        return self.close()

    def _end(self) -> None:
        self.files = self.tool.end()

    def _try(self, function: "Callable[..., Any]", *values: "Any") -> None:
        """Call a part of the tool; what it raises ends the trace, not the program."""
        try:
            function(*values)
        except Exception as error:
            self.state = "ended"
            self._say(f"{getattr(error, 'strerror', None) or error} ({type(error).__name__})")

    def _say(self, why: str) -> None:
        self.error = f"no {self.tool.name} trace: {why}"
        if sys.__stderr__ is not None:
            sys.__stderr__.write(f"stackyard: {self.error}\n")
            sys.__stderr__.flush()


def later(seconds: float, function: "Callable[[], Any]") -> None:
    """Call it in some seconds, in a thread."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_pending = {}  # type: dict[int, Any]
_numbers = itertools.count()


def in_main_thread(function: "Callable[[], Any]") -> None:
    """Call it at once in the main thread, else there between two instructions of Python (Py_AddPendingCall).

    Profilers of a thread must be started and stopped in it.
    """
    if threading.current_thread() is threading.main_thread():
        function()
        return
    number = next(_numbers)

    def call(_: "Any") -> int:
        _pending.pop(number)
        function()
        return 0

    _pending[number] = _CALL(call)
    while ctypes.pythonapi.Py_AddPendingCall(_pending[number], None):  # its queue is full
        threading.Event().wait(0.05)


class AfterImport:
    """On `sys.meta_path`, once: calls a function with a module that has just been imported, or now if it has been."""

    def __init__(self, name: str, function: "Callable[[Any], None]") -> None:
        self.name, self.function = name, function
        if name in sys.modules:
            function(sys.modules[name])
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """The module's own spec, with a loader that tells of it."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run is not None:

            def exec_module(module: "Any") -> None:
                run(module)
                self.function(module)

            try:
                spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
            except AttributeError:  # it is compiled, and accepts none: the module works, and is not known here
                pass
        return spec


def is_asked() -> bool:
    """Whether a running program is to be traced now: the probe's own thread is none of `threading`."""
    return isinstance(threading.current_thread(), threading._DummyThread)


def is_held(*kinds: type) -> bool:
    """Whether the program has an object of one of these classes now; no object's own code is called."""
    return any(issubclass(type(one), kinds) for one in gc.get_objects())


ROOM = 8 << 30


def own_directory(other: str) -> str:
    """An empty directory for what a tool writes: on the node, where it is removed at the run's end at the latest.

    With less than 8 GiB free there, which is often memory, it is a hidden one in `other`.
    """
    node = os.environ.get("STACKYARD_DIR") or tempfile.gettempdir()
    place = os.statvfs(node)
    if place.f_bavail * place.f_frsize < ROOM:
        node = other
    return tempfile.mkdtemp(prefix=".stackyard-trace-", dir=node)


class XlaFiles:
    """What XLA's profiler writes, kept as TensorBoard expects it, but named by rank.

    It names ``plugins/profile/<time>/<host>.xplane.pb``: two ranks of a node would overwrite each other's, and each
    rank would be a run of its own. Its trace events begin at 0; the time of the beginning is added as Kineto does it.
    """

    def __init__(self, options: "dict[str, Any]") -> None:
        self.options, self.directory, self.began_ns = options, "", 0

    def begin(self) -> str:
        """The directory for the profiler, which begins now."""
        self.directory, self.began_ns = own_directory(self.options["output_dir"]), int(time.time() * 1e9)
        return self.directory

    def drop(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def keep(self) -> "list[str]":
        """Give the files their names. Raises OSError: a full disk."""
        target = os.path.join(self.options["output_dir"], "plugins", "profile", "stackyard")
        files = []
        try:
            found = [os.path.join(root, name) for root, _, names in os.walk(self.directory) for name in sorted(names)]
            for path in found:
                end = next((end for end in (".xplane.pb", ".trace.json.gz") if path.endswith(end)), "")
                if not end:
                    continue
                if end == ".trace.json.gz":
                    _add_time(path, self.began_ns)
                part = part_of(target, os.path.basename(path))
                try:
                    shutil.copyfile(path, part)
                    files.append(keep(part, target, rank_name(self.options["rank"]) + end))
                finally:
                    remove(part)
        finally:
            self.drop()
        return files


def _add_time(path: str, began_ns: int) -> None:
    with gzip.open(path) as packed:
        text = packed.read().rstrip()
    with gzip.open(path, "wb", 4) as packed:
        packed.write(text[:-1] + b',"baseTimeNanoseconds":%d}' % began_ns)


def new_file(directory: str, name: str) -> str:
    """A path for a file of this rank, ``name``; ``rank-00000-2.x`` if another process of the rank has written one."""
    os.makedirs(directory, exist_ok=True)
    stem, dot, end = name.partition(".")
    names = (name if number == 1 else f"{stem}-{number}{dot}{end}" for number in itertools.count(1))
    return next(path for path in (os.path.join(directory, name) for name in names) if not os.path.exists(path))


def rank_name(rank: int) -> str:
    """``rank-00003``."""
    return f"rank-{rank:05d}"


def keep(part: str, directory: str, name: str) -> str:
    """Give a written file its name, when it is complete and on the disk."""
    path = new_file(directory, name)
    os.replace(part, path)
    return path


def part_of(directory: str, name: str) -> str:
    """Where a file is written before `keep`: hidden, and with an end that no reader of traces looks for."""
    os.makedirs(directory, exist_ok=True)
    return os.path.join(directory, f".{name}.{os.getpid()}.part")


def remove(path: str) -> None:
    """Remove a file that may not exist."""
    if os.path.lexists(path):
        os.unlink(path)
