"""Creates a model from a tree of YAML nodes; reports all problems at once, each with line and column.

Models receive scalars as written: ``3.10`` stays ``3.10``, ``0022`` stays ``0022``, and an environment variable set to
``yes`` is ``yes``. Numbers and booleans are made from the text only if a field requires them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from stackyard.core.errors import InputError, Where
from stackyard.core.hints import did_you_mean
from stackyard.core.quoting import cut, quoted
from stackyard.inputs.reading.words import UNFILLED
from stackyard.inputs.reading.yamlfile import Document, Node

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")
Path = tuple[str | int, ...]
Said = tuple[str, str | None]

# Keys of an environment.yml, and where they belong in a stack.yaml.
_ELSEWHERE = {
    "channels": "write it under `environment:`",
    "dependencies": "write it under `environment:`",
    "prefix": "remove it: the yard decides where a stack is installed",
    "env": "the key is `variables:`",
    "variants": "describe them by the axes of `matrix:`; one with a name of its own goes into its `include:`",
}


def plain(node: Node | None, typed: Collection[Path] = (), path: Path = ()) -> Any:
    """The content of a node with scalars as written; empty values are None.

    Args:
        typed: paths below which values keep the type that YAML gives them (free-form parts such as ``condarc.extra``).
    """
    if node is None or node.is_null:
        return None
    if path in typed:
        return node.value
    if node.kind == "mapping":
        return {key.text: plain(value, typed, (*path, key.text)) for key, value in node.entries}
    if node.kind == "sequence":
        return [plain(item, typed, (*path, index)) for index, item in enumerate(node.items)]
    return node.text


def validate(
    model: type[M], data: Any, document: Document, problems: list[InputError], *, unfilled: bool = False
) -> M | None:
    """An instance of the model; None if there are problems, which are added to the list with their places.

    Args:
        unfilled: names of axes in braces are not replaced yet; texts with braces are checked later.
    """
    try:
        return model.model_validate(without_nulls(model, {} if data is None else data), context={UNFILLED: unfilled})
    except ValueError as error:
        if not hasattr(error, "errors"):  # pydantic's ValidationError
            raise
        problems += [problem(model, detail, document) for detail in error.errors(include_url=False)]
        return None


def without_nulls(kind: Any, value: Any) -> Any:
    """The data without empty keys for which the model has a default."""
    if isinstance(value, Mapping):
        known = _fields(kind)
        return {
            key: without_nulls(_below(kind, key), inner)
            for key, inner in value.items()
            if inner is not None or key not in known
        }
    if isinstance(value, list):
        return [without_nulls(_below(kind, index), inner) for index, inner in enumerate(value)]
    return value


def problem(model: type[BaseModel], error: Any, document: Document) -> InputError:
    """A pydantic error as an InputError: what is wrong, where, and a hint."""
    path: Path = tuple(error["loc"])
    if path[-1:] == ("[key]",):
        return _wrong_key(path[:-1], error, document)
    if error["type"] == "extra_forbidden":
        return unknown_key(path, _fields(_type_at(model, path[:-1])), document.key_where(*path))
    message, hint = said(error, ".".join(str(step) for step in path))
    return InputError(message, where=document.where(*path), hint=hint)


def said(error: Any, name: str) -> Said:
    """A pydantic error about a named value in our own words: what is wrong, and a hint."""
    make = _SAID.get(error["type"], _said_by_pydantic)
    return make(cut(name), error.get("input"), {"msg": error["msg"], **error.get("ctx", {})})


def _wrong_key(path: Path, error: Any, document: Document) -> InputError:
    """The error for a key of a mapping that violates the grammar of its keys."""
    message, hint = said(error, ".".join(str(step) for step in path[:-1]))
    return InputError(message, where=document.key_where(*path), hint=hint)


def unknown_key(path: Path, known: Iterable[str], where: Where) -> InputError:
    """The error for a key that the format does not have."""
    key, above = str(path[-1]), cut(".".join(str(step) for step in path[:-1]))
    within = f" in {above}" if above else ""
    hint = _ELSEWHERE.get(key) or among(key, known)
    return InputError(f"unknown key {quoted(key)}{within}", where=where, hint=hint)


def among(word: str, known: Iterable[str]) -> str:
    """A hint about a word of a file: the nearest of the known words, else all of them."""
    words = sorted(set(known))
    allowed = f"allowed: {', '.join(words)}" if words else "no keys are allowed here: remove it"
    return did_you_mean(word.lower(), words, allowed, shown=repr)


def _fields(kind: Any) -> Mapping[str, Any]:
    kind = _model(kind)
    return kind.model_fields if kind else {}


def _model(kind: Any) -> type[BaseModel] | None:
    """The model behind an annotation, through Annotated and Optional."""
    if get_origin(kind) is None and isinstance(kind, type) and hasattr(kind, "model_fields"):
        return kind  # list[str] is a type for Python 3.10
    if get_origin(kind) is Annotated or get_origin(kind) is Union:
        return next((model for model in map(_model, get_args(kind)) if model), None)
    return None


def _below(kind: Any, step: str | int) -> Any:
    """The annotation one step further down: a model's field, an item of a list, a value of a mapping."""
    fields = _fields(kind)
    if fields:
        return fields[str(step)].annotation if str(step) in fields else Any
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    arguments = get_args(kind)
    if get_origin(kind) in (tuple, list) and arguments:
        return arguments[0]
    if get_origin(kind) is dict and len(arguments) == 2:
        return arguments[1]
    return Any


def _type_at(kind: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        kind = _below(kind, step)
    return kind


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else quoted(str(value))


def _needs(what: str, hint: str) -> Callable[[str, Any, Mapping[str, Any]], Said]:
    return lambda name, value, _: (f"{name}: expected {what}, found {_shown(value)}", hint)


def _choice(name: str, value: Any, context: Mapping[str, Any]) -> Said:
    expected = str(context["expected"]).replace(" or ", ", ")
    words = [word.strip(" '") for word in expected.split(",")]
    return f"{name}: {_shown(value)} is not one of {', '.join(w or repr('') for w in words)}", among(str(value), words)


def _said_by_us(name: str, value: Any, context: Mapping[str, Any]) -> Said:
    error = context.get("error")
    text = str(context["msg"] if error is None else error)
    return (f"{name}: {text}" if name else text), getattr(error, "hint", None)


def _said_by_pydantic(name: str, value: Any, context: Mapping[str, Any]) -> Said:
    text = str(context["msg"])
    return f"{name}: {text[:1].lower()}{text[1:]}", None


_LIST = _needs("a list", "write each value on its own line after `- `, or [a, b]")
_MAPPING = _needs("a mapping", "write `key: value` lines, indented below it")
_WHOLE = _needs("a whole number", "write it in digits without a unit")
_TRUTH = _needs("true or false", "write true or false")
_SAID: dict[str, Callable[[str, Any, Mapping[str, Any]], Said]] = {
    "missing": lambda name, *_: (f"missing key {name!r}", "add it"),
    "string_type": _needs("text", "write one value; an empty text is ''"),
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "float_parsing": _needs("a number", "write it without a unit: the unit is in the key's name"),
    "float_type": _needs("a number", "write it without a unit: the unit is in the key's name"),
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "literal_error": _choice,
    "value_error": _said_by_us,
    "string_pattern_mismatch": lambda name, value, context: (
        f"{name}: {quoted(value)} does not match {context['pattern']}",
        "write three octal digits, e.g. 0027" if name.endswith("umask") else "write it in this form",
    ),
}
