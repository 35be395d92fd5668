"""Starts a small script of this package in another Python process, as fast as possible.

Python compiles a script at each start and keeps no bytecode of it. Started in this way it takes the bytecode that an
installation has beside the text, as for an import. No settings, no site-packages, no directory of ours on its path.
"""

from __future__ import annotations

import sys
from pathlib import Path

_START = """import _frozen_importlib_external as e
f={0!r}
exec(e.SourceFileLoader('__main__',f).get_code('__main__'),{{'__name__':'__main__','__file__':f}})"""


def words(script: Path) -> tuple[str, ...]:
    """The command words that run a script with this Python; its arguments follow them."""
    return (sys.executable, "-I", "-S", "-B", "-c", _START.format(str(script)))
