"""Makes what all tests share before they start, so that no test waits for it: ``python -m support.prepare``."""

from __future__ import annotations

import sys
import time

from stackyard.errors import MissingError
from support import sitechannels, testbed


def main() -> int:
    """Make the shared channels; what cannot be had is said, and its tests are skipped with the same words."""
    began = time.monotonic()
    try:
        testbed.real_channel()
        sitechannels.longhorn_channels()
        sitechannels.open_ce_channels()
    except MissingError as error:
        print(f"missing: {error}\n  hint: {error.hint}\n{error.detail or ''}", file=sys.stderr)
        return 0
    print(f"channels for the tests: {testbed.cache_folder()} ({time.monotonic() - began:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
