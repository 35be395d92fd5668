"""The arithmetic of the benchmarks: medians of pairs, which way a target points, bytes counted once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import alternate, disk_bytes, figure_of, shown
from benchmarks.run import main, table


def test_a_ratio_is_the_median_of_pairs_and_not_of_times() -> None:
    made = figure_of("a", "b", [(1.0, 1.0), (30.0, 10.0), (2.0, 1.0)], 2.0)
    assert made.ratio == 2.0 and made.spread == (1.0, 3.0) and made.reached is True
    assert figure_of("a", "b", [(2.1, 1.0)], 2.0).reached is False
    assert figure_of("a", "b", [(1.0, 1.0)], None).reached is None


def test_a_speed_up_is_turned_around() -> None:
    made = figure_of("a", "b", [(1.0, 3.0)], 2.0, at_least=True, unit="s")
    assert made.ratio == 3.0 and made.reached is True and made.absolute == "1.0 s : 3.0 s"
    assert figure_of("a", "b", [(2.0, 3.0)], 2.0, at_least=True).reached is False


def test_pairs_change_places() -> None:
    order: list[str] = []

    def note(name: str, value: float) -> float:
        order.append(name)
        return value

    pairs = alternate(lambda: note("a", 1), lambda: note("b", 2), 3, warm_up=0)
    assert pairs == [(1, 2)] * 3 and "".join(order) == "abbaab"


def test_an_inode_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 9000)
    before = disk_bytes(tmp_path)
    os.link(tmp_path / "one", tmp_path / "two")
    assert disk_bytes(tmp_path) == before >= 9000


def test_the_table_says_what_was_not_reached() -> None:
    rows = table([figure_of("slow", "x", [(3.0, 1.0)], 2.0, note="because"), figure_of("ok", "x", [(1.0, 1.0)], 2.0)])
    assert "| no " in rows and "| yes " in rows and "- slow: because" in rows
    assert shown(2**21, "") == "2.0 MiB" and shown(0.25, "ms") == "250 ms"


def test_a_benchmark_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["no-such"])
    assert caught.value.code == 2
