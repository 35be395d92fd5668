"""Finds the pip requirement to relax in an unsolvable set, by resolving again without each one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from stackyard.core.errors import StackyardError
from stackyard.host.net.trust import LOGIN_HINT
from stackyard.host.tools import uv
from stackyard.lock.pip.provided import ProvidedDistribution
from stackyard.lock.pip.uvcompile import NoSolution, Question, compile_requirements

BUDGET_S = 6.0
PINNED = "use versions that it allows, or have it changed"
_NO_BUILD = re.compile(r"there is no version of ([\w.-]+)==([^\s+,]+)\+([\w.]+)")
_OTHER_PYTHONS = re.compile(r"found wheels for `([^`]+)` \(v([^)]+)\) with the following Python ABI tags?: (.+)")


def relax_pip(
    question: Question, named: Sequence[ProvidedDistribution], reason: str = ""
) -> tuple[str, tuple[str, ...]]:
    """A hint that names the conflicting requirements, and their lines.

    Args:
        named: distributions from conda or the base in the message; one whose removal makes it solvable is the cause.
        reason: uv's message.
    """
    missing = re.findall(r"(\S+) was not found in the (?:package registry|provided package locations)", reason)
    end = time.monotonic() + BUDGET_S
    for item in named:
        others = tuple(c for c in question.constraints if not c.startswith(f"{item.name} @ "))
        if _works(replace(question, constraints=others)):
            return item.remedy, ()
    remedy = _other_build(reason) or _other_python(reason, question)
    helpful = []
    for line in question.lines:
        if time.monotonic() > end:
            break
        if _works(replace(question, lines=tuple(other for other in question.lines if other != line))):
            helpful.append(line)
    if uv.refused(reason):
        return LOGIN_HINT, tuple(helpful)
    if missing:
        return _not_found(missing[0], question), tuple(helpful)
    if remedy:
        return remedy, tuple(helpful)
    if helpful:
        shown = " or ".join(f"`{line}`" for line in helpful)
        it = "it" if len(helpful) == 1 else "one of these"
        return f"solvable without {shown}: relax or remove {it}", tuple(helpful)
    return "relax more than one requirement; start with those in the solver's reason", ()


def blamed_pins(question: Question, pinned: Mapping[str, str]) -> tuple[str, ...]:
    """The site's pins that make a question unsolvable: each alone, else all together; empty: none.

    Args:
        pinned: the constraint line of each.
    """

    def works(lines: Collection[str]) -> bool:
        left = list(question.constraints)
        for line in lines:
            left.remove(line)
        return _works(replace(question, constraints=tuple(left)))

    if not pinned or not works(pinned.values()):
        return ()
    return tuple(pin for pin, line in pinned.items() if works([line])) or tuple(pinned)


def _not_found(name: str, question: Question) -> str:
    """The hint if no index has a package of this name."""
    if any(re.match(rf"{re.escape(name)}(?![\w.-])", line.lower().replace("_", "-")) for line in question.lines):
        if name == "pkg-resources":
            return "`pip freeze` of Debian and Ubuntu lists it, though no index has it: remove the line"
        if name == "python":
            return "Python is not a package of pip: remove the line, and name its version in an environment.yml"
        if name.replace("-", "_") in sys.stdlib_module_names:
            return f"{name} is a part of Python: remove the line"
    settings = question.settings
    places = [*(() if settings.no_index else settings.indexes), *settings.find_links]
    searched = ", ".join(places) or "nothing, because of --no-index"
    return f"no package named {name} (searched: {searched}): check its spelling, or add the index that has it"


def _other_build(reason: str) -> str:
    """The hint if an index has a version only without a build label such as ``+cu118`` or ``+computecanada``."""
    match = _NO_BUILD.search(reason)
    if not match:
        return ""
    name, version, label = match.groups()
    return (
        f"no index here has builds labelled +{label}: add the one that has them (--extra-index-url, --find-links), "
        f"or write {name}=={version}"
    )


def _other_python(reason: str, question: Question) -> str:
    """The hint if a version has wheels only for other Pythons: usually it is too old for this one."""
    match = _OTHER_PYTHONS.search(reason)
    if not match:
        return ""
    pythons = sorted({(int(major), int(minor)) for major, minor in re.findall(r"`cp(\d)(\d+)", match[3])})
    if not pythons:
        return ""
    shown = [f"{major}.{minor}" for major, minor in pythons]
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]]) if shown[1:] else shown[0]
    ours = ".".join(question.python.split(".")[:2])
    return (
        f"{match[1]} {match[2]} has wheels for Python {listed}, not for {ours}: request such a Python "
        f"(`python={shown[-1]}` below `dependencies:` of an environment.yml), or another version of {match[1]}"
    )


def _works(question: Question) -> bool:
    if not question.lines and not question.tied:
        return True
    try:
        compile_requirements(question)
    except (NoSolution, StackyardError):
        return False
    return True
