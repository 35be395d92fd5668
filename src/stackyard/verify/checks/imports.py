"""Imports every distribution's public modules and every console script's object, and explains the failures.

Both run in the same worker processes, since a script's object is in a module that was just imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.host.machine.hostlibs import missing_driver
from stackyard.verify.checks.base import Check, looked_into
from stackyard.verify.checks.commands import check_other_scripts, file_problem
from stackyard.verify.checks.distributions import Distribution, Script, distributions
from stackyard.verify.checks.tasks import ImportTask, Problem, TaskOutcome, run_tasks
from stackyard.verify.context import Context, excepted
from stackyard.verify.report import CheckResult, Kind, Status


def check_imports_and_commands(context: Context, kinds: Collection[Kind]) -> list[CheckResult]:
    """One result per distribution (kind ``import``) and per script (kind ``command``), for the requested kinds."""
    if context.python is None:
        return []
    candidates = distributions(context)
    plans = _plans(context, candidates, kinds)
    outcomes = run_tasks(context, [task for plan in plans for task in plan.tasks()])
    results = []
    if "import" in kinds:
        for plan in plans:
            done = {module: outcomes[task.id] for module, task in plan.modules.items()}
            results.append(_import_result(context, candidates, plan.distribution, done))
    if "command" in kinds:
        for plan in plans:
            for script in plan.distribution.scripts:
                task = plan.scripts.get(script.name)
                outcome = outcomes[task.id] if task else None
                results.append(_command_result(context, candidates, plan.distribution, script, outcome))
    return results


@dataclass(frozen=True)
class _Plan:
    """The tasks of one distribution, by module and by script name."""

    distribution: Distribution
    modules: Mapping[str, ImportTask]
    scripts: Mapping[str, ImportTask]

    def tasks(self) -> Iterator[ImportTask]:
        """All tasks in a row, so that one process imports a package once for all of them."""
        yield from self.modules.values()
        yield from self.scripts.values()


def _plans(context: Context, candidates: Iterable[Distribution], kinds: Collection[Kind]) -> list[_Plan]:
    numbers = count()
    plans = []
    for one in candidates:
        modules = [m for m in one.modules if "import" in kinds and not excepted(m, context.exceptions.imports)]
        scripts = [s for s in one.scripts if "command" in kinds and not excepted(s.name, context.exceptions.commands)]
        plans.append(
            _Plan(
                one,
                {module: ImportTask(next(numbers), module) for module in modules},
                {script.name: ImportTask(next(numbers), script.module, script.attributes) for script in scripts},
            )
        )
    return plans


def _import_result(
    context: Context, candidates: Collection[Distribution], one: Distribution, outcomes: Mapping[str, TaskOutcome]
) -> CheckResult:
    """The distribution's result: the worst result of its modules."""
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    if not outcomes:
        reason = "a declared exception" if one.modules else "it has no Python modules"
        return CheckResult("import", one.name, "skipped", reason, required=False)
    failing = {module: outcome.problem for module, outcome in outcomes.items() if outcome.problem}
    if not failing:
        alone = [module for module, outcome in outcomes.items() if outcome.alone]
        detail = ", ".join(outcomes)
        detail += f" ({', '.join(alone)} only in a process of its own, not after other modules)" if alone else ""
        return CheckResult("import", one.name, "passed", detail, seconds=seconds)
    skipped = _only_on_gpu_node(context, failing) or _only_with_extra(candidates, one, failing)
    if skipped:
        return replace(skipped, name=one.name, seconds=seconds)
    lines = [f"{module}: {problem.message}" for module, problem in failing.items()]
    module, problem = next(iter(failing.items()))
    remedy = _remedy(one, module, problem)
    return CheckResult("import", one.name, "failed", "\n".join(lines), remedy, seconds, exceptions=tuple(failing))


def _only_on_gpu_node(context: Context, failing: Mapping[str, Problem]) -> CheckResult | None:
    """A skipped result if only the GPU driver of another node kind is missing."""
    libraries = [missing_driver(problem.message, context.machine) for problem in failing.values()]
    if not all(libraries):
        return None
    names = ", ".join(sorted({library for library in libraries if library}))
    text = f"{', '.join(failing)} requires {names} of the GPU driver, which this machine does not have"
    return CheckResult("import", "", "skipped", text, "verify the revision on a node with a GPU")


def _only_with_extra(
    candidates: Collection[Distribution], one: Distribution, failing: Mapping[str, Problem]
) -> CheckResult | None:
    """A skipped result if only an extra that was not requested is missing in a required distribution.

    The distribution works without it (matplotlib-inline for an IPython without matplotlib).
    """
    if not any(canonical(one.name) in other.requires for other in candidates if other is not one):
        return None
    extras = [_lacking_extra(candidates, one, problem) for problem in failing.values()]
    if not all(extras):
        return None
    lines = [f"{module}: {problem.message}" for module, problem in failing.items()]
    lines.append(f"it requires its extra {extras[0][0]}, which is not requested")
    return CheckResult("import", "", "skipped", "\n".join(lines), required=False)


