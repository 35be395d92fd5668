"""Selects variants of a stack by names from the command line: ``py312-gpu``, ``2.13-py312-gpu``."""

from __future__ import annotations

from collections.abc import Collection

from stackyard.core.errors import InputError
from stackyard.inputs.models import Stack


def label(version: str, variant: str) -> str:
    """A variant with its version, as in a module's name: ``2.13-py312-gpu``; the version alone for one without name."""
    return f"{version}-{variant}".rstrip("-")


def choose(stack: Stack, names: Collection[str]) -> Stack:
    """The stack with only the named variants requested; all of them without names.

    Args:
        names: a variant's name, which selects it in every version of the file, or a version and a variant.

    Raises:
        InputError: the file has no such variant.
    """
    known = [{variant.name, label(variant.version, variant.name)} - {""} for variant in stack.variants]
    for name in names:
        if not any(name in variant_names for variant_names in known):
            there = ", ".join(dict.fromkeys(variant.name or variant.version for variant in stack.variants))
            raise InputError(f"no such variant in {stack.file}: {name}", hint=f"it has {there}")
    chosen = tuple(n for n, variant_names in enumerate(known) if not variant_names.isdisjoint(names))
    return stack.model_copy(update={"chosen": chosen})
