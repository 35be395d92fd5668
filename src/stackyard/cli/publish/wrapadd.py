"""``stackyard wrap REV --add``: the next revision of a wrapped image, with further commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.cli.context import Context
from stackyard.core.errors import InputError
from stackyard.yard.api import BuildRecord, RevisionPaths, record_of

if TYPE_CHECKING:
    from stackyard.inputs.api import Bind, Wrap

WRITTEN = "# Written by `stackyard wrap`."
"""How the file of a revision begins that `stackyard wrap` has written."""


def joined(
    context: Context, rev: str, options: Mapping[str, Any], added: Sequence[str]
) -> tuple[str, str, dict[str, Any]]:
    """The image, the name and the options that wrap what a revision has and some commands more.

    Raises:
        InputError: it is not a wrapped image of this yard, or its file has more than `stackyard wrap` writes.
    """
    yard = context.yard()
    record = record_of(yard, rev)
    if not record.container:
        raise InputError(f"{record.module} is not a wrapped image", hint="--add takes a module that `wrap` has made")
    if RevisionPaths.of(record.path).yard != yard.root:
        hint = "wrap its image in your own yard: stackyard wrap IMAGE --commands NAME,..."
        raise InputError(f"{record.module} is in another yard: {RevisionPaths.of(record.path).yard}", hint=hint)
    wrapped = _recorded(context, record)
    words = [word for text in added for word in text.split(",") if word]
    kept = {
        "commands": tuple(dict.fromkeys([*wrapped.commands, *words])), "version": record.version, "mode": wrapped.mode,
        "binds": [_text(bind) for bind in wrapped.bind],
        "variables": [f"{name}={value}" for name, value in wrapped.environment.items()],
        "before": _present(wrapped.before, RevisionPaths.of(record.path)),
        "nv": wrapped.nv, "host_bindings": wrapped.host_bindings, "digest": str(record.container["digest"]),
    }  # fmt: skip
    return wrapped.image, record.stack, {**options, **kept}


def _recorded(context: Context, record: BuildRecord) -> Wrap:
    """What was asked for when a revision was made."""
    from stackyard.inputs.api import load_stack

    files = sorted(RevisionPaths.of(record.path).recipe.glob("*.y*ml"))
    ours = [file for file in files if _is_ours(file)]
    if len(ours) != 1:
        hint = "add the commands to `wrap: commands:` in it, and deploy it: the image is shared"
        raise InputError(f"{record.module} was made from a file that `stackyard wrap` did not write", hint=hint)
    (variant,) = load_stack(ours[0], context.site()).variants
    wrapped = variant.wrap
    if wrapped is None:
        raise InputError(f"{ours[0]} has no `wrap:`", hint="wrap the image again, with all commands")
    return wrapped


def _is_ours(file: Path) -> bool:
    return file.read_text(encoding="utf-8", errors="replace").startswith(WRITTEN)


def _present(file: str, paths: RevisionPaths) -> str:
    """The file at its own path, or the copy in the revision where that has changed or is gone."""
    copy, own = paths.recipe / Path(file).name, Path(file)
    if not file or not copy.is_file() or (own.is_file() and own.read_bytes() == copy.read_bytes()):
        return file
    return str(copy)


def _text(bind: Bind) -> str:
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")
