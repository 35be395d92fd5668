"""What a search is asked: `SearchRequest`, from ``space.yaml`` and the options of ``stackyard tune``."""

from __future__ import annotations

import builtins
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import VariableName
from stackyard.launch.api.jobs import Intent
from stackyard.study.arguments import names_in
from stackyard.study.metrics.model import Metric

FORMAT = 1
MOST_TRIALS, MOST_CHOICES, MOST_POINTS = 100_000, 1_000, 1_000_000
LOWER = re.compile(r"(?i)loss|err|perplexity|ppl|mse|mae|rmse|nll|time|seconds|latency|regret|cost")
HIGHER = re.compile(r"(?i)acc|score|auc|f1|precision|recall|reward|bleu|iou|dice|r2|per_s|throughput")
"""Names of metrics whose better direction is known."""
OWN = ("budget", "checkpoint", "directory", "trial")
"""The names in braces that are not parameters."""
Name = Annotated[VariableName, Field(description="Passed as --NAME VALUE, or in place of {NAME}")]
Search = Literal["random", "grid", "tpe"]
Scheduler = Literal["none", "halving", "asha"]


class Parameter(LateModel):
    """The values of one parameter: exactly one of the ranges, or a choice."""

    uniform: tuple[float, float] | None = Field(None, description="Numbers from the first to the second")
    loguniform: tuple[float, float] | None = Field(None, description="The same, evenly by their logarithms")
    int: tuple[builtins.int, builtins.int] | None = Field(None, description="Whole numbers, both ends included")
    choice: tuple[str, ...] = Field((), description="One of these words")
    points: builtins.int = Field(5, ge=2, le=MOST_CHOICES, description="Of a range, in a grid")

    def checked(self) -> None:
        """Raise ValueError for two ranges, an empty one, or a logarithm of what is not above 0."""
        kinds = [name for name in ("uniform", "loguniform", "int", "choice") if getattr(self, name)]
        if len(kinds) != 1:
            have = " and ".join(kinds) or "none"
            raise ValueError(f"it needs one of uniform, loguniform, int and choice, and has {have}")
        if kinds == ["choice"]:
            if len(set(self.choice)) != len(self.choice) or len(self.choice) > MOST_CHOICES:
                raise ValueError(f"choice: up to {MOST_CHOICES:,} different words")
            return
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"{self.kind}: the first number has to be below the second")
        if self.kind == "loguniform" and low <= 0:
            raise ValueError("loguniform: both numbers have to be above 0")

    @property
    def kind(self) -> str:
        """``uniform``, ``loguniform``, ``int`` or ``choice``."""
        return next(name for name in ("uniform", "loguniform", "int", "choice") if getattr(self, name))

    @property
    def range(self) -> tuple[float, float]:
        """The ends of a range."""
        low, high = self.uniform or self.loguniform or self.int or (0, 0)
        return float(low), float(high)

    @property
    def size(self) -> float:
        """How many values it has; infinite for a range of numbers."""
        if self.int:
            return self.int[1] - self.int[0] + 1
        return len(self.choice) or math.inf


class Rungs(LateModel):
    """When trials are compared, and the worse ones stopped."""

    min: builtins.int = Field(1, ge=1, le=10**12, description="Of the resource, at the first comparison")
    max: builtins.int = Field(ge=1, le=10**12, description="Of the resource, of a trial that is never stopped")
    eta: builtins.int = Field(3, ge=2, le=1000, description="One in so many goes on")

    def checked(self) -> None:
        """Raise ValueError if there is nothing to compare."""
        if self.min > self.max:
            raise ValueError("rungs: min is above max")

    @property
    def budgets(self) -> tuple[builtins.int, ...]:
        """The resource of each rung."""
        found, next_one = [], self.min
        while next_one < self.max:
            found.append(next_one)
            next_one *= self.eta
        return (*found, self.max)


class TrialShape(LateModel):
    """What one trial needs."""

    nodes: int = Field(1, ge=1, le=100_000, description="More than one: each trial is a job step of its own")
    ranks: int = Field(1, ge=1, le=1000, description="Processes on each node")
    cores: int = Field(0, ge=0, le=10_000, description="On each node; 0: its share of a node with GPUs, else 1")
    gpus: int | None = Field(None, ge=0, le=1000, description="On each node; None: 1 where nodes have GPUs")
    time_min: float = Field(0, ge=0, le=1_000_000, description="A trial that takes longer has failed; 0: no limit")
    grace_s: float = Field(
        10, ge=0, le=3600, description="From SIGTERM, in which it may write a checkpoint, to SIGKILL"
    )


