"""What a report says: the document of a study, and that of two."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from stackyard.core import hostlist
from stackyard.core.findings import counted
from stackyard.study.analysis import MetricColumn, Results, Series
from stackyard.study.report.document import Commands, Prose, ReportDocument, ReportTable, Section, said
from stackyard.study.report.figures import figures
from stackyard.study.report.resources import resources
from stackyard.study.report.words import (
    better,
    counts,
    ends,
    factor_title,
    methods,
    nodes,
    number,
    scaling_sentences,
    title_of,
    verdict_of,
)
from stackyard.study.store import Attempt

SHOWN = 12
"""Sentences of a summary; the tables have all."""
MOST_ROWS = 2_000
"""Runs in a report; table.csv has all."""
MOST_NAMED = 8
"""Runs that are named with a command; more are counted."""
NOTHING_YET = "No run has a value yet."


def study_document(found: Results) -> ReportDocument:
    """The report of a study."""
    sections = [Section("Summary", (Prose(summary(found), is_list=True),), is_brief=True)]
    sections += [Section(title_of(metric), tuple(_metric(found, metric)), is_brief=True) for metric in found.metrics]
    if found.judgements:
        sections += [Section("References", (_references(found),), is_brief=True)]
    sections += [Section("What was measured", (_facts(found),))]
    if used := tuple(resources(found)):
        sections += [Section("Steps, memory and energy", used)]
    if failed := tuple(_failed(found)):
        sections += [Section("What failed or is missing", failed, is_brief=True)]
    sections += [
        Section("Methods", (Prose(methods(found)),)),
        Section("Commands", tuple(_commands(found))),
        Section("Every run", (_runs(found),)),
    ]
    return ReportDocument(f"Study {said(found.name, 120)}", tuple(sections))


def summary(found: Results) -> tuple[str, ...]:
    """The findings in sentences, then how many runs they are from, and what was odd about the request."""
    findings: list[str] = []
    if found.metrics:
        findings += [verdict_of(each) for each in found.versus if each.metric == found.metrics[0]]
        findings += scaling_sentences(found)
    if len(findings) > SHOWN:
        findings = [*findings[:SHOWN], f"and {len(findings) - SHOWN} more, in the tables"]
    shared = [each for each in found.series if each.values and not each.is_alone]
    if shared and all(each.places == 1 for each in shared):
        findings.append("The runs of each size shared an allocation: ranges hold for these nodes, this hour")
    findings.append(counts(found))
    return (*(() if found.metrics else (NOTHING_YET,)), *findings, *(said(each) for each in found.about.remarks))


def _metric(found: Results, metric: MetricColumn) -> Iterator[Prose | ReportTable]:
    yield from figures(found, metric)  # type: ignore[misc]
    yield _sizes(found, metric)
    if any(each.metric == metric for each in found.versus):
        yield _versus(found, metric)


def _sizes(found: Results, metric: MetricColumn) -> ReportTable:
    """The median of each size and variant, with speed-up and efficiency."""
    own = [each for each in found.series if each.metric == metric]
    is_scaled = any(each.scaling for each in own)
    with_efficiency = is_scaled and found.request.scaling != "throughput"
    columns = ["nodes", "variant", "ranks", "runs", "left out", "median", "from to", "which is"]
    columns += ["speed-up", "efficiency"][: is_scaled + with_efficiency]
    rows = [tuple(_size(each)[: len(columns)]) for each in own]
    problems = {each.problem for each in own if each.problem}
    notes = f"{metric.better} is better" + "".join(f"; no speed-up: {said(each)}" for each in sorted(problems))
    return ReportTable(f"{title_of(metric)}: {notes}", tuple(columns), tuple(rows),
                 frozenset(columns) - {"variant", "left out", "which is"}, heads=2)  # fmt: skip


def _references(found: Results) -> ReportTable:
    """Each reference with the median, and whether it is met."""
    rows = []
    for each in found.judgements:
        nodes, variant, reference = each.expected.nodes, each.expected.variant, each.expected.reference
        value = [number(each.median.value), ends(each.median)] if each.median else ["", ""]
        rows.append((
            said(reference.metric, 80), f"{nodes:,}", said(variant, 80), f"{number(reference.value)} {each.limits}",
            *value, said(each.problem) or "met",
        ))  # fmt: skip
    columns = ("metric", "nodes", "variant", "reference", "median", "from to", "which is")
    met = sum(each.is_met for each in found.judgements)
    caption = f"{met} of {counted(len(rows), 'reference')} met"
    return ReportTable(caption, columns, tuple(rows), frozenset(columns[3:6]), heads=3)


def _size(each: Series) -> list[str]:
    left_out = ", ".join(f"{count} {said(state, 40)}" for state, count in each.left_out.items())
    cells = [f"{each.nodes:,}", said(each.variant, 80), ", ".join(f"{ranks:,}" for ranks in each.ranks)]
    cells += [f"{len(each.values)}", left_out or "none"]
    cells += [number(each.median.value), ends(each.median)] if each.median else ["", ""]
    cells.append(each.basis)
    if each.scaling:
        share = each.scaling.efficiency
        cells.append(f"{number(each.scaling.speedup.value, 3)} ({ends(each.scaling.speedup, 1, 3)})")
        cells.append(f"{number(100 * share.value, 3)} % ({ends(share, 100, 3)} %)" if share else "")
    return [*cells, "", ""]


def _versus(found: Results, metric: MetricColumn) -> ReportTable:
    """Each variant against the first one."""
    rows = []
    for each in found.versus:
        if each.metric == metric:
            comparison = each.comparison
            left = [f"{each.planned - each.pairs - each.apart} incomplete", f"{each.apart} in two allocations"]
            factor = [number(comparison.ratio.value), ends(comparison.ratio)] if comparison else ["", ""]
            rows.append((
                f"{each.nodes:,}", said(each.variant, 80), f"{each.pairs} of {each.planned}",
                ", ".join(text for text in left if not text.startswith("0 ")) or "none", *factor,
                comparison.text if comparison else f"{each.problem}; no verdict",
            ))  # fmt: skip
    first = said(found.variants[0], 80)
    columns = ("nodes", "variant", "pairs", "left out", "factor", "from to", "verdict")
    caption = f"{factor_title(metric, first)}; below 1 {first} is {better(metric)}"
    return ReportTable(caption, columns, tuple(rows), frozenset({"nodes", "pairs", "factor", "from to"}), heads=2)


def _facts(found: Results) -> ReportTable:
    """The program, its variants, the machine, the account and the time."""
    about, request = found.about, found.request
    hosts = sorted({host for record in found.records if record.last for host in record.last.hosts})
    stacks = [(f"variant {name}", ", ".join(f"{key} {value}" for key, value in about.variants.get(name, {}).items()))
              for name in found.variants]  # fmt: skip
    versions = ", ".join(f"{name} {value}" for name, value in about.versions.items())
    scaling = f"{request.scaling}: {found.why_kind}" if len(found.sizes) > 1 else "one size"
    facts = [
        ("program", shlex.join(request.job.program)), *stacks, ("sizes", ", ".join(map(nodes, found.sizes))),
        ("scaling", scaling), ("begun", f"{about.created} by {about.user} on {about.host}"),
        ("site", about.site or "none"), ("nodes used", hostlist.compress(hosts) or "none"),
        ("how", "batch jobs" if about.how == "jobs" else "within one allocation or machine"),
        ("seed", str(about.seed)), ("versions", versions), ("command", shlex.join(about.command)),
    ]  # fmt: skip
    return ReportTable(
        "The study", ("what", "is"), tuple((said(what), said(text) or "not recorded") for what, text in facts)
    )


def _failed(found: Results) -> Iterator[ReportTable | Prose]:
    """The runs without a value, with the reason of each."""
    ended = [(record, record.last) for record in found.records if record.last and record.state != "running"]
    rows = tuple((said(record.point.id, 120), said(record.state, 40), said(last.message or "no reason recorded"),
                  said(last.run)) for record, last in ended if record.state != "done")  # fmt: skip
    if rows:
        yield ReportTable("Runs that are not done", ("run", "state", "why", "run directory"), rows)
    for state, words in (("running", "running now"), ("missing", "not started yet")):
        if count := sum(record.state == state for record in found.counted):
            yield Prose((f"{counted(count, 'run')} {words}.",))


def _commands(found: Results) -> Iterator[Commands | Prose]:
    """How to repeat the study, a run, and what exactly started each."""
    yield Prose(("`stackyard launch --again` and a run directory, in the directory of the study, repeats that run; the "
                 "table of all runs has them. The commands below are exact; RUN is the run directory.",))  # fmt: skip
    yield Commands("The study", (said(shlex.join(found.about.command)),))
    for where, group in _command_groups(found):
        yield Commands(where, tuple(said(line, 20_000) for line in group))


def _command_groups(found: Results) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Of each size and variant, and each command if it has several: its runs, and its command lines."""
    groups: dict[tuple[int, str, str], list[str]] = {}
    for record in found.records:
        if record.last and record.last.command:
            key = (record.point.nodes, record.point.variant, _exact(record.last))
            groups.setdefault(key, []).append(record.point.id)
    several = [key[:2] for key in groups]
    for (size, variant, command), runs in groups.items():
        names = runs if len(runs) <= MOST_NAMED else [*runs[:MOST_NAMED], f"{len(runs) - MOST_NAMED} more"]
        which = f" ({', '.join(said(name, 120) for name in names)})" if several.count((size, variant)) > 1 else ""
        typed = found.typed.get((size, variant))
        yield f"{nodes(size)}, {said(variant, 80)}{which}", (*((typed,) if typed else ()), command)


