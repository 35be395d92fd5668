"""The overview of a profiled run as a document: what to try, where the time went, who waited, what took most."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from stackyard.core.findings import counted
from stackyard.study.profiles.causes import calls, causes, ms
from stackyard.study.profiles.overview import PARTS, Overview, RankView
from stackyard.study.report.data import csv_text
from stackyard.study.report.document import Figure, Prose, ReportDocument, ReportTable, Section, said
from stackyard.study.report.svg import WIDTH, Drawing
from stackyard.study.report.words import number, percent

FORMAT = 1
MOST_BARS = 64
"""Ranks in the figure, evenly chosen of more; the table has all."""
LEFT, RIGHT, ROW = 70.0, WIDTH - 16.0, 22.0
METHODS = (
    "A step is what PyTorch's profiler marks as ProfilerStep; without marks the whole trace is one. Each moment counts "
    "once. With a GPU: computation are kernels; communication, copies and waiting for data count where no kernel "
    "runs; idle is the rest. Without one: waiting for data is the DataLoader's __next__, computation and copies are "
    "operators, communication counts where nothing else runs, and idle is what no event covers.",
    "Collectives of one step are matched by their order. The rank that needs least time for one came last to it: its "
    "time is that of the exchange, and what the others need beyond it is waiting.",
    "A rank is slow if it has most work of its own more often than one of equal ranks would by chance (5 %), and works "
    "10 % of a step more. The profiler itself takes time: these are shares, not the speed of the run.",
)


def overview_document(found: Overview) -> ReportDocument:
    """The report of a profiled run."""
    sections = [
        Section("What to try", tuple(_advice(found)), is_brief=True),
        Section("Time of each rank", (_figure(found), _ranks(found)), is_brief=True),
    ]
    if found.exchanges:
        sections.append(Section("Communication", (_exchanges(found),), is_brief=True))
    sections.append(Section("Stragglers", (Prose((_stragglers(found),)),), is_brief=True))
    sections.append(Section("Ten most expensive operations", tuple(_operations(found)), is_brief=True))
    sections.append(Section("Memory", (_memory(found),), is_brief=True))
    sections.append(Section("What was read", tuple(_read(found)), is_brief=any(map(_cut, found.ranks))))
    sections.append(Section("Methods", (Prose(METHODS),)))
    return ReportDocument(f"Profile of {said(found.name, 120)}", tuple(sections))


def _advice(found: Overview) -> Iterator[Prose]:
    steps = sorted({len(rank.steps) for rank in found.ranks})
    has_steps = any(rank.trace.steps for rank in found.ranks)
    range_ = " to ".join(f"{count:,}" for count in dict.fromkeys((steps[0], steps[-1])))
    what = f"{range_} {'step' if steps[-1] == 1 else 'steps'}, {ms(found.step_us)} each (median)"
    what = what if has_steps else f"{ms(found.step_us)} without marks of steps"
    yield Prose((f"{len(found.ranks):,} of {counted(found.world, 'rank')}: {what}; profiled, so not the run's speed.",))
    lines = [f"{each.title}: {each.evidence}. Try: {each.remedy}." for each in causes(found)]
    if not found.whole:
        lines = ["No cause is named: each trace lacks its kernels or its collectives (see: What was read)."]
    shares = ", ".join(f"{name} {percent(found.usual(name))}" for name in PARTS)
    yield Prose(tuple(lines) or (f"Nothing stands out: {shares} of a step.",), is_list=bool(lines))
    if 0 < max(steps) < 5 and has_steps:
        yield Prose(("Few steps were traced: shares differ from step to step; 10 or more say more.",))


def _ranks(found: Overview) -> ReportTable:
    columns = ("rank", "host", "steps", "step (ms)", *(f"{name} (%)" for name in PARTS), "overlap (%)", "read to")
    rows = []
    for view in found.ranks:
        overlap = f"{100 * view.hidden / view.communication:.0f}" if view.communication else "none"
        rows.append((
            f"{view.trace.rank:,}", said(view.trace.host, 60), f"{len(view.steps):,}",
            number(view.total / len(view.steps) / 1000, 3), *(f"{100 * view.share(name):.1f}" for name in PARTS),
            overlap, "its end" if not _cut(view) else f"{number(view.trace.reading.bytes / 1e6, 3)} MB",
        ))  # fmt: skip
    caption = "Shares of the time of the steps; overlap is how much of all communication runs beside computation"
    return ReportTable(caption, columns, tuple(rows), frozenset(columns) - {"host", "read to"})


def _figure(found: Overview) -> Figure:
    """A bar for each rank, with its parts from left to right."""
    title = "Where the time of a step goes"
    drawing = Drawing()
    top = drawing.heading(title, PARTS) + 10
    shown = found.ranks[:: -(-len(found.ranks) // MOST_BARS)]
    for at, view in enumerate(shown):
        y, x = top + ROW * at, LEFT
        drawing.text((LEFT - 8, y + 4), f"rank {view.trace.rank}", anchor="end", faint=True)
        for index, name in enumerate(PARTS):
            width = (RIGHT - LEFT) * view.share(name)
            if width >= 0.5:
                drawing.line([(x, y), (x + width, y)], f"c{index}", width=12)
            if width >= 10:
                drawing.mark((x + width / 2, y), index, size=3, hollow=True, tip=f"{name} {percent(view.share(name))}")
            x += width
    bottom = top + ROW * len(shown)
    for share in (0, 25, 50, 75, 100):
        anchor = {0: "start", 100: "end"}.get(share, "middle")
        drawing.text((LEFT + (RIGHT - LEFT) * share / 100, bottom + 8), f"{share} %", anchor=anchor, faint=True)
    told = "; ".join(f"rank {view.trace.rank}: " + ", ".join(f"{name} {percent(view.share(name))}" for name in PARTS)
                     for view in shown)  # fmt: skip
    caption = f"{title}: parts from left to right in the order of the legend. The table below has the numbers."
    return Figure("ranks", "", caption, drawing.rendered("ranks", title, told, bottom + 20))


def _exchanges(found: Overview) -> ReportTable:
    rows = tuple(
        (said(each.name, 80), calls(each.calls), number(each.us / 1000, 3), number(each.transport / 1000, 3),
         number((each.us - each.transport) / 1000, 3), number(each.bytes / 1e6, 3) if each.bytes else "not known")
        for each in found.exchanges[:20]
    )  # fmt: skip
    columns = ("collective", "calls", "ms", "exchange (ms)", "waiting for a rank (ms)", "MB")
    alone = " One rank alone is traced, so waiting is not told apart." if len(found.whole) < 2 else ""
    return ReportTable(f"Per rank and step, beside computation or not.{alone}", columns, rows, frozenset(columns[1:]))


def _stragglers(found: Overview) -> str:
    slow = found.slow
    if len(found.whole) < 2:
        return "One rank alone is traced to its end: trace more of them (ranks=all) to compare them."
    if slow is None:
        return f"No rank is slow throughout; {percent(found.waiting)} of a step are waiting for whichever comes last."
    more = ", ".join(f"{ms(us)} {name}" for name, us in slow.more.items() if us > 0.01 * found.step_us) or "none"
    return (f"Rank {slow.rank} has most work of its own in {slow.often} of {slow.of} steps: {ms(slow.own)} a step "
            f"(median), the others {ms(slow.others)}. It has more of: {more}.")  # fmt: skip


def _operations(found: Overview) -> Iterator[ReportTable]:
    kinds = {"kernels": "kernels of the GPU", "transfers": "copies of the GPU",
             "operations": "operators of the CPU, without those that they call"}  # fmt: skip
    columns = ("operation", "calls", "ms", "% of a step", "most on rank")
    for kind, words in kinds.items():
        rows = tuple(
            (said(row.name, 120), calls(row.calls), number(row.us / 1000, 3),
             f"{100 * row.us / (found.step_us or 1):.1f}", f"{row.rank}")
            for row in found.operations(kind)
        )  # fmt: skip
        if rows:
            yield ReportTable(f"Per rank and step: {words}", columns, rows, frozenset(columns[1:]))


def _memory(found: Overview) -> ReportTable | Prose:
    devices = sorted({device for view in found.ranks for device in view.trace.memory})
    columns = ("rank", "process (GiB)", "its GPU (GiB)", *(f"tensors, {device} (GiB)" for device in devices))
    rows = []
    for view in found.ranks:
        used = _used(found, view)
        sizes = [used.get("bytes", 0), used.get("gpu", 0), *(view.trace.memory.get(device, 0) for device in devices)]
        rows.append((f"{view.trace.rank:,}", *(number(size / 2**30, 3) if size else "not measured" for size in sizes)))
    if all(cell == "not measured" for row in rows for cell in row[1:]):
        return Prose(("Not measured: the agents recorded none of single ranks, and the trace has none (:memory=1).",))
    caption = "The most at any time: of the process by its agent, of tensors by the trace"
    return ReportTable(caption, columns, tuple(rows), frozenset(columns))


def _used(found: Overview, view: RankView) -> dict[str, int]:
    used = found.used.get(view.trace.rank)
    return {"bytes": used.peak_bytes, "gpu": used.gpu_peak_bytes} if used else {}


def _cut(view: RankView) -> bool:
    return bool(view.trace.reading.cut)


def _read(found: Overview) -> Iterator[Prose | ReportTable]:
    notes = [f"{said(view.trace.path.name, 120)}: read to {number(view.trace.reading.bytes / 1e6, 3)} MB: "
             f"{said(view.trace.reading.cut, 200)}" for view in found.ranks if _cut(view)]  # fmt: skip
    notes += [f"{said(view.trace.path.name, 120)}: its kernels or collectives are missing: it is used for no cause"
              for view in found.ranks if view.trace.is_partial]  # fmt: skip
    notes += [f"{said(name, 120)}: not read: {said(why, 200)}" for name, why in list(found.unread.items())[:20]]
    strays = sum(view.trace.strays for view in found.ranks)
    kept = [view.trace.path.name for view in found.ranks if view.trace.until < math.inf]
    notes += [f"{strays:,} events overlap others of their thread: times of operators are approximate"] * bool(strays)
    notes += [f"{said(name, 120)}: too many events: shares are those of its first steps" for name in kept]
    if notes:
        yield Prose(tuple(notes), is_list=True)
    columns = ("file", "rank", "events", "MB")
    rows = tuple((said(view.trace.path.name, 120), f"{view.trace.rank:,}", f"{view.trace.events:,}",
                  number(view.trace.reading.bytes / 1e6, 3)) for view in found.ranks)  # fmt: skip
    yield ReportTable("Traces", columns, rows, frozenset(columns[1:]))


def overview_json(found: Overview) -> dict[str, Any]:
    """Everything as JSON values, times in microseconds."""
    ranks = [{**row, "cut": view.trace.reading.cut, "partial": view.trace.is_partial, "hidden_us": view.hidden,
              "communication_us": view.communication, "step_us": dict(view.steps), "file": view.trace.path.name,
              "memory": {**_used(found, view), **view.trace.memory}}
             for row, view in zip(_rows(found), found.ranks, strict=True)]  # fmt: skip
    return {
        "format": FORMAT, "run": found.name, "world": found.world, "step_us": found.step_us,
        "causes": [asdict(each) for each in causes(found)], "ranks": ranks,
        "collectives": [asdict(each) for each in found.exchanges], "unread": dict(found.unread),
        **{kind: [row._asdict() for row in found.operations(kind)] for kind in ("kernels", "transfers", "operations")},
    }  # fmt: skip


def overview_csv(found: Overview) -> str:
    """The ranks."""
    rows = _rows(found)
    return csv_text(tuple(rows[0]), rows)


def _rows(found: Overview) -> list[dict[str, Any]]:
    """For each rank the shares of a step."""
    return [
        {"rank": view.trace.rank, "host": view.trace.host, "steps": len(view.steps), "mean_step_us":
         view.total / len(view.steps), **{name.replace(" ", "_"): view.share(name) for name in PARTS}}
        for view in found.ranks
    ]  # fmt: skip
