"""Jobs that measure collective operations: planned, recorded, and what they have measured read.

`jobs.carry_out` and `jobs.submit` start a recorded one, as any other.
"""

from __future__ import annotations

from stackyard.launch.jobs.collectives import CollectivesRequest, collectives_job, read_measured, record_collectives
from stackyard.launch.preflight.node.operations import KINDS

__all__ = ["KINDS", "CollectivesRequest", "collectives_job", "read_measured", "record_collectives"]
