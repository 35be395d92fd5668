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

from stackyard.catalogue import kept
from stackyard.core.change import (
    Append,
    Complete,
    EnvironmentChange,
    Join,
    OnUnload,
    Prompt,
    SaveValue,
    Set,
    SetRestorable,
)
from stackyard.core.errors import StackyardError
from stackyard.deploy.licences import LEDGER, MARK, Acceptance
from stackyard.expose.published import MODULE, change_of
from stackyard.images.bases.model import BASE, Base
from stackyard.inputs.models import Site
from stackyard.lock.lockfile import text
from stackyard.verify.expectations import CHECKS
from stackyard.verify.report import REPORT, Report, read_report
from stackyard.yard import formats
from stackyard.yard.formats import Kind
from stackyard.yard.generation.origin import Origin
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.extension import BaseRevision, Layer
from stackyard.yard.kinds.payload import Form, Prefix
from stackyard.yard.others import basesinuse, childnotes
from stackyard.yard.others.moved import NOTE
from stackyard.yard.revision import signatures
from stackyard.yard.revision.collision import Collision
from stackyard.yard.revision.manifest import MANIFEST, Manifest, read_manifest
from stackyard.yard.revision.record import RECORD, BuildRecord, read_record
from stackyard.yard.write import atomic, trash


def _frozen(path: Path) -> Any:
    """The operations of ``module.json``, through the program's own door: a record of its directory."""
    directory = path.with_name(f"{path.name}.d")
    directory.mkdir()
    (directory / "module.json").write_bytes(path.read_bytes())
    record = BuildRecord("s", "1", "", 1, "s/1-1", "", "linux-64", str(directory), "/p", "2026-01-01T00:00:00+00:00")
    return change_of(record, Site())


JSON: dict[str, tuple[Kind[Any], Callable[[Path], Any]]] = {
    "record": (RECORD, read_record),
    "manifest": (MANIFEST, read_manifest),
    "report": (REPORT, read_report),
    "module": (MODULE, _frozen),
    "checks": (CHECKS, lambda path: formats.load(path, CHECKS)),
    "move": (NOTE, lambda path: formats.load(path, NOTE)),
    "what": (trash.KIND, lambda path: formats.load(path, trash.KIND)),
    "base": (BASE, lambda path: formats.load(path, BASE)),
    "signatures": (signatures.KIND, lambda path: formats.load(path, signatures.KIND)),
    "licences": (LEDGER, lambda path: formats.load(path, LEDGER)),
    "bases-in-use": (basesinuse.KIND, lambda path: formats.load(path, basesinuse.KIND)),
    "catalogue": (kept.MADE, lambda path: formats.load(path, kept.MADE)),
    "registered": (childnotes.MEMORY, lambda path: formats.load(path, childnotes.MEMORY)),
}


@pytest.fixture
def old(data: Path) -> Path:
    return data / "formats"


def written(tmp_path: Path, value: dict[str, Any], *, checked: bool = False) -> Path:
    path = tmp_path / "file.json"
    atomic.write_json(path, value, checked=checked)
    return path


@pytest.mark.parametrize("name", JSON)
def test_every_flipped_byte_is_noticed(old: Path, tmp_path: Path, name: str) -> None:
    kind, read = JSON[name]
    data = (old / f"{name}-{kind.version}.json").read_bytes()
    step = len(data) // 150
    for position in sorted({*range(120), *range(120, len(data), step), len(data) - 1}):
        directory = tmp_path / str(position)
        directory.mkdir()
        (directory / "file.json").write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(StackyardError, match=r"^cannot read .*json: ") as caught:
            read(directory / "file.json")
        assert caught.value.hint == kind.hint(directory / "file.json") or "file.json.d" in caught.value.message


@pytest.mark.parametrize("name", JSON)
def test_a_missing_checksum_is_an_error(old: Path, tmp_path: Path, name: str) -> None:
    kind, read = JSON[name]
    value = json.loads((old / f"{name}-{kind.version}.json").read_text())
    value.pop("checksum")
    with pytest.raises(StackyardError, match=r"^cannot read .*json: missing checksum$"):
        read(written(tmp_path, value))


