"""What a command line asks to measure."""

from __future__ import annotations

import itertools
import re
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.hints import did_you_mean
from stackyard.launch.api.collectives import KINDS, CollectivesRequest

_SIZE = re.compile(r"([1-9][0-9]{0,15})([KMG]?)I?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SMALLEST = 4
"""Bytes of one element."""


def collectives_request(operations: str, sizes: str, **more: Any) -> CollectivesRequest:
    """The request for ``all_reduce,broadcast`` (empty: all) and ``8:1G`` or ``8:1G:4``; `more` are its other fields.

    Raises:
        InputError: an unknown operation, or not such sizes.
    """
    names = tuple(dict.fromkeys(filter(None, operations.replace("-", "_").split(",")))) or tuple(KINDS)
    for name in names:
        if name not in KINDS:
            hint = did_you_mean(name, KINDS) or f"use some of {','.join(KINDS)}"
            raise InputError(f"--ops {name}: no such operation", hint=hint)
    first, last, factor = _range(sizes)
    chosen = itertools.takewhile(lambda size: size <= last, (first * factor**step for step in itertools.count()))
    return CollectivesRequest(names, tuple(chosen), factor, **more)


def _range(text: str) -> tuple[int, int, int]:
    first, _, rest = text.partition(":")
    last, _, factor = rest.partition(":")
    matches = [_SIZE.fullmatch(word) for word in (first, last or first)]
    values = [int(match[1]) * _UNITS[match[2].upper()] for match in matches if match]
    step = int(factor) if factor.isdecimal() and len(factor) < 6 else 0 if factor else 2
    if len(values) < 2 or step < 2 or values[1] < values[0] or values[0] < SMALLEST:
        hint = "write MIN:MAX or MIN:MAX:FACTOR in bytes, K, M or G: --sizes 8:1G, --sizes 1M:1G:4"
        raise InputError(f"--sizes {text}: not a range of sizes of at least {SMALLEST} bytes", hint=hint)
    return values[0], values[1], step
