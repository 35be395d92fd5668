"""What a study is asked to measure: `StudyRequest`, from ``study.yaml`` or from the options of ``stackyard bench``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import OptionalPath, StagedPath
from stackyard.inputs.sites.references import StudyReference
from stackyard.launch.api.jobs import Intent, RankOptions
from stackyard.study.arguments import SIZES, names_in, sized
from stackyard.study.metrics.model import Metric
from stackyard.study.statistics.ratios import pairs_needed
from stackyard.study.statistics.series import FEWEST

FORMAT = 1
PAIRS, REPEATS = 8, 6
"""How often a comparison and a size is measured by default; 6 is the least with a 95 % interval."""
MOST_RUNS = 100_000
Kind = Literal["", "strong", "weak", "throughput"]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,79}")
"""Of a variant: it is part of file names and a column of a table."""
Nodes = Annotated[int, Field(ge=1, le=1_000_000)]


class Variant(RankOptions):
    """One of several things to compare: the keys of the job that differ. Empty or None: as in the job."""

    stack: str = Field("", description="A published revision, e.g. pytorch/2.13")
    plain: OptionalPath = Field("", description="A virtual or conda environment that Stackyard did not make")
    stage: tuple[StagedPath, ...] = Field((), description="Copied to every node before the ranks start")
    smt: int | None = Field(None, ge=1)
    distribution: Literal["", "block", "cyclic"] = ""
    controller: Literal["", "auto", "mpi", "gloo"] = ""
    launcher: str = ""
    launcher_args: tuple[str, ...] = Field((), description="Extra words of the launch line, e.g. a binding")
    arguments: dict[str, str] = Field({}, description="Values of {NAME} in the words of the program")
    words: tuple[str, ...] = Field((), description="Words after those of the program")

    def of_job(self) -> dict[str, Any]:
        """The keys of the job that it changes; `plain`, `variables`, `arguments` and `words` apart."""
        own = {"plain", "variables", "arguments", "words"}
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in own}
        return {name: value for name, value in values.items() if value not in ("", None, ())}


class StudyRequest(LateModel):
    """A study: one job, measured for several numbers of nodes or several variants, several times."""

    name: str = Field("", description="Of its directory; empty: the program's name")
    job: Intent = Intent()
    nodes: tuple[Nodes, ...] = Field((1,), description="The sizes, e.g. [1, 2, 4]")
    kind: Kind = Field(
        "", description="strong: the same problem; weak: a problem that grows with the ranks; throughput"
    )
    variants: dict[str, Variant] = Field({}, description="What is compared, in pairs within one allocation")
    vary: dict[str, tuple[str, ...]] = Field({}, description="Values of {NAME} in the program's words: a variant each")
    repeat: int = Field(0, ge=0, le=10_000, description="Runs of each size, or pairs of a comparison; 0: 6, or 8")
    allocations: int = Field(1, ge=1, le=1000, description="Allocations of a comparison; 6 or more: beyond these nodes")
    pack: bool = Field(False, description="All runs of a size in one allocation: no interval")
    warmup_runs: int = Field(1, ge=0, le=100, description="Runs of each variant per allocation that do not count")
    warmup_steps: int | None = Field(None, ge=0, description="Steps of the program left out; None: 10 or 10 %")
    until_percent: float = Field(0, ge=0, le=99, description="Repeat until the median is known to this percentage")
    most_repeats: int = Field(50, ge=1, le=10_000, description="With until_percent: the most runs of a size")
    seed: int = Field(0, ge=0, description="Of the drawn order; 0: drawn")
    measure: tuple[Metric, ...] = Field((), description="The metrics; empty: what the output is known to contain")
    references: tuple[StudyReference, ...] = Field((), description="Medians that it has to reach: else exit status 3")

    def checked(self) -> None:
        """Raise ValueError if values contradict each other."""
        if self.job.nodes != 1 or self.job.least_nodes:
            raise ValueError("the numbers of nodes are those of the study: leave `nodes` out of `job`")
        if self.job.roles:
            raise ValueError("a study measures a job with one program, not one with roles")
        if not self.job.program:
            raise ValueError("`job` has no program")
        if not self.nodes:
            raise ValueError("`nodes` has no number of nodes")
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("a number of nodes is listed twice")
        for name in self.variants:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of a variant: letters, digits and . _ = + - only")
        if self.pack and (self.compares or self.allocations > 1):
            raise ValueError("a comparison runs within one allocation already: leave `pack` out")
        if self.allocations > 1 and not self.compares:
            raise ValueError("`allocations` belongs to a comparison: each repeat of a size is an allocation already")
        if self.until_percent and self.compares:
            raise ValueError("`until_percent` belongs to sizes: a comparison has a fixed number of pairs")
        runs = len(self.nodes) * len(self.all_variants) * self.repeats * self.allocations
        if runs > MOST_RUNS:
            raise ValueError(f"{runs:,} runs; a study has at most {MOST_RUNS:,}")

    @property
    def compares(self) -> bool:
        """Whether it has several variants, which are compared in pairs."""
        return len(self.all_variants) > 1

    @property
    def repeats(self) -> int:
        """Runs of each size, or pairs in each allocation of a comparison."""
        return self.repeat or (PAIRS if self.compares else REPEATS)

    @property
    def all_variants(self) -> dict[str, Variant]:
        """The variants, each with every combination of the varied values; ``job`` if there is only the job itself."""
        found = {}
        axes = [[(name, value) for value in values] for name, values in self.vary.items()]
        for name, variant in (self.variants or {"": Variant()}).items():
            for chosen in product(*axes):
                full = "+".join(filter(None, [name, *(f"{key}={_safe(value)}" for key, value in chosen)])) or "job"
                changed = {"arguments": {**dict(chosen), **variant.arguments}}
                found[full] = variant.model_copy(update=changed) if chosen else variant
        return found

    @property
    def scaling(self) -> Kind:
        """The kind of scaling: as asked, else weak if an argument grows with the size, else strong."""
        if self.kind:
            return self.kind
        return "weak" if any("//" not in word for word in sized(self.job.program).values()) else "strong"


def _safe(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", value)[:40]


def load_study(path: Path) -> StudyRequest:
    """Read a ``study.yaml``; paths of variants are relative to it.

    Raises:
        InputError: it cannot be read, is not YAML, or has unknown keys or wrong values: all of them, with their places.
    """
    from stackyard.inputs.reading.versioned import load_versioned

    return load_versioned(path, StudyRequest, FORMAT, "a study", "write `key: value` lines")


def study_text(request: StudyRequest) -> str:
    """The ``study.yaml`` of a request: the keys that differ from their defaults."""
    from stackyard.launch.api.jobs import model_text

    return model_text(request.model_copy(update={"job": request.job.recorded()}), FORMAT)


def compared(items: Sequence[str]) -> dict[str, Variant]:
    """The variants of ``--compare``: ``[NAME=]REV``, ``[NAME=]IMAGE``, ``[NAME=]plain:DIRECTORY``.

    Raises:
        InputError: two of them have the same name, or a name is not usable.
    """
    found: dict[str, Variant] = {}
    for item in items:
        name, equals, what = item.partition("=")
        name, what = (name, what) if equals else ("", item)
        kind, variant = _what(what)
        if not what:
            raise InputError(
                f"--compare {item}: nothing is named", hint="write NAME=REV, NAME=IMAGE, or NAME=plain:DIRECTORY"
            )
        name = name or _safe(kind).lstrip("-._")
        if name in found:
            raise InputError(f"--compare: two variants are called {name}", hint="name them: --compare a=REV,b=REV")
        if not NAME.fullmatch(name):
            raise InputError(f"--compare: {name!r} cannot be the name of a variant",
                             hint="write NAME=REV with letters, digits and . _ = + -")  # fmt: skip
        found[name] = variant
    return found


def _what(text: str) -> tuple[str, Variant]:
    if text.startswith("plain:"):
        directory = text.removeprefix("plain:")
        return Path(directory).name or "plain", Variant(plain=str(Path(directory).absolute()))
    if Path(text).suffix in (".sif", ".sqsh", ".squashfs", ".img") or text.startswith(("/", "./", "../")):
        return Path(text).name, Variant(container=str(Path(text).absolute()))
    return text, Variant(stack=text)


def varied(items: Sequence[str], program: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The values of ``--vary NAME=A,B``, and the program's words: with ``--NAME {NAME}`` if they do not have it.

    Raises:
        InputError: it is not NAME=VALUE,VALUE, or the name belongs to the sizes.
    """
    found: dict[str, tuple[str, ...]] = {}
    words = tuple(program)
    for item in items:
        name, equals, text = item.partition("=")
        values = tuple(text.split(","))
        if not (equals and name.isidentifier() and all(values)) or len(set(values)) != len(values):
            raise InputError(f"--vary {item}: not NAME=VALUE,VALUE", hint="e.g. --vary batch=64,128")
        if name in SIZES or name in found:
            raise InputError(
                f"--vary {name}: this name is taken", hint=f"{', '.join(SIZES)} are the sizes; use --nodes"
            )
        if name not in names_in(words):
            words = (*words, f"--{name}", f"{{{name}}}")
        found[name] = values
    return found, words


