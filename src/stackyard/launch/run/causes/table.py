"""Known causes of failures: how each is recognised, why it happens, and the remedy. The rules are in rules/*.yaml.

The first cause counts, not what follows from it: of the failures in a log (`launch.run.causes.lines`) the earliest
whose rule is a cause; if there is none the earliest consequence (a lost connection, a time-out); last what is only
general (a signal). A site adds rules in the same format, in the files listed under `causes` in site.yaml, which precede
the others.
"""

from __future__ import annotations

import functools
import itertools
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackyard.core.errors import ManyErrors, StackyardError
from stackyard.launch.records.outcome import Cause
from stackyard.launch.run.causes.limits import LIMITS, with_limit
from stackyard.launch.run.causes.lines import Line, Match, Scan, parse
from stackyard.launch.run.causes.redact import shown

KINDS = ("site", "certain", "cause", "unknown", "consequence", "general", "ended", "vague")
"""By precedence: rules of the site; facts about the step; causes, of which the earliest counts; an exception without
a rule; what follows from the failure of another rank; what is true of many failures; an end by SIGKILL, as launchers
give to the ranks that are left; and what only accompanies failures."""
FILES = (
    "facts", "starting", "distributed", "packages", "storage", "schedulers", "mpi", "gpu", "communication",
    "frameworks", "python", "libraries", "memory", "files",
    "network", "processes", "programs", "general",
)  # fmt: skip
"""The files of rules, in the order in which they are tried."""
_KEYS = {"name", "kind", "patterns", "codes", "when", "limit", "in_warnings", "cause", "remedy", "source"}
BY_SCHEDULER = ("time-limit", "preempted", "node-fail")
"""The rules for a job that its scheduler has ended, which the launcher says."""
FACTS = frozenset({
    "state", "nodes", "tasks", "family", "launcher", "launcher_code", "mpi", "gpus_per_node", "gpu_visibility",
    "gpu_vendor", "left_early", "oom_kills", "container", "image", "ranks_claiming_zero", "nodes_there", "whose",
    "address_limit", "disk_full", "py_spy", "trained_alone",
})  # fmt: skip
"""The facts about a step that the rules can ask for, as `launch.run.seen` gathers them."""
_UNNAMED = re.compile(r":? ?\(?\{name\}\)?")
_AT_LEAST = re.compile(r">= *(\d+)$")


@dataclass(frozen=True)
class Rule:
    """One row of a file of rules; the head of rules/facts.yaml describes the fields."""

    name: str
    cause: str
    remedy: str
    source: str
    patterns: tuple[re.Pattern[str], ...] = ()
    codes: tuple[int, ...] = ()
    when: Mapping[str, object] = field(default_factory=dict)
    kind: str = "cause"
    limit: str = ""
    in_warnings: bool = False

    def applies(self, code: int | None, facts: Mapping[str, object]) -> bool:
        """Whether the exit status and the facts meet its conditions; None, an unknown one, suffices for a pattern."""
        by_code = not self.codes or code in self.codes or (code is None and bool(self.patterns))
        return by_code and all(holds(facts.get(name), value) for name, value in self.when.items())

    def found_in(self, lines: Sequence[Line]) -> tuple[Cause, Line] | None:
        """The cause, and the line that has one of its patterns."""
        for line in lines:
            for pattern in self.patterns:
                if hit := pattern.search(line.text):
                    return self.as_cause(shown(hit.groupdict().get("name") or "")), line
        return None

    def as_cause(self, name: str = "") -> Cause:
        """The cause, with the name of the thing and the limit of this process for it."""
        texts = (self.cause, self.remedy)
        if not name:
            texts = (_UNNAMED.sub("", self.cause), _UNNAMED.sub("", self.remedy))
        cause = Cause(self.name, *(text.replace("{name}", name.strip()) for text in texts))
        return with_limit(cause, self.limit) if self.limit else cause


@dataclass(frozen=True)
class Found:
    """A cause that a rule has found; `number` is the rule's place among those tried."""

    cause: Cause
    rule: Rule
    number: int

    @property
    def kind(self) -> int:
        """The precedence of its kind."""
        return KINDS.index(self.rule.kind)


def holds(value: object, expected: object) -> bool:
    """Whether a fact meets the condition of a rule: equal, or at least as large."""
    least = _AT_LEAST.match(expected) if isinstance(expected, str) else None
    if least:
        return isinstance(value, int) and value >= int(least[1])
    return value == expected


def matcher(tried: Sequence[Rule], code: int | None, facts: Mapping[str, object]) -> Match[Found]:
    """A function for `Scan`: the first of the rules that applies and has a pattern in one of the lines.

    Args:
        code: the exit status; None: not known.
    """
    able = [(number, rule) for number, rule in enumerate(tried) if rule.patterns and rule.applies(code, facts)]

    def match(lines: list[Line], quiet: bool) -> tuple[Found, Line] | None:
        best: tuple[Found, Line] | None = None
        for number, rule in able:
            if best and KINDS.index(rule.kind) >= best[0].kind:
                continue
            if (not quiet or rule.in_warnings) and (hit := rule.found_in(lines)):
                best = Found(hit[0], rule, number), hit[1]
        return best

    return match