def _remedy(one: Distribution, module: str, problem: Problem) -> str:
    exception = (
        f"if the import is expected to fail on this machine, add {module} to `exceptions: imports:` in the stack file"
    )
    lost = _own_file(one, problem.missing)
    if lost:
        return f"{one.name} installed {lost}, which no longer exists: the revision is damaged"
    extras = one.optional.get(canonical(problem.missing.split(".")[0]), ()) if problem.missing else ()
    if extras:
        return f"request {one.name}[{extras[0]}], which provides {problem.missing}; {exception}"
    if problem.missing:
        return f"add the package that provides the module {problem.missing}; {exception}"
    if "cannot open shared object file" in problem.message:
        return f"add the package that provides this library; {exception}"
    return exception


def _own_file(one: Distribution, module: str) -> str:
    """The missing file that the distribution installed for a module; empty if it did not install one."""
    stem = module.replace(".", "/")
    starts = (f"{stem}.", f"{stem}/__init__.")
    files = (f for f in sorted(one.files) if module and f.startswith(starts) and f.endswith((".py", ".so")))
    return next((f for f in files if not (one.directory / f).exists()), "")


def _command_result(
    context: Context,
    candidates: Collection[Distribution],
    one: Distribution,
    script: Script,
    outcome: TaskOutcome | None,
) -> CheckResult:
    if outcome is None:
        return CheckResult("command", script.name, "skipped", "a declared exception", required=False)
    target = script.module + (":" + ".".join(script.attributes) if script.attributes else "")
    file = file_problem(context, one, script.name)
    problem = outcome.problem
    if file is not None and (problem is None or file.status == "failed"):
        return replace(file, seconds=outcome.seconds)
    if problem is None:
        return CheckResult("command", script.name, "passed", target, seconds=outcome.seconds)
    skipped = _only_on_gpu_node(context, {target: problem}) or _optional_part(candidates, one, script, problem)
    if skipped:
        return replace(skipped, kind="command", name=script.name, seconds=outcome.seconds)
    text = f"{target} of {one.name}: {problem.message}"
    status: Status = "warned" if context.exceptions.broken_commands == "warn" else "failed"
    remedy = _command_remedy(script, problem, status)
    return CheckResult(
        "command", script.name, status, text, remedy, outcome.seconds, status == "failed", exceptions=(script.name,)
    )


def _command_remedy(script: Script, problem: Problem, status: Status) -> str:
    """The remedy for a command that does not import; for a mere warning, the hint that it may be unimportant."""
    if status == "failed":
        return f"if it is expected to fail, add {script.name} to `exceptions: commands:` in the stack file"
    needed = f"add the package that provides the module {problem.missing}" if problem.missing else "see the cause"
    return f"{script.name} will not run; to use it, {needed}"


def _optional_part(
    candidates: Collection[Distribution], one: Distribution, script: Script, problem: Problem
) -> CheckResult | None:
    """A skipped result for a command of an optional part that was not requested.

    Such are a part of an extra, and one that its package itself reports as not installed (jupyter-labhub without
    JupyterHub).
    """
    if not problem.missing:
        return None
    extras = script.extras or _lacking_extra(candidates, one, problem)
    if extras:
        reason = f"it is part of the extra {extras[0]}, which is not requested"
    elif problem.handled and not _provided_or_required(candidates, one, problem.missing):
        reason = f"it is for use with {problem.missing}, which is not requested"
    else:
        return None
    return CheckResult("command", "", "skipped", f"{problem.message}\n{reason}", required=False)


def _provided_or_required(candidates: Iterable[Distribution], one: Distribution, module: str) -> bool:
    """Whether a missing module should exist: as part of an installed distribution, or as a requirement of `one`."""
    top = module.split(".", maxsplit=1)[0]
    installed = any(name.split(".", maxsplit=1)[0] == top for other in candidates for name in other.modules)
    return installed or canonical(top) in one.requires


def _lacking_extra(candidates: Iterable[Distribution], one: Distribution, problem: Problem) -> tuple[str, ...]:
    """The extras that would have provided a missing module.

    They are those of the distribution itself, or of the one whose file imports it. A missing optional part that was not
    requested is not an error of the stack.
    """
    if not problem.missing:
        return ()
    project = canonical(problem.missing.split(".")[0])
    asking = next((other for other in candidates if _holds(other, problem.file)), one)
    return one.optional.get(project) or asking.optional.get(project) or ()


def _holds(one: Distribution, file: str) -> bool:
    directory = f"{one.directory}/"
    return file.startswith(directory) and file[len(directory) :] in one.files


def _imports_and_commands(context: Context) -> list[CheckResult]:
    """The results for the distributions, then for scripts that none of them declares."""
    results = check_imports_and_commands(context, context.kinds)
    if "command" in context.kinds:
        declared = {result.name for result in results if result.kind == "command"}
        results += check_other_scripts(context, declared)
    return results


IMPORTS_AND_COMMANDS = Check(
    ("import", "command"), "programs", _imports_and_commands, looked_into, title="imports and commands"
)
