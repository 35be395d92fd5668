"""One run of ``uv pip compile``: its input files and flags, and the parsed output."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from stackyard.core import secrets, toml
from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.host.files.scratch import scratch
from stackyard.host.net import gateway
from stackyard.host.run.command import Result
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.stacks.newest import end_of
from stackyard.lock.lockfile.text import toml_value
from stackyard.lock.renewal import Preference

TIMEOUT_S = 1800


@dataclass(frozen=True)
class Question:
    """The input of one resolution.

    Attributes:
        lines: requirements, one per line, as uv reads them.
        tied: requirements that must come from one index: (requirement, index URL).
        prerelease: distributions of which pre-releases are allowed.
        cache: uv's cache directory.
        exclude_newer: a date ``YYYY-MM-DD``, included, or empty.
        preferred: the locked packages, kept if the requirements allow it.
        built_with: additional build requirements, by distribution.
    """

    lines: tuple[str, ...]
    constraints: tuple[str, ...]
    settings: PipSettings
    python: str
    platform: str
    cache: Path
    tied: tuple[tuple[str, str], ...] = ()
    prerelease: tuple[str, ...] = ()
    exclude_newer: str = ""
    preferred: tuple[Preference, ...] = ()
    built_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The result of one resolution: the packages of uv's pylock, their requirements, and the index of each.

    `prerelease` names the distributions for which pre-releases were allowed.
    """

    packages: tuple[Mapping[str, Any], ...]
    requires: Mapping[tuple[str, str], tuple[str, ...]]
    versions: Mapping[str, str]
    indexes: Mapping[str, str] = field(default_factory=dict)
    prerelease: tuple[str, ...] = ()


class NoSolution(Exception):
    """uv found no solution; the text is its reason, cleaned."""


class BuildFailed(StackyardError):
    """The metadata of a source package could not be built; `subject` is its name and version, or its URL.

    The build fails, or its build requirements have no solution.
    """

    def __init__(self, message: str, subject: str, detail: str) -> None:
        super().__init__(message, detail=detail)
        self.subject = subject


def compile_requirements(question: Question, watch: Callable[[], object] = lambda: None) -> Answer:
    """Run the resolution.

    Args:
        watch: is called while uv runs; an exception from it ends the run.

    Raises:
        NoSolution: no solution exists.
        StackyardError: uv failed in another way (a build of metadata, a network error), with its output.
    """
    with scratch("uv") as directory:
        sources = _write_sources(question, directory)
        output = directory / "pylock.stackyard.toml"
        if question.preferred:
            output.write_text(_former(question.preferred), encoding="utf-8")
        flags = _flags(question)
        if question.built_with:
            flags += ["--config-file", _settings(question.built_with, directory)]
        words = ["pip", "compile", *sources, *flags, "--format", "pylock.toml", "-o", output, "--no-header"]
        log = {"RUST_LOG": "uv_resolver::resolver=debug,uv_distribution=debug"}
        result = uv.run(words, question.settings, extra=log, cwd=directory, timeout_s=TIMEOUT_S, watch=watch)
        if result.returncode != 0:
            raise _failure(result)
        text = secrets.written(output.read_text(encoding="utf-8"))
        packages = tuple(toml.loads(text).get("packages", ()))
        requires, versions = _edges(result.stderr)
        several = len(question.settings.indexes) > 1 or question.tied
        indexes = _annotated(question, packages, sources, flags, directory) if several else {}
    return Answer(packages, requires, versions, indexes, question.prerelease)


def _write_sources(question: Question, directory: Path) -> list[Path]:
    for name, lines in (("requirements.in", question.lines), ("constraints.txt", question.constraints)):
        text = "".join(f"{gateway.in_text(line)}\n" for line in lines)
        (directory / name).write_text(text, encoding="utf-8")
    sources = [directory / "requirements.in"]
    if question.tied:
        tied = [(gateway.in_text(line), uv.place_for_uv(url, question.settings)) for line, url in question.tied]
        (directory / "pyproject.toml").write_text(_project(tied), encoding="utf-8")
        sources.append(directory / "pyproject.toml")
    return sources


