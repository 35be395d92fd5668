"""Files that earlier versions wrote are readable for ever; newer ones are refused; an unknown key is an error.

``tests/data/formats`` holds one file of each format, as that version wrote it (other paths and host names apart). When
a format is raised, the present file is kept there first and gets a line here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.change import EnvironmentChange, OnUnload, SaveValue, Set, SetRestorable
from stackyard.errors import StackyardError
from stackyard.expose.published import MODULE, change_of
from stackyard.lock import text
from stackyard.spec.models import Site
from stackyard.verify.report import REPORT, Report, read_report
from stackyard.yard.formats import Kind
from stackyard.yard.record import MANIFEST, RECORD, BuildRecord, Manifest, read_manifest, read_record


def _frozen(path: Path) -> Any:
    """The operations of ``module.json``, through the program's own door: a record of its directory."""
    folder = path.with_name(f"{path.name}.d")
    folder.mkdir()
    (folder / "module.json").write_bytes(path.read_bytes())
    record = BuildRecord("s", "1", "", 1, "s/1-1", "", "linux-64", str(folder), "/p", "2026-01-01T00:00:00+00:00")
    return change_of(record, Site())


JSON: dict[str, tuple[Kind[Any], Callable[[Path], Any]]] = {
    "record": (RECORD, read_record),
    "manifest": (MANIFEST, read_manifest),
    "report": (REPORT, read_report),
    "module": (MODULE, _frozen),
}


@pytest.fixture
def old(data: Path) -> Path:
    return data / "formats"


def written(tmp_path: Path, value: dict[str, Any]) -> Path:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(value))
    return path


def test_a_record_of_format_1(old: Path) -> None:
    record = read_record(old / "record-1.json")
    assert (record.module, record.form, record.prefix) == ("demo/1.0-large-1", "prefix", f"{record.path}/prefix")
    assert record.activation.change.operations == (SetRestorable("OMP_NUM_THREADS", "1"),)
    assert [p.name for p in record.packages] == ["python", "six", "tomli-w"] and record.packages[1].requires
    assert record.licences[0]["name"] == "Demo" and record.checks[0]["expect"] == "hello"
    value = json.loads((old / "record-1.json").read_text())
    again = json.loads(json.dumps(record.to_json()))
    assert BuildRecord.from_json(again) == record
    value["activation"]["change"][0]["op"] = "set_restorable"
    assert again == {**value, "format": 2, "form": "prefix"}


def test_a_manifest_of_format_1(old: Path) -> None:
    manifest = read_manifest(old / "manifest-1.json")
    assert (manifest.number, manifest.reason, manifest.content) == (3, "rollback to 1", 1)
    assert {e.module: e.state for e in manifest.entries} == {
        "demo/1.0-small-1": "published",
        "demo/1.0-small-2": "withdrawn",
        "demo/1.0-large-1": "published",
        "demo/1.0-large-2": "withdrawn",
    }
    assert [(e.module, e.aliases) for e in manifest.entries if e.default] == [
        ("demo/1.0-large-1", ("1.0-large", "1.0"))
    ]
    value = json.loads((old / "manifest-1.json").read_text())
    assert json.loads(json.dumps(manifest.to_json())) == value
    assert Manifest.from_json(value) == manifest


def test_frozen_operations_of_format_1(old: Path, tmp_path: Path) -> None:
    change = _frozen_copy(old, tmp_path)
    saved = [op for op in change if isinstance(op, SaveValue)]
    restorable = {op.variable for op in change if isinstance(op, SetRestorable)}
    assert saved == [SaveValue("__STACKYARD_CONDA_LEVEL", "CONDA_SHLVL")]
    assert {"PYTHONNOUSERSITE", "CONDA_EXE", "OMP_NUM_THREADS", "DEMO_HOME", "DEMO_LICENCE"} <= restorable
    assert [op.carry for op in change if isinstance(op, OnUnload)] == [("__STACKYARD_CONDA_LEVEL",)]


def test_operations_that_only_earlier_versions_wrote() -> None:
    items = [
        {"op": "set", "variable": "A", "value": "1"},
        {"op": "borrow", "variable": "B", "value": None},
        {"op": "remember", "variable": "C", "source": "D"},
    ]
    change = EnvironmentChange.from_json(items)
    assert change.operations == (Set("A", "1"), SetRestorable("B", None), SaveValue("C", "D"))
    assert [item["op"] for item in change.to_json()] == ["set", "set_restorable", "save_value"]


def _frozen_copy(old: Path, tmp_path: Path) -> Any:
    path = tmp_path / "module.json"
    path.write_bytes((old / "module-1.json").read_bytes())
    return _frozen(path)


