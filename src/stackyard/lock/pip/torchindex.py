"""Takes torch and its companions from PyTorch's index for the accelerator, other packages from the configured ones.

If the configured indexes have a build for the accelerator, it is used. Otherwise the packages are tied to PyTorch's
index one after the other, as they are required: uv takes a single package from an index only if it is a requirement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from stackyard.core.late import dataclass
from stackyard.core.names import canonical, pip_name
from stackyard.lock.accelerator import PACKAGES, Accelerator
from stackyard.lock.pip.uvcompile import Answer, NoSolution, Question

Resolve = Callable[[Question], Answer]
_ROUNDS = 12
_NOT_FOUND = re.compile(r"(\S+) was not found in the (?:package registry|provided package locations)")


def fitting(answer: Answer, accelerator: Accelerator) -> bool:
    """Whether an answer has either no torch, or a build of it for the accelerator."""
    torch = next((p for p in answer.packages if canonical(str(p["name"])) == "torch"), None)
    if torch is None or "version" not in torch or not {"wheels", "sdist"} & set(torch):
        return True
    version = str(torch["version"])
    return accelerator.accepts(version, answer.requires.get(("torch", version), ()))


def for_accelerator(
    question: Question,
    accelerator: Accelerator,
    home: str,
    names: Iterable[str],
    probe: Callable[[str], None],
    resolve: Resolve,
) -> tuple[Answer, str]:
    """The answer with the first index for the accelerator that has a solution, and a notice about it.

    Args:
        home: where PyTorch's indexes are: `accelerator.HOME` or a mirror of it.
        names: packages installed by other means, never taken from the index.
        probe: raises StackyardError if an index cannot be reached.

    Raises:
        InputError: torch has no builds for the accelerator.
        NoSolution: none has a solution.
    """
    reasons = []
    for index in accelerator.indexes(home):
        probe(index)
        try:
            answer = from_index(question, index, names, resolve)
        except NoSolution as error:
            reasons.append(f"{error}\ntorch is taken from {index}: accelerator {accelerator.name} ({accelerator.why})")
            if not any(re.search(rf"(?<![\w-]){name}(?![\w-])", str(error)) for name in PACKAGES):
                break
            continue
        return answer, f"torch: accelerator {accelerator.name} ({accelerator.why}): index {index}"
    raise NoSolution(reasons[0])


def from_index(question: Question, index: str, names: Iterable[str], resolve: Resolve) -> Answer:
    """Resolve with torch and its companions from `index`.

    Raises:
        NoSolution: no solution exists; torch is missing in the requested version, or altogether.
    """
    ties = _Ties(question, index, left=set(names))
    for _ in range(_ROUNDS):
        try:
            answer = resolve(ties.question())
        except NoSolution as error:
            if not ties.learn(str(error)):
                raise
            continue
        if not ties.follow(answer):
            return answer
    raise NoSolution(f"the companions of torch in {index} require each other in a circle")


@dataclass
class _Ties:
    """The packages tied to the index: those requested or required, except those it does not have."""

    base: Question
    index: str
    required: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    @property
    def _direct(self) -> dict[str, str]:
        return {name: line for line in self.base.lines if (name := pip_name(line)) in PACKAGES - self.left}

    def question(self) -> Question:
        """The question with these ties."""
        direct = self._direct
        lines = tuple(line for line in self.base.lines if line not in direct.values())
        names = sorted(self.required - direct.keys())
        tied = tuple((line, self.index) for line in (*direct.values(), *names))
        return replace(self.base, lines=lines, tied=(*self.base.tied, *tied))

    def follow(self, answer: Answer) -> bool:
        """Tie the companions that an answer requires, and no others; whether that changes anything."""
        names = _required(answer.packages, answer.requires, self._direct.keys() | self.required)
        names -= self._direct.keys() | self.left
        changed, self.required = names != self.required, names
        return changed

    def learn(self, reason: str) -> bool:
        """Tie packages not found elsewhere, or untie those that the index lacks; whether that changes anything."""
        tied = self._direct.keys() | self.required
        for name in map(canonical, _NOT_FOUND.findall(reason)):
            if name in tied and name != "torch":
                self.left.add(name)
                self.required.discard(name)
                return True
            if name in PACKAGES - tied - self.left:
                self.required.add(name)
                return True
        return False


def _required(
    packages: Iterable[Mapping[str, Any]], requires: Mapping[tuple[str, str], tuple[str, ...]], settled: Iterable[str]
) -> set[str]:
    """The packages required by others that are not companions of torch or already come from its index."""
    have = {canonical(str(p["name"])) for p in packages}
    asking = {name for name in have if name not in PACKAGES} | set(settled)
    names = {pip_name(line) for (name, _), lines in requires.items() if name in asking for line in lines}
    return names & have & PACKAGES
