"""Scripts made after public reports: the fault is named on its line, and gone where it is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from lint.reported import LINES, REPORTED
from lint.reported_since import SLIPS
from stackyard.lint.api import lint_text
from stackyard.lint.rules import TABLE


def rules(directory: Path, text: str, program: str) -> dict[str, int]:
    """The rules that find something, and the line of each."""
    if program:
        (directory / "p.py").write_text(program)
    report = lint_text(text, name="job.sh", directories=(directory,))
    return {each.rule: each.where.line if each.where else 0 for each in report.findings}


@pytest.mark.parametrize("rule", REPORTED)
def test_a_reported_fault(rule: str, tmp_path: Path) -> None:
    text, before, after, program = REPORTED[rule]
    changed = text[: text.index(before)].count("\n") + 1
    found = rules(tmp_path, text, program).get(rule.partition(" ")[0])
    assert found == LINES.get(rule, changed)
    assert rules(tmp_path, text.replace(before, after), program) == {}


def test_each_of_them_is_a_rule() -> None:
    assert not {name.partition(" ")[0] for name in REPORTED} - TABLE.keys()


@pytest.mark.parametrize("kind", SLIPS)
def test_a_slip_of_the_shell(kind: str, tmp_path: Path) -> None:
    slip, meant = SLIPS[kind]
    head = "#!/bin/bash\n#SBATCH --time=10\n#SBATCH --ntasks=1\nn=1\n"
    assert "shell-slip" in rules(tmp_path, head + slip + "\n", "")
    assert "shell-slip" not in rules(tmp_path, head + meant + "\n", "")
