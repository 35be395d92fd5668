"""Lines of logs that are records of JSON: of container engines (Docker's json-file) and of structured loggers. Pure."""

from __future__ import annotations

import json

_TEXTS = ("log", "message", "msg", "event")
_STACKS = ("exc_info", "exception", "stack_trace", "traceback", "error")
_LEVELS = ("levelname", "level", "severity")


def unpacked(text: str) -> list[str]:
    """The lines in a record: its level and message, then its stack; the text itself if it is not a record."""
    if not text.startswith('{"') or not text.rstrip().endswith("}"):
        return [text]
    try:
        record = json.loads(text)
    except ValueError:
        return [text]
    told = next((record[key] for key in _TEXTS if isinstance(record.get(key), str)), None)
    if told is None:
        return [text]
    level = next((record[key] for key in _LEVELS if isinstance(record.get(key), str)), "")
    stack = next((record[key] for key in _STACKS if isinstance(record.get(key), str)), "")
    return [*(f"{level.upper()}: {told}" if level else told).splitlines(), *stack.splitlines()] or [text]
