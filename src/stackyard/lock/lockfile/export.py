"""One locked variant in the formats of other tools: pixi.lock, pylock.toml (PEP 751), ``@EXPLICIT``, environment.yml.

Comments in the file name the parts that a format cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from stackyard.core import plugins
from stackyard.core.errors import InputError
from stackyard.core.names import canonical, conda_name, pip_name
from stackyard.host.files.hashing import local_path
from stackyard.host.files.scratch import scratch
from stackyard.host.machine.platforms import machine_of
from stackyard.lock.conda.records import package_record
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.lock.lockfile.text import toml_value

DEFAULT_CHANNEL = "conda-forge"
"""Where conda finds a Python for a stack without conda packages."""


# --------------------------------------------------------------------------- conda's @EXPLICIT


def explicit(locked_variant: LockedVariant) -> str:
    """conda's explicit list, dependencies first: ``conda create --name NAME --file FILE`` installs exactly these files.

    Hashes are ``#sha256:`` ones, which conda accepts since 23.11; older ones read the list without ``#...``.
    """
    lines = [*_header(locked_variant, "explicit list"), f"# platform: {locked_variant.platform}", "@EXPLICIT"]
    lines += [f"{p.url}#sha256:{p.sha256}" for p in in_order(locked_variant.conda)]
    return "\n".join(lines) + "\n"


def in_order(packages: Sequence[CondaPackage]) -> list[CondaPackage]:
    """Packages sorted so that each follows its dependencies; a cycle is broken at its first name."""
    by_name = {p.name: p for p in packages}
    done: dict[str, CondaPackage] = {}
    entered: set[str] = set()
    stack = [(p.name, False) for p in reversed(packages)]
    while stack:
        name, left = stack.pop()
        if left:
            done[name] = by_name[name]
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack += [(n, False) for d in by_name[name].depends if (n := conda_name(d)) in by_name and n not in entered]
    return list(done.values())


def _header(locked: LockedVariant, what: str) -> Iterator[str]:
    yield f"# {locked.stack} {locked.version} {locked.variant}".rstrip() + f" for {locked.platform}: {what} of a lock"
    if what == "explicit list" and locked.pip:
        yield f"# its {len(locked.pip)} pip packages are not in this format; export pylock.toml for them"
    if what == "pylock" and locked.conda:
        yield f"# its {len(locked.conda)} conda packages are not in this format; export the explicit list for them"
    if python := _python(locked):
        yield f"# made for Python {python}, {_ORIGINS[locked.interpreter.source]}; no conda package of it is locked"


_ORIGINS: Mapping[str, str] = {
    "conda": "of conda", "uv": "which uv downloads", "host": "of the machine", "base": "of the base",
}  # fmt: skip


def _python(locked: LockedVariant) -> str:
    """The version of a Python for pip packages that is not a conda package; else empty."""
    own = locked.pip and not any(p.name == "python" for p in locked.conda) and locked.interpreter.source in _ORIGINS
    return locked.interpreter.version if own else ""


# --------------------------------------------------------------------------- environment.yml


def environment(locked_variant: LockedVariant) -> str:
    """An environment.yml that pins conda packages to version and build, and pip packages to their version.

    A Python from elsewhere becomes a dependency: conda needs its own Python for pip packages.
    """
    python = _python(locked_variant)
    channels = locked_variant.channels or ((DEFAULT_CHANNEL,) if python else ())
    lines = [*_header(locked_variant, "environment"), f"name: {locked_variant.stack}"]
    lines += ["channels:", *(f"  - {url}" for url in channels), "  - nodefaults"]
    lines += ["platforms:", f"  - {locked_variant.platform}", "dependencies:"]
    lines += [f"  - python={python}"] if python else []
    lines += [f"  - {p.name}={p.version}={p.build}" for p in locked_variant.conda]
    if locked_variant.pip:
        lines += ["  - pip:", *(f"      - {_yaml(line)}" for line in _pip_lines(locked_variant))]
    if lines[-1] == "dependencies:":
        lines[-1] = "dependencies: []"
    return "\n".join(lines) + "\n"


def requirements(locked_variant: LockedVariant) -> str:
    """A requirements.txt with the pip packages; conda packages are comments, since pip cannot install them."""
    lines = [*_header(locked_variant, "requirements"), f"# Python {locked_variant.interpreter.version}"]
    lines += [f"# conda: {p.name} {p.version} {p.build}" for p in locked_variant.conda]
    return "\n".join([*lines, *_pip_lines(locked_variant)]) + "\n"


def _pip_lines(locked: LockedVariant) -> Iterator[str]:
    indexes = dict.fromkeys(p.index for p in locked.pip if p.index)
    for index in indexes:
        remote = "://" in index and index.rstrip("/").endswith("/simple")
        if index.rstrip("/") != "https://pypi.org/simple":
            yield f"{'--extra-index-url' if remote else '--find-links'} {index}"
    compiled = [p.name for p in locked.pip if p.kind == "sdist"]
    if compiled:
        yield f"--no-binary {','.join(compiled)}"
    yield from (_pip_line(p) for p in locked.pip)


def _pip_line(package: PipPackage) -> str:
    extras = f"[{','.join(package.extras)}]" if package.extras else ""
    if package.kind == "vcs":
        subdirectory = f"#subdirectory={package.subdirectory}" if package.subdirectory else ""
        return f"{package.name}{extras} @ {package.url}@{package.commit}{subdirectory}"
    if package.kind == "path" or not package.index:
        return f"{package.name}{extras} @ {package.url}"
    return f"{package.name}{extras}=={package.version}"


def _yaml(text: str) -> str:
    return (
        text
        if re.fullmatch(r"[\w./=+@:<>,\[\] -]+", text) and ": " not in text and text[0] not in "[@-"
        else _quoted(text)
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --------------------------------------------------------------------------- PEP 751


def pylock(locked_variant: LockedVariant) -> str:
    """The pip half as pylock.toml, for ``uv pip install -r pylock.toml`` and ``--requirement`` of newer pip."""
    minor = _minor(locked_variant)
    machine = machine_of(locked_variant.platform)
    lines = [
        *_header(locked_variant, "pylock"),
        'lock-version = "1.0"',
        f"environments = {toml_value([f'sys_platform == {machine_marker(machine)}'])}",
        *([f"requires-python = {toml_value(f'=={minor}.*')}"] if minor else []),
        'created-by = "stackyard"',
    ]
    names = {canonical(p.name) for p in locked_variant.pip}
    blocks = [_pylock_block(p, names) for p in sorted(locked_variant.pip, key=lambda p: p.name)]
    return "\n".join([*lines, *blocks]) + "\n" + ("" if blocks else "packages = []\n")


def _minor(locked: LockedVariant) -> str:
    return ".".join(locked.interpreter.version.split(".")[:2])


def machine_marker(machine: str) -> str:
    """The right-hand side of the marker that limits a pylock to Linux on one machine."""
    return f"'linux' and platform_machine == '{machine}'"


def _pylock_block(package: PipPackage, names: set[str]) -> str:
    needed = sorted({n for r in package.requires if (n := pip_name(r)) in names})
    lines = ["", "[[packages]]", f"name = {toml_value(package.name)}"]
    if package.version and package.kind != "path":
        lines.append(f"version = {toml_value(package.version)}")
    if package.index.startswith("http"):
        lines.append(f"index = {toml_value(package.index)}")
    if needed:
        lines.append(f"dependencies = [{', '.join(toml_value({'name': n}) for n in needed)}]")
    key, value = _pylock_source(package)
    return "\n".join([*lines, f"{key} = {value}"])


def _pylock_source(package: PipPackage) -> tuple[str, str]:
    path = local_path(package.url)
    if package.kind == "vcs":
        source = {"type": "git", "url": package.url.removeprefix("git+"), "commit-id": package.commit}
        return "vcs", toml_value(source | _subdirectory(package))
    if package.kind == "path":
        return "directory", toml_value({"path": str(path)} | _subdirectory(package))
    source_of: dict[str, Any] = {"url": package.url, "hashes": {"sha256": package.sha256}}
    if package.size:
        source_of["size"] = package.size
    if package.kind == "wheel":
        return "wheels", f"[{toml_value(source_of)}]"
    if package.index:
        return "sdist", toml_value(source_of)
    return "archive", toml_value(source_of | _subdirectory(package))


def _subdirectory(package: PipPackage) -> dict[str, str]:
    return {"subdirectory": package.subdirectory} if package.subdirectory else {}


# --------------------------------------------------------------------------- pixi


def pixi(locked_variant: LockedVariant) -> str:
    """A pixi.lock, written by rattler; hashes of pip packages, which its interface lacks, are inserted afterwards."""
    from rattler import LockChannel, LockFile, LockPlatform

    with scratch("export") as directory, _accepted(f"{locked_variant.stack} {locked_variant.version}"):
        platform = LockPlatform(locked_variant.platform, None, list(locked_variant.virtual))
        lock = LockFile([platform])
        lock.set_channels("default", [LockChannel(f"{url}/") for url in locked_variant.channels])
        for conda in locked_variant.conda:
            lock.add_conda_package("default", platform, record(conda))
        for pip in locked_variant.pip:
            lock.add_pypi_package("default", platform, pip.name, pip.version or "0", _pixi_location(pip))
        path = directory / "pixi.lock"
        lock.to_path(path)
        text = path.read_text(encoding="utf-8")
    needed = f"=={_minor(locked_variant)}.*" if _python(locked_variant) else ""
    head = "".join(f"{line}\n" for line in _header(locked_variant, "pixi.lock"))
    return head + _with_hashes(text, {canonical(p.name): p for p in locked_variant.pip}, needed)


def record(package: CondaPackage) -> Any:
    """A locked conda package as rattler's `RepoDataRecord`.

    Raises:
        InputError: rattler rejects one of its values; the lock was edited or damaged.
    """
    from rattler import RepoDataRecord

    with _accepted(package.stem):
        fields = package_record(package)
        return RepoDataRecord(fields, package.url.rsplit("/", 1)[-1], package.url, f"{package.channel}/")


@contextmanager
def _accepted(what: str) -> Iterator[None]:
    """Turn rattler's errors about invalid values into an InputError; it has an exception for each kind of value."""
    try:
        yield
    except (InputError, OSError, ImportError):
        raise
    except Exception as error:
        message = f"invalid values of {what} in the lock: {error}"
        raise InputError(message, hint="solve again with `stackyard lock`") from error


