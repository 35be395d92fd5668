"""A directory to work in, on the Slurm that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.slurm import SlurmCluster
from support.slurmcli import Work, working


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path) as made:
        yield made


@pytest.fixture
def work_here(work: Work, monkeypatch: pytest.MonkeyPatch) -> Work:
    """The same as the current directory, for what is called in this process."""
    monkeypatch.chdir(work.directory)
    return work
