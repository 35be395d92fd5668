"""JSON Schemas of stack.yaml and site.yaml for editors, made from the models."""

from __future__ import annotations

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
    made = _stack() if kind == "stack" else _site()
    return {"$schema": DIALECT, "title": f"{kind}.yaml", **{k: v for k, v in made.items() if k != "title"}}


def _site() -> dict[str, Any]:
    made: dict[str, Any] = _loosened(_untitled(Site.model_json_schema()))
    made["properties"].pop("file")
    return made


def _stack() -> dict[str, Any]:
    """Every list of a stack may contain conditions."""
    made: dict[str, Any] = _conditional(_loosened(_untitled(StackFile.model_json_schema())))
    made["$defs"]["Condition"] = _CONDITION
    return made


def _untitled(value: Any) -> Any:
    """Without the titles that repeat each key."""
    if isinstance(value, dict):
        return {k: _untitled(v) for k, v in value.items() if not (k == "title" and isinstance(v, str))}
    return [_untitled(item) for item in value] if isinstance(value, list) else value


def _loosened(value: Any) -> Any:
    """Texts may be written as numbers or truth values (``version: 3.10``), and every key may be left empty."""
    if isinstance(value, list):
        return [_loosened(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _loosened(inner) for key, inner in value.items()}
    if made.get("type") == "string" and not {"enum", "const"} & made.keys():
        made["type"] = ["string", "number", "boolean", "null"]
    return made


def _conditional(value: Any) -> Any:
    if isinstance(value, list):
        return [_conditional(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _conditional(inner) for key, inner in value.items()}
    if made.get("type") == "array" and "items" in made:
        made["items"] = {"anyOf": [made["items"], {"$ref": "#/$defs/Condition"}]}
    return made
