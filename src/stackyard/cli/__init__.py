"""The only room that prints, prompts or exits."""

import _signal  # type: ignore[import-not-found] # `signal` imports `enum`, and Ctrl-C meanwhile shows a traceback
import gc
import sys

_PROGRAM = sys.argv[0].rpartition("/")[2] in ("stackyard", "-m")
if _PROGRAM and _signal.getsignal(_signal.SIGINT) == _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
"""Ctrl-C ends the program without a traceback while its modules are imported; `main` hears it again."""

gc.set_threshold(250_000, 20, 20)
"""A start makes some 60,000 objects that stay and no garbage: a single look at them takes a tenth of the start."""