def _former(preferred: Sequence[Preference]) -> str:
    """The preferred packages in the format of a former output: uv keeps the versions it finds there."""
    lines = ['lock-version = "1.0"', 'created-by = "stackyard"']
    for preference in preferred:
        lines += ["[[packages]]", f"name = {toml_value(preference.name)}"]
        lines += [f"version = {toml_value(preference.version)}"] if preference.version else []
        if preference.git:
            source = {"type": "git", "url": gateway.alias(preference.git), "commit-id": preference.commit}
            source |= {"requested-revision": preference.reference} if preference.reference else {}
            lines.append(f"vcs = {toml_value(source)}")
    return "\n".join(lines) + "\n"


def _project(tied: Sequence[tuple[str, str]]) -> str:
    """A project with the tied requirements: the only way to give uv an index for a single package."""
    names = {url: f"tied-{n}" for n, url in enumerate(dict.fromkeys(url for _, url in tied))}
    lines = ["[project]", 'name = "stackyard-request"', 'version = "0"']
    lines += [f"dependencies = {toml_value([line for line, _ in tied])}", "[tool.uv.sources]"]
    lines += [f"{toml_value(_requirement_name(line))} = {toml_value({'index': names[url]})}" for line, url in tied]
    for url, name in names.items():
        lines += ["[[tool.uv.index]]", f"name = {toml_value(name)}", f"url = {toml_value(url)}", "explicit = true"]
    return "\n".join(lines) + "\n"


