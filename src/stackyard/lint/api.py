"""The door of `lint`: reads and checks a batch script, and converts it to a request."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.lint.fix.fix import to_intent as to_intent
    from stackyard.lint.report import LintReport as LintReport
    from stackyard.lint.report import lint_file as lint_file
    from stackyard.lint.report import lint_text as lint_text
    from stackyard.lint.script import Script as Script
    from stackyard.lint.script import parse_script as parse_script
else:
    __getattr__, __dir__ = door(__file__, __name__)
