"""Imports every distribution's public modules and every console script's object, and explains what did not work.

Both go to the same worker processes, since a script's object is in a module that was just imported.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from stackyard.verify.commands import file_problem
from stackyard.verify.context import Context, excepted
from stackyard.verify.distributions import Distribution, Script, distributions, normal
from stackyard.verify.hostlibs import missing_driver
from stackyard.verify.report import CheckResult, Kind
from stackyard.verify.tasks import ImportTask, Problem, TaskOutcome, run_tasks


def check_imports_and_commands(context: Context, kinds: Collection[Kind]) -> list[CheckResult]:
    """One result per distribution (kind ``import``) and per script (kind ``command``), for the kinds asked for."""
    if context.python is None:
        return []
    found = distributions(context)
    plans = _plans(context, found, kinds)
    outcomes = run_tasks(context, [task for plan in plans for task in plan.tasks()])
    results = []
    if "import" in kinds:
        for plan in plans:
            done = {module: outcomes[task.id] for module, task in plan.modules.items()}
            results.append(_import_result(context, plan.distribution, done))
    if "command" in kinds:
        for plan in plans:
            for script in plan.distribution.scripts:
                task = plan.scripts.get(script.name)
                outcome = outcomes[task.id] if task else None
                results.append(_command_result(context, found, plan.distribution, script, outcome))
    return results


@dataclass(frozen=True)
class _Plan:
    """What is to be tried of one distribution, by module and by name of script."""

    distribution: Distribution
    modules: Mapping[str, ImportTask]
    scripts: Mapping[str, ImportTask]

    def tasks(self) -> Iterator[ImportTask]:
        """All of them next to each other, so that one process imports a package once for all."""
        yield from self.modules.values()
        yield from self.scripts.values()


def _plans(context: Context, found: Iterable[Distribution], kinds: Collection[Kind]) -> list[_Plan]:
    numbers = count()
    plans = []
    for one in found:
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


def _import_result(context: Context, one: Distribution, outcomes: Mapping[str, TaskOutcome]) -> CheckResult:
    """The worst that happened to one of the distribution's modules is the distribution's result."""
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    if not outcomes:
        reason = "a declared exception" if one.modules else "it has no Python modules of its own"
        return CheckResult("import", one.name, "skipped", reason, required=False)
    failing = {module: outcome.problem for module, outcome in outcomes.items() if outcome.problem}
    if not failing:
        detail = ", ".join(outcomes)
        alone = [module for module, outcome in outcomes.items() if outcome.alone]
        detail += f" ({', '.join(alone)} only in a process of its own, not after some other module)" if alone else ""
        return CheckResult("import", one.name, "passed", detail, seconds=seconds)
    driver = {module: missing_driver(problem.message, context.machine) for module, problem in failing.items()}
    if all(driver.values()):
        libraries = ", ".join(sorted({library for library in driver.values() if library}))
        text = f"{', '.join(failing)} needs {libraries} of the GPU driver, which this machine does not have"
        return CheckResult("import", one.name, "skipped", text, "verify it on a node with a GPU", seconds)
    lines = [f"{module}: {problem.message}" for module, problem in failing.items()]
    module, problem = next(iter(failing.items()))
    return CheckResult("import", one.name, "failed", "\n".join(lines), _remedy(one, module, problem), seconds)


def _remedy(one: Distribution, module: str, problem: Problem) -> str:
    exception = f"if it cannot import on this machine by design, name {module} under `imports` of the exceptions"
    extras = one.optional.get(normal(problem.missing.split(".")[0]), ()) if problem.missing else ()
    if extras:
        return f"ask for {one.name}[{extras[0]}], which brings {problem.missing}; {exception}"
    if problem.missing:
        return f"add what brings the module {problem.missing} to the environment; {exception}"
    if "cannot open shared object file" in problem.message:
        return f"add the package that brings this library; {exception}"
    return exception


def _command_result(
    context: Context,
    found: Iterable[Distribution],
    one: Distribution,
    script: Script,
    outcome: TaskOutcome | None,
) -> CheckResult:
    if outcome is None:
        return CheckResult("command", script.name, "skipped", "a declared exception", required=False)
    started = time.perf_counter()
    target = script.module + (":" + ".".join(script.attributes) if script.attributes else "")
    file = file_problem(context, one, script.name)
    seconds = outcome.seconds + time.perf_counter() - started
    problem = outcome.problem
    if problem is None and file is None:
        return CheckResult("command", script.name, "passed", target, seconds=seconds)
    if file is not None and (problem is None or file.status == "failed"):
        return CheckResult("command", script.name, file.status, file.detail, file.remedy, seconds, file.required)
    assert problem is not None
    text = f"{target} of {one.name}: {problem.message}"
    extras = script.extras or _lacking_extra(found, one, problem)
    if extras and problem.missing:
        return CheckResult("command", script.name, "skipped", f"{text} (part of the extra {extras[0]})", required=False)
    library = missing_driver(problem.message, context.machine)
    if library:
        text = f"{target} needs {library} of the GPU driver, which this machine does not have"
        return CheckResult("command", script.name, "skipped", text, "verify it on a node with a GPU", seconds)
    remedy = f"if it need not work here, name {script.name} under `commands` of the exceptions"
    return CheckResult("command", script.name, "failed", text, remedy, seconds)


def _lacking_extra(found: Iterable[Distribution], one: Distribution, problem: Problem) -> tuple[str, ...]:
    """The extras that would have brought the missing module: those of the script's own distribution, or of the one
    whose file asked for the module. An optional part that nobody asked for is no fault of the stack."""
    if not problem.missing:
        return ()
    wanted = normal(problem.missing.split(".")[0])
    asking = next((other for other in found if _holds(other, problem.file)), one)
    return one.optional.get(wanted) or asking.optional.get(wanted) or ()


def _holds(one: Distribution, file: str) -> bool:
    folder = f"{one.folder}/"
    return file.startswith(folder) and file[len(folder) :] in one.files
