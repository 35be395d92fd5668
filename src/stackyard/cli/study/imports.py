"""``stackyard bench imports``: how long many ranks take to import a stack at once, and what more ranks would take."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.cli.study.bench import Sizes
from stackyard.cli.study.importsview import sentences, show, show_planned
from stackyard.study.api import ImportRequest, compared_variants, import_launches, import_storms


@verb(
    ("a revision and an image of it, on the nodes of this allocation",
     "stackyard bench imports --with pytorch/2.13,pytorch.sif --module torch"),
    ("an environment, with names forgotten before each measurement",
     "stackyard bench imports --with plain:./venv --cold 'sudo drop-caches'"),
)  # fmt: skip
@click.option("--with", "what", multiple=True, metavar="[NAME=]WHAT,...", help="Revisions, images, plain:DIRECTORY.")
@click.option("--module", "modules", multiple=True, metavar="NAME,...",
              help="Default: torch, tensorflow, jax or numpy, the first that is there.")  # fmt: skip
@click.option("--staged", is_flag=True, help="Each image also copied to the nodes first.")
@click.option("-N", "--nodes", type=Sizes(), help="Default: 1, 2, 4 ... all of the allocation.")
@click.option("-r", "--ranks", "per_node", type=Sizes(), help="Per node. Default: 1, 2, 4 ... its cores, 64 at most.")
@click.option("--repeat", type=click.IntRange(1, 100), default=3, show_default=True, help="The median counts.")
@click.option("--pause", type=click.FloatRange(0), default=0, metavar="S",
              help="Seconds before each measurement, in which nodes forget names.")  # fmt: skip
@click.option("--cold", default="", metavar="COMMAND", help="Runs on each node before each measurement.")
@click.option("--predict-ranks-per-node", "predicted", type=click.IntRange(1), metavar="N",
              help="In predictions. Default: the most that are measured.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the measurements; start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements and predictions as JSON.")
def command(context: Context, /, what: tuple[str, ...], **options: Any) -> None:
    """Measure the import of a stack by growing numbers of ranks at once.

    For one import: distinct names, file calls, bytes and CPU seconds. Then the time of the slowest rank for more ranks
    on one node, and for more nodes, as ordinary launches on this node or on those of this allocation. A closed queue
    is fitted where the server was loaded, and predicts 1,000 and 100,000 ranks; where it was not, nothing is predicted.
    """
    items = [one for text in what for one in text.split(",")]
    request = ImportRequest(
        compared_variants(items), options["staged"],
        tuple(name for text in options["modules"] for name in text.split(",")),
        options["nodes"] or (), options["per_node"] or (), options["repeat"], options["pause"], options["cold"],
        options["predicted"] or 0,
    )  # fmt: skip
    quiet = options["as_json"]
    if options["dry_run"]:
        planned = import_launches(request, context.job_workspace())
        show_json(planned) if quiet else show_planned(planned)
        return
    storms = import_storms(request, context.job_workspace(), lambda text: None if quiet else echo(text, err=True))
    if quiet:
        show_json([{**asdict(storm), "sentences": sentences(storm)} for storm in storms])
        return
    show(storms)
