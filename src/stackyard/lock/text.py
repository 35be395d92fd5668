"""The lock as a text file for a repository: TOML in one stable order, so that one change is one small diff.

Every package is written once, as a block, whatever the number of variants that use it; a variant lists its packages
by reference, one per line. Reading needs the standard library alone (on Python 3.10 also `tomli`).
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from stackyard.errors import InputError, Where
from stackyard.lock.model import (
    LOCK_FORMAT,
    CondaPackage,
    Lock,
    LockedInterpreter,
    LockedVariant,
    PipPackage,
)

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - only on Python 3.10
    import tomli as tomllib

Package = TypeVar("Package", CondaPackage, PipPackage)

_HEADER = "# Written by `stackyard lock`. Keep it beside the file it was made from, in the same repository.\n"
"""Begins with `hashing.LOCK_MARK`."""
_RELOCK = "restore it from the repository, or rewrite it with `stackyard lock`"
_LISTS = ("channels", "virtual", "requested", "policy", "notices")
_CONDA_LISTS = ("depends", "constrains", "purls")
_PIP_LISTS = ("requires", "extras")


def path_for(file: Path) -> Path:
    """The path of the lock of a spec file: the file's name with ``.lock`` appended, in the same directory."""
    return file.with_name(f"{file.name}.lock")


# --------------------------------------------------------------------------- writing


def dump(lock: Lock) -> str:
    """The lock as text. The same lock gives the same text, whatever the order in which it was solved."""
    lock = _relative(lock)
    conda = _References((p for v in lock.variants for p in v.conda), _conda_reference)
    pip = _References((p for v in lock.variants for p in v.pip), _pip_reference)
    parts = [f"{_HEADER}format = {LOCK_FORMAT}\nstack = {_string(lock.stack)}\n"]
    parts += [_variant_block(v, conda, pip) for v in lock.variants]
    parts += [_package_block("conda", ref, package) for ref, package in conda.sorted()]
    parts += [_package_block("pip", ref, package) for ref, package in pip.sorted()]
    return "\n".join(parts)


_HERE = "file://./"


def _relative(lock: Lock) -> Lock:
    """The lock with local projects and files in its directory as ``file://./name``."""
    start = f"{Path(lock.folder).as_uri()}/" if lock.folder else ""
    if not start or not any(p.url.startswith(start) for v in lock.variants for p in v.pip):
        return lock
    return replace(lock, variants=tuple(_moved(v, start, _HERE) for v in lock.variants))


def _moved(variant: LockedVariant, old: str, new: str) -> LockedVariant:
    pip = tuple(replace(p, url=new + p.url.removeprefix(old)) if p.url.startswith(old) else p for p in variant.pip)
    return replace(variant, pip=pip)


class _References:
    """A unique, readable name for every distinct package of one kind."""

    def __init__(self, packages: Iterable[Any], name: Callable[[Any], str]) -> None:
        self._blocks: dict[str, str] = {}
        by_name: dict[str, dict[str, Any]] = {}
        self._name = name
        for package in packages:
            by_name.setdefault(name(package), {}).setdefault(_body(package), package)
        self._packages: dict[str, Any] = {}
        for plain, bodies in by_name.items():
            for body, package in bodies.items():
                reference = plain if len(bodies) == 1 else f"{plain} {hashlib.sha256(body.encode()).hexdigest()[:8]}"
                self._blocks[body] = reference
                self._packages[reference] = package

    def of(self, package: Any) -> str:
        """The reference of a package."""
        return self._blocks[_body(package)]

    def sorted(self) -> list[tuple[str, Any]]:
        """All packages with their references, in the order of the file."""
        return sorted(self._packages.items(), key=lambda item: item[0])


def _conda_reference(package: CondaPackage) -> str:
    return f"{package.name} {package.version} {package.build} {package.subdir}"


def _pip_reference(package: PipPackage) -> str:
    file = package.commit[:12] or package.url.rsplit("/", 1)[-1]
    return f"{package.name} {package.version} {file}"


def _variant_block(variant: LockedVariant, conda: _References, pip: _References) -> str:
    interpreter = {f.name: getattr(variant.interpreter, f.name) for f in fields(LockedInterpreter)}
    lines = [
        "[[variant]]",
        f"version = {_string(variant.version)}",
        f"name = {_string(variant.variant)}",
        f"platform = {_string(variant.platform)}",
        f"spec_hash = {_string(variant.spec_hash)}",
        f"interpreter = {toml_value({k: v for k, v in interpreter.items() if v})}",
    ]
    for name in _LISTS:
        if getattr(variant, name):
            lines.append(f"{name} = {toml_value(getattr(variant, name))}")
    for kind, packages, references in (("conda", variant.conda, conda), ("pip", variant.pip, pip)):
        if packages:
            lines.append(f"{kind} = {toml_value([references.of(p) for p in packages])}")
    return "\n".join(lines) + "\n"


