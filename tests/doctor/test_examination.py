"""`stackyard doctor`, all checks together: what hangs is named, nothing is written, and all words are there."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from stackyard.doctor.checks import base
from stackyard.doctor.checks.table import TABLE
from stackyard.doctor.examine import examine
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
from support import programs, shells, smallyard
from support.bindfs import UNCACHED, bindfs

CHECKS = Path(base.__file__).parent


def test_file_system_that_does_not_answer(tmp_path: Path) -> None:
    """The directories on it are named, the checks that wait for it too, and all others say what they find."""
    programs.need("bindfs")
    yard = smallyard.make(tmp_path / "below/yard", "1")
    shells.conda(tmp_path / "below/env", numpy="2.1.0")
    with bindfs(tmp_path / "below", tmp_path / "late", *UNCACHED) as server:
        late = tmp_path / "late"
        environ = {"PATH": shells.path(late / "env/bin"), "PYTHONPATH": f"{late}/mine", "PYTHONHOME": "/opt"}
        on_it = Yard(late / "yard")
        os.kill(server.pid, signal.SIGSTOP)
        result = examine(environ, lambda: Workspace(Site(), on_it))
        os.kill(server.pid, signal.SIGCONT)
        shown = [one.message for found in result.findings.values() for one in found if one.rule == "no-answer"]
        assert f"{late} did not answer within 1 s" in shown and f"{late}/env/bin did not answer within 1 s" in shown
        assert "the check rights (the yard) did not answer within 2 s" in shown
        assert "python-home" in {one.rule for one in result.findings["shell"]}
        healthy = examine({**environ, "PYTHONHOME": ""}, lambda: Workspace(Site(), Yard(yard.root)))
        assert "no-answer" not in {one.rule for found in healthy.findings.values() for one in found}


def test_mount_without_its_server(tmp_path: Path) -> None:
    programs.need("bindfs")
    with bindfs(tmp_path / "below", tmp_path / "stale") as server:
        server.kill()
        server.wait()
        finding = shells.found({}, tmp_path / "yard", about="machine")["mount-stale"]
        assert finding.remedy == f"fusermount3 -uz {tmp_path}/stale"


def test_check_that_fails_says_so(tmp_path: Path) -> None:
    def fails(_: base.Surroundings) -> list[base.Finding]:
        raise ValueError("no such thing")

    checks = [base.Check("broken", "machine", fails), base.Check("late", "yard", fails, "the yard")]
    result = examine({}, lambda: Workspace(Site(), Yard(tmp_path)), checks=checks)
    assert [one.message for found in result.findings.values() for one in found] == [
        "the check broken failed: ValueError: no such thing", "the check late failed: ValueError: no such thing"
    ]  # fmt: skip
    assert result.is_clean


@pytest.mark.parametrize("rule", list(base.words()["findings"]))
def test_words(rule: str) -> None:
    """Every finding is raised by something, and has its words."""
    row = base.words()["findings"][rule]
    assert {"message", "reason", "remedy"} <= set(row) and row.get("severity", "warning") in ("warning", "note")
    text = "".join(file.read_text() for file in (*CHECKS.glob("*.py"), *CHECKS.parent.glob("*.py")))
    listed = [one["rule"] for name in ("limits", "kernel_files") for one in base.listed(name)]
    assert f'"{rule}"' in text or rule in listed or "variable" in row, f"no check raises {rule}"


def test_the_page_names_every_finding() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/doctor.md").read_text()
    assert set(base.words()["findings"]) == set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", page)) & set(
        base.words()["findings"]
    )


def test_every_check_is_known_once() -> None:
    assert len({check.name for check in TABLE}) == len(TABLE)
    said = set(re.findall(r'said\(\s*"([\w-]+)"', "".join(file.read_text() for file in CHECKS.glob("*.py"))))
    assert said <= set(base.words()["findings"])
