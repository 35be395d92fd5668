"""Names of variants and modules: pure functions."""

from __future__ import annotations

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.models import Site, Variant
from stackyard.inputs.sites.sitemodels import ModulePolicy
from stackyard.inputs.stacks.naming import (
    aliases,
    check_claims,
    check_template,
    module_version,
    safe,
    short,
    variant_name,
)


def site(naming: str, first: int = 1) -> Site:
    return Site(modules=ModulePolicy(naming=naming, first_revision=first))


@pytest.mark.parametrize(
    ("template", "variant", "expected"),
    [
        ("{version}-{variant}-{revision}", "py311", "2.13-py311-1"),
        ("{version}-{variant}-{revision}", "", "2.13-1"),
        ("{variant}-{version}-{revision}", "", "2.13-1"),
        ("{variant}-{version}-{revision}", "py311", "py311-2.13-1"),
        ("{version}-r{revision}-{variant}", "", "2.13-r1"),
        ("v{version}_{variant}.{revision}", "", "v2.13.1"),
        ("{version}+{revision}", "py311", "2.13+1"),
    ],
)
def test_module_version(template, variant, expected) -> None:
    assert module_version(site(template), "2.13", variant, 1) == expected


@pytest.mark.parametrize(
    "template", ["{version}", "{revision}", "{version}-{revision}-{x}", "{version} {revision}", ""]
)
def test_wrong_template(template) -> None:
    with pytest.raises(InputError):
        check_template(template)


@pytest.mark.parametrize(
    ("axis", "value", "expected"),
    [
        ("python", "3.11", "py311"), ("python", "2", "py2"), ("python", "pypy3.10", "pypy3.10"),
        ("mpi", "openmpi", "openmpi"), ("cuda", "11.8", "cuda118"), ("accelerator", "none", ""),
        ("accelerator", "cuda 12", "cuda-12"), ("mpi", "", ""),
    ],
)  # fmt: skip
def test_short(axis, value, expected) -> None:
    assert short(axis, value) == expected


@pytest.mark.parametrize(
    ("axes", "template", "expected"),
    [
        ({"python": "3.11"}, "", "py311"),
        ({"python": "3.11", "accelerator": "cuda"}, "", "py311-cuda"),
        ({"python": "3.11", "accelerator": "none", "mpi": "mpich"}, "", "py311-mpich"),
        ({"python": "3.9"}, "{python}-ibm", "py39-ibm"),
        ({"python": "3.9", "accelerator": "no"}, "{python}-{accelerator}", "py39"),
        ({"python": "3.9"}, "base", "base"),
        ({"python": "3.9"}, "none", ""),
    ],
)
def test_variant_name(axes, template, expected) -> None:
    assert variant_name(axes, template) == expected


def test_variant_template_names_an_axis() -> None:
    with pytest.raises(InputError, match=r"\{mpi\} is not an axis"):
        variant_name({"python": "3.9"}, "{mpi}")


def test_aliases() -> None:
    assert aliases("2.13", "py311") == ("2.13-py311", "2.13")
    assert aliases("0.1", "") == ("0.1",)


@pytest.mark.parametrize(
    ("text", "expected"), [("my env", "my-env"), ("-a/b-", "a-b"), (".x", "x"), ("a.b_c+d", "a.b_c+d")]
)
def test_safe(text, expected) -> None:
    assert safe(text) == expected


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{version}-{revision}", ["py310", "py311"]),
        ("{version}-{variant}-{revision}", ["a", "a-1"]),  # an alias of one is the name of the other
    ],
)
def test_claims(template, names) -> None:
    variants = [Variant(stack="s", version="1", name=name, axes={"x": name}) for name in names]
    with pytest.raises(InputError, match="two variants have the same name s/1") as error:
        check_claims("s", site(template), variants)
    assert all(name in error.value.message for name in names)


def test_no_claims() -> None:
    variants = [Variant(stack="s", version=v, name=n) for v in ("1", "2") for n in ("", "py311")]
    check_claims("s", site("{version}-{variant}-{revision}", 0), variants)
