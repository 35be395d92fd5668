"""Every path of a run, in two classes; no other module joins these strings.

<runs>/2026-11-21-001/
  record.json what was requested, planned and found before the start; written once
  job.sh                      the batch script, as submitted
  status.json                 how it stands, replaced as it changes; holds the end once there is one
  events.jsonl                phases, failures, lost nodes: one JSON object a line, in the order they happened
  placement.json              planned and actual places of the ranks
  image.json                  the digest of an image that the nodes pulled
  stage.json                  what was copied to the nodes, how fast
  preflight.json              what the preflight measured
  batch.log                   the batch script's own output
  stacks/                     stacks of ranks that hung; in recorder/ PyTorch's flight recorders, one file per rank
  profile/<profiler>/         what a profiler wrote, also one that was started while the run was running
  rank.sh  agent.py  plan.json  rankfile ... logs/    the main step; inside.sh and node.sh where ranks start in an image
  private.json                variables of a batch job whose values may be secret, for its owner only
  private.sh                  the same for the ranks of a step; both are removed when the run ends
  attempts/<n>/               an earlier attempt: its step's files and result.json
  preflight/<n>/              the steps of the preflight, with the same files

Runs recorded before have ``receipt.json``, ``gate.json`` and ``gate/`` instead, which are found under the new names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stackyard.core.below import Below
from stackyard.core.late import dataclass

MANY_RANKS = 1000
"""Above so many, the ranks of a node share one log: a directory with a hundred thousand files is of no use."""


@dataclass(frozen=True)
class StepPaths:
    """One start of a launcher. The directory is on a file system that all nodes share."""

    root: Path

    shim = Below("rank.sh")
    """What the launcher starts for every task."""
    inside = Below("inside.sh")
    """The same for a task that starts inside an image; and `node` what starts the agents then."""
    node = Below("node.sh")
    agent = Below("agent.py")
    """The agent and what it needs to know, in one file that only its owner can read: it has the step's secret."""
    plan = Below("plan.json")
    """What the hub knows: `stackyard.launch.node.step.StepFile`."""
    private = Below("private.sh")
    """Variables of every rank whose values may be secret; `records.private` removes it."""
    logs = Below("logs")
    """One file per rank or per node, the launcher's own, and one for each agent that has something to say."""

    def rank_log(self, rank: int) -> Path:
        """The log with both streams of one task."""
        return self.logs / f"rank-{rank:05d}.log"

    def node_log(self, node: int) -> Path:
        """The log with both streams of all tasks of a node that have no separate logs."""
        return self.logs / f"node-{node:05d}.log"

    launcher_log = Below("launcher.log", of="logs")
    """Both streams of the launcher."""
    agents_log = Below("agents.log", of="logs")
    """Both streams of the agents' step, where ranks start inside an image."""
    sidecar_log = Below("sidecar.log", of="logs")
    """Both streams of a backend's helper program."""
    terminal = Below("terminal.json")
    """Where the rank that has your terminal connects to, with a secret; only while it runs."""
    stacks = Below("stacks")
    """Stacks of hanging ranks, one file per rank."""
    profile = Below("profile")
    """What profilers wrote: a directory for each, with its name."""


@dataclass(frozen=True)
class RunPaths:
    """The directory of one run."""

    root: Path

    @property
    def name(self) -> str:
        """``2026-11-21-001``; for a task of an array ``2026-11-21-001.3``."""
        return f"{self.array.name}.{self.root.name}" if self.array else self.root.name

    @property
    def array(self) -> RunPaths | None:
        """The run of the array that this task belongs to; None for any other run."""
        return RunPaths(self.root.parent.parent) if self.root.parent.name == "array" else None

    @property
    def main(self) -> StepPaths:
        """The step that runs the program."""
        return StepPaths(self.root)

    def preflight_step(self, number: int) -> StepPaths:
        """One step of the preflight."""
        return StepPaths(self.preflight_steps / str(number))

    def attempt(self, number: int) -> Path:
        """The files of an earlier attempt, after which the run started again."""
        return self.root / "attempts" / str(number)

    @property
    def preflight_steps(self) -> Path:
        """The directory of the preflight's steps and its ranks' program."""
        return self._renamed("preflight", "gate")

    record = Below("record.json")
    """Written once, before the start."""
    status = Below("status.json")
    """Replaced whole as things change."""
    events = Below("events.jsonl")
    """Appended to."""

    @property
    def placement(self) -> Path:
        """The placement report: planned and actual places of the ranks."""
        return self._renamed("placement.json", "receipt.json")

    usage = Below("usage.json")
    """The memory and the GPUs that the ranks used."""
    image = Below("image.json")
    """The digest that the name of the job's image stood for, where the nodes pull it from a registry."""
    staged = Below("stage.json")
    """What was copied to the nodes before the ranks started."""

    @property
    def preflight(self) -> Path:
        """The report of the preflight."""
        return self._renamed("preflight.json", "gate.json")

    private = Below("private.json")
    """Variables of a batch job whose values may be secret; `records.private` writes and removes it."""

    @property
    def private_files(self) -> Iterator[Path]:
        """All files with possibly secret values: of the job, and of its steps in every attempt."""
        yield self.private
        yield self.main.private
        for steps in (self.preflight_steps, *self.root.glob(f"attempts/*/{self.preflight_steps.name}")):
            yield from (StepPaths(step).private for step in steps.glob("*"))

    script = Below("job.sh")
    """The batch script."""
    batch_log = Below("batch.log")
    """The batch script's own output."""

    def _renamed(self, name: str, before: str) -> Path:
        """`name`, or the file or directory called `before` in a run recorded under the old name."""
        now, old = self.root / name, self.root / before
        return old if old.exists() and not now.exists() else now
