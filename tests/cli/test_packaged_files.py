"""What is installed by a wheel: also the files beside the modules, which a checkout has anyway."""

from __future__ import annotations

from pathlib import Path

import pytest

import stackyard
from stackyard.core import toml

PACKAGE = Path(stackyard.__file__).parent


def test_a_wheel_has_every_file_that_the_modules_read() -> None:
    project = PACKAGE.parents[1] / "pyproject.toml"
    if not project.exists():
        pytest.skip("this is not a checkout: pyproject.toml not found")
    patterns = toml.loads(project.read_text())["tool"]["setuptools"]["package-data"]["stackyard"]
    listed = {file for pattern in patterns for file in PACKAGE.glob(pattern)}
    files = {file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert sorted(files - listed) == []
    assert all(list(PACKAGE.glob(pattern)) for pattern in patterns), "a pattern that names nothing"


def test_data_files_are_named_by_patterns_that_match() -> None:
    project = PACKAGE.parents[1] / "pyproject.toml"
    if not project.exists():
        pytest.skip("this is not a checkout: pyproject.toml not found")
    patterns = toml.loads(project.read_text())["tool"]["setuptools"]["data-files"]
    assert all(list(project.parent.glob(pattern)) for named in patterns.values() for pattern in named)
    pages = {file.name for pattern in patterns["share/man/man1"] for file in project.parent.glob(pattern)}
    assert {"stackyard.1", "stackyard-deploy.1"} < pages
