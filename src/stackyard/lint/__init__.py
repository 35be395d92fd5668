"""Lint: what is wrong or wasteful in somebody's own batch script, line by line, with the better line."""

from stackyard.lint.fix import to_intent
from stackyard.lint.report import LintReport, lint_file, lint_text
from stackyard.lint.script import Script, parse_script

__all__ = ["LintReport", "Script", "lint_file", "lint_text", "parse_script", "to_intent"]
