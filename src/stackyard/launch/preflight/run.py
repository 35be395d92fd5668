"""`run_preflight`: tests all nodes and repeats without the bad ones, until a trial passes or too few are left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stackyard.core.errors import ChecksFailed, InputError, StackyardError
from stackyard.core.findings import counted
from stackyard.core.progress import Listener
from stackyard.inputs.sites.sitemodels import Reference
from stackyard.launch.plan.model import Plan
from stackyard.launch.preflight import trial
from stackyard.launch.preflight.bisect import BisectResult, Group, find_bad, suspects
from stackyard.launch.preflight.judge import floor
from stackyard.launch.preflight.model import Measurement, PreflightReport, Stage
from stackyard.launch.preflight.trial import PreflightOptions, Trial
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import RunPaths, StepPaths
from stackyard.yard.write.atomic import write_json, write_text

MakePlan = Callable[[tuple[str, ...], tuple[str, ...]], Plan]
WHAT = {"identity": "the start of ranks", "gloo": "connecting over Gloo", "pairs": "the all-reduce",
        "all": "the all-reduce", "mpi": "MPI", "tcp": "TCP"}  # fmt: skip
SEARCH_START_S = 30.0
"""In a search the program of the ranks is in the file cache already: a group that takes longer to start is bad."""
SEARCHED = ("gloo", "pairs", "all", "mpi", "tcp")


class RunStep(Protocol):
    """`stackyard.launch.run.step.run_step`, with the run's name and the options already given."""

    def __call__(self, step: StepPaths, plan: Plan, listener: Listener) -> StepResult:
        """Run a step to its end."""
        ...


def run_preflight(
    run: RunPaths,
    make_plan: MakePlan,
    hosts: Sequence[str],
    *,
    spare: int = 0,
    references: Sequence[Reference] = (),
    run_step: RunStep,
    listener: Listener,
    options: PreflightOptions | None = None,
) -> PreflightReport:
    """Test nodes before a program starts on them. preflight.json holds the report, whether or not it passed.

    Args:
        make_plan: the plan that runs a command on every rank of some hosts of this allocation.
        hosts: all usable hosts, including spare ones.
        spare: how many of them may be excluded.
        references: the site's expected values for such nodes.

    Raises:
        ChecksFailed: too few good nodes are left, or the failure cannot be attributed to nodes.
        InputError: a reference has a wrong unit, or no host is left for the program.
        MissingError, StackyardError: ranks could not be started at all.
    """
    if len(hosts) <= spare:
        raise InputError(f"{counted(len(hosts), 'node')} with {spare} spare: no node is left for the program")
    preflight = _Preflight(run, make_plan, run_step, listener, references, options or PreflightOptions())
    report = preflight.run(tuple(hosts), spare)
    write_json(run.preflight, report.to_json())
    if not report.passed:
        raise ChecksFailed(_verdict(report, len(hosts) - spare), detail="\n".join(report.summary()), hint=_hint(report))
    return report


def _verdict(report: PreflightReport, count: int) -> str:
    if report.bad:
        named = "; ".join(f"{host} ({reason})" for host, reason in report.bad.items())
        return f"preflight failed: fewer than {count} good nodes; bad: {named}"
    failing = next((stage for stage in report.stages if not stage.good), None)
    return f"preflight failed: {f'{failing.name}: {failing.reason}' if failing else 'no stage was run'}"


def _hint(report: PreflightReport) -> str:
    if report.bad:
        return f"request spare nodes with --spare {len(report.bad)}, or exclude these nodes"
    return "no bad node was found: the fault is in the network, or the same on all nodes"


