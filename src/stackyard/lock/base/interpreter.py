"""Queries the interpreter of a base, once, about itself and the packages of the base.

If the base has an image, the query runs with it mounted. Starting Python takes most of the time, so one answer serves
the solve, the commands of the layer and its bytecode.
"""

from __future__ import annotations

import re

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.run.command import clean_environment, run
from stackyard.host.run.question import about_distributions
from stackyard.yard.kinds.extension import BaseRevision

ANSWER_S = 120
_MARK = "stackyard"
_QUESTION = about_distributions("""
try:
    import _frozen_importlib_external as library
except ImportError:
    import importlib.util as library

def commands():
    for folder, python in zip(sys.argv[1::2], sys.argv[2::2]):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.realpath(path).endswith("/libexec/of-base"):
                with open(path, "rb") as stream:
                    start = stream.read(1024)
                line = b"\\n".join(start.split(b"\\n", 2)[:2])
                if start.startswith(b"#!") and os.fsencode(python) in line and b"\\0" not in line:
                    yield name.replace("\\0", "/").replace("\\n", "/").replace("\\x1e", "/")

def distributions():
    for _, head in heads(sys.path):
        fields = [line.partition(": ")[::2] for line in head if not line.startswith((" ", "\\t"))]
        one = dict(reversed(fields))
        extras = [k + ": " + v for k, v in fields if k == "Provides-Extra" or (k == "Requires-Dist" and "extra" in v)]
        if one.get("Name") and one.get("Version"):
            yield [one["Name"], one["Version"]] + extras

parts = [[sys.implementation.cache_tag, library.MAGIC_NUMBER.hex()], list(commands())]
parts += list(distributions())
lines = ["\\n".join(part) for part in parts]
text = "\\x1e".join(["stackyard"] + lines + ["stackyard"])
sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
""")
"""Lines of metadata have none of the characters between the parts: `str.splitlines` parts lines at all of them."""
_EXTRA = re.compile(r"Provides-Extra: |Requires-Dist: .*\bextra\s*==", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """The answer of an interpreter.

    Attributes:
        bytecode: its cache tag and its magic number, e.g. ``cpython-311`` and ``a70d0d0a``.
        commands: names of its scripts, in the base and the base's bases.
        distributions: name, version and the lines about extras of each, in the order in which they are found.
    """

    bytecode: tuple[str, str]
    commands: tuple[str, ...]
    distributions: tuple[tuple[str, str, tuple[str, ...]], ...]


_ANSWERS: dict[BaseRevision, Answer] = {}


def ask(base: BaseRevision) -> Answer:
    """Query the interpreter.

    Raises:
        StackyardError: it does not run, does not answer in time, or has a command with a name that cannot be used.
    """
    words = [str(base.payload.python), "-I", "-c", _QUESTION]
    for revision in base.lineage():
        words += [str(revision.payload.program_directories[0]), str(revision.payload.python)]
    argv, environ = base.payload.command(words, clean_environment())
    done = run(argv, env=environ, timeout_s=ANSWER_S, leaves_others=True)
    mark, *parts, end = done.stdout.split("\x1e") if "\x1e" in done.stdout else ("", "")
    if (mark, end) != (_MARK, _MARK) or len(parts) < 2:
        raise StackyardError(f"cannot ask the Python of {base.id} for its packages", detail=done.output)
    _ANSWERS[base] = _read(base, parts)
    return _ANSWERS[base]


def answer(base: BaseRevision) -> Answer:
    """The cached answer of this process, since a revision never changes; else query it. Raises as `ask` does."""
    return _ANSWERS.get(base) or ask(base)


def _read(base: BaseRevision, parts: list[str]) -> Answer:
    tag, magic = parts[0].split("\n")
    commands = [name for name in parts[1].split("\n") if name]
    if any("/" in name for name in commands):
        raise StackyardError(f"{base.id} has a command with a name that cannot be used: {commands}")
    answers = (part.split("\n") for part in parts[2:])
    named = tuple((name, version, tuple(filter(_EXTRA.match, rest))) for name, version, *rest in answers)
    return Answer((tag, magic), tuple(dict.fromkeys(commands)), named)
