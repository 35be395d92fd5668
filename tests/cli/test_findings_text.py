"""How a finding looks in text and in JSON: the same for lint, launch, explain and verify."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from stackyard.cli.findings import show_checks, show_finding
from stackyard.core.errors import InputError, Where
from stackyard.core.findings import Finding, refuse
from stackyard.expose.notes import module_notes
from stackyard.verify.report import CheckResult, Report
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import Activation
from support import stackrecords
from support.cli import stackyard

WARNING = Finding(
    "fixed-port", "warning", "MASTER_PORT is always 29500", "Jobs collide", "export A=1\nexport B=2", Where("job.sh", 7)
)


def test_a_finding_has_place_severity_reason_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    show_finding(WARNING, context=["| export MASTER_PORT=29500"])
    assert capsys.readouterr().out.splitlines() == [
        "job.sh:7: warning: MASTER_PORT is always 29500 [fixed-port]",
        "    | export MASTER_PORT=29500",
        "    Jobs collide",
        "    hint: export A=1",
        "          export B=2",
    ]


def test_a_finding_without_a_place_wraps_at_the_width(capsys: pytest.CaptureFixture[str]) -> None:
    show_finding(Finding("idle-cores", "refused", "word " * 20, remedy="--straddle"), indent="  ", width=40, err=True)
    rows = capsys.readouterr().err.splitlines()
    assert rows[0].startswith("  error: word") and rows[-1] == "      hint: --straddle"
    assert rows[-2].endswith("[idle-cores]") and max(map(len, rows)) <= 40


def test_a_check_shows_its_status_its_cause_and_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    checks = (
        CheckResult("import", "cupy", "failed", "Traceback\nImportError: libcuda.so.1", "declare an exception"),
        CheckResult("own", "gpu works", "skipped", "no GPU"),
        CheckResult("load", "Lmod", "passed"),
    )
    show_checks(Report("m/1", "0", "", checks=checks))
    assert capsys.readouterr().out.splitlines() == [
        "    failed: cupy: ImportError: libcuda.so.1 [import]",
        "        hint: declare an exception",
        "    skipped: gpu works: no GPU [own]",
    ]


def test_a_finding_survives_json() -> None:
    for finding in (WARNING, Finding("idle-cores", "note", "some cores are idle")):
        value = json.loads(json.dumps(finding.to_json()))
        assert list(value) == ["rule", "severity", "message", "reason", "better", "where"]
        assert Finding.from_json(value) == finding


@pytest.mark.parametrize("words", [("explain",), ("launch", "--dry-run")])
def test_explain_and_launch_report_findings_alike(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text("name: a\nscheduler: {kind: none}\nnodes: {here: {cores: 6}}\n")
    (tmp_path / "train.py").touch()
    call = ("--site", "site.yaml", *words, "-r", "1", "-c", "2")
    told = stackyard(*call, "--json", "train.py").value
    (finding,) = told["layout"]["findings"] if words == ("explain",) else told["findings"]
    assert (finding["rule"], finding["better"], finding["where"]) == ("idle-cores", "--cores-per-rank 6", None)
    done = stackyard(*call, "train.py")
    text = " ".join((done.out + done.err).split())  # lines are wrapped at the width of the terminal
    assert (
        "warning: 4 of 6 cores of each node are unused with 1 rank of 2 cores [idle-cores]"
        " a node is usually charged as a whole hint: --cores-per-rank 6"
    ) in text


def test_only_a_refused_finding_raises() -> None:
    refuse([WARNING])
    with pytest.raises(InputError) as caught:
        refuse([WARNING, Finding("smt-not-there", "refused", "too many threads", remedy="--smt 2")])
    assert caught.value.hint == "--smt 2"


def test_what_a_module_leaves_out_is_listed(tmp_path: Path) -> None:
    activation = Activation(
        build_only=("CC", "CFLAGS", "_CONDA_X", "CXX", "LD", "AR", "NM", "CONDA_BACKUP_CC"),
        uncaptured=("a.sh: the value of X depends on its previous value; not captured",),
    )
    record = dataclasses.replace(stackrecords.record(Yard(tmp_path), "s", "1"), activation=activation)
    assert module_notes(record) == [
        "a.sh: the value of X depends on its previous value; not captured",
        "variables of the compilers are not set for users: CC, CFLAGS, CXX, LD, AR and 1 more; `build: keep:` in a"
        " stack.yaml keeps them",
    ]


def test_the_tally_of_a_report_counts_what_failed() -> None:
    passed, failed = (CheckResult("import", name, name) for name in ("passed", "failed"))  # type: ignore[arg-type]
    assert Report("m/1", "", "", checks=(passed, passed)).tally() == "2 checks"
    assert Report("m/1", "", "", checks=(passed, failed)).tally() == "1 of 2 checks"


def test_the_tally_of_a_report_never_counts_a_skipped_check_as_passed() -> None:
    passed, skipped = (CheckResult("import", name, name) for name in ("passed", "skipped"))  # type: ignore[arg-type]
    assert Report("m/1", "", "", checks=(passed, skipped, skipped)).tally() == "1 check, 2 skipped"


def test_a_failed_check_shows_the_end_of_its_output_and_the_command_here(capsys: pytest.CaptureFixture[str]) -> None:
    output = "\n".join(f"line {n}" for n in range(20))
    hint = "run it in the same environment: stackyard run m/1 -- false"
    bad = CheckResult("own", "solver", "failed", f"{output}\nexited with status 1", hint)
    good = CheckResult("own", "other", "skipped", "one\nrequires a GPU", "elsewhere")
    show_checks(Report("m/1", "", "", checks=(bad, good)), "stackyard --yard /y")
    shown = capsys.readouterr().out
    assert "    failed: solver: exited with status 1 [own]\n" in shown
    assert "        | line 10\n" in shown and "        | line 19\n" in shown and "| line 9\n" not in shown
    assert shown.endswith("[own]\n        hint: elsewhere\n") and "| one" not in shown
    assert "stackyard --yard /y run m/1 -- false" in shown
