"""Source packages that do not build: which, from which line, why, and what to type about it."""

from __future__ import annotations

import io
import re
import string
import tarfile
from pathlib import Path
from typing import Any

import pytest
from helpers_lock import pip, wheel

from stackyard.core.errors import StackyardError
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import BuildSpec, PackageBuild, PipRequirement
from stackyard.inputs.pip.requirements import read_requirements
from stackyard.lock.explain.sourcefailure import explained, rules
from stackyard.lock.explain.unbuilt import placed
from stackyard.lock.pip.projectname import project_name
from stackyard.lock.pip.resolve import PipRequest, PipSolution, solve_pip
from stackyard.lock.pip.uvcompile import BuildFailed
from support.tinywheel import BACKEND, project

EXAMPLES = {
    "build-requirement": "  cause: No solution found when resolving: `setuptools>=900`",
    "renamed": "The 'sklearn' PyPI package is deprecated, use 'scikit-learn'",
    "use-2to3": "error in demo setup command: use_2to3 is invalid.",
    "old-setuptools": "AttributeError: module 'pkgutil' has no attribute 'ImpImporter'. Did you mean: 'zipimporter'?",
    "versioneer": "AttributeError: module 'configparser' has no attribute 'SafeConfigParser'",
    "cython-3": "AttributeError: 'build_ext' object has no attribute 'cython_sources'. Did you mean: 'swig_sources'?",
    "backend": "pyproject_hooks._impl.BackendUnavailable: Cannot import 'flit_core.buildapi'",
    "wheel": "error: invalid command 'bdist_wheel'",
    "pkg-resources": "Failed to import the 'pkg_resources' module",
    "cmake-4": "  Compatibility with CMake < 3.5 has been removed from CMake.",
    "cmake": "FileNotFoundError: [Errno 2] No such file or directory: 'cmake'",
    "ninja": "/bin/sh: 1: ninja: not found",
    "rust": "error: can't find Rust compiler",
    "python-headers": "src/demo.c:1:10: fatal error: Python.h: No such file or directory",
    "mpi": "error: Cannot compile MPI programs. Check your configuration!!!",
    "cuda": "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
    "cxx-of-torch": "#error C++17 or later compatible compiler is required to use PyTorch.",
    "gcc-of-nvcc": "#error -- unsupported GNU version! gcc versions later than 12 are not supported!",
    "old-compiler": "gcc: error: unrecognized command line option ‘-std=c++17’",
    "memory": "c++: fatal error: Killed signal terminated program cc1plus",
    "fortran": "error: gfortran: No such file or directory",
    "compiler": "error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory",
    "version-from-git": "LookupError: setuptools-scm was unable to detect version for /tmp/demo.",
    "incomplete-archive": "FileNotFoundError: [Errno 2] No such file or directory: 'requirements.txt'",
    "flat-layout": "error: Multiple top-level packages discovered in a flat-layout: ['a', 'b'].",
    "program": "Error: pg_config executable not found.",
    "unnamed-program": "CalledProcessError: Command '['./bundle.sh', '0.1']' returned non-zero exit status 127.",
    "headers-of-a-package": "demo.cpp:1:10: fatal error: pybind11/pybind11.h: No such file or directory",
    "header": "src/gmpy.h:106:19: fatal error: gmp.h: No such file or directory",
    "library": "/usr/bin/ld: cannot find -lhdf5",
    "older-python": "demo.c:9: error: ‘PyThreadState’ has no member named ‘exc_type’",
    "python-2": "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?",
    "names-of-python": "ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.11)",
    "other-version": "    from Cython.Build import build_ext\nImportError: cannot import name build_ext",
    "network": "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>",
}
"""Of each rule what builds print, as they were reported."""


# --------------------------------------------------------------------------- the table


def test_every_rule_says_what_to_do_and_has_an_example() -> None:
    assert [r.name for r in rules()] == [*EXAMPLES], "an example for every rule, in the order of the table"
    for rule in rules():
        groups = {name for pattern in rule.patterns for name in re.compile(pattern).groupindex} | {"name", "top"}
        texts = (rule.cause, rule.remedy, *rule.requires)
        filled = {name for text in texts for name in re.findall(r"(?<!`build: )\{(\w+)\}", text)}
        assert filled <= groups, f"{rule.name} names {filled - groups}, which no pattern finds"
        assert rule.cause and (rule.remedy or rule.requires or rule.variables), rule.name
        assert rule.source.startswith("https://"), f"{rule.name} says where it is documented"
        assert rule.cause[0] in string.ascii_letters + "{" and not rule.cause.endswith("."), rule.name


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_first_rule_that_matches_is_the_right_one(name: str) -> None:
    rule = next(r for r in rules() if any(re.search(p, EXAMPLES[name]) for p in r.patterns))
    assert rule.name == name
    found = explained(f"running build_ext\n{EXAMPLES[name]}\n", "demo", BuildSpec(), "requirements.txt")
    assert found and found.cause and found.remedy
    assert not re.search(r"(?<!packages: )\{[a-z_]+\}", found.cause + found.remedy.partition("`build:")[0])