def test_a_record_of_format_1(old: Path) -> None:
    record = read_record(old / "record-1.json")
    assert (record.module, record.form, record.prefix) == ("demo/1.0-large-1", Form(), f"{record.path}/prefix")
    assert record.activation.change.operations == (SetRestorable("OMP_NUM_THREADS", "1"),)
    assert [p.name for p in record.packages] == ["python", "six", "tomli-w"] and record.packages[1].requires
    assert record.licences[0]["name"] == "Demo" and record.checks[0]["expect"] == "hello"
    value = json.loads((old / "record-1.json").read_text())
    again = json.loads(json.dumps(record.to_json()))
    assert BuildRecord.from_json(again) == record
    value["activation"]["change"][0]["op"] = "set_restorable"
    value["packages"] = [{**package, "of_base": False, "licence": ""} for package in value["packages"]]
    new = {
        "format": 10, "form": {"kind": "prefix"}, "files_sha256": "", "hash_format": 1, "base": None, "adopted": None,
    }  # fmt: skip
    assert again == {**value, **new}
    assert read_record(old / "record-2.json") == record
    assert read_record(old / "record-3.json") == replace(record, files_sha256="5" * 64)
    assert read_record(old / "record-4.json") == replace(record, files_sha256="5" * 64, hash_format=2)
    form = Form("squashfs", "image.sqsh", "6" * 64, 37_122_048, 2965, "mksquashfs version 4.5.1", ("bin/python3.11",))
    assert read_record(old / "record-5.json") == replace(record, files_sha256="5" * 64, hash_format=2, form=form)


def test_a_record_of_format_6_is_a_layer_on_a_base(old: Path) -> None:
    record = read_record(old / "record-6.json")
    base = BaseRevision("/sw/yard", "ce/1.10-py39-1", "8" * 64, "/sw/yard/stacks/ce/1.10-py39-1/prefix", "squashfs")
    assert record.base == base and [p.name for p in record.own_packages] == ["six", "tomli-w"]
    assert isinstance(record.payload, Layer) and record.payload.base == base.payload


def test_a_record_of_format_7_may_be_of_an_adopted_prefix(old: Path) -> None:
    record = read_record(old / "record-7.json")
    assert record.adopted == AdoptedPrefix("venv", "/sw/venvs/tools", "7" * 64)
    assert type(record.payload) is Prefix and record.payload.root == Path("/sw/venvs/tools")


def test_a_record_of_format_8_has_the_hash_of_the_launcher_of_an_image_and_the_path_collisions(old: Path) -> None:
    former, record = read_record(old / "record-5.json"), read_record(old / "record-8.json")
    assert (former.form.launcher, record.form.launcher) == ("", "9" * 64)
    files = {"lib/python3.11/site-packages/six.py": "a" * 64}
    collision = Collision("warning", ("six", "tomli-w"), "tomli-w", files)
    assert record == replace(former, form=replace(former.form, launcher="9" * 64), collisions=(collision,))
    for each in (former, record):
        assert BuildRecord.from_json(json.loads(json.dumps(each.to_json()))) == each


@pytest.mark.parametrize("path", ["/etc/shadow", "a/../../b", "a//b", ".", ""])
def test_a_path_collision_in_a_record_stays_in_the_prefix(old: Path, tmp_path: Path, path: str) -> None:
    value = json.loads((old / "record-8.json").read_text())
    value["collisions"][0]["files"] = {path: "a" * 64}
    value.pop("checksum")
    with pytest.raises(StackyardError, match="not a path below a directory"):
        read_record(written(tmp_path, value, checked=True))


def test_a_record_of_format_9_has_what_scripts_append(old: Path) -> None:
    former, record = read_record(old / "record-8.json"), read_record(old / "record-9.json")
    *before, append, join = record.activation.change
    assert (
        isinstance(append, Append) and isinstance(join, Join) and tuple(before) == former.activation.change.operations
    )
    assert record == replace(former, activation=record.activation)
    assert BuildRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_a_record_of_format_10_has_the_licences_of_packages(old: Path) -> None:
    former, record = read_record(old / "record-9.json"), read_record(old / "record-10.json")
    assert {p.name: p.licence for p in record.packages if p.licence}["six"] == "MIT"
    assert former == replace(record, packages=tuple(replace(p, licence="") for p in record.packages))
    assert BuildRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_a_record_of_a_wrapped_image_is_whole_or_refused(old: Path, tmp_path: Path) -> None:
    texts = {"source": "sif:x.sif", "digest": "sha256:0", "mode": "host", "shell": "/bin/sh"}
    container = {**texts, "labels": {}, "commands": {"ls": "/bin/ls"}}
    form = Form("container", "image.sqsh", "6" * 64, 37_122_048, 2965, "mksquashfs version 4.5.1")
    record = replace(read_record(old / "record-1.json"), form=form, container=container)
    assert read_record(written(tmp_path, record.to_json(), checked=True)) == record
    for damage in ({}, {**container, "commands": ["ls"]}, {**container, "labels": {"a": 1}}):
        value = replace(record, container=damage).to_json()
        with pytest.raises(StackyardError, match=r"container: (no|a label)"):
            read_record(written(tmp_path, value, checked=True))


