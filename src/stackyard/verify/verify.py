"""Verifies one revision on this machine by loading its modulefile before publication.

The order is: load and unload the module with every module system of the machine; run the stack's Python from the loaded
environment; then, concurrently, imports and commands in worker processes, and the file checks; the stack's own checks
and the site's last and one at a time, since they may use the whole machine. All of them see the yard read-only if
possible. The checks are those of `verify.table` and of the site.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress, SilentProgress
from stackyard.expose.base import stack_change
from stackyard.expose.commands import runs_beside
from stackyard.expose.published import change_of
from stackyard.host.files.scratch import scratch
from stackyard.host.machine.modules import ModuleSystem, find_environment_modules, find_lmod, fresh_environment
from stackyard.host.machine.probe import machine
from stackyard.host.run.view import view_of
from stackyard.verify.checks.adopted import check_adopted
from stackyard.verify.checks.base import Check, Stage, looked_into
from stackyard.verify.checks.content import look
from stackyard.verify.checks.images.launcher import wrong_launcher
from stackyard.verify.checks.interpreter import find_python
from stackyard.verify.checks.loading import LoadedModule, check_loading
from stackyard.verify.context import Context, Exceptions
from stackyard.verify.expectations import Expectations, in_force
from stackyard.verify.report import KINDS, CheckResult, Kind, Report
from stackyard.verify.report import only as only_check
from stackyard.verify.sitechecks import site_checks
from stackyard.verify.table import TABLE
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, now

if TYPE_CHECKING:
    from stackyard.inputs.models import Site

_FORMATS = {"lmod": ("lua", "tcl"), "environment-modules": ("tcl",)}
_FINDERS: tuple[Callable[[], ModuleSystem | None], ...] = (find_lmod, find_environment_modules)


def verify(
    record: BuildRecord,
    modules: Path,
    site: Site,
    *,
    environ: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    only: Collection[str] | None = None,
    deep: bool = False,
    expectations: Expectations | None = None,
    yards: Iterable[Yard] = (),
) -> Report:
    """Run the checks of one revision on this machine.

    Args:
        modules: the ``modules/`` directory of the generation that is about to be published, or of the current one.
        environ: the environment to load the module into; None: that of a fresh login with an empty home directory,
            independent of your own files.
        variables: additional variables, e.g. those that accept a licence.
        only: kinds of checks (keys of `report.KINDS`) to run; None: all.
        deep: read every byte of every file.
        expectations: the expectations to verify against; None: the present ones of the revision.
        yards: other yards that the stack's programs must not change, besides the revision's own.

    Returns:
        The report; a failed check does not raise.

    Raises:
        InputError: `only` names a kind that does not exist, or a check of the site is invalid.
    """
    kinds = _kinds(only)
    rows = (*TABLE, *site_checks(site))
    progress = progress or SilentProgress()
    expectations = expectations or in_force(record)
    if bad := wrong_launcher(record):  # what it shows of an image proves nothing
        return only_check(record, bad)
    if record.payload.is_packed and not record.payload.is_visible:
        from stackyard.verify.within import within

        progress.phase(record.module, "verify", "in its image")
        return within(
            record, modules, site, environ=environ, variables=variables, only=only, deep=deep,
            expectations=expectations, yards=tuple(yards),
        )  # fmt: skip
    as_read, record = record, expectations.applied(record)
    started = time.monotonic()
    with scratch("verify") as work:
        (work / "home").mkdir()
        before = fresh_environment(HOME=str(work / "home")) if environ is None else dict(environ)
        before.update(variables or {})
        roots = tuple(yard.root for yard in yards)
        job = _Job(record, as_read, modules, site, kinds, progress, work, before, rows, deep, roots)
        checks = job.run()
    return Report(
        module=record.module,
        input_hash=record.input_hash,
        check_hash=expectations.digest,
        created=now(),
        node=machine().to_json(),
        systems=tuple(loaded.system.title for loaded in job.loaded),
        checks=tuple(sorted(checks, key=lambda check: list(KINDS).index(check.kind))),
        only=tuple(kinds) if only is not None else (),
        load_seconds={loaded.system.title: round(loaded.seconds, 4) for loaded in job.loaded},
        seconds=round(time.monotonic() - started, 3),
    )


@dataclass
class _Job:
    """One running verification of a record with the present checks; `as_read` is the record as signed."""

    record: BuildRecord
    as_read: BuildRecord
    modules: Path
    site: Site
    kinds: tuple[Kind, ...]
    progress: Progress
    work: Path
    before: Mapping[str, str]
    rows: tuple[Check, ...]
    deep: bool = False
    yards: tuple[Path, ...] = ()
    loaded: list[LoadedModule] = field(default_factory=list)

    def run(self) -> list[CheckResult]:
        """All checks of the requested kinds; for a missing adopted prefix only that finding."""
        if any(not directory.is_dir() for directory in self.record.origin.outside):
            return check_adopted(self.record)
        context = self._context()
        with ThreadPoolExecutor(max_workers=1) as beside:
            systems = beside.submit(_systems)  # each prints its version meanwhile
            context = replace(context, tree=look(self.record))
            checks = self._walk("files", context)
            own = [RevisionPaths.of(self.record.path).yard, *self.record.origin.outside]
            view, no_view = view_of([*own, *self.yards], [self.work])
        checks += self._load(*systems.result())
        context = replace(context, environ=self._environ(), view=view, no_view=no_view)
        if looked_into(self.record):
            python, results = find_python(context)
            checks += results
            context = replace(context, python=python)
        checks += [*self._walk("programs", context), *self._walk("own", context), *self._walk("after", context)]
        return [check for check in checks if check.kind in self.kinds]

    def _context(self) -> Context:
        """The context of the checks before the module is loaded."""
        return Context(
            record=self.record,
            site=self.site,
            machine=machine(),
            environ=self.before,
            work=self.work,
            exceptions=Exceptions.of(self.record.exceptions),
            kinds=self.kinds,
            deep=self.deep,
            as_read=self.as_read,
            yards=self.yards,
        )

    def _walk(self, stage: Stage, context: Context) -> list[CheckResult]:
        """The results of one stage's checks, in the order of the table."""
        rows = self._begun(check for check in self.rows if check.stage == stage and self._is_asked(check))
        if stage != "programs":
            return [result for check in rows for result in check.run(context)]
        with ThreadPoolExecutor(max_workers=2) as pool:
            return [result for part in pool.map(lambda check: check.run(context), rows) for result in part]

    def _is_asked(self, check: Check) -> bool:
        return bool(set(check.kinds) & set(self.kinds)) and check.applies(self.record)

    def _begun(self, rows: Iterable[Check]) -> Iterator[Check]:
        """The rows, each after its title is shown."""
        for check in rows:
            if check.title:
                every = check.stage == "files" and self.deep
                self.progress.phase(self.record.module, "verify", "every byte" if every else check.title)
            yield check

    def _environ(self) -> Mapping[str, str]:
        """The loaded environment; without a module system the environment of ``stackyard run``.

        For a module that only offers commands, the environment is that of these commands.
        """
        change = change_of(self.record, self.site)
        environ = self.loaded[0].environ if self.loaded else change.apply(self.before)
        if runs_beside(self.record):
            environ = change.apply(stack_change(self.record, self.site).apply(environ))
        return environ

    def _load(self, systems: list[ModuleSystem], results: list[CheckResult]) -> list[CheckResult]:
        """Load with each working module system for which the site writes modulefiles.

        Args:
            results: receives the results for module systems that do not work.
        """
        self.progress.phase(self.record.module, "verify", "load and unload")
        change = change_of(self.record, self.site)
        for system in systems:
            if not set(_FORMATS[system.kind]) & set(self.site.modules.formats):
                text = f"the site writes no modulefiles for {system.title}"
                results.append(CheckResult("load", system.title, "skipped", text, required=False))
                continue
            loaded, result = check_loading(system, self.record.module, self.modules, change, self.before, self.work)
            self.loaded += [loaded] if loaded else []
            results += result
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
            system = finder()
        except StackyardError as error:
            detail = "\n".join(part for part in (error.detail, error.message) if part)
            results.append(CheckResult("load", "module", "warned", detail, error.hint or "", required=False))
            continue
        systems += [system] if system else []
    return systems, results


def _kinds(only: Collection[str] | None) -> tuple[Kind, ...]:
    unknown = set(only or ()) - set(KINDS)
    if unknown:
        raise InputError(f"no such kind of check: {', '.join(sorted(unknown))}", hint=f"use one of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if only is None or kind in only)
