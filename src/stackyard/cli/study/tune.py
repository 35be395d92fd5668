"""``stackyard tune``: the best parameters of a program, searched over as many allocations as it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb, options_of, verb
from stackyard.cli.jobs.intents import intent_options, make_intent, option_of, output, settle_queue
from stackyard.core.errors import InputError

if TYPE_CHECKING:
    from stackyard.study.api import SearchRequest

searched = options_of("Search")
OWN = ("array", "output", "ranks_per_node", "cores_per_rank", "gpus_per_rank", "profile", "check", "spare", "restarts",
       "by_torchrun", "distribution", "gpu_visibility", "straddle", "hang_min", "logs", "world_check", "signal_s",
       "requeue")  # fmt: skip
"""Options of a job that a search does not have, or sets itself."""


class _Tune(Verb):
    """Says of an unknown option where those of the program belong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            close = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
            raise InputError(
                f"no such option: {error.option_name}{close}",
                hint=f"options of the program come after --: stackyard tune space.yaml PROGRAM -- {error.option_name}",
            ) from error


@verb(
    ("64 trials on four nodes, one GPU each, over up to three jobs of four hours",
     "stackyard tune space.yaml train.py --trials 64 -N 4 --gpus-per-trial 1 -t 4:00 --allocations 3"),
    ("stop the worse trials early, by its rungs", "stackyard tune space.yaml train.py --scheduler halving"),
    ("where, how many at a time, by which script", "stackyard tune space.yaml train.py --dry-run"),
    ("go on with a search that was stopped", "stackyard tune --continue studies/train"),
    cls=_Tune,
)  # fmt: skip
@searched("--trials", type=click.IntRange(1), metavar="N", help="Default: 16, or all points of a grid.")
@searched(
    "--search", type=click.Choice(("random", "grid", "tpe")), help="What comes next; tpe: by Optuna. Default: random."
)
@searched(
    "--scheduler", type=click.Choice(("none", "halving", "asha")), help="Stop the worse trials early. Default: none."
)
@searched("--gpus-per-trial", "gpus", type=click.IntRange(0), metavar="N", help="Default: 1 where nodes have GPUs.")
@searched(
    "--cores-per-trial", "cores", type=click.IntRange(1), metavar="N", help="Default: its share of a node, else 1."
)
@searched("--ranks-per-trial", "ranks", type=click.IntRange(1), metavar="N", help="Processes on each of its nodes.")
@searched(
    "--nodes-per-trial", type=click.IntRange(1), metavar="N", help="More than 1: each trial is a step of its own."
)
@searched("--time-per-trial", "trial_min", type=click.FloatRange(0), metavar="MIN", help="A longer trial has failed.")
@searched("--slots", type=click.IntRange(1), metavar="N", help="Trials on a node at a time. Default: as many as fit.")
@searched("--allocations", type=click.IntRange(1), metavar="K", help="Jobs, each submitted by the one before it.")
@searched("--engine", type=click.Choice(("stackyard", "ray")), help="ray: PROGRAM is written for Ray Tune.")
@searched("--seed", type=click.IntRange(1, (1 << 32) - 1), metavar="N", help="Default: drawn, and recorded.")
@searched("--directory", type=click.Path(path_type=Path), metavar="DIR", help="Default: studies/PROGRAM.")
@searched("--continue", "go_on", type=click.Path(path_type=Path), metavar="DIR", help="Go on with a search.")
@searched("--retry-failed", is_flag=True, help="With --continue: what failed too.")
@searched(
    "--verify", type=click.Path(path_type=Path), metavar="DIR", help="Replay the journal of a search, and compare."
)
@searched("--yes", is_flag=True, help="Do not ask about the node-hours.")
@intent_options(without=OWN)
@click.option("--inside", hidden=True, type=click.Path(path_type=Path), help="The search of this batch job.")
@click.option("--allocation-of-search", "allocation", hidden=True, type=int, default=1, help="Which of its jobs it is.")
@output("--export", type=click.Choice(("journal",)), help="Of the search DIR in place of SPACE.yaml, for Optuna.")
@output("--dry-run", is_flag=True, help="Print slots, trials, node-hours and the batch script; write nothing.")
@output("--json", "as_json", is_flag=True, help="Print the plan or the results as JSON.")
def command(context: Context, /, program: tuple[str, ...], **options: Any) -> None:
    """Search the best parameters of a program: SPACE.yaml [PROGRAM [ARG]...].

    space.yaml has the parameters with their ranges, and the metric; words are added to a program that it has.
    Parameters reach the program as --NAME VALUE, or in place of {NAME} in its words; it prints its metric as a line of
    JSON, or as a pattern matches it. Options of the program come after `--`.

    Trials run side by side, each in a slot of an allocation with its own cores, GPUs, directory and log. The search
    ends when it is done: `--allocations` are as many jobs as it may take, and a trial that was interrupted goes on from
    its checkpoint directory. Without a scheduler, and within an allocation, it runs here.
    """
    from stackyard.cli.study import tuneview

    if options["inside"]:
        tuneview.inside(context, options["inside"], options["allocation"], again=options["retry_failed"])
    elif options["export"]:
        tuneview.export(context, program)
    elif options["verify"]:
        tuneview.verify(context, options["verify"], as_json=options["as_json"])
    elif options["go_on"]:
        if program:
            raise InputError("--continue takes no program: the search has one", hint="stackyard tune --continue DIR")
        tuneview.go_on(context, options["go_on"], options)
    else:
        tuneview.begin(context, request_of(context, program, options), options)


def request_of(context: Context, words: tuple[str, ...], options: dict[str, Any]) -> SearchRequest:
    """The search of a command line: a space.yaml, with changes by options and a program.

    Raises:
        InputError: a value is wrong, or no space or program is given.
    """
    from stackyard.launch.api import jobs
    from stackyard.study.api import SearchRequest, load_space

    settle_queue(context.job_workspace(), options)
    if not words or Path(words[0]).suffix not in (".yaml", ".yml"):
        given = f"{words[0]} is not one" if words else "none is given"
        raise InputError(f"the first word is a space.yaml: {given}", hint="stackyard tune space.yaml train.py")
    base = load_space(Path(words[0]))
    words = words[1:][words[1:2] == ("--",) :]
    job = make_intent(options, (*base.job.program, *words), base=base.job)
    if not job.program:
        raise InputError(
            "no program is given", hint=f"stackyard tune {Path(words[0] if words else 'space.yaml').name} train.py"
        )
    if not job.cwd:
        job = job.model_copy(update={"cwd": str(Path.cwd())})
    shape = {"nodes": options["nodes_per_trial"], "ranks": options["ranks"], "cores": options["cores"],
             "gpus": options["gpus"], "time_min": options["trial_min"]}  # fmt: skip
    asked = {
        name: options[name] for name in ("trials", "search", "scheduler", "slots", "allocations", "engine", "seed")
    }
    trial = {**base.trial.model_dump(), **{k: v for k, v in shape.items() if v is not None}}
    values = {name: getattr(base, name) for name in SearchRequest.model_fields}
    changes = {key: value for key, value in asked.items() if value is not None}
    return jobs.made(SearchRequest, {**values, **changes, "trial": trial, "job": job}, option_of)