def test_a_mark_of_what_a_user_accepted(old: Path) -> None:
    when = "2026-11-23T09:00:00+00:00"
    accepted = Acceptance("powerai", f"{7:064d}", "IBM_POWERAI_LICENSE_ACCEPT", "anna", when, 1001)
    assert formats.load(old / "mark-1.json", MARK) == accepted


def test_acceptances_of_format_1_name_an_account_without_its_number(old: Path) -> None:
    accepted = Acceptance("Demo", "5" * 64, "DEMO_LICENCE", "alice", "2026-01-01T00:00:00+00:00")
    assert formats.load(old / "licences-1.json", LEDGER) == (accepted,)
    assert formats.load(old / "licences-2.json", LEDGER) == (replace(accepted, uid=1000),)


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
    assert (manifest.previous, manifest.origin) == (2, Origin())
    assert not any(e.superseded for e in manifest.entries), "the other revisions are withdrawn"
    value = json.loads((old / "manifest-1.json").read_text())
    for entry in value["entries"]:
        entry["state"] = "published"
    assert {e.module: e.superseded for e in Manifest.from_json(value).entries} == {
        "demo/1.0-small-1": True,
        "demo/1.0-small-2": False,
        "demo/1.0-large-1": True,
        "demo/1.0-large-2": False,
    }


def test_a_manifest_of_format_2(old: Path) -> None:
    manifest = read_manifest(old / "manifest-2.json")
    assert (manifest.number, manifest.previous, manifest.origin.who) == (4, 3, "alice, as root")
    assert [Path(f.path).name for f in manifest.origin.files] == ["stack.yaml", "stack.yaml.lock"]
    assert {e.module: e.superseded for e in manifest.entries} == {"demo/1.0-1": False, "demo/1.0-2": True}
    value = json.loads((old / "manifest-2.json").read_text())
    later = {"pinned": False, "retired": "", "successor": "", "category": "", "url": ""}
    entries = [{**each, **later} for each in value["entries"]]
    assert json.loads(json.dumps(manifest.to_json())) == {**value, "format": 5, "files": {}, "entries": entries}
    assert Manifest.from_json(value) == manifest
    files = {"demo/1.0-1.lua": "6" * 64}
    third = replace(manifest, files=files)
    assert read_manifest(old / "manifest-3.json") == third
    one, two = third.entries
    entries = (replace(one, pinned=True), replace(two, state="removed", retired="2027-03-01", successor="demo/1.0-1"))
    assert read_manifest(old / "manifest-4.json") == replace(third, entries=entries)
    labelled = (replace(entries[0], category="demonstration", url="https://demo.example/docs"), entries[1])
    assert read_manifest(old / "manifest-5.json") == replace(third, entries=labelled)


def test_frozen_operations_of_format_1(old: Path, tmp_path: Path) -> None:
    change = _frozen_copy(old, tmp_path)
    saved = [op for op in change if isinstance(op, SaveValue)]
    restorable = {op.variable for op in change if isinstance(op, SetRestorable)}
    assert saved == [SaveValue("__STACKYARD_CONDA_LEVEL", "CONDA_SHLVL")]
    assert {"PYTHONNOUSERSITE", "CONDA_EXE", "OMP_NUM_THREADS", "DEMO_HOME", "DEMO_LICENCE"} <= restorable
    assert [op.carry for op in change if isinstance(op, OnUnload)] == [("__STACKYARD_CONDA_LEVEL",)]
    assert change == _frozen_copy(old, tmp_path, 2) == _frozen_copy(old, tmp_path, 3)
    append, join = tuple(_frozen_copy(old, tmp_path, 4))[len(tuple(change)) :]
    assert isinstance(append, Append) and isinstance(join, Join)
    prompt, modifier = tuple(_frozen_copy(old, tmp_path, 5))[len(tuple(change)) + 2 :]
    (complete,) = tuple(_frozen_copy(old, tmp_path, 6))[len(tuple(change)) + 4 :]
    assert complete == Complete("demo", "/yard/stacks/demo/1.0-large-1/prefix/share")
    assert (prompt, modifier) == (Prompt("demo"), SetRestorable("CONDA_PROMPT_MODIFIER", "(demo) "))


