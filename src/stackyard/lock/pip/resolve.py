"""The pip half of a lock: resolved by uv for the target, on top of the conda packages, with pip's semantics."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from stackyard.core import secrets
from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.core.late import dataclass
from stackyard.core.names import canonical, pip_name
from stackyard.host.files.hashing import local_path
from stackyard.host.files.scratch import scratch
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import BuildSpec, PipRequirement
from stackyard.inputs.pip.requirement import lacks_project
from stackyard.inputs.pip.settings import compiling, unset
from stackyard.inputs.reading.yamlfile import raise_problems
from stackyard.inputs.stacks.buildinputs import build_inputs, package_build
from stackyard.lock.accelerator import HOME, Accelerator, requested
from stackyard.lock.explain.reachability import Target as ProbeTarget
from stackyard.lock.explain.reachability import Watch, check
from stackyard.lock.explain.relaxation import PINNED, blamed_pins, relax_pip
from stackyard.lock.explain.unbuilt import placed
from stackyard.lock.lockfile.model import PipPackage
from stackyard.lock.pip import pins
from stackyard.lock.pip.constraints import constraint_lines
from stackyard.lock.pip.hashes import require_hashes, wanted_hashes
from stackyard.lock.pip.projectname import project_name
from stackyard.lock.pip.provided import ProvidedDistribution, write_constraints
from stackyard.lock.pip.pylock import Target, package
from stackyard.lock.pip.tags import uv_platform, wheel_tags
from stackyard.lock.pip.torchindex import Resolve, fitting, for_accelerator
from stackyard.lock.pip.uvcompile import Answer, NoSolution, Question, compile_requirements, local_version
from stackyard.lock.renewal import Preference

_PRERELEASE = re.compile(r"\d(a|b|rc|\.?dev)\d*", re.IGNORECASE)


@dataclass(frozen=True)
class PipRequest:
    """A question to the pip resolver.

    Attributes:
        subject: the variant and platform, for messages.
        python: the full version of the interpreter that the packages are for.
        glibc: the oldest glibc of the nodes.
        given: the distributions from conda or the base.
        cache: uv's cache directory.
        exclude_newer: a date ``YYYY-MM-DD``, included, or empty.
        places: the line of each index and find-links entry of the file, as written there.
        preferred: the locked packages that are not to be updated.
        accelerator: the accelerator for torch; None: any build is acceptable.
        torch_home: the URL of PyTorch's indexes.
        pins: the site's pins, as written in its file.
        site_file: the site's file, for messages.
    """

    subject: str
    platform: str
    python: str
    glibc: str
    requirements: tuple[PipRequirement, ...]
    settings: PipSettings
    cache: Path
    constraints: tuple[PipRequirement, ...] = ()
    given: tuple[ProvidedDistribution, ...] = ()
    build: BuildSpec = field(default_factory=BuildSpec)
    where: Where | None = None
    exclude_newer: str = ""
    places: Mapping[str, Where] = field(default_factory=dict)
    preferred: tuple[PipPackage, ...] = ()
    accelerator: Accelerator | None = None
    torch_home: str = HOME
    pins: tuple[str, ...] = ()
    site_file: str = ""


class UnreachableError(StackyardError):
    """An index of PyTorch cannot be reached; the hint has an alternative."""


@dataclass(frozen=True)
class PipSolution:
    """The packages in order of name, and notices for the user."""

    packages: tuple[PipPackage, ...] = ()
    notices: tuple[str, ...] = ()


def solve_pip(request: PipRequest) -> PipSolution:
    """Resolve, choose one file per package and make sure that every one of them has a sha256.

    Raises:
        InputError: Python 2, a malformed or a wrong hash, no solution (with uv's reason and what to relax), or a
            package that has no file for the platform.
        StackyardError: an index cannot be reached (named within ten seconds), or uv failed.
    """
    if not request.requirements:
        return PipSolution()
    _refuse_python2(request)
    _refuse_missing(request)
    # the question: requirements with constraints from the site, pins, and wheels that are provided
    hashes = wanted_hashes(request.requirements)
    names = [name for name, b in request.build.packages.items() if b.no_binary]
    request = replace(request, settings=compiling(request.settings, tuple(names)))
    watch = Watch(_places(request))
    with scratch("given") as directory:
        own = constraint_lines(request.constraints, request.settings)
        constraints = (*own, *_pinned(request).values(), *write_constraints(request.given, directory))
        question = _question(request, constraints)
        answer, notices = _resolve(question, request, watch)
        entries = [e for e in answer.packages if not _is_given(e, str(directory))]
    # uv chooses versions; the file of each package is chosen here, for the target's platform
    target = Target(wheel_tags(request.platform, request.glibc, request.python), request.settings, hashes,
                    request.subject, frozenset(p.sha256 for p in request.preferred if p.sha256))  # fmt: skip
    packages = [_finish(package(entry, target), answer, request, question) for entry in entries]
    if hashes or request.settings.require_hashes:
        require_hashes(packages, hashes, request.where)
    # PEP 440 cannot express every pin of conda's syntax: what was chosen is checked against them
    lines = pins.require_held(request.pins, packages, request.site_file)
    notices = (*notices, *lines, *_notices(request, answer, packages))
    return PipSolution(tuple(sorted(packages, key=lambda p: p.name)), notices)


def _pinned(request: PipRequest) -> Mapping[str, str]:
    """The site's pins, as constraints."""
    return pins.constraints(request.pins, {distribution.name for distribution in request.given})


def _refuse_python2(request: PipRequest) -> None:
    if request.python.startswith("2."):
        raise InputError(
            f"{request.subject} has Python {request.python} and pip packages; uv supports Python 3 only",
            where=request.requirements[0].place,
            hint="remove the pip packages from the Python 2 variants (with a selector), or use conda packages",
        )


def _refuse_missing(request: PipRequest) -> None:
    """Raise InputError for local requirements that do not exist or contain no project, and for unset variables."""
    problems: list[InputError] = []
    for requirement in request.requirements:
        path = Path(requirement.path)
        problems += unset(requirement.url, requirement.text, os.environ, requirement.place)
        if requirement.kind != "path":
            continue
        if not path.exists():
            hint = "paths are relative to the file's directory; put the project or archive there, or remove the line"
            if " @ file:" in requirement.text:
                hint = (
                    "`pip freeze` names the place from which a package was installed on its machine: "
                    f"write {requirement.name}==VERSION, as `pip list --format=freeze` prints it"
                )
            problems.append(InputError(f"no such file or directory: {path}", where=requirement.place, hint=hint))
        elif lacks_project(path):
            hint = "use the directory of a Python project; paths are relative to the file's directory, wherever pip ran"
            message = f"{path} contains neither pyproject.toml nor setup.py"
            problems.append(InputError(message, where=requirement.place, hint=hint))
    raise_problems(problems)


# --------------------------------------------------------------------------- before uv


def _places(request: PipRequest) -> list[ProbeTarget]:
    """All indexes and files that uv has to read, so that an unreachable one is reported at once."""
    settings = request.settings
    first = next((canonical(r.name) for r in request.requirements if r.name), "pip")
    tied = [secrets.address(r.index, base=True) for r in request.requirements if r.index]
    indexes = [*(() if settings.no_index else settings.indexes), *tied]
    targets = [_place("the index", url, f"{url.rstrip('/')}/{first}/", request) for url in dict.fromkeys(indexes)]
    return targets + [_place("the find-links page", p, p, request) for p in settings.find_links if "://" in p]


def _place(label: str, url: str, tried: str, request: PipRequest) -> ProbeTarget:
    settings = request.settings
    tries = (url,) if url.startswith("file:") else (tried,)
    where = next((w for text, w in request.places.items() if _address(text) == url.rstrip("/")), request.where)
    return ProbeTarget(label, url, tries, missing_ok=True, trust=uv.trust(url, settings), where=where)


def _address(text: str) -> str:
    return secrets.address(text.rstrip("/"), base=True)


def _question(request: PipRequest, constraints: Sequence[str]) -> Question:
    return Question(
        lines=tuple(_line(r, request.build) for r in request.requirements if not r.index),
        tied=tuple((r.line, secrets.address(r.index, base=True)) for r in request.requirements if r.index),
        constraints=tuple(constraints),
        settings=request.settings,
        python=request.python,
        platform=uv_platform(request.platform, request.glibc),
        cache=request.cache,
        exclude_newer=request.exclude_newer,
        preferred=tuple(Preference.of(p, request.requirements) for p in request.preferred),
        built_with={name: own.requires for name, own in request.build.packages.items() if own.requires},
    )


def _line(requirement: PipRequirement, build: BuildSpec) -> str:
    """A requirement for uv; a local project gets its name if there are build settings for that name."""
    if requirement.kind == "path" and not requirement.name and build.packages:
        path = Path(requirement.path)
        name = project_name(path) if path.is_dir() else ""
        if name and package_build(build, name):
            extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
            return f"{name}{extras} @ {path.as_uri()}" + (f" ; {requirement.marker}" if requirement.marker else "")
    return requirement.line


# --------------------------------------------------------------------------- uv


def _resolve(question: Question, request: PipRequest, watch: Watch) -> tuple[Answer, tuple[str, ...]]:
    """uv's answer, with the build of torch for the accelerator; and notices about it."""
    try:
        return _for_accelerator(question, request, partial(compile_requirements, watch=watch))
    except NoSolution as error:
        watch.require()
        raise _unsolvable(str(error), question, request) from error
    except (InputError, UnreachableError):
        raise
    except StackyardError as error:
        watch.require()
        raise placed(error, request.requirements, request.build, request.where) from error


def _for_accelerator(question: Question, request: PipRequest, compiled: Resolve) -> tuple[Answer, tuple[str, ...]]:
    """The answer from the configured indexes if its torch fits the accelerator, else from PyTorch's index too."""
    accelerator, answer = request.accelerator, None
    try:
        answer = _with_prereleases(question, request, compiled)
        if accelerator is None or fitting(answer, accelerator):
            return answer, ()
    except NoSolution:
        if accelerator is None or requested(request.requirements) is None:
            raise
    needing = _needing_torch(request, answer)
    names = [distribution.name for distribution in request.given]
    answer, notice = for_accelerator(
        question, accelerator, request.torch_home, names, partial(_probe_torch, request, accelerator, needing),
        lambda query: _with_prereleases(query, request, compiled),
    )  # fmt: skip
    return answer, (notice,)


def _needing_torch(request: PipRequest, answer: Answer | None) -> PipRequirement | None:
    """The first requirement that is torch or leads to it, by the packages of an answer."""
    required: dict[str, set[str]] = {}
    for (name, _), lines in answer.requires.items() if answer else ():
        required.setdefault(canonical(name), set()).update(map(pip_name, lines))
    for requirement in request.requirements:
        reached, left = set[str](), [pip_name(requirement.line)]
        while left:
            name = left.pop()
            if name == "torch":
                return requirement
            left += required.get(name, set()) - reached
            reached |= {name, *required.get(name, ())}
    return None


def _probe_torch(request: PipRequest, accelerator: Accelerator, needing: PipRequirement | None, index: str) -> None:
    """Raise UnreachableError if an index of PyTorch does not answer; it names the requirement that needs torch."""
    try:
        check([_place(f"PyTorch's index for accelerator {accelerator.name}", index, f"{index}/torch/", request)])
    except StackyardError as error:
        named = needing.text.strip() if needing else ""
        needs = "" if not named else f" ({named})" if pip_name(named) == "torch" else f" (torch is required by {named})"
        raise UnreachableError(
            f"{error.message}{needs}",
            where=needing.place if needing and needing.place.file else error.where,
            hint=f"the accelerator is {accelerator.name}: {accelerator.why}. Lock where the network is reachable; or "
            f"name a mirror of {HOME} in `pip: mirrors:` of site.yaml; or take whichever build the other indexes have "
            "with --torch-backend off, or `pip: {torch_backend: off}` in stack.yaml or site.yaml",
        ) from error


def _with_prereleases(question: Question, request: PipRequest, compiled: Resolve) -> Answer:
    """uv's answer, repeated while a dependency's specifier names a pre-release, which pip would install."""
    direct = (r.line for r in (*request.requirements, *request.constraints))
    question = replace(question, prerelease=tuple(sorted({*_prereleases(direct), *request.settings.all_releases})))
    answer = compiled(question)
    for _ in range(5):
        names = _prereleases(line for required in answer.requires.values() for line in required)
        if request.settings.pre or names <= set(question.prerelease):
            break
        question = replace(question, prerelease=tuple(sorted(names | set(question.prerelease))))
        answer = compiled(question)
    return answer


def _prereleases(lines: Iterable[str]) -> set[str]:
    """The packages with a pre-release in some requirement (``>=2.0rc1``): pip then installs the newest pre-release."""
    return {pip_name(line) for line in lines if _PRERELEASE.search(line.split("@")[0]) and pip_name(line)}


def _unsolvable(reason: str, question: Question, request: PipRequest) -> InputError:
    named = [g for g in request.given if _mentions(reason, g.name)]
    if named:
        provided = "; ".join(distribution.provided for distribution in named)
        reason = f"{reason}\n{provided}, and pip packages are installed on top of it"
    blamed = blamed_pins(question, _pinned(request))
    if blamed:
        return InputError(
            f"cannot solve the pip packages of {request.subject} with the site's pin "
            f"{pins.shown(blamed, request.site_file)}",
            where=_conflicting_place(request, reason, ()),
            detail=reason,
            hint=PINNED,
        )
    hint, conflicting = relax_pip(question, named, reason)
    if any(distribution.base for distribution in named) and "--full" not in hint:
        hint = f"{hint}; or build a full revision, in which packages of the base may change: `stackyard extend --full`"
    return InputError(
        f"cannot solve the pip packages of {request.subject}",
        where=_conflicting_place(request, reason, conflicting),
        detail=reason,
        hint=hint,
    )


def _conflicting_place(request: PipRequest, reason: str, conflicting: Sequence[str]) -> Where | None:
    """The line of the first conflicting requirement; else of the first in the solver's message."""
    named = [r for r in request.requirements if r.name and _mentions(reason, r.name)]
    requirements = [r for line in conflicting for r in request.requirements if r.line == line]
    return next((r.place for r in (*requirements, *named) if r.place.file), request.where)


def _mentions(reason: str, name: str) -> bool:
    return bool(re.search(rf"(?<![\w.-]){re.escape(canonical(name))}(?![\w-])", reason.lower()))


# --------------------------------------------------------------------------- after uv


def _is_given(entry: Mapping[str, object], directory: str) -> bool:
    archive = entry.get("archive")
    return isinstance(archive, Mapping) and str(archive.get("path", "")).startswith(directory)


def _finish(pip_package: PipPackage, answer: Answer, request: PipRequest, question: Question) -> PipPackage:
    """The package, completed from the whole answer: index, requirements, extras, build inputs, version."""
    named = [r for r in request.requirements if canonical(r.name) == pip_package.name]
    version = pip_package.version or answer.versions.get(pip_package.name, "")
    directory = local_path(pip_package.url) if pip_package.kind == "path" else None
    if not version and directory:
        version = local_version(pip_package.name, directory, question)
    inputs = (
        {}
        if pip_package.kind == "wheel"
        else build_inputs(request.build, pip_package.name, named[0] if named else None)
    )
    return replace(
        pip_package,
        version=version,
        index=_index(pip_package, answer, request.settings),
        requires=answer.requires.get((pip_package.name, version), ()),
        extras=tuple(sorted({e for r in named for e in r.extras})),
        build_inputs=inputs,
    )


def _index(pip_package: PipPackage, answer: Answer, settings: PipSettings) -> str:
    if pip_package.kind in ("vcs", "path"):
        return ""
    for place in settings.find_links:
        if pip_package.url.startswith(place if "://" in place or "${" in place else Path(place).as_uri()):
            return place
    if pip_package.name in answer.indexes:
        return answer.indexes[pip_package.name]
    return settings.indexes[0] if len(settings.indexes) == 1 and not settings.no_index else ""


def _notices(request: PipRequest, answer: Answer, packages: Sequence[PipPackage]) -> tuple[str, ...]:
    notices = []
    settings = request.settings
    if not settings.no_index and len(settings.indexes) > 1:
        count = len(settings.indexes)
        notices.append(f"{count} pip indexes are searched; the best version of all is installed, as by pip")
    named = [name for name in answer.prerelease if name not in (*settings.all_releases, *settings.only_final)]
    if named:
        names = ", ".join(named)
        notices.append(f"pre-releases of {names} are allowed, because a requirement names one, as by pip")
    if settings.prefer_binary:
        notices.append("--prefer-binary is ignored: uv installs the newest version, compiled if it has no wheel")
    compiled = [p.name for p in packages if p.kind == "sdist"]
    if compiled:
        notices.append(f"built from source: {', '.join(sorted(compiled))}")
    return tuple(notices)
