"""JAX's trace of an unchanged program, by its own profiler: ``plugins/profile/stackyard/rank-00000.xplane.pb``.

Beside it the same as trace events, ``rank-00000.trace.json.gz``, which Perfetto reads. JAX has no optimizer and no
loader of its own: a step is a ``jax.profiler.StepTraceAnnotation`` of the program, which training loops for JAX have;
without one, seconds are traced. Loaded by path in the user's Python.
"""

import sys
import threading

import jax  # type: ignore[import-not-found, unused-ignore]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

window = sys.modules["stackyard_probe"].window()  # type: Any

NO_STEPS = (
    "it has no jax.profiler.StepTraceAnnotation, so it has no steps; add one, or trace seconds instead (duration=10)"
)
SEEN_S = 60.0


class Steps:
    """Counts the program's own marks of steps."""

    advice = NO_STEPS

    def __init__(self) -> None:
        self.marked = threading.Event()
        self.window, self.made = None, None  # type: Any, Any

    def check(self) -> None:
        """Raise ValueError if the running program marks no step within a minute."""
        self.attach(None)
        try:
            if not self.marked.wait(SEEN_S):
                raise ValueError(f"steps: none in {SEEN_S:.0f} s: {NO_STEPS}")
        finally:
            self.detach()

    def attach(self, window_of_trace: "Any") -> None:
        """Tell it the end of every step: the next one begins."""
        self.window, self.made = window_of_trace, jax.profiler.StepTraceAnnotation.__init__
        original = self.made

        def made(annotation: "Any", *values: "Any", **named: "Any") -> None:
            if self.marked.is_set() and self.window is not None:
                self.window.boundary()  # before, since an annotation made outside of a trace is not in it
            self.marked.set()
            original(annotation, *values, **named)

        jax.profiler.StepTraceAnnotation.__init__ = made

    def detach(self) -> None:
        """Leave no trace in JAX."""
        jax.profiler.StepTraceAnnotation.__init__ = self.made


class Tool:
    """jax.profiler."""

    name, warm_up, any_thread = "jax", 0, True

    def __init__(self, options: "dict[str, Any]") -> None:
        self.files, self.ended = window.XlaFiles(options), False

    def begin(self, step: int) -> None:
        """Record from now on, or once the program uses JAX.

        The profiler would initialize JAX's backends, and then jax.distributed.initialize() fails.
        """
        bridge = sys.modules.get("jax._src.xla_bridge")
        ready = getattr(bridge, "backends_are_initialized", lambda: True)
        if ready():
            jax.profiler.start_trace(self.files.begin())
        else:
            window.later(0.1, lambda: None if self.ended else self.begin(step))

    def mark(self, step: int) -> None:
        """The program marks its steps itself."""

    def end(self) -> "list[str]":
        """Stop, and keep the trace."""
        self.ended = True
        if not self.files.directory:
            raise ValueError("the program has not used JAX")
        jax.profiler.stop_trace()
        return list(self.files.keep())


_trace = window.Trace("jax", lambda options: (Tool(options), Steps()))
start, stop, running = _trace.start, _trace.stop, _trace.running
ends_itself = True  # after its seconds
