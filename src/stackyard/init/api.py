"""The door of `init`."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.init.here import Here as Here
    from stackyard.init.here import look as look
    from stackyard.init.probes import ask_nodes as ask_nodes
    from stackyard.init.probes import report as report
    from stackyard.init.stack import begun as begun
    from stackyard.init.stack import found as found
    from stackyard.init.stack import keep as keep
    from stackyard.init.survey import Renewal as Renewal
    from stackyard.init.survey import Survey as Survey
    from stackyard.init.survey import remembered as remembered
    from stackyard.init.survey import renewal as renewal
    from stackyard.init.survey import survey as survey
    from stackyard.init.survey import write as write
else:
    __getattr__, __dir__ = door(__file__, __name__)
