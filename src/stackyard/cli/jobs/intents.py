"""The options that describe a job, for `launch`, `submit` and `explain`, in sections; and the `Intent` they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.help import Decorator, Duration, F, LastOption, options_of
from stackyard.cli.output import show_notice
from stackyard.core import grammar
from stackyard.core.errors import InputError
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stackyard.launch.api.jobs import Intent, Repeat, Workspace

LAUNCHERS = ["srun", "jsrun", "mpirun", "mpich", "pals", "flux", "local"]
RUNTIMES = ["apptainer", "singularity", "charliecloud", "pyxis", "podman-hpc", "edf", "uenv", "shifter"]
MISPLACED = frozenset({
    "--nodes", "--ranks-per-node", "--cores-per-rank", "--gpus-per-rank", "--threads-per-rank", "--node-kind", "--with",
    "--container", "--account", "--partition", "--queue", "--scheduler", "--launcher", "--dry-run",
})  # fmt: skip
"""Options that are hardly ever the program's own."""
BACKENDS = ["auto", "torchrun", "horovod", "mpi", "deepspeed", "jax", "tensorflow", "ray", "any"]


class PluginName(click.ParamType):  # type: ignore[type-arg]
    """A built-in name, or that of a plug-in; it is validated where it is used."""

    name = "NAME"

    def __init__(self, known: list[str]) -> None:
        self._known = known

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The built-in names."""
        return f"[{'|'.join(self._known)}]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The built-in names."""
        from click.shell_completion import CompletionItem  # late: for a shell that completes

        return [CompletionItem(name) for name in self._known if name.startswith(incomplete)]


layout, program_option, scheduler = options_of("Layout"), options_of("Program"), options_of("Scheduler")
checks, output = options_of("Checks"), options_of("Output")


