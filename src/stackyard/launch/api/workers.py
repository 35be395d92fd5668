"""Programs of other rooms that run as the ranks of a launch and talk to the process that started it.

Such a program may import modules of `stackyard.launch.node`: `program_text` makes one file of it and them, since
`stackyard` cannot be imported on the nodes. Both ends prove that they know a secret (`Host`, `introduce`).
"""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path

from stackyard.launch.node.handshake import Host
from stackyard.launch.node.interfaces import offered
from stackyard.launch.node.machine import addresses
from stackyard.launch.node.messages import Connection
from stackyard.launch.node.sockets import accept, listen

__all__ = ["Connection", "Host", "accept", "addresses", "listen", "offered", "program_text"]

_NODE = Path(__file__).parent.parent / "node"
_IMPORT = re.compile(r"^ *from (stackyard\.launch\.node\.[\w.]+) import", re.MULTILINE)
_TEXT = """import sys
import types

for name in {packages!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, text in {parts!r}:
    part = sys.modules[name] = types.ModuleType(name)
    part.__package__ = name.rpartition(".")[0]
    exec(compile(text, name, "exec"), part.__dict__)
"""


def program_text(file: Path) -> str:
    """The text of a program with the modules of `stackyard.launch.node` that it imports, for any Python from 3.6 on."""
    order: dict[str, str] = {}
    seen: set[str] = set()

    def add(text: str) -> None:
        for name in _IMPORT.findall(text):
            if name not in seen:
                seen.add(name)
                own = _NODE.joinpath(*name.split(".")[3:]).with_suffix(".py").read_text(encoding="utf-8")
                add(own)
                order[name] = own

    text = file.read_text(encoding="utf-8")
    add(text)
    packages = sorted({one for name in order for one in accumulate(name.split(".")[:-1], "{}.{}".format)})
    return _TEXT.format(packages=packages, parts=list(order.items())) + text