class _Preflight:
    def __init__(
        self, run: RunPaths, make_plan: MakePlan, run_step: RunStep, listener: Listener,
        references: Sequence[Reference], options: PreflightOptions,
    ) -> None:  # fmt: skip
        self.paths, self.make_plan, self.run_step, self.listener = run, make_plan, run_step, listener
        self.references, self.options = references, options
        self.start = trial.install(run.preflight_steps / "program")
        self.next_step = 1
        self.steps = 0
        self.notes: list[str] = []

    def run(self, hosts: tuple[str, ...], spare: int) -> PreflightReport:
        """Trials on fewer and fewer hosts. A failure that cannot be attributed to hosts is repeated once."""
        began, count = time.monotonic(), len(hosts) - spare
        bad: dict[str, str] = {}
        unexplained = 0
        while True:
            last = self.trial(hosts)
            culprits = {} if last.passed else dict(last.bad) or self.search(last)
            unexplained += not last.passed and not culprits
            if len(culprits) == len(hosts) and last.launcher_output:
                raise StackyardError(
                    f"the preflight failed to start on any node: {last.stages[0].reason}",
                    detail=last.launcher_output, hint="check the launcher's output: the request is at fault, no node",
                )  # fmt: skip
            bad.update(culprits)
            hosts = tuple(host for host in hosts if host not in bad)
            if last.passed or unexplained > 1 or len(hosts) < count or not (culprits or _may_pass(last)):
                break
            self._note_retry(last, culprits)
        good = last.passed and len(hosts) >= count
        return PreflightReport(
            good, hosts[:count] if good else (), hosts[count:] if good else (), bad, last.stages,
            tuple(self.notes), last.differences, self.steps, round(time.monotonic() - began, 2),
        )  # fmt: skip

    def _note_retry(self, last: Trial, culprits: dict[str, str]) -> None:
        failing = last.failing
        what = f"{failing.name}: {failing.reason}" if failing else "a node"
        again = f"retrying without {', '.join(culprits)}" if culprits else "no bad node found, retrying once"
        self.notes.append(f"{what}; {again}")
        self.listener.notice(f"preflight: {self.notes[-1]}")

    def trial(self, hosts: tuple[str, ...]) -> Trial:
        """All stages on these hosts."""
        self.listener.phase("preflight", counted(len(hosts), "node"))
        step = self._step()
        return self._start(step, hosts, self.options.stages, self.options, _StagePhases(self.listener))

    # ------------------------------------------------------------------------------------------------ naming hosts

    def search(self, last: Trial) -> dict[str, str]:
        """Bad hosts, found by bisection, if a failed stage involves several hosts."""
        failing = last.failing
        if failing is None or len(last.hosts) < 2 or (failing.name not in (*SEARCHED, "identity")):
            return {}
        known = suspects(last.pairs)[1] if failing.name in ("pairs", "tcp") else ()
        self.listener.phase("preflight", f"searching for the bad node: {failing.name}")
        least = self._least(failing)
        stage = {"pairs": "all", "identity": "identity", "gloo": "gloo"}.get(failing.name, failing.name)

        def test(groups: Sequence[Group]) -> list[bool]:
            return self._side_by_side(groups, stage, least)

        result: BisectResult = find_bad(last.hosts, test, good=known)
        named = ", ".join(result.hosts) or "none found"
        self.notes.append(f"{failing.name}: searched in {result.rounds} rounds: {named}")
        return result.reasons(WHAT.get(failing.name, failing.name))

    def _least(self, failing: Stage) -> float:
        """The bandwidth below which a group counts as bad; 0 if the stage did not fail for its speed."""
        if failing.outcome != "slow" or not failing.measurements:
            return 0.0
        first = failing.measurements[0]
        return floor(first.name, first.unit, failing.measurements, self.references)

    def _side_by_side(self, groups: Sequence[Group], stage: str, least: float) -> list[bool]:
        """Test each group in a separate step, so that a hanging or failing group does not disturb the others.

        Threads are not interrupted by signals: the file `stop` makes the ranks of all groups end (`node.connections`).
        """
        steps = [self._step() for _ in groups]
        with ThreadPoolExecutor(min(len(groups), self.options.side_by_side)) as pool:
            started = [pool.submit(self._group_passes, *pair, stage, least) for pair in zip(steps, groups, strict=True)]
            try:
                return [one.result() for one in started]
            except BaseException:
                for step in steps:
                    write_text(step.root / "stop", "")
                raise

    def _group_passes(self, step: StepPaths, group: Group, stage: str, least: float) -> bool:
        stages = ("identity",) if stage == "identity" else ("identity", "libraries", stage)
        short = replace(self.options, speed_seconds=0.0, start_s=min(self.options.start_s, SEARCH_START_S))
        attempt = self._start(step, group, stages, short, Listener())
        if not all(s.outcome != "failed" for s in attempt.stages) or attempt.bad:
            return False
        return all(m.value >= least for s in attempt.stages if s.name == stage for m in _bandwidths(s.measurements))

    # ------------------------------------------------------------------------------------------------ starting

    def _step(self) -> StepPaths:
        """The next unused step directory: a requeued job has earlier ones."""
        while self.paths.preflight_step(self.next_step).root.exists():
            self.next_step += 1
        step = self.paths.preflight_step(self.next_step)
        step.root.mkdir(parents=True)
        self.steps += 1
        return step

    def _start(
        self,
        step: StepPaths,
        hosts: tuple[str, ...],
        stages: Sequence[str],
        options: PreflightOptions,
        listener: Listener,
    ) -> Trial:
        plan = self.make_plan(hosts, trial.rank_argv(self.start, step.root))
        chosen = [stage for stage in stages if stage != "mpi" or plan.program.mpi]
        trial.write_spec(step.root, hosts, chosen, options)
        result = self.run_step(step, plan, listener)
        if result.state == "cancelled":
            raise KeyboardInterrupt
        return trial.read(step.root, hosts, plan.program.layout, result, self.references)


def _may_pass(last: Trial) -> bool:
    """Whether a retry makes sense: a failure between hosts may be transient, a difference between hosts is not."""
    return last.failing is not None and last.failing.name in (*SEARCHED, "identity")


def _bandwidths(measurements: Sequence[Measurement]) -> list[Measurement]:
    return [m for m in measurements if m.unit == "GB/s"]


class _StagePhases(Listener):
    """A listener that reports rank 0's output at the end of each stage as phases."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def nodes(self, there: int, expected: int) -> None:
        """Pass it on."""
        self._listener.nodes(there, expected)

    def output(self, task: int, text: str) -> None:
        """Turn ``preflight: pairs: done`` into a phase."""
        for line in text.splitlines():
            if task == 0 and line.startswith("preflight: "):
                self._listener.phase("preflight", line[len("preflight: ") :])

    def stack(self, file: Path, text: str) -> None:
        """Pass it on."""
        self._listener.stack(file, text)
