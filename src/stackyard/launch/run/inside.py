"""What the hub waits for where ranks start inside an image: the agents' own step, and then each rank in its image."""

from __future__ import annotations

from stackyard.host.run import process
from stackyard.launch.node.step import StepFile
from stackyard.launch.run.launcher import Launcher
from stackyard.launch.run.seen import StepFacts

EXITED_S, LATE_S = 0.3, 3.0
"""Time for messages after the launcher has exited; and for agents in a step of their own: they name what is missing."""
SAID = "stackyard: "


class RanksInside:
    """The state of ranks that start inside an image. `agents`: the step of the agents; None: the ranks start them."""

    def __init__(
        self, agents: process.Child | None, file: StepFile, seen: StepFacts, launcher: Launcher, since: float
    ) -> None:
        self._agents, self._file, self._seen, self._launcher, self._since = agents, file, seen, launcher, since

    @property
    def wait_s(self) -> float:
        """How long nodes may still report after the launcher has exited."""
        return LATE_S if self._agents else EXITED_S

    def no_agents(self) -> str:
        """Why the agents' step has exited, or empty while it runs."""
        if self._agents is None or self._agents.poll() is None:
            return ""
        lines = self._agents.output().strip().split("\n")
        why = next((line for line in lines if line.startswith(SAID)), lines[-1])
        return f"the step of the agents exited ({why.removeprefix(SAID)})"

    @property
    def count(self) -> str:
        """How many ranks are in their image; empty once all are."""
        there = len(self._seen.places)
        return "" if self._agents is None or there == self._file.tasks else f"{there} of {self._file.tasks} ranks in it"

    def failure(self, now: float) -> str:
        """Why ranks that are not in their image will not come any more, or empty."""
        if self._launcher.ended and now > self._launcher.ended + EXITED_S:
            return f"the image did not start: {self._seen.not_started()}"
        return self._seen.not_started() if now > self._since + self._file.start_s else ""
