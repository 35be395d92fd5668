"""The gate: before the program starts, its nodes prove that they are alike, can talk, and are fast enough."""

from __future__ import annotations

from stackyard.launch.gate.model import GateReport
from stackyard.launch.gate.run import run_gate
from stackyard.launch.gate.trial import GateOptions

__all__ = ["GateOptions", "GateReport", "run_gate"]
