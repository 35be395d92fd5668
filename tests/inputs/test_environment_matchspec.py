"""MatchSpecs: conda's meaning, checked by what py-rattler then matches."""

from __future__ import annotations

from pathlib import Path

import pytest
from rattler import BuildString, MatchSpec, PackageRecord

from stackyard.core.errors import InputError, Where
from stackyard.inputs.conda.matchspec import parse_matchspec
from stackyard.inputs.models import CondaRequirement

PLACE = Where(file="environment.yml", line=7, column=5)


def read(text: str) -> CondaRequirement:
    return parse_matchspec(text, PLACE, base_dir=Path("/base"))


def record(version: str, build: str) -> PackageRecord:
    return PackageRecord("numpy", version, BuildString(build), 0, "linux-64")


# conda's own parser (conda 26.9) says of each spec which of these versions it takes.
VERSIONS = ["1.2", "1.2.0", "1.2.5", "1.20", "1.3", "1.9rc1", "2.0", "2.0a0", "3.1"]
VERSION_CASES = [
    ("numpy", VERSIONS),
    ("numpy *", VERSIONS),
    ("numpy=*", VERSIONS),
    ("numpy=", VERSIONS),
    ("numpy=1.2", ["1.2", "1.2.0", "1.2.5"]),
    ("numpy =1.2", ["1.2", "1.2.0", "1.2.5"]),
    ("numpy = 1.2", ["1.2", "1.2.0", "1.2.5"]),
    ("numpy 1.2", ["1.2", "1.2.0"]),
    ("numpy==1.2", ["1.2", "1.2.0"]),
    ("numpy == 1.2", ["1.2", "1.2.0"]),
    ("numpy===1.2", ["1.2", "1.2.0"]),
    ("numpy 1.2.*", ["1.2", "1.2.0", "1.2.5"]),
    ("numpy=1.2.*", ["1.2", "1.2.0", "1.2.5"]),
    ("numpy==1.2.*", ["1.2", "1.2.0", "1.2.5"]),
    ("numpy 1.2*", ["1.2", "1.2.0", "1.2.5"]),
    ("numpy>=1.3", ["1.20", "1.3", "1.9rc1", "2.0", "2.0a0", "3.1"]),
    ("numpy >= 1.3 , <2", ["1.20", "1.3", "1.9rc1", "2.0a0"]),
    ("numpy>=1.3.*", ["1.20", "1.3", "1.9rc1", "2.0", "2.0a0", "3.1"]),
    ("numpy >1.2,<=1.20", ["1.2.5", "1.20", "1.3", "1.9rc1"]),
    ("numpy<2.0a0", ["1.2", "1.2.0", "1.2.5", "1.20", "1.3", "1.9rc1"]),
    ("numpy!=1.2.*", ["1.20", "1.3", "1.9rc1", "2.0", "2.0a0", "3.1"]),
    ("numpy!=1.2", ["1.2.5", "1.20", "1.3", "1.9rc1", "2.0", "2.0a0", "3.1"]),
    ("numpy~=1.2.1", ["1.2.5"]),
    ("numpy 1.3|2.0", ["1.3", "2.0"]),
    ("numpy=1.2|2.0", ["1.2", "1.2.0", "1.2.5", "2.0"]),
    ("numpy >=1.2,<1.3|>=3", ["1.2", "1.2.0", "1.2.5", "3.1"]),
    ("numpy=1.2,<1.2.5", ["1.2", "1.2.0"]),
    ("numpy=>1.3", ["1.20", "1.3", "1.9rc1", "2.0", "2.0a0", "3.1"]),
    ("numpy[version='>=1.3,<2']", ["1.20", "1.3", "1.9rc1", "2.0a0"]),
    ("numpy[version=1.2]", ["1.2", "1.2.0"]),
    ("numpy>=3[version='=1.2']", ["1.2", "1.2.0", "1.2.5"]),
]


@pytest.mark.parametrize(("text", "expected"), VERSION_CASES, ids=[case[0] for case in VERSION_CASES])
def test_versions_as_conda_takes_them(text: str, expected: list[str]) -> None:
    spec = MatchSpec(read(text).spec)
    assert [version for version in VERSIONS if spec.matches(record(version, "py311_0"))] == expected


BUILDS = ["py311_0", "py312h1_1", "cuda12_0", "mkl"]
BUILD_CASES = [
    ("numpy=1.2=py311_0", ["py311_0"]),
    ("numpy 1.2 py311_0", ["py311_0"]),
    ("numpy==1.2=py311_0", ["py311_0"]),
    ("numpy=1.2.*=py3*", ["py311_0", "py312h1_1"]),
    ("numpy>=1.2=cuda12*", ["cuda12_0"]),
    ("numpy >=1.2,<2   *_1", ["py312h1_1"]),
    ("numpy=*=mkl", ["mkl"]),
    ("numpy * mkl", ["mkl"]),
    ("numpy=*=*", BUILDS),
    ("numpy[build=mkl]", ["mkl"]),
    ("numpy[version='1.2.*', build='py*_0']", ["py311_0"]),
    ("numpy [build=*_0] >=1", ["py311_0", "cuda12_0"]),
    ("numpy[build_number='>=1']", []),
]


