"""The rule for paths that several packages install: which collisions are harmless, and which file is kept.

Equal bytes, and the ``__init__.py`` of a namespace with an equal meaning, are not reported. Licences, documentation and
tests at the top are reported in one note, everything else in a warning, or in an error if the site requests it. The
last installed package wins: conda packages come first, each after its dependencies, then pip packages by name. A choice
in the stack's file overrides this.
"""

from __future__ import annotations

import base64
import filecmp
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stackyard.core.errors import InputError, Where
from stackyard.core.findings import some
from stackyard.core.late import dataclass
from stackyard.core.names import canonical, conda_name
from stackyard.core.quoting import quoted
from stackyard.inputs.reading.validate import among
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.make.collisions.claims import Claim, Owner
from stackyard.make.collisions.meaning import MOST_BYTES, PKG_RESOURCES, PKGUTIL, meaning
from stackyard.yard.revision.collision import Collision, Kind

if TYPE_CHECKING:
    from stackyard.inputs.models import Variant

OF_THE_BASE = " (base)"
_PAPERS = re.compile(
    r"(licen[cs]e|copying|copyright|notice|authors|contributors|readme|change_?log|changes|history|news)s?([._-].*)?",
    re.IGNORECASE,
)
_BESIDE = frozenset({"doc", "docs", "example", "examples", "test", "tests", "man"})
_DOCUMENTATION = ("share/doc/", "share/man/", "share/info/", "share/licenses/")


@dataclass(frozen=True)
class Choice:
    """A line of ``collisions:`` in a stack's file: a path or a pattern, and the package whose file is kept."""

    pattern: str
    package: str
    place: Where | None = None

    def matches(self, path: str, inner: str) -> bool:
        """Whether it applies to a path.

        Args:
            inner: the same path relative to site-packages; empty outside of it.
        """
        return any(text and self._fits(text) for text in (path, inner))

    def _fits(self, path: str) -> bool:
        if path == self.pattern or (self.pattern.endswith("/") and path.startswith(self.pattern)):
            return True
        return "*" in self.pattern and fnmatch.fnmatchcase(path, self.pattern)

    @property
    def exactness(self) -> tuple[bool, int, str]:
        """The sort key that selects among matching choices: one without a pattern, else the longest."""
        return ("*" not in self.pattern and not self.pattern.endswith("/"), len(self.pattern), self.pattern)


def in_order(packages: Sequence[CondaPackage]) -> list[CondaPackage]:
    """conda packages in the order of installation: each after its dependencies, else by name."""
    named = {package.name: package for package in packages}
    done: dict[str, CondaPackage] = {}
    for start in sorted(named):
        waiting, above = [start], set[str]()
        while waiting:
            name = waiting[-1]
            needed = [] if name in above else sorted({conda_name(text) for text in named[name].depends}, reverse=True)
            above.add(name)
            missing = [
                package_name
                for package_name in needed
                if package_name in named and package_name not in done and package_name not in above
            ]
            if missing:
                waiting += missing
            else:
                done.setdefault(waiting.pop(), named[name])
    return list(done.values())


def kind_of(path: str, inner: str) -> Literal["note", "warning"]:
    """The severity of a collision. `inner`: the path relative to site-packages; empty outside of it."""
    top, below, _ = (inner or path).partition("/")
    paper = _PAPERS.fullmatch(top) is not None and not top.endswith((".py", ".so"))
    beside = top.lower() in _BESIDE if below else paper
    return "note" if beside or path.startswith(_DOCUMENTATION) else "warning"


@dataclass(frozen=True)
class Decision:
    """The decision about a path: which package's file is kept.

    Attributes:
        claims: of all packages that install it, in the order of installation.
        kind: the severity to report; None: not reported.
        lost: the claims of packages whose file differs.
    """

    claims: tuple[Claim, ...]
    winner: Claim
    kind: Kind | None = None
    lost: tuple[Claim, ...] = ()

    @property
    def label(self) -> str:
        """The winner's label for messages."""
        return labels(claim.owner for claim in self.claims)[self.winner.owner]


