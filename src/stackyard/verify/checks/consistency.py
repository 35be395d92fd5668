"""Checks the consistency of installed packages: requirements of pip (by uv) and of conda (by conda's own matcher)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.core.names import canonical
from stackyard.lock.satisfied import virtual_satisfies
from stackyard.verify.checks.base import Check, looked_into
from stackyard.verify.checks.distributions import distributions
from stackyard.verify.checks.layered import find
from stackyard.verify.context import Context, excepted
from stackyard.verify.report import CheckResult

if TYPE_CHECKING:
    from rattler import PackageRecord, PrefixRecord

_NAMED = re.compile(r"^(?:The package |)`([^`]+)`")
_REMEDY = "change the versions in the stack file and lock again; or add {name} to `exceptions: distributions:`"

_UNSEARCHED = "build it for the Python that its base has now: `stackyard rebase NAME`; `--on REV` takes another base"


def check_consistency(context: Context) -> list[CheckResult]:
    """One result per distribution with a broken requirement, or one for all; and one on the installed files."""
    return [*_check_pip(context), *_check_conda(context), *_check_files(context)]


def _check_pip(context: Context) -> list[CheckResult]:
    if context.python is None:
        return []
    if context.python.major < 3:
        return [CheckResult("consistency", "pip", "skipped", "uv does not support Python 2", required=False)]
    if context.record.base is not None:
        return _check_layer(context)
    from uv import find_uv_bin

    started = time.perf_counter()
    python = str(context.python.path)
    argv = [find_uv_bin(), "--no-config", "--color", "never", "pip", "check", "--python", python]
    environ = {**context.environ, "UV_NO_PROGRESS": "1", "UV_CACHE_DIR": str(context.work / "uv")}
    try:
        result = context.run(argv, env=environ, cwd=context.work, timeout_s=120, check=False)
    except StackyardError as error:
        return [CheckResult("consistency", "pip", "failed", error.message)]
    seconds = time.perf_counter() - started
    lines = [line for line in result.output.splitlines() if _NAMED.match(line)]
    if result.returncode != 0 and not lines:
        return [CheckResult("consistency", "pip", "failed", f"uv pip check: {result.output}", seconds=seconds)]
    last = (result.output.strip().splitlines() or [""])[-1]
    return _results(context, "pip", ((_name(line), line) for line in lines), last, seconds)


def _check_layer(context: Context) -> list[CheckResult]:
    started = time.perf_counter()
    try:
        finding = find(context)
    except StackyardError as error:
        return [CheckResult("consistency", "pip", "failed", error.message)]
    if finding.unsearched:
        python = context.python.path if context.python else ""
        text = "\n".join(
            f"{python} does not search {directory}: it is not on its sys.path" for directory in finding.unsearched
        )
        return [CheckResult("consistency", "pip", "failed", text, _UNSEARCHED)]
    text = f"all requirements of {counted(finding.count, 'package')} are satisfied, with those of the base"
    return _results(context, "pip", finding.problems, text, time.perf_counter() - started)


def _check_conda(context: Context) -> list[CheckResult]:
    directory = context.prefix / "conda-meta"
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    if not paths:
        return []
    from rattler import PrefixRecord

    started = time.perf_counter()
    try:
        records = [PrefixRecord.from_path(path) for path in paths]
    except Exception as error:  # rattler's exceptions have no common base class
        return [CheckResult("consistency", "conda", "failed", f"cannot read a record in conda-meta: {error}")]
    problems = list(_conda_problems(context, records, _of_base(context)))
    text = f"all requirements of {counted(len(records), 'package')} are satisfied"
    return _results(context, "conda", problems, text, time.perf_counter() - started)


def _check_files(context: Context) -> list[CheckResult]:
    """Whether the installed files of all packages exist. A stack's post script may remove some on purpose, so a missing
    file is a warning; what depends on it fails its own check."""
    started = time.perf_counter()
    listed = {f"{context.prefix}/{name}" for record in context.conda_records() for name in record.get("files", ())}
    for one in distributions(context):
        listed |= {f"{one.directory}/{name}" for name in one.files}
    files = sorted(name for name in listed if not name.endswith(".pyc"))
    if not files:
        return []
    lost = [name for name in files if not os.path.lexists(name)]
    seconds = time.perf_counter() - started
    if not lost:
        return [CheckResult("consistency", "files", "passed", f"all {len(files)} files exist", seconds=seconds)]
    shown = ", ".join(os.path.relpath(name, context.prefix) for name in lost[:3])
    text = f"{len(lost)} of {len(files)} installed files are missing, e.g. {shown}"
    remedy = (
        "if no script of the stack removed them, the revision is damaged: restore them with "
        f"`stackyard verify --repair {context.record.module}`"
    )
    return [CheckResult("consistency", "files", "warned", text, remedy, seconds, required=False)]


def _of_base(context: Context) -> list[PackageRecord]:
    """The conda packages of the base of an extension, for comparison."""
    from rattler import BuildString, PackageRecord

    packages = (p for p in context.record.packages if p.of_base and p.kind == "conda")
    return [PackageRecord(p.name, p.version, BuildString(p.build or "0"), 0, "noarch") for p in packages]


def _conda_problems(
    context: Context, records: Iterable[PrefixRecord], of_base: Iterable[PackageRecord]
) -> Iterable[tuple[str, str]]:
    """Every ``depends`` that no installed package satisfies, and every ``constrains`` that one violates."""
    own = {record.name.normalized: record for record in records}
    by_name: dict[str, PackageRecord] = {**{record.name.normalized: record for record in of_base}, **own}
    virtual = _virtual(context)
    for name, record in sorted(own.items()):
        for text in record.depends:
            spec = _spec(text)
            required = spec.name.normalized if spec.name else ""
            if required.startswith("__"):
                if required in virtual and not virtual_satisfies(f"{required}={virtual[required]}=0", text):
                    yield name, f"{name} {record.version} requires {text}, but this machine has {virtual[required]}"
            elif required not in by_name:
                yield name, f"{name} {record.version} requires {text}, but it is not installed"
            elif not spec.matches(by_name[required]):
                yield name, f"{name} {record.version} requires {text}, but {_shown(by_name[required])} is installed"
        for text in record.constrains:
            spec = _spec(text)
            other = by_name.get(spec.name.normalized if spec.name else "")
            if other is not None and not spec.matches(other):
                yield name, f"{name} {record.version} allows only {text}, but {_shown(other)} is installed"


def _virtual(context: Context) -> Mapping[str, str]:
    """The virtual packages of this machine. A missing one (a GPU) proves nothing about the stack."""
    machine = context.machine
    known = {"__glibc": machine.glibc, "__cuda": machine.cuda}
    return {name: version for name, version in known.items() if version}


def _spec(text: str) -> Any:
    from rattler import MatchSpec

    return MatchSpec(text, strict=False)


def _shown(record: PackageRecord) -> str:
    return f"{record.name.normalized} {record.version} {record.build}"


def _name(line: str) -> str:
    match = _NAMED.match(line)
    return match.group(1) if match else ""


def _results(
    context: Context, part: str, problems: Iterable[tuple[str, str]], satisfied: str, seconds: float
) -> list[CheckResult]:
    """One result for each package with problems, without declared exceptions; else one that passed."""
    declared = [canonical(name) for name in context.exceptions.distributions]
    broken: dict[str, list[str]] = {}
    for name, text in problems:
        if not excepted(canonical(name), declared):
            broken.setdefault(name, []).append(text)
    if not broken:
        return [CheckResult("consistency", part, "passed", satisfied, seconds=seconds)]
    return [
        CheckResult(
            "consistency", f"{part} {name}", "failed", "\n".join(texts), _REMEDY.format(name=name), exceptions=(name,)
        )
        for name, texts in broken.items()
    ]


CONSISTENCY = Check(("consistency",), "programs", check_consistency, looked_into)
