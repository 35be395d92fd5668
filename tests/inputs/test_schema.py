"""The JSON Schemas for editors: valid, current in the documentation, and accepting what the reader accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stackyard.inputs.models import Site
from stackyard.inputs.schema import DIALECT, schema
from stackyard.inputs.stacks.stackfile import StackFile

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("kind", ["stack", "site"])
def test_committed_copy_is_current(kind) -> None:
    committed = json.loads((REFERENCE / f"{kind}.schema.json").read_text())
    assert committed == schema(kind), f"write `stackyard schema {kind}` to docs/reference/{kind}.schema.json"


@pytest.mark.parametrize(("kind", "model"), [("stack", StackFile), ("site", Site)])
def test_every_key_is_there_and_nothing_else(kind, model) -> None:
    made = schema(kind)
    assert made["$schema"] == DIALECT
    assert made["additionalProperties"] is False
    assert set(made["properties"]) == set(model.model_fields) - {"file"}


@pytest.mark.parametrize("kind", ["stack", "site"])
def test_every_reference_leads_somewhere(kind) -> None:
    made = schema(kind)

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [r for inner in value.values() for r in references(inner)]
        return [r for item in value for r in references(item)] if isinstance(value, list) else []

    found = references(made)
    assert found
    assert {r.removeprefix("#/$defs/") for r in found} <= set(made["$defs"])


@pytest.mark.parametrize("kind", ["stack", "site"])
def test_page_explains_every_key(kind) -> None:
    """The reference page has every top-level key and every key of its parts."""
    text = (REFERENCE / f"{kind}.md").read_text()
    made = schema(kind)
    keys = set(made["properties"]) | {key for part in made["$defs"].values() for key in part.get("properties", {})}
    missing = sorted(key for key in keys if f"`{key}`" not in text and f"{key}:" not in text)
    assert not missing
