"""A node drawn as text: its sockets, the cores with the local rank that has each, and the GPUs below their ranks.

Every core is one cell, readable without colour; colour (by rank, plain SGR codes) is optional. Pure: returns lines and
does not access a terminal.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stackyard.core.findings import counted
from stackyard.host.machine.ranges import ranges
from stackyard.launch.layout.cores import domain_cores, straddlers
from stackyard.launch.layout.model import Layout, Node
from stackyard.launch.layout.this_node import THIS

IDLE, KEPT, STRADDLES, SHARED = "·", "×", "!", "+"
"""A core that no rank uses; a reserved core; the marks of a rank on two sockets and of a core shared by ranks."""

_COLOURS = ("36", "33", "32", "35", "34", "31", "96", "93", "92", "95", "94", "91")
_DIM = "2"

Segment = tuple[str, str]
"""Text and its SGR codes, empty for none."""


@dataclass(frozen=True)
class _Cell:
    """One core: its text, and the first rank that uses it (None: idle or reserved)."""

    text: str
    rank: int | None


@dataclass(frozen=True)
class _Box:
    """The finished lines of a domain, all of one width, borders included."""

    lines: tuple[tuple[Segment, ...], ...]
    width: int


def draw(layout: Layout, *, width: int = 100, color: bool = False, heading: Sequence[str] = ()) -> str:
    """The picture of one node of a layout (all are alike), with a heading and a legend.

    Args:
        heading: the sentences of the heading; empty: the ranks and their resources.
        width: the maximum line length in columns, at least 40.
        color: colour cells and GPUs by rank.
    """
    width = max(width, 40)
    cells = _cells(layout)
    size = max(len(cell.text) for one in cells for cell in one.values())
    lines: list[tuple[Segment, ...]] = [((line, ""),) for line in _heading(heading or _about(layout), width)]
    for socket in dict.fromkeys(domain.socket for domain in layout.node.domains):
        boxes = [
            _box(layout, index, cells[index], (size, width))
            for index, domain in enumerate(layout.node.domains)
            if domain.socket == socket
        ]
        lines += [(), ((f"socket {socket}", ""),), *_flow(boxes, width)]
    lines += [(), *(((line, ""),) for line in _legend(layout, cells, width))]
    return "\n".join(_text(line, color) for line in lines) + "\n"


def _heading(texts: Iterable[str], width: int) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, width)]


def _about(layout: Layout) -> list[str]:
    kind = layout.node.kind if layout.nodes == 1 else f"{layout.node.kind}, {layout.nodes} nodes"
    total = f", {layout.ranks} in all" if layout.nodes > 1 else ""
    shares = [counted(layout.cores_per_rank, "core"), counted(layout.threads, "thread")]
    if layout.gpus_per_rank:
        shares.append(counted(layout.gpus_per_rank, "GPU"))
    gpus = "the GPU" if layout.node.gpus == 1 else f"all {layout.node.gpus} GPUs"
    seen = f"{gpus} of its node" if layout.gpu_visibility == "all" else "only its own"
    sees = f"; sees {seen}" if layout.gpus_per_rank and layout.node.gpus > 1 else ""
    texts = [
        f"{kind}: {counted(layout.ranks_per_node, 'rank')} per node{total}",
        f"each rank: {', '.join(shares)}{sees}",
    ]
    if layout.hosts:
        shown = " ".join(layout.hosts[:8])
        texts.append(f"on {shown}{f' and {len(layout.hosts) - 8} more' if len(layout.hosts) > 8 else ''}")
    return texts


def _cells(layout: Layout) -> list[dict[int, _Cell]]:
    """Per domain, its cells by the operating system's core numbers, ascending; reserved cores included."""
    holders: dict[int, list[int]] = {}
    for slot in layout.slots:
        for core in slot.cores:
            holders.setdefault(core, []).append(slot.local_rank)
    on_two = set(straddlers(layout.node, [slot.cores for slot in layout.slots]))
    cells = []
    for domain, cores in zip(layout.node.domains, domain_cores(layout.node), strict=True):
        pairs = zip(domain.cores, cores, strict=True)
        cells.append({number: _cell(holders.get(core, []), on_two) for number, core in pairs})
    for core, index in _kept(layout.node).items():
        cells[index][core] = _Cell(KEPT, None)
    return [dict(sorted(one.items())) for one in cells]


