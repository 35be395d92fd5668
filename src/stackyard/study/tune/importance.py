"""How much of the differences between trials follows from each parameter.

The share of the variance of the values' ranks that is between groups of trials which have about the same value of the
parameter (the correlation ratio eta squared, Fisher), less what chance gives so many groups. It sees the effect of one
parameter by itself; Optuna's fANOVA, in its dashboard, also sees those of two together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stackyard.study.tune.request import SearchRequest

FEWEST = 8
"""Trials with a value, below which nothing is said."""


def importances(request: SearchRequest, values: Sequence[tuple[Mapping[str, Any], float]]) -> dict[str, float]:
    """The share of each parameter, 0 to 1, the largest first; empty for too few trials."""
    if len(values) < FEWEST:
        return {}
    ranks = _ranks([value for _, value in values])
    found = {name: _share([params[name] for params, _ in values], ranks, bool(one.choice))
             for name, one in request.parameters.items()}  # fmt: skip
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks, equal values with the mean of theirs."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def _share(settings: Sequence[Any], ranks: Sequence[float], is_choice: bool) -> float:
    """Adjusted eta squared: 1 - (1 - eta2) (n - 1) / (n - k)."""
    groups: dict[Any, list[float]] = {}
    count = max(2, min(8, math.isqrt(len(ranks))))
    order = _ranks(settings) if not is_choice else []
    for at, rank in enumerate(ranks):
        key = settings[at] if is_choice else int(order[at] * count / len(ranks))
        groups.setdefault(key, []).append(rank)
    mean = sum(ranks) / len(ranks)
    total = sum((rank - mean) ** 2 for rank in ranks)
    if not total or len(groups) < 2 or len(groups) >= len(ranks):
        return 0.0
    within = sum(sum((rank - sum(group) / len(group)) ** 2 for rank in group) for group in groups.values())
    return max(0.0, 1 - within / total * (len(ranks) - 1) / (len(ranks) - len(groups)))