@pytest.mark.parametrize(
    ("output", "cause", "remedy"),
    [
        ("ModuleNotFoundError: No module named 'pkg_resources'", "version 82", 'requires: ["setuptools<81"]'),
        ("ModuleNotFoundError: No module named 'numpy'", "does not declare", "isolation: true, requires: [numpy]"),
        ("ImportError: No module named Cython.Distutils", "imports Cython.Distutils", "requires: [cython]"),
        ("ModuleNotFoundError: No module named 'skbuild'", "does not declare", "requires: [scikit-build]"),
        ("ModuleNotFoundError: No module named 'torch'", "imports torch", "{requires: [setuptools, wheel, torch]}"),
        ("ModuleNotFoundError: No module named 'imp'", "no longer has since version 3.12", "or an older Python"),
        ("ModuleNotFoundError: No module named 'demo.core'", "before that is built", "another version of demo"),
    ],
)
def test_a_module_that_nobody_declared(output: str, cause: str, remedy: str) -> None:
    found = explained(f"Traceback (most recent call last):\n  File x\n{output}\n", "demo", BuildSpec())
    assert found and cause in found.cause and remedy in found.remedy


def test_an_import_that_was_survived_is_not_the_cause() -> None:
    output = "ModuleNotFoundError: No module named 'cython'\n" + "building\n" * 40 + EXAMPLES["header"]
    found = explained(output, "demo", BuildSpec())
    assert found and "gmp.h" in found.cause


def test_the_remedy_keeps_what_is_already_written() -> None:
    output = "ModuleNotFoundError: No module named 'numpy'"
    own = PackageBuild(isolation=True, requires=("cython<3", "numpy>=2"))
    found = explained(output, "Demo_Pkg", BuildSpec(packages={"demo-pkg": own}), "stack.yaml")
    assert found and 'requires: ["cython<3", numpy]' in found.remedy
    assert found.remedy.startswith("write into the stack's file: `build: {packages: {Demo_Pkg: ")
    here = explained(output, "demo", BuildSpec(), "envs/requirements.txt")
    assert here and here.remedy.startswith("write a stack.yaml with `environment: requirements.txt` and `build: ")
    not_isolated = BuildSpec(packages={"demo": PackageBuild(requires=("cython",))})
    again = explained(output, "demo", not_isolated, "stack.yaml")
    assert again and "{demo: {requires: [cython, numpy]}}" in again.remedy


def test_what_no_rule_knows() -> None:
    assert explained("RuntimeError: the moon is in the wrong phase\n", "demo", BuildSpec()) is None


