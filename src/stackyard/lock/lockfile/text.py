"""The lock as a text file for a repository: TOML in one stable order, so that one change is one small diff.

Every package is written once, as a block, whatever the number of variants that use it; a variant lists its packages
by reference, one per line. Reading needs the standard library alone (on Python 3.10 also `tomli`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stackyard.core import toml
from stackyard.core.errors import InputError, Where, cause
from stackyard.core.late import dataclass
from stackyard.core.quoting import quoted
from stackyard.lock.lockfile import grammar
from stackyard.lock.lockfile.model import (
    LOCK_FORMAT,
    LOCK_MARK,
    CondaPackage,
    Lock,
    LockedInterpreter,
    LockedVariant,
    PipPackage,
)
from stackyard.yard import checksum, formats, members

Package = TypeVar("Package", CondaPackage, PipPackage)

_HEADER = f"{LOCK_MARK} Keep it beside the file it was made from, in the same repository.\n"
_RELOCK = "restore it from the repository, or write it again with `stackyard lock`"
_LONG_KEY = re.compile(r"(?<![\w.-])(?:[\w-]+\.){50}[\w.-]*[ \t]*[=\]]")
"""A dotted key whose tables would take memory without bounds; no lock has one."""
_LISTS = ("channels", "virtual", "requested", "policy", "notices")


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


def relocated(lock: Lock, directory: Path) -> Lock:
    """A lock read from elsewhere than beside its file, with local paths made relative to `directory`."""
    old, new = f"{Path(lock.folder).as_uri()}/", f"{directory.absolute().as_uri()}/"
    return replace(lock, variants=tuple(_moved(v, old, new) for v in lock.variants), folder=str(directory.absolute()))


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


def _string(text: str) -> str:
    """A TOML string: the escapes of JSON, and one more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# --------------------------------------------------------------------------- reading


def parse(text: str, origin: str) -> Lock:
    """Parse the output of `dump`.

    Args:
        origin: the file's path, for errors.

    Raises:
        InputError: not TOML, a newer format, a missing or unknown key, or a reference to a missing package; with the
            line.
    """
    try:
        if _LONG_KEY.search(text):
            raise ValueError("a key of more than 50 parts")
        data = toml.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib raises both for what it does not foresee, e.g. huge numbers
        _refuse_conflict(text, origin)
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise InputError(
            f"the lock is damaged: {reason}", where=Where(origin, _line_of_error(error, text)), hint=_RELOCK
        ) from error
    reader = _Reader(text, origin)
    refuse = partial(InputError, where=Where(origin, 1))
    return formats.read(data, "the lock", formats.Kind(LOCK_FORMAT, reader.lock, hint=lambda _: _RELOCK, error=refuse))


def _refuse_conflict(text: str, origin: str) -> None:
    """Raise InputError at the first merge conflict marker of git."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("<<<<<<< "):
            raise InputError(
                "the lock has an unresolved merge conflict",
                where=Where(origin, number),
                hint="take one side with `git checkout --ours` or `--theirs`, then run `stackyard lock`: "
                "it solves only what that side lacks",
            )


def read(path: Path) -> Lock:
    """Read a lock file, with or without a checksum. Raises InputError if it does not exist or is damaged."""
    try:
        text = checksum.read(path)
    except FileNotFoundError as error:
        raise InputError(f"no such lock: {path}", hint="write it with `stackyard lock`") from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the lock: {cause(error)}", where=Where(str(path)), hint=_RELOCK) from error
    return parse(text, str(path))


def _line_of_error(error: Exception, text: str) -> int:
    match = re.search(r"at line (\d+)", str(error))
    return int(match.group(1)) if match else text.count("\n") + 1


@dataclass(frozen=True)
class _File:
    """The parsed TOML of a lock file."""

    stack: str
    variant: tuple[dict[str, Any], ...] = ()
    conda: tuple[dict[str, Any], ...] = ()
    pip: tuple[dict[str, Any], ...] = ()


class _Reader:
    """Turns blocks into models; errors name the line of the block."""

    def __init__(self, text: str, origin: str) -> None:
        self._text = text
        self._origin = origin

    def lock(self, data: Mapping[str, Any]) -> Lock:
        """The lock from the parsed values of its file."""
        file = members.make(_File, data)
        conda = dict(self._packages("conda", file.conda, CondaPackage))
        pip = dict(self._packages("pip", file.pip, PipPackage))
        variants = tuple(self._variant(block, n, file.stack, conda, pip) for n, block in enumerate(file.variant))
        directory = Path(self._origin).absolute().parent
        if any(p.url.startswith(_HERE) for p in pip.values()):
            variants = tuple(_moved(v, _HERE, f"{directory.as_uri()}/") for v in variants)
        return Lock(file.stack, variants, str(directory))

    def _packages(
        self, kind: str, blocks: Iterable[dict[str, Any]], cls: type[Package]
    ) -> Iterator[tuple[str, Package]]:
        """Every block of one kind with its reference."""
        for n, block in enumerate(blocks):
            try:
                reference, package = block.pop("ref"), members.make(cls, block)
                grammar.check(package)
                yield reference, package
            except (KeyError, TypeError, ValueError) as error:
                raise self._damaged(kind, n, error) from error

    def _variant(
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
            block["interpreter"] = members.make(LockedInterpreter, block["interpreter"])
            grammar.check(block["interpreter"])
            block["conda"] = [_known(conda, reference) for reference in block.get("conda", ())]
            block["pip"] = [_known(pip, reference) for reference in block.get("pip", ())]
            return members.make(LockedVariant, {"stack": stack, **block})
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged("variant", n, error) from error

    def _damaged(self, kind: str, n: int, error: Exception) -> InputError:
        header, line = f"[[{kind}]]", 0
        starts = [i for i, text in enumerate(self._text.splitlines(), 1) if text.strip() == header]
        if n < len(starts):
            line = starts[n]
        reason = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        return InputError(
            f"the lock is damaged in a {header} block: {reason}", where=Where(self._origin, line), hint=_RELOCK
        )


def _known(packages: Mapping[str, Package], reference: str) -> Package:
    if reference not in packages:
        raise ValueError(f"no package {quoted(reference)}")
    return packages[reference]
