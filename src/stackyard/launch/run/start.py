"""Prepares a step: its options, plan.json, rank.sh, the files of the launch line, the limit of open files."""

from __future__ import annotations

import resource
import secrets
from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.launch.layout.model import Layout
from stackyard.launch.node.step import PlannedBlock, PlannedRole, PlannedSlot, PlannedStage, StepFile
from stackyard.launch.plan.command import first_rank, started
from stackyard.launch.plan.model import STEP_IN_TOML, Plan, in_toml
from stackyard.launch.records.paths import MANY_RANKS, StepPaths
from stackyard.launch.run.agentfile import agent_text
from stackyard.launch.run.alone import checked
from stackyard.launch.shim.rank_sh import private_text, shim_text, sidecar_argv
from stackyard.yard.write.atomic import write_json, write_text

PULL_S = 1800.0
"""How long a node may take to pull an image, tens of GiB which all nodes pull at once, before its ranks start."""


@dataclass(frozen=True)
class WatchOptions:
    """The options for watching a step. Times in seconds, `hang_min` in minutes (0: never).

    Attributes:
        start_s: time limit for all nodes, and then all ranks, to report.
        beat_s: the interval of an agent's heartbeats; `lost_s`: heartbeat timeout (at least two heartbeats).
        end_within_s: after SIGUSR1, until all ranks get SIGTERM, so that the job can be requeued before the scheduler
            kills it; 0: never.
        grace_s: from SIGTERM to SIGKILL.
        stream: the ranks whose output the listener receives.
        logs: as in `StepFile`; ``auto``: one for each rank up to `MANY_RANKS`, then one for each node.
        interface: for the addresses of the hub and rank 0: beginnings of interface names, best first, e.g. ``hsn`` or
            ``ib0,eth``; empty: any.
        python: the interpreter of the agents: Python 3.6 or newer, at this path on all nodes; empty: each node's own,
            else this program's.
        py_spy: the program on the nodes, for stack traces; empty: the kernel's view only.
        probe: whether the ranks have the probe; `probe_signal`: as in `StepFile`.
        queued: the launcher waits in a queue for its nodes (srun outside of an allocation); `start_s` begins with the
            first node.
        attempt: the number of this start of the program within one allocation.
        stage_key: a part of the names of staging directories, the same in all attempts of a run; by default new.
        stall_s: the longest time without progress while files are staged.
        world_check: whether ranks that are never connected to another one are reported (`launch.run.alone`).
        causes: the site's files of known causes of failures.
        may_lose: the number of nodes whose loss still permits another attempt; -1: none follows.
    """

    start_s: float = 60.0
    beat_s: float = 1.0
    lost_s: float = 60.0
    grace_s: float = 5.0
    hang_min: float = 0.0
    end_within_s: float = 0.0
    stream: Literal["first", "all", "none"] = "first"
    logs: Literal["auto", "all", "node", "first"] = "auto"
    interface: str = ""
    python: str = ""
    py_spy: str = ""
    probe: bool = False
    probe_signal: int = 0
    queued: bool = False
    attempt: int = 1
    stage_key: str = field(default_factory=lambda: secrets.token_hex(8))
    stall_s: float = 300.0
    world_check: bool = True
    causes: tuple[str, ...] = ()
    may_lose: int = -1


def step_file(step: StepPaths, plan: Plan, *, run: str, hubs: tuple[str, ...], options: WatchOptions) -> StepFile:
    """The content of plan.json. The secret, by which agents are recognised, is created here."""
    layout = plan.program.layout
    return StepFile(
        run=run, secret=secrets.token_hex(32), id=secrets.token_hex(8), hubs=hubs,
        family=plan.line.family, nodes=layout.nodes,
        tasks_per_node=layout.ranks_per_node, ranks_per_task=plan.program.ranks_per_task,
        distribution=layout.distribution, hosts=layout.hosts, slots=planned(layout),
        gpu_visibility=layout.gpu_visibility, gpu_vendor=layout.node.gpu_vendor,
        **_roles(plan), sidecar=sidecar_argv(step, plan), stream=options.stream,
        logs=_logs(layout.ranks, options, on_disk=not plan.agents),
        attempt=options.attempt,
        beat_s=options.beat_s,
        lost_s=max(options.lost_s, 2 * options.beat_s), grace_s=options.grace_s,
        start_s=options.start_s + PULL_S * any(wrapper.pulled for wrapper in plan.wrappers),
        sizes_s=min(10.0, options.hang_min * 12), py_spy=options.py_spy, probe=options.probe,
        probe_signal=options.probe_signal, stage=_stage(plan, options),
        edges=options.world_check and any(checked(plan)), **_mpi(plan),
    )  # fmt: skip


def _mpi(plan: Plan) -> dict[str, Any]:
    """The host's MPI that the ranks of an image should load, and the names of all MPI libraries."""
    plans = [role.plan for role in plan.roles] or [plan]
    library = next((one.host_mpi for one_plan in plans for one in one_plan.wrappers if one.host_mpi), "")
    if not library:
        return {}
    from stackyard.images.bindings.families import mpi_sonames

    return {"mpi_library": library, "mpi_names": tuple(sorted(mpi_sonames()))}


def _stage(plan: Plan, options: WatchOptions) -> PlannedStage | None:
    if not plan.stage.items:
        return None
    again = options.may_lose >= 0
    return PlannedStage(plan.stage.items, options.stage_key, plan.stage.base, options.interface, again=again)