def _nodes(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A number of nodes, or a range: the second number is requested, and the first is the minimum to continue with."""
    if value is None:
        return None
    least, _, most = value.rpartition(":")
    number = click.IntRange(1)
    nodes: int = number(most, option, context)
    context.params["least_nodes"] = number(least, option, context) if least else 0  # no range, whatever a file says
    if context.params["least_nodes"] > nodes:
        raise click.BadParameter(f"{value}: the first number is larger than the second", context, option)
    return nodes


LAYOUT = (
    layout(
        "-N",
        "--nodes",
        metavar="N|MIN:MAX",
        callback=_nodes,
        help="Nodes; with a range, restarts go on with fewer. Default: all of the allocation, else 1.",
    ),
    layout(
        "-r", "--ranks-per-node", metavar="N", type=click.IntRange(1), help="Default: one per GPU, else one per socket."
    ),
    layout(
        "-c", "--cores-per-rank", metavar="N", type=click.IntRange(1), help="Default: as many as fit within a socket."
    ),
    layout("-g", "--gpus-per-rank", metavar="N", type=click.IntRange(0), help="Default: GPUs divided by ranks."),
    layout("--threads-per-rank", metavar="N", type=click.IntRange(1), help="OMP_NUM_THREADS. Default: one per core."),
    layout("--smt", metavar="N", type=click.IntRange(1), help="Hardware threads used per core."),
    layout("--gpu-visibility", type=click.Choice(["auto", "all", "own"]), help="GPUs visible to each rank."),
    layout("--distribution", type=click.Choice(["block", "cyclic"]), help="Distribution of ranks over nodes."),
    layout("--straddle", is_flag=True, default=None, help="Allow a rank to span two sockets."),
    layout("--oversubscribe", is_flag=True, default=None, help="Allow more ranks or threads than cores."),
    layout("--node-kind", metavar="KIND", help="One of the site's node kinds."),
)
PROGRAM = (
    click.option(
        "-m",
        "module",
        cls=LastOption,
        section="Program",
        metavar="MODULE",
        help="Run a Python module as PROGRAM, like python -m; all further words are its arguments.",
    ),
    program_option("--with", "stack", metavar="REV", help="Run with a published revision, e.g. pytorch/2.13."),
    program_option(
        "--container", metavar="IMAGE", help="Run in an image: a SIF or SquashFS file, a directory, docker://NAME:TAG."
    ),
    program_option("--runtime", type=PluginName(RUNTIMES), help="What runs the image. Default: the site's."),
    program_option("--backend", type=PluginName(BACKENDS), help="Default: from the program's imports."),
    program_option("--torchrun", "by_torchrun", is_flag=True, help="Start torchrun on every node instead of ranks."),
    program_option("--controller", type=click.Choice(["auto", "mpi", "gloo"]), help="Horovod controller."),
    program_option(
        "--mpi-abort/--no-mpi-abort", default=None, help="mpi4py: an exception on one rank aborts all. Default: yes."
    ),
    program_option(
        "--start-method",
        type=click.Choice(["fork", "forkserver", "spawn"]),
        help="How Python starts processes, such as a DataLoader's workers, where the program does not choose.",
    ),
    program_option("--launcher", type=PluginName(LAUNCHERS), help="What starts the ranks. Default: the site's."),
    program_option(
        "--launcher-arg",
        "launcher_args",
        metavar="WORD",
        multiple=True,
        help="Extra word of the launch line, unchanged; ~--FLAG removes a generated one.",
    ),
    program_option(
        "--stage",
        metavar="PATH",
        multiple=True,
        help="Copy a file or directory to every node before the ranks start; stack: the image. In $STACKYARD_STAGE.",
    ),
    program_option("--profile", multiple=True, metavar="WHAT", help="e.g. torch:steps=10-20 or nsys:ranks=0,8."),
    program_option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Variable of every rank; without a value that of your shell, which is not recorded.",
    ),
    program_option(
        "--job",
        "job_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Job file; other options override it.",
    ),
)
STREAMS = ("first", "all", "none")
"""Whose output is shown: the first rank's (with roles of each role's first), every rank's, or none."""
AGAIN = program_option("--again", metavar="RUN", help="Repeat a recorded run; other options override it.")
SCHEDULER = (
    scheduler("-t", "--time", "time_min", type=Duration(), help="Wall time: minutes, H:MM or D-HH:MM:SS."),
    scheduler("-A", "--account", metavar="NAME", help="Account or project."),
    scheduler("-p", "--partition", "--queue", "queue", metavar="NAME", help="Partition or queue."),
    scheduler("-q", "short_queue", metavar="NAME", help="As for the scheduler: QoS with Slurm, else the queue."),
    scheduler("--qos", metavar="NAME", help="Quality of service."),
    scheduler("-C", "--constraint", metavar="FEATURES", help="Required node features."),
    scheduler("--reservation", metavar="NAME", help="Reservation to use."),
    scheduler("-d", "--dependency", metavar="JOBS", help="In the scheduler's syntax, e.g. afterok:1234."),
    scheduler("--mail", metavar="ADDRESS", help="Mail address for notifications."),
    scheduler("--mail-on", "mail_events", metavar="EVENTS", help="begin, end, fail; separated by commas."),
    scheduler("-J", "--name", metavar="NAME", help="Job name. Default: the program's."),
    scheduler("-o", "--output", metavar="FILE", help="Output file of the batch script. Default: in the run directory."),
    scheduler("-a", "--array", metavar="INDICES", help="Indices of a job array, e.g. 0-9."),
    scheduler("--requeue", is_flag=True, default=None, help="Start again after a preemption or a time limit."),
    scheduler("--signal", "signal_s", type=int, metavar="S", help="Send SIGUSR1 to ranks S seconds before the end."),
    scheduler("--memory", "memory_gib", type=float, metavar="GIB", help="Memory per node."),
    scheduler("--exclusive/--shared", default=None, help="Exclusive or shared nodes. Default: the site's."),
    scheduler("--local-disk", is_flag=True, default=None, help="Request the nodes' local disks (LSF: nvme)."),
    scheduler("--pack", type=click.Choice(["racks"]), help="Use nodes of as few racks as possible."),
    scheduler(
        "--scheduler-arg",
        "scheduler_args",
        metavar="WORD",
        multiple=True,
        help="Extra batch option, unchanged; ~--FLAG removes a generated one.",
    ),
)
CHECKS = (
    checks("--check/--no-check", default=None, help="Run the preflight: identity, hosts, GPUs, network."),
    checks("--spare", metavar="N", type=click.IntRange(0), help="Extra nodes to replace bad ones. Implies --check."),
    checks("--restarts", metavar="N", type=click.IntRange(0), help="Start again in the allocation after a failure."),
    checks(
        "--world-check/--no-world-check", default=None, help="Fail if each rank trained alone. Default: the site's."
    ),
    checks("--hang", "hang_min", type=float, metavar="MIN", help="Hang timeout: dump stacks and terminate."),
    checks(
        "--logs", type=click.Choice(["auto", "all", "node", "first"]), help="A log per rank, per node, or of rank 0."
    ),
    checks("--start-timeout", "start_s", type=click.FloatRange(1), metavar="S", help="Time for all nodes to report."),
    checks("--lost-timeout", "lost_s", type=click.FloatRange(2), metavar="S", help="Silence until a node is lost."),
    checks("--grace", "grace_s", type=click.FloatRange(0), metavar="S", help="Time from SIGTERM to SIGKILL."),
)
REQUEST = (*LAYOUT, *PROGRAM, *SCHEDULER, *CHECKS)


def intent_options(*more: Decorator, without: Collection[str] = ()) -> Decorator:
    """The options that describe a job, these further ones, and the program with its arguments, as a decorator.

    Args:
        without: the names of options that this verb does not have, or ``program``.
    """

    def decorate(function: F) -> F:
        program = click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARG]...")
        for option in (program, *reversed((*REQUEST, *more))):
            function = option(function)
            params = vars(function)["__click_params__"]
            if params[-1].name in without:
                params.pop()
        return function

    return decorate


