"""The options that say what a job is, for `launch`, `submit` and `explain`; they make an `Intent`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stackyard.errors import InputError

if TYPE_CHECKING:
    from stackyard.launch.request.intent import Intent

F = TypeVar("F", bound=Callable[..., Any])

LAUNCHERS = ["srun", "jsrun", "mpirun", "mpich", "pals", "flux", "local"]
BACKENDS = ["auto", "torchrun", "horovod", "mpi", "deepspeed", "jax", "ray", "any"]


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Minutes, or ``[D-]H:MM:SS`` as schedulers write it. ``1:30`` is an hour and a half, as LSF reads it."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Minutes as a number."""
        if isinstance(value, float):
            return value
        try:
            days, _, clock = str(value).rpartition("-")
            parts = [float(part) for part in clock.split(":")]
        except ValueError:
            self.fail(f"{value!r} is no time: write minutes (90), H:MM (1:30) or D-HH:MM:SS", param, ctx)
        if len(parts) == 1:
            minutes = parts[0] * (60 if days else 1)
        elif len(parts) == 2:
            minutes = parts[0] * 60 + parts[1]
        else:
            minutes = parts[0] * 60 + parts[1] + parts[2] / 60
        return minutes + (float(days) * 1440 if days else 0)


SHAPE = (
    click.option("-N", "--nodes", type=click.IntRange(1), help="Nodes. Default: all of the allocation, else 1."),
    click.option("-r", "--ranks-per-node", type=click.IntRange(1), help="Default: one per GPU, else one per socket."),
    click.option("-c", "--cores-per-rank", type=click.IntRange(1), help="Default: as many as fit within a socket."),
    click.option("-g", "--gpus-per-rank", type=click.IntRange(0), help="Default: GPUs divided by ranks."),
    click.option("--threads-per-rank", type=click.IntRange(1), help="OMP_NUM_THREADS. Default: one per core."),
    click.option("--smt", type=click.IntRange(1), help="Hardware threads used per core."),
    click.option("--gpu-visibility", type=click.Choice(["auto", "all", "own"]), help="GPUs that each rank sees."),
    click.option("--distribution", type=click.Choice(["block", "cyclic"]), help="How ranks are dealt to nodes."),
    click.option("--straddle", is_flag=True, default=None, help="Allow a rank on two sockets."),
    click.option("--oversubscribe", is_flag=True, default=None, help="Allow more ranks or threads than cores."),
    click.option("--node-kind", help="One of the site's node kinds."),
)
PROGRAM = (
    click.option("--with", "stack", metavar="REV", help="Run with a published revision, e.g. pytorch/2.13."),
    click.option("--container", metavar="IMAGE", help="Run in an image: a SIF or SquashFS file, or a folder."),
    click.option("--backend", type=click.Choice(BACKENDS), help="Default: from the program's imports."),
    click.option(
        "--torchrun", "by_torchrun", is_flag=True, help="Start torchrun on every node, not the ranks directly."
    ),
    click.option("--controller", type=click.Choice(["auto", "mpi", "gloo"]), help="How Horovod's ranks meet."),
    click.option("--launcher", type=click.Choice(LAUNCHERS), help="What starts the ranks. Default: the site's."),
    click.option("--launcher-arg", "launcher_args", multiple=True, help="A word for the launch line, as it is."),
    click.option("--profile", multiple=True, metavar="WHAT", help="e.g. nsys:ranks=0 or py-spy:ranks=0,8."),
    click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for every rank."),
    click.option(
        "--check/--no-check", default=None, help="Prove identity, hosts, GPUs and network before the program."
    ),
    click.option("--spare", type=click.IntRange(0), help="Nodes beyond -N, to leave bad ones out. Implies --check."),
    click.option("--hang", "hang_min", type=float, metavar="MIN", help="Without output for MIN: collect stacks, end."),
    click.option("--job", "job_file", type=click.Path(path_type=Path), help="A job file; options here come on top."),
)
BATCH = (
    click.option("-t", "--time", "time_min", type=Duration(), help="Wall time: minutes, H:MM or D-HH:MM:SS."),
    click.option("-A", "--account", help="Account or project."),
    click.option("-q", "-p", "--queue", "--partition", "queue", help="Queue or partition."),
    click.option("--qos", help="Quality of service."),
    click.option("-C", "--constraint", help="Features that the nodes must have."),
    click.option("--reservation", help="A reservation to use."),
    click.option("-d", "--dependency", help="As the scheduler writes it, e.g. afterok:1234."),
    click.option("--mail", metavar="ADDRESS", help="Where to write to."),
    click.option("--mail-on", "mail_events", help="begin, end, fail, with commas."),
    click.option("-J", "--name", help="Job name. Default: the program's."),
    click.option("-o", "--output", help="The batch script's own output. Default: in the run's folder."),
    click.option("-a", "--array", help="Indices of a job array, e.g. 0-9."),
    click.option("--requeue", is_flag=True, default=None, help="Start again after preemption or time-out."),
    click.option("--signal", "signal_s", type=int, metavar="S", help="SIGUSR1 for the ranks S seconds before the end."),
    click.option("--memory", "memory_gib", type=float, metavar="GIB", help="Memory per node."),
    click.option("--exclusive/--shared", default=None, help="Whole nodes, or parts. Default: the site's."),
    click.option("--local-disk", is_flag=True, default=None, help="Ask for the nodes' own disks (LSF: nvme)."),
    click.option("--pack", type=click.Choice(["racks"]), help="Nodes from as few racks as possible."),
    click.option("--scheduler-arg", "scheduler_args", multiple=True, help="A batch option, passed on as it is."),
)


def intent_options(*groups: tuple[Callable[[F], F], ...]) -> Callable[[F], F]:
    """The options of these groups, and the program with its arguments, as a decorator."""

    def decorate(function: F) -> F:
        function = click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARG]...")(function)
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


def make_intent(options: dict[str, Any], program: tuple[str, ...], nodes: int = 1) -> Intent:
    """The intent that a command line asks for, on top of its job file where one is named.

    Args:
        options: the values of the options, None and empty where not given.
        nodes: the number of nodes where nobody says one.

    Raises:
        InputError: a value is wrong.
    """
    from pydantic import ValidationError

    from stackyard.launch.request.intent import BatchOptions, Intent

    base = _job_file(options.get("job_file"))
    given = {k: v for k, v in options.items() if v not in (None, "", ())}
    given["variables"] = {**(base.variables if base else {}), **_variables(given.get("variables", ()))}
    if given.pop("by_torchrun", False):
        given.update(backend="torchrun", direct=False)
    if "mail_events" in given:
        given["mail_events"] = tuple(given["mail_events"].lower().replace(",", " ").split())
    words = program[1:] if program[:1] == ("--",) else program
    if words:
        given["program"] = words
    batch = {k: v for k, v in given.items() if k in BatchOptions.model_fields}
    own = {k: v for k, v in given.items() if k in Intent.model_fields}
    start: dict[str, Any] = base.model_dump() if base else {"nodes": nodes}
    try:
        return Intent.model_validate({**start, **own, "batch": {**start.get("batch", {}), **batch}})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"--{'-'.join(str(p) for p in first['loc'])}: {first['msg']}") from error


def _job_file(path: Path | None) -> Intent | None:
    if path is None:
        return None
    from stackyard.launch.request.job_file import load_job

    return load_job(path)


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--env {pair!r} is no NAME=VALUE", hint="write it as --env NCCL_DEBUG=INFO")
        found[name] = value
    return found
