"""What the modulefiles of all formats share: the order of operations, the messages, values on one line."""

from __future__ import annotations

import re

from stackyard.core.change import EnvironmentChange, Notice, OnUnload, Operation
from stackyard.expose.page import Page

_BREAK = re.compile(r"\r\n|[\r\n]")


def ordered(change: EnvironmentChange) -> list[Operation]:
    """Unload commands come first: they read saved values, which later lines take away."""
    return sorted(change, key=lambda operation: not isinstance(operation, OnUnload))


def messages(content: Page) -> list[str]:
    """What is shown at load: the deprecation, the notice of the generation, the notices of the revision."""
    texts = [f"{content.module} is deprecated: {content.deprecated}"] if content.deprecated else []
    texts += [content.notice] if content.notice else []
    return texts + [operation.text for operation in content.change if isinstance(operation, Notice)]


def refusal(content: Page) -> str:
    """What is shown instead of loading it; empty where it can be loaded."""
    return one_line(content.removed)


def missing(content: Page) -> str:
    """What is shown instead of loading it where the directory that it needs does not exist."""
    why = "not found: its files were moved or removed; restore them, or choose another: stackyard list"
    return one_line(f"{content.module}: {content.needs} {why}")


def one_line(text: str) -> str:
    """A value with spaces for line breaks, because module systems hand those to the shell unquoted (see `limits`)."""
    return _BREAK.sub(" ", text)
