"""JSON Schemas of stack.yaml and site.yaml for editors, made from the models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from stackyard.inputs.models import Site
from stackyard.inputs.stacks.stackfile import StackFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CONDITION: dict[str, Any] = {
    "type": "object",
    "description": "Entries that apply under a condition on the axes of the matrix, e.g. accelerator == 'cuda'",
    "properties": {"if": {"type": "string"}, "then": {}, "else": {}},
    "required": ["if"],
    "additionalProperties": False,
}


def schema(kind: Literal["stack", "site"]) -> dict[str, Any]:
    """The schema of one kind of file, in the 2020-12 dialect."""
    result = _stack() if kind == "stack" else _site()
    return {"$schema": DIALECT, "title": f"{kind}.yaml", **{k: v for k, v in result.items() if k != "title"}}


def _site() -> dict[str, Any]:
    result: dict[str, Any] = _changed(Site.model_json_schema(), _loosened)
    result["properties"].pop("file")
    return result


def _stack() -> dict[str, Any]:
    """Every list of a stack may contain conditions."""
    result: dict[str, Any] = _changed(_changed(StackFile.model_json_schema(), _loosened), _conditional)
    result["$defs"]["Condition"] = _CONDITION
    return result


def _changed(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A schema with a change applied to every mapping in it, innermost first."""
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    return change({key: _changed(inner, change) for key, inner in value.items()})


def _loosened(value: dict[str, Any]) -> dict[str, Any]:
    """A schema in which texts may be numbers or booleans (``version: 3.10``), and keys may be empty.

    Titles, which only repeat the keys, are removed.
    """
    if value.get("type") == "string" and not {"enum", "const"} & value.keys():
        value["type"] = ["string", "number", "boolean", "null"]
    return {key: inner for key, inner in value.items() if not (key == "title" and isinstance(inner, str))}


def _conditional(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("type") == "array" and "items" in value:
        value["items"] = {"anyOf": [value["items"], {"$ref": "#/$defs/Condition"}]}
    return value
