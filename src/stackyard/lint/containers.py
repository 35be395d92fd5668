"""Locates the image in a command line of Singularity or Apptainer."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.launch.request.options import Reading, read_options
from stackyard.lint.shell.words import CLOSE, OPEN
from stackyard.lint.systems.base import IMAGES
from stackyard.lint.tables import CONTAINER


def image_at(rest: Sequence[str]) -> int:
    """The index of the image: after words known only at run time, which may be options, unless named like an image."""
    at = 0
    while at < len(rest) and is_open(rest[at]):
        at += 1
    return at if at < len(rest) and rest[at].endswith(IMAGES) else 0


def container_options(words: Sequence[str]) -> tuple[Reading, bool]:
    """The options before the image, and whether words known only at run time are among them: ``$OPTS --nv a.sif``."""
    reading, unsure = read_options(CONTAINER, words), False
    while len(reading.rest) > 1 and is_open(reading.rest[0]) and reading.rest[1].startswith("-"):
        further, unsure = read_options(CONTAINER, reading.rest[1:]), True
        reading = Reading((*reading.options, *further.options), further.rest, reading.doubtful or further.doubtful)
    return reading, unsure


def is_open(word: str) -> bool:
    """Whether the whole word is known only at run time."""
    return word.startswith(OPEN) and word.endswith(CLOSE)


def container_verb(words: Sequence[str]) -> int | None:
    """The index of ``exec`` or ``run`` among the first words of ``singularity``; None without one."""
    return next((index for index, word in enumerate(words[:6]) if word in ("exec", "run")), None)
