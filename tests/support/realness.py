"""Makes a skip count. With STACKYARD_REQUIRE_REAL=1 a test that is skipped fails, unless its reason is allowed.

What cannot be had on any machine of the project's own (a GPU, another processor) is listed in ``allowed-skips.txt``,
one regular expression per line; everything else (a missing program) is to be installed, not skipped.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

ALLOWED_FILE = Path(__file__).with_name("allowed-skips.txt")


@cache
def allowed() -> re.Pattern[str]:
    """All allowed reasons as one expression, searched for in a reason."""
    lines = (line.strip() for line in ALLOWED_FILE.read_text().splitlines())
    return re.compile("|".join(f"(?:{line})" for line in lines if line and not line.startswith("#")), re.IGNORECASE)


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped, in its own words."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that is not allowed into a failure."""
    if os.environ.get("STACKYARD_REQUIRE_REAL") != "1" or not report.skipped or hasattr(report, "wasxfail"):
        return
    why = reason(report)
    if not allowed().search(why):
        report.outcome = "failed"
        report.longrepr = f"skipped, but what it needs can be had: {why}\n(if not, say so in {ALLOWED_FILE.name})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the report of a test."""
    report = yield
    judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the report of a module that skips as a whole."""
    report = yield
    judge(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how often what could not be had, so that skipped never reads as passed."""
    skipped = collections.Counter(reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if skipped:
        terminalreporter.section(f"not tested: {sum(skipped.values())}")
        for why, count in skipped.most_common():
            terminalreporter.write_line(f"{count:4d}  {why}")
