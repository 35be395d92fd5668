"""The parsed content of a file as text: ``stackyard show --parsed FILE``. JSON has every detail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from stackyard.cli.output import echo
from stackyard.cli.typed import as_typed
from stackyard.core.secrets import redacted

_PLACED = ("environment", "version", "name", "axes", "stack", "summary", "notices", "files", "place", "platforms")
_EMPTY: tuple[Any, ...] = (None, "", [], {}, False, ())


def show_parsed(value: Mapping[str, Any]) -> None:
    """Print the result of `inputs.parsed.parsed_json`, without empty values."""
    for line in lines(value):
        echo(redacted(line))


def lines(value: Mapping[str, Any]) -> Iterator[str]:
    """The lines of `show_parsed`."""
    yield f"{click.style(as_typed(value['file']), bold=True)} is {_KINDS[value['kind']]}"
    if value["kind"] == "stack":
        yield from _stack(value)
    else:
        yield from (line for part in _environment(value) for line in part)
        yield from _named("ignored keys", [f"{k}: {v}" for k, v in value.get("ignored", {}).items()])
        yield from _named("files", [as_typed(file) for file in value["files"]])
        yield from _named("not found", [as_typed(file) for file in value["missing"]])
        yield from _named("notices", value["notices"])


_KINDS = {"stack": "a stack", "environment": "an environment", "requirements": "a list of pip requirements"}


def _stack(value: Mapping[str, Any]) -> Iterator[str]:
    yield from _named("name", value["name"])
    yield from _named("summary", value["summary"])
    yield from _named("default", value["default"])
    variants = value["variants"]
    parts_of = [_variant(variant) for variant in variants]
    shared = [part for part in parts_of[0] if all(part in other for other in parts_of)]
    for variant, parts in zip(variants, parts_of, strict=True):
        axes = ", ".join(f"{k} {v}" for k, v in variant["axes"].items() if v)
        name = click.style(f"variant {variant['version']}-{variant['name']}".rstrip("-"), bold=True)
        yield name + (f"   ({axes})" if axes else "")
        yield from (line for part in parts if part not in shared for line in part)
    yield click.style("in every variant", bold=True)
    yield from (line for part in shared for line in part)
    yield from _named("files", list(dict.fromkeys(as_typed(f) for v in variants for f in v["files"])))
    yield from _named("notices", list(dict.fromkeys(as_typed(n) for v in variants for n in v["notices"])))


def _variant(variant: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A variant, in parts that several variants can share."""
    parts = list(_environment(variant["environment"], 1))
    parts.append(tuple(_named("platforms", variant["platforms"], 1)))
    parts += [tuple(_named(k.replace("_", " "), _brief(v), 1)) for k, v in variant.items() if k not in _PLACED]
    return [part for part in parts if part]


def _environment(value: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, ...]]:
    """An environment, key by key."""
    for key in ("name", "prefix", "category"):
        yield tuple(_named(key, value[key], depth))
    channels = [_with(item["channel"], item) for item in value["channels"]]
    yield tuple(_named("channels", [*channels, *(["nodefaults"] if value["nodefaults"] else [])], depth))
    yield tuple(_named("platforms", value["platforms"], depth))
    yield tuple(_named("conda", [_with(item["url"] or item["spec"], item) for item in value["conda"]], depth))
    yield tuple(_named("pip", [_pip(item) for item in value["pip"]], depth))
    yield tuple(_named("pip constraints", [_pip(item) for item in value["constraints"]], depth))
    yield tuple(_named("pip options", _brief(value["pip_options"]), depth))
    shown = [_with(f"{name}={item['value']}", item) for name, item in value["variables"].items()]
    yield tuple(_named("variables", shown, depth))


def _pip(item: Mapping[str, Any]) -> str:
    words = [item["line"], *(f"--hash={text}" for text in item["hashes"])]
    words += [f"--config-settings={text}" for text in item["config_settings"]]
    notes = ["editable"] if item["editable"] else []
    notes += [f"from {item['index']}"] if item["index"] else []
    return _with(" ".join(words) + (f"   ({', '.join(notes)})" if notes else ""), item)


def _with(text: str, item: Mapping[str, Any]) -> str:
    """The text with its selector."""
    return f"{text}   [{item['selector']}]" if item["selector"] else text


def _brief(item: Any) -> Any:
    """A value without its empty parts, with each mapping in a list on one line."""
    if isinstance(item, Mapping):
        return [f"{key}: {_inline(inner)}" for key, inner in item.items() if _has_value(inner)]
    if isinstance(item, list | tuple):
        return [_inline(inner) for inner in item]
    return item


def _has_value(item: Any) -> bool:
    """Whether a value is not empty, at any depth."""
    if isinstance(item, Mapping):
        return any(_has_value(inner) for inner in item.values())
    return item not in _EMPTY


def _inline(item: Any) -> str:
    if isinstance(item, Mapping):
        return ", ".join(f"{key}: {_inline(inner)}" for key, inner in item.items() if _has_value(inner))
    if isinstance(item, list | tuple):
        return ("; " if any(isinstance(inner, Mapping) for inner in item) else " ").join(map(_inline, item))
    text = str(item).strip()
    return f"{text.splitlines()[0]} …" if "\n" in text else text


def _named(name: str, item: Any, depth: int = 0) -> Iterator[str]:
    """A name with its value on the same line, or with a list of values below; nothing for an empty one."""
    margin = "  " * depth
    if item in _EMPTY:
        return
    if isinstance(item, Sequence) and not isinstance(item, str):
        yield f"{margin}{click.style(f'{name}:', bold=not depth)}"
        yield from (f"{margin}  - {element}" for element in item)
    else:
        yield f"{margin}{click.style(f'{name}:', bold=not depth)} {item}"
