"""The catalogue as Markdown for a site's own documentation (MkDocs, Sphinx with MyST): one order, small differences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from stackyard.catalogue import addresses, texts
from stackyard.catalogue.model import STATUSES, Catalogue, Facts, Revision, Stack, changes
from stackyard.core.names import canonical

_SUFFIX = ".md"


def index_page(catalogue: Catalogue) -> bytes:
    """The first page: every stack with its versions."""
    rows = []
    for stack in catalogue.stacks:
        links = ", ".join(_link(r.label, addresses.of_revision(r.module, _SUFFIX)) for r in stack.listed)
        rows.append((_link(stack.name, addresses.of_stack(stack.name, _SUFFIX)), escaped(stack.summary), links))
    ending = [f"- {r.entry.retired}: {_link(r.module, addresses.of_revision(r.module, _SUFFIX))}"
              + (f", use {escaped(r.entry.successor)}" if r.entry.successor else "")
              for r in catalogue.retiring]  # fmt: skip
    return _page(catalogue.name or "Software", [
        escaped(catalogue.summary),
        _table(("Stack", "What it is", "Versions"), rows) if rows else "Nothing is published yet.",
        "## Ending\n\n" + "\n".join(ending) if ending else "",
    ])  # fmt: skip


def stack_page(catalogue: Catalogue, stack: Stack) -> bytes:
    """The versions of a stack side by side: the packages that were asked for."""
    del catalogue
    at, shown = addresses.of_stack(stack.name, _SUFFIX), stack.listed
    names = {canonical(n): n for r in shown if r.facts for n in r.facts.main}
    head = ["Package", *(_link(r.label, addresses.up(at) + addresses.of_revision(r.module, _SUFFIX)) for r in shown)]
    rows = [[escaped(name), *(escaped(r.facts.versions.get(key, "")) for r in shown if r.facts)]
            for key, name in sorted(names.items())]  # fmt: skip
    return _page(stack.name, [escaped(stack.summary), _table(head, rows, made=True)])


def revision_page(catalogue: Catalogue, stack: Stack, revision: Revision) -> bytes:
    """A revision: how to use it, what it is, its checks, what changed, its packages."""
    facts = revision.facts
    notes = [f"**{escaped(text)}**" for _, text in texts.notes(revision)]
    return _page(revision.module, [*notes, *(_body(catalogue, stack, revision, facts) if facts else ())])


def _body(catalogue: Catalogue, stack: Stack, revision: Revision, facts: Facts) -> Iterable[str]:
    yield escaped(facts.summary)
    yield "\n\n".join(f"{title}:\n\n{_fenced(line)}" for title, line in texts.how_to(revision, facts))
    yield _table(("", ""), [(escaped(name), escaped(text)) for name, text in texts.details(revision, facts)])
    yield f"## Checks\n\n{texts.verdict(facts)}"
    counts = [(title, *map(str, facts.checks[kind])) for kind, title in texts.KINDS.items() if kind in facts.checks]
    yield _table(("Check", *STATUSES), counts) if counts else ""
    before = stack.before(revision)
    if before is not None and before.facts is not None:
        lines = texts.change_lines(changes(before.facts, facts))
        listed = "\n".join(f"- {escaped(line)}" for line in lines)
        yield f"## Since {escaped(before.module)}\n\n{listed or 'The same packages.'}"
    rows = [[escaped(word) for word in (p.name, p.version, p.build, p.kind, p.licence)]
            for p in sorted(facts.packages, key=lambda p: canonical(p.name))]  # fmt: skip
    yield "## Packages\n\n" + _table(("Package", "Version", "Build", "From", "Licence"), rows)
    page = addresses.of_revision(revision.module)
    yield f"## Cite\n\n{_fenced(texts.cite(revision, facts, catalogue, page))}"


def _page(title: str, parts: Iterable[str]) -> bytes:
    head = f"---\ntitle: {json.dumps(title, ensure_ascii=False)}\n---\n\n# {escaped(title)}\n"
    return "\n".join([head, *(f"{part}\n" for part in parts if part)]).encode("utf-8", "replace")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, made: bool = False) -> str:
    head = list(columns) if made else [escaped(column) for column in columns]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _link(text: str, page: str) -> str:
    return f"[{escaped(text)}]({page})"


def _fenced(line: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence}\n{line}\n{fence}"


def escaped(text: str) -> str:
    """Text on one line in which Markdown, MyST and the HTML and templates in them find nothing to obey."""
    line = re.sub(r"([\\`*_{}\[\]<>|#~&$])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(?:(\d+)(?=[.)]( |$))|(?=[-+=:]))", r"\g<0>\\", line)