def _roles(plan: Plan) -> dict[str, Any]:
    """The fields of plan.json for a job with several roles."""
    if not plan.roles:
        return {"ports": plan.program.ports, "task_ports": plan.program.task_ports}
    layout, ports = plan.program.layout, dict[int, int]()
    for role in plan.roles:
        ports[role.first] = ports.get(role.first, 0) + role.plan.program.ports
    return {
        "blocks": tuple(
            PlannedBlock(part.count, planned(replace(layout, blocks=(part,))), part.roles) for part in layout.blocks
        ),
        "roles": tuple(
            PlannedRole(role.name, role.first, own.layout.nodes, own.layout.ranks_per_node, role.serves, own.ports,
                        own.layout.gpu_visibility)
            for role in plan.roles for own in (role.plan.program,)
        ),
        "ports": ports.pop(0), "more_ports": tuple(ports.items()),
        "task_ports": any(role.plan.program.task_ports for role in plan.roles),
        "shown": tuple(first_rank(plan, index) for index in range(len(plan.roles))),
    }  # fmt: skip


def _logs(ranks: int, options: WatchOptions, *, on_disk: bool) -> Literal["all", "node", "first"]:
    if options.stream == "all":
        return "all"
    if options.logs == "auto":
        return "all" if ranks <= MANY_RANKS else "node"
    return options.logs if on_disk or options.logs != "first" else "node"  # not in /dev/shm, which is memory


def planned(layout: Layout) -> tuple[PlannedSlot, ...]:
    """The planned places of a node's tasks, in the operating system's numbers."""
    return tuple(
        PlannedSlot(tuple(t for core in slot.cores for t in layout.node.os_threads(core, layout.smt)), slot.gpus)
        for slot in layout.slots
    )


def prepare(step: StepPaths, plan: Plan, file: StepFile, *, python: str) -> tuple[str, ...]:
    """Write all files of a step and return the complete command of its launcher.

    agent.py holds the secret and rank.sh an environment, so only their owner may read them. The logs and profiles of an
    earlier start in the same directory (a job that the scheduler requeued) are set aside as ``logs-1``, ``logs-2`` ...
    """
    if plan.agents and {",", ":"} & {*str(step.root)}:
        raise InputError(f"an image cannot mount the run directory {step.root}: , and : separate mounts",
                         hint="choose another one: launch.runs of site.yaml")  # fmt: skip
    _set_aside(step)
    step.logs.mkdir(parents=True, exist_ok=True)
    for one in [role.plan for role in plan.roles] or [plan]:
        for name in (name for wrapper in one.wrappers for name in wrapper.directories):
            (step.root / name).mkdir(parents=True, exist_ok=True)
    if plan.private:
        write_text(step.private, private_text(file, plan), mode=0o600, synced=False)
    write_json(step.plan, file.to_json(), mode=0o600, synced=False)
    write_text(step.agent, agent_text(file), mode=0o600, synced=False)
    for name, text in _scripts(step, file, plan, python).items():
        write_text(step.root / name, text, mode=0o700, synced=False)
    for name, text in plan.line.files.items():
        write_text(step.root / Path(name).name, _filled(text, step), synced=False)
    return _in_step(step, (*plan.line.words, *started(plan)))


def agents_argv(step: StepPaths, plan: Plan) -> tuple[str, ...]:
    """The command of the agents' step; none where the ranks start them."""
    return _in_step(step, (*plan.agents, str(step.node))) if plan.agents else ()


def _filled(text: str, step: StepPaths) -> str:
    """A file of the launch line, with the directory of the step."""
    return text.replace(STEP_IN_TOML, in_toml(str(step.root))).replace("{step}", str(step.root))


def _in_step(step: StepPaths, words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word.replace("{step}", str(step.root)) for word in words)


def _scripts(step: StepPaths, file: StepFile, plan: Plan, python: str = "") -> dict[str, str]:
    """What the launcher starts, by name: rank.sh; or inside.sh, and node.sh for the agents."""
    if not plan.agents:
        return {step.shim.name: shim_text(step, file, plan, python=python)}
    from stackyard.launch.shim.inside_sh import inside_text, node_text  # late: for images that a task starts in

    node = node_text(step, file, plan, python=python)
    return {step.inside.name: inside_text(step, file, plan), step.node.name: node}


def preview(step: StepPaths, plan: Plan, *, run: str, options: WatchOptions) -> dict[str, str]:
    """The files that `prepare` would write, by name, without writing them; the hub's addresses are unknown yet."""
    file = step_file(step, plan, run=run, hubs=(), options=options)
    texts = {name: _filled(text, step) for name, text in plan.line.files.items()}
    return {**texts, **_scripts(step, file, plan)}


def _set_aside(step: StepPaths) -> None:
    if step.launcher_log.exists():
        number = 1
        while (aside := step.logs.with_name(f"logs-{number}")).exists():
            number += 1
        step.logs.rename(aside)
        if step.profile.exists():
            step.profile.rename(step.profile.with_name(f"profile-{number}"))


def raise_file_limit(nodes: int) -> None:
    """Allow one connection per node and some more, as far as the hard limit permits.

    Raises:
        StackyardError: the hard limit is too low for so many nodes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = nodes + 256
    if soft != resource.RLIM_INFINITY and soft < need:
        if hard != resource.RLIM_INFINITY and hard < need:
            raise StackyardError(
                f"too many open files: {nodes} nodes need {need}, the hard limit is {hard}",
                hint="raise the hard limit (ulimit -Hn) where the launcher runs",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