def decide(
    path: str, inner: str, claims: Sequence[Claim], choices: Sequence[Choice], file: Callable[[Claim], Path]
) -> Decision:
    """The decision about a path that several packages of one prefix install.

    Args:
        inner: the path relative to site-packages; empty outside of it.
        file: returns the file of a claim, if its list is not sufficient.
    """
    choice = chosen(choices, path, inner, claims)
    winner = choice or claims[-1]
    lost = tuple(claim for claim in claims if claim is not winner and not _is_same(claim, winner, file))
    kind: Kind | None = None
    if lost and choice:
        kind = "chosen"  # noted also where it changes no meaning: a repair chooses the same
    elif lost and not _mean_the_same(path, [winner, *lost], file):
        kind = kind_of(path, inner)
    return Decision(tuple(claims), winner, kind, lost)


def decide_on_base(
    path: str, inner: str, base: Claim, own: Claim, choices: Sequence[Choice], sources: Sequence[bytes | None]
) -> Decision:
    """The decision about a path that a layer and its base have: Python finds the layer's file first.

    An ``__init__.py`` in the layer hides the base's whole package, even if it is identical, unless both declare a
    namespace.

    Args:
        sources: the content of the two files, if they are an ``__init__.py``.
    """
    choice = chosen(choices, path, inner, (base, own))
    winner = choice or own
    if _is_init(path):
        means = {meaning(source) if source is not None else None for source in sources}
        harmless = len(means) == 1 and means <= {PKGUTIL, PKG_RESOURCES}
    else:
        digests = {as_hex(claim.digest) for claim in (base, own)}
        harmless = len(digests) == 1 and "" not in digests
    if harmless and winner is own:
        return Decision((base, own), own)
    lost = (own,) if winner is base else ()
    return Decision((base, own), winner, "chosen" if choice else kind_of(path, inner), lost)


def as_hex(digest: str) -> str:
    """A sha256 of conda-meta or of a RECORD as hexadecimal digits; empty for anything else."""
    name, separator, text = digest.partition("=")
    if not separator:
        return digest if re.fullmatch(r"[0-9a-f]{64}", digest) else ""
    try:
        return base64.urlsafe_b64decode(f"{text}===").hex() if name == "sha256" else ""
    except ValueError:
        return ""


def _is_init(path: str) -> bool:
    return path.rpartition("/")[2] == "__init__.py"


def _is_same(one: Claim, other: Claim, file: Callable[[Claim], Path]) -> bool:
    mine, others = as_hex(one.digest), as_hex(other.digest)
    if mine and others:
        return mine == others
    first, second = file(one), file(other)
    if first.is_symlink() or second.is_symlink():
        return first.is_symlink() and second.is_symlink() and first.readlink() == second.readlink()
    return filecmp.cmp(first, second, shallow=False)


def _mean_the_same(path: str, claims: Iterable[Claim], file: Callable[[Claim], Path]) -> bool:
    """Whether these are equivalent ``__init__.py`` files of one namespace."""
    if not _is_init(path):
        return False
    meanings: set[str | None] = set()
    for claim in claims:
        place = file(claim)
        plain = place.is_file() and not place.is_symlink() and place.stat().st_size <= MOST_BYTES
        meanings.add(meaning(place.read_bytes()) if plain else None)
    return len(meanings) == 1 and None not in meanings


def labels(owners: Iterable[Owner]) -> dict[Owner, str]:
    """The labels of packages for messages; two of the same name also get their installer."""
    owners = list(owners)
    names = [canonical(owner.name) for owner in owners]
    return {owner: _label(owner, names.count(canonical(owner.name)) > 1) for owner in owners}


def _label(owner: Owner, twice: bool) -> str:
    if owner.kind == "base":
        return f"{owner.name}{OF_THE_BASE}"
    return f"{owner.name} ({owner.kind})" if twice else owner.name


