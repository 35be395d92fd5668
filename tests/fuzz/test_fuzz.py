"""Damaged and hostile files: every reader ends with an error that says where, in bounded time and memory.

``make fuzz`` tries many more inputs than ``make test`` (STACKYARD_FUZZ is their number for each reader).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fuzz.damage import damaged
from fuzz.limits import TooSlow, bounded
from fuzz.readers import READERS, RUN

MANY = int(os.environ.get("STACKYARD_FUZZ", "0"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, and a home that does not change from input to input."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr("stackyard.host.net.http.TRIES", 1)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    directory = tmp_path / "given"
    if name.startswith("run "):
        shutil.copytree(RUN, directory)
    else:
        directory.mkdir()
    path = directory / reader.file

    def read() -> None:
        with bounded():
            reader.read(path)

    @settings(
        max_examples=MANY or 60,
        derandomize=not MANY,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.reuse, Phase.generate, Phase.shrink] if MANY else [Phase.generate],
    )
    @given(data=damaged(reader.seeds))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            read()
        except TooSlow:  # the page faults of a fuzzer's large heap count too; an input that is slow is slow again
            try:
                read()
            except TooSlow as error:  # as a failure that hypothesis keeps, makes small and shows
                raise AssertionError(str(error)) from error

    check()