def _cell(ranks: Sequence[int], on_two: set[int]) -> _Cell:
    if not ranks:
        return _Cell(IDLE, None)
    marks = (STRADDLES if on_two & set(ranks) else "") + (SHARED if len(ranks) > 1 else "")
    return _Cell(f"{ranks[0]}{marks}", ranks[0])


def _kept(node: Node) -> dict[int, int]:
    """The reserved cores, each with the domain to draw it in.

    Their domain is known only if the domains are blocks of equal size (22 cores of a POWER9, 8 around an L3 cache);
    otherwise the legend only counts them.
    """
    usable = {core: index for index, domain in enumerate(node.domains) for core in domain.cores}
    size, rest = divmod(node.all_cores, len(node.domains))
    if rest or max(usable) >= node.all_cores:
        return {}
    of_block: dict[int, set[int]] = {}
    for core, index in usable.items():
        of_block.setdefault(core // size, set()).add(index)
    if len(of_block) != len(node.domains) or any(len(indices) > 1 for indices in of_block.values()):
        return {}
    others = (core for core in range(node.all_cores) if core not in usable)
    return {core: next(iter(of_block[core // size])) for core in others}


def _box(layout: Layout, index: int, cells: dict[int, _Cell], sizes: tuple[int, int]) -> _Box:
    """One domain as a box; `sizes` are the width of a cell and that of the picture."""
    domain = layout.node.domains[index]
    limit = sizes[1] - 4
    rows, columns = _rows(list(cells.values()), sizes[0], limit)
    body = [*rows, *_gpu_rows(layout, index, columns, limit)]
    if domain.nics:
        body += [((line, ""),) for line in textwrap.wrap(f"NIC {', '.join(domain.nics)}", limit)]
    title = f" cores {ranges(cells)} "
    if len(title) > limit:
        title = f" {counted(len(cells), 'core')} "
    inner = max(len(title) + 1, *(2 + _length(line) for line in body))
    top: tuple[Segment, ...] = ((f"┌{title}{'─' * (inner - len(title))}┐", ""),)
    middle = [(("│ ", ""), *line, (f"{' ' * (inner - 2 - _length(line))} │", "")) for line in body]
    return _Box((top, *middle, ((f"└{'─' * inner}┘", ""),)), inner + 2)


def _rows(
    cells: Sequence[_Cell], size: int, limit: int
) -> tuple[list[tuple[Segment, ...]], dict[int, tuple[int, int]]]:
    """The cells in lines no longer than `limit`, and for ranks whose run is in the last line, its column and length.

    A run of cells of one rank stays together if it fits into a line; a gap separates it from the next rank's.
    """
    runs = _runs(cells)
    wide = any(len(run) > 1 for run in runs)
    per_line = max(1, (limit + 1) // (size + 1))
    per_line -= per_line % 8 if per_line > 8 else 0
    lines: list[list[Segment]] = [[]]
    columns: dict[int, tuple[int, int]] = {}
    before: int | None = None
    for run in runs:
        for start in range(0, len(run), per_line):
            part = run[start : start + per_line]
            text = " ".join(cell.text.rjust(size) for cell in part)
            rank = part[0].rank
            gap = 2 if wide and None not in (before, rank) else 1
            at = _length(lines[-1]) + gap if lines[-1] else 0
            if at + len(text) > limit:
                lines.append([])
                columns, at = {}, 0
            if at:
                lines[-1].append((" " * gap, ""))
            lines[-1].append((text, _colour(rank, dim=True)))
            before = rank
            if rank is not None:
                columns.setdefault(rank, (at, len(text)))
    return [tuple(line) for line in lines], columns


def _runs(cells: Iterable[_Cell]) -> list[list[_Cell]]:
    runs: list[list[_Cell]] = []
    for cell in cells:
        if runs and runs[-1][-1] == cell:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    return runs


def _gpu_rows(layout: Layout, index: int, columns: dict[int, tuple[int, int]], limit: int) -> list[tuple[Segment, ...]]:
    """The rows for a domain's GPUs: below the cores of their ranks if all of them fit, else as a list."""
    owners = {gpu: [s.local_rank for s in layout.slots if gpu in s.gpus] for gpu in layout.node.domains[index].gpus}
    names = {gpu: f"GPU {gpu}" for gpu in owners}
    counts = Counter(ranks[0] for ranks in owners.values() if ranks)
    if owners and all(
        len(ranks) == 1 and counts[ranks[0]] == 1 and columns.get(ranks[0], (0, 0))[1] >= len(names[gpu])
        for gpu, ranks in owners.items()
    ):
        return [_aligned([(columns[owners[gpu][0]][0], names[gpu], owners[gpu][0]) for gpu in owners])]
    lines: list[list[Segment]] = [[]]
    for gpu, ranks in owners.items():
        text = f"{names[gpu]}: {_who(ranks)}"
        at = _length(lines[-1]) + 3 if lines[-1] else 0
        if at + len(text) > limit:
            lines.append([])
            at = 0
        if at:
            lines[-1].append(("   ", ""))
        lines[-1].append((text, _colour(ranks[0] if ranks else None, dim=True)))
    return [tuple(line) for line in lines if line]


def _aligned(items: Sequence[tuple[int, str, int]]) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    for column, text, rank in sorted(items):
        segments += [(" " * (column - _length(segments)), ""), (text, _colour(rank))]
    return tuple(segments)


def _who(ranks: Sequence[int]) -> str:
    if not ranks:
        return "idle"
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"


def _flow(boxes: Sequence[_Box], width: int) -> list[tuple[Segment, ...]]:
    """Boxes side by side, equally many per line as far as they fit, with aligned bottom borders."""
    fit, total = 0, -1
    for box in boxes:
        total += box.width + 1
        fit += total <= width
    lines_of_boxes = -(-len(boxes) // max(fit, 1))
    per_line = -(-len(boxes) // lines_of_boxes)
    rows = [boxes[first : first + per_line] for first in range(0, len(boxes), per_line)]
    if any(sum(box.width + 1 for box in row) - 1 > width for row in rows):
        rows = [[box] for box in boxes]
    lines = []
    for row in rows:
        height = max(len(box.lines) for box in row)
        for number in range(height):
            parts = [_line_of(box, number, height) for box in row]
            lines.append(tuple(piece for part in parts for piece in (*part, (" ", "")))[:-1])
    return lines


def _line_of(box: _Box, number: int, height: int) -> tuple[Segment, ...]:
    if number == height - 1:
        return box.lines[-1]
    if number < len(box.lines) - 1:
        return box.lines[number]
    return ((f"│{' ' * (box.width - 2)}│", ""),)


def _legend(layout: Layout, cells: Sequence[dict[int, _Cell]], width: int) -> list[str]:
    texts = [cell.text for one in cells for cell in one.values()]
    last = layout.ranks_per_node - 1
    parts = [f"0 - {last}  local rank of the core" if last else "0  rank of the core"]
    if IDLE in texts:
        parts.append(f"{IDLE}  idle")
    mine = layout.node.kind == THIS
    if KEPT in texts:
        parts.append(f"{KEPT}  {'not available to this process' if mine else 'reserved for the system'}")
    elif layout.node.all_cores > layout.node.cores:
        more = counted(layout.node.all_cores - layout.node.cores, "more core")
        parts.append(f"{more} {'not available to this process' if mine else 'reserved for the system'}")
    if any(STRADDLES in text for text in texts):
        parts.append(f"{STRADDLES}  its rank spans two sockets")
    if any(SHARED in text for text in texts):
        parts.append(f"{SHARED}  shared with further ranks")
    if layout.smt > 1:
        parts.append(f"{layout.smt} of {layout.node.smt} hardware threads of each core")
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]}    {part}" if lines[-1] else part
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines += textwrap.wrap(part, width)
    return [line for line in lines if line]


def _colour(rank: int | None, *, dim: bool = False) -> str:
    if rank is None:
        return _DIM if dim else ""
    return _COLOURS[rank % len(_COLOURS)]


def _length(line: Sequence[Segment]) -> int:
    return sum(len(text) for text, _ in line)


def _text(line: Sequence[Segment], color: bool) -> str:
    if not color:
        return "".join(text for text, _ in line).rstrip()
    return "".join(f"\033[{code}m{text}\033[0m" if code else text for text, code in line).rstrip()
