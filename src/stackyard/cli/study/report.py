"""``stackyard report``: the results of a study, or the profile of a run, on the terminal or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice, show_table
from stackyard.cli.study.bench import Sizes
from stackyard.cli.tables import show_line
from stackyard.core.errors import InputError
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from stackyard.study.api import Overview, ReportDocument, ReportTable, Results, SearchResults, TwoStudies

UNDECIDED = 3
"""The exit status where a part of a comparison has no verdict, or a reference is not met."""
FIGURES = ("efficiency", "speedup", "comparison", "runs", "parallel", "importance", "curves")
"""Those of studies, and of searches."""
LARGE = 30_000_000
"""Bytes of a trace as it is on disk, from which its reading takes long enough to be said."""


@verb(
    ("the results of a study so far", "stackyard report studies/train"),
    ("a page to send and to print", "stackyard report studies/train -o report.html"),
    ("this year against last year", "stackyard report studies/before studies/after"),
    ("where the time of a profiled run went", "stackyard report last -o profile.html"),
)
@click.argument("study", metavar="STUDY|SEARCH|RUN", type=click.Path(path_type=Path))
@click.argument("other", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write .html, .md, .csv, .json, .svg or .pdf.",
)
@click.option("--figure", type=click.Choice(FIGURES), help="The figure of a .svg or .pdf.")
@click.option("--metric", metavar="NAME", help="The metric of that figure. Default: the first one.")
@click.option(
    "--reframe", type=click.Path(path_type=Path), metavar="FILE.py", help="Write the references as a ReFrame test."
)
@click.option("--crate", is_flag=True, help="Make the study's directory an RO-Crate: write its metadata there.")
@click.option("--license", "licence", default="", metavar="URL", help="Of the data, in the crate.")
@click.option(
    "--timeline", type=click.Path(path_type=Path), metavar="FILE.json.gz",
    help="Merge the traces of a profiled run into one file for ui.perfetto.dev.",
)  # fmt: skip
@click.option("--ranks", type=Sizes(), metavar="N,N", help="Of a profiled run, read the traces of these ranks alone.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(context: Context, /, study: Path, other: Path | None, output: Path | None, **options: Any) -> None:
    """Show what STUDY found: medians, scaling and comparisons with intervals, and what is missing; or compare two. Of a
    search (`stackyard tune`): its trials, the best parameters, and which of them matter.

    Of a RUN that PyTorch's profiler traced (`launch --profile torch`): what slows it down with the evidence and what to
    try, computation, communication, waiting for data and idle time of each rank, stragglers, operations and memory. It
    may also be a trace, or a directory of traces.

    Statistics are exact and say what they hold for. The exit status is 3 if a comparison has no verdict, or a reference
    of the study or of the site is not met.
    """
    from stackyard.study.api import compare_studies, require_report_suffix, study_results, write_report

    _require_one_result(other, output, options)
    if options["timeline"]:
        _write_timeline(context, study, options["timeline"])
        return
    if options["reframe"] or options["crate"]:
        _export(context, study, options)
        return
    if output is not None:
        require_report_suffix(output)
    found: Results | TwoStudies | Overview | SearchResults
    if other is not None:
        found = compare_studies(study_results(study), study_results(other))
    else:
        found = _found(context, study, options["ranks"] or ())
    if output is None:
        _show(found, as_json=options["as_json"])
    else:
        write_report(found, output, options["figure"] or "", options["metric"] or "")
        if found.is_undecided:
            show_notice("a comparison has no verdict")
        if not found.is_met:
            show_notice("a reference is not met")
    if code := _code(found):
        raise click.exceptions.Exit(code)


def _require_one_result(other: Path | None, output: Path | None, options: dict[str, Any]) -> None:
    """Refuse options of which one would be ignored: one file of another kind is written, or a report, or it is shown.

    Raises:
        click.UsageError: with the options that exclude each other, or that need another one.
    """
    if output is None and (options["figure"] or options["metric"]):
        raise click.UsageError("--figure and --metric need -o FILE.svg or FILE.pdf")
    if options["licence"] and not options["crate"]:
        raise click.UsageError("--license needs --crate")
    files = [f"--{name}" for name in ("timeline", "reframe", "crate") if options[name]]
    others = {"-o": output, "--json": options["as_json"], "a second study": other}
    if options["timeline"]:
        others |= {"--reframe": options["reframe"], "--crate": options["crate"]}
    if files and (given := [word for word, value in others.items() if value]):
        raise click.UsageError(f"{files[0]} writes a file of its own: give it without {' and '.join(given)}")


def _found(context: Context, name: Path, ranks: tuple[int, ...]) -> Results | Overview | SearchResults:
    """What a directory has: a search, a study, or the traces of a run."""
    from stackyard.study.api import is_search, search_results, study_results

    if is_search(name):
        return search_results(name)
    return study_results(name, context.site().bench.references) if _is_study(name) else _profile(context, name, ranks)


def show_results(context: Context, root: Path, *, as_json: bool) -> int:
    """Print the results of a study; returns 3 without a verdict, or for a reference that is not met."""
    from stackyard.study.api import study_results

    found = study_results(root, context.site().bench.references)
    _show(found, as_json=as_json)
    return _code(found)


def show_search(root: Path, *, as_json: bool) -> int:
    """Print the results of a search; returns 3 while no trial has a value."""
    from stackyard.study.api import search_results

    found = search_results(root)
    _show(found, as_json=as_json)
    return _code(found)


def _is_study(path: Path) -> bool:
    return (path / "study.json").exists() or (path / "study.yaml").exists()


def _profile(context: Context, name: Path, ranks: tuple[int, ...]) -> Overview:
    """The overview of a run's traces, or of a directory's; with a line for each large file that is read."""
    from stackyard.cli.jobs.runs import find_here
    from stackyard.study.api import is_profile, profile_overview, run_overview

    def tell(at: int, count: int, file: Path) -> None:
        if (size := file.stat().st_size) >= LARGE:
            echo(f"reading {at + 1} of {count}: {file.name}, {size / 1e6:,.0f} MB; --ranks N reads some", err=True)

    is_run = (name / "record.json").exists()
    if not is_run and is_profile(name):
        return profile_overview(name, tell, ranks)
    if not is_run and name.is_dir():
        raise InputError(f"{name} is neither a study nor a run: it has no study.json, no record.json and no trace",
                         hint="name the directory that `stackyard bench` or `launch` printed")  # fmt: skip
    return run_overview(find_here(context, str(name)), tell, ranks)


def _write_timeline(context: Context, name: Path, file: Path) -> None:
    """Merge the traces of a run, and say what is not in the timeline."""
    from stackyard.cli.jobs.runs import find_here
    from stackyard.study.api import merge_timeline

    timeline = merge_timeline(find_here(context, str(name)).main.profile, file)
    for trace, why in timeline.unread.items():
        show_notice(f"{trace} is not, or not wholly, in the timeline: {why}")
    for rule, number in timeline.left_out.items():
        show_notice(f"{number} events without {rule} are left out")
    what = f"{sum(timeline.traces.values())} events of {counted(len(timeline.traces), 'trace')}"
    echo(f"{file}: {what}, for https://ui.perfetto.dev")


def _code(found: Results | TwoStudies | Overview | SearchResults) -> int:
    return UNDECIDED if found.is_undecided or not found.is_met else 0


def _show(found: Results | TwoStudies | Overview | SearchResults, *, as_json: bool) -> None:
    from stackyard.study.api import report_as_json, report_document

    if as_json:
        show_json(report_as_json(found))
    else:
        _show_document(report_document(found))


def _export(context: Context, study: Path, options: dict[str, Any]) -> None:
    """Write what the options name, and print where it is.

    Raises:
        InputError: not a study, or one without references.
        StackyardError: it cannot be written.
    """
    from stackyard.study.api import reframe_test, write_crate
    from stackyard.yard.api import write_text

    if file := options["reframe"]:
        write_text(file, reframe_test(study, context.site().bench.references))
        echo(f"{file}: a ReFrame test, for `reframe -c {file} -r`")
    if options["crate"]:
        write_crate(study, options["licence"])
        echo(f"{study}: an RO-Crate, by its ro-crate-metadata.json")


def _show_document(document: ReportDocument) -> None:
    """The parts of a report that belong to a summary."""
    from stackyard.study.api import Commands, Prose, ReportTable

    echo(click.style(document.title, bold=True))
    for section in document.sections:
        if not section.is_brief:
            continue
        echo()
        echo(click.style(section.title, bold=True))
        for block in section.blocks:
            if isinstance(block, Prose):
                for item in block.items:
                    show_line(f"- {item}" if block.is_list else item, 2)
            elif isinstance(block, ReportTable):
                _show_table(block)
            elif isinstance(block, Commands):
                for line in block.lines:
                    show_line(line, 2)


def _show_table(block: ReportTable) -> None:
    show_line(block.caption)
    show_table([dict(zip(block.columns, row, strict=True)) for row in block.rows], block.columns)
