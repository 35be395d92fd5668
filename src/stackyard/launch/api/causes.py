"""Known causes of failures, and how a log is searched for them: what `doctor` shares with the end of a launch."""

from stackyard.launch.records.outcome import Cause
from stackyard.launch.run.causes.lines import (
    LAST,
    Line,
    LineFailure,
    Scan,
    exit_status,
    first_observed,
    is_quiet,
    mentions_failure,
    named_rank,
    parse,
)  # fmt: skip
from stackyard.launch.run.causes.raised import raised_hint
from stackyard.launch.run.causes.records import unpacked
from stackyard.launch.run.causes.redact import shown
from stackyard.launch.run.causes.table import KINDS, Found, Rule, matcher, rules, site_rules, without_lines
from stackyard.launch.run.causes.tracebacks import place as traceback_place
from stackyard.launch.run.causes.tracebacks import told as traceback_told
from stackyard.launch.run.causes.verdict import signal_name

__all__ = [
    "KINDS", "LAST", "Cause", "Found", "Line", "LineFailure", "Rule", "Scan", "exit_status", "first_observed",
    "is_quiet", "matcher", "mentions_failure", "named_rank", "parse", "raised_hint", "rules", "shown", "signal_name",
    "site_rules", "traceback_place", "traceback_told", "unpacked", "without_lines",
]  # fmt: skip
