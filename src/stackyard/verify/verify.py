"""Verifies one revision on this machine by loading the modulefile that is about to be published.

The order is: load and unload the module with every module system of the machine; run the stack's Python from the loaded
environment; then, concurrently, imports and commands in worker processes, and the file checks; the stack's own checks
last and one at a time, since they may use the whole machine. Nothing is written into the prefix.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.change import EnvironmentChange
from stackyard.errors import InputError, StackyardError
from stackyard.host.modules import (
    ModuleSystem,
    find_environment_modules,
    find_lmod,
    fresh_environment,
)
from stackyard.host.probe import machine
from stackyard.progress import Progress, Silent
from stackyard.verify.commands import check_other_scripts
from stackyard.verify.consistency import check_consistency
from stackyard.verify.context import Context, Exceptions
from stackyard.verify.imports import check_imports_and_commands
from stackyard.verify.interpreter import find_python
from stackyard.verify.libraries import check_libraries
from stackyard.verify.loading import Loaded, check_loading
from stackyard.verify.own import check_own
from stackyard.verify.report import KINDS, CheckResult, Kind, Report
from stackyard.yard.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.spec.models import Site

_FORMATS = {"lmod": ("lua", "tcl"), "environment-modules": ("tcl",)}
_FINDERS: tuple[Callable[[], ModuleSystem | None], ...] = (find_lmod, find_environment_modules)


def verify(
    record: BuildRecord,
    modules: Path,
    site: Site,
    *,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    only: Collection[str] | None = None,
) -> Report:
    """Run the checks of one revision on this machine.

    Args:
        modules: the ``modules/`` directory of the generation that is about to be published, or of the current one.
        environ: the environment that the module is loaded into; None: that of a fresh login with an empty home
            directory, so that nothing depends on your own files.
        only: kinds of checks (keys of `report.KINDS`) to run; None: all.

    Returns:
        The report; a failed check does not raise.

    Raises:
        InputError: `only` names a kind that does not exist.
    """
    kinds = _kinds(only)
    progress = progress or Silent()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stackyard-verify-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        (work / "home").mkdir()
        before = fresh_environment(HOME=str(work / "home")) if environ is None else dict(environ)
        job = _Job(record, modules, site, kinds, progress, work, before)
        checks = job.run()
    return Report(
        module=record.module,
        input_hash=record.input_hash,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        node=machine().to_json(),
        systems=tuple(loaded.system.title for loaded in job.loaded),
        checks=tuple(sorted(checks, key=lambda check: list(KINDS).index(check.kind))),
        only=tuple(kinds) if only is not None else (),
        load_seconds={loaded.system.title: round(loaded.seconds, 4) for loaded in job.loaded},
        seconds=round(time.monotonic() - started, 3),
    )


def change_of(record: BuildRecord, site: Site) -> EnvironmentChange:
    """The environment change of loading the revision."""
    from stackyard.expose.published import change_of as published_change

    return published_change(record, site)


@dataclass
class _Job:
    """One running verification."""

    record: BuildRecord
    modules: Path
    site: Site
    kinds: tuple[Kind, ...]
    progress: Progress
    work: Path
    before: Mapping[str, str]
    loaded: list[Loaded] = field(default_factory=list)

    def run(self) -> list[CheckResult]:
        """All checks of the requested kinds."""
        checks = self._load()
        context = Context(
            record=self.record,
            site=self.site,
            machine=machine(),
            environ=self._environ(),
            work=self.work,
            exceptions=Exceptions.of(self.record),
        )
        python, results = find_python(context)
        checks += results
        context = replace(context, python=python)
        with ThreadPoolExecutor(max_workers=2) as pool:
            checks += [check for part in pool.map(lambda one: one(context), self._parts()) for check in part]
        if "own" in self.kinds:
            self.progress.phase(self.record.module, "verify", "the stack's own checks")
            checks += check_own(context)
        return [check for check in checks if check.kind in self.kinds]

    def _parts(self) -> Iterable[Callable[[Context], list[CheckResult]]]:
        """Checks that can run concurrently, the longest first."""
        if {"import", "command"} & set(self.kinds):
            self.progress.phase(self.record.module, "verify", "imports and commands")
            yield self._python_parts
        if {"library", "consistency"} & set(self.kinds):
            yield self._file_parts

    def _python_parts(self, context: Context) -> list[CheckResult]:
        results = check_imports_and_commands(context, self.kinds)
        if "command" in self.kinds:
            declared = {result.name for result in results if result.kind == "command"}
            results += check_other_scripts(context, declared)
        return results

    def _file_parts(self, context: Context) -> list[CheckResult]:
        results: list[CheckResult] = []
        if "library" in self.kinds:
            results += check_libraries(context)
        if "consistency" in self.kinds:
            results += check_consistency(context)
        return results

    def _environ(self) -> Mapping[str, str]:
        """The loaded environment; without a module system that of ``stackyard run``."""
        if self.loaded:
            return self.loaded[0].environ
        return change_of(self.record, self.site).apply(self.before)

    def _load(self) -> list[CheckResult]:
        """Load with each working module system that the site writes modulefiles for."""
        self.progress.phase(self.record.module, "verify", "load and unload")
        systems, results = _systems()
        change = change_of(self.record, self.site)
        for system in systems:
            if not set(_FORMATS[system.kind]) & set(self.site.modules.formats):
                text = f"the site writes no modulefiles for {system.title}"
                results.append(CheckResult("load", system.title, "skipped", text, required=False))
                continue
            loaded, made = check_loading(system, self.record.module, self.modules, change, self.before, self.work)
            self.loaded += [loaded] if loaded else []
            results += made
        if not systems:
            text = "no module system found; the other checks ran in the environment of `stackyard run`"
            for kind in ("load", "symmetry"):
                results.append(CheckResult(kind, "module", "skipped", text, required=False))
        return results


def _systems() -> tuple[list[ModuleSystem], list[CheckResult]]:
    """The working module systems; one that is installed but does not work is a warning."""
    systems: list[ModuleSystem] = []
    results: list[CheckResult] = []
    for finder in _FINDERS:
        try:
            found = finder()
        except StackyardError as error:
            detail = "\n".join(part for part in (error.detail, error.message) if part)
            results.append(CheckResult("load", "module", "warned", detail, error.hint or "", required=False))
            continue
        systems += [found] if found else []
    return systems, results


def _kinds(only: Collection[str] | None) -> tuple[Kind, ...]:
    unknown = set(only or ()) - set(KINDS)
    if unknown:
        raise InputError(f"no such kind of check: {', '.join(sorted(unknown))}", hint=f"use one of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if only is None or kind in only)