class SearchRequest(LateModel):
    """A search: parameters of a program, a metric, and how it is looked for the best."""

    name: str = Field("", description="Of its directory; empty: the program's name")
    parameters: dict[Name, Parameter] = Field(description="What is varied")
    metric: Metric = Field(description="name; better: lower or higher; pattern, or key of a JSON line (default: name)")
    resource: str = Field("", description="The key beside the metric that counts progress, e.g. epoch; or a pattern")
    take: Literal["last", "best"] = Field("last", description="Which value of a trial without rungs counts")
    rungs: Rungs | None = Field(None, description="For halving and asha")
    trial: TrialShape = TrialShape()
    pass_as: Literal["arguments", "variables"] = Field("arguments", description="How parameters reach the program")
    job: Intent = Intent()
    trials: int = Field(0, ge=0, le=MOST_TRIALS, description="0: 16, or all points of a grid")
    search: Search = "random"
    scheduler: Scheduler = "none"
    engine: Literal["stackyard", "ray"] = Field("stackyard", description="ray: a program that is written for Ray Tune")
    slots: int = Field(0, ge=0, le=100_000, description="Trials on each node at a time; 0: as many as fit")
    allocations: int = Field(1, ge=1, le=10_000, description="Jobs one after the other, until the search is done")
    give_up_after: int = Field(4, ge=0, description="Stop if the first so many trials have no value; 0: never")
    seed: int = Field(0, ge=0, le=(1 << 32) - 1, description="0: drawn, and recorded")

    def checked(self) -> None:
        """Raise ValueError if values contradict each other."""
        if not self.parameters:
            raise ValueError("`parameters` has none")
        if taken := sorted({*self.parameters} & {*OWN}):
            raise ValueError(f"{taken[0]} cannot be the name of a parameter: {{{taken[0]}}} has a meaning of its own")
        if self.metric.tag:
            raise ValueError("metric: event files are read at the end of a run only: use key or pattern")
        if not self.better:
            raise ValueError(
                f"metric: whether lower or higher is better is not known of {self.metric.name}: add better"
            )
        if self.scheduler != "none" and not self.rungs:
            raise ValueError(f"{self.scheduler} compares trials at rungs: add rungs: {{min: 1, max: 27}}")
        if self.scheduler != "none" and not self.resource:
            raise ValueError(f"{self.scheduler} needs `resource`: the key beside the metric that counts, e.g. epoch")
        if self.job.roles:
            raise ValueError("a trial is a program, not a job with roles")
        if self.search == "grid" and self.grid_size > MOST_POINTS:
            raise ValueError(f"the grid has {self.grid_size:,} points; at most {MOST_POINTS:,}: lower `points`")
        if self.search == "grid" and self.scheduler == "none" and self.trials > self.grid_size:
            self.__dict__["trials"] = self.grid_size

    @property
    def better(self) -> str:
        """``lower`` or ``higher``; empty: neither said nor known by the name."""
        name = self.metric.name
        known = "lower" if LOWER.search(name) else "higher" if HIGHER.search(name) else ""
        return self.metric.better or known

    @property
    def grid_size(self) -> int:
        """The points of a grid."""
        return math.prod(int(min(one.points if one.kind != "choice" else one.size, one.size))
                         for one in self.parameters.values())  # fmt: skip

    @property
    def size(self) -> float:
        """How many different trials there are; infinite with a range of numbers."""
        if self.search == "grid":
            return self.grid_size
        return math.prod(one.size for one in self.parameters.values())

    @property
    def count(self) -> int:
        """How many trials there will be: no more than the space has points."""
        asked = self.trials or (self.grid_size if self.search == "grid" else 16)
        return int(min(asked, self.size))

    @property
    def budgets(self) -> tuple[int, ...]:
        """The resource of each rung; without a scheduler the largest alone, 0: none is known."""
        if self.scheduler == "none" or not self.rungs:
            return (self.rungs.max if self.rungs else 0,)
        return self.rungs.budgets

    @property
    def remarks(self) -> list[str]:
        """What is odd about it."""
        found, name = [], self.metric.name
        known = "lower" if LOWER.search(name) else "higher" if HIGHER.search(name) else self.better
        if known != self.better:
            found.append(f"{self.better} is better for {name}? Of a {name} it is usually {known}")
        if self.trials > self.size:
            found.append(
                f"the space has {int(self.size):,} points: {int(self.size):,} trials in place of {self.trials:,}"
            )
        if self.scheduler == "halving" and len(self.budgets) > 1 and self.count < self.rungs_eta:
            found.append(f"halving with {self.count} trials, of which one in {self.rungs_eta} goes on")
        if self.scheduler == "asha":
            found.append("asha decides as results arrive: with several slots another run of it compares other trials; "
                         "halving and one slot repeat exactly")  # fmt: skip
        return found

    @property
    def rungs_eta(self) -> int:
        """One in so many goes on."""
        return self.rungs.eta if self.rungs else 1


def load_space(path: Path) -> SearchRequest:
    """Read a ``space.yaml``.

    Raises:
        InputError: it cannot be read, is not YAML, or has unknown keys or wrong values: all of them, with their places.
    """
    from stackyard.inputs.reading.versioned import load_versioned

    return load_versioned(path, SearchRequest, FORMAT, "a space", "write `key: value` lines")


def space_text(request: SearchRequest) -> str:
    """The ``space.yaml`` of a request: the keys that differ from their defaults, without secrets."""
    from stackyard.launch.api.jobs import model_text

    return model_text(request.model_copy(update={"job": request.job.recorded()}), FORMAT)


def words_of(request: SearchRequest, params: dict[str, Any], own: dict[str, str]) -> list[str]:
    """The words of a trial's program: ``{NAME}`` replaced, and ``--NAME VALUE`` for parameters that are not in them.

    Args:
        own: the values of `OWN`.
    """
    values = {**{name: shown(value) for name, value in params.items()}, **own}
    program = request.job.program
    words = [re.sub(r"(?<!\$)\{(\w+)\}", lambda match: values.get(match[1], match[0]), word) for word in program]
    if request.pass_as == "arguments":
        named = names_in(program)
        words += [word for name in params if name not in named for word in (f"--{name}", values[name])]
    return words


def shown(value: Any) -> str:
    """A value as a word of a command line."""
    return repr(value) if isinstance(value, float) else str(value)