def is_named(text: str, owner: Owner) -> bool:
    """Whether a name in the stack's file refers to a package: ``opencv_python``, ``numpy (conda)``."""
    name, _, kind = text.removesuffix(")").partition(" (")
    return canonical(name) == canonical(owner.name) and kind in ("", owner.kind)


def chosen(choices: Iterable[Choice], path: str, inner: str, claims: Sequence[Claim]) -> Claim | None:
    """The claim that the stack's file chooses for a path. Patterns apply only to packages that install the path."""
    matching = sorted((c for c in choices if c.matches(path, inner)), key=lambda c: c.exactness, reverse=True)
    matches = (claim for choice in matching for claim in reversed(claims) if is_named(choice.package, claim.owner))
    return next(matches, None)


def require_used(choices: Iterable[Choice], paths: Iterable[tuple[str, str, Claim]]) -> None:
    """Require that every choice is about a path that its package installs.

    Args:
        paths: all paths (relative to the prefix, and to site-packages or empty) with their claims.

    Raises:
        InputError: a choice is not, with its place in the file.
    """
    missing = list(choices)
    others: dict[Choice, set[str]] = {choice: set() for choice in missing}
    for path, inner, claim in paths if missing else ():
        for choice in [line_choice for line_choice in missing if line_choice.matches(path, inner)]:
            if is_named(choice.package, claim.owner):
                missing.remove(choice)
            else:
                others[choice].add(claim.owner.name)
    for choice in missing:
        brought = f", but {some(sorted(others[choice]), 3)} does" if others[choice] else ""
        raise InputError(
            f"collisions: {choice.package} does not install {quoted(choice.pattern)}{brought}",
            where=choice.place,
            hint="write a path of the package, relative to the prefix or to site-packages; `*` stands for any text",
        )


def require_known(choices: Iterable[Choice], names: Iterable[str]) -> None:
    """Raise InputError for a choice of a package that the stack does not have."""
    known = {canonical(name): name for name in names}
    for choice in choices:
        name = choice.package.partition(" (")[0]
        if canonical(name) not in known:
            raise InputError(
                f"collisions: no such package in this stack: {quoted(choice.package)}",
                where=choice.place,
                hint=among(name, sorted(known.values())) if len(known) < 100 else "see `stackyard show REV`",
            )


def grouped(decisions: Iterable[tuple[str, Decision, str]]) -> tuple[Collision, ...]:
    """Collisions in a record's format, without unreported ones.

    Args:
        decisions: path, decision, and the hash of the file that is there.
    """
    groups: dict[tuple[Kind, tuple[str, ...], str], dict[str, str]] = {}
    for path, decision, digest in decisions:
        if decision.kind is not None:
            names = tuple(labels(claim.owner for claim in decision.claims).values())
            groups.setdefault((decision.kind, names, decision.label), {})[path] = digest
    return tuple(Collision(*key, files) for key, files in sorted(groups.items(), key=lambda item: item[0]))


def refused(collisions: Iterable[Collision], file: str) -> InputError | None:
    """The error if the site forbids collisions without a choice; None: there are none."""
    bad = [collision for collision in collisions if collision.kind == "warning"]
    if not bad:
        return None
    first = next(iter(bad[0].files))
    return InputError(
        f"packages install the same path, which the site refuses: {bad[0].shown} of {', '.join(bad[0].packages)}",
        detail="\n".join(str(collision) for collision in bad),
        hint=f"leave one of the packages out; or choose in the stack's file: `collisions: {{{first}: PACKAGE}}`",
        where=Where(file) if file else None,
    )


def choices_for(variant: Variant, names: Iterable[str]) -> tuple[Choice, ...]:
    """The stack's choices among these packages; other packages may be in other variants (`require_known`)."""
    known = {canonical(name) for name in names}
    choices = (Choice(path, name, variant.collision_places.get(path)) for path, name in variant.collisions.items())
    return tuple(choice for choice in choices if canonical(choice.package.partition(" (")[0]) in known)
