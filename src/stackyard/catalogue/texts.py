"""Sentences and command lines that the site and the Markdown pages have in common."""

from __future__ import annotations

from collections.abc import Iterator

from stackyard.catalogue.model import Catalogue, Facts, Revision
from stackyard.core.findings import human_bytes
from stackyard.deploy.described.cite import Citation, bibtex
from stackyard.lock.explain.diff import Diff

KINDS = {
    "load": "The module loads",
    "symmetry": "Unloading restores the environment",
    "content": "Files are as built",
    "interpreter": "Python runs",
    "import": "Packages import",
    "command": "Commands start",
    "consistency": "Requirements are met",
    "library": "Libraries are found",
    "own": "Tests of the stack and the site",
}
"""What each kind of check says, in the order of a report."""


def how_to(revision: Revision, facts: Facts) -> list[tuple[str, str]]:
    """What users do with a revision, and the command for it."""
    module, python = revision.module, facts.command == "python"
    program = "python train.py" if python else facts.command
    lines = [
        ("Load", f"module load {module}"),
        ("Run one command, without modules", f"stackyard run {module} -- {program}"),
    ]
    if python:
        lines += [
            ("Launch on the nodes of an allocation", f"stackyard launch --with {module} train.py"),
            ("Submit as a job on two nodes", f"stackyard submit -N 2 -t 1:00 --with {module} train.py"),
            ("Add packages of your own", f"stackyard extend --base {module} --name mine --pip PACKAGE"),
        ]
    return [
        *lines,
        ("Print how to cite it (BibTeX, CITATION.cff)", f"stackyard show {module} --cite"),
        ("Print its bill of materials (SBOM)", f"stackyard sbom {module}"),
    ]


def cite(revision: Revision, facts: Facts, catalogue: Catalogue, page: str) -> str:
    """The entry of BibTeX by which a revision is cited; `page`: its address below that of the catalogue."""
    entry = revision.entry
    cited = Citation(entry.module, entry.stack, entry.version, entry.created, facts.summary, facts.identities)
    return bibtex(cited, catalogue.name, f"{catalogue.url.rstrip('/')}/{page}" if catalogue.url else entry.url).rstrip()


def notes(revision: Revision) -> Iterator[tuple[str, str]]:
    """What users must know of a revision before they use it: how urgent, and a sentence."""
    entry = revision.entry
    use = f"; use {entry.successor}" if entry.successor else ""
    if entry.retired:
        yield "warning", f"Retired from {entry.retired}{use}."
    if entry.deprecated:
        yield "warning", f"Deprecated: {entry.deprecated}"
    gone = {"withdrawn": "Withdrawn: it loads by its full name only", "removed": "Removed",
            "missing": "Its files no longer exist"}  # fmt: skip
    if entry.state in gone:
        yield "warning", f"{gone[entry.state]}{'' if entry.retired else use}."
    elif revision.facts is None:
        yield "warning", "Its record cannot be read; ask the site's staff."
    if entry.state == "failed":
        yield "warning", "A check failed when it was verified last."
    if entry.superseded and entry.is_visible:
        yield "note", "A later revision replaces it."
    if entry.notice:
        yield "note", entry.notice


def details(revision: Revision, facts: Facts) -> list[tuple[str, str]]:
    """What a revision is, by name."""
    axes = ", ".join(f"{name} {value}" for name, value in facts.axes.items() if value)
    inside = f" with {facts.entries:,} files inside" if facts.entries != facts.files else ""
    rows = [
        ("Other names", " ".join(f"{revision.entry.stack}/{alias}" for alias in revision.entry.aliases)),
        ("Built", revision.day),
        ("Python", facts.python),
        ("Variant", axes or revision.entry.variant),
        ("Platform", facts.platform),
        ("Size", f"{human_bytes(facts.bytes)} in {facts.files:,} files{inside}" if facts.files else ""),
        ("Extends", facts.base),
        ("Category", revision.entry.category),
        ("Home page", revision.entry.url),
    ]
    return [(name, text) for name, text in rows if text]


def changed(diff: Diff) -> list[tuple[str, str, str]]:
    """Each package that changed, with its version before and now; where these are the same, with the build."""
    rows = [(item.name, "", item.version) for item in diff.added]
    rows += [(item.name, item.version, "removed") for item in diff.removed]
    for change in diff.changed:
        old, new = change.old, change.new
        same = old.version == new.version
        rows.append((new.name, old.shown if same else old.version, new.shown if same else new.version))
    return sorted(rows)


def change_lines(diff: Diff) -> list[str]:
    """The same as phrases: ``numpy 2.1 -> 2.2``."""
    return [f"{name} {before} -> {now}" if before else f"{name} {now} added" for name, before, now in changed(diff)]


def verdict(facts: Facts) -> str:
    """When the checks were done last, and their result."""
    words = {"passed": "All checks passed", "failed": "A check failed", "unverified": "Some checks were skipped"}
    return f"{words.get(facts.verdict, facts.verdict)} on {facts.checked[:10]}." if facts.checked else "Never verified."
