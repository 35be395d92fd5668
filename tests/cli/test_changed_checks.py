"""Other checks verify a revision anew and build nothing; nor does a policy that does not concern its files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from stackyard.host.machine.platforms import this_platform
from support.channel import Package, make_channel
from support.cli import Done, stackyard


class Bed:
    """A stack with checks, a site and a yard."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.yard = directory, directory / "yard"
        self.channel = make_channel(directory / "channel", [Package("lib", "1.0", subdir=this_platform())]).as_uri()
        self.site = directory / "site.yaml"
        self.policy()

    def policy(self, **values: Any) -> None:
        self.site.write_text(json.dumps({"name": "here", **values}))

    def deploy(self, *words: str, expect: int = 0, checks: list[dict[str, Any]], **more: Any) -> Done:
        environment = {"channels": [self.channel], "dependencies": ["lib"]}
        stack = {"name": "demo", "version": "1", "environment": environment, "checks": checks, **more}
        (self.directory / "stack.yaml").write_text(json.dumps(stack))
        return self.run("deploy", str(self.directory / "stack.yaml"), *words, expect=expect)

    def run(self, *words: str, expect: int = 0) -> Done:
        return stackyard("--yard", self.yard, "--site", self.site, *words, expect=expect)

    @property
    def revisions(self) -> list[Path]:
        return sorted((self.yard / "stacks" / "demo").iterdir())

    def state(self) -> str:
        (row,) = self.run("list", "--json").value
        return str(row["state"])

    def report(self) -> Any:
        return json.loads((self.revisions[0] / "report.json").read_text())


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def says(word: str, expect: str) -> list[dict[str, Any]]:
    return [{"name": "word", "run": ["echo", word], "expect": expect}]


def test_a_changed_expectation_builds_nothing(bed: Bed) -> None:
    bed.deploy(checks=says("one", "two"), expect=3)  # a wrong expectation: built, not published
    assert "demo/1-default-1" in bed.deploy(checks=says("one", "one")).out
    first = bed.report()["check_hash"]
    assert bed.state() == "published" and len(bed.revisions) == 1
    told = bed.deploy(checks=says("one", "three"), expect=3)
    assert "published before, now listed as failed" in told.out and bed.state() == "failed"
    bed.deploy("--dry-run", checks=says("one", "o.e"))
    assert bed.state() == "failed"
    bed.deploy(checks=says("one", "o.e"))
    assert bed.state() == "published" and bed.report()["check_hash"] != first
    assert bed.deploy("--json", checks=says("one", "o.e")).value["revisions"][0]["status"] == "unchanged"
    assert len(bed.revisions) == 1
    bed.run("verify")  # the checks of the file are those of the revision now
    assert bed.report()["check_hash"] != first and bed.report()["state"] == "passed"


def test_a_changed_script_is_kept_with_the_revision(bed: Bed) -> None:
    script = bed.directory / "probe.sh"
    checks = [{"name": "probe", "script": "probe.sh"}]
    script.write_text("exit 0\n")
    bed.deploy(checks=checks)
    assert bed.deploy("--json", checks=checks).value["revisions"][0]["status"] == "unchanged"
    script.write_text("echo other\n")
    assert bed.deploy("--json", checks=checks).value["revisions"][0]["status"] == "published"
    assert bed.deploy("--json", checks=checks).value["revisions"][0]["status"] == "unchanged"
    script.unlink()
    bed.run("verify")
    assert next(c["detail"] for c in bed.report()["checks"] if c["name"] == "probe") == "other"
    assert len(bed.revisions) == 1
    assert "no such file" in bed.deploy(checks=checks, expect=2).err


def test_a_file_that_changes_while_it_is_deployed_is_not_taken_for_deployed(bed: Bed) -> None:
    file = bed.directory / "stack.yaml"
    bed.deploy(checks=[{"name": "pull", "run": ["sh", "-c", f"echo >> {file}"]}])
    (manifest,) = bed.yard.glob("generations/1/manifest.json")
    (used,) = [f for f in json.loads(manifest.read_text())["origin"]["files"] if f["path"] == str(file)]
    as_read = file.read_bytes().removesuffix(b"\n")
    assert used["sha256"] == hashlib.sha256(as_read).hexdigest()
    assert not list(bed.yard.glob("cache/memo/*"))
    bed.run("deploy", str(file))
    assert list(bed.yard.glob("cache/memo/*"))


