"""Intervals, verdicts and orders: against tables, by enumeration, and by studies that are simulated with a seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations, pairwise, product
from random import Random

import pytest

from stackyard.core.errors import InputError
from stackyard.study.statistics import exact, orders, ratios, scaling, series
from stackyard.study.statistics.ratios import DIFFERENT, NO_VERDICT, NOT_SHOWN, Pair


def noisy(random: Random, n: int, ratio: float = 1, noise: float = 0.03) -> list[Pair]:
    """Pairs of two variants whose second is `ratio` times the first."""
    return [(100 * math.exp(random.gauss(0, noise)), 100 * ratio * math.exp(random.gauss(0, noise))) for _ in range(n)]


def compare(pairs: Sequence[Pair]) -> ratios.Comparison:
    """One comparison alone."""
    return ratios.compare_all({"": pairs})[""]


# Tables: Hollander and Wolfe, A.2, A.4 and A.6.


@pytest.mark.parametrize(("counted", "sizes", "table"), [
    (exact.sign, range(3, 21), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 6]),
    (exact.signed_rank, range(3, 13), [0, 0, 0, 1, 3, 4, 6, 9, 11, 14]),
    (lambda n: exact.rank_sum(n, n), range(3, 9), [0, 1, 3, 6, 9, 14]),
])  # fmt: skip
def test_the_order_statistics_of_the_tables(counted: object, sizes: range, table: list[int]) -> None:
    assert callable(counted)
    found = [counted(n) for n in sizes]
    assert [one.k for one in found] == table
    assert all(one.confidence >= 0.95 for one in found if one.k)
    assert all(one.confidence == 0 for one in found if not one.k)


@pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 3), (4, 6), (5, 5), (6, 2)])
def test_the_rank_sum_is_what_enumeration_counts(n: int, m: int) -> None:
    sums = [sum(ranks) - n * (n + 1) // 2 for ranks in combinations(range(1, n + m + 1), n)]
    counted = exact.rank_sum(n, m)
    assert counted.cases == len(sums)
    assert list(counted.below) == [sum(one <= count for one in sums) for count in range(n * m + 1)]


def test_confidences_are_those_of_the_tables() -> None:
    percent = [round(100 * exact.signed_rank(n).confidence, 1) for n in range(6, 13)]
    assert percent == [96.9, 95.3, 96.1, 96.1, 95.1, 95.8, 95.8]
    assert [round(100 * exact.rank_sum(n, n).confidence) for n in range(4, 9)] == [97, 97, 96, 96, 95]
    assert exact.signed_rank(40).k == 265  # table A.4: P(T <= 264) = 0.0249


# One series.


def test_a_median_has_the_interval_of_its_order_statistics() -> None:
    few = series.median([3, 1, 2, 5, 4])
    assert (few.value, few.low, few.high, few.is_range) == (3, 1, 5, True)
    many = series.median([*range(1, 10)])
    assert (many.value, many.low, many.high, many.n) == (5, 2, 8, 9)
    assert many.confidence == pytest.approx(0.961, abs=1e-3)
    assert series.median([7, 7, 7, 7, 7, 7]) == exact.Interval(7, 7, 7, 6, 1 - 2 / 64)
    assert series.median([-3.0, -1.0]).value == -2


def test_until_stops_when_the_interval_is_narrow() -> None:
    assert not series.is_enough([100, 100, 100, 100, 100], 0.02), "five runs have no interval"
    assert series.is_enough([100, 99, 101, 98.5, 101.5, 100], 0.02)
    assert not series.is_enough([100, 99, 101, 98.5, 101.5, 103], 0.02)
    assert series.is_enough([100] * 6, 0.001)


def test_until_says_beforehand_how_many_runs_it_takes() -> None:
    spread = [math.exp(x) for x in (-0.03, 0, 0.03)]  # a standard deviation of 3 %
    assert [series.runs_expected(spread, within) for within in (0.02, 0.01, 0.1)] == [14, 55, 6]
    assert series.runs_expected([5, 5], 0.01) == 6


def test_stopping_on_the_width_keeps_the_interval() -> None:
    random, held = Random(24), 0
    for _ in range(1000):
        runs = [math.exp(random.gauss(0, 0.03)) for _ in range(6)]
        while not series.is_enough(runs, 0.03) and len(runs) < 30:
            runs.append(math.exp(random.gauss(0, 0.03)))
        held += series.median(runs).holds(1)
    assert held >= 935, held  # 95 % less two standard deviations of 1,000 studies


# Two variants.


def test_a_ratio_is_the_middle_of_the_means_of_pairs() -> None:
    logs = [0.01, 0.02, 0.03, 0.05, 0.08, 0.13, 0.21]
    means = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    found = compare([(1, math.exp(log)) for log in logs])
    assert math.log(found.ratio.value) == pytest.approx(statistics.median(means))
    assert math.log(found.ratio.low) == pytest.approx(means[2])
    assert math.log(found.ratio.high) == pytest.approx(means[-3])
    assert found.p == 2 / 2**7
    assert found.text == "different on these nodes"


@pytest.mark.parametrize("n", range(6, 13))
def test_at_most_five_percent_of_all_signs_are_called_different(n: int) -> None:
    sizes = [1 + i + i * i / 100 for i in range(n)]  # no two sums are equal
    outcomes = [
        compare([(1, math.exp(sign * size / 1000)) for sign, size in zip(signs, sizes, strict=True)])
        for signs in product((-1, 1), repeat=n - 1)
        for signs in [(1, *signs)]  # the other half is its mirror image
    ]
    different = [one.verdict == DIFFERENT for one in outcomes]
    assert 0 < sum(different) / len(different) <= 0.05
    assert different == [not one.ratio.holds(1) for one in outcomes], "a verdict is what its interval says"
    assert sum(different) / len(different) == pytest.approx(1 - exact.signed_rank(n).confidence)


def test_a_verdict_agrees_with_its_interval_where_values_are_tied() -> None:
    random = Random(3)
    for _ in range(500):
        pairs = [(random.choice([9, 10, 11]), random.choice([10, 11, 12])) for _ in range(random.randint(6, 10))]
        found = compare(pairs)
        assert (found.verdict == DIFFERENT) is not found.ratio.holds(1)
        assert (found.p <= 0.05) is (found.verdict == DIFFERENT)


def test_two_variants_turned_round_give_the_inverse() -> None:
    pairs = noisy(Random(1), 9, 1.04)
    one, other = compare(pairs), compare([(b, a) for a, b in pairs])
    assert one.ratio.value == pytest.approx(1 / other.ratio.value)
    assert (one.ratio.low, one.p, one.verdict) == (pytest.approx(1 / other.ratio.high), other.p, other.verdict)


def test_fewer_than_six_pairs_have_a_range_and_no_verdict() -> None:
    found = compare([(1, 2), (1, 3), (1, 4)])
    assert (found.ratio.low, found.ratio.high, found.ratio.n) == (2, pytest.approx(3 + 1), 3)
    assert (found.verdict, found.text) == (NO_VERDICT, "range of 3 pairs; no verdict")


def test_equal_values_show_no_difference() -> None:
    found = compare([(5, 5)] * 8)
    assert (found.ratio.low, found.ratio.high, found.p, found.verdict) == (1, 1, 1, NOT_SHOWN)
    assert found.text == "no difference shown on these nodes: all values are equal as printed"
    assert compare([(5, 6)] * 6).verdict == DIFFERENT


def test_what_would_have_been_seen_is_right_in_95_of_100_studies() -> None:
    random, wrong = Random(7), 0
    for _ in range(1000):
        found = compare(noisy(random, 8, 1.02, 0.02))
        wrong += found.verdict == NOT_SHOWN and found.seen_above < 0.02
    assert wrong <= 50, wrong
    shown = compare([(1, x) for x in (0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.03)])
    assert shown.text == "no difference shown on these nodes; above 2 % would have been seen"


def test_ten_percent_at_two_percent_noise_is_found_by_eight_pairs() -> None:
    random = Random(11)
    found = [compare(noisy(random, 8, 1.1, 0.02)).verdict for _ in range(1000)]
    assert found.count(DIFFERENT) >= 990


def test_at_most_one_study_in_twenty_calls_one_of_three_sizes_different() -> None:
    random, studies = Random(2026), 10_000
    wrong = 0
    for _ in range(studies):
        found = ratios.compare_all({str(nodes): noisy(random, 7) for nodes in (1, 2, 4)})
        wrong += any(one.verdict == DIFFERENT for one in found.values())
    assert wrong / studies <= 0.055, wrong


def test_holm_takes_the_smallest_first() -> None:
    assert ratios.holm({"a": 0.04, "b": 0.01, "c": 0.02}) == {"a": True, "b": True, "c": True}
    assert ratios.holm({"a": 0.04, "b": 0.02, "c": 0.02}) == {"a": False, "b": False, "c": False}
    assert ratios.holm({"a": 0.06, "b": 0.01, "c": 0.02}) == {"a": False, "b": True, "c": True}
    assert ratios.holm({}) == {}


def test_the_pairs_that_comparisons_need() -> None:
    assert [ratios.pairs_needed(m) for m in (1, 3, 4, 6, 8, 25)] == [6, 7, 8, 8, 9, 10]
    for comparisons in range(1, 100):
        n = ratios.pairs_needed(comparisons)
        assert n == max(6, math.ceil(math.log2(2 * comparisons / 0.05)))


def test_too_few_pairs_for_several_comparisons_have_an_interval_and_no_verdict() -> None:
    random = Random(5)
    found = ratios.compare_all({"1": noisy(random, 8, 1.5), "2": noisy(random, 8, 1.5), "4": noisy(random, 6, 1.5)})
    assert [one.verdict for one in found.values()] == [DIFFERENT, DIFFERENT, NO_VERDICT]
    assert found["4"].text == "6 pairs; no verdict: 3 comparisons need 7"
    assert not found["4"].ratio.is_range


def test_a_difference_that_holm_does_not_grant_is_said_so() -> None:
    close = [(1, x) for x in (1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 0.995)]
    assert compare(close).verdict == DIFFERENT
    both = ratios.compare_all({"1": close, "2": [(1, 1)] * 7, "4": [(1, 1)] * 7})
    assert both["1"].text.startswith("no difference shown by 3 comparisons together; above")


@pytest.mark.parametrize(("value", "why"), [
    (0.0, "its value is 0, not above 0"), (-2.0, "its value is -2, not above 0"), (math.nan, "its value is nan"),
])  # fmt: skip
def test_a_value_without_a_logarithm_is_refused_by_its_place(value: float, why: str) -> None:
    with pytest.raises(InputError, match=f"the second variant in pair 2: .*{why}|variant in pair 2: {why}"):
        compare([(1, 1), (1, value)])
    with pytest.raises(InputError, match=f"run 1.*{why}"):
        ratios.ratio([value], [1])


def test_a_median_need_not_be_above_0() -> None:
    assert series.median([0.0]).value == 0
    with pytest.raises(InputError, match="its value is 0"):
        series.is_enough([0.0] * 6, 0.02)


# Allocations.


def test_an_allocation_is_one_observation() -> None:
    by_allocation = {str(i): [(1.0, 1.02 + i / 1000), (1.0, 1.04)] for i in range(6)}
    found = ratios.compare_across({"image": by_allocation})["image"]
    assert (found.ratio.n, found.verdict) == (6, DIFFERENT)
    assert found.text == "different on allocations like these"
    first = math.exp((math.log(1.02) + math.log(1.04)) / 2)
    assert found.ratio.low == pytest.approx(first)
    five = ratios.compare_across({"image": dict(list(by_allocation.items())[:5])})["image"]
    assert five.text == "range of 5 allocations; no verdict"


def test_allocations_that_differ_call_few_equal_variants_different() -> None:
    """An effect of 2 % of the variant by allocation: eight pairs in one allocation are not eight observations."""
    random, wrong, naive = Random(9), 0, 0
    for _ in range(400):
        effects = [math.exp(random.gauss(0, 0.02)) for _ in range(6)]
        allocations = {str(i): noisy(random, 2, effect, 0.02) for i, effect in enumerate(effects)}
        wrong += ratios.compare_across({"": allocations})[""].verdict == DIFFERENT
        naive += compare(noisy(random, 8, effects[0], 0.02)).verdict == DIFFERENT
    assert wrong <= 30 < 80 < naive, (wrong, naive)  # 5 % and three standard deviations; facts: 29 %


# Sizes.


def test_two_samples_are_compared_by_all_their_differences() -> None:
    few = ratios.ratio([1, 2, 3], [4, 5, 6])
    assert few.is_range
    assert (few.low, few.high) == (pytest.approx(4 / 3), pytest.approx(6))
    one, other = [10.0, 11, 12, 13], [20.0, 22, 24, 26, 28]
    found = ratios.ratio(one, other)
    differences = sorted(b / a for a in one for b in other)
    k = exact.rank_sum(4, 5).k
    assert (found.low, found.high) == (pytest.approx(differences[k - 1]), pytest.approx(differences[-k]))
    assert found.value == pytest.approx(math.sqrt(differences[9] * differences[10]))


def test_the_formulas_of_scaling() -> None:
    base, size = [100.0] * 6, [320.0] * 6
    strong = scaling.scaling("strong", (1, base), (4, size))
    assert strong.efficiency is not None
    assert (strong.speedup.value, strong.efficiency.value) == (pytest.approx(3.2), pytest.approx(0.8))
    timed = scaling.scaling("strong", (2, [3.2] * 6), (8, [1.0] * 6), is_time=True)
    assert timed.efficiency is not None
    assert (timed.speedup.value, timed.efficiency.value) == (pytest.approx(3.2), pytest.approx(0.8))
    assert timed.note == "what is lost between 1 and 2 nodes is not in this figure"
    weak = scaling.scaling("weak", (1, [0.8] * 6), (4, [1.0] * 6), is_time=True)
    assert weak.efficiency is not None
    assert (weak.speedup.value, weak.efficiency.value) == (pytest.approx(3.2), pytest.approx(0.8))
    assert scaling.scaling("weak", (1, base), (4, size)).efficiency == strong.efficiency
    assert strong.note == ""
    thick = scaling.scaling("throughput", (1, base), (1, size))
    assert (thick.speedup.value, thick.efficiency) == (pytest.approx(3.2), None)


def test_scaling_refuses_what_has_no_formula() -> None:
    with pytest.raises(InputError, match="the metric is a time"):
        scaling.scaling("throughput", (1, [1]), (2, [1]), is_time=True)


# Orders.


def test_two_variants_take_turns() -> None:
    order = orders.turns(["native", "image"], 6, seed=1)
    assert len(order) == 14
    assert {*order[:2]} == {("native", 0), ("image", 0)}, "warm-up runs"
    blocks = [tuple(variant for variant, _ in order[i : i + 2]) for i in range(2, 14, 2)]
    assert {frozenset(block) for block in blocks} == {frozenset({"native", "image"})}
    assert all({*blocks[i : i + 2]} == {("native", "image"), ("image", "native")} for i in range(0, 6, 2)), "ABBA"
    assert orders.turns(["native"], 3, seed=1, warmups=0) == [("native", 1), ("native", 2), ("native", 3)]


@pytest.mark.parametrize("count", range(2, 8))
def test_more_variants_are_balanced(count: int) -> None:
    """Each is in each place equally often, and follows each other one equally often."""
    variants = [f"v{i}" for i in range(count)]
    repeats = count if count % 2 == 0 else 2 * count
    order = orders.turns(variants, repeats, seed=5, warmups=0)
    blocks = [[variant for variant, own in order if own == repeat] for repeat in range(1, repeats + 1)]
    places = [(place, variant) for block in blocks for place, variant in enumerate(block)]
    followers = [pair for block in blocks for pair in pairwise(block)]
    assert {places.count(one) for one in places} == {repeats // count}
    assert {followers.count(one) for one in product(variants, variants) if one[0] != one[1]} == {repeats // count}


def test_an_order_follows_from_its_seed() -> None:
    first = orders.turns(["a", "b", "c"], 8, seed=42)
    assert first == orders.turns(["a", "b", "c"], 8, seed=42)
    assert first != orders.turns(["a", "b", "c"], 8, seed=43)
    starts = {orders.turns(["a", "b"], 2, seed=seed, warmups=0)[0][0] for seed in range(20)}
    assert starts == {"a", "b"}, "ABBA and BAAB"
    shown = " ".join(variant for variant, _ in first)
    assert shown == "a c b a c b c a b b a c a b c c b a b c a b c a c a b"


def pairs_of(order: Sequence[orders.Turn], values: dict[int, float]) -> dict[int, Pair]:
    """The values of both variants of each repeat, as `study.analysis` takes them from records."""
    known = {(repeat, variant): values[at] for at, (variant, repeat) in enumerate(order) if repeat}
    return {repeat: (known[repeat, "a"], known[repeat, "b"]) for repeat, variant in known if variant == "a"}


def test_a_slow_first_run_changes_nothing() -> None:
    """Without warm-ups one run 30 % slower hides a difference of 5 % from six pairs; with them it is in no pair."""
    random, hidden, found = Random(13), 0, 0
    for seed in range(200):
        order = orders.turns(["a", "b"], 8, seed)
        gains = [1.05 if variant == "b" else 1 for variant, _ in order]
        values = {at: gain * math.exp(random.gauss(0, 0.01)) for at, gain in enumerate(gains)}
        slow = {**values, 0: values[0] * 1.3, 1: values[1] * 1.3}
        pairs = pairs_of(order, slow)
        assert pairs == pairs_of(order, values)
        assert sorted(pairs) == list(range(1, 9))
        found += compare([*pairs.values()]).verdict == DIFFERENT
        cold = {**pairs, 1: (pairs[1][0] * 1.3, pairs[1][1])}
        hidden += compare([*cold.values()][:6]).verdict != DIFFERENT
    assert (hidden, found) == (200, 200)
