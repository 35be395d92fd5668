"""The head of Grid Engine, which lint judges although Stackyard starts no jobs there without a plug-in.

The plug-in in ``examples/plugins`` has a table of its own, to stay an example without Stackyard's internals.
Source: submit(1) of Grid Engine 8.1, and the options that its successors added.
"""

from __future__ import annotations

import re
from typing import ClassVar

from stackyard.lint.dialect import Dialect, checked

_FLAGS = "bgio clear cwd h hard help noshell nostdin notify soft terse V verbose verify"
_VALUED = (
    "@ a ac adds ar b binding c ckpt C clearp dc display dl e hold_jid hold_jid_ad i j jc js jsv l m M masterq mods "
    "now ot p par pty r R rdi rou S sc shell si sync tc u umask v w wd xd xdv"
)


class GridEngine:
    """The attributes that a plug-in's scheduler would have."""

    prefix = "#$"
    submit_program = "qsub"
    head_options: ClassVar = {
        **{f"-{name}": "" for name in _FLAGS.split()},
        **{f"-{name}": "value" for name in _VALUED.split()},
        "-N": "name",
        "-A": "account",
        "-P": "account",
        "-q": "queue",
        "-t": "array",
        "-o": "output",
        "-pe": "value tasks",
        "-l h_rt": "time",
    }
    head_excludes: tuple[tuple[str, ...], ...] = (("-cwd", "-wd"),)
    head_needs: ClassVar = {"-hold_jid_ad": ("-t",), "-tc": ("-t",)}
    time_pattern = r"((?P<hours>\d*):(?P<minutes>\d*):)?(?P<seconds>\d*)"
    index_in_output = "$TASK_ID"


def grid_engine(text: str) -> Dialect | None:
    """The head, if a script has directives of Grid Engine."""
    return checked("sge", GridEngine()) if re.search(r"^#\$ ?-\w", text, re.M) else None
