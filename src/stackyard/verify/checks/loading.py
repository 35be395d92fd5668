"""Loads and unloads the module with each module system and compares the effect on the shell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stackyard.core import change as ops
from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.machine.modules import ModuleSystem, Step, is_bookkeeping, require_loaded, session
from stackyard.host.machine.shell_state import ShellState
from stackyard.verify.report import CheckResult

CONTROL = "stackyard-control/1"
"""A one-line module, loaded and unloaded in the same way: the module system's own effect on a shell."""


@dataclass(frozen=True)
class LoadedModule:
    """A loaded module. `environ` is complete; `seconds` is the duration of ``module load``."""

    system: ModuleSystem
    environ: Mapping[str, str]
    seconds: float


def check_loading(
    system: ModuleSystem,
    module: str,
    modules: Path,
    change: ops.EnvironmentChange,
    environ: Mapping[str, str],
    work: Path,
) -> tuple[LoadedModule | None, list[CheckResult]]:
    """Load and unload `module` with one module system, and compare with a control module in the same shell.

    Args:
        modules: the directory with the generation's modulefiles.
        change: the expected change; each operation is checked in the loaded shell.
        environ: the environment of the shell before loading.
        work: an empty directory for the control module.

    Returns:
        The loaded environment, None if the module did not load, and the results of kinds load and symmetry.
    """
    control = _write_control(work / f"control-{system.kind}", change)
    paths = [control, modules]
    try:
        steps = [(word, name) for name in (CONTROL, module) for word in ("load", "unload")]
        plain, clean, load, unload = session(system, paths, steps, environ).steps
        require_loaded(system, module, load)
        require_loaded(system, CONTROL, plain)
    except StackyardError as error:
        text = "\n".join(part for part in (error.message, error.detail) if part)
        return None, [CheckResult("load", system.title, "failed", text, error.hint or "")]
    loaded = LoadedModule(system, _without_own(load.state.variables, control), load.seconds)
    missing = unmet(change, clean.state.variables, load.state)
    return loaded, [_load_result(system, load, plain, missing), _symmetry_result(system, unload, clean)]


def unmet(change: ops.EnvironmentChange, before: Mapping[str, str], after: ShellState) -> list[str]:
    """Operations of a change without an effect in a loaded shell, one line each, sorted."""
    expected = change.apply(before)
    return sorted(line for operation in change for line in _unmet(operation, expected, after))


def _unmet(operation: ops.Operation, expected: Mapping[str, str], after: ShellState) -> Iterator[str]:
    match operation:
        case ops.Prepend(variable, directory) | ops.Append(variable, directory):
            if directory not in after.variables.get(variable, "").split(":"):
                yield f"{variable} does not contain {directory}"
        case ops.Flags(variable, text):
            yield from _lacking(variable, (text,), after)
        case ops.Join(variable, front, back):
            yield from _lacking(variable, (front, back), after)
        case ops.Set() | ops.SetRestorable() | ops.Default() | ops.SaveValue() | ops.UserPath():
            value, expected_value = after.variables.get(operation.variable), expected.get(operation.variable)
            if (value is None) != (expected_value is None) or _flat(value) != _flat(expected_value):
                yield _differs(operation.variable, value, expected_value)
        case ops.Function(name, bodies) if "sh" in bodies and name not in after.functions:
            yield f"the function {name} is not defined"
        case ops.Alias(name, _) if name not in after.aliases:
            yield f"the alias {name} is not defined"
        case _:
            pass


def _lacking(variable: str, texts: Iterable[str], after: ShellState) -> Iterator[str]:
    value = _flat(after.variables.get(variable))
    yield from (f"{variable} does not contain {text!r}" for text in texts if _flat(text) not in value)


def leftovers(real: ShellState, plain: ShellState) -> list[str]:
    """Differences between a shell after load and unload and one after the same with the control module, sorted."""
    lines = [
        _differs(name, real.variables.get(name), plain.variables.get(name))
        for name in real.variables.keys() | plain.variables.keys()
        if not is_bookkeeping(name) and real.variables.get(name) != plain.variables.get(name)
    ]
    for kind, ours, theirs in (("function", real.functions, plain.functions), ("alias", real.aliases, plain.aliases)):
        lines += [f"{kind} {name} is left behind" for name in ours.keys() - theirs.keys()]
        lines += [f"{kind} {name} is lost" for name in theirs.keys() - ours.keys()]
        lines += [f"{kind} {name} is changed" for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]]
    return sorted(lines)


def _load_result(system: ModuleSystem, load: Step, control: Step, missing: list[str]) -> CheckResult:
    if missing:
        text = "\n".join([*([load.output] if load.output else []), *missing])
        remedy = f"inspect it with {system.title}: `module show` prints its operations"
        return CheckResult("load", system.title, "failed", text, remedy, load.seconds)
    detail = f"{load.seconds * 1000:.0f} ms; a one-line module {control.seconds * 1000:.0f} ms"
    return CheckResult("load", system.title, "passed", detail, seconds=load.seconds)


def _symmetry_result(system: ModuleSystem, unload: Step, clean: Step) -> CheckResult:
    lines = leftovers(unload.state, clean.state)
    if unload.code != 0:
        lines.append(f"unload exited with status {unload.code}: {unload.output}")
    if lines:
        text = "after unload, compared with a one-line module:\n" + "\n".join(lines)
        return CheckResult(
            "symmetry", system.title, "failed", text, "report this: unloading leaves changes behind", unload.seconds
        )
    return CheckResult("symmetry", system.title, "passed", seconds=unload.seconds)


def _write_control(directory: Path, change: ops.EnvironmentChange) -> Path:
    """Write the control module, which prepends one directory to PATH, as every stack does.

    Lmod, run by root, ignores files of root that others cannot read, hence the explicit modes.
    """
    directories = (
        operation.directory
        for operation in change
        if isinstance(operation, ops.Prepend) and operation.variable == "PATH"
    )
    prepended = next(directories, str(directory))
    module = directory / CONTROL
    module.parent.mkdir(parents=True)
    module.write_text(f"#%Module1.0\nprepend-path PATH {{{prepended}}}\n", encoding="utf-8")
    for path in (directory, module.parent, module):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return directory


def _without_own(variables: Mapping[str, str], control: Path) -> dict[str, str]:
    """The loaded environment without the control module's directory on MODULEPATH."""
    result = {name: value for name, value in variables.items() if name != "_"}
    path = [directory for directory in result.get("MODULEPATH", "").split(":") if directory != str(control)]
    return {**result, "MODULEPATH": ":".join(path)}


def _flat(value: str | None) -> str:
    """A value with line breaks as spaces, since module systems cannot set them (`expose.limits` reports this)."""
    return " ".join((value or "").splitlines())


def _differs(variable: str, value: str | None, expected: str | None) -> str:
    return f"{variable} is {_shown(value)}, not {_shown(expected)}"


def _shown(value: str | None) -> str:
    return "unset" if value is None else repr(value)
