"""The index of packages for the search: a classic script, since pages from ``file://`` cannot fetch data.

Each package is named once, with its versions, and each version with the numbers of its revisions as runs in base 36.
"""

from __future__ import annotations

from collections.abc import Iterable

from stackyard.catalogue import addresses
from stackyard.catalogue.html import script_json
from stackyard.catalogue.model import Catalogue

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def index_script(catalogue: Catalogue) -> bytes:
    """The script: ``r`` has the modules, ``p`` the packages, ``a`` and ``s`` the addresses that are not as usual."""
    modules = [revision.module for revision in catalogue.listed]
    packages: dict[str, dict[str, list[int]]] = {}
    for number, revision in enumerate(catalogue.listed):
        for name, version in {(p.name, p.version): None for p in revision.facts.packages} if revision.facts else ():
            packages.setdefault(name, {}).setdefault(version, []).append(number)
    value = {
        "r": modules,
        "a": {n: addresses.of_revision(m) for n, m in enumerate(modules) if addresses.of_revision(m) != f"{m}.html"},
        "s": {s.name: addresses.directory(s.name) for s in catalogue.stacks if addresses.directory(s.name) != s.name},
        "p": [[name, [[version, runs(numbers)] for version, numbers in versions.items()]]
              for name, versions in sorted(packages.items())],
    }  # fmt: skip
    return f"stackyardPackages({script_json(value)})\n".encode()


def runs(numbers: Iterable[int]) -> str:
    """Ascending numbers as runs: 3, 4, 5, 9 are ``3-5,9``, in base 36."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ",".join(_base36(a) if a == b else f"{_base36(a)}-{_base36(b)}" for a, b in ends)


def _base36(number: int) -> str:
    text = ""
    while True:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
        if not number:
            return text
