"""The formats of a bill of materials, by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stackyard.deploy.described.bill import Bill, bill_of
from stackyard.deploy.described.cyclonedx import cyclonedx
from stackyard.deploy.described.spdx import spdx

__all__ = ["FORMATS", "Bill", "bill_of"]

FORMATS: Mapping[str, Callable[[Bill], dict[str, Any]]] = {"cyclonedx": cyclonedx, "spdx": spdx}
