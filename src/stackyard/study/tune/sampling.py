"""Parameters of a trial, drawn from nothing but the seed of the study, the number of the trial and what was known.

So a study that is rebuilt from its journal asks for the same trials (the sources of the seeds: docs/design).
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from stackyard.core.errors import InputError
from stackyard.study.tune.request import Parameter, SearchRequest

Params = dict[str, Any]
DIGITS = 6
"""Significant digits of a number: what is recorded is what the program gets."""
TRIES = 1000


def seed_of(study: int, number: int) -> int:
    """The seed of a trial, of 32 bits."""
    return int.from_bytes(sha256(f"{study}/{number}".encode()).digest()[:4], "big")


def key_of(params: Mapping[str, Any]) -> str:
    """By which equal parameters are found."""
    return json.dumps(params, sort_keys=True)


def drawn(request: SearchRequest, number: int, seed: int, taken: Iterable[str] = ()) -> Params:
    """Random parameters of a trial that none before it has, where the space has so many.

    Args:
        taken: `key_of` those of the trials before it.
    """
    generator, before, params = random.Random(seed_of(seed, number)), set(taken), Params()
    for _ in range(TRIES):
        params = {name: _value(one, generator) for name, one in request.parameters.items()}
        if key_of(params) not in before:
            return params
    if math.isfinite(request.size) and request.size <= TRIES * TRIES:  # nearly exhausted: one of those that are left
        every = [[_typed(one, value) for value in _all(one)] for one in request.parameters.values()]
        points = (dict(zip(request.parameters, point, strict=True)) for point in itertools.product(*every))
        return next((point for point in points if key_of(point) not in before), params)
    return params


def grid_point(request: SearchRequest, number: int) -> Params:
    """The N-th point of the grid: the last parameter changes first."""
    found: dict[str, Any] = {}
    for name, one in reversed(request.parameters.items()):
        values = _points(one)
        number, index = divmod(number, len(values))
        found[name] = values[index]
    return {name: found[name] for name in request.parameters}


def within(request: SearchRequest, params: Mapping[str, Any]) -> Params:
    """Parameters that an optimizer suggests, as they are passed on: rounded, and within their ranges."""
    return {name: _typed(one, params[name]) for name, one in request.parameters.items()}


def require_parameters(request: SearchRequest, trials: Iterable[Mapping[str, Any]]) -> None:
    """Refuse trials of another space: one of the two files was changed.

    Raises:
        InputError: a trial lacks a parameter, or has a value of another kind.
    """
    for number, params in enumerate(trials):
        try:
            within(request, params)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"a trial has other parameters than space.yaml: the {number + 1}. one: {error}",
                             hint="take back what was changed, or begin another search") from error  # fmt: skip


def _value(one: Parameter, generator: random.Random) -> Any:
    if one.choice:
        return generator.choice(one.choice)
    if one.int:
        return generator.randint(*one.int)
    low, high = one.range
    if one.kind == "loguniform":
        return _typed(one, math.exp(generator.uniform(math.log(low), math.log(high))))
    return _typed(one, generator.uniform(low, high))


def _typed(one: Parameter, value: Any) -> Any:
    if one.choice:
        return str(value)
    if one.int:
        return int(value)
    low, high = one.range
    return min(max(float(f"{value:.{DIGITS}g}"), low), high)


def _all(one: Parameter) -> Iterable[Any]:
    return range(one.int[0], one.int[1] + 1) if one.int else one.choice


@lru_cache(256)
def _points(one: Parameter) -> list[Any]:
    if one.choice:
        return list(one.choice)
    count, (low, high) = int(min(one.points, one.size)), one.range
    if one.kind == "loguniform":
        ends = math.log(low), math.log(high)
        return [_typed(one, math.exp(ends[0] + (ends[1] - ends[0]) * at / (count - 1))) for at in range(count)]
    steps = [low + (high - low) * at / max(count - 1, 1) for at in range(count)]
    return [round(step) for step in steps] if one.int else [_typed(one, step) for step in steps]
