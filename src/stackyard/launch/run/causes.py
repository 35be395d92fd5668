"""Known causes of failures: how each is recognised, why it happens, and the remedy. The rules are in causes.yaml.

A site adds its own in the same format, in the files listed under `causes` in site.yaml; they are tried first.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackyard.core.errors import ManyErrors, StackyardError
from stackyard.launch.records.outcome import Cause

_KEYS = {"name", "patterns", "codes", "when", "cause", "remedy", "source"}
_PREFIX = re.compile(r"(?:\[(?:rank|default)?\d+(?:, ?\d+)?\](?:<std(?:out|err)>)?: ?|\d+: )+")
"""What torch, torchrun, mpirun (``--tag-output``) and srun (``-l``) put before a rank's lines."""
BY_SCHEDULER = ("time-limit", "preempted", "node-fail")
"""The rules for a job that its scheduler has ended, which the launcher says."""
FACTS = frozenset({
    "state", "nodes", "tasks", "family", "launcher", "launcher_code", "mpi", "gpus_per_node", "gpu_visibility",
    "gpu_vendor", "left_early", "oom_kills", "container", "image", "ranks_claiming_zero", "nodes_there", "whose",
    "address_limit", "disk_full", "py_spy",
})  # fmt: skip
"""The facts about a step that the rules can ask for, as `launch.run.seen` gathers them."""
_AT_LEAST = re.compile(r">= *(\d+)$")


@dataclass(frozen=True)
class Rule:
    """One row of causes.yaml; the head of that file describes the fields."""

    name: str
    cause: str
    remedy: str
    source: str
    patterns: tuple[re.Pattern[str], ...] = ()
    codes: tuple[int, ...] = ()
    when: Mapping[str, object] = field(default_factory=dict)

    def match(self, lines: Sequence[str], code: int, facts: Mapping[str, object]) -> Cause | None:
        """The cause, if all conditions of the rule are met."""
        if (self.codes and code not in self.codes) or not all(holds(facts.get(k), v) for k, v in self.when.items()):
            return None
        if not self.patterns:
            return Cause(self.name, self.cause, self.remedy) if code or self.when else None
        if not code:
            return None
        match = next((hit for line in lines for pattern in self.patterns if (hit := pattern.search(line))), None)
        if match is None:
            return None
        name = match.groupdict().get("name") or ""
        return Cause(self.name, self.cause.replace("{name}", name), self.remedy.replace("{name}", name))


def holds(value: object, expected: object) -> bool:
    """Whether a fact meets the condition of a rule: equal, or at least as large."""
    least = _AT_LEAST.match(expected) if isinstance(expected, str) else None
    if least:
        return isinstance(value, int) and value >= int(least[1])
    return value == expected


def explain(
    *,
    tail: Sequence[str],
    code: int,
    launcher_output: str,
    facts: Mapping[str, object],
    only: Collection[str] = (),
    first: Sequence[Rule] = (),
) -> Cause | None:
    """The first known cause that matches, or None.

    Args:
        tail: the last lines of the rank that failed first.
        code: its exit status, 128 + signal after a signal; 0 finds problems of a run that did not fail.
        launcher_output: the output of srun, mpirun ...; read after `tail`.
        facts: of the step, by the names in the rules: ``family``, ``nodes``, ``tasks``, ``ranks_claiming_zero`` ...
        only: the names of the rules to try; empty: all.
        first: the site's own rules, which are tried before the others.
    """
    lines = [line[match.end() :] if (match := _PREFIX.match(line)) else line for line in _lines(tail, launcher_output)]
    tried = (rule for rule in (*first, *rules()) if not only or rule.name in only)
    return next((cause for rule in tried if (cause := rule.match(lines, code, facts))), None)


def _lines(tail: Sequence[str], launcher_output: str) -> list[str]:
    return [*tail, *launcher_output.splitlines()[-200:]]


@functools.cache
def rules() -> tuple[Rule, ...]:
    """The rules, in the order in which they are tried.

    Raises:
        StackyardError: causes.yaml is invalid (a test keeps it valid).
    """
    from stackyard.inputs.reading.yamlfile import packaged

    return tuple(_rule(row) for row in packaged(__package__, "causes.yaml"))


def site_rules(files: Iterable[str]) -> tuple[Rule, ...]:
    """The rules in files of a site, in their order.

    Raises:
        InputError: a file cannot be read, or a rule in it is invalid, with its place.
    """
    if not files:
        return ()
    from stackyard.inputs.sites.sitefiles import load_causes

    return tuple(
        Rule(row.name, row.cause, row.remedy, row.source, tuple(map(re.compile, row.patterns)), row.codes, row.when)
        for file in files
        for row in load_causes(Path(file), FACTS)
    )


def mistakes(files: Iterable[str]) -> tuple[StackyardError, ...]:
    """The errors in the files of a site, each with its place; empty if their rules can be used."""
    try:
        site_rules(files)
    except ManyErrors as error:
        return tuple(error.problems)
    except StackyardError as error:
        return (error,)
    return ()


def _rule(row: Mapping[str, Any]) -> Rule:
    if unknown := set(row) - _KEYS:
        raise StackyardError(f"causes.yaml: {row.get('name')}: unknown {', '.join(sorted(unknown))}")
    if not any(row.get(key) for key in ("patterns", "codes", "when")):
        raise StackyardError(f"causes.yaml: {row['name']}: no patterns, codes or when")
    try:
        patterns = tuple(re.compile(one) for one in row.get("patterns", ()))
    except re.error as error:
        raise StackyardError(f"causes.yaml: {row['name']}: {error}") from error
    return Rule(
        row["name"], row["cause"], row["remedy"], row["source"], patterns, tuple(row.get("codes", ())),
        dict(row.get("when", {})),
    )  # fmt: skip


def reference(table: Iterable[Rule] | None = None) -> str:
    """The page docs/reference/causes.md."""
    first = (
        "What `stackyard launch` reports when a run has failed. Generated from "
        "`src/stackyard/launch/run/causes.yaml`; the first rule that matches is reported. Those of your site are tried "
        "before these ([how to add them](../howto/site-checks.md#causes-of-failures))."
    )
    parts = ["# Known causes", first]
    for rule in rules() if table is None else table:
        seen = [f"`{one.pattern}`" for one in rule.patterns]
        seen += [f"exit status {', '.join(map(str, rule.codes))}"] if rule.codes else []
        seen += [f"{name} {value}" for name, value in rule.when.items()]
        parts += [
            f"## {rule.name}", f"{rule.cause[0].upper()}{rule.cause[1:]}.", f"**Remedy:** {rule.remedy}.",
            f"Recognised by: {'; '.join(seen)}. Source: {rule.source}",
        ]  # fmt: skip
    lines = textwrap.TextWrapper(100, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(map(lines.fill, parts)) + "\n"
