"""A full re-hash of a yard's caches: does every entry still hold the bytes that were written?"""

from __future__ import annotations

import time
from pathlib import Path

from stackyard.yard.caches import KINDS
from stackyard.yard.layout import Yard


def audit(yard: Yard) -> list[str]:
    """The problems of this yard's caches, one sentence each; empty when there is none. Reads every byte."""
    return [problem for kind in KINDS for problem in kind.problems(yard)]


def unfinished(yard: Yard, older_than_s: float = 86400) -> list[Path]:
    """What killed builds left in this yard's caches under temporary names: safe to remove while no build is running.

    Args:
        older_than_s: seconds since it was last changed; a younger one may belong to a running build.
    """
    latest = time.time() - older_than_s
    found = (path for kind in KINDS for path in kind.leftovers(yard))
    return sorted(path for path in found if path.lstat().st_mtime <= latest)
