"""Lines of a user's log as they are shown: without secrets, which programs print with their settings."""

from __future__ import annotations

import re

from stackyard.core.quoting import plain
from stackyard.core.secrets import HIDDEN, is_secret_name, redacted

MOST_SHOWN = 400
_ASSIGNED = re.compile(
    r"(?P<name>\b[\w-]*(?:key|token|secret|pass|pwd|credential|auth|cookie|sas|sig)[\w-]*)"
    r"(?P<to>[\"']?\s*[=:]\s*[\"']?|(?<=\w)\s+(?=\S))(?P<value>[^\s\"',;&)}\]]{4,})",
    re.IGNORECASE,
)
_HEX = re.compile(r"(?<![\w/.-])[0-9a-f]{40}(?![\w.-])")
"""The form of a key of Weights & Biases."""


def shown(text: str) -> str:
    """A line on one line, shortened, without secrets: logins and tokens of known forms, values of secret names."""
    return plain(redacted(_HEX.sub(HIDDEN, _ASSIGNED.sub(_hidden, text[: 4 * MOST_SHOWN]))), MOST_SHOWN)


def _hidden(match: re.Match[str]) -> str:
    name, to, value = match.group("name", "to", "value")
    is_option = match.string[: match.start()].endswith("--")
    if name.lower() == "key" or (to.isspace() and not is_option) or value.isdigit():
        return match.group()
    return f"{name}{to}{HIDDEN}" if is_secret_name(name.replace("-", "_")) else match.group()
