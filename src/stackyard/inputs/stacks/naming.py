"""Names of variants and of modules: pure functions, and the check that no name means two revisions.

A variant is named after its axes in the order of the matrix, as is common at sites: ``py311``, ``py311-cuda``,
``py311-openmpi``. Every axis counts, also one with a single value, so that a name stays the same when a second value is
added; only values that mean "without" are left out. These names are never parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stackyard.core import grammar
from stackyard.core.errors import InputError
from stackyard.core.quoting import quoted

if TYPE_CHECKING:
    from stackyard.inputs.models import Site, Variant

WITHOUT = frozenset({"", "none", "no", "off", "false", "without"})
_SEPARATORS = "-_.+"
_FIELD = re.compile(r"\{(\w*)\}")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._+-]+")


def safe(text: str) -> str:
    """The text as a valid module name or version (`grammar.LABEL`); empty if nothing of it is valid."""
    joined = _FORBIDDEN.sub("-", text.strip()).lstrip("-.").rstrip("-")
    return joined if grammar.LABEL.accepts(joined) else ""


def given(option: str, text: str) -> str:
    """A name or a version from an option: used unchanged, or rejected.

    Raises:
        InputError: it is invalid for a module.
    """
    try:
        return grammar.LABEL(text)
    except grammar.GrammarError as error:
        raise InputError(f"{option}: {error}", hint=error.hint) from error


def short(axis: str, value: str) -> str:
    """The part of a variant's name for one axis: ``py311`` for Python 3.11, ``openmpi``, ``cuda118`` for CUDA 11.8.

    A value that begins with a digit is preceded by its axis' name (``py`` for python) and loses its dots.
    """
    if value.lower() in WITHOUT:
        return ""
    if value[0].isdigit():
        prefix = "py" if axis == "python" else axis
        return safe(prefix + value.replace(".", ""))
    return safe(value)


def variant_name(axes: Mapping[str, str], template: str = "") -> str:
    """The name of a point of the matrix.

    Args:
        template: a stack's own ``variant:``, in which ``{axis}`` is replaced by `short`; empty: all axes with hyphens;
            ``none``: variants have no name.

    Raises:
        InputError: the template contains a name that is not an axis.
    """
    words = {axis: short(axis, value) for axis, value in axes.items()}
    if template.lower() in WITHOUT - {""}:
        return ""
    if not template:
        return "-".join(word for word in words.values() if word)
    for name in _FIELD.findall(template):
        if name not in words:
            raise InputError(
                f"variant: {{{name}}} is not an axis of the matrix", hint=f"its axes are: {', '.join(words) or 'none'}"
            )
    return safe(_fill(template, words))


def module_version(site: Site, variant_version: str, variant: str, revision: int) -> str:
    """The version part of a revision's module name in the site's template, e.g. ``2.13-py311-1``.

    An empty variant is removed with a separator: ``open-ce/0.1-0``, not ``0.1--0``.

    Raises:
        InputError: the template is not usable; see `check_template`.
    """
    template = site.modules.naming
    check_template(template)
    return _fill(template, {"version": variant_version, "variant": variant, "revision": str(revision)})


def aliases(version: str, variant: str) -> tuple[str, ...]:
    """The short names of a revision, longest first: ``2.13-py311``, ``2.13``."""
    return (f"{version}-{variant}", version) if variant else (version,)


def check_template(template: str) -> None:
    """Raise InputError unless the template has version and revision and no unknown name."""
    fields = _FIELD.findall(template)
    unknown = sorted(set(fields) - {"version", "variant", "revision"})
    missing = sorted({"version", "revision"} - set(fields))
    if unknown or missing or _FORBIDDEN.search(_FIELD.sub("", template)):
        wrong = (
            f"has an unknown field {{{unknown[0]}}}"
            if unknown
            else f"lacks {{{missing[0]}}}"
            if missing
            else "is not a valid name"
        )
        raise InputError(
            f"modules.naming: {quoted(template)} {wrong}",
            hint="use {version}, {variant} and {revision} with letters, digits and -_.+ between them",
        )


def check_claims(stack: str, site: Site, variants: Iterable[Variant]) -> None:
    """Raise InputError if two variants of one stack would get the same module name or alias."""
    owners: dict[str, Variant] = {}
    for variant in variants:
        name = module_version(site, variant.version, variant.name, site.modules.first_revision)
        longest = aliases(variant.version, variant.name)[:1] if variant.name else ()
        for claimed in dict.fromkeys((name, *longest)):
            other = owners.setdefault(claimed, variant)
            if other is not variant:
                raise InputError(
                    f"two variants have the same name {stack}/{claimed}: {_described(other)} and {_described(variant)}",
                    hint="distinguish them with `variant:` in the stack.yaml or {variant} in the site's modules.naming",
                )


def _described(variant: Variant) -> str:
    point = {"version": variant.version, **variant.axes}
    return "(" + ", ".join(f"{axis} {value}" for axis, value in point.items()) + ")"


def _fill(template: str, words: Mapping[str, str]) -> str:
    """The template with its fields replaced; an empty word is removed with the separators before (or after) it."""
    result = ""
    separator = ""
    for literal, name in re.findall(r"([^{]*)(?:\{(\w*)\})?", template):
        separator += literal
        word = words.get(name, "")
        if name and not word:
            separator = separator.rstrip(_SEPARATORS)
            continue
        result += (separator if result or separator.strip(_SEPARATORS) else "") + word
        separator = ""
    return result
