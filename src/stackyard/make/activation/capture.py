"""Captures the effect of a prefix's activation as an `EnvironmentChange`, once, instead of running it at every load.

The scripts of ``etc/conda/activate.d`` are sourced in an empty bash, after the variables of ``etc/conda/env_vars.d``
and ``conda-meta/state`` are set, and the shell before is compared with the shell after. A second run changes everything
that a script may depend on (user, home, directory, date, job and display variables): a value that differs cannot be
captured, and is reported with its script. In a third run every variable that a script changes has a value before, and
PATH another one, which shows whether the script replaces it, prepends or appends to it, or keeps it. Variables in which
scripts save values for a deactivation are left out. If the third run matches none of the operations for a variable, it
may depend on another variable that had a value: it gets a separate run. conda is not needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.core.change import Alias, Append, EnvironmentChange, Function, Operation, Prepend
from stackyard.core.errors import StackyardError
from stackyard.core.grammar import COMMAND, LOADED, SETTABLE, VALUE, Grammar, GrammarError
from stackyard.host.files.scratch import scratch
from stackyard.host.run.view import PLAIN, View
from stackyard.make.activation.shell import FIRST, SECOND, ProbeEnvironment, Shell, observe
from stackyard.make.activation.variables import before, is_build_only, operations, saved
from stackyard.yard import formats
from stackyard.yard.revision.record import Activation

_MOST_ALONE = 20
"""Runs for single variables."""


def capture(
    prefix: Path,
    *,
    keep: Collection[str] = (),
    variables: Mapping[str, str] | None = None,
    timeout_s: float = 60,
    view: View = PLAIN,
) -> Activation:
    """Capture the effect of activating `prefix`.

    Args:
        keep: build-only variables (CC, CFLAGS ...) to export nevertheless.
        variables: additional variables of the environment, from ``variables:`` of an environment.yml.
        timeout_s: time limit in seconds for all scripts of one run together.
        view: the scripts' view of the files.

    Raises:
        StackyardError: a script exited the shell or timed out, or a file of variables cannot be read.
    """
    environment = {**environment_variables(prefix), **(variables or {})}
    scripts = activation_scripts(prefix)
    if not scripts and not environment:
        return Activation(uncaptured=tuple(_foreign(prefix)))
    with scratch("activation") as directory:

        def run(probe: ProbeEnvironment, name: str) -> list[Shell]:
            return observe(prefix, scripts, environment, probe, directory / name, timeout_s, view)

        def with_values(*names: str) -> ProbeEnvironment:
            present = {name: before(name) for name in names if name not in first[0].variables}
            path = f"{FIRST.path}:{before('PATH')}" if "PATH" in names else FIRST.path
            return replace(FIRST, present=present, path=path)

        first, second = run(FIRST, "1"), run(SECOND, "2")
        changed = _changed(first)
        third = run(with_values("PATH", *changed), "3")
        doubtful = [name for name in sorted(changed) if _is_doubtful(name, first, third)][:_MOST_ALONE]
        alone = {name: run(with_values(name), f"alone-{name}") for name in doubtful}
    return assemble(prefix, first, second, third, keep, alone)


def activation_scripts(prefix: Path) -> list[Path]:
    """The scripts that a POSIX shell sources on activation, in conda's order."""
    return sorted((prefix / "etc" / "conda" / "activate.d").glob("*.sh"))


def environment_variables(prefix: Path) -> dict[str, str]:
    """The variables of packages (``env_vars.d/*.json``, by name), then of the environment (``conda-meta/state``).

    Raises:
        StackyardError: one of the files does not have conda's format, or names a variable that a shell would evaluate.
    """
    variables: dict[str, str] = {}
    for file in sorted((prefix / "etc" / "conda" / "env_vars.d").glob("*.json")):
        variables.update(_variables(prefix, file, _json(file)))
    state = prefix / "conda-meta" / "state"
    if state.exists():
        values = _variables(prefix, state, _json(state).get("env_vars", {}))
        variables.update({name: text for name, text in values.items() if text != "***unset***"})
    return variables


def assemble(
    prefix: Path, first: Sequence[Shell], second: Sequence[Shell], third: Sequence[Shell], keep: Collection[str],
    alone: Mapping[str, Sequence[Shell]] | None = None,
) -> Activation:  # fmt: skip
    """The operations from the states of the runs: the shell at the start and after each script.

    Args:
        alone: separate third runs for some variables, in which no other one had a value.
    """
    changes: list[tuple[int, Operation]] = []
    build_only: list[str] = []
    uncaptured = _foreign(prefix)
    for name in sorted(_changed(first) | _changed(second)):
        if name not in keep and (is_build_only(name) or _is_saved(name, first, third)):
            build_only += [name] if is_build_only(name) else []
            continue
        # a value is captured if it is the same in two runs and independent of what was set before
        last = (alone or {}).get(name, third)
        values = [states[-1].variables.get(name) for states in (first, second, last)]
        wrong = _outside(SETTABLE, name) or _outside(VALUE, *values)
        additions = () if wrong else _operations(name, first, last)
        if wrong := wrong or _outside(
            LOADED, *(name for operation in additions if not isinstance(operation, Prepend | Append))
        ):
            uncaptured.append(f"{_definer(name, first)}: {wrong}; {name} is not captured")
        elif values[0] != values[1]:
            uncaptured.append(_blame(name, first, second, "on the user, the directory or the time"))
        elif additions:
            changes += [(_first_change(name, first), operation) for operation in additions]
        else:
            uncaptured.append(_blame(name, first, last, "on its previous value"))
    made_names = _names(first, second, uncaptured)
    ordered = [operation for _, operation in sorted(changes, key=lambda pair: pair[0])]
    return Activation(EnvironmentChange((*ordered, *made_names)), tuple(build_only), tuple(uncaptured))


