"""The reader of versioned files: upgrades step by step, refuses what is newer, drops nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError, StackyardError
from stackyard.yard import formats, members


@dataclass(frozen=True)
class Thing:
    """A file of the third format: `size` was `length` in the first, `tags` is new in the third."""

    name: str
    size: int
    tags: tuple[str, ...] = ()


def _size(value: dict[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in value.items() if k != "length"}, "size": value["length"]}


def _tagged(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "tags": ["old"]}


KIND = formats.Kind(3, lambda value: members.make(Thing, value), {1: _size, 2: _tagged})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"format": 1, "name": "a", "length": 2}, Thing("a", 2, ("old",))),
        ({"format": 2, "name": "a", "size": 2}, Thing("a", 2, ("old",))),
        ({"format": 3, "name": "a", "size": 2, "tags": ["new"]}, Thing("a", 2, ("new",))),
        ({"format": 3, "name": "a", "size": 2}, Thing("a", 2)),
    ],
)
def test_every_format_is_read(value: dict[str, Any], expected: Thing) -> None:
    assert formats.read(value, "thing.json", KIND) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"format": 3, "name": "a", "size": 2, "colour": 1}, "cannot read t.json: unknown key 'colour'"),
        ({"format": 1, "name": "a", "length": 2, "colour": 1}, "cannot read t.json: unknown key 'colour'"),
        ({"format": 3, "name": "a"}, "cannot read t.json: missing key 'size'"),
        ({"format": 1, "name": "a"}, "cannot read t.json: missing key 'length'"),
        ({"name": "a", "size": 2}, "cannot read t.json: no format number"),
        ({"format": True, "name": "a", "size": 2}, "cannot read t.json: no format number"),
        ({"format": 3, "name": "a", "size": 2, "tags": 5}, "cannot read t.json: "),
        ([], "cannot read t.json: not an object with keys"),
    ],
)
def test_what_is_damaged_names_the_file_and_the_key(value: Any, message: str) -> None:
    with pytest.raises(StackyardError) as caught:
        formats.read(value, "t.json", KIND)
    assert caught.value.message.startswith(message)
    assert caught.value.hint == "restore t.json"


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(
        StackyardError, match=r"^t.json has format 4; this version of stackyard reads up to 3$"
    ) as caught:
        formats.read({"format": 4}, "t.json", KIND)
    assert caught.value.hint == "upgrade stackyard"


def test_a_file_that_is_not_json_and_one_that_is_missing(tmp_path: Path) -> None:
    kind = formats.Kind(1, dict, hint=lambda path: f"look into {path.parent}", error=InputError)
    (tmp_path / "a.json").write_text("{")
    for name in ("a.json", "b.json"):
        with pytest.raises(InputError, match=f"^cannot read .*/{name}: ") as caught:
            formats.load(tmp_path / name, kind)
        assert caught.value.hint == f"look into {tmp_path}"
    (tmp_path / "c.json").write_text(json.dumps({"format": 1, "x": 2}))
    assert formats.load(tmp_path / "c.json", kind) == {"x": 2}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"name": 1, "size": 2}, "name: not a string: 1"),
        ({"name": "a", "size": "2"}, "size: not an integer: '2'"),
        ({"name": "a", "size": True}, "size: not an integer: True"),
        ({"name": "a", "size": 2, "tags": "x"}, "tags: not a list: 'x'"),
        ({"name": "a", "size": 2, "tags": [1]}, "tags: not a string: 1"),
        ([], "not an object with keys"),
    ],
)
def test_a_value_of_another_kind_is_named(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        members.make(Thing, value)


@pytest.mark.parametrize(("text", "says"), [("[" * 100_000, "nested too deep"), ('{"a": "\\ud800"}', "surrogates")])
def test_json_that_python_cannot_hold_or_print(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "thing.json"
    path.write_text(text)
    with pytest.raises(StackyardError, match=says) as caught:
        formats.load(path, KIND)
    assert str(path) in caught.value.message
