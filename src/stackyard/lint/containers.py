"""Where the image stands in a command line of Singularity or Apptainer."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.lint.words import CLOSE, OPEN

IMAGES = (".sif", ".simg", ".img", ".sqsh", ".squashfs", ".SIF")


def image_at(rest: Sequence[str]) -> int:
    """Where the image is: behind words known only at run time, which may be options, if its name is that of one."""
    at = 0
    while at < len(rest) and rest[at].startswith(OPEN) and rest[at].endswith(CLOSE):
        at += 1
    return at if at < len(rest) and rest[at].endswith(IMAGES) else 0


def container_verb(words: Sequence[str]) -> int | None:
    """Where ``exec`` or ``run`` stands among the first words of ``singularity``; None if it does not."""
    return next((index for index, word in enumerate(words[:6]) if word in ("exec", "run")), None)
