"""Images that come by words of the launcher: these words on the launch line, and the step of the agents beside it.

A runtime of the kind ``inside`` (`runtimes.base`) starts the task itself in the image, which need not have more than a
POSIX sh. So the agents run on the hosts, in a step of their own that overlaps with that of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stackyard.core.errors import InputError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan.launchers.words import version_of
from stackyard.launch.plan.model import LaunchLine, RankProgram, Reason, Wrapper

AGENTS = (
    "--ntasks-per-node=1", "--mpi=none", "--cpu-bind=none", "--mem=0", "--gres=none", "--export=ALL",
    "--kill-on-bad-exit=1",
)  # fmt: skip
"""One agent per node, which asks for no core, memory or GPU of the ranks; one that cannot start ends the step."""
HOST = {name: f"STACKYARD_HOST_{name}" for name in ("LD_LIBRARY_PATH", "PYTHONPATH")}
"""Variables of the host that an image gets with srun's environment, and the names by which inside.sh knows them."""
WHY = "the agents, in a step of their own on the hosts of the ranks: nothing of the host runs in the ranks' image"


def entered(line: LaunchLine, wrappers: Sequence[Wrapper], launcher: str) -> LaunchLine:
    """The launch line with the words of the images' runtimes.

    Raises:
        InputError: the launcher is not srun, or the line has several components.
    """
    words = tuple(reason for wrapper in wrappers for reason in wrapper.launcher)
    if not words:
        return line
    if launcher != "srun":
        raise InputError(
            f"{words[0].words[0].partition('=')[0]} is an option of srun, and the launcher is {launcher}",
            hint="use --launcher srun, or a runtime that wraps the program: --runtime apptainer",
        )
    if ":" in line.words:
        raise InputError("a step whose nodes have different ranks cannot start in an image by words of srun",
                         hint="give all nodes the same ranks, or use --runtime apptainer")  # fmt: skip
    more = tuple(word for reason in words for word in reason.words)
    files = {name: text for wrapper in wrappers for name, text in wrapper.files.items()}
    return replace(line, words=(*line.words, *more), reasons=(*line.reasons, *words), files={**line.files, **files})


def agents(
    line: LaunchLine, wrappers: Sequence[Wrapper], program: RankProgram, scheduler: Scheduler, *, queued: bool
) -> tuple[Reason, ...]:
    """The words of the step that runs the agents, on the nodes of the launch line; none where ranks start them.

    Raises:
        InputError: a part of the job cannot run beside such ranks; or the step would make an allocation of its own.
    """
    if not any(wrapper.inside for wrapper in wrappers):
        return ()
    if queued:
        raise InputError(
            "ranks that start inside an image need an allocation: their agents are a second step of it",
            hint="stackyard submit, or salloc -N N stackyard launch ...",
        )
    if program.sidecar:
        raise InputError(
            "the rendezvous server of Horovod's gloo controller cannot run beside ranks that start inside an image",
            hint="use --controller mpi, or --runtime apptainer",
        )
    nodes = str(program.layout.nodes)
    known = version_of(scheduler.version)
    overlap = () if known and known < (20, 11) else ("--overlap",)  # before, steps overlap anyway
    named = tuple(word for reason in line.reasons if reason.words[0] == "-w" for word in reason.words)
    return (Reason((line.words[0], *overlap, "-N", nodes, "-n", nodes, *named, *AGENTS), WHY),)


def refuse_in_roles(wrappers: Sequence[Wrapper], role: str) -> None:
    """Raise InputError for an image by words of the launcher: one launch line starts all roles."""
    if words := [reason for wrapper in wrappers for reason in wrapper.launcher]:
        raise InputError(
            f"the image of {role} comes by an option of srun ({words[0].words[0].partition('=')[0]}), which is "
            "for all ranks of a job",
            hint="use a runtime that wraps each program (--runtime apptainer), or submit each role as its own job",
        )
