"""``stackyard bench``: a program measured for several sizes or variants, several times; kept as a study."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb, options_of, verb
from stackyard.cli.jobs.intents import intent_options, make_intent, option_of, output, settle_queue
from stackyard.core.errors import InputError

if TYPE_CHECKING:
    from stackyard.study.api import StudyRequest

PARTS = ("collectives", "imports")
"""What is measured without a program of yours; each is a command of its own."""
measured = options_of("Study")
OWN = ("nodes", "array", "output", "pack")
"""Options of a job that a study does not have, or has with another meaning."""


class _Bench(Verb):
    """``bench PROGRAM``, or one of `PARTS` by its first word."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command that the first word names."""
        if args[:1] and args[0] in PARTS:
            part = importlib.import_module(f"stackyard.cli.study.{args[0]}").command
            context: click.Context = part.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
            return context
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and say of an unknown option where those of the program belong."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            close = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
            raise InputError(
                f"no such option: {error.option_name}{close}",
                hint=f"options of the program come after --: stackyard bench PROGRAM -- {error.option_name} ...",
            ) from error


class Sizes(click.ParamType):  # type: ignore[type-arg]
    """Numbers of nodes, separated by commas."""

    name = "N,N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        if not all(word.isdecimal() and int(word) for word in words):
            self.fail(f"{value!r} is not a list of numbers of nodes, such as 1,2,4", param, ctx)
        return tuple(map(int, words))


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A percentage, with or without its sign."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number before the sign."""
        if isinstance(value, float):
            return value
        return click.FloatRange(0, 100, min_open=True)(str(value).removesuffix("%"), param, ctx)


@verb(
    ("a program on 1, 2 and 4 nodes, six times each",
     "stackyard bench train.py --nodes 1,2,4 -t 10 -- --batch '{ranks*16}'"),
    ("two revisions and an environment of yours, in pairs on the same nodes",
     "stackyard bench train.py --compare pytorch/2.13,pytorch.sif,plain:./venv --nodes 2"),
    ("what would be run, for how many node-hours", "stackyard bench study.yaml --dry-run"),
    ("what a stopped study still lacks", "stackyard bench --continue studies/train"),
    cls=_Bench,
)  # fmt: skip
@measured("-N", "--nodes", "sizes", type=Sizes(), help="The numbers of nodes. Default: 1.")
@measured("--repeat", type=click.IntRange(1), metavar="N", help="Runs of each size, 6; or pairs of a comparison, 8.")
@measured("--compare", multiple=True, metavar="[NAME=]WHAT,...", help="Revisions, images, or plain:DIRECTORY.")
@measured("--vary", multiple=True, metavar="NAME=VALUE,...", help="A variant for each value of --NAME, or of {NAME}.")
@measured("--allocations", type=click.IntRange(1), metavar="K", help="Jobs of a comparison; 6 hold beyond their nodes.")
@measured("--strong", "kind", flag_value="strong", help="The same problem on more nodes.")
@measured("--weak", "kind", flag_value="weak", help="A problem that grows with the ranks.")
@measured("--throughput", "kind", flag_value="throughput", help="Independent work: no efficiency.")
@measured(
    "--measure", multiple=True, metavar="NAME=PATTERN", help="Metrics. Default: those that the output is known to have."
)
@measured("--until", type=Percent(), metavar="PERCENT", help="Repeat until the median is known to ± this.")
@measured(
    "--warmup-runs", type=click.IntRange(0), metavar="N", help="Per allocation and variant, not counted. Default: 1."
)
@measured("--warmup-steps", type=click.IntRange(0), metavar="N", help="Steps of a run left out. Default: 10 or 10 %.")
@measured("--pack", "packed", is_flag=True, default=None, help="All runs of a size in one job: no interval.")
@measured("--seed", type=click.IntRange(1), metavar="N", help="Of the drawn order. Default: drawn, and recorded.")
@measured("-o", "--directory", type=click.Path(path_type=Path), metavar="DIR", help="Default: studies/PROGRAM.")
@measured("--continue", "go_on", type=click.Path(path_type=Path), metavar="DIR", help="Run what a study lacks.")
@measured("--retry-failed", is_flag=True, help="With --continue: what failed too.")
@measured("--yes", is_flag=True, help="Do not ask about the node-hours.")
@intent_options(without=OWN)
@click.option("--inside", hidden=True, type=click.Path(path_type=Path), help="The study of this batch job.")
@click.option("--job-of-study", hidden=True, help="Which of its jobs and attempts this is.")
@output("--dry-run", is_flag=True, help="Print jobs, runs and node-hours; write nothing.")
@output("--json", "as_json", is_flag=True, help="Print the plan or the results as JSON.")
def command(context: Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Measure PROGRAM on several numbers of nodes or in several variants, several times, and keep it as a study.

    Options of the program come after `--`. {nodes} and {ranks} in its words are replaced, in formulas too: {ranks*16}.
    A study.yaml in place of PROGRAM has all of this as a file; words after it are added to its program's. With a
    scheduler each repeat is a job of its own, each comparison is made of pairs within one job; -t is the time of one
    run. Elsewhere, and within an allocation, the study runs here.

    `bench collectives` measures the network between the ranks, `bench imports` the import of a stack by many ranks.
    """
    from stackyard.cli.study import benchview

    if options["inside"]:
        benchview.inside(context, options["inside"], options["job_of_study"] or "", again=options["retry_failed"])
    elif options["go_on"]:
        if program:
            raise InputError("--continue takes no program: the study has one", hint="stackyard bench --continue DIR")
        benchview.go_on(context, options["go_on"], options)
    else:
        benchview.begin(context, request_of(context, program, options), options)


def request_of(context: Context, program: tuple[str, ...], options: dict[str, Any]) -> StudyRequest:
    """The study of a command line: a study.yaml with changes, or a program with options.

    Raises:
        InputError: a value is wrong, or no program is given.
    """
    from stackyard.launch.api import jobs
    from stackyard.study.api import StudyRequest, compared_variants, load_study, measured_by, varied_values

    settle_queue(context.job_workspace(), options)
    base, words = None, program
    if program and Path(program[0]).suffix in (".yaml", ".yml"):
        base = load_study(Path(program[0]))
        words = (*base.job.program, *program[1:])
    elif not program:
        raise InputError("no program and no study.yaml", hint="name one last: stackyard bench train.py --nodes 1,2,4")
    vary, words = varied_values(options["vary"], words)
    job = make_intent(options, words, base=base.job if base else None)
    if not job.cwd:
        job = job.model_copy(update={"cwd": str(Path.cwd())})
    asked = {
        "nodes": options["sizes"], "repeat": options["repeat"], "allocations": options["allocations"],
        "kind": options["kind"], "until_percent": options["until"], "warmup_runs": options["warmup_runs"],
        "warmup_steps": options["warmup_steps"],
        "pack": options["packed"], "seed": options["seed"], "vary": vary or None,
        "variants": compared_variants([one for text in options["compare"] for one in text.split(",")]) or None,
        "measure": tuple(map(measured_by, options["measure"])) or None,
    }  # fmt: skip
    values = {name: getattr(base, name) for name in StudyRequest.model_fields} if base else {}
    return jobs.made(
        StudyRequest, {**values, **{k: v for k, v in asked.items() if v is not None}, "job": job}, option_of
    )
