"""Known causes of failures, and how a log is searched for them: what `doctor` shares with the end of a launch."""

from stackyard.launch.run.causes import KINDS, Found, Rule, matcher, rules, site_rules, without_lines
from stackyard.launch.run.loglines import (
    WORDS,
    Line,
    LineFailure,
    Scan,
    exit_status,
    first_observed,
    named_rank,
    parse,
)  # fmt: skip

__all__ = [
    "KINDS", "WORDS", "Found", "Line", "LineFailure", "Rule", "Scan", "exit_status", "first_observed", "matcher",
    "named_rank", "parse", "rules", "site_rules", "without_lines",
]  # fmt: skip
