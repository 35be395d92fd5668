"""Packages that do not compile: the line, the cause and the remedy; and the remedy: more build requirements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from buildbed import build, locked, sdist

from stackyard.core import toml
from stackyard.core.errors import StackyardError, Where
from stackyard.host.run import command
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import BuildSpec, Environment, PackageBuild, PipOptions, PipRequirement, Variant
from stackyard.lock.lockfile.model import LockedVariant, PipPackage
from stackyard.make.mirror.requires import asked_for
from stackyard.make.wheels.buildsystem import add_requires
from stackyard.make.wheels.compile import _absent
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from support.tinywheel import project

needs_compiler = pytest.mark.skipif(command.which("cc") is None, reason="C compiler not found on PATH")

SETUP = """
from setuptools import Extension, setup
setup(name="cext", version="1.0", ext_modules=[Extension("cext", ["cext.c"])])
"""
LEGACY = "setuptools.build_meta:__legacy__"
IMPORTS = "import idna\nfrom setuptools import setup\nsetup(name='cext', version=idna.__version__)\n"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


def variant(wheelhouse: Mapping[str, PipPackage], *names: str, **packages: PackageBuild) -> Variant:
    """Requirements of a file, one a line from its third, and the local wheels as the only index."""
    directory = Path(wheelhouse["setuptools"].url.removeprefix("file://")).parent
    lines = tuple(
        PipRequirement(text=name, line=name, name=name, place=Where("/x/requirements.txt", number, 1))
        for number, name in enumerate(names, 3)
    )
    environment = Environment(pip=lines, pip_options=PipOptions(no_index=True, find_links=(str(directory),)))
    return Variant(
        stack="demo", version="1.0", name="py311", environment=environment, build=BuildSpec(packages=packages)
    )


def asked(*pip: PipPackage, requested: tuple[str, ...]) -> LockedVariant:
    return replace(locked(pip=pip), requested=tuple(f"pip: {line}" for line in requested))


@needs_compiler
def test_the_line_the_cause_and_the_remedy(yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]) -> None:
    source = sdist(tmp_path / "src", {"setup.py": SETUP, "cext.c": "#include <nowhere.h>\n"})
    spec = variant(wheelhouse, "idna", "cext")
    with pytest.raises(StackyardError, match=r"cannot compile cext 1\.0: the header nowhere\.h is missing") as caught:
        build(yard, asked(source, requested=("idna", "cext")), spec)
    assert caught.value.where and (caught.value.where.file, caught.value.where.line) == ("/x/requirements.txt", 4)
    assert "conda packages of the stack" in (caught.value.hint or "") and "build.log" in (caught.value.hint or "")
    assert "nowhere.h" in (caught.value.detail or "")


def test_who_requires_it(yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]) -> None:
    source = sdist(tmp_path / "src", {"setup.py": IMPORTS})
    above = replace(wheelhouse["packaging"], requires=("cext>=1",))
    with pytest.raises(StackyardError, match=r"cext 1\.0 \(required by packaging\b.*imports idna") as caught:
        build(yard, asked(source, above, requested=("packaging",)), variant(wheelhouse, "packaging"))
    assert caught.value.where and caught.value.where.line == 3
    assert "{cext: {isolation: true, requires: [idna]}}" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "files",
    [{}, {"pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'}],
    ids=["setup.py", "pyproject.toml"],
)
def test_the_remedy_in_isolation(
    yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage], files: dict[str, str]
) -> None:
    source = replace(sdist(tmp_path / "src", {"setup.py": IMPORTS, **files}, version="3.10"), version="")
    spec = variant(wheelhouse, "cext", cext=PackageBuild(isolation=True, requires=("idna<4",)))
    record = build(yard, locked(pip=[source]), spec)
    found = {p.name.partition("-")[0] for p in Path(record.prefix).glob("lib/python3*/site-packages/*.dist-info")}
    assert found == {"cext"}


def test_what_the_stack_has_is_not_installed_again(wheelhouse: dict[str, PipPackage], tmp_path: Path) -> None:
    job = type("Job", (), {"locked": locked(pip=[wheelhouse["idna"], wheelhouse["packaging"]])})()
    wanted = ["idna<4", "IDNA>=3", "packaging>=900", "wheel", "idna @ file:///x.whl", "not a requirement !"]
    assert _absent(job, wanted) == ["packaging>=900", "wheel", "idna @ file:///x.whl", "not a requirement !"]


def test_the_remedy_in_the_stack(yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]) -> None:
    source = replace(sdist(tmp_path / "src", {"setup.py": IMPORTS}), version="")
    spec = variant(wheelhouse, "cext", cext=PackageBuild(requires=("setuptools<81", "wheel", "idna")))
    record = build(yard, locked(pip=[wheelhouse["idna"], source]), spec)
    installed = [line for line in RevisionPaths.of(record.path).log.read_text().splitlines() if " + " in line]
    assert [sum(f"+ {name}==" in line for line in installed) for name in ("setuptools", "idna")] == [1, 1]


def test_a_mirror_holds_what_is_required_besides(wheelhouse: dict[str, PipPackage], tmp_path: Path) -> None:
    own = project(tmp_path / "own", "own")
    backend = (own / "backend.py").read_text()
    hook = "def get_requires_for_build_wheel(config_settings=None):\n    return ['packaging']\n"
    (own / "backend.py").write_text(f"import idna\n{backend}\n{hook}")
    directory = Path(wheelhouse["idna"].url.removeprefix("file://")).parent
    settings = PipSettings(indexes=(), no_index=True, find_links=(str(directory),))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    lines, problems = asked_for(own, settings, tmp_path / "cache", {}, tmp_path / "one")
    assert lines == () and "No module named 'idna'" in problems[0]
    found = asked_for(own, settings, tmp_path / "cache", {}, tmp_path / "two", ("idna<4",))
    assert found == (("idna<4", "packaging"), ())


# --------------------------------------------------------------------------- pyproject.toml


@pytest.mark.parametrize(
    ("text", "requires", "rest"),
    [
        ("", ["setuptools>=40.8.0"], {}),
        ('[project]\nname = "x"', ["setuptools>=40.8.0"], {"project": {"name": "x"}}),
        (
            '# kept\n[build-system]\nrequires = [\n  "flit",  # or [x]\n]\nbuild-backend = "flit"\n\n[tool]\ny = 1\n',
            ["flit"],
            {"tool": {"y": 1}},
        ),
        (
            '[ build-system ]\nrequires = []\nbackend-path = ["."]\n[[tool.x]]\nz = "[build-system]"\n',
            [],
            {"tool": {"x": [{"z": "[build-system]"}]}},
        ),
    ],
)
def test_more_build_requirements(tmp_path: Path, text: str, requires: list[str], rest: dict[str, Any]) -> None:
    file = tmp_path / "pyproject.toml"
    if text:
        file.write_text(text)
    before = toml.loads(text).get("build-system", {})
    add_requires(tmp_path, ["numpy<2", "cython"])
    made = toml.loads(file.read_text())
    table = made.pop("build-system")
    assert made == rest and table["requires"] == [*requires, "numpy<2", "cython"]
    assert {**table, "requires": ""} == {**(before or {"build-backend": LEGACY}), "requires": ""}
    assert ("# kept" in text) == ("# kept" in file.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "[build-system\n", "build-system = 3\n", "[build-system]\nrequires = 3\n",
        'build-system = {requires = ["flit"]}\n', 'build-system.requires = ["flit"]\n',
        '["build-system"]\nrequires = ["flit"]\n',
    ],
)  # fmt: skip
def test_a_file_to_which_nothing_can_be_added(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    with pytest.raises(StackyardError, match="cannot add build requirements") as caught:
        add_requires(tmp_path, ["numpy"])
    assert "isolation: false" in (caught.value.hint or "") and file.read_text() == text
