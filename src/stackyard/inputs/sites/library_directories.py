"""The directories in which container runtimes provide the host's libraries in an image."""

from __future__ import annotations

from stackyard.core.late import dataclass

LIBRARIES = "/.singularity.d/libs"
"""Where Apptainer and Singularity bind the files of CONTAINLIBS, each under its own name."""


@dataclass(frozen=True)
class Place:
    """A runtime's directory for `libraries` in an image, and how it gets onto the library path."""

    libraries: str
    rest: str


APPTAINER = Place(LIBRARIES, "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
"""Apptainer and Singularity evaluate a variable's value in the image."""
WRAPPED = Place("/.stackyard/libs", "")
"""The container of a wrapped image, whose launcher (images/squashfs/launcher/container.c) evaluates nothing."""
INSIDE = Place("/.stackyard/libs", "${STACKYARD_LIBRARY_PATH}")
"""An image in which the task itself starts: inside.sh of `launch` has the image's own path in the variable."""
CHARLIECLOUD = Place("${STACKYARD_DIR}/libs", "${STACKYARD_LIBRARY_PATH}")
"""`launch` fills in these variables on the node (`images.bindings.charliecloud`)."""