def requested(
    workspace: Workspace, options: dict[str, Any], program: tuple[str, ...], nodes: Callable[[], int | None]
) -> tuple[Intent, Repeat | None]:
    """The intent of a command line, and the run that it repeats. Prints differences from that run.

    `options` have the queue or the quality of service that ``-q`` names afterwards.

    The recorded environment variables are set in this process: the ranks inherit them.

    Args:
        nodes: the default number of nodes.

    Raises:
        InputError: a value is wrong, or no such run.
    """
    settle_queue(workspace, options)
    _tell_misplaced(workspace.argv, program)
    if not options.get("again"):
        default = None if options["nodes"] or options["job_file"] else nodes()
        return make_intent(options, program, default), None
    from stackyard.launch.api import jobs, runs

    again = jobs.repeat(runs.find_run(options["again"], workspace.runs), workspace.environ)
    for sentence in again.notices:
        show_notice(sentence)
    os.environ.update(again.environ)
    again = jobs.with_changes(again, make_intent({**options, "job_file": None}, program))
    return again.intent, again


def _tell_misplaced(argv: Sequence[str], program: tuple[str, ...]) -> None:
    """Report options of ours among the program's arguments, unless ``--`` separates these."""
    before = argv[: len(argv) - len(program)]
    if program[:1] == ("--",) or before[-1:] == ("--",):
        return
    for number, word in enumerate(program):
        name = word.partition("=")[0]
        if number and name in MISPLACED:
            file = next((w for w in reversed(program[:number]) if w.endswith((".py", ".sh"))), program[0])
            how = f"for stackyard write it before {program[0]}; `--` before {program[0]} ends this note"
            show_notice(f"{name} after {Path(file).name} goes to {Path(file).name}: {how}")
            return


def settle_queue(workspace: Workspace, options: dict[str, Any]) -> None:
    """Replace ``-q`` in `options` by its meaning for this site's scheduler. Raises InputError: both are given."""
    from stackyard.launch.api.jobs import queue_field

    if not (name := options.pop("short_queue", None)):
        return
    field = queue_field(workspace)
    if options.get(field) not in (None, name):
        raise InputError(f"-q {name} contradicts {option_of(field)} {options[field]}", hint="leave out one of them")
    options[field] = name


def make_intent(
    options: dict[str, Any], program: tuple[str, ...], nodes: int | None = None, *, base: Intent | None = None
) -> Intent:
    """The intent of the options, on top of a job file if given.

    Args:
        options: the values of the options; None or empty if not given.
        nodes: the default number of nodes.
        base: another intent that they are on top of, if no job file is given.

    Raises:
        InputError: a value is wrong.
    """
    from stackyard.launch.api.jobs import BatchOptions, Intent, made, with_variables

    base = _job_file(options.get("job_file")) or base
    values = {k: v for k, v in options.items() if v not in (None, "", ())}
    variables, passed = _variables(values.get("variables", ()))
    values |= with_variables(base or Intent(), variables, passed)
    if values.pop("by_torchrun", False):
        values.update(backend="torchrun", direct=False)
    if "mail_events" in values:
        values["mail_events"] = tuple(values["mail_events"].lower().replace(",", " ").split())
    words = program[1:] if program[:1] == ("--",) else program
    if module := values.pop("module", ""):
        words = ("-m", module, *program)
    if words:
        values["program"] = words
    batch = {k: v for k, v in values.items() if k in BatchOptions.model_fields}
    own = {k: v for k, v in values.items() if k in Intent.model_fields}
    start: dict[str, Any] = base.model_dump() if base else {"nodes": nodes} if nodes else {}
    return made(Intent, {**start, **own, "batch": {**start.get("batch", {}), **batch}}, option_of)


def option_of(key: str) -> str:
    """The name of a request's field in errors: the option that sets it, as typed; without one its key."""
    name, _, rest = key.removeprefix("batch.").partition(".")
    for option in click.get_current_context().command.params:
        if isinstance(option, click.Option) and option.name == name:
            return " ".join([next(word for word in option.opts if word.startswith("--")), *filter(None, [rest])])
    return key


def _job_file(path: Path | None) -> Intent | None:
    if path is None:
        return None
    from stackyard.launch.api.jobs import load_job

    intent = load_job(path)
    if intent.unanswered:
        raise InputError(
            f"{path}: {counted(len(intent.unanswered), 'line')} of the script could not be carried over",
            detail="\n".join(intent.unanswered),
            hint="edit the file; remove each line of `unanswered` once the job does without it, or has it otherwise",
        )
    return intent


def _variables(pairs: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """The variables with a value, and the names of those with the shell's value."""
    from stackyard.core.secrets import is_secret_name

    values, passed = {}, []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not grammar.SETTABLE.accepts(name):
            hint = "write it as --env NCCL_DEBUG=INFO, or as --env HF_TOKEN for the value in your shell"
            raise InputError(f"--env {grammar.shown(name)} is neither NAME=VALUE nor NAME", hint=hint)
        if equals:
            values[name] = value
            if is_secret_name(name):
                show_notice(
                    f"the list of processes shows the value of {name}; use --env {name}, which takes your shell's"
                )
        else:
            passed.append(name)
    return values, passed
