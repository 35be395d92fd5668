"""The standard library's `dataclass` with methods created on first use of a class.

A launch imports a hundred such classes and uses a third of them. The standard library compiles six methods of a frozen
one, in half a millisecond, and all ranks wait for it: until a launch has imported what it needs, Python executes 0.45
billion instructions (valgrind), with the standard library's decorator 0.77. For the type checker, and for users of a
class, it equals that decorator; programs on the nodes use the standard one.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_LOCK = threading.RLock()
_WAITING: dict[type, tuple[dict[str, Any], dict[str, Any]]] = {}
"""The classes that are not made yet: the options of the decorator, and the body of the class."""
_BARE: dict[type, bool] = {}
"""The classes that have no `_SHOWING` yet, and whether they are frozen: few are ever compared or shown."""
_SHOWING = ("__repr__", "__eq__", "__hash__")
_METHODS = ("__init__", "__setattr__", "__delattr__", *_SHOWING)


class _LateAttribute:
    """An attribute of `_Late` that completes the class on access, and then returns the real attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, one: object, cls: type) -> Any:
        try:
            with _LOCK:  # a thread that comes while another one makes the class waits here
                self._prepare(cls)
        except BaseException as error:
            if one is None or self._name not in _SHOWING:
                raise
            return _raising(error)
        values = (vars(base)[self._name] for base in cls.__mro__ if self._name in vars(base))
        for value in values:
            if not isinstance(value, _LateAttribute):
                return value.__get__(one, cls) if hasattr(value, "__get__") else value
        raise AttributeError(self._name)

    def _prepare(self, cls: type) -> None:
        for base in cls.__mro__:
            if base in _WAITING:
                _make(base, *_WAITING[base])
                _WAITING.pop(base, None)  # last: an interrupt leaves it to the next use
            if base in _BARE and self._name in _SHOWING:
                _complete(base, frozen=_BARE[base])
                _BARE.pop(base, None)


def _raising(error: BaseException) -> Any:
    """A method that raises an interrupt again: ``hash()``, ``==`` and ``repr()`` lose one from their look-up."""

    def interrupted(*_: object) -> Any:
        raise error

    return interrupted


class _Late:
    """The first base of an incomplete class; the created methods hide those here."""

    __init__: Any = _LateAttribute()
    __repr__: Any = _LateAttribute()
    __eq__: Any = _LateAttribute()
    __hash__: Any = _LateAttribute()
    __match_args__: Any = _LateAttribute()
    __dataclass_fields__ = _LateAttribute()
    __dataclass_params__ = _LateAttribute()


_ATTRIBUTES = {name: value for name, value in vars(_Late).items() if isinstance(value, _LateAttribute)}


def _late(cls: type, options: dict[str, Any]) -> type:
    """An incomplete copy of the class. An extension of an incomplete one has its own `_Late`, before the inherited."""
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    first = type("_Late", (), _ATTRIBUTES) if issubclass(cls, _Late) else _Late
    copy = type(cls)(cls.__name__, (first, *(base for base in cls.__bases__ if base is not object)), body)
    _WAITING[copy] = (options, body)
    return copy


def _make(cls: type, options: dict[str, Any], body: dict[str, Any]) -> None:
    """Create an instance's methods; after an interrupt none, so that the next use starts again."""
    is_bare = options.keys() <= {"frozen", "kw_only"} and not any(name in body for name in _SHOWING)
    _take_back(cls, body)  # an interrupt may have come between the end of this and the note that it is made
    try:
        dataclasses.dataclass(**options, **({"repr": False, "eq": False} if is_bare else {}))(cls)
        if is_bare:
            _BARE[cls] = options.get("frozen", False)
    except BaseException:
        _take_back(cls, body)
        raise


def _complete(cls: type, *, frozen: bool) -> None:
    """Create the methods that compare and display a class, from those of one with the same fields."""
    same = {"repr", "hash", "compare"}
    shape = [
        (f.name, Any, dataclasses.field(**{name: getattr(f, name) for name in same})) for f in dataclasses.fields(cls)
    ]
    result = dataclasses.make_dataclass(cls.__name__, shape, init=False, unsafe_hash=frozen)
    for name in _SHOWING:
        setattr(cls, name, vars(result)[name])


def _take_back(cls: type, body: dict[str, Any]) -> None:
    for name in _METHODS:
        if name in vars(cls) and name not in body:
            delattr(cls, name)
    _BARE.pop(cls, None)
    for name, value in body.items():
        if isinstance(value, dataclasses.Field):
            setattr(cls, name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Like `dataclasses.dataclass`, without ``slots`` and ``super()``, since it returns a copy of the class."""
        return (lambda each: _late(each, options)) if cls is None else _late(cls, options)