def _pixi_location(package: PipPackage) -> str:
    if package.kind == "vcs":
        return f"{package.url}#{package.commit}"
    path = local_path(package.url)
    return str(path) if package.kind == "path" and path else package.url


def _with_hashes(text: str, packages: Mapping[str, PipPackage], python: str) -> str:
    def filled(match: re.Match[str]) -> str:
        package = packages[canonical(match.group(2).strip("'\""))]  # a name such as `null` is in quotes
        lines = f"  sha256: {package.sha256}\n" if package.sha256 and package.kind != "path" else ""
        if package.requires:
            lines += "  requires_dist:\n" + "".join(f"  - {_quoted(r)}\n" for r in package.requires)
        lines += f"  requires_python: {_quoted(python)}\n" if python else ""
        return match.group(1) + lines

    return re.sub(r"(- pypi: [^\n]+\n  name: ([^\n]+)\n(?:  version: [^\n]+\n)?)", filled, text)


EXPORTS: Mapping[str, Callable[[LockedVariant], str]] = {
    "pixi": pixi,
    "pylock": pylock,
    "explicit": explicit,
    "environment": environment,
    "requirements": requirements,
}
"""Every built-in export by its name on the command line."""
GROUP = "stackyard.exports"
"""The entry points of further ones: functions of a `LockedVariant` that return text."""


def writer_of(name: str, *others: str) -> Callable[[LockedVariant], str]:
    """The exporter for a format: built-in, or from a plug-in.

    Args:
        others: further formats that the caller has, for the message.

    Raises:
        InputError: no such format.
        StackyardError: the plug-in cannot be loaded; the exporter raises it if the plug-in fails.
    """
    if name in EXPORTS:
        return EXPORTS[name]
    plugin = plugins.find_plugin(GROUP, name, (*EXPORTS, *others), Callable, "export format", "known: {}")
    return partial(_by_plugin, plugin)


def _by_plugin(plugin: plugins.Plugin, locked_variant: LockedVariant) -> str:
    with plugins.calling(plugin, f"the export {plugin.source.name}"):
        text = plugin.object(locked_variant)
        if not isinstance(text, str):
            raise TypeError(f"returned {type(text).__name__}, not str")
    return text
