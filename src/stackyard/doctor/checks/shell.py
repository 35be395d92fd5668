"""The shell, by its environment alone: loaded modules that bring the same, and variables that break programs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.findings import Finding
from stackyard.doctor.checks.base import Surroundings, said, words


def loaded(around: Surroundings) -> list[str]:
    """The loaded modules, in the order in which they were loaded."""
    return around.paths("LOADEDMODULES")


def of_family(around: Surroundings, family: str) -> list[str]:
    """The loaded modules that bring a Python, an MPI or a CUDA toolkit, by their names."""
    names = words()["lists"]["families"][family].split()
    return [module for module in loaded(around) if module.rpartition("/")[0].rpartition("/")[2].lower() in names
            or module.partition("/")[0].lower() in names]  # fmt: skip


def look_at_modules(around: Surroundings) -> Iterator[Finding]:
    """Modules of one kind that are loaded beside each other."""
    for family in words()["lists"]["families"]:
        modules = of_family(around, family)
        if len(modules) > 1:
            yield said("modules-beside", modules=" and ".join(modules), family=family, first=modules[0])


def look_at_variables(around: Surroundings) -> Iterator[Finding]:
    """Variables with a value that findings.yaml describes."""
    for rule, row in words()["findings"].items():
        value = around.environ.get(row.get("variable", ""), "")
        if not value or not re.fullmatch(row["value"], value, re.DOTALL):
            continue
        needed = getattr(around, row["where"]) if "where" in row else True
        if needed and not any(around.environ.get(name) for name in row.get("unless", "").split()):
            yield said(rule, value=value, name=row["variable"])
