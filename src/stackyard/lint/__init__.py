"""Lint: errors and wasted resources in a batch script, line by line, each with a corrected line."""

from stackyard.lint.fix.fix import to_intent
from stackyard.lint.report import LintReport, lint_file, lint_text
from stackyard.lint.script import Script, parse_script

__all__ = ["LintReport", "Script", "lint_file", "lint_text", "parse_script", "to_intent"]
