"""What every backend needs: its surroundings, the program's words, and the findings that hold for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stackyard.findings import Finding
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.model import RankProgram
from stackyard.launch.request.intent import Intent

HELPERS = Path(__file__).parent / "helpers"
"""Where the programs lie that a backend runs on the nodes; containers bind it."""

STARTERS = {
    "torchrun": "torchrun", "deepspeed": "deepspeed", "horovodrun": "horovod", "accelerate": "torchrun",
    "mpirun": "mpi", "mpiexec": "mpi", "srun": "any", "jsrun": "any", "aprun": "any", "flux": "any",
}  # fmt: skip
"""Programs that start ranks themselves, and the backend that does the same."""

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""So that a rank's output is in its log when it happens, and the last lines of a crash are there at all."""


@dataclass(frozen=True)
class BackendContext:
    """What a backend may know besides intent and layout.

    Attributes:
        step: the step's folder, for a program's own files; not needed where ``${STACKYARD_STEP}`` can be written.
        in_container: the program runs in an image; paths of the host are there only where they are bound.
        launcher: what will start the tasks (``local`` wires up no MPI); empty: not known yet.
    """

    step: str = ""
    in_container: bool = False
    launcher: str = ""


class Backend(Protocol):
    """A row of the table: what a kind of program needs around it."""

    name: str

    def program(self, intent: Intent, layout: Layout, context: BackendContext) -> RankProgram:
        """The command of each task and what must be around it. Raises InputError where it cannot be had."""
        ...


def command(intent: Intent) -> tuple[str, ...]:
    """The program's words; a ``*.py`` file is run by the first python on PATH, which is the stack's."""
    words = intent.program
    return ("python", *words) if words and words[0].endswith(".py") else words


def nested(intent: Intent) -> tuple[Finding, ...]:
    """A warning where the program itself is a launcher: every rank would start all ranks."""
    first = Path(intent.program[0]).name if intent.program else ""
    if first not in STARTERS:
        return ()
    return (
        Finding(
            "launcher-in-launch", "warning", f"the program is {first}, which starts ranks itself",
            f"each of the {intent.nodes} node(s)' tasks would start all of them again",
            f"name the script alone: stackyard launch --backend {STARTERS[first]} ... train.py",
        ),
    )  # fmt: skip
