"""``stackyard bench imports``: how long many ranks take to import a stack at once, and what more ranks would take."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_table, show_text
from stackyard.cli.study.bench import Sizes
from stackyard.core.findings import counted
from stackyard.study.api import ImportRequest, QueueFit, Storm, compared_variants, import_launches, import_storms


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
        show_json(planned) if quiet else _show_planned(planned)
        return
    storms = import_storms(request, context.job_workspace(), lambda text: None if quiet else echo(text, err=True))
    if quiet:
        show_json([{**asdict(storm), "sentences": _sentences(storm)} for storm in storms])
        return
    _show(storms)


def _show_planned(planned: list[dict[str, object]]) -> None:
    """The measurements, a row each."""
    columns = ("variant", "nodes", "ranks_per_node", "repeat")
    show_table([{name: str(row[name]) for name in columns} for row in planned], columns)


def _show(storms: list[Storm]) -> None:
    """Two tables with all variants side by side, then the sentences of each."""
    rows = [
        {"variant": storm.variant, "on": storm.one["file_system"], "names": f"{storm.one['names']:,}",
         "shared": f"{storm.shared_names:,}",
         "calls": f"{storm.one['calls']:,}" if storm.one["calls"] else "?",
         "read MiB": _mib(storm.one["read_bytes"]), "mapped MiB": _mib(storm.one["mapped_bytes"]),
         "CPU s": f"{storm.one['cpu_s']:.2f}", "first s": f"{storm.first_s:.2f}", "again s": f"{storm.again_s:.2f}"}
        for storm in storms
    ]  # fmt: skip
    show_text(click.style(f"import {', '.join(storms[0].one['modules'])}", bold=True))
    show_table(rows, tuple(rows[0]))
    show_text("")
    times = [
        {"nodes": f"{point.nodes:,}", "ranks": f"{point.nodes * point.per_node:,}",
         **{f"{storm.variant} s": f"{storm.points[i].seconds:.2f}" for storm in storms}}
        for i, point in enumerate(storms[0].points)
    ]  # fmt: skip
    show_table(times, tuple(times[0]))
    for storm in storms:
        show_text(f"\n{click.style(storm.variant, bold=True)}")
        for sentence in _sentences(storm):
            show_text(f"  {sentence}")


def _mib(number: int | None) -> str:
    return "?" if number is None else f"{number / (1 << 20):.1f}"


def _sentences(storm: Storm) -> list[str]:
    """What was counted and how; whether nodes keep names; the queue and its predictions, or why there are none."""
    most = sorted(storm.one["file_systems"].items(), key=lambda item: -item[1])[:4]
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in most)
    found = [f"names by file system: {kinds}"]
    if storm.one["counted_by"] != "strace":
        found.append("names are those that Python tells of (strace cannot run there): look-ups by stat and the "
                     "search of the loader are missing, and the true number is several times larger")  # fmt: skip
    if storm.keeps_names:
        found.append(f"a node keeps names: the first import took {storm.first_s:.2f} s, the next {storm.again_s:.2f} s")
    return found + (_of_fit(storm, storm.fit) if storm.fit else _unloaded(storm))


def _unloaded(storm: Storm) -> list[str]:
    nodes, ranks = max(p.nodes for p in storm.points), max(p.nodes * p.per_node for p in storm.points)
    found = [f"the server was not loaded: no prediction above {counted(ranks, 'rank')} on {counted(nodes, 'node')}"]
    waited = sum(storm.cores.are_busy(point) for point in storm.points)
    if waited:
        found.append(f"ranks waited for cores in {waited} of {counted(len(storm.points), 'size')}: those are left out")
    if storm.is_warm and storm.shared_names:
        found.append("nodes kept names between the measurements: --pause S or --cold COMMAND makes them forget")
    return found


def _of_fit(storm: Storm, fit: QueueFit) -> list[str]:
    names = storm.shared_names or storm.one["names"]
    asks = "each node asks once" if fit.who == "nodes" else "each rank asks"
    found = [
        f"{asks}: {fit.own_s:.2g} s of an import are its own (z), {fit.server_s:.2g} s the server's (s), that is "
        f"{1000 * fit.server_s / names:.2g} ms for each of {names:,} names; above {fit.knee:.0f} {fit.who} it sets the "
        "time",
        f"fitted to up to {fit.most:,} {fit.who}, within {100 * fit.error:.0f} % of each time",
    ]  # fmt: skip
    return found + [
        f"{line['ranks']:,} ranks: {_duration(line['seconds'])}, if {line['assuming']}" for line in storm.predicted
    ]


def _duration(seconds: object) -> str:
    number = float(str(seconds))
    if number < 100:
        return f"{number:.1f} s"
    return f"{number / 60:.0f} min" if number < 7200 else f"{number / 3600:.1f} h"
