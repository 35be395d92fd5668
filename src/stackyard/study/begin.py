"""A study before its first run: what would run, for how long, on what; and its directory."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.run import clock
from stackyard.host.run.identity import hostname, whoami
from stackyard.launch.api import commands, jobs
from stackyard.launch.api.jobs import Job, Plan, Workspace
from stackyard.study import store, variants
from stackyard.study.control import batch_job_of, time_limit_min, words_inside
from stackyard.study.directory import free_root, require_own
from stackyard.study.execute import Study
from stackyard.study.request import StudyRequest, remarks, study_text
from stackyard.study.schedule import JobPlan, planned
from stackyard.study.store import About, StudyPaths

MOST_SEED = 1 << 32


@dataclass(frozen=True)
class SizePlan:
    """The runs of one size.

    Attributes:
        plans: the plan of a run, by variant.
        node_hours: of all its jobs at their time limits; None without a limit.
    """

    nodes: int
    jobs: int
    runs: int
    plans: dict[str, Plan]
    node_hours: float | None


@dataclass(frozen=True)
class Outlook:
    """What a study would do.

    Attributes:
        how: ``jobs`` or ``here``.
        scheduler: its name; ``none`` without one.
        script: the text of the first job's batch script; empty without jobs.
        remarks: sentences to think about.
    """

    request: StudyRequest
    seed: int
    how: str
    scheduler: str
    jobs: tuple[JobPlan, ...]
    sizes: tuple[SizePlan, ...]
    identities: dict[str, dict[str, str]]
    script: str
    remarks: tuple[str, ...]

    @property
    def runs(self) -> int:
        """All runs, those included that do not count."""
        return sum(size.runs for size in self.sizes)

    @property
    def node_hours(self) -> float | None:
        """At most, by the jobs' time limits; None without limits."""
        hours = [size.node_hours for size in self.sizes]
        return None if None in hours else sum(hour for hour in hours if hour is not None)


def outlook(request: StudyRequest, workspace: Workspace, agreed: Callable[[Job], Job]) -> Outlook:
    """Plan each size of each variant, and write nothing.

    Without a scheduler, or within an allocation, the runs are carried out here.

    Args:
        agreed: asks for missing acceptances of licences (a launch needs them), and returns the job.

    Raises:
        InputError, MissingError: one of them cannot be planned, or would be profiled.
    """
    if request.job.profile:
        names = ", ".join(request.job.profile)
        hint = "leave --profile out; profile a run of its own: `stackyard launch --profile`, then `stackyard report`"
        raise InputError(f"a study does not count profiled runs ({names}): the profiler slows them down", hint=hint)
    first = next(iter(request.all_variants))
    probe = jobs.launch_job(workspace, variants.intent_of(request, first, min(request.nodes), workspace.environ))
    is_here = probe.context.scheduler == "none" or probe.context.allocation is not None
    if is_here and probe.context.allocation and max(request.nodes) > len(probe.context.allocation.hosts):
        have = len(probe.context.allocation.hosts)
        raise InputError(f"{max(request.nodes)} nodes requested, but this allocation has {have}",
                         hint="leave the allocation: the study submits jobs of its own")  # fmt: skip
    seed = request.seed or 1 + secrets.randbelow(MOST_SEED)
    planned_jobs = tuple(planned(request, seed, together=is_here))
    identities: dict[str, dict[str, str]] = {}
    sizes = [
        _size(request, workspace, nodes, planned_jobs, identities, agreed, is_here) for nodes in sorted(request.nodes)
    ]
    return Outlook(
        request, seed, "here" if is_here else "jobs", probe.context.scheduler, planned_jobs, tuple(sizes), identities,
        "" if is_here else _script(request, workspace, planned_jobs[0]), tuple(remarks(request)),
    )  # fmt: skip


def _size(
    request: StudyRequest, workspace: Workspace, nodes: int, all_jobs: tuple[JobPlan, ...],
    identities: dict[str, dict[str, str]], agreed: Callable[[Job], Job], is_here: bool,
) -> SizePlan:  # fmt: skip
    plans: dict[str, Plan] = {}
    plan_one = jobs.launch_job if is_here else jobs.batch_job
    for name, variant in request.all_variants.items():
        place = variants.workspace_of(workspace, variant, workspace.runs)
        intent = variants.intent_of(request, name, nodes, workspace.environ)
        job = plan_one(place, intent)
        jobs.check_program(intent, job.context.stack.image)
        job = job if name in identities else agreed(job)
        identities.setdefault(name, variants.identity(job, variant))
        filled = variants.calculated(job, variant, job.plan(head=not is_here))
        plans[name] = filled.plan(head=not is_here)
    own = [job for job in all_jobs if job.nodes == nodes]
    limits = [time_limit_min(request, job) for job in own]
    hours = None if not all(limits) else sum(nodes * limit / 60 for limit in limits)
    return SizePlan(nodes, len(own), sum(len(job.points) for job in own), plans, hours)


def _script(request: StudyRequest, workspace: Workspace, job: JobPlan) -> str:
    return commands.preview_command(batch_job_of(request, workspace, job), words_inside(Path("STUDY"), job, "1"))


def created(look: Outlook, root: Path, workspace: Workspace, command: tuple[str, ...]) -> Study:
    """Write the directory of a study.

    Raises:
        InputError: it is not empty.
        StackyardError: it cannot be written.
    """
    from stackyard import __version__

    about = About(
        look.seed, look.how, clock.stamp(), command, whoami(), hostname(),
        {"stackyard": __version__}, str(workspace.site_file or ""), look.identities, look.remarks,
    )  # fmt: skip
    paths = StudyPaths(root.absolute())
    store.create(paths, study_text(look.request), about, look.jobs)
    return Study(paths, look.request, about, workspace)


def opened(root: Path, workspace: Workspace, *, again: bool = False) -> Study:
    """The study in a directory, to carry it out.

    Args:
        again: what failed is tried once more.

    Raises:
        InputError: it is not a study, one of its files is damaged, or it belongs to another account, whose program
            would run under yours.
    """
    from stackyard.study.request import load_study

    paths = StudyPaths(root.absolute())
    about = store.read_about(paths)
    hint = "`stackyard report` shows it; to repeat it, run its study.yaml: `stackyard bench study.yaml`"
    require_own(root, paths.about, hint)
    return Study(paths, load_study(paths.request), about, workspace, again)


def default_root(request: StudyRequest) -> Path:
    """``studies/NAME``, with a number where that exists."""
    return free_root(request.name, request.job.program, "study")
