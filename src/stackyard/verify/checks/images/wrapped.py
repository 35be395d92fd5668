"""The checks of a wrapped image: its bytes, its commands, the start of its container, and what its Pythons are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted, some
from stackyard.host.run.command import run
from stackyard.images.squashfs.enter import run_within
from stackyard.images.squashfs.file import superblock
from stackyard.verify.checks.base import Check
from stackyard.verify.report import CheckResult, Kind
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.images.inventory import Inventory

ENTER_S = 300.0
_NOT_EXECUTABLE = 126
"""The launcher's exit status, from within the container, for ``/``: a command that every image has and none can run."""
_PLACES = "import os, sys; print(sys.prefix, os.path.realpath(sys.executable), sep='\\n')"
_AGAIN = "make the next revision, which starts it by its own path: stackyard deploy --rebuild FILE"
_RESTORE = "restore it from a copy, or move the revision away and deploy it again"


def check_wrapped(
    record: BuildRecord, kinds: Collection[Kind], environ: Mapping[str, str], *, deep: bool
) -> list[CheckResult]:
    """The checks of these kinds. `deep`: read every byte of the image."""
    results = []
    if "content" in kinds:
        results.append(_timed("content", "image", lambda: _image(record, deep=deep)))
    if "command" in kinds:
        results.append(_timed("command", "commands of the image", lambda: _commands(record)))
        results.append(_timed("command", "container", lambda: _container(record, environ)))
        if pythons := _pythons(record) if results[-1].status == "passed" else {}:
            results.append(_timed("command", "Pythons of the image", lambda: _places(record, pythons, environ)))
    return results


def _timed(kind: Kind, name: str, check: Callable[[], str]) -> CheckResult:
    started = time.perf_counter()
    try:
        text = check()
    except StackyardError as error:
        detail = "\n".join(part for part in (error.detail, error.message) if part)
        return CheckResult(
            kind,
            name,
            "failed",
            detail,
            error.hint or (_RESTORE if name != "container" else ""),
            time.perf_counter() - started,
        )
    return CheckResult(kind, name, "passed", text, seconds=time.perf_counter() - started)


def _image(record: BuildRecord, *, deep: bool) -> str:
    image = RevisionPaths.of(record.path).image
    superblock(image)
    if bad := record.payload.changed(image, deep=False) or (deep and record.payload.changed(image)):
        raise StackyardError(bad)
    return f"{record.payload.facts()['bytes'] / 1e6:,.0f} MB" + (", every byte" if deep else "")


def _listed(record: BuildRecord) -> Inventory:
    from stackyard.images import inventory  # the checks of other revisions do without it

    return inventory.read(RevisionPaths.of(record.path).image)


def _commands(record: BuildRecord) -> str:
    listed = _listed(record)
    programs = record.origin.commands
    lost = [path for path in programs.values() if not listed.is_program(path)]
    if lost:
        raise StackyardError(f"not in the image: {some(lost, 3)}")
    return counted(len(programs), "command")


def _container(record: BuildRecord, environ: Mapping[str, str]) -> str:
    done = run_within(record.payload, ["/"], timeout_s=ENTER_S, environ={**os.environ, **environ})
    if done.returncode != _NOT_EXECUTABLE:
        raise StackyardError(f"making its container exited with status {done.returncode}", detail=done.output)
    return f"{record.origin.facts['mode']} mode, {Path(record.path).name}"


def _pythons(record: BuildRecord) -> dict[str, str]:
    """The wrapped interpreters of Python, with their paths in the image: one name of each."""
    from stackyard.images.wrap.starts import is_python

    try:
        listed = _listed(record)
    except StackyardError:  # reported by the other checks
        return {}
    commands = {name: path for name, path in record.origin.commands.items() if is_python(path, listed)}
    one = {(os.path.dirname(path), listed.real(path)): name for name, path in reversed(commands.items())}  # noqa: PTH120
    return {name: commands[name] for name in sorted(one.values())}


def _places(record: BuildRecord, pythons: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Compare sys.prefix and sys.executable of wrapped Pythons with those that they have by their path in the image."""
    env = {**os.environ, **environ}
    prefixes = {}
    for name, path in pythons.items():
        done = run_within(record.payload, [path, "-E", "-c", _PLACES], timeout_s=ENTER_S, environ=env)
        if done.returncode:  # it does not start in its own system either
            continue
        words = [str(record.payload.program(name)), "-E", "-c", _PLACES]
        own = run(words, env=env, check=False, timeout_s=ENTER_S, leaves_others=True)
        if own.stdout != done.stdout:
            places = [" ".join(each.stdout.split()) or f"status {each.returncode}" for each in (own, done)]
            what = f"{name} has sys.prefix and sys.executable {places[0]}, and {places[1]} in its image, as {path}"
            raise StackyardError(what, detail=own.stderr, hint=_AGAIN)
        prefixes[name] = done.stdout.splitlines()[0]
    return some([f"{name}: sys.prefix {prefix}" for name, prefix in prefixes.items()], 3) or "none starts in its image"


WRAPPED = Check(
    ("content", "command"),
    "programs",
    lambda context: check_wrapped(context.record, context.kinds, context.environ, deep=context.deep),
    lambda record: record.payload.is_system,
)
