"""Why a package is there, and what changed between two sets of packages."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from stackyard.core.errors import InputError
from stackyard.core.names import conda_name, distributions, pip_name
from stackyard.lock.explain.diff import compare
from stackyard.lock.explain.why import chains
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, LockedVariant, PipPackage
from stackyard.yard.revision.record import BuildRecord, PackageRecord


def conda(name: str, version: str, *depends: str, **more: object) -> CondaPackage:
    url = f"https://c/linux-64/{name}-{version}-0.conda"
    return CondaPackage(name, version, "0", 0, "linux-64", "https://c", url, "aa" * 32, depends=depends, **more)  # type: ignore[arg-type]


def pip(name: str, version: str, *requires: str, url: str = "") -> PipPackage:
    return PipPackage(name, version, "wheel", url or f"https://p/{name}-{version}.whl", "bb" * 32, requires=requires)


VARIANT = LockedVariant(
    "demo", "1", "gpu", "linux-64", "h", LockedInterpreter("conda", "3.11.9"),
    requested=("c::pytorch 2.*", "python 3.11.*", "pip: horovod[pytorch]==0.28.1", "pip: git+https://g/tool.git@v1"),
    conda=(
        conda("python", "3.11.9", "openssl >=3"), conda("openssl", "3.3"), conda("unasked", "1"),
        conda("pytorch", "2.1", "python >=3.11", "typing_extensions", "libblas *=*_mkl", "__glibc >=2.17"),
        conda("typing_extensions", "4.9", "python"), conda("libblas", "3.9", "mkl"), conda("mkl", "2023"),
    ),
    pip=(
        pip("horovod", "0.28.1", "torch>=1", "cloudpickle", "psutil ; sys_platform == 'linux'"),
        pip("cloudpickle", "3"), pip("psutil", "5"),
        replace(pip("tool", "1", "cloudpickle>=2", url="git+https://g/tool.git"), kind="vcs", commit="a" * 40),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("pytorch", [["pytorch 2.1"], ["horovod 0.28.1", "pytorch 2.1"]]),
        ("torch", [["pytorch 2.1"], ["horovod 0.28.1", "pytorch 2.1"]]),
        ("mkl", [["pytorch 2.1", "libblas 3.9", "mkl 2023"],
                 ["horovod 0.28.1", "pytorch 2.1", "libblas 3.9", "mkl 2023"]]),
        ("CloudPickle", [["horovod 0.28.1", "cloudpickle 3"], ["tool 1", "cloudpickle 3"]]),
        ("psutil", [["horovod 0.28.1", "psutil 5"]]),
        ("typing-extensions", [["pytorch 2.1", "typing_extensions 4.9"],
                               ["horovod 0.28.1", "pytorch 2.1", "typing_extensions 4.9"]]),
        ("unasked", []),
    ],
)  # fmt: skip
def test_chains(package: str, expected: list[list[str]]) -> None:
    assert chains(VARIANT, package) == expected


def test_unknown_package_has_a_suggestion() -> None:
    with pytest.raises(InputError) as caught:
        chains(VARIANT, "cloudpikle")
    assert "cloudpickle" in str(caught.value.hint)


def test_cycles_end() -> None:
    ring = replace(
        VARIANT, requested=("a",), conda=(conda("a", "1", "b"), conda("b", "1", "a"), conda("z", "1")), pip=()
    )
    assert chains(ring, "b") == [["a 1", "b 1"]]
    assert chains(ring, "z") == []


def test_compare_locks() -> None:
    other = replace(
        VARIANT,
        conda=tuple(replace(p, version="2024") if p.name == "mkl" else p for p in VARIANT.conda if p.name != "unasked"),
        pip=(*(replace(p, sha256="cc" * 32) if p.name == "psutil" else p for p in VARIANT.pip), pip("new", "1")),
    )
    found = compare(VARIANT, other)
    assert [i.name for i in found.added] == ["new"]
    assert [i.name for i in found.removed] == ["unasked"]
    assert [(c.new.name, c.what) for c in found.changed] == [("mkl", ("version",)), ("psutil", ("sha256",))]
    assert found.lines() == [
        "~ mkl 2023 0 -> 2024 0 (conda)", "+ new 1 (pip)",
        "~ psutil 5: other bytes of the same version, bbbbbbbbbbbb -> cccccccccccc", "- unasked 1 0 (conda)",
    ]  # fmt: skip
    assert not compare(VARIANT, VARIANT)


def test_compare_records_and_plain_packages() -> None:
    packages = (PackageRecord("numpy", "1.26.4", "conda", "py311_0", "https://c"), PackageRecord("six", "1.16", "pip"))
    record = BuildRecord("s", "1", "v", 1, "s/1-v-1", "h", "linux-64", "/p", "/p/prefix", "now", packages=packages)
    moved = (packages[0], replace(packages[1], kind="conda"))
    found = compare(record, replace(record, packages=moved))
    assert [i.kind for i in found.added] == ["conda"] and [i.kind for i in found.removed] == ["pip"]
    assert compare(record.packages, moved) == found
    assert compare((*VARIANT.conda, *VARIANT.pip), VARIANT) == compare(VARIANT, VARIANT)


@pytest.mark.parametrize(
    ("line", "name"),
    [("Torch[x] >=1", "torch"), ("typing_extensions", "typing-extensions"), ("a@ https://x/a.whl", "a"),
     ("https://x/a.whl", ""), ("./a", ""), ("git+https://x", ""), ("a ; python_version>'3'", "a"), ("a~=1", "a")],
)  # fmt: skip
def test_pip_name(line: str, name: str) -> None:
    assert pip_name(line) == name


@pytest.mark.parametrize(
    ("spec", "name"),
    [("conda-forge::numpy >=1", "numpy"), ("numpy=1.26", "numpy"), ("numpy[build=x]", "numpy"),
     ("https://c/linux-64/py-lib-1.0-h_0.conda#aa", "py-lib"), ("https://c/forge::x 1", "x")],
)  # fmt: skip
def test_conda_name(spec: str, name: str) -> None:
    assert conda_name(spec) == name


@pytest.mark.parametrize(
    ("name", "purls", "depends", "expected"),
    [
        ("pytorch", ("pkg:pypi/torch@2.1.0%2Bcpu",), ("python",), ("torch",)),
        ("numpy", (), ("python >=3.11", "libblas"), ("numpy",)),
        ("typing_extensions", (), ("python",), ("typing-extensions",)),
        ("libblas", (), ("mkl",), ()),
        ("odd", ("pkg:pypi/Real_Name@1.0", "pkg:conda/odd"), (), ("real-name",)),
        ("bundle", ("pkg:pypi/b@1", "pkg:pypi/a", "pkg:pypi/..%2Fa@1"), (), ("a", "b")),
    ],
)
def test_distributions(name: str, purls: tuple[str, ...], depends: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert distributions(name, purls, depends) == expected


def test_read_commands_import_nothing_heavy() -> None:
    code = (
        "import sys; from stackyard.lock.explain import diff, why; from stackyard.lock.lockfile import model, text;"
        "heavy = {'pydantic', 'rattler', 'ruamel', 'rich', 'jinja2', 'packaging', 'urllib.request'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
