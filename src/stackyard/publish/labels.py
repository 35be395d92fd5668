"""What a stack says about a published revision and may say otherwise tomorrow: deprecated, hidden, a notice, more help.

Labels are no part of a build: they live in the generation's entries, so that changing one publishes a new generation
and builds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stackyard.spec.models import Variant

LABELS = ("deprecated", "hidden", "notice", "help")


def labels(variant: Variant) -> dict[str, Any]:
    """The labels of a variant, under their names in an `Entry`."""
    return {name: getattr(variant.modules, name) for name in LABELS}


def without_labels(variant: Variant) -> Variant:
    """The variant without its labels: what its build and the hash of its inputs are made of."""
    plain = type(variant.modules)()
    blank = {name: getattr(plain, name) for name in LABELS}
    return variant.model_copy(update={"modules": variant.modules.model_copy(update=blank)})