def without_lines(tried: Sequence[Rule], code: int | None, facts: Mapping[str, object]) -> list[Found]:
    """The rules that apply by the exit status and the facts alone."""
    return [
        Found(rule.as_cause(), rule, number) for number, rule in enumerate(tried)
        if not rule.patterns and rule.applies(code, facts) and (code or rule.when)
    ]  # fmt: skip


def explain(
    *,
    tail: Sequence[str],
    code: int,
    launcher_output: str,
    facts: Mapping[str, object],
    only: Collection[str] = (),
    first: Sequence[Rule] = (),
) -> Cause | None:
    """The first known cause of a failure, or None.

    Args:
        tail: the last lines of the rank that failed first.
        code: its exit status, 128 + signal after a signal; 0 finds problems of a run that did not fail.
        launcher_output: the output of srun, mpirun ...; read after `tail`.
        facts: of the step, by the names in the rules: ``family``, ``nodes``, ``tasks``, ``ranks_claiming_zero`` ...
        only: the names of the rules to try; empty: all.
        first: the site's own rules, which are tried before the others.
    """
    tried = [rule for rule in (*first, *rules()) if not only or rule.name in only]
    keys: dict[tuple[int, ...], Cause | None] = {
        (one.kind, 1, 0, one.number): one.cause for one in without_lines(tried, code, facts)
    }
    orders = itertools.count()
    for lines in (tail, launcher_output.splitlines()[-200:]) if code else ():
        scan = Scan(matcher(tried, code, facts), orders, compares_all=True, forgets=False)
        for number, text in enumerate(lines, 1):
            scan.feed(parse(number, text))
        scan.end()
        for one in scan.all:
            if one.found:
                keys[(one.found.kind, 0, one.order, one.found.number)] = one.found.cause
            elif one.is_raised:
                keys[(KINDS.index("unknown"), 0, one.order, 0)] = None
    return keys[min(keys)] if keys else None


@functools.cache
def rules() -> tuple[Rule, ...]:
    """The rules, in the order in which they are tried.

    Raises:
        StackyardError: a file of rules is invalid (a test keeps them valid).
    """
    from stackyard.inputs.reading.yamlfile import packaged

    return tuple(_rule(row) for name in FILES for row in packaged(__package__, f"rules/{name}.yaml"))


def site_rules(files: Iterable[str]) -> tuple[Rule, ...]:
    """The rules in files of a site, in their order.

    Raises:
        InputError: a file cannot be read, or a rule in it is invalid, with its place.
    """
    if not files:
        return ()
    from stackyard.inputs.sites.sitefiles import load_causes

    return tuple(
        Rule(
            row.name, row.cause, row.remedy, row.source, tuple(map(re.compile, row.patterns)), row.codes, row.when,
            "site", in_warnings=True,
        )
        for file in files
        for row in load_causes(Path(file), FACTS)
    )  # fmt: skip


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
    name = row.get("name")
    if unknown := set(row) - _KEYS:
        raise StackyardError(f"rules: {name}: unknown {', '.join(sorted(unknown))}")
    if not any(row.get(key) for key in ("patterns", "codes", "when")):
        raise StackyardError(f"rules: {name}: no patterns, codes or when")
    kind, limit = row.get("kind", "cause"), row.get("limit", "")
    if kind not in KINDS[1:] or (limit and limit not in LIMITS):
        raise StackyardError(f"rules: {name}: unknown kind {kind} or limit {limit}")
    try:
        patterns = tuple(re.compile(one) for one in row.get("patterns", ()))
    except re.error as error:
        raise StackyardError(f"rules: {name}: {error}") from error
    return Rule(
        row["name"], row["cause"], row["remedy"], row["source"], patterns, tuple(row.get("codes", ())),
        dict(row.get("when", {})), kind, limit, row.get("in_warnings", False),
    )  # fmt: skip


def reference(table: Iterable[Rule] | None = None) -> str:
    """The page docs/reference/causes.md."""
    first = (
        "What `stackyard launch` reports when a run has failed, and `stackyard doctor` of any log. Generated from "
        "`src/stackyard/launch/run/causes/rules`. The first cause counts: of the failures in a log the earliest whose "
        "rule is a cause, then what follows from another failure (a consequence), then what is true of many (general). "
        "Within a line or traceback the first rule counts. Those of your site are tried before these ([how to add "
        "them](../howto/site-checks.md#causes-of-failures))."
    )
    parts = ["# Known causes", first]
    for rule in rules() if table is None else table:
        seen = [f"`` {one.pattern} ``" if "`" in one.pattern else f"`{one.pattern}`" for one in rule.patterns]
        seen += [f"exit status {', '.join(map(str, rule.codes))}"] if rule.codes else []
        seen += [f"{name} {value}" for name, value in rule.when.items()]
        kind = "" if rule.kind == "cause" else f"Kind: {rule.kind}. "
        parts += [
            f"## {rule.name}", f"{rule.cause[0].upper()}{rule.cause[1:]}.", f"**Remedy:** {rule.remedy}.",
            f"{kind}Recognised by: {'; '.join(seen)}. Source: {rule.source}",
        ]  # fmt: skip
    lines = textwrap.TextWrapper(100, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(map(lines.fill, parts)) + "\n"
