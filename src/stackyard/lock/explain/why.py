"""Why a package is installed: the chains from the requirements to it, through conda and pip dependencies.

Standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from stackyard.core.errors import InputError
from stackyard.core.hints import did_you_mean
from stackyard.core.names import canonical, conda_name, distributions, pip_name
from stackyard.lock.lockfile.model import LockedVariant

Node = tuple[str, str]


def chains(locked_variant: LockedVariant, package: str) -> list[list[str]]:
    """The shortest chain from every requirement that leads to a package, shortest first.

    Args:
        package: its name in conda or on PyPI; case, ``-`` and ``_`` do not matter.

    Returns:
        Chains such as ``["horovod 0.28.1", "cloudpickle 3.1.0"]``; one of length one: it is a requirement.

    Raises:
        InputError: no such package in the lock; the hint has the nearest names.
    """
    graph = _Graph(locked_variant)
    goals = graph.named(package)
    if not goals:
        known = [canonical(name) for _, name in graph.labels]
        hint = did_you_mean(canonical(package), known, "`stackyard show` lists all packages", count=3)
        raise InputError(f"{package} is not in {locked_variant.stack} {locked_variant.variant}", hint=hint)
    result = []
    for root in graph.roots(locked_variant.requested):
        path = graph.path(root, goals)
        if path:
            result.append([graph.labels[node] for node in path])
    return sorted(result, key=lambda chain: (len(chain), chain))


class _Graph:
    """The packages of a variant, with the requirements of each."""

    def __init__(self, variant: LockedVariant) -> None:
        self.labels: dict[Node, str] = {}
        self._edges: dict[Node, list[Node]] = {}
        self._urls = {p.url: ("pip", p.name) for p in variant.pip} | {p.url: ("conda", p.name) for p in variant.conda}
        self._pypi: dict[str, Node] = {}
        for conda in variant.conda:
            self.labels["conda", conda.name] = f"{conda.name} {conda.version}"
            for name in distributions(conda.name, conda.purls, conda.depends):
                self._pypi[name] = ("conda", conda.name)
        for pip in variant.pip:
            self.labels["pip", pip.name] = f"{pip.name} {pip.version}"
            self._pypi[canonical(pip.name)] = ("pip", pip.name)
        for conda in variant.conda:
            self._edges["conda", conda.name] = list(self._known(("conda", conda_name(d)) for d in conda.depends))
        for pip in variant.pip:
            self._edges["pip", pip.name] = [n for r in pip.requires if (n := self._pypi.get(pip_name(r)))]

    def named(self, package: str) -> set[Node]:
        """Every package with a name: the one of that name in conda, on PyPI, or both."""
        target = canonical(package)
        nodes = {node for node in self.labels if canonical(node[1]) == target}
        return nodes | ({self._pypi[target]} if target in self._pypi else set())

    def roots(self, requested: Iterable[str]) -> list[Node]:
        """The packages that the requirements name, each once, in their order."""
        return list(dict.fromkeys(node for line in requested if (node := self._root(line)) in self.labels))

    def _root(self, line: str) -> Node:
        if not line.startswith("pip: "):
            return ("conda", conda_name(line))
        text = line.removeprefix("pip: ")
        name = pip_name(text)
        if name:
            return self._pypi.get(name, ("pip", name))
        return next((node for url, node in self._urls.items() if _same_source(text, url)), ("pip", ""))

    def path(self, root: Node, goals: set[Node]) -> list[Node]:
        """The shortest path from a root to one of the goals, or an empty list."""
        before: dict[Node, Node | None] = {root: None}
        queue = deque([root])
        while queue:
            node = queue.popleft()
            if node in goals:
                return list(reversed(list(_back(node, before))))
            for neighbour in self._edges.get(node, []):
                if neighbour not in before:
                    before[neighbour] = node
                    queue.append(neighbour)
        return []

    def _known(self, nodes: Iterable[Node]) -> Iterator[Node]:
        return (node for node in nodes if node in self.labels)


def _back(node: Node | None, before: dict[Node, Node | None]) -> Iterator[Node]:
    while node is not None:
        yield node
        node = before[node]


def _same_source(text: str, url: str) -> bool:
    """Whether a locked package comes from the URL or path of a requirement."""
    target = text.split("#", maxsplit=1)[0].split(" ;", maxsplit=1)[0].strip()
    bare, locked = (
        unquote(part).removeprefix("git+").removeprefix("file://") for part in (target, url.split("#", maxsplit=1)[0])
    )
    return bool(bare) and (bare == locked or bare.startswith(f"{locked}@") or locked.startswith(f"{bare}@"))
