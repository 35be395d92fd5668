"""The allowed combinations of payload, origin and base; any other is refused with a reason.

Each allowed combination is a row of `ALLOWED`. A new payload or origin is refused everywhere until it has one.
"""

from __future__ import annotations

from typing import Literal

FormKind = Literal["prefix", "squashfs", "container"]
OriginKind = Literal["built", "adopted", "wrapped"]
Cell = tuple[FormKind, OriginKind, bool]
"""A payload, an origin, and whether it is a layer on a base."""

ALLOWED: frozenset[Cell] = frozenset({
    ("prefix", "built", False),
    ("prefix", "built", True),
    ("squashfs", "built", False),
    ("prefix", "adopted", False),
    ("squashfs", "adopted", False),
    ("container", "wrapped", False),
})  # fmt: skip
_REASONS: tuple[tuple[FormKind | None, OriginKind | None, bool | None, str], ...] = (
    (None, "wrapped", True, "`base` and `wrap` exclude each other"),
    (None, "adopted", True, "an adopted prefix is complete in itself: it is not a layer on a base"),
    ("container", None, None, "a container holds a wrapped image"),
    (None, "wrapped", None, "a wrapped image is kept as a container"),
    ("squashfs", None, True, "a stack with a `base:` has files of its own, not an image"),
)
"""Why the others are refused: the first row that fits, where None fits all."""


def refusal(payload: FormKind, origin: OriginKind, *, on_base: bool) -> str:
    """Why a revision cannot be of this kind; empty: it can."""
    cell = (payload, origin, on_base)
    if cell in ALLOWED:
        return ""
    rows = ((row[:3], row[3]) for row in _REASONS)
    fitting = (why for pattern, why in rows if all(w in (None, g) for w, g in zip(pattern, cell, strict=True)))
    return next(fitting, f"{payload}, {origin}{', on a base' if on_base else ''}: not supported")


def require(payload: FormKind, origin: OriginKind, *, on_base: bool) -> None:
    """Raises ValueError: a revision cannot be of this kind."""
    if why := refusal(payload, origin, on_base=on_base):
        raise ValueError(why)
