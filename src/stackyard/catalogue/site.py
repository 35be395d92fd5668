"""The pages of the site: the first one, one for each stack and one for each revision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from stackyard.catalogue import addresses, texts
from stackyard.catalogue.html import data, link, page, section, table, table_of
from stackyard.catalogue.model import Catalogue, Facts, Package, Revision, Stack, changes
from stackyard.core.findings import counted, human_bytes
from stackyard.core.markup import Markup, join, tag
from stackyard.core.names import canonical
from stackyard.lock.explain.diff import Diff

COLUMNS = 6
"""Versions side by side on the page of a stack."""
ALL_COLUMNS = 8
"""Revisions side by side on the first page, where there are not more."""
ROOMY = 60
"""Stacks up to which the first page shows the packages of each."""
_CHIPS, _NEWS = 5, 8


def index_page(catalogue: Catalogue) -> bytes:
    """The first page: the stacks, their versions side by side, what is new, what ends."""
    stacks, at = list(catalogue.stacks), "index.html"
    count = f"{counted(len(stacks), 'stack')}, {counted(len(catalogue.listed), 'version')}"
    use = tag("pre", tag("code", f"module use {catalogue.modules}\nmodule avail"), tabindex="0", class_="copy")
    cards = (_card(stack, at, roomy=len(stacks) <= ROOMY) for stack in stacks)
    return page(
        catalogue, at, catalogue.name or "Software",
        tag("div", tag("h1", catalogue.name or "Software"), tag("p", catalogue.summary, class_="lead"),
            tag("p", count, class_="faint"), class_="title"),
        section("Stacks", tag("ul", *cards, class_="cards") if stacks else tag("p", "Nothing is published yet.")),
        _together(catalogue, stacks, at),
        tag("div", section("What is new", _news(catalogue, at)),
            section("Ending", _ending(catalogue, at)),
            section("First time here", tag("p", "Make these modules visible, in a shell or in a job's script:"), use),
            class_="columns"),
        foot=f"Generation {catalogue.number}, published {catalogue.updated[:10]}." if catalogue.number else "",
    )  # fmt: skip


def _card(stack: Stack, at: str, *, roomy: bool) -> Markup:
    newest, others = stack.newest, len(stack.listed) - 1
    more = link(f"and {counted(others, 'other version')}", addresses.of_stack(stack.name), at) if others else ""
    chips = list(newest.facts.main.items())[:_CHIPS] if roomy and newest.facts else []
    return tag(
        "li",
        tag("h3", link(stack.name, addresses.of_stack(stack.name), at)),
        tag("p", stack.summary) if stack.summary else "",
        tag("p", *(tag("span", name, " ", tag("b", number), class_="chip") for name, number in chips)) if chips else "",
        tag("p", link(newest.label, addresses.of_revision(newest.module), at, class_="version"), _badge(newest),
            " ", more, class_="foot"),
        class_="card",
    ) + Markup("\n")  # fmt: skip


def _badge(revision: Revision) -> Markup:
    """A word on a revision that is not simply usable, or is the default."""
    entry = revision.entry
    words = [("good", "default")] if entry.default else []
    words += [("bad", revision.state)] if entry.state != "published" else []
    words += [("bad", f"until {entry.retired}")] if entry.retired else []
    words += [("bad", "deprecated")] if entry.deprecated else []
    words += [("", "replaced")] if entry.superseded else []
    return join(*(join(" ", tag("span", word, class_=f"badge {kind}".strip())) for kind, word in words))


def _together(catalogue: Catalogue, stacks: Sequence[Stack], at: str) -> Markup:
    """All versions side by side, or the default of each stack, where that is not too wide."""
    few = [revision for stack in stacks for revision in stack.listed]
    shown = few if len(few) <= ALL_COLUMNS else [stack.newest for stack in stacks]
    if not 1 < len(shown) <= ALL_COLUMNS:
        return Markup()
    title = "Versions side by side" if shown is few else "Defaults side by side"
    return section(title, _side_by_side(title, shown, _names(shown), at, stack=True), name="side")


def _names(shown: Iterable[Revision]) -> list[str]:
    """The packages that were asked for in these revisions, those in most of them first."""
    count: dict[str, tuple[int, str]] = {}
    for revision in shown:
        for name in revision.facts.main if revision.facts else ():
            number, spelt = count.get(canonical(name), (0, name))
            count[canonical(name)] = (number + 1, spelt)
    return [spelt for _, spelt in sorted(count.values(), key=lambda pair: -pair[0])]


def _side_by_side(
    caption: str, shown: Sequence[Revision], names: Iterable[str], at: str, *, stack: bool = False
) -> Markup:
    """A row for each package, a column for each revision; a version that differs from that of the next is strong."""
    sides = [revision.facts.versions for revision in shown if revision.facts]
    head = [tag("th", "Package", scope="col")]
    for revision in shown:
        above = join(revision.entry.stack, tag("br")) if stack else ""
        there = addresses.up(at) + addresses.of_revision(revision.module)
        head.append(tag("th", tag("a", above, revision.label, href=there), _badge(revision), scope="col"))
    rows = "".join(_row(name, [side.get(canonical(name), "") for side in sides], compared=not stack) for name in names)
    return table_of(caption, "".join(head), rows, "side")


def _row(name: str, versions: Sequence[str], *, compared: bool) -> str:
    cells = []
    for number, version in enumerate(versions):
        older = versions[number + 1] if number + 1 < len(versions) else version
        text = escape(version)
        cells.append(f"<td><b>{text}</b></td>" if compared and version and version != older else f"<td>{text}</td>")
    return f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>\n'


def _news(catalogue: Catalogue, at: str) -> Markup:
    rows = (tag("li", tag("time", r.day, datetime=r.day), " ", link(r.module, addresses.of_revision(r.module), at),
                _badge(r)) for r in catalogue.news[:_NEWS])  # fmt: skip
    return tag("ul", *rows, class_="dates") if catalogue.listed else Markup()


def _ending(catalogue: Catalogue, at: str) -> Markup:
    rows = []
    for r in catalogue.retiring:
        use = f": use {r.entry.successor}" if r.entry.successor else ""
        page_link = link(r.module, addresses.of_revision(r.module), at)
        rows.append(tag("li", tag("time", r.entry.retired, datetime=r.entry.retired), " ", page_link, use))
    return tag("ul", *rows, class_="dates") if rows else Markup()


def stack_page(catalogue: Catalogue, stack: Stack) -> bytes:
    """The page of a stack: its newest versions side by side, and all of them."""
    at, shown = addresses.of_stack(stack.name), stack.listed[:COLUMNS]
    names, known = _names(shown), {canonical(name) for name in _names(shown)}
    rest = sorted({p.name for r in shown if r.facts for p in r.facts.packages if canonical(p.name) not in known})
    others = tag("details", tag("summary", f"All other packages ({len(rest)})"),
                 _side_by_side("All other packages", shown, rest, at)) if rest else Markup()  # fmt: skip
    return page(
        catalogue, at, stack.name,
        _crumbs(catalogue, at),
        tag("div", tag("h1", stack.name), tag("p", stack.summary, class_="lead"), class_="title"),
        section("Load the default", _command(f"module load {stack.name}")) if stack.newest.entry.default else "",
        section("Versions side by side", tag("p", "The newest first; a strong version differs from the one before it.",
                                             class_="faint") if len(shown) > 1 else "",
                _side_by_side("Versions side by side", shown, names, at), others, name="side"),
        section("All versions", table("All versions", ("Version", "Built", "Python", "Platform", "Size", "State"),
                                      (_version_row(revision, at) for revision in stack.listed))),
    )  # fmt: skip


def _version_row(revision: Revision, at: str) -> Sequence[str]:
    facts = revision.facts or Facts("")
    return (
        join(link(revision.label, addresses.of_revision(revision.module), at), _badge(revision)), revision.day,
        facts.python, facts.platform, human_bytes(facts.bytes), revision.state,
    )  # fmt: skip


def revision_page(catalogue: Catalogue, stack: Stack, revision: Revision) -> bytes:
    """The page of a revision; one without files says how it ended."""
    at, facts = addresses.of_revision(revision.module), revision.facts
    title = tag("div", tag("h1", revision.module, _badge(revision)),
                tag("p", facts.summary if facts else "", class_="lead"), class_="title")  # fmt: skip
    notes = join(*(tag("p", text, class_=f"note {kind}") for kind, text in texts.notes(revision)))
    body = _body(catalogue, stack, revision, facts, at) if facts else Markup()
    head = data(linked(catalogue, revision, facts), type="application/ld+json") if facts else None
    return page(catalogue, at, revision.module, _crumbs(catalogue, at, stack), title, notes, body, head=head)


def _body(catalogue: Catalogue, stack: Stack, revision: Revision, facts: Facts, at: str) -> Markup:
    commands = join(*(join(tag("h3", title), _command(line)) for title, line in texts.how_to(revision, facts)))
    facts_list = tag("dl", *(join(tag("dt", name), tag("dd", _web(text) if name == "Home page" else text))
                             for name, text in texts.details(revision, facts)))  # fmt: skip
    cite = tag("pre", tag("code", texts.cite(revision, facts, catalogue, at)), tabindex="0", class_="copy")
    return join(
        tag("div", section("Use", commands),
            tag("div", section("Facts", facts_list), section("Checks", _checks(facts)), class_="stacked"),
            class_="columns"),
        tag("div", _packages(facts), _changed(stack, revision, facts, at), class_="columns"),
        section("Cite", tag("p", "The hash of the lock fixes every package."), cite),
    )  # fmt: skip


def _crumbs(catalogue: Catalogue, at: str, stack: Stack | None = None) -> Markup:
    links = [tag("li", link(catalogue.name or "Software", "index.html", at))]
    if stack is not None and stack.listed:
        links.append(tag("li", link(stack.name, addresses.of_stack(stack.name), at)))
    return tag("nav", tag("ol", *links), aria_label="Where you are", class_="crumbs")


def _command(line: str) -> Markup:
    return tag("pre", tag("code", line), tabindex="0", class_="copy")


def _web(url: str) -> Markup:
    """A link to a page of the web; anything else that stands in its place is text."""
    is_link = url.startswith(("https://", "http://"))
    return tag("a", url, href=url, rel="noreferrer") if is_link else join(url)


def _checks(facts: Facts) -> Markup:
    rows = []
    for kind, title in texts.KINDS.items():
        if kind in facts.checks:
            passed, failed, skipped, warned = facts.checks[kind]
            bad = [f"{number} {word}" for number, word in ((failed, "failed"), (skipped, "skipped"), (warned, "warned"))
                   if number]  # fmt: skip
            rows.append((title, str(passed), tag("span", ", ".join(bad), class_="bad") if failed else ", ".join(bad)))
    shown = table("Checks", ("Check", "Passed", "Not passed"), rows) if rows else ""
    return join(tag("p", texts.verdict(facts)), shown)


def _changed(stack: Stack, revision: Revision, facts: Facts, at: str) -> Markup:
    before = stack.before(revision)
    if before is None or before.facts is None:
        return Markup()
    diff = changes(before.facts, facts)
    since = tag("p", "Compared with ", link(before.module, addresses.of_revision(before.module), at), ": ",
                _summed(diff))  # fmt: skip
    rows = [(name, old or "-", new) for name, old, new in texts.changed(diff)]
    shown = table("What changed", ("Package", "Before", "Now"), rows, "tall") if rows else ""
    return section("What changed", since, shown)


def _summed(diff: Diff) -> str:
    parts = [(len(diff.changed), "changed"), (len(diff.added), "added"), (len(diff.removed), "removed")]
    return ", ".join(f"{number} {word}" for number, word in parts if number) + "." if diff else "the same packages."


def _packages(facts: Facts) -> Markup:
    head = "".join(tag("th", name, scope="col") for name in ("Package", "Version", "Build", "From", "Licence"))
    rows = "".join(_package_row(package) for package in sorted(facts.packages, key=lambda p: canonical(p.name)))
    return section("Packages", tag("p", f"{counted(len(facts.packages), 'package')}.", class_="faint"),
                   table_of("Packages", head, rows, "tall"))  # fmt: skip


@lru_cache(maxsize=1 << 17)
def _package_row(package: Package) -> str:
    name, version, build, kind, licence = map(escape, package)
    unknown = '<span class="faint">not known</span>'
    return (f'<tr><th scope="row">{name}</th><td>{version}</td><td class="faint">{build}</td><td>{kind}</td>'
            f"<td>{licence or unknown}</td></tr>\n")  # fmt: skip


def linked(catalogue: Catalogue, revision: Revision, facts: Facts) -> dict[str, Any]:
    """A revision in the words of schema.org (JSON-LD), with what is known and nothing that is not."""
    address = f"{catalogue.url.rstrip('/')}/{addresses.of_revision(revision.module)}" if catalogue.url else ""
    values = {
        "@context": "https://schema.org",
        "@type": "SoftwareApplication",
        "name": revision.entry.stack,
        "softwareVersion": revision.label,
        "identifier": revision.module,
        "description": facts.summary,
        "applicationCategory": revision.entry.category,
        "operatingSystem": "Linux",
        "processorRequirements": facts.platform,
        "datePublished": revision.day,
        "url": address,
        "sameAs": revision.entry.url if revision.entry.url.startswith(("https://", "http://")) else "",
        "softwareRequirements": [f"{name} {version}" for name, version in facts.main.items()],
    }
    return {name: value for name, value in values.items() if value}
