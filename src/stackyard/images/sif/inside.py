"""The container's startup scripts, which Apptainer runs before each of its programs.

Apptainer reads ``/.singularity.d/env/*.sh``, in the order of their names, with a shell of its own (POSIX). It first
hides all variables of the host; afterwards it restores those that the scripts did not set, and unsets those that they
set to an empty value. With ``99-base.sh`` it sets the variables of APPTAINERENV_; without that file the libraries that
it binds (CONTAINLIBS, ``--nv``, ``--rocm``) are not found, without any message. Source: github.com/apptainer/apptainer,
internal/pkg/util/fs/files/action_scripts.go.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from stackyard.core import change as ops
from stackyard.core import posix
from stackyard.images.labels import DEFAULT_PATH

DIRECTORY = ".singularity.d"
_LIBRARIES = f"/{DIRECTORY}/libs"
_BASE = f"""# puts what the runtime binds there (CONTAINLIBS, --nv, --rocm) on the library path
if [ -n "${{LD_LIBRARY_PATH-}}" ]; then
    case ":$LD_LIBRARY_PATH:" in *:{_LIBRARIES}:*) ;; *) LD_LIBRARY_PATH="$LD_LIBRARY_PATH:{_LIBRARIES}" ;; esac
else
    LD_LIBRARY_PATH="{_LIBRARIES}"
fi
export LD_LIBRARY_PATH
"""
_HOST = """# takes the value that a variable has outside, as a module would see it
_host_value() {
    case "
${__exported_env__-}" in
        *"
$1="*) ;;
        *) return 0 ;;
    esac
    _host_value="
$__exported_env__"
    _host_value="${_host_value#*"
$1="}"
    export "$1=${_host_value%%"
"*}"
}
"""
_PATH = f'[ -n "${{PATH-}}" ] || export PATH={DEFAULT_PATH}\n'
_HIDDEN = 4
"""The exit status of a container whose files are hidden, as that of an image that cannot be mounted."""
_RUN = """#!/bin/sh
[ $# -gt 0 ] || set -- /bin/sh
exec "$@"
"""


def write(
    directory: Path, env: Sequence[str], change: ops.EnvironmentChange, labels: Mapping[str, str], mark: str = ""
) -> None:
    """Write ``/.singularity.d`` of a container.

    Args:
        directory: the container's ``/``.
        env: the base's environment, as ``NAME=value``.
        mark: a file of the image; a start where it is not visible is refused, since a directory of the host hides it.
        change: the environment change of the revision.
    """
    scripts = directory / DIRECTORY / "env"
    scripts.mkdir(parents=True)
    if env:  # else the base's own script stays visible below, where it has one
        (scripts / "10-docker2singularity.sh").write_text(_of_base(env), encoding="utf-8")
    (scripts / "95-stackyard.sh").write_text(_PATH + _checked(mark) + _of_revision(change), encoding="utf-8")
    (scripts / "99-base.sh").write_text(_BASE, encoding="utf-8")
    (directory / DIRECTORY / "labels.json").write_text(
        json.dumps(dict(labels), sort_keys=True) + "\n", encoding="utf-8"
    )
    (directory / DIRECTORY / "runscript").write_text(_RUN, encoding="utf-8")
    (directory / DIRECTORY / "runscript").chmod(0o755)


def _checked(mark: str) -> str:
    if not mark:
        return ""
    place = mark.rpartition("/.stackyard/")[0]
    text = f"stackyard: a directory of the host hides {place} of this image"
    hint = f"  hint: leave out the bind mount (-B, --bind, APPTAINER_BIND) of a directory above {place}"
    return (
        f"if ! [ -e {shlex.quote(mark)} ]; then\n"
        f"    printf '%s\\n' {shlex.quote(text)} {shlex.quote(hint)} >&2\n    exit {_HIDDEN}\nfi\n"
    )


def _of_revision(change: ops.EnvironmentChange) -> str:
    """The script with the same effect as loading the module: the user's values are kept or extended."""
    names: dict[str, None] = {}
    for operation in change:
        if isinstance(operation, ops.Default | ops.Flags | ops.Join | ops.UserPath):
            names |= dict.fromkeys((operation.variable, *getattr(operation, "bases", ())))
    own = [_HOST, *(f"_host_value {name}" for name in names), "unset _host_value"] if names else []
    return "\n".join([*own, *ops.rendered(change, RULES), ""])


def left_out_of(change: ops.EnvironmentChange) -> list[str]:
    """Sentences about parts of a change that a container cannot have: functions and aliases end with the script."""
    kinds = {ops.Function: "shell function", ops.Alias: "alias"}
    return [
        f"the {kinds[type(operation)]} {operation.name} is not set in a container"
        for operation in change
        if isinstance(operation, ops.Function | ops.Alias)
    ]


def _of_base(env: Sequence[str]) -> str:
    """The script that sets the image's variables; values from the image's own scripts are kept."""
    lines = []
    for line in env:
        name, _, value = line.partition("=")
        if name.isidentifier() and name.isascii():
            word = shlex.quote(value)
            guard = "" if name == "PATH" else f'[ -n "${{{name}+x}}" ] || '
            lines.append(f"{guard}export {name}={word}")
    return "\n".join([*lines, ""])


def _set_restorable(operation: ops.SetRestorable) -> list[str]:
    if operation.value is None:  # empty and not exported: else the host's would be given back
        return [f"unset {operation.variable}; {operation.variable}="]
    return [posix.export(operation.variable, operation.value)]


RULES: ops.Rules = {**posix.RULES, ops.SetRestorable: _set_restorable, ops.SaveValue: ops.left_out}
"""As everywhere else, but for what the runtime does afterwards; nothing is ever unloaded in a container."""
