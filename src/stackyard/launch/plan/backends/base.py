"""Shared by all backends: their context and the program's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol, runtime_checkable

from stackyard.core.late import dataclass
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.model import RankProgram
from stackyard.launch.request.intent import Intent

HELPERS = Path(__file__).parent / "helpers"
"""The directory of the programs that backends run on the nodes; containers bind it."""

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""So that a rank's output is logged immediately and the last lines before a crash are not lost."""


def of_torch(layout: Layout) -> dict[str, str]:
    """The variables of ranks that use torch.

    Accelerate, and so the Trainer of transformers, is a world of one on CPUs unless ACCELERATE_USE_CPU is set, whatever
    RANK and WORLD_SIZE are (accelerate/state.py, `PartialState._prepare_backend`, 1.15).
    """
    return {**UNBUFFERED, **({} if any(slot.gpus for slot in layout.slots) else {"ACCELERATE_USE_CPU": "true"})}


def direct_grpc(intent: Intent) -> dict[str, str]:
    """No proxy for gRPC, unless the job has one: with http_proxy set, ranks wait for each other without end.

    grpc_proxy is read before https_proxy and http_proxy, and empty it means none
    (https://github.com/grpc/grpc/blob/master/doc/environment_variables.md).
    """
    return {} if "grpc_proxy" in (*intent.variables, *intent.passed) else {"grpc_proxy": ""}


@dataclass(frozen=True)
class BackendContext:
    """The input of a backend besides intent and layout.

    Attributes:
        step: the step's directory, for a program's own files, where ``${STACKYARD_STEP}`` cannot be used.
        in_container: the program runs in an image, where only bound host paths exist.
        launcher: the launcher of the tasks (``local`` provides no PMI); empty: not known yet.
        role: the role of the job whose program this is; empty: a job with one program.
        roles: the number of ranks of each role of the job that has this backend.
        serves: the role is ended when the others have ended.
    """

    step: str = ""
    in_container: bool = False
    launcher: str = ""
    role: str = ""
    roles: Mapping[str, int] = field(default_factory=dict)
    serves: bool = False


@runtime_checkable
class Backend(Protocol):
    """A row of the table: how to run one kind of program."""

    name: str

    def program(self, intent: Intent, layout: Layout, context: BackendContext) -> RankProgram:
        """The command of each task and its variables, ports and helpers. Raises InputError if impossible."""
        ...


def command(intent: Intent) -> tuple[str, ...]:
    """The program's words; a ``*.py`` file and ``-m MODULE`` are run by the first python on PATH, the stack's."""
    return runnable(intent.program)


def runnable(words: Sequence[str]) -> tuple[str, ...]:
    """Words of a program as they are executed."""
    return ("python", *words) if words and (words[0].endswith(".py") or words[0] == "-m") else tuple(words)
