"""A check that an installed package adds: used by its name, named in reports, and a failed check where it is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stackyard.host.machine.platforms import this_platform
from support.channel import Package, make_channel
from support.pluginvenv import install, venv_with_plugins

BROKEN = """
from stackyard.verify.checks.base import Check
from stackyard.verify.report import CheckResult

STACKYARD_PROTOCOL = 1

def fails(_):
    raise ValueError("a mistake of ours")

raises = Check(("own",), "own", fails)
foreign = Check(("own",), "own", lambda context: [CheckResult("content", "x", "passed")])
text = "not a check"
stage = Check(("own",), "never", lambda context: [])
kind = Check(("site",), "own", lambda context: [])
"""


class Bed:
    """A stack of one package, a site and a yard, and a Stackyard with plug-ins."""

    def __init__(self, directory: Path, venv: Path) -> None:
        self.directory, self.venv, self.yard = directory, venv, directory / "yard"
        channel = make_channel(directory / "channel", [Package("lib", "1.0", subdir=this_platform())]).as_uri()
        self.stack = directory / "stack.yaml"
        environment = {"channels": [channel], "dependencies": ["lib"]}
        self.stack.write_text(json.dumps({"name": "demo", "version": "1", "environment": environment}))
        self.site = directory / "site.yaml"
        self.policy()

    def policy(self, *checks: Any) -> None:
        self.site.write_text("name: here\nchecks:\n" + "".join(f"  - {json.dumps(each)}\n" for each in checks))

    def run(self, *words: str, code: int = 0) -> str:
        argv = [self.venv / "bin/python", "-m", "stackyard", "--yard", self.yard, "--site", self.site, *words]
        environ = {**os.environ, "HOME": str(self.directory)}
        done = subprocess.run(
            argv, cwd=self.directory, env=environ, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def revision(self) -> Path:
        (found,) = (self.yard / "stacks" / "demo").iterdir()
        return found

    def own(self) -> list[dict[str, Any]]:
        checks = json.loads((self.revision / "report.json").read_text())["checks"]
        return [check for check in checks if check["kind"] == "own"]


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = venv_with_plugins(tmp_path_factory.mktemp("plugins"))
    points = "".join(f"{name} = broken:{name}\n" for name in ("raises", "foreign", "text", "stage", "kind"))
    install(next(made.glob("lib/python*/site-packages")), "broken", f"[stackyard.checks]\n{points}", BROKEN)
    return made


@pytest.fixture
def bed(tmp_path: Path, venv: Path) -> Bed:
    return Bed(tmp_path, venv)


def test_a_check_of_a_plug_in_runs_and_is_named_in_the_report(bed: Bed) -> None:
    bed.policy({"plugin": "stack-size"})
    bed.run("deploy", "stack.yaml")
    (check,) = bed.own()
    assert (check["name"], check["status"], check["detail"]) == ("size (stackyard_site 1.0)", "passed", "0.0 GiB of 50")
    names = {case.get("name") for case in ElementTree.parse(bed.revision / "report.xml").iter("testcase")}
    assert "size (stackyard_site 1.0)" in names
    bed.policy()
    assert '"status": "unchanged"' in bed.run("deploy", "stack.yaml", "--json")


def test_an_unknown_check_is_told_with_its_place(bed: Bed) -> None:
    bed.policy("checks.yaml", {"plugin": "stack-sise"})
    (bed.directory / "checks.yaml").write_text("- true\n")
    told = bed.run("deploy", "stack.yaml", code=2)
    assert "site.yaml:4:16: no such check: stack-sise" in told and "did you mean stack-size?" in told
    assert not (bed.yard / "stacks").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("text", "broken:text is not a check of this name"),
        ("stage", "its kinds are ('own',), its stage is 'never'"),
        ("kind", "its kinds are ('site',), its stage is 'own'"),
    ],
)
def test_what_is_not_a_check_is_refused_before_anything_is_built(bed: Bed, name: str, why: str) -> None:
    bed.policy({"plugin": name})
    assert f"cannot use the plug-in {name} (broken 1.0): {why}" in bed.run("deploy", "stack.yaml", code=1)
    assert not (bed.yard / "stacks").exists()


def test_a_mistake_in_a_check_of_a_plug_in_is_a_check_that_failed(bed: Bed) -> None:
    bed.policy({"plugin": "raises"}, {"plugin": "foreign"}, {"plugin": "stack-size"})
    told = bed.run("deploy", "stack.yaml", code=3)
    assert "raises (broken 1.0): ValueError: a mistake of ours" in told
    raised, foreign, size = bed.own()
    assert raised["status"] == foreign["status"] == "failed" and size["status"] == "passed"
    assert "in fails" in raised["detail"] and "authors of the plug-in" in raised["remedy"]
    assert foreign["detail"].endswith("ValueError: results of another kind than own: content\n")
