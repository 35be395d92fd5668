"""The program of the tutorials trains on two ranks, and fails on the rank that is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sitebed import EXAMPLES

from stackyard.core.errors import MissingError
from support import torchstack
from support.cli import Done, stackyard

pytestmark = [pytest.mark.real, pytest.mark.long]

PROGRAM = EXAMPLES / "tutorial" / "train.py"


@pytest.fixture(scope="module")
def yard() -> Path:
    """A yard with PyTorch: that of examples/resnet, which other tests use too."""
    try:
        return torchstack.torch_yard()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


def launch(yard: Path, here: Path, *words: str, expect: int = 0) -> Done:
    asked = ("launch", "-r", "2", "--oversubscribe", "--with", "resnet", PROGRAM, *words)
    return stackyard("--yard", yard, *asked, cwd=here, expect=expect)


def test_it_trains(yard: Path, tmp_path: Path) -> None:
    out = launch(yard, tmp_path, "--epochs", "2").out
    losses = [float(loss) for loss in re.findall(r"epoch \d loss (\S+) on 2 ranks", out)]
    assert len(losses) == 2 and losses[1] < losses[0], out


def test_it_fails_on_the_rank_that_is_asked_for(yard: Path, tmp_path: Path) -> None:
    done = launch(yard, tmp_path, "--fail-on", "1", expect=3)
    assert re.search(r"error: rank 1 on \S+ exited with status 3", done.err), done.err
