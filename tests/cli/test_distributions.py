"""The sdist and the wheel are complete, agree with each other, and work in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stackyard import __version__
from support import distributions, modules
from support.distributions import REPOSITORY
from support.torchstack import HOME

NOT_IN_SDIST = {".gitignore", ".pre-commit-config.yaml"}
PRESENT = re.compile(r"(?<![\w.>=])(?:stackyard[-/]|opt/stackyard/|version:? \"?)(\d+\.\d+\.\d+[\w.]*?)(?=[-\"\s`/]|$)")
"""Where a page or an example says which version of Stackyard it is about."""
SPEAKS_OF_IT = ("docs/howto/install-for-everybody.md", "examples/stackyard/stack.yaml",
                "examples/stackyard/requirements.txt")  # fmt: skip
SHARED = {
    "bash-completion/completions/stackyard.bash": "complete ",
    "zsh/site-functions/_stackyard": "#compdef stackyard",
    "fish/vendor_completions.d/stackyard.fish": "complete -c stackyard",
    "tcsh/completions/stackyard.tcsh": "complete stackyard",
}
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that was built from it."""
    return distributions.built(tmp_path_factory.mktemp("from-sdist"))


@pytest.mark.parametrize("name", SPEAKS_OF_IT)
def test_what_speaks_of_a_version_speaks_of_this_one(name: str) -> None:
    said = PRESENT.findall((REPOSITORY / name).read_text())
    assert said and set(said) == {__version__}


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## (.*)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [heading for heading in headings if heading != "Unreleased"]
    assert released[0].split()[0] == __version__


@pytest.mark.long
def test_the_wheel_has_the_files_of_the_package_and_no_others(dist: Path) -> None:
    found = distributions.contents(distributions.wheel_of(dist))
    ours = {name.removeprefix("src/") for name in distributions.tracked() if name.startswith("src/stackyard/")}
    assert {name for name in found if name.startswith("stackyard/")} == ours
    changed = [name for name in ours if found[name] != (REPOSITORY / "src" / name).read_bytes()]
    assert changed == []
    assert distributions.wheel_of(dist).name == f"stackyard-{__version__}-py3-none-any.whl"
    metadata = found[f"stackyard-{__version__}.dist-info/METADATA"].decode()
    assert f"\nVersion: {__version__}\n" in metadata


@pytest.mark.long
def test_the_sdist_has_the_checkout_and_gives_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if not member.isdir()}
    assert set(distributions.tracked()) - names == NOT_IN_SDIST
    made = {"PKG-INFO", "setup.cfg"}
    extra = {name for name in names - set(distributions.tracked()) if not name.startswith("src/stackyard.egg-info/")}
    assert extra == made
    from_tree = distributions.wheel_of(distributions.built(tmp_path, "--wheel"))
    assert distributions.contents(from_tree) == distributions.contents(distributions.wheel_of(dist))


@pytest.fixture(scope="module")
def empty(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires, and nothing of the checkout."""
    place = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=240)
    argv = [place / "bin/python", "-m", "pip", "install", "--quiet", distributions.wheel_of(dist)]
    subprocess.run(argv, check=True, env={**os.environ, "HOME": HOME}, timeout=600)
    return place


def typed(empty: Path, place: Path, *argv: str) -> str:
    """What a command prints, typed in an empty directory where only the environment and the system are on PATH."""
    passed = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") or "SSL" in name}
    environ = {"PATH": f"{empty}/bin:/usr/bin:/bin", "HOME": HOME, "STACKYARD_HOME": str(place / "yard"), **passed}
    done = subprocess.run(argv, cwd=place, env=environ, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
def test_it_works_from_the_wheel_alone(empty: Path, tmp_path: Path) -> None:
    if reason := modules.missing("lmod", "bash"):
        pytest.skip(reason)
    assert typed(empty, tmp_path, "stackyard", "--version") == f"stackyard, version {__version__}\n"
    where = typed(empty, tmp_path, "python", "-c", "import stackyard; print(stackyard.__file__)")
    assert where.startswith(str(empty))
    shutil.copytree(REPOSITORY / "examples/quickstart", tmp_path / "quickstart")
    assert "quickstart/1.0-py3-1" in typed(empty, tmp_path, "stackyard", "deploy", "quickstart/stack.yaml")
    lines = [modules.initialise("lmod", "bash"), f"module use {tmp_path}/yard/modules", "module load quickstart",
             "python -c 'import numpy, sys; print(numpy.ones(3).sum(), sys.prefix)'"]  # fmt: skip
    shown = typed(empty, tmp_path, "bash", "--norc", "-c", "\n".join(lines))
    assert shown == f"3.0 {tmp_path}/yard/stacks/quickstart/1.0-py3-1/prefix\n"


@pytest.mark.long
def test_what_others_read_is_below_share(empty: Path) -> None:
    for name, text in SHARED.items():
        assert text in (empty / "share" / name).read_text(), name
    pages = {path.name: path.read_bytes() for path in (REPOSITORY / "docs/man").glob("*.1")}
    assert pages and {path.name: path.read_bytes() for path in (empty / "share/man/man1").iterdir()} == pages
