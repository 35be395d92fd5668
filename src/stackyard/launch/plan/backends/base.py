"""Shared by all backends: their context, the program's words, and common findings."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from stackyard.core.findings import Finding
from stackyard.core.late import dataclass
from stackyard.core.pymodules import module_of
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.model import RankProgram
from stackyard.launch.request.intent import Intent

HELPERS = Path(__file__).parent / "helpers"
"""The directory of the programs that backends run on the nodes; containers bind it."""

STARTERS = {
    "torchrun": "torchrun", "deepspeed": "deepspeed", "horovodrun": "horovod", "accelerate": "torchrun",
    "mpirun": "mpi", "mpiexec": "mpi", "srun": "any", "jsrun": "any", "aprun": "any", "flux": "any",
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun", "horovod.runner": "horovod",
    "accelerate.commands.launch": "torchrun", "deepspeed.launcher.runner": "deepspeed",
}  # fmt: skip
"""Programs and modules that start ranks themselves, and the backend that does the same."""

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""So that a rank's output is logged immediately and the last lines before a crash are not lost."""


@dataclass(frozen=True)
class BackendContext:
    """The input of a backend besides intent and layout.

    Attributes:
        step: the step's directory, for a program's own files, where ``${STACKYARD_STEP}`` cannot be used.
        in_container: the program runs in an image, where only bound host paths exist.
        launcher: the launcher of the tasks (``local`` provides no PMI); empty: not known yet.
    """

    step: str = ""
    in_container: bool = False
    launcher: str = ""


@runtime_checkable
class Backend(Protocol):
    """A row of the table: how to run one kind of program."""

    name: str

    def program(self, intent: Intent, layout: Layout, context: BackendContext) -> RankProgram:
        """The command of each task and its variables, ports and helpers. Raises InputError if impossible."""
        ...


def command(intent: Intent) -> tuple[str, ...]:
    """The program's words; a ``*.py`` file and ``-m MODULE`` are run by the first python on PATH, the stack's."""
    words = intent.program
    return ("python", *words) if words and (words[0].endswith(".py") or words[0] == "-m") else words


def nested(intent: Intent, layout: Layout) -> tuple[Finding, ...]:
    """A refusal if the program itself is a launcher: every rank would start all ranks.

    Only a warning with one rank, or if the backend was named: then it may be intended.
    """
    first = module_of(intent.program) or (Path(intent.program[0]).name if intent.program else "")
    if first not in STARTERS:
        return ()
    return (
        Finding(
            "launcher-in-launch", "refused" if layout.ranks > 1 and intent.backend == "auto" else "warning",
            f"the program is {first}, which starts ranks itself", "each task would start all ranks again",
            f"pass only the script: stackyard launch --backend {STARTERS[first]} ... train.py; "
            "or name the backend yourself: --backend any",
        ),
    )  # fmt: skip
