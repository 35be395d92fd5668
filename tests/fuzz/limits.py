"""The bounds of one read: no traceback, at most five seconds of a processor, at most 500 MB more than before."""

from __future__ import annotations

import gc
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

CPU_S = 5.0
MEMORY = 500_000_000


class TooSlow(BaseException):
    """A read used more than `CPU_S`; not an Exception, so that no handler of the program takes it for its own."""


@contextmanager
def bounded(cpu_s: float = CPU_S, memory: int = MEMORY) -> Iterator[None]:
    """Raise TooSlow after `cpu_s` seconds of processor time, MemoryError where `memory` more bytes do not suffice."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    former = signal.signal(signal.SIGPROF, _too_slow)
    gc.freeze()  # the collector looks at what the read makes, as in a process of its own, and not at a fuzzer's past
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + memory, before[1]))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        gc.collect()
        gc.unfreeze()
        signal.signal(signal.SIGPROF, former)


def _too_slow(_: int, frame: FrameType | None) -> None:
    raise TooSlow(f"more than {CPU_S:g} s of processor time")


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, within the bounds."""
    with bounded():
        return call()
