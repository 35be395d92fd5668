"""Jupyter kernels: a kernelspec per revision, whose process has the environment of the loaded module.

A kernelspec is a directory with ``kernel.json`` in one of Jupyter's data directories. Jupyter runs its command with a
connection file. The command is ``stackyard run REV -- python -m ipykernel_launcher``, so the module's changes apply,
and an image is mounted as for any other command. (jupyter-client's documentation, "Making kernels for Jupyter".)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.expose.commands import runs_beside
from stackyard.yard import disk, formats
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write.atomic import write_text

_NAME = re.compile(r"(?!\.)[a-z0-9._-]{1,200}")
_FILE = "kernel.json"
_CONNECTION = "{connection_file}"


@dataclass(frozen=True)
class Kernel:
    """One of our installed kernelspecs. `folder`: its directory; `revision`: the module that it starts."""

    name: str
    folder: Path
    display_name: str
    revision: str
    path: str


def user_directory(environ: Mapping[str, str]) -> Path:
    """Jupyter's directory for a user's own kernels: below ``$JUPYTER_DATA_DIR``, else the XDG data directory.

    Raises:
        InputError: neither variable nor a home is set.
    """
    directory = environ.get("JUPYTER_DATA_DIR")
    if directory:
        return Path(directory) / "kernels"
    data, home = environ.get("XDG_DATA_HOME"), environ.get("HOME")
    if data:
        return Path(data) / "jupyter" / "kernels"
    if not home:
        raise InputError("cannot find the directory of your kernels: HOME is not set", hint="name one: --prefix DIR")
    return Path(home) / ".local" / "share" / "jupyter" / "kernels"


def prefix_directory(prefix: Path) -> Path:
    """The kernel directory of a Jupyter that is installed in a prefix."""
    return prefix / "share" / "jupyter" / "kernels"


def name_for(record: BuildRecord, wish: str = "") -> str:
    """The kernel's name: the requested one, else the module's.

    Raises:
        InputError: the name is invalid for Jupyter.
    """
    if wish and not _NAME.fullmatch(wish.lower()):
        hint = "use at most 200 letters, digits, '.', '-' and '_', and do not begin with '.'"
        raise InputError(f"{wish!r} is not a name of a kernel", hint=hint)
    return wish.lower() or re.sub(r"[^a-z0-9._-]+", "-", record.module.lower())


def require_ipykernel(record: BuildRecord) -> None:
    """Raise InputError unless the revision has ipykernel."""
    if not any(canonical(package.name) == "ipykernel" for package in record.packages):
        raise InputError(
            f"{record.module} has no ipykernel, by which Jupyter talks to Python",
            hint="add ipykernel to the packages of its file and deploy it",
        )


def python_of(record: BuildRecord) -> str:
    """The Python of a kernel: by path if loading the module does not put the stack's Python on PATH."""
    return str(record.payload.python) if runs_beside(record) else "python"


def specification(record: BuildRecord, start: Sequence[str], display_name: str = "") -> str:
    """The text of ``kernel.json``.

    Args:
        start: the words before the Python of the kernel.
    """
    words = [*start, python_of(record), "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", _CONNECTION]
    return _text(record, words, "signal", display_name or record.module.replace("/", " "))


def remote_specification(
    record: BuildRecord, start: Sequence[str], options: Sequence[str], display_name: str = ""
) -> str:
    """The text of ``kernel.json`` for a kernel on a compute node.

    Args:
        start: the words before the connection file.
        options: those of ``stackyard launch``.
    """
    words = [*start, _CONNECTION, "--", *options]
    named = display_name or f"{record.module.replace('/', ' ')} on a node ({' '.join(options)})"
    return _text(record, words, "message", named)


def _text(record: BuildRecord, words: Sequence[str], interrupt: str, display_name: str) -> str:
    value = {
        "argv": list(words),
        "display_name": display_name,
        "language": "python",
        "interrupt_mode": interrupt,
        "metadata": {"debugger": True, "stackyard": {"module": record.module, "path": record.path}},
    }
    return json.dumps(value, indent=1) + "\n"


def install(directory: Path, name: str, text: str, *, replace: bool = False, for_all: bool = False) -> Path:
    """Write a kernelspec; returns its directory.

    Args:
        for_all: make it readable for all users, independent of the umask.

    Raises:
        InputError: another kernel has that name, or one of another revision and `replace` is not set.
        StackyardError: the directory cannot be written.
    """
    place = directory / name
    there = _read(place)
    if there is None and disk.is_there(place):
        raise InputError(
            f"{place} is there already, and not made by stackyard", hint="choose another name: --name NAME"
        )
    if there is not None and not replace and (place / _FILE).read_text(encoding="utf-8") != text:
        raise InputError(f"the kernel {name} is there already, for {there.revision}", hint="--replace, or --name NAME")
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / _FILE, text, mode=0o644 if for_all else None)
        if for_all:
            place.chmod(0o755)
    except OSError as error:
        raise StackyardError(
            f"cannot write {place / _FILE}: {cause(error)}", hint="--prefix DIR names another place"
        ) from error
    return place


def installed(directory: Path) -> Iterator[Kernel]:
    """Our kernels in a directory, by name; others are left out."""
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:
        return
    for name in names:
        kernel = _read(directory / name)
        if kernel is not None:
            yield kernel


def remove(kernel: Kernel) -> None:
    """Remove a kernelspec, including added logos. Raises StackyardError: permission denied."""
    try:
        disk.remove_tree(kernel.folder)
    except OSError as error:
        raise StackyardError(f"cannot remove {kernel.folder}: {cause(error)}") from error


def is_gone(kernel: Kernel) -> bool:
    """Whether the files of its revision were removed; if that cannot be determined, they count as present."""
    try:
        disk.look_into(Path(kernel.path))
    except disk.ABSENT:
        return True
    except (OSError, StackyardError):
        return False
    return False


def _read(place: Path) -> Kernel | None:
    """The kernel in a directory; None if there is none, or it is not one of ours."""
    text = disk.content(place / _FILE)
    if text is None:
        return None
    try:
        value: dict[str, Any] = formats.content(text)
        ours = value["metadata"]["stackyard"]
        return Kernel(place.name, place, str(value["display_name"]), str(ours["module"]), str(ours["path"]))
    except (ValueError, KeyError, TypeError):
        return None
