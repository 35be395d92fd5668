"""Selectors: which lines hold where."""

from __future__ import annotations

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.conda.selectors import (
    both,
    check,
    holds,
    in_comment,
    in_key,
    is_selector,
    looks_like_selector,
    selected,
)

AXES = {"python": "3.10", "accelerator": "cuda", "mpi_type": "openmpi", "mkl": "no"}


@pytest.mark.parametrize(
    ("selector", "platforms"),
    [
        ("", "linux-64 linux-aarch64 linux-ppc64le osx-64 osx-arm64 win-64"),
        ("linux64", "linux-64"),
        ("linux", "linux-64 linux-aarch64 linux-ppc64le"),
        ("unix", "linux-64 linux-aarch64 linux-ppc64le osx-64 osx-arm64"),
        ("osx", "osx-64 osx-arm64"),
        ("arm64", "osx-arm64"),
        ("aarch64", "linux-aarch64"),
        ("ppc64le", "linux-ppc64le"),
        ("x86_64", "linux-64 osx-64 win-64"),
        ("win64", "win-64"),
        ("linux-64", "linux-64"),
        ("linux-64 or osx-arm64", "linux-64 osx-arm64"),
        ("not win", "linux-64 linux-aarch64 linux-ppc64le osx-64 osx-arm64"),
        ("unix and not (osx or aarch64)", "linux-64 linux-ppc64le"),
    ],
)
def test_platform_words(selector: str, platforms: str) -> None:
    known = ["linux-64", "linux-aarch64", "linux-ppc64le", "osx-64", "osx-arm64", "win-64"]
    assert [name for name in known if holds(selector, name, {})] == platforms.split()


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("py>=38", True),
        ("py<310", False),
        ("py == 310", True),
        ("python == '3.10'", True),
        ("python == 3.10", True),
        ("python == 3.1", False),
        ("python >= 3.9", True),
        ("python < '3.9'", False),
        ("3.8 <= python < 3.11", True),
        ("accelerator == 'cuda'", True),
        ("accelerator != 'cuda'", False),
        ("accelerator", True),
        ("mkl", False),
        ("not mkl and linux", True),
        ("mpi_type in ('openmpi', 'mpich')", True),
        ("mpi_type not in ['openmpi']", False),
        ("'openmpi' == mpi_type and accelerator == 'rocm'", False),
    ],
)
def test_axes(selector: str, expected: bool) -> None:
    assert holds(selector, "linux-64", AXES) is expected


@pytest.mark.parametrize("selector", ["acelerator == 'cuda'", "linux and foo", "__import__('os')", "linux(", "py>=38"])
def test_what_is_not_known_is_an_error(selector: str) -> None:
    with pytest.raises(InputError) as caught:
        holds(selector, "linux-64", {"accelerator": "cuda"})
    assert caught.value.hint


def test_the_error_suggests_the_axis() -> None:
    with pytest.raises(InputError) as caught:
        check("acelerator == 'cuda'", ["accelerator"])
    assert "did you mean 'accelerator'" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["optional", "see #12", "1", "dev", "a.b", "x + y", "", "CUDA 11", "linux; rm"])
def test_other_bracketed_comments_are_not_selectors(text: str) -> None:
    assert not is_selector(text)
    assert not looks_like_selector(text)


def test_a_half_known_comment_deserves_a_notice() -> None:
    assert looks_like_selector("linux and cuda")
    assert looks_like_selector("py>=38")
    assert not looks_like_selector("py>=38", ["python"])


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("[linux64]", "linux64"),
        (" for plots [ osx ] ", "osx"),
        ("[linux](https://example.org)", ""),
        ("see [linux] (later)", ""),
        ("nothing", ""),
        ("[a] [win]", ""),
    ],
)
def test_where_a_comment_holds_its_selector(comment: str, expected: str) -> None:
    assert in_comment(comment) == expected


def test_keys_of_mamba() -> None:
    assert in_key("sel(linux)") == "linux"
    assert in_key(" sel( not win ) ") == "not win"
    assert in_key("select(linux)") is None
    assert in_key("pip") is None


def test_joining_and_listing() -> None:
    assert both("", "linux") == "linux"
    assert both("linux or osx", "not aarch64") == "(linux or osx) and (not aarch64)"
    assert selected("linux64") == ("linux-64",)
    assert "linux-64" in selected("accelerator == 'cuda'")
    assert selected("accelerator == 'cuda' and win", {"accelerator": "cpu"}) == ()
