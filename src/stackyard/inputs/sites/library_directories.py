"""Where the container runtimes have the host's libraries in an image."""

from __future__ import annotations

from stackyard.core.late import dataclass

LIBRARIES = "/.singularity.d/libs"
"""Where Apptainer and Singularity bind the files of CONTAINLIBS, each under its own name."""


@dataclass(frozen=True)
class Place:
    """Where a runtime has `libraries` in an image, and what adds the LD_LIBRARY_PATH that programs would have there."""

    libraries: str
    rest: str


APPTAINER = Place(LIBRARIES, "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
"""Apptainer and Singularity evaluate a variable's value in the image."""
WRAPPED = Place("/.stackyard/libs", "")
"""The container of a wrapped image, whose launcher (images/squashfs/launcher/container.c) evaluates nothing."""
CHARLIECLOUD = Place("${STACKYARD_DIR}/libs", "${STACKYARD_LIBRARY_PATH}")
"""`launch` fills in these variables on the node (`images.bindings.charliecloud`)."""
