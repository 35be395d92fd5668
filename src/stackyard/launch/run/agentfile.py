"""agent.py of a step: the agent with all its parts and its plan, as one file that any Python from 3.6 on runs.

A node reads only this file, with the Python on its own disk: importing an installation's modules costs some 270
look-ups on the shared file system, which ten thousand nodes make at the same time. It holds the step's secret.

It has the parts as text and as bytecode, so that a node with the same Python version need not compile them.
"""

from __future__ import annotations

import json
import marshal
import re
from binascii import b2a_base64
from collections.abc import Iterable
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from itertools import accumulate
from pathlib import Path
from typing import Any

from stackyard.launch.node.monitoring.usage import VENDORS
from stackyard.launch.node.step import StepFile

PARTS = Path(__file__).parent.parent / "node"
PROBE = Path(__file__).parent.parent / "probe"
PACKAGE = "stackyard.launch.node"
STAGE, ENERGY = f"{PACKAGE}.staging.stage", f"{PACKAGE}.monitoring.energy"
"""The parts that only a step with staged files, or with GPUs, needs; each imports the other ones for that."""
_IMPORT = re.compile(rf"^(?: *)from {re.escape(PACKAGE)}\.([\w.]+) import", re.MULTILINE)

_TEXT = '''"""The agent of the run {run}, on one node. Written by stackyard from its package {package}."""
PLAN = {plan!r}
PARTS = {parts!r}
COMPILED = {compiled!r}


def codes():
    """The code of each part: as it was compiled for this file, where this Python has the same bytecode."""
    import binascii
    import marshal
    import sys

    magic = getattr(sys.modules.get("_frozen_importlib_external"), "MAGIC_NUMBER", b"")
    if binascii.hexlify(magic).decode() == COMPILED[0]:
        return marshal.loads(binascii.a2b_base64(COMPILED[1]))
    return [compile(text, name.replace(".", "/") + ".py", "exec") for name, text in PARTS]


def start():
    import json
    import os
    import sys
    import types

    fallback = sys.argv[1:]
    try:
        if sys.version_info < (3, 6):
            raise ImportError("Python 3.6 or newer")
        for name in {packages!r}:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = []
        for (name, text), code in zip(PARTS, codes()):
            part = sys.modules[name] = types.ModuleType(name)
            part.__package__, part.__text__ = name.rpartition(".")[0], text
            exec(code, part.__dict__)
        main = sys.modules["{package}.agent"].main
    except (ImportError, SyntaxError):
        if not fallback:
            raise
        os.execv(fallback[0], [fallback[0], "-I", "-S", os.path.abspath(__file__)])
    sys.exit(main(json.loads(PLAN), os.path.dirname(os.path.abspath(__file__))))


if __name__ == "__main__":
    start()
'''


def agent_text(file: StepFile) -> str:
    """The text of agent.py for a step. It has no list of hosts: an agent needs only its own node.

    With an interpreter as argument, it runs again under that one if the present one is too old, or incomplete.
    """
    without = frozenset([STAGE] * (file.stage is None) + [ENERGY] * (file.gpu_vendor not in VENDORS))
    parts = _parts(without)
    return _TEXT.format(
        run=file.run,
        package=PACKAGE,
        packages=packages_of(parts),
        parts=parts,
        compiled=_compiled(without),
        plan=json.dumps({**file.for_agents(), "probe_files": probe_files() if file.probe else {}}),
    )


@cache
def probe_files() -> dict[str, str]:
    """The text of each file of the probe, which the agents write on their nodes."""
    return {path.name: path.read_text(encoding="utf-8") for path in PROBE.glob("*.py") if path.stem != "__init__"}


def plan_of(text: str) -> dict[str, Any]:
    """The plan in the text of an agent.py."""
    line = next(line for line in text.splitlines() if line.startswith("PLAN = "))
    space: dict[str, Any] = {}
    exec(line, space)
    return dict(json.loads(space["PLAN"]))


@cache
def _compiled(without: frozenset[str]) -> tuple[str, str]:
    """The magic number of this Python's bytecode, in hexadecimal, and the code of the parts, in base64."""
    loaders = (SourceFileLoader(name, str(_path(name))) for name, _ in _parts(without))
    codes = [loader.get_code(loader.name) for loader in loaders]
    return MAGIC_NUMBER.hex(), b2a_base64(marshal.dumps(codes), newline=False).decode()


@cache
def _parts(without: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Name and text of every module of the agent but these, each after those that it imports."""
    name = f"{PACKAGE}.agent"
    text = _path(name).read_text(encoding="utf-8")
    return (*parts_of(text, without | {name}), (name, text))


def parts_of(text: str, without: frozenset[str] = frozenset()) -> tuple[tuple[str, str], ...]:
    """Name and text of the modules of `stackyard.launch.node` that a text imports, each after those that it imports."""
    order: dict[str, str] = {}
    seen = set(without)

    def add(importing: str) -> None:
        for name in (f"{PACKAGE}.{module}" for module in _IMPORT.findall(importing)):
            if name not in seen:
                seen.add(name)
                own = _path(name).read_text(encoding="utf-8")
                add(own)
                order[name] = own

    add(text)
    return tuple(order.items())


def _path(name: str) -> Path:
    """The source file of a part."""
    return (PARTS / name.removeprefix(f"{PACKAGE}.").replace(".", "/")).with_suffix(".py")


def packages_of(parts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The packages of the parts, each after its parent."""
    return tuple(sorted({package for name, _ in parts for package in accumulate(name.split(".")[:-1], "{}.{}".format)}))
