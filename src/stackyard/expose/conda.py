"""The ``conda`` command for users, without sourcing anything at load: static shell functions with absolute paths.

The functions use conda's own protocol (``conda shell.posix activate NAME`` prints commands that the shell evaluates).
Each shell has its own body: ``sh`` for bash and zsh, ``fish``, and for csh an alias of the script that conda ships.
"""

from __future__ import annotations

import shlex

from stackyard.core.change import Function, OnUnload, Operation, SaveValue, SetRestorable
from stackyard.yard.revision.record import BuildRecord

LEVEL = "__STACKYARD_CONDA_LEVEL"

_SH_FUNCTION = """case "${1-}" in
    activate|deactivate)
        __stackyard_text="$(@ASK_SH@ "$@"@TAIL_SH@)" || return
        eval "$__stackyard_text"
        unset __stackyard_text
        hash -r ;;
    install|update|upgrade|remove|uninstall)
        @PROGRAM@ "$@" || return
        if [ "${CONDA_SHLVL:-0}" -gt 0 ]; then
            __stackyard_text="$(@ASK_SH@ reactivate@TAIL_SH@)" || return
            eval "$__stackyard_text"
            unset __stackyard_text
        fi
        hash -r ;;
    *)
        @PROGRAM@ "$@" ;;
esac"""

_FISH_FUNCTION = """switch "$argv[1]"
    case activate deactivate
        eval (@ASK_FISH@ $argv@TAIL_FISH@ | string collect)
    case install update upgrade remove uninstall
        @PROGRAM@ $argv; or return
        if set -q CONDA_SHLVL; and test "$CONDA_SHLVL" -gt 0
            eval (@ASK_FISH@ reactivate@TAIL_FISH@ | string collect)
        end
    case '*'
        @PROGRAM@ $argv
end"""

# What conda's own shell file defines besides `conda`; users' scripts call some of it.
_SH_PARTS = {
    "__conda_activate": """__stackyard_text="$(@ASK_SH@ "$@"@TAIL_SH@)" || return
eval "$__stackyard_text"
unset __stackyard_text
hash -r""",
    "__conda_reactivate": """__stackyard_text="$(@ASK_SH@ reactivate@TAIL_SH@)" || return
eval "$__stackyard_text"
unset __stackyard_text
hash -r""",
    "__conda_hashr": "hash -r",
}

# At unload the shell has already lost the functions and the stack's variables. The variables that conda's own output
# would leave behind (CONDA_EXE and others) get their present values again. A level that does not fall ends the loop.
_SH_UNLOAD = """__stackyard_floor="${@LEVEL@:-0}"
if [ "${CONDA_SHLVL:-0}" -gt "$__stackyard_floor" ]; then
    __stackyard_exe="${CONDA_EXE-}" __stackyard_python="${CONDA_PYTHON_EXE-}"
    while [ "${CONDA_SHLVL:-0}" -gt "$__stackyard_floor" ]; do
        __stackyard_level="$CONDA_SHLVL"
        __stackyard_text="$(@ASK_SH@ deactivate@TAIL_SH@)" || break
        eval "$__stackyard_text"
        [ "${CONDA_SHLVL:-0}" -lt "$__stackyard_level" ] || break
    done
    unset _CE_M _CE_CONDA CONDA_EXE CONDA_PYTHON_EXE
    if [ -n "$__stackyard_exe" ]; then export CONDA_EXE="$__stackyard_exe"; fi
    if [ -n "$__stackyard_python" ]; then export CONDA_PYTHON_EXE="$__stackyard_python"; fi
    unset __stackyard_level __stackyard_text __stackyard_exe __stackyard_python
fi
if [ -z "$@LEVEL@" ] && [ "${CONDA_SHLVL-}" = 0 ]; then unset CONDA_SHLVL; fi
unset __stackyard_floor @LEVEL@"""

_FISH_UNLOAD = """set -l floor 0; test -n "$@LEVEL@"; and set floor $@LEVEL@
set -l exe "$CONDA_EXE"; set -l python "$CONDA_PYTHON_EXE"; set -l touched 0
while set -q CONDA_SHLVL; and test "$CONDA_SHLVL" -gt $floor
    set -l level $CONDA_SHLVL
    set touched 1
    eval (@ASK_FISH@ deactivate@TAIL_FISH@ | string collect)
    if not test "$CONDA_SHLVL" -lt $level; break; end
end
if test $touched = 1
    set -e _CE_M; set -e _CE_CONDA; set -e CONDA_EXE; set -e CONDA_PYTHON_EXE
    test -n "$exe"; and set -gx CONDA_EXE "$exe"
    test -n "$python"; and set -gx CONDA_PYTHON_EXE "$python"
end
if test -z "$@LEVEL@"; and test "$CONDA_SHLVL" = 0; set -e CONDA_SHLVL; end
set -e @LEVEL@"""


def conda_operations(record: BuildRecord) -> list[Operation]:
    """The operations that a stack with conda adds: CONDA_EXE, the functions, and the deactivation at unload.

    mamba next to conda uses conda's protocol; mamba alone is mamba 2, which has its own.
    """
    names = {p.name for p in record.packages if p.kind == "conda"} & {"conda", "mamba"}
    alone = names == {"mamba"}
    words = _dialect(record, alone)
    operations: list[Operation] = [SaveValue(LEVEL, "CONDA_SHLVL")]
    if alone:
        operations += [
            SetRestorable("MAMBA_EXE", str(record.payload.program("mamba"))),
            SetRestorable("MAMBA_ROOT_PREFIX", record.prefix),
        ]
    else:
        operations += [
            SetRestorable("CONDA_EXE", str(record.payload.program("conda"))),
            SetRestorable("CONDA_PYTHON_EXE", str(record.payload.python)),
        ]
    for name in sorted(names or {"conda"}):
        operations.append(Function(name, _bodies(record, name, words)))
    if not alone:
        operations += [Function(name, {"sh": _fill(body, words)}) for name, body in _SH_PARTS.items()]
    unload = {"sh": _fill(_SH_UNLOAD, words), "fish": _fill(_FISH_UNLOAD, words)}
    operations.append(OnUnload(unload, carry=(LEVEL,)))
    return operations


def _dialect(record: BuildRecord, alone: bool) -> dict[str, str]:
    """The syntax of requesting a shell's commands: ``conda shell.posix CMD`` or ``mamba shell CMD --shell posix``."""
    ask = _quote(record, "mamba" if alone else "conda")
    words = {"ASK_SH": f"{ask} shell.posix", "TAIL_SH": "", "ASK_FISH": f"{ask} shell.fish", "TAIL_FISH": ""}
    if alone:
        words = dict.fromkeys(("ASK_SH", "ASK_FISH"), f"{ask} shell")
        words |= {"TAIL_SH": " --shell posix", "TAIL_FISH": " --shell fish"}
    return {**words, "LEVEL": LEVEL}


def _bodies(record: BuildRecord, name: str, words: dict[str, str]) -> dict[str, str]:
    own = {**words, "PROGRAM": _quote(record, name)}
    bodies = {"sh": _fill(_SH_FUNCTION, own), "fish": _fill(_FISH_FUNCTION, own)}
    script = f"{record.prefix}/etc/profile.d/conda.csh"
    if name == "conda" and shlex.quote(script) == script:
        bodies["csh"] = f"source {script} $*"
    return bodies


def _quote(record: BuildRecord, name: str) -> str:
    return shlex.quote(str(record.payload.program(name)))


def _fill(template: str, words: dict[str, str]) -> str:
    for key, value in words.items():
        template = template.replace(f"@{key}@", value)
    return template
