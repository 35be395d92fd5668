"""Every allocation of an unchanged program, by memray: ``rank-00000.bin``, for ``memray flamegraph`` and the like.

Loaded by path in the user's Python at the start of the program.
"""

import sys

import memray  # type: ignore[import-not-found, unused-ignore]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

window = sys.modules["stackyard_probe"].window()  # type: Any


class Tool:
    """memray.Tracker; the file is written as the program goes on, and what is there after a kill can be read."""

    name, warm_up, any_thread = "memray", 0, False

    def __init__(self, options: "dict[str, Any]") -> None:
        self.options, self.path, self.tracker = options, "", None  # type: dict[str, Any], str, Any

    def begin(self, _: int) -> None:
        """Record from now on."""
        self.path = window.new_file(self.options["output_dir"], window.rank_name(self.options["rank"]) + ".bin")
        self.tracker = memray.Tracker(self.path, native_traces=bool(self.options.get("native")))
        self.tracker.__enter__()

    def mark(self, _: int) -> None:
        """It knows no steps."""

    def end(self) -> "list[str]":
        """Stop, and close the file."""
        self.tracker.__exit__(None, None, None)
        return [self.path]


def make(options: "dict[str, Any]") -> "tuple[Any, Any]":
    """The tool; nothing counts steps. Raises ValueError if they are asked for."""
    if options.get("steps"):
        raise ValueError("steps: memray records seconds only; give a delay and a duration instead")
    return Tool(options), None


_trace = window.Trace("memray", make)
start, stop, running = _trace.start, _trace.stop, _trace.running
ends_itself = True  # after its seconds
