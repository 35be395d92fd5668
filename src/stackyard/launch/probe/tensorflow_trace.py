"""TensorFlow's trace of an unchanged program, by its own profiler: ``plugins/profile/stackyard/rank-00000.xplane.pb``.

TensorBoard's profile plugin (xprof) shows each rank as a host. A step is a batch of Keras' fit, or else an element
that the program takes from a tf.data iterator. Loaded by path in the user's Python; TensorFlow 2.2 or newer.
"""

import importlib
import sys

import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

window = sys.modules["stackyard_probe"].window()  # type: Any

NO_STEPS = (
    "it neither calls Keras' fit nor iterates over a tf.data.Dataset: no steps; trace seconds instead (duration=10)"
)
KERAS = ("keras.src.callbacks.callback_list", "keras.src.callbacks", "keras.callbacks")
"""Where CallbackList is: Keras 3, Keras 2.13 to 2.15, and older ones."""


def _iterator() -> "Any":
    return importlib.import_module("tensorflow.python.data.ops.iterator_ops").OwnedIterator


class Steps:
    """Finds where steps end."""

    advice = NO_STEPS

    def __init__(self) -> None:
        self.window, self.lists, self.by_keras, self.taken = None, [], False, False  # type: Any, list[Any], bool, bool
        self.next = None  # type: Any

    def check(self) -> None:
        """Raise ValueError if the running program has no iterator of tf.data."""
        if not window.is_held(_iterator()):
            raise ValueError(f"steps: {NO_STEPS}")

    def attach(self, window_of_trace: "Any") -> None:
        """Tell it the end of every step."""
        self.window = window_of_trace
        self.next = original = _iterator().__next__

        def following(iterator: "Any") -> "Any":
            if self.taken and not self.by_keras and tf.executing_eagerly():
                self.window.boundary()
            self.taken = False
            element = original(iterator)
            self.taken = True
            return element

        _iterator().__next__ = following
        for name in KERAS:
            window.AfterImport(name, self.keras)

    def keras(self, module: "Any") -> None:
        """Keras has been imported: count the batches of fit."""
        kind = getattr(module, "CallbackList", None)
        if kind is None or self.next is None or any(kind is one for one, _ in self.lists):
            return
        original = kind.on_train_batch_end
        self.lists.append((kind, original))

        def ended(callbacks: "Any", *values: "Any", **named: "Any") -> "Any":
            result = original(callbacks, *values, **named)
            if not self.by_keras:
                self.by_keras = True
                self.window.restart()
            self.window.boundary()
            return result

        kind.on_train_batch_end = ended

    def detach(self) -> None:
        """Leave no trace in TensorFlow."""
        if self.next is not None:
            _iterator().__next__, self.next = self.next, None
        for kind, original in self.lists:
            kind.on_train_batch_end = original
        self.lists = []


class Tool:
    """tf.profiler.experimental."""

    name, warm_up, any_thread = "tensorflow", 0, True

    def __init__(self, options: "dict[str, Any]") -> None:
        self.files, self.step = window.XlaFiles(options), None  # type: Any, Any

    def begin(self, step: int) -> None:
        """Record from this step on."""
        tf.profiler.experimental.start(self.files.begin())
        self.mark(step)

    def mark(self, step: int) -> None:
        """Another step, as the profiler's step view expects it."""
        if self.step is not None:
            self.step.__exit__(None, None, None)
        self.step = tf.profiler.experimental.Trace("train", step_num=step, _r=1)
        self.step.__enter__()

    def drop(self) -> None:
        """Stop, and forget what was recorded."""
        self.step = self.step.__exit__(None, None, None)
        tf.profiler.experimental.stop(save=False)
        self.files.drop()

    def end(self) -> "list[str]":
        """Stop, and keep the trace."""
        if self.step is not None:
            self.step.__exit__(None, None, None)
        tf.profiler.experimental.stop()
        return list(self.files.keep())


_trace = window.Trace("tensorflow", lambda options: (Tool(options), Steps()))
start, stop, running = _trace.start, _trace.stop, _trace.running
ends_itself = True  # after its seconds