def test_operations_that_only_earlier_versions_wrote() -> None:
    items = [
        {"op": "set", "variable": "A", "value": "1"},
        {"op": "borrow", "variable": "B", "value": None},
        {"op": "remember", "variable": "C", "source": "D"},
    ]
    change = EnvironmentChange.from_json(items)
    assert change.operations == (Set("A", "1"), SetRestorable("B", None), SaveValue("C", "D"))
    assert [item["op"] for item in change.to_json()] == ["set", "set_restorable", "save_value"]


def _frozen_copy(old: Path, tmp_path: Path, number: int = 1) -> Any:
    path = tmp_path / f"module-{number}.json"
    path.write_bytes((old / path.name).read_bytes())
    return _frozen(path)


def test_a_report_of_format_1(old: Path) -> None:
    report = read_report(old / "report-1.json")
    assert (report.module, report.state, len(report.checks)) == ("demo/1.0-large-1", "passed", 10)
    value = json.loads((old / "report-1.json").read_text())
    assert json.loads(json.dumps(report.to_json())) == {**value, "format": 3, "check_hash": ""}
    assert Report.from_json(value) == report == read_report(old / "report-2.json")
    assert read_report(old / "report-3.json") == replace(report, check_hash="7" * 64)


def test_checks_of_format_1(old: Path) -> None:
    found = formats.load(old / "checks-1.json", CHECKS)
    assert found.checks[0]["expect"] == "hello" and found.exceptions["imports"] == ["a"]


def test_a_lock_of_format_1(old: Path) -> None:
    lock = text.read(old / "stack-1.lock")
    assert [(v.variant, len(v.conda), len(v.pip)) for v in lock.variants] == [("small", 2, 1), ("large", 2, 1)]
    assert text.dump(lock) == (old / "stack-1.lock").read_text()
    found = lock.find("1.0", "small", "linux-64")
    assert found is not None and found.interpreter.source == "conda" and found.pip[0].name == "tomli-w"


def test_a_base_of_format_1(old: Path) -> None:
    base = formats.load(old / "base-1.json", BASE)
    assert isinstance(base, Base) and (base.name, base.architecture, base.who) == ("powerai", "ppc64le", "anna")
    assert (base.software.libc, base.software.environments[0].python) == ("glibc 2.23", "2.7.15")
    assert base.layers[0].digest == "sha256:" + "4" * 64 and base.defaults.env == ("PATH=/usr/bin",)
    value = json.loads((old / "base-1.json").read_text())
    value.pop("checksum")
    assert json.loads(json.dumps(base.to_json())) == value


@pytest.mark.parametrize("name", JSON)
def test_a_newer_file_is_refused(old: Path, tmp_path: Path, name: str) -> None:
    kind, read = JSON[name]
    newer = kind.version + 1
    value = {**json.loads((old / f"{name}-1.json").read_text()), "format": newer}
    value.pop("checksum", None)
    path = written(tmp_path, value)
    with pytest.raises(StackyardError) as caught:
        read(path)
    assert caught.value.message.endswith(f"json has format {newer}; this version of stackyard reads up to {newer - 1}")
    assert caught.value.hint == "upgrade stackyard"


@pytest.mark.parametrize("name", [name for name in JSON if name != "licences"])  # whose first keys were names
def test_an_unknown_key_is_an_error_that_names_it_and_the_file(old: Path, tmp_path: Path, name: str) -> None:
    value = {**json.loads((old / f"{name}-1.json").read_text()), "colour": "red"}
    checked = value.pop("checksum", None) is not None
    path = written(tmp_path, value, checked=checked)
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


def test_the_note_of_a_child_of_format_1_does_not_say_what_it_extends(old: Path) -> None:
    first, second = (formats.load(old / f"child-{number}.json", childnotes.KIND) for number in (1, 2))
    assert (first.yard, first.bases) == ("/home/anna/.local/share/stackyard", None)
    assert (second.yard, second.bases) == (first.yard, ("pytorch/2.13-py311-1", "tool/1.0-py311-1"))


def test_an_unknown_operation_and_an_unknown_form(old: Path, tmp_path: Path) -> None:
    value = json.loads((old / "record-1.json").read_text())
    value["activation"]["change"][0]["op"] = "lend"
    with pytest.raises(StackyardError, match="unknown operation 'lend'"):
        read_record(written(tmp_path, value))
    record = replace(read_record(old / "record-1.json"), form=Form("tape"))  # type: ignore[arg-type]
    with pytest.raises(StackyardError, match="kind: not one of prefix, squashfs, container: 'tape'"):
        read_record(written(tmp_path, record.to_json(), checked=True))


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
