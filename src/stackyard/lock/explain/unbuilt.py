"""A failure of uv with its requirement's line; for a source package that does not build, also the remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from stackyard.core import secrets
from stackyard.core.errors import StackyardError, Where
from stackyard.core.names import canonical
from stackyard.host.tools import uv
from stackyard.inputs.models import BuildSpec, PipRequirement
from stackyard.lock.explain.sourcefailure import explained
from stackyard.lock.pip.projectname import project_name
from stackyard.lock.pip.uvcompile import BuildFailed


def placed(
    error: StackyardError, requirements: Sequence[PipRequirement], build: BuildSpec, where: Where | None
) -> StackyardError:
    """uv's failure with the line of the requirement that it names; `where` is the line of the stack."""
    if isinstance(error, BuildFailed) and error.subject:
        return _unbuilt(error, requirements, build, where)
    text = f"{error.message}\n{error.detail or ''}"
    named = [r for r in requirements if (r.url or r.path) and any(w in text for w in _spellings(r))]
    named += [r for r in requirements if r.name and f"`{canonical(r.name)}" in text]
    hint = error.hint or "test the requirement alone: pip wheel --no-deps REQUIREMENT"
    if named and named[0].kind in ("vcs", "url") and not uv.refused(text):
        hint = "check the URL, the network and your access; or save the source next to the file and use that"
    return StackyardError(error.message, where=named[0].place if named else where, hint=hint, detail=error.detail)


def _unbuilt(
    error: BuildFailed, requirements: Sequence[PipRequirement], build: BuildSpec, where: Where | None
) -> StackyardError:
    detail = error.detail or ""
    name, _, version = error.subject.partition("==")
    name, _, url = name.partition(" @ ")
    direct = [r for r in requirements if _is_about(r, name, url or name)]
    above = [r for r in requirements if r.name and f"`{canonical(r.name)}`" in _chain(detail)]
    requirement = next(iter((*direct, *above)), None)
    place = requirement.place if requirement and requirement.place.file else where
    label = f"{name} {version}".strip() if version or not direct else name if url else direct[0].text
    needed = f", which {above[0].name} requires" if above and not direct else ""
    why = explained(detail, _own_name(name, direct), build, place.file if place else "")
    cause = why.cause if why else _last_words(detail)
    remedy = why.remedy if why and why.remedy else f"build it alone: pip wheel --no-deps '{error.subject}'"
    return StackyardError(f"cannot build {label}{needed}: {cause}", where=place, hint=remedy, detail=detail)


def _own_name(name: str, direct: Sequence[PipRequirement]) -> str:
    """The name of a package; for a local project from its files, else its directory's name."""
    if "://" not in name:
        return name
    path = next((r.path for r in direct if r.path), "")
    own = next((r.name for r in direct if r.name), "") or (project_name(Path(path)) if path else "")
    return own or unquote(name).rstrip("/").rpartition("/")[2]


def _is_about(requirement: PipRequirement, name: str, url: str) -> bool:
    if requirement.name and canonical(requirement.name) == canonical(name):
        return True
    path = unquote(url.removeprefix("file://"))
    return requirement.path == path or any(text and text in url for text in _spellings(requirement))


def _chain(detail: str) -> str:
    """The part of uv's message about which packages require the failed one."""
    match = re.search(r"was included because ([^\n]+)", detail)
    return match[1] if match else ""


def _last_words(detail: str) -> str:
    """The exception that ended a build, or its last line before uv's own hints: the root cause."""
    own = [line.strip() for line in re.split(r"\nhint: ", detail, maxsplit=1)[0].splitlines() if line.strip()]
    raised = [line for line in own if re.match(r"[\w.]*(?:Error|Exception|Exit)\b", line)]
    return next(iter((*reversed(raised), *reversed(own))), "its build backend failed").removeprefix("cause: ")


def _spellings(requirement: PipRequirement) -> tuple[str, ...]:
    plain = secrets.address(requirement.url).removeprefix("git+").partition("#")[0]
    return tuple(text for text in (plain, plain.rpartition("@")[0] if "@" in plain else "", requirement.path) if text)
