"""How quickly the program starts: its version, a long list, and a deploy of a hundred variants that changes nothing."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import Figure, alternate, figure_of, seconds
from benchmarks.tools import PYTHON, STACKYARD, environment, scratch, stackyard

VARIANTS = 100
START_TARGET = 12.0
UNCHANGED_TARGET = 60.0


def measure(pairs: int = 15) -> list[Figure]:
    """``--version``, ``list`` and an unchanged ``deploy`` against ``python -c pass``."""
    with scratch("start") as directory:
        file = hundred_variants(directory)
        stackyard(directory, "deploy", file)
        rows = stackyard(directory, "list", "--json")
        assert len(rows) == VARIANTS, len(rows)
        yard = ["--yard", directory / "yard"]
        figures = [
            _against_python("stackyard --version", ["--version"], directory, pairs, START_TARGET),
            _against_python(f"list of {VARIANTS} revisions", [*yard, "list"], directory, pairs, START_TARGET),
            _against_python(
                f"deploy of {VARIANTS} variants, nothing changed", [*yard, "deploy", file], directory, pairs,
                UNCHANGED_TARGET, "a memo of the files' hashes says that nothing changed",
            ),
            _against_python(
                "the same without the memo", [*yard, "deploy", file, "--locked"], directory, max(3, pairs // 3), None,
                "every input is read again", forget=directory / "yard" / "cache" / "memo",
            ),
        ]  # fmt: skip
        assert len(stackyard(directory, "list", "--json")) == VARIANTS
    return figures


def hundred_variants(directory: Path) -> Path:
    """A stack of a hundred variants with one tiny package, on a channel of its own."""
    from support.channel import Package, make_channel

    tool = Package("tool", "1.0", files={"bin/tool": ("#!/bin/sh\necho tool\n", 0o755)})
    channel = make_channel(directory / "channel", [tool])
    letters = [f"m{n}" for n in range(10)]
    file = directory / "stack.yaml"
    file.write_text(
        f"name: many\nversion: '1'\nmatrix:\n  first: [{', '.join(letters)}]\n"
        f"  second: [{', '.join(letters).replace('m', 'n')}]\n"
        f"environment:\n  channels: [{channel.as_uri()}]\n  dependencies: [tool]\n"
    )
    return file


def _against_python(
    name: str, words: list[str | Path], directory: Path, pairs: int, target: float | None, note: str = "",
    forget: Path | None = None,
) -> Figure:  # fmt: skip
    env = environment(directory)

    def ours() -> float:
        for memo in forget.glob("*") if forget else ():
            memo.unlink()
        return seconds([STACKYARD, *words], env=env)

    measured = alternate(ours, lambda: seconds([PYTHON, "-c", "pass"], env=env), pairs)
    return figure_of(name, "python -c pass", measured, target, note=note)
