"""PyTorch's trace of an unchanged program: ``rank-00000.pt.trace.json.gz``, with a ProfilerStep mark for every step.

A step ends with the outermost ``step()`` of the first optimizer that steps (Horovod's calls the one it wraps, and
LBFGS calls a closure); in a program without an optimizer, with the next batch of a DataLoader. One step before the
first is the warm-up of Kineto, which torch's own schedule would have too.

Loaded by path in the user's Python, from 3.6 on; torch 1.8.1 or newer, for steps 2.0.
"""
# ruff: noqa: PTH110, PTH118, PTH120, PTH123, PTH202

import gzip
import importlib
import json
import os
import shutil
import socket
import sys
import threading
import weakref

import torch  # type: ignore[import-not-found, unused-ignore]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

window = sys.modules["stackyard_probe"].window()  # type: Any

NO_STEPS = "it has neither an optimizer nor a DataLoader, so it has no steps; trace seconds instead (duration=10)"


class Steps:
    """Finds where steps end."""

    advice = NO_STEPS

    def __init__(self) -> None:
        self.window = None  # type: Any
        self.handles = []  # type: list[Any]
        self.owner = None  # type: Any
        self.outer = None  # type: Any
        self.thread, self.loaded, self.by_loader = 0, False, None  # type: int, bool, bool | None
        self.next = None  # type: Any

    def check(self) -> None:
        """Raise ValueError if the running program has neither an optimizer nor an iterator of a DataLoader."""
        if not window.is_held(torch.optim.Optimizer, _loader()):
            raise ValueError(f"steps: {NO_STEPS}")

    def attach(self, window: "Any") -> None:
        """Tell it the end of every step."""
        self.window, optimizer, loader = window, _optimizers(), _loader()
        if not hasattr(optimizer, "register_optimizer_step_pre_hook"):
            return
        self.handles = [
            optimizer.register_optimizer_step_pre_hook(self.before),
            optimizer.register_optimizer_step_post_hook(self.after),
        ]
        self.next = original = loader.__next__

        def following(iterator: "Any") -> "Any":
            self.batch(True)
            batch = original(iterator)
            self.batch(False)
            return batch

        loader.__next__ = following

    def detach(self) -> None:
        """Leave no trace in torch."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.leave_loader()

    def leave_loader(self) -> None:
        """Batches are no steps, or no longer."""
        if self.next is not None:
            _loader().__next__, self.next = self.next, None

    def before(self, optimizer: "Any", *_: object) -> None:
        """A call of step() begins; the outermost one is remembered by its frame, which an exception leaves too."""
        if self.outer is None or not _is_running(self.outer[1]):
            self.outer = (id(optimizer), sys._getframe(1))

    def after(self, optimizer: "Any", *_: object) -> None:
        """A call of step() ends."""
        if self.outer is None or sys._getframe(1) is not self.outer[1]:
            return
        self.outer = None
        owner = self.owner() if self.owner is not None else None
        if owner is None:
            self.owner = weakref.ref(optimizer)
            self.leave_loader()
            if self.by_loader:
                self.by_loader = self.window.restart()
        elif owner is not optimizer:
            return
        self.end_of_step()

    def batch(self, begins: bool) -> None:
        """A batch is asked for, after one was given: that step has ended."""
        if not begins:
            self.loaded = True
        elif self.loaded:
            self.loaded = False
            if self.by_loader is None:
                self.by_loader = not window.is_held(torch.optim.Optimizer)
            if self.by_loader:
                self.end_of_step()

    def end_of_step(self) -> None:
        """Count it, if it is of the thread that trains."""
        self.thread = self.thread or threading.get_ident()
        if self.thread == threading.get_ident():
            self.window.boundary()


def _optimizers() -> "Any":
    return sys.modules["torch.optim.optimizer"]  # torch.optim removes the name of the module


def _loader() -> "Any":
    return importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter


def _is_running(frame: "Any") -> bool:
    """Whether this frame is among the callers."""
    caller = sys._getframe(1)  # type: Any
    while caller is not None and caller is not frame:
        caller = caller.f_back
    return caller is frame


class Tool:
    """torch.profiler."""

    name, warm_up = "torch", 1

    def __init__(self, options: "dict[str, Any]") -> None:
        self.options, self.first = options, (options.get("steps") or [0])[0]
        self.profiler, self.any_thread = None, False  # type: Any, bool

    def begin(self, step: int) -> None:
        """Begin with this step; one before the first is the warm-up."""
        action = torch.profiler.ProfilerAction
        memory = bool(self.options.get("memory"))
        try:  # all threads, so that any can end the trace of a program that hangs, but then allocations are not in it;
            # and no Python objects of its events, which are not read
            config = torch._C._profiler._ExperimentalConfig(profile_all_threads=not memory, trace_only=True)
            self.any_thread, more = not memory, {"experimental_config": config}
        except (AttributeError, TypeError):  # an older torch
            self.any_thread, more = False, {}
        self.profiler = torch.profiler.profile(
            activities=torch.profiler.supported_activities(),
            schedule=lambda number: action.WARMUP if number < self.first else action.RECORD,
            on_trace_ready=lambda _: None,
            record_shapes=bool(self.options.get("shapes")), profile_memory=memory,
            **more,
        )  # fmt: skip
        self.profiler.step_num = step  # the numbers of the program's steps, as HTA shows them
        self.profiler.current_action = self.profiler.schedule(step)
        self.profiler.start()

    def mark(self, _: int) -> None:
        """Another ProfilerStep."""
        self.profiler.step()

    def drop(self) -> None:
        """Stop, and forget what was recorded."""
        self.profiler.stop()

    def end(self) -> "list[str]":
        """Stop, and write the trace: packed where it is kept. Raises OSError: a full disk."""
        profiler, self.profiler = self.profiler, None
        profiler.add_metadata_json(
            "stackyard", json.dumps({"rank": self.options["rank"], "host": socket.gethostname()})
        )
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            size = os.environ.get("WORLD_SIZE", "1")
            info = {"backend": "none", "rank": self.options["rank"], "world_size": int(size) if size.isdigit() else 1}
            profiler.add_metadata_json("distributedInfo", json.dumps(info))
        profiler.stop()
        name, directory = window.rank_name(self.options["rank"]) + ".pt.trace.json.gz", self.options["output_dir"]
        part = window.part_of(directory, name)
        place = window.own_directory(directory)
        try:
            _write(profiler, os.path.join(place, "raw"), part)
            return [window.keep(part, directory, name)]
        finally:
            shutil.rmtree(place, ignore_errors=True)
            window.remove(part)


def _write(profiler: "Any", raw: str, part: str) -> None:
    """Write a trace to `raw`, which torch can do once, and pack it into `part`.

    Raises OSError: it is cut off, since torch reports no full disk, or the disk is full now.
    """
    profiler.export_chrome_trace(raw)
    if not os.path.exists(raw):
        raise OSError(f"torch could not write it in {os.path.dirname(raw)}: is that disk full?")
    with open(raw, "rb") as source, open(part, "wb") as target:
        source.seek(max(0, os.path.getsize(raw) - 16))
        if not source.read().rstrip().endswith(b"}"):
            raise OSError(f"the trace is cut off in {os.path.dirname(raw)}: is that disk full?")
        source.seek(0)
        with gzip.GzipFile("", "wb", 4, target) as packed:
            shutil.copyfileobj(source, packed, 1 << 20)
        target.flush()
        os.fsync(target.fileno())


class Range:
    """Not a trace: the range in which nsys and ncu record, by cudaProfilerStart, with NVTX ranges named by step."""

    name, warm_up, any_thread = "range", 0, False

    def __init__(self) -> None:
        self.cuda = torch.cuda

    def begin(self, step: int) -> None:
        """They record from now on."""
        self.cuda.check_error(self.cuda.cudart().cudaProfilerStart())
        self.cuda.nvtx.range_push(f"step {step}")

    def mark(self, step: int) -> None:
        """Another step."""
        self.cuda.nvtx.range_pop()
        self.cuda.nvtx.range_push(f"step {step}")

    def drop(self) -> None:
        """They have recorded it already."""

    def end(self) -> "list[str]":
        """They stop, after what the GPU has been given."""
        self.cuda.synchronize()
        self.cuda.nvtx.range_pop()
        self.cuda.check_error(self.cuda.cudart().cudaProfilerStop())
        return []


def make(options: "dict[str, Any]") -> "tuple[Any, Any]":
    """The tool and the counter of steps. Raises ValueError if this torch does not report them."""
    if options.get("steps") and not hasattr(_optimizers(), "register_optimizer_step_pre_hook"):
        raise ValueError(f"steps: torch {torch.__version__} does not report them; trace seconds instead (duration=10)")
    return (Range() if options.get("range") else Tool(options)), Steps()


_trace = window.Trace("torch", make)
start, stop, running = _trace.start, _trace.stop, _trace.running
ends_itself = True  # after its seconds
