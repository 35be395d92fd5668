"""What several tests of images are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from image_bed import Revision, make

from support import programs


@pytest.fixture(params=["compiled", "script"])
def demo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Revision]:
    """A small revision that is an image, with each form of the launcher; its file system servers end with the test."""
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    made = make(tmp_path, script=request.param == "script")
    yield made
    made.end()
