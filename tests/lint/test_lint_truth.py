"""The hand-made truth: every planted fault is found on its line, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lint.reported import REPORTED
from stackyard.lint.api import lint_file

DIRECTORY = Path(__file__).parent.parent / "data" / "lint"
TRUTH = json.loads((DIRECTORY / "truth.json").read_text())
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "batch"


def found(path: Path) -> list[tuple[str, int]]:
    report = lint_file(path)
    return sorted((f.rule, f.where.line if f.where else 0) for f in report.findings if f.severity != "note")


@pytest.mark.parametrize("name", TRUTH["bad"])
def test_every_planted_fault_is_found(name: str) -> None:
    assert found(DIRECTORY / "bad" / name) == sorted(map(tuple, TRUTH["bad"][name]))


@pytest.mark.parametrize("path", sorted((DIRECTORY / "good").iterdir()), ids=lambda path: path.name)
def test_no_false_alarm(path: Path) -> None:
    assert found(path) == []
    assert lint_file(path).exit_code == 0


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside this checkout")
@pytest.mark.parametrize("name", TRUTH["corpus"])
def test_the_corpus(name: str) -> None:
    assert found(CORPUS / name) == sorted(map(tuple, TRUTH["corpus"][name]))


def test_every_rule_that_needs_only_the_script_or_source_has_a_planted_fault() -> None:
    from stackyard.lint.rules import TABLE

    planted = {rule for faults in TRUTH["bad"].values() for rule, _ in faults} | REPORTED.keys()
    missing = {
        name for name, rule in TABLE.items() if rule.severity != "note" and "site" not in rule.evidence
    } - planted
    assert missing == {"dos-line-ends"}  # its file would be changed by git; see test_lint_rules


CASES = Path(__file__).parents[3] / "shared" / "cases"


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not beside this checkout")
@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ("90-lint-mem-and-mem-per-cpu", "options-together"),
        ("91-lint-srun-eats-loop-input", "loop-input"),
        ("92-lint-signal-without-step", "signal-not-received"),
        ("94-lint-export-none", "export-none"),
        ("99-lint-steps-in-turn", "steps-in-turn"),
    ],
)
def test_cases_of_public_reports(case: str, rule: str) -> None:
    (script,) = (CASES / case).glob("*.sh")
    assert rule in {name for name, _ in found(script)}
