"""No test leaves a variable to the next one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

NAME = "STACKYARD_LEFT_BY_A_TEST"


@pytest.fixture
def set_and_hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set by a fixture and deleted by monkeypatch, which therefore sets it again after the fixture's own end."""
    os.environ[NAME] = "1"
    monkeypatch.delenv(NAME)
    yield
    os.environ.pop(NAME, None)


def test_a_variable_that_monkeypatch_restores(set_and_hidden: None) -> None:
    assert NAME not in os.environ


@pytest.fixture(scope="module")
def seen_by_a_fixture_of_the_module() -> bool:
    return NAME in os.environ


def test_is_not_there_for_the_next_module_fixture(seen_by_a_fixture_of_the_module: bool) -> None:
    assert not seen_by_a_fixture_of_the_module
