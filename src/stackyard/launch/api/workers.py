"""Programs of other rooms that run as the ranks of a launch and talk to the process that started it.

Such a program may import modules of `stackyard.launch.node`: `program_text` makes one file of it and them, since
`stackyard` cannot be imported on the nodes. Both ends prove that they know a secret (`Host`, `introduce`).
"""

from __future__ import annotations

from pathlib import Path

from stackyard.launch.node.handshake import Host
from stackyard.launch.node.interfaces import offered
from stackyard.launch.node.machine import addresses
from stackyard.launch.node.messages import Connection
from stackyard.launch.node.sockets import accept, listen
from stackyard.launch.run.agentfile import packages_of, parts_of

__all__ = ["Connection", "Host", "accept", "addresses", "listen", "offered", "program_text"]

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
    text = file.read_text(encoding="utf-8")
    parts = parts_of(text)
    return _TEXT.format(packages=packages_of(parts), parts=parts) + text
