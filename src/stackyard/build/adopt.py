"""Takes what another account or yard has in its cache into this account's: once, instead of for each revision."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from stackyard.build.job import Job
from stackyard.host.identity import process_token
from stackyard.yard import disk
from stackyard.yard.atomic import fault_point
from stackyard.yard.caches import Kind
from stackyard.yard.permissions import settle


def adopt(job: Job, kind: Kind, source: Path, target: Path) -> bool:
    """Copy a complete cache entry (hard links where they can be made), whole or not at all, and check the copy.

    Args:
        target: its path in this account's cache; what is copied gets the modes of this yard.

    Returns:
        False, and nothing is left, where the entry is damaged or may not be read.
    """
    temporary = target.with_name(f".{target.name}.{process_token()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        disk.copy_tree(source, temporary)
        intact = next(kind.audited(temporary), None) is None
    except PermissionError:
        intact = False
    if not intact:
        shutil.rmtree(temporary, ignore_errors=True)
        return False
    settle(temporary, job.policy, linked=False)
    fault_point("cache")
    try:
        os.rename(temporary, target)
    except OSError:  # another process was faster: its result stays
        shutil.rmtree(temporary, ignore_errors=True)
        if not target.exists():
            raise
    return True
