"""Revisions of the Python API: the dictionaries of ``show --json`` and ``list --json`` that notebooks show as HTML."""

from __future__ import annotations

from typing import Any

from stackyard.core.findings import counted
from stackyard.core.quoting import facts_html, table_html


class Revision(dict[str, Any]):
    """The description of a revision, a dictionary."""

    def _repr_html_(self) -> str:
        report = self["report"] or {}
        facts = {
            "summary": self["summary"], "state": f"{self['state']}{', default' if self['default'] else ''}",
            "also": " ".join(self["aliases"]), "deprecated": self["deprecated"], "created": self["created"],
            "platform": self["platform"], "prefix": self["prefix"],
            "base": (self["base"] or {}).get("id", ""), "python": self["interpreter"].get("version", ""),
            "module": f"module load {self['module']}", "checks": report.get("state", ""),
        }  # fmt: skip
        packages = [[p["name"], p["version"], p["kind"], p["licence"]] for p in self["packages"]]
        table = table_html(("package", "version", "from", "licence"), packages)
        title = counted(len(packages), "package")
        return facts_html(self["module"], facts, f"<details><summary>{title}</summary>{table}</details>")


class Revisions(list[dict[str, Any]]):
    """The listed revisions, a list of dictionaries."""

    def _repr_html_(self) -> str:
        rows = [
            [row["module"], row["state"], "default" if row["default"] else "", row["created"][:10], row["deprecated"]]
            for row in self
        ]
        return table_html(("module", "state", "", "created", "deprecated"), rows)
