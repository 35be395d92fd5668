"""The address of each page: ``STACK/VERSION.html``, the same for ever.

The names of stacks and versions are those of modules (`core.grammar.LABEL`): no character of theirs needs an escape in
a URL, and none is ``@``. So what is not theirs has one.
"""

from __future__ import annotations

ASSETS = "@catalogue"
"""The directory of the style, the scripts and the feed."""
_TOP = ("index.html", "index.md")
"""The files beside the directories of stacks."""


def directory(stack: str) -> str:
    """The directory of a stack's pages; a stack may be called as a file beside it."""
    return f"{stack}@" if stack in _TOP else stack


def of_stack(stack: str, suffix: str = ".html") -> str:
    """The page of a stack."""
    return f"{directory(stack)}/index{suffix}"


def of_revision(module: str, suffix: str = ".html") -> str:
    """The page of a revision, by its module; a version may be called ``index``."""
    stack, _, version = module.partition("/")
    return f"{directory(stack)}/{version}{'@' if version == 'index' else ''}{suffix}"


def up(path: str) -> str:
    """The way from a page to the top: empty, or ``../``."""
    return "../" * path.count("/")
