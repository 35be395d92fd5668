"""Known causes of failures: what was seen, why, and what to do. The rules are data: causes.yaml."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from stackyard.errors import StackyardError
from stackyard.launch.records.outcome import Cause

_KEYS = {"name", "patterns", "codes", "when", "cause", "remedy", "source"}
_AT_LEAST = re.compile(r">= *(\d+)$")


@dataclass(frozen=True)
class Rule:
    """One row of causes.yaml; the file's head says what the fields mean."""

    name: str
    cause: str
    remedy: str
    source: str
    patterns: tuple[re.Pattern[str], ...] = ()
    codes: tuple[int, ...] = ()
    when: Mapping[str, object] = field(default_factory=dict)

    def match(self, lines: Sequence[str], code: int, facts: Mapping[str, object]) -> Cause | None:
        """The cause, if all that the rule asks for was seen."""
        if (self.codes and code not in self.codes) or not all(holds(facts.get(k), v) for k, v in self.when.items()):
            return None
        if not self.patterns:
            return Cause(self.name, self.cause, self.remedy) if code or self.when else None
        if not code:
            return None
        found = next((hit for line in lines for pattern in self.patterns if (hit := pattern.search(line))), None)
        if found is None:
            return None
        name = found.groupdict().get("name") or ""
        return Cause(self.name, self.cause.replace("{name}", name), self.remedy.replace("{name}", name))


def holds(value: object, wanted: object) -> bool:
    """Whether a fact is as a rule wants it: equal, or at least so large."""
    least = _AT_LEAST.match(wanted) if isinstance(wanted, str) else None
    if least:
        return isinstance(value, int) and value >= int(least[1])
    return value == wanted


def explain(*, tail: Sequence[str], code: int, launcher_output: str, facts: Mapping[str, object]) -> Cause | None:
    """The first known cause that fits, or None.

    Args:
        tail: the last lines of the rank that failed first.
        code: its exit code, 128 + signal after a signal; 0 asks for what is wrong although nothing failed.
        launcher_output: what srun, mpirun ... printed; read after `tail`.
        facts: of the step, by the names that rules use: ``family``, ``nodes``, ``tasks``, ``ranks_claiming_zero`` ...
    """
    lines = [*tail, *launcher_output.splitlines()[-200:]]
    return next((cause for rule in rules() if (cause := rule.match(lines, code, facts))), None)


@functools.cache
def rules() -> tuple[Rule, ...]:
    """The table, in the order in which it is tried.

    Raises:
        StackyardError: causes.yaml is wrong (a test keeps it right).
    """
    from ruamel.yaml import YAML

    text = resources.files("stackyard.launch.run").joinpath("causes.yaml").read_text(encoding="utf-8")
    return tuple(_rule(row) for row in YAML(typ="safe", pure=True).load(text))


def _rule(row: Mapping[str, Any]) -> Rule:
    if unknown := set(row) - _KEYS:
        raise StackyardError(f"causes.yaml: {row.get('name')}: unknown {', '.join(sorted(unknown))}")
    if not any(row.get(key) for key in ("patterns", "codes", "when")):
        raise StackyardError(f"causes.yaml: {row['name']}: nothing that it could be known by")
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
    parts = [
        "# Known causes\n\nWhat `stackyard launch` names when a run has failed. Made from "
        "`src/stackyard/launch/run/causes.yaml`; the first rule that matches is shown.\n"
    ]
    for rule in rules() if table is None else table:
        seen = [f"`{one.pattern}`" for one in rule.patterns]
        seen += [f"exit code {', '.join(map(str, rule.codes))}"] if rule.codes else []
        seen += [f"{name} {value}" for name, value in rule.when.items()]
        parts.append(
            f"## {rule.name}\n\n{rule.cause[0].upper()}{rule.cause[1:]}.\n\n**Remedy:** {rule.remedy}.\n\n"
            f"Known by: {'; '.join(seen)}. Source: {rule.source}\n"
        )
    return "\n".join(parts)
