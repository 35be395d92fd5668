"""Words of a file or a command line, in messages that stay readable: without secrets, and cut where they are long.

Secrets are removed first: half of a login or a token does not look like one any more.
"""

from __future__ import annotations


def quoted(value: object) -> str:
    """A value in quotes, if it is text, with control characters escaped."""
    return repr(cut(value)) if isinstance(value, str) else cut(repr(value))


def cut(text: str, most: int = 160) -> str:
    """The beginning of a text: `most` characters, then dots."""
    from stackyard.host.secrets import redacted  # late: most commands refuse nothing

    text = redacted(text)
    return text if len(text) <= most else f"{text[:most]}..."
