"""The functions of the Python API on yards, as a program calls them."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stackyard
import stackyard.calls
import stackyard.deploy
import stackyard.lock
import stackyard.verify  # the names of these rooms are then set by the import system
from stackyard.core.errors import ChecksFailed, InputError
from support import testbed
from support.cli import stackyard as command

ROOT = Path(__file__).parents[2]
NAMES = set(stackyard.calls.__all__)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Path:
    """A directory with a site, whose yard has demo/1.0."""
    directory = tmp_path_factory.mktemp("calls")
    file = _stack(directory, real_channel)
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    (directory / "site.yaml").write_text(
        f"yard: {directory / 'yard'}\nmodules: {{formats: [tcl]}}\npip: {{find_links: ['{wheels}']}}\n"
    )
    command("--site", directory / "site.yaml", "--yard", directory / "yard", "deploy", file)
    return directory


def _stack(directory: Path, channel: Path, version: str = "1.0", more: str = "") -> Path:
    file = directory / f"demo-{version}.yaml"
    file.write_text(
        f"name: demo\nversion: '{version}'\nenvironment:\n  channels: ['{channel.as_uri()}']\n"
        f"  dependencies: [python=3.11, six]\n{more}"
    )
    return file


@pytest.fixture(autouse=True)
def _here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("STACKYARD_SITE", str(place / "site.yaml"))
    monkeypatch.setenv("STACKYARD_HOME", str(place / "yard"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_the_functions_are_light_until_they_are_used() -> None:
    code = (
        "import sys, stackyard; assert not [name for name in sys.modules if name.startswith('stackyard.')]; "
        "from stackyard import deploy, list, lock, verify; assert callable(deploy) and callable(lock); "
        "import stackyard.deploy.forms; assert stackyard.deploy is deploy; "
        "assert not {'pydantic', 'rattler', 'stackyard.deploy.deploy', 'stackyard.lock.solve'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(dir(stackyard)) >= NAMES


def test_the_reference_names_each_function_with_its_arguments() -> None:
    text = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    for name in NAMES:
        section = re.search(rf"^## `stackyard\.{name}`\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
        assert section, name
        for argument in inspect.signature(getattr(stackyard.calls, name)).parameters:
            assert f"`{argument}`" in section[1] or argument in ("site", "yard", "progress"), (name, argument)


def test_a_file_is_locked_deployed_shown_and_verified(place: Path, real_channel: Path) -> None:
    file = _stack(place, real_channel, "1.1")
    [(path, variants)] = stackyard.lock(file, dry_run=True)
    assert not path.exists()
    assert stackyard.lock(file)[0][0] == path == place / "demo-1.1.yaml.lock"
    assert {package.name for package in variants[0].conda} >= {"python", "six"}
    assert stackyard.lock(file, locked=True)[0][1] == variants

    result = stackyard.deploy(file.name, locked=True)
    assert result.ok and [outcome.status for outcome in result.outcomes] == ["published"]
    manifest = command("history", "--json").value[0]
    assert "stackyard.deploy('demo-1.1.yaml')" in json.dumps(manifest)
    assert [outcome.status for outcome in stackyard.deploy(file.name).outcomes] == ["unchanged"]

    assert [dict(row) for row in stackyard.list()] == command("list", "--json").value
    assert json.loads(json.dumps(stackyard.show("demo"))) == command("show", "demo", "--json").value
    reports = stackyard.verify("demo/1.1")
    assert {module: report.state for module, report in reports.items()} == {"demo/1.1-py311-1": "passed"}
    assert set(stackyard.verify()) >= {"demo/1.0-py311-1", "demo/1.1-py311-1"}
    with pytest.raises(InputError, match="no such revision"):
        stackyard.show("dmo")


def test_what_fails_is_raised_or_returned(place: Path, real_channel: Path) -> None:
    with pytest.raises(InputError, match="cannot read none"):
        stackyard.deploy("none.yaml")
    file = _stack(place, real_channel, "2.0", "checks:\n  - {name: never, python: 'raise SystemExit(1)'}\n")
    with pytest.raises(ChecksFailed, match=r"not published: demo/2\.0-py311-1"):
        stackyard.deploy(file)
    result = stackyard.deploy(file, raises=False)
    assert not result.ok and result.outcomes[0].status == "failed"
    assert [check.name for check in result.outcomes[0].report.problems()]
    assert "demo/2.0-py311-1" not in [row["module"] for row in stackyard.list()]


def test_what_happens_goes_to_the_progress(place: Path) -> None:
    heard: list[str] = []

    class Heard:
        def phase(self, subject: str, phase: str, detail: str = "") -> None:
            heard.append(phase)

        def advance(self, subject: str, done: int, total: int) -> None:
            pass

        def notice(self, text: str) -> None:
            heard.append(text)

    stackyard.verify("demo/1.0", deep=True, progress=Heard())
    assert "passed" in heard


def test_an_extension_is_made_and_removed(place: Path) -> None:
    yard = place / "mine"
    done = stackyard.extend("own", base="demo/1.0", pip=["mdurl"], yard=yard)
    assert [outcome.module for outcome in done.outcomes] == ["own/1.0-py311-1"]
    assert (yard / "extensions/own/stack.yaml").is_file()
    with pytest.raises(InputError):
        stackyard.extend("own", pip=[""], yard=yard)
    outcome = stackyard.remove("own", yard=yard)
    assert [item.what.module for item in outcome.items] == ["own/1.0-py311-1"]
    assert "own" not in [row["stack"] for row in stackyard.list(yard=yard)]
    assert "removed" in [row["state"] for row in stackyard.list(yard=yard, everything=True)]


def test_the_text_of_an_error_has_its_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        stackyard.show("nosuch", yard=tmp_path)
    assert str(caught.value) == f"{caught.value.message}\nhint: {caught.value.hint}" and caught.value.hint
    (tmp_path / "stack.yaml").write_text("version: 1\nverison: 2\nenviroment: {}\nmodules: {}\n")
    with pytest.raises(InputError) as caught:
        stackyard.deploy(tmp_path / "stack.yaml", yard=tmp_path)
    assert str(caught.value).count("hint: did you mean") == 2