def _package_block(kind: str, reference: str, package: Any) -> str:
    return f"[[{kind}]]\nref = {_string(reference)}\n{_body(package)}"


def _body(package: Any) -> str:
    lines = []
    for f in fields(package):
        value = getattr(package, f.name)
        if (f.default is MISSING and f.default_factory is MISSING) or value not in (f.default, {}, ()):
            lines.append(f"{f.name} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """A string, integer, table (in one line) or list (an item per line) as TOML."""
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {toml_value(v)}" for k, v in sorted(value.items())) + " }"
    return "[\n" + "".join(f"  {toml_value(item)},\n" for item in value) + "]" if value else "[]"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def _string(text: str) -> str:
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character >= " " and character != "\x7f" else f"\\u{ord(character):04x}"


# --------------------------------------------------------------------------- reading


def parse(text: str, origin: str) -> Lock:
    """Read what `dump` wrote.

    Args:
        origin: the file's path, for errors.

    Raises:
        InputError: not TOML, a newer format, a missing or unknown field, or a reference to a package that is not there;
            with the line.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"the lock is damaged: {error}", where=Where(origin, _line_of_error(error, text)), hint=_RELOCK
        ) from error
    _check_format(data, origin)
    reader = _Reader(text, origin)
    conda = dict(reader.packages(data, "conda", CondaPackage, _CONDA_LISTS))
    pip = dict(reader.packages(data, "pip", PipPackage, _PIP_LISTS))
    variants = tuple(
        reader.variant(block, n, str(data["stack"]), conda, pip) for n, block in enumerate(data.get("variant", []))
    )
    folder = Path(origin).absolute().parent
    if any(p.url.startswith(_HERE) for p in pip.values()):
        variants = tuple(_moved(v, _HERE, f"{folder.as_uri()}/") for v in variants)
    return Lock(str(data["stack"]), variants, str(folder))


def read(path: Path) -> Lock:
    """Read a lock file. Raises InputError if it does not exist or is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"no such lock: {path}", hint="write it with `stackyard lock`") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the lock: {error}", where=Where(str(path)), hint=_RELOCK) from error
    return parse(text, str(path))


def _check_format(data: Mapping[str, Any], origin: str) -> None:
    found = data.get("format")
    if found != LOCK_FORMAT or not isinstance(data.get("stack"), str):
        raise InputError(
            f"unsupported lock format {found!r}: this program reads format {LOCK_FORMAT}",
            where=Where(origin, 1),
            hint="use the stackyard version that wrote it, or lock again",
        )


def _line_of_error(error: Exception, text: str) -> int:
    found = re.search(r"at line (\d+)", str(error))
    return int(found.group(1)) if found else text.count("\n") + 1


class _Reader:
    """Turns blocks into models; errors name the line at which a block starts."""

    def __init__(self, text: str, origin: str) -> None:
        self._text = text
        self._origin = origin

    def packages(
        self, data: Mapping[str, Any], kind: str, cls: type[Package], lists: tuple[str, ...]
    ) -> Iterator[tuple[str, Package]]:
        """Every block of one kind with its reference."""
        for n, block in enumerate(data.get(kind, [])):
            try:
                reference = block.pop("ref")
                for name in lists:
                    if name in block:
                        block[name] = tuple(block[name])
                yield reference, cls(**block)
            except (KeyError, TypeError) as error:
                raise self._damaged(kind, n, _reason(error)) from error

    def variant(
        self,
        block: dict[str, Any],
        n: int,
        stack: str,
        conda: Mapping[str, CondaPackage],
        pip: Mapping[str, PipPackage],
    ) -> LockedVariant:
        """One variant with its packages."""
        try:
            block["variant"] = block.pop("name")
            block["interpreter"] = LockedInterpreter(**block["interpreter"])
            for name in _LISTS:
                block[name] = tuple(block.get(name, ()))
            block["conda"] = tuple(conda[ref] for ref in block.get("conda", ()))
            block["pip"] = tuple(pip[ref] for ref in block.get("pip", ()))
            return LockedVariant(stack=stack, **block)
        except (KeyError, TypeError) as error:
            raise self._damaged("variant", n, _reason(error)) from error

    def _damaged(self, kind: str, n: int, reason: str) -> InputError:
        header, line = f"[[{kind}]]", 0
        starts = [i for i, text in enumerate(self._text.splitlines(), 1) if text.strip() == header]
        if n < len(starts):
            line = starts[n]
        return InputError(
            f"the lock is damaged in a {header} block: {reason}", where=Where(self._origin, line), hint=_RELOCK
        )


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"missing {error.args[0]!r}"
    return re.sub(r"^.*__init__\(\) ", "", str(error))
