"""What a study found, from records made by hand: what is an interval, what a range, and what is left out of what."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from stackyard.study.analysis import Results, Series
from stackyard.study.report.load import study_results
from stackyard.study.schedule import Point
from stackyard.study.statistics import ratios, scaling, series
from stackyard.study.statistics.ratios import compare_unpaired, runs_needed
from stackyard.study.twostudies import compare_studies
from study.handmade import RATE, Value, make_study, noisy

TWO = ("native", "image")
TIME = {"name": "step", "unit": "s", "better": "lower", "kind": "time"}


def found(tmp_path: Path, value: Value, name: str = "study", **request: Any) -> Results:
    return study_results(make_study(tmp_path / name, value, **request))


def values(results: Results, nodes: int, variant: str = "job") -> tuple[float, ...]:
    return one(results, nodes, variant).values


def one(results: Results, nodes: int, variant: str = "job") -> Series:
    (match,) = (each for each in results.series if each.key == (nodes, variant) and each.metric == results.metrics[0])
    return match


def test_sizes_have_the_median_of_their_allocations_and_the_two_sample_interval(tmp_path: Path) -> None:
    results = found(tmp_path, noisy())
    for nodes in (1, 2, 4):
        own = one(results, nodes)
        assert len(own.values) == 6 and own.is_alone and own.median == series.median(own.values)
        assert own.basis == "97 % interval"
    assert one(results, 4).scaling == scaling.scaling("strong", (1, values(results, 1)), (4, values(results, 4)))
    base = one(results, 1)
    assert base.scaling and base.median and base.scaling.speedup.value == 1
    assert base.scaling.speedup.low == pytest.approx(base.median.low / base.median.value)
    assert base.scaling.speedup.high == pytest.approx(base.median.high / base.median.value)
    assert base.scaling.speedup.confidence == base.median.confidence


def test_warm_up_runs_are_in_no_number(tmp_path: Path) -> None:
    with_cold = found(tmp_path, noisy(cold=0.001), variants=TWO)
    without = found(tmp_path, noisy(cold=1000), "other", variants=TWO)
    assert with_cold.series == without.series and with_cold.versus == without.versus


@pytest.mark.parametrize("asked", [
    {"how": "here"}, {"how": "here", "place": lambda point: point.id}, {"pack": True}, {"variants": TWO},
    {"place": lambda point: "77"}, {"place": lambda point: str(point.allocation // 2)},
])  # fmt: skip
def test_runs_that_share_an_allocation_have_a_range_and_never_an_interval(tmp_path: Path, asked: Any) -> None:
    results = found(tmp_path, noisy(), **asked)
    for own in results.series:
        assert own.median and own.median.is_range and "range of" in own.basis and "allocation" in own.basis
        assert (own.median.low, own.median.high) == (min(own.values), max(own.values))
        assert own.scaling and own.scaling.speedup.is_range
        assert own.scaling.efficiency and own.scaling.efficiency.is_range
    base, four = one(results, 1, results.variants[0]), one(results, 4, results.variants[0])
    assert four.scaling and four.scaling.speedup.low == pytest.approx(min(four.values) / max(base.values))
    assert four.scaling.speedup.high == pytest.approx(max(four.values) / min(base.values))


def test_three_runs_have_a_range_and_no_verdict(tmp_path: Path) -> None:
    assert one(found(tmp_path, noisy(), repeat=3), 2).basis == "range of 3 runs; no verdict"


def test_a_comparison_is_of_pairs_judged_together(tmp_path: Path) -> None:
    results = found(tmp_path, noisy(), variants=TWO)
    expected = ratios.compare_all({str(nodes): pairs(results, nodes) for nodes in (1, 2, 4)})
    assert [each.comparison for each in results.versus] == list(expected.values())
    assert {each.comparison.together for each in results.versus if each.comparison} == {3}
    assert not results.is_undecided


def pairs(results: Results, nodes: int) -> list[tuple[float, float]]:
    by = {(record.point.nodes, record.point.repeat, record.point.variant): results.value(record, results.metrics[0])
          for record in results.counted}  # fmt: skip
    return [(by[nodes, repeat, "native"] or 0, by[nodes, repeat, "image"] or 0) for repeat in range(1, 9)]


def test_two_runs_on_different_nodes_are_no_pair_and_a_failed_half_takes_the_other_with_it(tmp_path: Path) -> None:
    speed = noisy()

    def value(point: Point) -> Any:
        return "no such data" if (point.nodes, point.variant, point.repeat) == (2, "image", 3) else speed(point)

    def place(point: Point) -> str:
        return "later" if (point.nodes, point.variant, point.repeat) == (1, "native", 5) else f"job{point.nodes}"

    results = found(tmp_path, value, variants=TWO, place=place)
    assert [(each.pairs, each.planned, each.apart) for each in results.versus] == [(7, 8, 1), (7, 8, 0), (8, 8, 0)]
    assert one(results, 2, "image").left_out == {"failed": 1}


def test_with_six_allocations_each_is_one_observation(tmp_path: Path) -> None:
    results = found(tmp_path, noisy(), variants=TWO, allocations=7, repeat=2)
    for each in results.versus:
        assert each.comparison and each.comparison.unit == "allocation" and each.comparison.ratio.n == 7
    five = found(tmp_path, noisy(), "five", variants=TWO, allocations=5, repeat=2)
    assert all(each.comparison and each.comparison.unit == "pair" for each in five.versus)
    here = found(tmp_path, noisy(), "here", variants=TWO, allocations=7, repeat=2, how="here")
    assert all(each.comparison and each.comparison.scope == "these nodes" for each in here.versus)


def test_a_time_is_turned_so_that_above_one_is_faster(tmp_path: Path) -> None:
    speed = noisy()
    rates = found(tmp_path, noisy(), variants=TWO)
    times = found(tmp_path, lambda point: 1000 / speed(point), "times", variants=TWO, metric=TIME)
    for rate, time in zip(rates.versus, times.versus, strict=True):
        assert rate.comparison and time.comparison
        assert time.comparison.ratio.value == pytest.approx(rate.comparison.ratio.value)
        assert time.comparison.ratio.low == pytest.approx(rate.comparison.ratio.low)
    fast, slow = one(times, 4, "native").scaling, one(rates, 4, "native").scaling
    assert fast and slow and fast.speedup.value == pytest.approx(slow.speedup.value)


def test_the_baseline_is_the_smallest_size_that_has_values(tmp_path: Path) -> None:
    speed = noisy()
    results = found(tmp_path, lambda point: "out of memory" if point.nodes == 1 else speed(point))
    four = one(results, 4).scaling
    assert four and four.base == 2 and four.note == "what is lost between 1 and 2 nodes is not in this figure"
    assert one(results, 1).basis == "no value" and one(results, 1).left_out == {"failed": 6}


def test_throughput_has_no_efficiency_and_other_numbers_no_speed_up(tmp_path: Path) -> None:
    free = one(found(tmp_path, noisy(), kind="throughput"), 4).scaling
    assert free and free.efficiency is None
    memory = {"name": "memory", "unit": "GiB", "better": "lower", "kind": "rate"}
    assert one(found(tmp_path, noisy(), "memory", metric=memory), 4).scaling is None
    zero = found(tmp_path, lambda point: float(point.nodes > 1), "zero")
    assert one(zero, 4).scaling is None and "not above 0" in one(zero, 4).problem


@pytest.mark.parametrize("bad", [None, True, "fast", float("nan"), float("inf"), [1.0]])
def test_what_is_not_a_finite_number_is_left_out(tmp_path: Path, bad: Any) -> None:
    speed = noisy()

    def value(point: Point) -> Any:
        return [{**RATE, "value": bad}, "nonsense"] if point.repeat == 2 else speed(point)

    results = found(tmp_path, value)
    assert len(values(results, 1)) == 5 and one(results, 1).left_out == {"no-value": 1}


def test_two_studies_are_compared_as_unpaired_runs(tmp_path: Path) -> None:
    before, after = found(tmp_path, noisy(1), "before"), found(tmp_path, noisy(2, gain=1), "after", seed=9)
    both = compare_studies(before, after)
    assert [each.nodes for each in both.matches] == [1, 2, 4] and not both.is_undecided
    for match in both.matches:
        assert match.comparison.ratio == scaling.ratio(values(before, match.nodes), values(after, match.nodes))
        assert match.comparison.verdict == ratios.NOT_SHOWN
    quick = found(tmp_path, lambda point: 1.2 * noisy(5)(point), "quick")
    assert {each.comparison.verdict for each in compare_studies(before, quick).matches} == {ratios.DIFFERENT}
    assert not both.differences


def test_two_studies_say_what_differs_and_what_cannot_be_compared(tmp_path: Path) -> None:
    before = found(tmp_path, noisy(1), "before", how="here")
    after = found(tmp_path, noisy(2), "after", nodes=(1, 2), repeat=5, job={"program": ["train.py", "--batch", "128"]})
    both = compare_studies(before, after)
    different = {each.what: (each.first, each.second) for each in both.differences}
    assert different["request.job.program"] == ("train.py --batch 64", "train.py --batch 128")
    assert different["about.how"] == ("here", "jobs") and different["request.nodes"] == ("1 2 4", "1 2")
    assert both.unmatched == ("only before has images/s on 4 nodes, job",)
    assert both.is_undecided and all(each.comparison.ratio.is_range for each in both.matches)


def test_variants_are_matched_by_name_or_because_there_is_one(tmp_path: Path) -> None:
    pair, single = found(tmp_path, noisy(), "pair", variants=TWO), found(tmp_path, noisy(), "single")
    renamed = found(tmp_path, noisy(), "renamed", variants=("only",))
    assert {each.variants for each in compare_studies(single, renamed).matches} == {("job", "only")}
    assert not compare_studies(pair, single).matches and compare_studies(pair, single).is_undecided


@pytest.mark.parametrize(("n", "m"), [(4, 4), (4, 5), (5, 5), (3, 6)])
def test_equal_series_are_called_different_in_at_most_five_percent_of_all_cases(n: int, m: int) -> None:
    cases = list(combinations(range(n + m), n))
    different = 0
    for first in cases:
        both = [2.0**rank for rank in first], [2.0**rank for rank in range(n + m) if rank not in first]
        found = compare_unpaired({"": both})[""]
        different += found.verdict == ratios.DIFFERENT
        assert (found.verdict == ratios.DIFFERENT) == (not found.ratio.is_range and not found.ratio.holds(1))
    assert 0 < different / len(cases) <= 0.05


def test_unpaired_comparisons_need_more_runs_the_more_there_are() -> None:
    assert [runs_needed(count) for count in (1, 2, 6, 7, 23, 24)] == [4, 5, 5, 6, 6, 7]
    apart = ([1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.2, 2.3])
    assert compare_unpaired({"a": apart})["a"].verdict == ratios.DIFFERENT
    two = compare_unpaired({"a": apart, "b": apart})["a"]
    assert two.verdict == ratios.NO_VERDICT and two.text == "4 allocations; no verdict: 2 comparisons need 5"
    ties = compare_unpaired({"a": ([1.0] * 6, [1.0] * 6)})["a"]
    assert ties.verdict == ratios.NOT_SHOWN and ties.p == 1


def test_more_runs_than_can_be_counted_have_a_range(tmp_path: Path) -> None:
    speed = noisy()
    many = [found(tmp_path, speed, name, nodes=(1,), repeat=160, warmup_runs=0) for name in ("before", "after")]
    (match,) = compare_studies(*many).matches
    assert match.comparison.ratio.is_range and match.comparison.text == "range of 160 runs; no verdict"