def test_a_policy_for_users_reaches_published_revisions_without_a_build(bed: Bed) -> None:
    bed.deploy(checks=[])
    bed.policy(pins=["numpy <2"], channels={"priority": "flexible"})
    told = bed.deploy("--json", checks=[]).value
    assert (told["generation"], [r["status"] for r in told["revisions"]], told["locks"]) == (0, ["unchanged"], [])
    condarc = (bed.revisions[0] / "condarc").read_text()
    assert '"numpy <2"' in condarc and 'channel_priority: "flexible"' in condarc


def named(bed: Bed) -> dict[str, str]:
    return {check["name"]: f"{check['status']}: {check['detail']}" for check in bed.report()["checks"]}


def test_the_checks_of_a_site_are_tried_on_every_stack_and_build_nothing(bed: Bed) -> None:
    bed.deploy(checks=[])
    checks = bed.directory / "policy" / "checks.yaml"
    checks.parent.mkdir()
    (checks.parent / "probe.sh").write_text("echo probed $0\n")
    checks.write_text(
        "# what every stack of the site must pass\n- {name: site says, run: echo 1, expect: '1'}\n"
        "- {script: probe.sh}\n- {name: of Python, run: '{python} -V'}\n"
    )
    bed.policy(checks=["policy/checks.yaml"])
    told = bed.deploy("--json", checks=[]).value
    assert [row["status"] for row in told["revisions"]] == ["unchanged"] and told["locks"] == []
    assert "site says" not in named(bed)
    bed.run("verify")
    assert named(bed)["site says"] == "passed: 1"
    assert named(bed)["probe.sh"] == f"passed: probed {checks.parent / 'probe.sh'}"
    assert named(bed)["of Python"] == "skipped: requires Python, but this stack has none"
    assert len(bed.revisions) == 1 and bed.state() == "published"
    checks.write_text("- {name: site says, run: echo 1, expect: '2'}\n")
    assert "site says" in bed.run("verify", expect=3).out
    assert bed.state() == "failed"


def test_a_stack_that_fails_a_check_of_the_site_is_not_published(bed: Bed) -> None:
    (bed.directory / "checks.yaml").write_text(
        "- {name: quota, run: 'false'}\n- {name: soft, run: 'false', required: no}\n"
    )
    bed.policy(checks=["checks.yaml"])
    assert "quota" in bed.deploy(checks=says("one", "one"), expect=3).out
    own = [f"{check['status']} {check['name']}" for check in bed.report()["checks"] if check["kind"] == "own"]
    assert own == ["passed word", "failed quota", "warned soft"]


@pytest.mark.parametrize("words", [("deploy", "stack.yaml"), ("verify",)])
def test_a_mistake_in_a_check_of_the_site_is_named_with_its_place(bed: Bed, words: tuple[str, ...]) -> None:
    if words[0] == "verify":
        bed.deploy(checks=[])
    else:
        (bed.directory / "stack.yaml").write_text(
            f"environment: {{channels: ['{bed.channel}'], dependencies: [lib]}}\n"
        )
    file = bed.directory / "checks.yaml"
    file.write_text(
        "- name: one\n  run: echo\n- name: two\n  rum: echo\n- {script: lost.sh}\n- {run: a, expect: '('}\n"
    )
    bed.policy(checks=["checks.yaml"])
    told = bed.run(*(str(bed.directory / word) if word.endswith(".yaml") else word for word in words), expect=2).err
    assert f"{file}:4:3: unknown key 'rum' in checks.1" in told and "did you mean" in told
    assert f"{file}:6:" in told and "is not a regular expression" in told
    file.write_text("- {script: lost.sh}\n")
    told = bed.run(*(str(bed.directory / word) if word.endswith(".yaml") else word for word in words), expect=2).err
    assert f"{file}:1:12: cannot read {bed.directory}/lost.sh" in told
    assert not (bed.directory / "stack.yaml.lock").exists() or words[0] == "verify"
