"""Lint one script: apply all rules, sort the findings by line, and determine the exit status."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackyard.core.errors import Where
from stackyard.core.findings import Finding
from stackyard.inputs.reading.yamlfile import read_text, too_large
from stackyard.inputs.sites.sitemodels import Site
from stackyard.lint.dialect import dialect_of
from stackyard.lint.gridengine import grid_engine
from stackyard.lint.launches import Launch
from stackyard.lint.rules import TABLE, Case
from stackyard.lint.rules.heads.head import NAMES
from stackyard.lint.script import Script, parse_script
from stackyard.lint.shell.words import shown

_RANK = {"refused": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class LintReport:
    """The result of linting one script. `findings` are sorted by line."""

    script: Script
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0: clean, or only notes; 3: there are findings."""
        return 3 if any(finding.severity != "note" for finding in self.findings) else 0

    @property
    def judged(self) -> bool:
        """Whether lint knows the options of all its directives."""
        return all(finding.rule != "not-understood" for finding in self.findings)

    @property
    def summary(self) -> str:
        """The script's request and launches, in one line."""
        request = self.script.request
        kind = self.script.scheduler
        parts = [NAMES.get(kind, kind)] if kind else ["no scheduler directives"] if self.judged else []
        parts += [] if self.judged else ["head not judged"]
        sizes = [
            (request.nodes, "nodes", "node"),
            (request.node_tasks, "tasks per node", "task per node"),
            (request.cpus_per_task, "cores per task", "core per task"),
            (request.node_gpus, "GPUs per node", "GPU per node"),
        ]
        parts += [f"{number} {word if number > 1 else one}" for number, word, one in sizes if number]
        if request.time_min:
            parts.append(f"{request.time_min:g} min")
        starts = list(dict.fromkeys(_chain(self.script, launch) for launch in self.script.launches if not launch.via))
        return ", ".join(parts) + (f"; starts {'; '.join(starts[:3])}" if starts else "")

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for --json."""
        request = self.script.request
        fields = {
            name: getattr(request, name)
            for name in (
                "nodes",
                "tasks",
                "tasks_per_node",
                "cpus_per_task",
                "gpus_per_node",
                "gpus_per_task",
                "time_min",
                "account",
                "queue",
            )
        }
        return {
            "file": self.script.name,
            "scheduler": self.script.scheduler,
            "judged": self.judged,
            "exit_code": self.exit_code,
            "asks": {name: value for name, value in fields.items() if value not in (None, "")},
            "launches": [
                {
                    "line": launch.line,
                    "kind": launch.kind,
                    "inside": [outer.kind for outer in launch.via],
                    "words": [shown(word) for word in launch.words],
                }
                for launch in self.script.launches
            ],
            "findings": [{"line": _line(finding), **finding.to_json()} for finding in self.findings],
        }


MOST_CHARACTERS = 100_000
"""Of a batch script. Longer ones are generated, and no reader would follow what is said about them."""


def _line(finding: Finding) -> int:
    return finding.where.line if finding.where else 0


def _chain(script: Script, launch: Launch) -> str:
    inside = [outer.kind for outer in script.launches if launch in outer.via]
    return " > ".join([launch.kind, *inside])


def lint_file(path: Path, site: Site | None = None) -> LintReport:
    """Read a batch script and apply every rule.

    Args:
        path: the script. The program's source is looked up next to it and in the working directory.
        site: the target cluster; without it some findings are notes.

    Raises:
        InputError: the file does not exist, is not text, or is too large.
    """
    directories = tuple(dict.fromkeys((path.absolute().parent, Path.cwd())))
    text = read_text(path)
    if len(text) > MOST_CHARACTERS:
        raise too_large(f"more than {MOST_CHARACTERS} characters", Where(str(path)))
    endless = re.search(r"\d{101}", text)
    if endless:
        line = text.count("\n", 0, endless.start()) + 1
        raise too_large("a number of more than a hundred digits", Where(str(path), line))
    return lint_text(text, site, name=str(path), directories=directories)


def lint_text(
    text: str, site: Site | None = None, *, name: str = "script", directories: tuple[Path, ...] = ()
) -> LintReport:
    """As `lint_file`, for a text. `name` is the file in the findings, `directories` may hold the program's source."""
    script = parse_script(text, name, dialect_of(site) or grid_engine(text))
    case = Case(script, site, directories)
    by_key: dict[tuple[str, int, str], Finding] = {}
    for rule in TABLE.values():
        for hit in rule.check(case):
            finding = rule.finding(hit, name)
            by_key.setdefault((rule.name, hit.line, hit.message), finding)
    ordered = sorted(by_key.values(), key=lambda f: (_line(f), _RANK[f.severity], f.rule))
    return LintReport(script, tuple(ordered))
