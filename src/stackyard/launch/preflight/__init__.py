"""The preflight: before the program starts, test that its nodes are alike, reach each other, and are fast enough."""

from __future__ import annotations

from stackyard.launch.preflight.model import PreflightReport
from stackyard.launch.preflight.run import run_preflight
from stackyard.launch.preflight.trial import PreflightOptions

__all__ = ["PreflightOptions", "PreflightReport", "run_preflight"]
