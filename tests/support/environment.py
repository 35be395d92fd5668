"""Each test leaves the environment variables as they were; the first plug-in, since its fixture has to end last."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """Also after monkeypatch has ended: what that restores may be what a fixture had set meanwhile."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
