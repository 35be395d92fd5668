"""Selects variants of a stack by names from the command line: ``py312-gpu``, ``2.13-py312-gpu``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from stackyard.core.errors import InputError
from stackyard.inputs.models import Stack
from stackyard.inputs.sites.sitemodels import TORCH_BACKEND
from stackyard.inputs.stacks import pythons


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
    if names and stack.chosen:
        chosen = tuple(n for n in chosen if n in stack.chosen)
        if not chosen:
            raise InputError(f"{', '.join(names)} of {stack.file} has another Python", hint="leave out --python")
    chosen = chosen or stack.chosen
    return stack.model_copy(update={"chosen": chosen})


def for_python(stack: Stack, version: str, other: Callable[[], Stack]) -> Stack:
    """The stack with only those variants requested that have a version of Python.

    A ``python`` axis has them. Without one they are added, in the place of those with the same name, so that the lock
    keeps what it has for the file's own Python.

    Args:
        other: reads the file with that Python for all variants.

    Raises:
        InputError: that is not a version, or the axis lacks it.
    """
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        raise InputError(f"--python: {version!r} is not a version of Python", hint="write it as in --python 3.12")
    axes = [variant.axes.get("python", "") for variant in stack.variants]
    if any(axes):
        chosen = tuple(n for n, axis in enumerate(axes) if pythons.pinned(axis) == pythons.pinned(version))
        if not chosen:
            there = ", ".join(dict.fromkeys(axes))
            hint = f"its matrix has {there}: add {version} to `matrix: python:`"
            raise InputError(f"no variant with Python {version} in {stack.file}", hint=hint)
        return stack.model_copy(update={"chosen": chosen})
    own = other()
    names = {(variant.version, variant.name) for variant in own.variants}
    kept = tuple(variant for variant in stack.variants if (variant.version, variant.name) not in names)
    chosen = tuple(range(len(kept), len(kept) + len(own.variants)))
    return stack.model_copy(update={"variants": (*kept, *own.variants), "chosen": chosen})


def with_torch_backend(stack: Stack, backend: str) -> Stack:
    """The stack with this build of torch for its requested variants.

    Raises:
        InputError: no such backend.
    """
    if not re.fullmatch(f"off|{TORCH_BACKEND}", backend):
        hint = "use cpu, xpu, a CUDA such as cu128, a ROCm such as rocm6.4, or off for whichever the indexes have"
        raise InputError(f"--torch-backend: no such build of torch: {backend}", hint=hint)
    wanted = {id(variant) for variant in stack.wanted}
    changed = (v.model_copy(update={"torch_backend": backend}) if id(v) in wanted else v for v in stack.variants)
    return stack.model_copy(update={"variants": tuple(changed)})
