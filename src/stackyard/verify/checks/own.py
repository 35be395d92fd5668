"""The stack's own checks: a command, a piece of Python or a script, run in the loaded module."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.findings import counted
from stackyard.core.late import dataclass
from stackyard.host.machine.probe import Machine
from stackyard.host.run.command import CommandError, Result, ending, tail
from stackyard.verify.checks.base import Check
from stackyard.verify.context import Context
from stackyard.verify.report import CheckResult, Status
from stackyard.yard.revision.directories import RevisionPaths

_ROW = re.compile(r"^\s*\[(?P<tick>[^\]\n]?)\]\s*(?P<name>\S.*?)\s*$", re.MULTILINE)
_SHOWN_LINES = 30


@dataclass(frozen=True)
class OwnCheck:
    """One check in the record; its fields are those of ``checks`` in the stack's file."""

    name: str
    run: tuple[str, ...] = ()
    python: str = ""
    script: str = ""
    expect: str = ""
    table: tuple[str, ...] = ()
    needs: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True
    timeout_min: float = 10

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> OwnCheck:
        """Parse a check of a record; unknown keys of a newer version are ignored."""
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        for name in ("run", "table"):
            known[name] = tuple(known.get(name, ()))
        return cls(**known)


def check_own(context: Context) -> list[CheckResult]:
    """Run every check of the stack, one after the other, since each may use the whole machine."""
    return [result_of(context, OwnCheck.of(value)) for value in context.record.checks]


def unmet_need(needs: Mapping[str, Any], machine: Machine, site: Any) -> str | None:
    """Why this machine does not meet the needs of a check, or None.

    Args:
        needs: ``gpu``, ``arch`` (the kernel's or conda's name) and ``node_kind`` (a name in the site's ``nodes``).
        site: the `Site`, or None.
    """
    arch = needs.get("arch", "")
    if needs.get("gpu") and not machine.gpus:
        return "requires a GPU, but this machine has none"
    if arch and arch not in (machine.architecture, machine.platform):
        return f"requires {arch}, but this machine is {machine.architecture}"
    name = needs.get("node_kind", "")
    if not name:
        return None
    kind = site.nodes.get(name) if site is not None else None
    if kind is None:
        return f"requires node kind {name}, which the site does not define"
    return _unlike(name, kind, machine)


def table_of(output: str) -> dict[str, bool]:
    """The rows of a ``[X] Name`` table, such as the one of ``horovodrun --check-build``: name to ticked."""
    return {row.group("name"): row.group("tick").strip() != "" for row in _ROW.finditer(output)}


def _unlike(name: str, kind: Any, machine: Machine) -> str | None:
    """A visible difference between this machine and a node kind, or None."""
    if kind.platform != machine.platform:
        return f"requires node kind {name} ({kind.platform}), but this machine is {machine.platform}"
    count = len([gpu for gpu in machine.gpus if not kind.gpu.vendor or gpu.vendor == kind.gpu.vendor])
    if kind.gpu.count > count:
        return f"requires node kind {name} with {counted(kind.gpu.count, 'GPU')}, but this machine has {count}"
    if kind.gpu.count and kind.gpu.model and not any(_same_model(kind.gpu.model, g.model) for g in machine.gpus):
        return f"requires node kind {name} with {kind.gpu.model}, but this machine has {machine.gpus[0].model}"
    return None


def _same_model(expected: str, model: str) -> bool:
    return fnmatchcase(model.lower(), f"*{expected.lower()}*")


def result_of(context: Context, check: OwnCheck) -> CheckResult:
    """The result of one check of a stack or site; skipped if this machine does not meet its needs."""
    reason = unmet_need(check.needs, context.machine, context.site)
    if reason is not None:
        remedy = "run `stackyard verify REV` on such a node"
        return CheckResult("own", check.name, "skipped", reason, remedy, required=check.required)
    started = time.perf_counter()
    problem, output = _problem(context, check)
    seconds = time.perf_counter() - started
    if problem is None:
        return CheckResult(
            "own", check.name, "passed", tail(output.strip(), _SHOWN_LINES), seconds=seconds, required=check.required
        )
    detail = "\n".join(part for part in (tail(output.strip(), _SHOWN_LINES), problem) if part)
    status: Status = "failed" if check.required else "warned"
    return CheckResult("own", check.name, status, detail, _again(context, check), seconds, check.required)


def _again(context: Context, check: OwnCheck) -> str:
    """The hint with the command that runs a check again, on one line."""
    try:
        argv = list(_argv(context, check))
    except StackyardError as error:
        return error.hint or ""
    if check.python:
        argv = ["python", "-c", f"exec({check.python!r})" if "\n" in check.python.strip() else check.python.strip()]
    return f"run it in the same environment: stackyard run {context.record.module} -- {shlex.join(argv)}"


def _problem(context: Context, check: OwnCheck) -> tuple[str | None, str]:
    """Run a check; returns the problem, if any, and its output."""
    environ = {**context.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    directory = context.work / "own" / re.sub(r"\W+", "_", check.name)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        argv = _argv(context, check)
        result = context.run(argv, env=environ, cwd=directory, timeout_s=check.timeout_min * 60, check=False)
    except CommandError as error:
        return error.message, error.result.output
    except MissingError as error:
        return f"{error.message} in the loaded environment", ""
    except StackyardError as error:
        return error.message, error.detail or ""
    return judged(check, result), result.output


def judged(check: OwnCheck, result: Result) -> str | None:
    """The problem in the output of a check, or None."""
    if result.returncode != 0:
        return ending(result.returncode)
    if check.expect and re.search(check.expect, result.output, re.MULTILINE) is None:
        return f"the output does not match {check.expect!r}"
    table = table_of(result.output)
    absent = [name for name in check.table if name not in table]
    unticked = [name for name in check.table if name in table and not table[name]]
    parts = [f"{', '.join(unticked)} not ticked"] if unticked else []
    parts += [f"{', '.join(absent)} not in the table"] if absent else []
    return "; ".join(parts) or None


def _argv(context: Context, check: OwnCheck) -> Sequence[str]:
    """The command line; ``{prefix}`` and ``{python}`` are replaced in the words of ``run``."""
    python = str(context.python.path if context.python else context.payload.python)
    if check.run:
        values = {"{prefix}": str(context.prefix), "{python}": python}
        return [_replaced(word, values) for word in check.run]
    if check.python:
        return [python, "-c", check.python]
    if not check.script:
        raise StackyardError("missing command", hint="set one of run, python or script")
    script = Path(check.script)
    if not script.is_absolute():
        script = RevisionPaths.of(context.record.path).recipe / script
    if script.suffix == ".py":
        return [python, str(script)]
    return [str(script)] if os.access(script, os.X_OK) else ["bash", str(script)]


def _replaced(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


OWN = Check(("own",), "own", check_own, title="the stack's own checks")
