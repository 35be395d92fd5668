"""``stackyard show``: one revision, or the parsed content of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, emit, show_json, show_table
from stackyard.cli.tables import show_line
from stackyard.core.errors import InputError
from stackyard.core.findings import human_bytes
from stackyard.deploy.api import revision_json
from stackyard.yard.api import (
    BuildRecord,
    RevisionPaths,
    Signature,
    collision_sentences,
    find_revision,
    read_record,
    revision_size,
)


@verb(
    ("the packages and paths of a revision", "stackyard show pytorch/2.13"),
    ("how to cite it in a paper", "stackyard show pytorch/2.13 --cite"),
    ("how an environment.yml was parsed", "stackyard show --parsed environment.yml"),
)
@click.argument("rev", required=False, metavar="REV")
@click.option("--parsed", type=click.Path(path_type=Path), metavar="FILE", help="Show how FILE was parsed.")
@click.option("--cite", is_flag=True, help="Print how REV is cited: BibTeX, and a CITATION.cff.")
@click.option("--json", "as_json", is_flag=True, help="Print an object.")
def command(context: Context, rev: str | None, parsed: Path | None, cite: bool, as_json: bool) -> None:
    """Show the packages, the modulefile, the lock and the report of REV."""
    if parsed is not None:
        _show_parsed(context, parsed, as_json)
        return
    if rev is None:
        raise InputError("missing argument REV", hint="`stackyard list` lists revisions; use --parsed for a file")
    yard = context.yard(reading=True)
    entry = find_revision(yard, rev)
    record = read_record(RevisionPaths.of(entry.folder).record)
    if cite:
        _show_citation(record, context.site().name, entry.url, as_json)
        return
    value = revision_json(yard, entry, record, licences=as_json)
    if as_json:
        show_json(value)
    else:
        _show(value, record)


def _show(value: dict[str, Any], record: BuildRecord) -> None:
    echo(click.style(value["module"], bold=True) + (f"  {value['summary']}" if value["summary"] else ""))
    report = value["report"] or {}
    facts = {
        "state": _state(value),
        "deprecated": value["deprecated"],
        "also": " ".join(value["aliases"]),
        "created": value["created"],
        "prefix": value["prefix"] + (f"  ({record.origin.remark})" if record.origin.remark else ""),
        "base": f"{record.base.id} in {record.base.yard}" if record.base else "",
        "python": " ".join(f"{record.interpreter.get(k, '')}" for k in ("version", "source")).strip(),
        "disk": _disk(record),
        "mounted": value["mounted"],
        "nodes": _nodes(value["max_nodes"] or {}),
        **record.origin.facts,
        "modulefile": value["modulefile"] or "none",
        "lock": value["lock"],
        "signed": "; ".join(str(Signature(**row)) for row in value["signatures"]),
        "report": f"{report.get('state', 'none')}  {report.get('path', '')}",
    }
    for name, text in facts.items():
        if text.strip():
            show_line(f"  {name:<11}{text}", 13)
    for text in (*value["notices"], *collision_sentences(record.collisions), *value["limits"]):
        show_line(f"  {'note':<11}{text}", 13)
    echo()
    rows = [{"package": p.name, "version": p.version, "build": p.build, "from": _origin(p)} for p in record.packages]
    show_table(rows, ("package", "version", "build", "from"))


def _show_citation(record: BuildRecord, site: str, url: str, as_json: bool) -> None:
    from stackyard.deploy.api import bibtex, cff, citation_of

    cited = citation_of(record)
    texts = {"bibtex": bibtex(cited, site, url), "cff": cff(cited, site, url)}
    if as_json:
        show_json(texts)
    else:
        emit("\n".join(texts.values()))


def _disk(record: BuildRecord) -> str:
    if record.payload.image:
        size = revision_size(record)
        return f"{human_bytes(size['bytes'])} in 1 file ({size['form']}), {size['entries']:,} entries inside"
    use = record.disk
    if not record.origin.owns_files:
        return f"{human_bytes(use.bytes_shared)} in {use.inodes_shared:,} files, none of them in the yard"
    own = f"{human_bytes(use.bytes_new)} in {use.inodes_new:,} files new"
    return f"{own}, {human_bytes(use.bytes_shared)} in {use.inodes_shared:,} files shared ({use.link_mode})"


def _nodes(most: dict[str, Any]) -> str:
    return f"at most {most['count']}" + (f": {most['reason']}" if most["reason"] else "") if most else ""


def _state(value: dict[str, Any]) -> str:
    if value["state"] == "failed" and not value["published"]:
        return "failed, not published"
    return f"{value['state']}, default" if value["default"] else str(value["state"])


def _origin(package: Any) -> str:
    source = f"{package.kind}: {package.source}" if package.source else str(package.kind)
    return f"base; {source}" if package.of_base else source


def _show_parsed(context: Context, path: Path, as_json: bool) -> None:
    from stackyard.inputs.api import parsed_json

    value = parsed_json(path, context.site())
    if as_json:
        show_json(value)
        return
    from stackyard.cli.look.parsed import show_parsed

    show_parsed(value)
