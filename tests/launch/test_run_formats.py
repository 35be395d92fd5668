"""Run directories that earlier versions wrote stay readable; those of later ones are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import read_run, read_status
from support.cli import stackyard

FORMATS = Path(__file__).parent.parent / "data" / "formats"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A copy of the run of format 1, as the last one of the current directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FORMATS / "run-1", tmp_path / "runs" / "2026-11-22-001")
    return RunPaths(tmp_path / "runs" / "2026-11-22-001")


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_run_of_format_1_is_upgraded(old: RunPaths) -> None:
    record = read_run(old)
    assert (record.how, record.plan["layout"]["ranks"]) == ("launch", 2)
    assert record.plan["reasons"][2] == {"words": ["--cpus", "0"], "reason": "where rank 0 stays"}
    status = read_status(old)
    assert (status.state, status.code, status.hosts, status.attempts) == ("done", 0, ("node1",), 1)
    assert [json.loads(line)["event"] for line in old.events.read_text().splitlines()].count("exit") == 2


def test_a_run_of_format_1_is_shown_listed_and_compared(old: RunPaths) -> None:
    value = stackyard("runs", "show", "last", "--json").value
    assert list(value) == ["record", "status", "placement", "preflight"]
    assert value["placement"]["summary"] == "2 of 2 ranks as planned"
    assert value["preflight"]["passed"] is True
    assert "2 of 2 ranks as planned" in stackyard("runs", "show").out
    (row,) = stackyard("runs", "--json").value
    assert (row["state"], row["program"]) == ("done", "hello.py")
    shutil.copytree(old.root, old.root.with_name("2026-11-22-002"))
    assert stackyard("runs", "diff", "001", "002", "--json").value == []


@pytest.mark.parametrize("name", ["run-1", "run-2", "run-3"])
def test_records_of_every_format_have_the_same_content(name: str) -> None:
    first, record = (read_run(RunPaths(FORMATS / each)) for each in ("run-1", name))
    assert record.plan == first.plan and record.intent == first.intent


def test_the_process_of_a_run_is_known_since_format_2_of_a_status(old: RunPaths) -> None:
    assert read_status(RunPaths(FORMATS / "run-3")).process["host"] == "node1"
    assert read_status(old).process == {}
    change(old.status, state="running", pid=1)
    done = stackyard("runs", "cancel", "last", expect=2)
    assert "does not say which process runs it" in done.err and "kill -INT PID" in done.err


@pytest.mark.parametrize("name", ["record.json", "status.json"])
def test_a_newer_format_is_refused(old: RunPaths, name: str) -> None:
    change(old.root / name, format=7)
    done = stackyard("runs", "show", expect=2)
    assert f"{name} has format 7; this version of stackyard reads up to" in done.err and "upgrade" in done.err


@pytest.mark.parametrize("name", ["record.json", "status.json"])
def test_an_unknown_key_is_an_error(old: RunPaths, name: str) -> None:
    change(old.root / name, colour="red")
    with pytest.raises(InputError, match="unknown key 'colour'"):
        read_run(old)
        read_status(old)
