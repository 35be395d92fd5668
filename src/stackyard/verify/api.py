"""The door of `verify`: the checks of a revision, and their reports."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.verify.checks.own import OwnCheck as OwnCheck
    from stackyard.verify.checks.own import judged as judged_check
    from stackyard.verify.checks.own import unmet_need as unmet_need
    from stackyard.verify.checks.yardfiles import check_yard as check_yard
    from stackyard.verify.report import Report as Report
    from stackyard.verify.sitechecks import site_checks as site_checks
else:
    __getattr__, __dir__ = door(__file__, __name__)
