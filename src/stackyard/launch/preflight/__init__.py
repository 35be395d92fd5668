"""The gate: before the program starts, its nodes prove that they are alike, can talk, and are fast enough."""

from __future__ import annotations

from stackyard.launch.preflight.model import GateReport
from stackyard.launch.preflight.run import run_gate
from stackyard.launch.preflight.trial import GateOptions

__all__ = ["GateOptions", "GateReport", "run_gate"]