@pytest.mark.parametrize(("text", "expected"), BUILD_CASES, ids=[case[0] for case in BUILD_CASES])
def test_builds_as_conda_takes_them(text: str, expected: list[str]) -> None:
    spec = MatchSpec(read(text).spec)
    assert [build for build in BUILDS if spec.matches(record("1.2", build))] == expected


def test_three_parts_make_the_version_exact() -> None:
    spec = MatchSpec(read("numpy=1.2=mkl").spec)
    assert spec.matches(record("1.2", "mkl"))
    assert not spec.matches(record("1.2.5", "mkl"))


@pytest.mark.parametrize(
    ("text", "channel", "subdir", "spec"),
    [
        ("conda-forge::numpy", "conda-forge", "", "conda-forge::numpy"),
        ("conda-forge/linux-64::numpy=1.2", "conda-forge", "linux-64", "conda-forge/linux-64::numpy 1.2.*"),
        ("pkgs/main::numpy", "pkgs/main", "", "pkgs/main::numpy"),
        ("nvidia/label/cuda-11.8.0::cuda", "nvidia/label/cuda-11.8.0", "", "nvidia/label/cuda-11.8.0::cuda"),
        ("https://h:8080/ch::numpy 1.2", "https://h:8080/ch", "", "https://h:8080/ch::numpy ==1.2"),
        ("https://h/ch/noarch::numpy", "https://h/ch", "noarch", "https://h/ch/noarch::numpy"),
        ("numpy[channel=conda-forge,subdir=linux-64]", "conda-forge", "linux-64", "conda-forge/linux-64::numpy"),
        ("*/linux-64::numpy", "", "linux-64", 'numpy[subdir="linux-64"]'),
        ("file:///srv/ch::numpy", "file:///srv/ch", "", "file:///srv/ch::numpy"),
        ("/srv/ch::numpy", "/srv/ch", "", "file:///srv/ch::numpy"),
    ],
)
def test_channels(text: str, channel: str, subdir: str, spec: str) -> None:
    read_spec = read(text)
    assert (read_spec.channel, read_spec.subdir, read_spec.spec) == (channel, subdir, spec)
    MatchSpec(read_spec.spec)


MD5 = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "url", "other"),
    [
        ("https://h/ch/linux-64/numpy-1.2-py_0.tar.bz2", "https://h/ch/linux-64/numpy-1.2-py_0.tar.bz2", ""),
        (f"https://h/ch/noarch/numpy-1.2-py_0.conda#{MD5}", "https://h/ch/noarch/numpy-1.2-py_0.conda", MD5),
        ("./pkgs/numpy-1.2-py_0.conda", "file:///base/pkgs/numpy-1.2-py_0.conda", ""),
        ("/srv/numpy-1.2-py_0.conda", "file:///srv/numpy-1.2-py_0.conda", ""),
    ],
)
def test_package_files(text: str, url: str, other: str) -> None:
    requirement = read(text)
    assert (requirement.name, requirement.version, requirement.build) == ("numpy", "==1.2", "py_0")
    assert requirement.url == url
    spec = MatchSpec(requirement.spec)
    assert url in str(spec)
    assert (spec.md5.hex() if spec.md5 else "") == other


def test_names_are_lower_case_and_the_text_stays() -> None:
    requirement = read("  PyYAML = 5.3 ")
    assert (requirement.name, requirement.text) == ("pyyaml", "  PyYAML = 5.3 ")
    assert requirement.place == PLACE


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("dask[complete]", "extras"),
        ("numpy=", "ignored"),
        ("foo if python>=3", "condition"),
        ("conda-forge:python:numpy", "namespace"),
        ("cudatoolkit=11.*.*", "read as 11.*"),
    ],
)
def test_what_conda_ignores_is_said(text: str, word: str) -> None:
    notices: list[str] = []
    parse_matchspec(text, PLACE, base_dir=Path("/base"), notices=notices)
    assert len(notices) == 1
    assert word in notices[0]
    assert notices[0].startswith("environment.yml:7: ")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("numpy==", "operators: ="),
        ("numpy >=1.2 <2", "commas"),
        ("numpy>=1.2,", "each side"),
        ("numpy 1.2.", "such as"),
        ("numpy ~=1.2.*", "~=1.2"),
        ("numpy 1.*.2", "range"),
        ("numpy ^1.2$", "range"),
        (">=1.2", "name first"),
        ("numpy,scipy", "letters"),
        ("*", "one package"),
        ("-e .", "pip"),
        ("git+https://github.com/a/b", "pip"),
        ("numpy; python_version<'3'", "selector"),
        ("numpy {{ version }}", "template"),
        ("numpy[foo=1]", "known keys"),
        ("numpy[version='>=1'][build=x]", "one"),
        ("numpy[version='>=1'", "key="),
        ("numpy 1.2 py_0 extra", "commas"),
        ("@EXPLICIT", "letters"),
        ("package.conda", "original name"),
        ("", "remove the line"),
        ("mkl@", "nomkl"),
    ],
)
def test_what_conda_or_the_solver_refuses(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value.where) == "environment.yml:7:5"
    assert hint in str(caught.value.hint)
