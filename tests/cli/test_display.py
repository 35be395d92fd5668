"""What a long step shows of itself: an amount with its rate, in a log now and then."""

from __future__ import annotations

import time

import pytest

from stackyard.cli.display import QUIET_S, STILL_S, Amount, Lines


def test_an_amount_has_a_rate_of_what_is_measured() -> None:
    amount = Amount()
    assert amount.text(1, 8, "packages fetched", 1 << 20, 0.0) == "1 of 8 packages fetched, 1.0 MiB"
    shown = amount.text(3, 8, "packages fetched", 21 << 20, 4.0)
    assert shown == "3 of 8 packages fetched, 21.0 MiB, 5.0 MiB/s"
    assert amount.text(1000, 2000, "files compiled", 0, 5.0) == "1,000 of 2,000 files compiled"
    assert amount.text(1500, 2000, "files compiled", 0, 7.0) == "1,500 of 2,000 files compiled, 250/s"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    amount = Amount()
    for second in range(60):
        amount.text(second * 100, 9000, "files compiled", 0, second)
    shown = [amount.text(5900 + more, 9000, "files compiled", 0, 60 + more) for more in range(30)]
    assert shown[-1].endswith(", 1/s")


def test_a_log_says_what_is_done_when_nothing_else_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines, now = Lines(), time.monotonic()

    def said(after: float) -> str:
        lines.tell(now + after)
        return capsys.readouterr().err

    lines.phase("demo/1", "pip", "8 packages")
    capsys.readouterr()
    lines.advance("demo/1", 3, 8, "packages fetched")
    assert said(QUIET_S / 2) == ""
    assert said(2 * QUIET_S).endswith("demo/1: pip 8 packages: 3 of 8 packages fetched\n")
    assert said(2 * QUIET_S + 1) == ""
    lines.advance("demo/1", 4, 8, "packages fetched")
    assert "4 of 8" in said(4 * QUIET_S)
    assert said(6 * QUIET_S) == "", "nothing has changed"
    assert "4 of 8" in said(4 * QUIET_S + STILL_S)


def test_a_step_that_measures_nothing_shows_its_time_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    lines, now = Lines(), time.monotonic()
    lines.phase("demo/1", "verify")
    lines.tell(now + 25)
    assert "demo/1: verify: 25 s so far\n" in capsys.readouterr().err
    lines.phase("demo/1", "passed", "9 checks")
    capsys.readouterr()
    lines.tell(now + 500)
    assert capsys.readouterr().err == ""