def _requirement_name(line: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", line)
    return canonical(match.group(0)) if match else line


def _flags(question: Question) -> list[str | Path]:
    settings = question.settings
    flags: list[str | Path] = [
        "--python", sys.executable, "--python-version", question.python, "--python-platform", question.platform,
        "--constraints", "constraints.txt", "--cache-dir", question.cache, "--no-progress", "--color", "never",
        "--emit-index-annotation", "--no-strip-extras",
    ]  # fmt: skip
    flags += [*_sources(question), *_prerelease_flags(question)]
    for option, names in (("--no-binary", settings.no_binary), ("--only-binary", settings.only_binary)):
        for name in names:
            flags += [option, name]
    return flags


def _sources(question: Question) -> list[str]:
    """The flags for the sources of packages, including those of builds."""
    date = question.exclude_newer
    newest = ["--exclude-newer", end_of(date).isoformat().replace("+00:00", "Z")] if date else []
    return [*uv.index_options(question.settings), *newest]


def _prerelease_flags(question: Question) -> list[str | Path]:
    """The flags for pip's --pre, --all-releases and --only-final; the last excludes pre-releases by name."""
    finals = question.settings.only_final
    general = "disallow" if ":all:" in finals else "allow" if question.settings.pre else "if-necessary"
    named = [f"{name}=allow" for name in question.prerelease if name not in finals]
    named += [f"{name}=disallow" for name in finals if name != ":all:"]
    return ["--prerelease", general, *(word for text in named for word in ("--prerelease-package", text))]


def _annotated(
    question: Question,
    packages: Iterable[Mapping[str, Any]],
    sources: Sequence[Path],
    flags: Sequence[str | Path],
    directory: Path,
) -> dict[str, str]:
    """The index of each package, from a second resolution out of the cache in the format that names indexes."""
    former = directory / "annotated.txt"
    former.write_text("".join(f"{p['name']}=={p['version']}\n" for p in packages if "version" in p), encoding="utf-8")
    words = ["pip", "compile", *sources, *flags, "--no-header", "--offline", "-o", former]
    result = uv.run(words, question.settings, cwd=directory, timeout_s=TIMEOUT_S)
    by_package: dict[str, str] = {}
    name = ""
    for line in result.stdout.splitlines() if result.returncode == 0 else ():
        if not line.startswith((" ", "#")):
            name = _requirement_name(line)
        elif line.strip().startswith("# from "):
            by_package[name] = line.strip().removeprefix("# from ")
    return by_package


_EDGE = re.compile(r"Adding transitive dependency for ([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^:\s]+): (.+)$")


def _edges(log: str) -> tuple[dict[tuple[str, str], tuple[str, ...]], dict[str, str]]:
    """The dependency edges from the resolver's log: the requirements that it followed, so those with a true marker."""
    edges: dict[tuple[str, str], dict[str, None]] = {}
    versions: dict[str, str] = {}
    for line in log.splitlines():
        match = _EDGE.search(line)
        if match:
            name, version, text = canonical(match.group(1)), match.group(2), match.group(3).strip()
            versions[name] = version
            requirement = _plain(text)
            if _requirement_name(requirement) != name:
                edges.setdefault((name, version), {})[requirement] = None
    return {key: _said_once(values) for key, values in edges.items()}, versions


def _said_once(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in order, without bare names that another one specifies (constraints are logged too)."""
    lines = sorted(requirements)
    fuller = {_requirement_name(line) for line in lines if line != _requirement_name(line)}
    return tuple(line for line in lines if line not in fuller)


_BELOW = re.compile(r"<(\d+(?:\.\d+)*)\.dev0(?![\d.])")


def _plain(text: str) -> str:
    """A requirement of the log (``a>=1, <2{marker}``, ``a*``) in the usual syntax (``a>=1,<2 ; marker``).

    uv logs ``~=0.1`` as ``>=0.1,<1.dev0``: no pre-release is requested, so the bound is written as ``<1``.
    """
    body, _, marker = text.strip().removesuffix("*").partition("{")
    body = re.sub(r"\s*,\s*", ",", body.strip().removesuffix("*"))
    body = _BELOW.sub(r"<\1", body)
    return f"{body} ; {marker.strip().removesuffix('}')}" if marker else body


def local_version(name: str, project: Path, question: Question) -> str:
    """The version of a local project that is computed by its build; empty if uv does not report it.

    Args:
        name: the project's name; its metadata was built before in the same way.

    Raises:
        StackyardError: its metadata cannot be built, with the output.
    """
    with scratch("uv") as directory:
        words: list[str | Path] = [
            "pip", "install", "--dry-run", "--no-deps", "--python", sys.executable, "--target", directory / "t",
            "--cache-dir", question.cache, "--no-progress", "--color", "never", *_sources(question),
            f"{name} @ {project.as_uri()}",
        ]  # fmt: skip
        words += ["--config-file", _settings(question.built_with, directory)] if question.built_with else []
        result = uv.run(words, question.settings, cwd=directory, timeout_s=TIMEOUT_S, check=True)
    match = re.search(r"^\s*\+ [A-Za-z0-9._-]+==(\S+)", result.stderr + result.stdout, re.MULTILINE)
    return match.group(1) if match else ""


def _settings(built_with: Mapping[str, tuple[str, ...]], directory: Path) -> Path:
    """uv's settings file with additional build requirements for some packages."""
    path = directory / "uv.toml"
    lines = [f"{toml_value(name)} = {toml_value(texts)}" for name, texts in built_with.items()]
    path.write_text("\n".join(["[extra-build-dependencies]", *lines, ""]), encoding="utf-8")
    return path


def _failure(result: Result) -> Exception:
    """The exception for a failed resolution: no solution, a source package that does not build, or another error."""
    text = uv.messages(result)
    error = uv.failure(result, "cannot resolve the pip packages")
    if "Failed to build `" in text or "The build backend returned an error" in text:
        return BuildFailed(error.message, _unbuilt(text, result.stderr), error.detail or "")
    return NoSolution(clean(text)) if "No solution found" in text else error


def _unbuilt(text: str, log: str) -> str:
    """The package whose build failed: uv names it, except a local project, whose path is only in the log."""
    match = re.search(r"Failed to (?:build|download and build|prepare|generate metadata for) `([^`]+)`", text)
    if match:
        return match[1]
    steps = re.findall(r"^DEBUG (Preparing|Prepared) metadata for: (.+)$", log, re.MULTILINE)
    done = {subject for step, subject in steps if step == "Prepared"}
    return next((subject for _, subject in reversed(steps) if subject not in done), "")


def clean(text: str) -> str:
    """uv's message without the words ``error:`` and ``cause:``; its sentences are unchanged."""
    rest = [line for line in text.splitlines() if not line.startswith("warning: ")]
    rest = [re.sub(r"^error: No solution found when resolving dependencies:?\s*", "", line) for line in rest]
    lines = [re.sub(r"^\s*(cause:|╰─▶|hint:)?\s*", lambda m: "hint: " if "hint" in m.group(0) else "", line)
             for line in rest]  # fmt: skip
    return "\n".join(line for line in lines if line).replace(", we can conclude that", ",")
