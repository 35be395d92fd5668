"""The door of `doctor`: the first cause of a failure in logs and runs; the shell, the machine and the yard."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.doctor.examine import examine as examine
    from stackyard.doctor.logs.diagnose import Diagnosis as Diagnosis
    from stackyard.doctor.logs.diagnose import diagnose as diagnose_logs
    from stackyard.doctor.logs.runs import diagnose_run as diagnose_run
    from stackyard.doctor.logs.sources import log_sources as log_sources
else:
    __getattr__, __dir__ = door(__file__, __name__)
