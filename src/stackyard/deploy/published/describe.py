"""The full description of a revision, as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stackyard.deploy.described.packages import packages_of
from stackyard.expose.notes import module_notes
from stackyard.yard import catalogue
from stackyard.yard.layout import Yard
from stackyard.yard.revision import signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, PackageRecord


def revision_json(yard: Yard, entry: Entry, record: BuildRecord, *, licences: bool = True) -> dict[str, Any]:
    """The full description of a revision, as one JSON object.

    Args:
        licences: look for those of packages whose record has none, which may read a file of each.
    """
    paths = RevisionPaths.of(entry.folder)
    holder = next((ancestor for ancestor in yard.lineage() if ancestor.stacks in paths.root.parents), yard)
    return {
        **catalogue.row(entry, holder, published=catalogue.is_listed(holder, entry)),
        "summary": record.summary,
        "prefix": record.prefix,
        "base": record.base.to_json() if record.base else None,
        "platform": record.platform,
        "input_hash": record.input_hash,
        "interpreter": dict(record.interpreter),
        "tools": {k: dict(v) for k, v in record.tools.items()},
        "disk": asdict(record.disk),
        "size": catalogue.size(record),
        "mounted": _mounted(record),
        "container": dict(record.container),
        "timings_s": dict(record.timings_s),
        "notices": list(record.notices),
        "collisions": [asdict(collision) for collision in record.collisions],
        "limits": module_notes(record),
        "max_nodes": record.settings.get("max_nodes"),
        "environment": record.to_json()["activation"],
        "packages": [_package_json(package) for package in (packages_of(record) if licences else record.packages)],
        "modulefile": _modulefiles(yard, record.module),
        "lock": str(paths.lock),
        "signatures": [
            asdict(signature) for signature in signatures.signatures(paths, signatures.demand_of(Yard(paths.yard)))
        ],
        "report": _report(paths),
    }


def _mounted(record: BuildRecord) -> str:
    """How its image is mounted here; empty if it has none."""
    if not record.payload.is_packed:
        return ""
    from stackyard.images.squashfs import mounts

    return mounts.told(record)


def _package_json(package: PackageRecord) -> dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "build": package.build,
        "channel" if package.kind == "conda" else "index": package.source,
        "url": package.url,
        "sha256": package.sha256,
        "size": package.size,
        "kind": package.kind,
        "of_base": package.of_base,
        "licence": package.licence,
    }


def _modulefiles(yard: Yard, module: str) -> str | None:
    """The path of the revision's modulefile in the current generation, Lua before Tcl; None without one."""
    for ancestor in yard.lineage():
        for name in (f"{module}.lua", module):
            if (ancestor.modules / name).exists():
                return str(ancestor.modules / name)
    return None


def _report(paths: RevisionPaths) -> dict[str, Any] | None:
    from stackyard.verify.report import read_report

    if not paths.report.exists():
        return None
    return {"path": str(paths.report), **read_report(paths.report).to_json()}