def _exact(attempt: Attempt) -> str:
    """The command that started the ranks, with RUN for the run directory where it can be told from the rest."""
    end = attempt.command.find(attempt.run)
    before = attempt.command[:end]
    start = max(before.rfind(letter) for letter in " '\"=") + 1
    path = attempt.command[start : end + len(attempt.run)]
    is_plain = (
        end >= 0 and path.startswith("/") and shlex.quote(path) == path and before[start - 1 : start] in (" ", "=", "")
    )
    return attempt.command.replace(path, "RUN") if is_plain else attempt.command


def _runs(found: Results) -> ReportTable:
    """One row for each run, in the order of the jobs."""
    metrics = tuple(map(title_of, found.metrics))
    columns = ("run", "ranks", "order", *metrics, "seconds", "state", "hosts", "run directory")
    rows = []
    for record in found.records[:MOST_ROWS]:
        last = record.last
        values = (found.value(record, metric) for metric in found.metrics)
        rows.append((
            said(record.point.id, 120), f"{last.ranks:,}" if last else "", f"{record.point.order}",
            *("" if value is None else number(value, 6) for value in values), number(last.seconds) if last else "",
            f"{said(record.state, 40)}{', warm-up' if record.point.warmup else ''}",
            said(hostlist.compress(last.hosts)) if last else "", said(last.run) if last else "",
        ))  # fmt: skip
    some = f"The first {MOST_ROWS:,} of {len(found.records):,} runs, all of which are in table.csv"
    caption = some if len(found.records) > MOST_ROWS else "All runs"
    caption += ": n is the number of nodes, a the allocation, r the repeat, w a warm-up that does not count"
    return ReportTable(caption, columns, tuple(rows), frozenset({"ranks", "order", *metrics, "seconds"}))
