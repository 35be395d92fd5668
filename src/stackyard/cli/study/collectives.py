"""``stackyard bench collectives``: the operations between the ranks, each iteration timed on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.agreeing import agree
from stackyard.cli.context import Context
from stackyard.cli.help import options_of, verb
from stackyard.cli.jobs.intents import intent_options, output, requested
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import ChecksFailed, InputError, MissingError

if TYPE_CHECKING:
    from stackyard.launch.api.jobs import RunPaths, Workspace

measured = options_of("Measurement")
OWN = ("program", "module", "backend", "by_torchrun", "controller", "mpi_abort", "start_method", "stage", "profile",
       "job_file", "array", "requeue", "signal_s", "debug_rank")  # fmt: skip
"""Options of a job that have no meaning here."""


@verb(
    ("all operations over gloo or NCCL, two ranks on each of two nodes", "stackyard bench collectives -N 2 -r 2"),
    ("large all-reduces over MPI, with a stack",
     "stackyard bench collectives --ops all_reduce --sizes 1M:1G --over mpi --with pytorch/2.13 -N 4"),
    ("the same as a batch job", "stackyard bench collectives -N 4 -t 20 --submit"),
    ("the results of a recorded run", "stackyard bench collectives --of last --json"),
)  # fmt: skip
@measured("--ops", "operations", default="", metavar="OP,...",
          help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv. Default: all.")  # fmt: skip
@measured("--sizes", default="8:64M", show_default=True, metavar="MIN:MAX[:FACTOR]", help="Bytes; K, M, G are binary.")
@measured("--iterations", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Of each size.")
@measured("--warmup", type=click.IntRange(0), default=5, show_default=True, metavar="N", help="Before them, uncounted.")
@measured("--over", type=click.Choice(["auto", "gloo", "nccl", "mpi"]), default="auto",
          help="What carries the data; nccl is RCCL on AMD. Default: nccl for ranks with GPUs, else gloo.")  # fmt: skip
@measured("--of", metavar="RUN", help="Measure nothing; write and show the results of a recorded run.")
@intent_options(without=OWN)
@output("--submit", "submitted", is_flag=True, help="As a batch job, which is followed.")
@output("--dry-run", is_flag=True, help="Print the exact command; measure nothing.")
@output("--json", "as_json", is_flag=True, help="Print the results as JSON, an nccl-tests document per operation.")
def command(context: Context, /, **options: Any) -> None:
    """Measure the collective operations between ranks: time of each iteration on every rank, and wrong values.

    The table is as OSU's benchmarks print it. For each operation, a file of nccl-tests' JSON (version 3) is written to
    the run directory, which its analyze_perf_json.py reads. The exit status is 3 if values are wrong.
    """
    from stackyard.launch.api import runs

    asked, place = bool(options["operations"]), context.job_workspace()
    found = (runs.find_run(options["of"], place.runs), 0) if options["of"] else _measure(context, place, options)
    if found is None:
        return
    paths, code = found
    try:
        _report(paths, options["as_json"], asked=asked)
    except InputError:
        if not code:
            raise
    if code:
        raise click.exceptions.Exit(code)


def _measure(context: Context, place: Workspace, options: dict[str, Any]) -> tuple[RunPaths, int] | None:
    """Run the measurement, or print what it would be: then None. Returns the run and its exit status."""
    from stackyard.cli.jobs import following, launch, submit
    from stackyard.launch.api import collectives, jobs
    from stackyard.study.api import collectives_request

    batch, quiet = options["submitted"], options["as_json"]
    words = {name: options.pop(name) for name in ("operations", "sizes", "warmup", "iterations", "over")}
    request = collectives_request(**words)
    options.update(name=options["name"] or "collectives", job_file=None)

    def all_nodes() -> int | None:
        launcher, spare = options["launcher"] or "", options["spare"] or 0
        return None if batch else jobs.default_nodes(place, launcher=launcher, spare=spare)

    job = (jobs.batch_job if batch else jobs.launch_job)(place, requested(place, options, (), all_nodes)[0])
    if options["dry_run"]:
        job = collectives.collectives_job(job, request)
        submit.show_dry_run(jobs.preview_submission(job), quiet) if batch else launch.show_dry_run(job, quiet)
        return None
    run = collectives.record_collectives(agree(context, job), request, batch=batch)
    if not batch:
        return run.paths, launch.carried_out(run.job, run.paths, "first", quiet=quiet).code
    echo(f"run {run.paths.name}: {job.context.scheduler} job {jobs.submit(run)}", err=True)
    status = following.followed(run.paths, quiet=quiet)
    return run.paths, 0 if status.ended_well else status.code or 1


def _report(paths: RunPaths, as_json: bool, *, asked: bool) -> None:
    """Write the files of the results and name them.

    Raises:
        InputError: nothing was measured.
        ChecksFailed: values are wrong.
        MissingError: an operation that was asked for is not supported.
    """
    from stackyard.study.api import collectives_result

    result = collectives_result(paths)
    if as_json:
        show_json({"run": str(paths.root), "skipped": result.skipped, "operations": result.documents})
    if result.documents:
        names = ",".join(result.documents)
        echo(f"results: {result.directory}/{f'{{{names}}}' if ',' in names else names}.json", err=True)
    for name, reason in result.skipped.items():
        show_notice(f"{name} not measured: {reason}")
    if result.wrong:
        hint = "a node's memory, network or library is at fault: measure fewer nodes to find it"
        raise ChecksFailed(f"wrong values received: {result.wrong[0]}", detail="\n".join(result.wrong), hint=hint)
    if result.skipped and asked:
        raise MissingError(f"not measured: {', '.join(result.skipped)}", hint="use other --sizes, --over or --with")