def test_a_report_of_format_1(old: Path) -> None:
    report = read_report(old / "report-1.json")
    assert (report.module, report.state, len(report.checks)) == ("demo/1.0-large-1", "passed", 10)
    value = json.loads((old / "report-1.json").read_text())
    assert json.loads(json.dumps(report.to_json())) == value
    assert Report.from_json(value) == report


def test_a_lock_of_format_1(old: Path) -> None:
    lock = text.read(old / "stack-1.lock")
    assert [(v.variant, len(v.conda), len(v.pip)) for v in lock.variants] == [("small", 2, 1), ("large", 2, 1)]
    assert text.dump(lock) == (old / "stack-1.lock").read_text()
    found = lock.find("1.0", "small", "linux-64")
    assert found is not None and found.interpreter.source == "conda" and found.pip[0].name == "tomli-w"


@pytest.mark.parametrize("name", JSON)
def test_a_newer_file_is_refused(old: Path, tmp_path: Path, name: str) -> None:
    kind, read = JSON[name]
    newer = kind.version + 1
    path = written(tmp_path, {**json.loads((old / f"{name}-1.json").read_text()), "format": newer})
    with pytest.raises(StackyardError) as caught:
        read(path)
    assert caught.value.message.endswith(f"json has format {newer}; this version of stackyard reads up to {newer - 1}")
    assert caught.value.hint == "upgrade stackyard"


@pytest.mark.parametrize("name", JSON)
def test_an_unknown_key_is_an_error_that_names_it_and_the_file(old: Path, tmp_path: Path, name: str) -> None:
    path = written(tmp_path, {**json.loads((old / f"{name}-1.json").read_text()), "colour": "red"})
    with pytest.raises(StackyardError, match=r"^cannot read .*json: unknown key 'colour'$"):
        JSON[name][1](path)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("record", ("packages", 0)),
        ("record", ("disk",)),
        ("record", ("activation",)),
        ("record", ("activation", "change", 0)),
        ("manifest", ("entries", 0)),
        ("report", ("checks", 0)),
        ("module", ("change", 0)),
    ],
)
def test_an_unknown_key_deeper_inside(old: Path, tmp_path: Path, name: str, place: tuple[str | int, ...]) -> None:
    value = json.loads((old / f"{name}-1.json").read_text())
    inner = value
    for step in place:
        inner = inner[step]
    inner["colour"] = "red"
    with pytest.raises(StackyardError, match=r"^cannot read .*json: unknown key 'colour'"):
        JSON[name][1](written(tmp_path, value))


@pytest.mark.parametrize(
    ("name", "key"), [("record", "module"), ("manifest", "entries"), ("report", "input_hash"), ("module", "change")]
)
def test_a_missing_key_is_an_error_that_names_it(old: Path, tmp_path: Path, name: str, key: str) -> None:
    value = json.loads((old / f"{name}-1.json").read_text())
    del value[key]
    with pytest.raises(StackyardError, match=rf"^cannot read .*json: missing key '{key}'$"):
        JSON[name][1](written(tmp_path, value))


def test_an_unknown_operation_and_an_unknown_form(old: Path, tmp_path: Path) -> None:
    value = json.loads((old / "record-1.json").read_text())
    value["activation"]["change"][0]["op"] = "lend"
    with pytest.raises(StackyardError, match="unknown operation 'lend'"):
        read_record(written(tmp_path, value))
    record = replace(read_record(old / "record-1.json"), form="tape")
    with pytest.raises(StackyardError, match="unknown form 'tape'"):
        read_record(written(tmp_path, record.to_json()))


@pytest.mark.parametrize(
    ("old_text", "new_text", "message"),
    [
        ("format = 1", "format = 2", "^the lock has format 2; this version of stackyard reads up to 1$"),
        ("format = 1", "format = 1\ncolour = 3", "^cannot read the lock: unknown key 'colour'$"),
        ('stack = "demo"\n', "", "^cannot read the lock: missing key 'stack'$"),
        ('name = "six"', 'name = "six"\ncolour = 3', re.escape("in a [[conda]] block: unknown key 'colour'")),
    ],
)
def test_a_lock_that_cannot_be_read(old: Path, old_text: str, new_text: str, message: str) -> None:
    changed = (old / "stack-1.lock").read_text().replace(old_text, new_text, 1)
    with pytest.raises(StackyardError) as caught:
        text.parse(changed, "stack.lock")
    assert re.search(message, caught.value.message)
    assert caught.value.where is not None and caught.value.where.file == "stack.lock"
