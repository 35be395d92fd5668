"""`run_step`: starts the launcher of one step, watches it with a hub, and returns its result."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from stackyard.core.hostlist import same_host
from stackyard.core.progress import Listener
from stackyard.host.run import process
from stackyard.host.run.identity import hostname
from stackyard.launch.node.machine import OF_USERS, addresses
from stackyard.launch.node.sockets import listen
from stackyard.launch.plan.inherited import of_launcher
from stackyard.launch.plan.model import Plan
from stackyard.launch.plan.runtimes.entering import HOST
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run import start
from stackyard.launch.run.addresses import hub_addresses, with_port
from stackyard.launch.run.start import WatchOptions

__all__ = ["WatchOptions", "run_step"]


def run_step(
    step: StepPaths, plan: Plan, listener: Listener, *, run: str, options: WatchOptions | None = None
) -> StepResult:
    """Start a plan and watch it to its end; none of its processes is left when this returns.

    In the main thread SIGINT, SIGTERM and SIGHUP end all ranks (with SIGTERM, after `grace_s` SIGKILL; a second signal:
    at once), and SIGUSR1 and SIGUSR2 are passed on to the ranks that handle them.

    Args:
        step: its directory, on a file system that all nodes share; logs of an earlier start there are set aside.
        run: the run's name.

    Raises:
        MissingError: launcher not found on PATH.
        StackyardError: it failed to start, or the limit of open files is too low.
    """
    options = options or WatchOptions()
    nodes = plan.program.layout.nodes
    start.raise_file_limit(nodes)
    hubs = hub_addresses(addresses(), options.interface, alone=_here(plan))
    port, sockets = listen(hubs, nodes)
    try:
        file = start.step_file(step, plan, run=run, hubs=with_port(hubs, port), options=options)
        argv = start.prepare(step, plan, file, python=options.python)
        with _signals() as received, _agents(step, plan) as beside, _launcher(argv, step, plan) as launcher:
            from stackyard.launch.run import seen  # while the launcher starts the agents
            from stackyard.launch.run.hub import Hub
            from stackyard.launch.run.reports import Reports

            reports = Reports(listener)
            try:
                with contextlib.closing(Hub(step, file, reports, options, sockets, launcher, received, beside)) as hub:
                    hub.loop()
            finally:
                reports.close(received)
        return seen.result(hub.seen, plan, listener, options.causes)
    finally:
        for one in sockets:
            one.close()


def _here(plan: Plan) -> bool:
    """Whether all ranks run on this machine.

    That is so without a launcher, with one that names this machine only, or with an mpirun without hosts.
    """
    hosts, starts_here = plan.layout.hosts, plan.line.family in ("stackyard", "torchrun", "openmpi", "hydra", "mvapich")
    if plan.layout.nodes > 1:
        return False
    return same_host(hosts[0], hostname()) if hosts else starts_here


@contextlib.contextmanager
def _launcher(argv: tuple[str, ...], step: StepPaths, plan: Plan) -> Iterator[process.Child]:
    """The launcher, terminated at the end of the ``with`` block."""
    cwd = Path(plan.cwd) if plan.cwd and Path(plan.cwd).is_dir() else None
    launcher = process.start(argv, log=step.launcher_log, env=_environment(plan, plan.line.words), cwd=cwd)
    try:
        yield launcher
    finally:
        launcher.end()


@contextlib.contextmanager
def _agents(step: StepPaths, plan: Plan) -> Iterator[process.Child | None]:
    """The agents' step, where the ranks start inside an image; terminated at the end of the ``with`` block."""
    argv = start.agents_argv(step, plan)
    child = process.start(argv, log=step.agents_log, env=_environment(plan, plan.agents)) if argv else None
    try:
        yield child
    finally:
        if child is not None:
            child.end()


def _environment(plan: Plan, words: Sequence[str]) -> dict[str, str]:
    """The environment of a launcher with these words, without variables of the job that it would read as options."""
    known = {HOST[name]: os.environ[name] for name in HOST if plan.agents and name in os.environ}
    return of_launcher(words, os.environ) | plan.line.variables | known


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Keep the signals of this process for the hub, starting before the launcher does.

    Only the main thread of a process can handle signals. SIGINT is handled even where it was ignored: a script's shell
    ignores it for what it starts with ``&``, but interrupting such a script is meant to end the ranks too. An ignored
    SIGHUP stays ignored, as nohup intends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    numbers = (signal.SIGINT, signal.SIGTERM, *OF_USERS, *hangup)
    received: list[int] = []
    before = {number: signal.signal(number, lambda which, _frame: received.append(which)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
