"""What slows a profiled run down, each with its evidence and what to try: the limits and words are in causes.yaml.

A share is that of a step's time. What one rank has more of than the others is that rank's cause; the other rules look
at what all ranks have in common, so that one slow rank does not become a slow loader of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stackyard.core.late import dataclass
from stackyard.inputs.reading.yamlfile import packaged
from stackyard.study.profiles.overview import NO_WORK, Overview, SlowRank
from stackyard.study.report.document import said
from stackyard.study.report.words import number, percent

SLOW_RATIO = 1.15
"""How much more than the others a slow rank works at least."""
SMALL_US, SMALL_CALLS, SMALL_SHARE = 20.0, 500.0, 0.5
"""Operations of less than so many microseconds in the mean, so many a step, are bound by the CPU that starts them: on a
CPU they count as its cause if they and what is between them take so much of a step. The mean of all, since another
program on the core lengthens some calls of each operator."""


@dataclass(frozen=True)
class Cause:
    """Something to change: a row of causes.yaml, with the share of a step, what the traces show, and what to try."""

    name: str
    title: str
    share: float
    evidence: str
    remedy: str


def causes(found: Overview) -> list[Cause]:
    """The causes, the one with the largest share first; none where no share is above its limit."""
    rows = packaged(__package__, "causes.yaml")
    named = []
    for name, share, case, facts in _cases(found, rows["uneven-ranks"]["least"]):
        row, kind = rows[name], "gpu" if found.has_gpu else "cpu"
        if share >= row.get(f"least-{kind}", row["least"]):
            facts |= {"share": percent(share), "time": ms(share * found.step_us)}
            evidence = row.get(kind, row.get(case, row["evidence"])).format_map(facts)
            named.append(Cause(name, row["title"].format_map(facts), share, evidence, row["try"][case]))
    return sorted(named, key=lambda cause: -cause.share)


def ms(us: float) -> str:
    """Microseconds as milliseconds: ``12.3 ms``."""
    return f"{number(us / 1000, 3)} ms"


def calls(number_of: float) -> str:
    """Calls a step, whole if there are many: ``1,024``, ``2``, ``0.13``."""
    return f"{number_of:,.0f}" if number_of >= 10 or number_of == int(number_of) else number(number_of, 2)


def called(number_of: float) -> str:
    """``1 call``, ``47 calls``."""
    return f"{calls(number_of)} call{'s' * (number_of != 1)}"


_Case = tuple[str, float, str, dict[str, str]]
"""The name of a rule, its share, which of its remedies fits, and what fills in its evidence."""


def _cases(found: Overview, uneven: float) -> Iterator[_Case]:
    """Every rule, whether its share is above its limit or not; `uneven` is that of ranks that take turns to be late."""
    if not (found.whole and found.step_us):
        return
    if (slow := found.slow) and slow.own >= SLOW_RATIO * slow.others:
        yield _slow_rank(found, slow)
    late = found.late_for_data if not found.slow and found.waiting >= uneven else 0.0
    loaders = Counter({name: us for rank in found.whole for name, us in rank.trace.loaders.us.items()})
    for name, _ in loaders.most_common(1):
        case = "single" if "SingleProcess" in name else "workers"
        others = f", {percent(late)} of a step for another rank's data" if late else ""
        facts = {"loader": said(name, 100), "late": others}
        yield "slow-loader", found.usual("waiting for data") + late, case, facts
    yield from _communication(found, late)
    yield _cpu_bound(found)
    yield _copies(found)


def _slow_rank(found: Overview, slow: SlowRank) -> _Case:
    part = max(slow.more, key=lambda name: slow.more[name])
    facts = {"rank": str(slow.rank), "own": ms(slow.own), "others": ms(slow.others), "often": str(slow.often),
             "of": str(slow.of), "more": ms(slow.more[part]), "part": part, "what": "", "where": ""}  # fmt: skip
    view = next(one for one in found.whole if one.trace.rank == slow.rank)
    if view.trace.host:
        facts["where"] = f", on {said(view.trace.host, 80)}"
    case = part
    if part in ("computation", "copies"):
        sums = [one.copies if part == "copies" else one.work for one in found.whole if one is not view]
        mine, steps = view.copies if part == "copies" else view.work, len(view.steps)
        more = {name: us - sum(one.us[name] for one in sums) / len(sums) for name, us in mine.us.items()
                if part == "copies" or not NO_WORK.match(name)}  # fmt: skip
        name = max(more, key=lambda name: more[name], default="")
        own, usual = mine.calls[name], sum(one.calls[name] for one in sums) / len(sums)
        case = "more calls" if own > 1.05 * usual else "same calls"
        facts["what"] = (f", most of it {said(name, 80)} ({called(own / steps)} a step, the others "
                         f"{calls(usual / steps)})")  # fmt: skip
    return "slow-rank", (slow.own - slow.others) / found.step_us, case, facts


def _communication(found: Overview, late_for_data: float) -> Iterator[_Case]:
    if not found.exchanges:
        return
    most, total = found.exchanges[0], sum(rank.communication for rank in found.whole)
    sent = sum(each.bytes for each in found.exchanges)
    share, case = found.usual("communication") * found.transport, "all" if len(found.whole) > 1 else "alone"
    yield "communication", share, case, {
        "hidden": percent(sum(rank.hidden for rank in found.whole) / (total or 1)), "name": said(most.name, 60),
        "calls": called(most.calls), "each": ms(most.us), "size": f", {number(sent / 1e6, 3)} MB" if sent else "",
    }  # fmt: skip
    if not found.slow:
        yield "uneven-ranks", found.waiting - late_for_data, "all", {}


def _cpu_bound(found: Overview) -> _Case:
    rows = found.operations("kernels" if found.has_gpu else "operations", 1 << 30)
    count, idle = sum(row.calls for row in rows), found.usual("idle")
    total = sum(row.us for row in rows)
    mean = total / max(count, 1e-9)
    is_small = count >= SMALL_CALLS and mean < SMALL_US
    if is_small and not found.has_gpu and idle + total / found.step_us >= SMALL_SHARE:
        idle += total / found.step_us
    waits = sum(rank.waits for rank in found.whole) / sum(rank.total for rank in found.whole)
    return "cpu-bound", idle, "many" if is_small else "python", {
        "waits": percent(waits), "calls": calls(count), "each": f"{number(mean, 2)} µs",
    }  # fmt: skip


def _copies(found: Overview) -> _Case:
    us: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for rank in found.whole:
        us.update(rank.copies.us)
        times.update(rank.copies.calls)
    steps, most = sum(len(rank.steps) for rank in found.whole), [name for name, _ in us.most_common(3)]
    first = most[0].removeprefix("aten::").replace("_to_copy", "to") if most else ""
    case = next((case for case in ("HtoD", "DtoH") if case in first), first if first in ("to", "copy_") else "other")
    told = [f"{said(name, 60)} {ms(us[name] / steps)} in {called(times[name] / steps)}" for name in most]
    return "copies", found.usual("copies"), case, {"most": ", ".join(told) or "none"}
