"""The part of rank.sh that starts the program: directory, environment, command, and wrappers."""

from __future__ import annotations

import shlex

from stackyard.host.machine.ranges import runs
from stackyard.images.bindings.charliecloud import linked
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import Plan, Wrapper
from stackyard.launch.shim import roles, shell


def directory(cwd: str) -> str:
    """Enter the working directory."""
    if not cwd:
        return ""
    return f'cd -- {shlex.quote(cwd)} || sy_unfit "cannot enter "{shlex.quote(cwd)}": does it exist on all nodes?"\n'


def needed(file: StepFile, plan: Plan) -> str:
    """Shell text that reports missing files of this node's programs to its agent, before any program waits for them."""
    if not plan.roles:
        return _needed(plan)
    texts = [_needed(role.plan) for role in plan.roles]
    cases = (f'{index})\n{"".join(texts[role] for role in dict.fromkeys(block.roles))};;\n'
            for index, block in enumerate(file.blocks))  # fmt: skip
    return f"case $sy_block in\n{''.join(cases)}esac\n"


def _needed(plan: Plan) -> str:
    cwd = shlex.quote(plan.cwd)
    lack = f'"cannot enter "{cwd}": it does not exist on this node; start from a directory that all nodes have"'
    directory = f"[[ -d {cwd} ]] || sy_lack {lack}\n" if plan.cwd else ""
    shared = (*plan.shared, *(path for wrapper in plan.wrappers for path in wrapper.shared))
    return directory + shell.needed((path for wrapper in plan.wrappers for path in wrapper.needed), shared)


def programs(plan: Plan) -> list[str]:
    """The environment, the directory and the command of a rank; with several roles for each role."""
    if not plan.roles:
        return ["sy_environment\n", directory(plan.cwd), _program(plan)]
    return [
        roles.EXPORTS, "sy_environment_$sy_role\n",
        roles.cases(directory(role.plan.cwd) + _program(role.plan) for role in plan.roles),
    ]  # fmt: skip


def _program(plan: Plan) -> str:
    text = shell.array("sy_words", plan.program.argv)
    return text + "".join(wrapped(wrapper) for wrapper in reversed(plan.wrappers))


def positional(plan: Plan) -> str:
    """The command of a rank as the positional parameters of a POSIX sh, with its wrappers."""
    text = shell.parameters(plan.program.argv)
    for wrapper in reversed(plan.wrappers):
        part = (_FILE_POSIX if wrapper.directories else "") + (_OWN_PATH if wrapper.inside else "")
        part += shell.exports(wrapper.variables) + (shell.parameters(wrapper.argv, '"$@"') if wrapper.argv else "")
        if wrapper.tasks is None:
            text += part
        elif wrapper.tasks:
            text += f"if [ $(( {_is_one_of(wrapper.tasks)} )) -eq 1 ]; then\n{part}fi\n"
    return text


_OWN_PATH = """export STACKYARD_LIBRARY_PATH="${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"""
_FILE_POSIX = """STACKYARD_RANK_FILE=rank-$(printf %05d "$sy_task") && export STACKYARD_RANK_FILE
"""
_FILE = """printf -v STACKYARD_RANK_FILE 'rank-%05d' "$sy_task"; export STACKYARD_RANK_FILE
"""
"""The name of a rank's file of a profiler, without its end."""


def wrapped(wrapper: Wrapper) -> str:
    """Put a wrapper in front of the command so far, for its tasks."""
    text = _FILE if wrapper.directories else ""
    text += shell.exports(wrapper.variables) + shell.lists(wrapper.lists)
    words, tail = wrapper.argv, '"${sy_words[@]}"'
    if wrapper.linked:  # after all other binds, which may hide the node's directory; before the image and the --
        words, last = words[:-2], words[-2:]
        text += linked(wrapper.linked) + shell.array("sy_words", last, tail)
        tail = f'"${{sy_binds[@]}}" {tail}'
    text += shell.array("sy_words", words, tail)
    if wrapper.tasks is None:
        return text
    if not wrapper.tasks:
        return ""
    return f"if (( {_is_one_of(wrapper.tasks)} )); then\n{text}fi\n"


def _is_one_of(tasks: tuple[int, ...]) -> str:
    """The shell condition for these tasks, with one term for each run of numbers."""
    return " || ".join(f"sy_rank >= {first} && sy_rank <= {last}" for first, last in runs(tasks))
