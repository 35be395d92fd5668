"""`LateModel`: a model that starts without pydantic, for a launch: the site's compiled file and its options.

Obviously valid values (`inputs.reading.acceptance`) are used directly. For everything else (a number as text, a wrong
value and its message, a file of yours, a JSON Schema) the same class is made for pydantic, which is imported then, and
makes instances of this one. A site of defaults takes 0.15 billion instructions so (valgrind, with the start of Python),
by pydantic 0.70. To the type checker a late model is a `inputs.reading.base.Model`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from stackyard.inputs.reading.acceptance import MISSING, LateField, UnclearValue, accepted, hints_of

__all__ = ["Field", "LateModel"]


class _PlainForm(NamedTuple):
    """The options for dumping models as plain values: JSON types, without default values."""

    as_json: bool
    lean: bool


class _LateModel:
    """Closed and immutable, as `Model`. Its slots are those of pydantic's instances."""

    __slots__ = ("__dict__", "__pydantic_extra__", "__pydantic_fields_set__", "__pydantic_private__")
    model_fields: ClassVar[dict[str, LateField]] = {}
    model_config: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # read by pydantic for a JSON Schema
    _adapter: ClassVar[Any]
    __pydantic_fields_set__: set[str]

    def __init_subclass__(cls) -> None:
        defaults = {name: vars(cls).get(name, MISSING) for name in vars(cls).get("__annotations__", ())}
        fields = {
            name: default if isinstance(default, LateField) else LateField(default)
            for name, default in defaults.items()
        }
        for name, field in fields.items():
            field.owner, field.name = cls, name
            if name in vars(cls):
                delattr(cls, name)
        cls.model_fields = {**cls.model_fields, **fields}

    def __init__(self, **values: Any) -> None:
        model = type(self).model_validate(values)
        self._put(model.__dict__, model.model_fields_set)

    def checked(self) -> None:
        """Raise ValueError if values contradict each other; models with such rules override this."""

    @classmethod
    def model_validate(cls, values: Any, *, context: Any = None) -> Any:
        """The model of these values. Raises pydantic's ValidationError."""
        try:
            return values if isinstance(values, cls) else cls.model_accept(values)
        except (UnclearValue, ValueError):
            pass  # pydantic says what is wrong, or makes of a text the number that it is
        return cls._reader().validate_python(values, context=context)

    @classmethod
    def model_validate_json(cls, text: bytes) -> Any:
        """The model of a JSON text. Raises ValueError."""
        return cls.model_validate(json.loads(text))

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """The JSON Schema, for editors."""
        return dict(cls._reader().json_schema())

    @classmethod
    def model_accept(cls, values: Mapping[str, Any]) -> Any:
        """The model of obviously valid values. Raises Refused, or the ValueError of `checked`."""
        model = object.__new__(cls)
        model._put(accepted(cls, values), values)
        model.checked()
        return model

    def _put(self, values: Mapping[str, Any], names: Iterable[str]) -> None:
        object.__setattr__(self, "__dict__", dict(values))
        object.__setattr__(self, "__pydantic_fields_set__", set(names))
        object.__setattr__(self, "__pydantic_extra__", None)
        object.__setattr__(self, "__pydantic_private__", None)

    @property
    def model_fields_set(self) -> set[str]:
        """The fields with given values, not defaults."""
        return self.__pydantic_fields_set__

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Any:
        """A copy with other values, which are not checked."""
        model = object.__new__(type(self))
        model._put({**self.__dict__, **(update or {})}, {*self.model_fields_set, *(update or {})})
        return model

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """The plain values."""
        known = options.keys() <= {"mode", "include", "exclude", "exclude_defaults"}
        if known and _is_flat(options.get("include")):
            how = _PlainForm(options.get("mode") == "json", bool(options.get("exclude_defaults")))
            return self._dump(how, options.get("include"), options.get("exclude") or ())
        return dict(self._reader().dump_python(self, **options))

    def model_dump_json(self, **options: Any) -> str:
        """The JSON text."""
        return json.dumps(self.model_dump(mode="json", **options), ensure_ascii=False, separators=(",", ":"))

    def _dump(self, how: _PlainForm, include: Any = None, exclude: Iterable[str] = ()) -> dict[str, Any]:
        """The fields in `include`, a set or a mapping to the set of a field which is a model; None: all."""
        values = {}
        for name, field in type(self).model_fields.items():
            value = self.__dict__[name]
            if field.exclude or name in exclude or (include is not None and name not in include):
                continue
            if not how.lean or value != field.default:
                below = include[name] if isinstance(include, Mapping) else True
                values[name] = _plain(value, how) if below is True else value._dump(how, below)
        return values

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use model_copy")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *(self.__dict__[name] for name in type(self).model_fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"

    def __getstate__(self) -> tuple[dict[str, Any], set[str]]:
        return self.__dict__, self.model_fields_set

    def __setstate__(self, state: tuple[dict[str, Any], set[str]]) -> None:
        self._put(*state)

    @classmethod
    def _reader(cls) -> Any:
        """The pydantic model of the class."""
        if "_adapter" not in vars(cls):
            from pydantic import TypeAdapter

            cls._adapter = TypeAdapter(cls)
        return cls._adapter

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """The pydantic schema of the class, which creates instances of this class instead."""
        schema = handler(_strict(cls))
        core_schema = handler.resolve_ref_schema(schema)
        while core_schema["type"] != "model":
            core_schema = core_schema["schema"]
        core_schema["cls"] = cls
        return schema


def _is_flat(include: Any) -> bool:
    """Whether `include` names fields one by one, with those of nested models; pydantic allows more."""
    parts = include.values() if isinstance(include, Mapping) else ()
    return all(part is True or isinstance(part, set) for part in parts)


def _plain(value: Any, how: _PlainForm) -> Any:
    if isinstance(value, _LateModel):
        return value._dump(how)
    if isinstance(value, dict):
        return {key: _plain(item, how) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return (list if how.as_json else type(value))(_plain(item, how) for item in value)
    if is_dataclass(value):
        shown = ((field.name, getattr(value, field.name), field.default) for field in fields(value))
        return {name: _plain(inner, how) for name, inner, default in shown if not how.lean or inner != default}
    return value


def _strict(cls: Any) -> type:
    """The class for pydantic: same name, fields and rules."""
    from pydantic import Field as strict_field
    from pydantic import model_validator

    from stackyard.inputs.reading.base import Model

    def checked(self: Any) -> Any:
        cls.checked(self)
        return self

    body: dict[str, Any] = {"__doc__": cls.__doc__, "__module__": cls.__module__, "__annotations__": hints_of(cls)}
    for name, field in cls.model_fields.items():
        default = () if field.default is MISSING else (field.default,)
        body[name] = strict_field(*default, **field.about)
    if cls.checked is not _LateModel.checked:
        body["checked_"] = model_validator(mode="after")(checked)
    return type(cls.__name__, (Model,), body)


if TYPE_CHECKING:
    from pydantic import Field

    from stackyard.inputs.reading.base import Model as LateModel
else:
    Field, LateModel = LateField, _LateModel
