"""Makes what all tests share before they start, so that no test waits for it: ``python -m support.prepare``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from stackyard.core.errors import MissingError
from support import images, sitechannels, testbed, torchstack


def _channels() -> None:
    testbed.real_channel()
    sitechannels.longhorn_channels()
    sitechannels.open_ce_channels()


MADE: dict[str, Callable[[], object]] = {
    "channels": _channels,
    "a container image": images.image_sif,
    "a stack with torch": torchstack.torch_yard,
}


def main() -> int:
    """Make each; what cannot be had is said, and its tests are skipped with the same words."""
    for what, make in MADE.items():
        began = time.monotonic()
        try:
            make()
        except MissingError as error:
            print(f"missing: {error}\n  hint: {error.hint}\n{error.detail or ''}", file=sys.stderr)
        else:
            print(f"{what} for the tests: {testbed.cache_directory()} ({time.monotonic() - began:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
