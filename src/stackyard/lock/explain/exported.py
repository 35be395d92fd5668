"""Advice for an environment that `conda env export` wrote on another platform, or years ago.

Such an environment has the build of every package. Builds belong to one platform, and channels drop old ones; packages
such as ``vs2015_runtime`` exist on Windows alone. A solver names the first that is missing, and then the next one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence

from rattler.exceptions import SolverError

from stackyard.core.names import conda_name

BUDGET_S = 5.0
_MISSING = re.compile(r"No candidates were found for (?:\S+::)?([\w.-]+)")
_WITH_BUILD = re.compile(r"(\S+ [^\s\[\]]+) [^\s\[\]*]+")
"""A spec with one build; a pattern such as ``cuda*`` is a choice of who wrote it."""


async def advice(works: Callable[[Sequence[str]], Awaitable[object]], specs: Sequence[str]) -> list[str]:
    """The hint, if the requirements are solvable without their builds and without the packages that no channel has.

    Args:
        works: solves; raises SolverError.
        specs: the requirements, in the format of `CondaRequirement.spec`.
    """
    left = [_WITH_BUILD.sub(r"\1", spec) if _WITH_BUILD.fullmatch(spec) else spec for spec in specs]
    if left == list(specs):
        return []
    absent: list[str] = []
    end = time.monotonic() + BUDGET_S
    while left and time.monotonic() < end:
        try:
            await works(left)
        except SolverError as error:
            gone = set(_MISSING.findall(str(error)))
            absent += [name for name in map(conda_name, left) if name in gone]
            if not gone & set(map(conda_name, left)):
                return []
            left = [spec for spec in left if conda_name(spec) not in gone]
            continue
        also = f" and without {', '.join(absent)}, which no channel has in this form" if absent else ""
        return [
            f"solvable without the builds{also}: use what `conda env export --no-builds` or `--from-history` prints"
        ]
    return []
