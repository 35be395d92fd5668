"""Labels: what can change of a published revision: deprecated, hidden, a notice, more help, category and URL.

Labels are not part of a build. They are kept in the entries of a generation, so changing one publishes a new generation
and builds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stackyard.inputs.models import Variant

LABELS = ("deprecated", "hidden", "notice", "help", "category", "url")


def labels(variant: Variant) -> dict[str, Any]:
    """The labels of a variant, by the name of their field in `Entry`."""
    return {name: getattr(variant.modules, name) for name in LABELS}


def without_labels(variant: Variant) -> Variant:
    """The variant without its labels: the part that its build and its input hash depend on."""
    plain = type(variant.modules)()
    blank = {name: getattr(plain, name) for name in LABELS}
    return variant.model_copy(update={"modules": variant.modules.model_copy(update=blank)})