# --------------------------------------------------------------------------- the lock


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A directory with a build requirement, and with a package whose requirement has source only."""
    directory = tmp_path / "links"
    wheel(directory, "numbers-of", "1.0")
    wheel(directory, "numbers-of", "2.0")
    wheel(directory, "app", "1.0", ["late>=1"])
    made = unbuilt(tmp_path / "late", "late", "import numbers_of")
    with tarfile.open(directory / "late-1.0.tar.gz", "w:gz") as archive:
        for file in (*made.iterdir(), made / "PKG-INFO"):
            text = file.read_bytes() if file.is_file() else b"Metadata-Version: 2.1\nName: late\nVersion: 1.0\n"
            info = tarfile.TarInfo(f"late-1.0/{file.name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return directory


def unbuilt(directory: Path, name: str, first: str, says: str = "setup.cfg") -> Path:
    """A project that runs `first` before its wheel is made, and says its name in one file alone."""
    project(directory, name.replace("-", "_"))
    (directory / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    texts = {"setup.cfg": f"[metadata]\nname = {name}\n", "setup.py": f"setup(name='{name}')\n"}
    (directory / says).write_text(texts[says])
    (directory / "backend.py").write_text(f"{first}\n{BACKEND.format(name=name.replace('-', '_'))}")
    return directory


def solve(links: Path, cache: Path, requirements: tuple[PipRequirement, ...], **packages: PackageBuild) -> PipSolution:
    settings = PipSettings(indexes=(), no_index=True, find_links=(str(links),))
    values: dict[str, Any] = {"platform": "linux-64", "python": "3.11.9", "glibc": "2.28"}
    build = BuildSpec(packages={name.replace("_", "-"): own for name, own in packages.items()})
    return solve_pip(
        PipRequest("demo 1", requirements=requirements, settings=settings, cache=cache, build=build, **values)
    )


def written(tmp_path: Path, *lines: str) -> tuple[PipRequirement, ...]:
    file = tmp_path / "requirements.txt"
    file.write_text("\n".join(lines) + "\n")
    return read_requirements(file).pip


@pytest.mark.parametrize(("says", "label"), [("setup.cfg", "my-proj"), ("setup.py", r"\./my proj")])
def test_a_local_project_that_does_not_build_is_named_with_its_line(
    links: Path, cache: Path, tmp_path: Path, says: str, label: str
) -> None:
    unbuilt(tmp_path / "my proj", "my-proj", "import numbers_of", says)
    requirements = written(tmp_path, "numbers-of==1.0", "./my proj")
    with pytest.raises(StackyardError, match=f"cannot build {label}: it imports numbers_of while it") as caught:
        solve(links, cache, requirements)
    where, hint = caught.value.where, caught.value.hint or ""
    assert where and (Path(where.file).name, where.line) == ("requirements.txt", 2)
    assert "`build: {packages: {my-proj: {isolation: true, requires: [numbers-of]}}}`" in hint
    assert "No module named 'numbers_of'" in (caught.value.detail or "")

    solution = solve(links, cache, requirements, my_proj=PackageBuild(isolation=True, requires=("numbers-of",)))
    found = {p.name: p for p in solution.packages}
    assert found["my-proj"].kind == "path" and found["numbers-of"].version == "1.0"


def test_the_remedy_is_for_an_archive_too_and_names_who_requires_it(links: Path, cache: Path, tmp_path: Path) -> None:
    requirements = written(tmp_path, "# nothing", "", "app")
    with pytest.raises(StackyardError, match=r"cannot build late 1\.0, which app requires: it imports") as caught:
        solve(links, cache, requirements)
    assert caught.value.where and caught.value.where.line == 3
    assert "{late: {isolation: true, requires: [numbers-of]}}" in (caught.value.hint or "")
    solution = solve(links, cache, requirements, late=PackageBuild(isolation=True, requires=("numbers-of<2",)))
    assert {p.name for p in solution.packages} == {"app", "late"}


def test_a_failure_without_a_known_cause_shows_its_exception(links: Path, cache: Path, tmp_path: Path) -> None:
    unbuilt(tmp_path / "odd", "odd", "raise RuntimeError('the moon is in the wrong phase')")
    with pytest.raises(StackyardError, match=r"cannot build odd: RuntimeError: the moon is in the") as caught:
        solve(links, cache, written(tmp_path, "./odd"))
    assert "pip wheel --no-deps" in (caught.value.hint or "")


def test_what_a_build_requires_and_nobody_has(links: Path, cache: Path, tmp_path: Path) -> None:
    unbuilt(tmp_path / "odd", "odd", "import numbers_of")
    requirements = written(tmp_path, "app", "./odd")
    own = PackageBuild(isolation=True, requires=("numbers-of>2",))
    with pytest.raises(StackyardError, match=r"cannot build odd: .* no solution, numbers-of>2") as caught:
        solve(links, cache, requirements[1:], odd=own)
    assert caught.value.where and caught.value.where.line == 2
    assert "only numbers-of" in (caught.value.detail or "")


def test_a_wheel_that_is_none(links: Path, cache: Path, tmp_path: Path) -> None:
    made = unbuilt(tmp_path / "odd", "odd", "")
    (made / "backend.py").write_text(BACKEND.format(name="odd").replace("odd-1.0-py3-none-any.whl", "odd-py3.whl"))
    with pytest.raises(StackyardError, match=r"cannot build odd: The wheel filename `odd-py3\.whl` is invalid"):
        solve(links, cache, written(tmp_path, "./odd"))


def test_a_commit_that_does_not_build_is_found_by_its_url() -> None:
    url = "https://git.example/odd.git"
    requirement = pip(f"odd @ git+{url}@v1")[0].model_copy(update={"kind": "vcs", "url": f"git+{url}@v1"})
    subject = f"odd @ git+{url}@{'1' * 40}"
    error = BuildFailed("x", subject, "error: command 'gcc' failed: No such file or directory")
    told = placed(error, (requirement,), BuildSpec(), None)
    assert told.message == "cannot build odd: a C or C++ compiler is missing"


# --------------------------------------------------------------------------- the name of a local project


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"pyproject.toml": '[project]\nname = "one"\n', "setup.py": "setup(name='other')"}, "one"),
        ({"pyproject.toml": "[build-system]\nrequires = []\n", "setup.cfg": "[metadata]\nname = two\n"}, "two"),
        ({"setup.py": "from setuptools import setup\nsetup(name='three', version='1')\n"}, "three"),
        ({"setup.py": "setup(name='three')\nrun(name='four')\n"}, ""),
        ({"setup.py": "setup(name=NAME)\n"}, ""),
        ({"pyproject.toml": "[project\n", "setup.py": "setup(name='five')\n"}, "five"),
        ({"pyproject.toml": "project = 3\n"}, ""),
        ({"pyproject.toml": '[project]\nname = "a b"\n'}, ""),
        ({}, ""),
    ],
)
def test_the_name_of_a_project_without_building_it(tmp_path: Path, files: dict[str, str], name: str) -> None:
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    assert project_name(tmp_path) == name
