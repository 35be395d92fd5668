"""`Requester`: asks the probes of a run that is running, through its hub and its agents."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.quoting import plain
from stackyard.launch.node.uplink import Uplink, find
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.agentfile import plan_of

FIND_S, ANSWER_S = 10.0, 60.0
AGENT_MOST = 16 << 20


@dataclass(frozen=True)
class Answer:
    """One process's answer. `values` are those of the probe; `error`: why it did not answer."""

    task: int
    pid: int
    host: str
    values: Mapping[str, Any]

    @property
    def error(self) -> str:
        """The reason why it did not answer; empty if it did."""
        return "" if self.values.get("ok") else plain(str(self.values.get("error", "no answer")), 300)


class Requester:
    """A connection to the hub of a step."""

    def __init__(self, step: StepPaths, host: str) -> None:
        """Connect. `host` is where the run's launcher process runs, for the message if that fails.

        Raises:
            InputError: the run is another user's.
            StackyardError: its hub cannot be reached from here.
        """
        plan = plan_of(_own_text(step.agent))
        uplink = find(plan["hubs"], plan["secret"], time.monotonic() + FIND_S, lambda: True, lambda _: None)
        if uplink is None:
            hubs = ", ".join(plan["hubs"])
            raise StackyardError(
                f"cannot connect to the launch at {hubs} from {os.uname().nodename}",
                hint=f"run this command on {host or 'its first node'}, where the launch runs (ssh, or srun --overlap)",
            )
        self._hub: Uplink = uplink

    def ask(self, request: Mapping[str, Any], only: Mapping[int, Sequence[int]] | None = None) -> list[Answer]:
        """The answers of all processes that listen, or of `only` these: of each task the numbers of its processes.

        Raises:
            StackyardError: the ranks do not run, the connection ended, or nothing came in time.
        """
        chosen = None if only is None else {str(task): list(pids) for task, pids in only.items()}
        self._hub.send({"ask": {"request": dict(request), "only": chosen}})
        answers: list[Answer] = []
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            self._hub.send()
            select.select([self._hub.socket], [], [], 0.2)
            messages = self._hub.receive()
            if messages is None:
                raise StackyardError(f"the launch has ended, or its connection: {self._hub.why}")
            for message in messages:
                if "refused" in message:
                    raise StackyardError(f"the launch refuses: {plain(str(message['refused']), 300)}")
                if "answered" in message:
                    answers += _answers(message["answered"])
                if "done" in message:
                    return answers
        raise StackyardError(f"the agents have not answered within {ANSWER_S:g} s")

    def close(self) -> None:
        """Close the connection."""
        self._hub.close()


def _answers(value: Mapping[str, Any]) -> list[Answer]:
    host = plain(str(value["host"]), 255)
    return [Answer(int(one["task"]), int(one["pid"]), host, dict(one["answer"])) for one in value["answers"]]


def _own_text(path: Path) -> str:
    """The text of agent.py, which holds the secret of the step; it must be this user's, and no other's to write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError(f"{path.parent.name} has not started", hint="wait until its ranks run") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="only its user can profile a run") from None
    with os.fdopen(descriptor, encoding="utf-8") as stream:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise InputError(f"{path} is another user's, or open to others", hint="only its user can profile a run")
        return stream.read(AGENT_MOST)