def _operations(name: str, first: Sequence[Shell], third: Sequence[Shell]) -> tuple[Operation, ...]:
    """The operations equivalent to the change of a variable; none if a module cannot express the value."""
    values = [states[n].variables.get(name) for states in (first, third) for n in (0, -1)]
    return () if _outside(VALUE, *values) else operations(name, *values)


def _is_saved(name: str, first: Sequence[Shell], third: Sequence[Shell]) -> bool:
    """Whether a variable has the former value of another one; PATH always has a value."""
    if name != "PATH" and first[-1].variables.get(name) == first[0].variables["PATH"]:
        return True
    others = {other: value for other, value in third[0].variables.items() if other != name}
    return saved(third[-1].variables.get(name), others)


def _is_doubtful(name: str, first: Sequence[Shell], third: Sequence[Shell]) -> bool:
    """Whether no operation matches the change of a variable for users."""
    return not is_build_only(name) and not _is_saved(name, first, third) and not _operations(name, first, third)


def _changed(states: Sequence[Shell]) -> set[str]:
    start, end = states[0].variables, states[-1].variables
    return {name for name in start.keys() | end.keys() if start.get(name) != end.get(name)}


def _first_change(name: str, states: Sequence[Shell]) -> int:
    """The number of the script (from 1) that changed a variable first."""
    for number, (earlier, after) in enumerate(itertools.pairwise(states), 1):
        if earlier.variables.get(name) != after.variables.get(name):
            return number
    return 0


def _blame(name: str, first: Sequence[Shell], other: Sequence[Shell], cause: str) -> str:
    number = _first_change(name, first) or _first_change(name, other)
    return f"{first[number].script}: the value of {name} depends {cause}; not captured"


def _names(first: Sequence[Shell], second: Sequence[Shell], uncaptured: list[str]) -> list[Operation]:
    """Functions and aliases that the scripts define, for bash only; `expose.limits` reports other shells."""
    additions: list[Operation] = []
    start, end, other = first[0], first[-1], second[-1]
    for name, body in end.functions.items():
        if name.startswith("_") and name not in _called(end, start):
            continue
        if start.functions.get(name) == body:
            continue
        if wrong := _outside(COMMAND, name) or _outside(VALUE, body):
            uncaptured.append(f"{_definer(name, first)}: {wrong}; the function is not captured")
        elif other.functions.get(name) != body:
            uncaptured.append(f"{_definer(name, first)}: the function {name} depends on the user; not captured")
        else:
            additions.append(Function(name, {"sh": body}))
    for name, value in end.aliases.items():
        if start.aliases.get(name) == value:
            continue
        if wrong := _outside(COMMAND, name) or _outside(VALUE, value):
            uncaptured.append(f"{_definer(name, first)}: {wrong}; the alias is not captured")
        elif other.aliases.get(name) == value:
            additions.append(Alias(name, value))
        else:
            uncaptured.append(f"{_definer(name, first)}: the alias {name} depends on the user; not captured")
    return additions


def _outside(rule: Grammar, *texts: str | None) -> str:
    """The error of the first text that violates a grammar; empty if there is none; texts may be None."""
    try:
        for text in texts:
            if text is not None:
                rule(text)
    except GrammarError as error:
        return str(error)
    return ""


def _called(end: Shell, start: Shell) -> set[str]:
    """Helper functions (``_name``) that a user's function calls; other helpers are internal to the scripts."""
    new = {name: body for name, body in end.functions.items() if start.functions.get(name) != body}
    needed = {name for name in new if not name.startswith("_")}
    grown = True
    while grown:
        more = {n for n in new if n not in needed and any(n in new[user] for user in needed)}
        grown = bool(more)
        needed |= more
    return needed


def _definer(name: str, states: Sequence[Shell]) -> str:
    for earlier, after in itertools.pairwise(states):
        for kind in ("functions", "aliases"):
            if getattr(earlier, kind).get(name) != getattr(after, kind).get(name):
                return after.script
    return states[-1].script


def _foreign(prefix: Path) -> list[str]:
    """Scripts that exist for fish, csh or xonsh only; they are not part of the captured change."""
    directory = prefix / "etc" / "conda" / "activate.d"
    shells = {".fish": "fish", ".csh": "csh", ".xsh": "xonsh"}
    return [
        f"{script.name}: for {shells[script.suffix]} only, without a .sh of the same name; not captured"
        for script in sorted(directory.glob("*"))
        if script.suffix in shells and not script.with_suffix(".sh").exists()
    ]


def _json(file: Path) -> dict[str, object]:
    try:
        value = formats.content(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StackyardError(f"cannot read {file}: {error}") from error
    if not isinstance(value, dict):
        raise StackyardError(f"cannot read {file}: not a JSON object of variables")
    return value


def _variables(prefix: Path, file: Path, values: object) -> dict[str, str]:
    if not isinstance(values, dict):
        raise StackyardError(f"cannot read {file}: not a JSON object of variables")
    try:
        return {SETTABLE(str(name)): VALUE(str(text)) for name, text in values.items()}
    except GrammarError as error:
        raise StackyardError(
            f"{_owner(prefix, file)} sets an invalid variable in {file}: {error}",
            hint="its commands would run whenever the stack is loaded: exclude this build of the package, or report it",
        ) from error


def _owner(prefix: Path, file: Path) -> str:
    """The conda package that a file of a prefix belongs to."""
    own = file.relative_to(prefix).as_posix()
    for meta in sorted((prefix / "conda-meta").glob("*.json")):
        if own in _json(meta).get("files", ()):  # type: ignore[operator]
            return f"the package {meta.stem}"
    return "the prefix"