def remarks(request: StudyRequest) -> list[str]:
    """What is odd: too few pairs for a verdict, a weak study whose problem does not grow, a strong one whose does."""
    return [*_few_pairs(request), *_odd_sizes(request)]


def _few_pairs(request: StudyRequest) -> list[str]:
    comparisons = len(request.nodes) * (len(request.all_variants) - 1)
    across = request.allocations >= FEWEST
    have, needed = request.allocations if across else request.repeats * request.allocations, pairs_needed(comparisons)
    if not comparisons or have >= needed:
        return []
    option, unit = ("--allocations", "allocations") if across else ("--repeat", "pairs")
    return [f"{have} {unit}: no verdict, {counted(comparisons, 'comparison')} need {needed} ({option} {needed})"]


def _odd_sizes(request: StudyRequest) -> list[str]:
    if len(request.nodes) < 2:
        return []
    grows = sized(request.job.program)
    if request.kind == "weak" and not grows:
        return ["--weak, but no argument depends on {nodes} or {ranks}: the problem grows only if the program itself "
                "takes its size per rank"]  # fmt: skip
    if request.kind == "strong":
        growing = {option: word for option, word in grows.items() if "//" not in word}
        return [f"--strong, but {option} {word} grows with the size: the problem is not the same"
                for option, word in growing.items()]  # fmt: skip
    return []


def as_mapping(request: StudyRequest) -> Mapping[str, Any]:
    """Its values as JSON, without secrets."""
    plain: Mapping[str, Any] = request.model_copy(update={"job": request.job.recorded()}).model_dump(mode="json")
    return plain
