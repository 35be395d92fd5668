"""``~--flag`` among the user's words for a launch line or script head removes a generated flag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.launch.plan.model import BatchHead, LaunchLine, Reason

MARK = "~-"
"""How a word begins that names a flag to remove. No launcher and no scheduler has such an option."""


def kept(words: Iterable[str]) -> tuple[str, ...]:
    """The words to pass on."""
    return tuple(word for word in words if not word.startswith(MARK))


def removed(words: Iterable[str]) -> tuple[str, ...]:
    """The flags to remove, without the mark."""
    return tuple(word[1:] for word in words if word.startswith(MARK))


def line_without(line: LaunchLine, flags: Sequence[str]) -> LaunchLine:
    """The launch line without these flags and their values, with a note for each.

    Raises:
        InputError: a flag is not on the line; the hint lists the present ones.
    """
    if not flags:
        return line
    first, *rest = line.reasons
    left, notes = _without(rest, flags, "--launcher-arg", f"the launch line of {first.words[0]}")
    words = tuple(word for reason in (first, *left) for word in reason.words)
    return replace(line, words=words, reasons=(first, *left), findings=(*line.findings, *notes))


def head_without(head: BatchHead, flags: Sequence[str]) -> BatchHead:
    """The directives of a batch script without these flags."""
    if not flags:
        return head
    left, notes = _without(head.reasons, flags, "--scheduler-arg", f"the head of the script ({head.prefix})")
    directives = tuple(reason.words for reason in left)
    return replace(head, directives=directives, reasons=left, findings=(*head.findings, *notes))


def _without(
    reasons: Sequence[Reason], flags: Sequence[str], option: str, where: str
) -> tuple[tuple[Reason, ...], tuple[Finding, ...]]:
    notes = []
    for flag in flags:
        gone = [reason for reason in reasons if _names(flag, reason.words)]
        if not gone:
            there = ", ".join(dict.fromkeys(reason.words[0].split("=")[0] for reason in reasons))
            raise InputError(f"{option} ~{flag}: {where} has no {flag}", hint=f"it has {there}")
        reasons = [reason for reason in reasons if reason not in gone]
        notes += [_note(reason, option, flag) for reason in gone]
    return tuple(reasons), tuple(notes)


def _names(flag: str, words: Sequence[str]) -> bool:
    """Whether a flag, with or without its value, names these words."""
    text = " ".join(words)
    return text == flag or text.startswith((f"{flag} ", f"{flag}="))


def _note(reason: Reason, option: str, flag: str) -> Finding:
    return Finding(
        "flag-removed", "note", f"{' '.join(reason.words)} is left out", f"it was for: {reason.reason}",
        f"leave out {option} ~{flag} to have it again",
    )  # fmt: skip
