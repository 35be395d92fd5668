"""rank.sh, the script of every task: read its identity, wait for all nodes, set the environment, run the program.

A few milliseconds of bash (4.2 or newer) and no Python: the only programs it starts are mkdir and mkfifo, once per
node, and the agent. `stackyard.launch.node.step` describes how it and the agent work together.

    status 70   the launch was stopped before the program was started
    status 71   the task does not fit the plan, or not all nodes reported in time; the message gives the reason

Why it is written this way:

- ``bash -p`` ignores BASH_ENV and functions in the environment, which sites use for their module system.
- Its own variables begin with ``sy_`` and are not exported; bash chooses the numbers of descriptors, because PMI_FD may
  be any number.
- The hostname is the kernel's: HOSTNAME is often exported from the login node.
- It waits with ``read -t`` on a pipe without a writer, so that no ``sleep`` is started.
- The FIFO is opened for reading and writing, which never blocks and never raises SIGPIPE, with or without an agent.
- The program runs in the foreground: a background child of a shell ignores SIGINT. The shim traps the signals that a
  launcher forwards and does nothing, so that it survives them and reports the program's exit status; the program, in
  the same process group, has their default action.
"""

from __future__ import annotations

import shlex
import sys

from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.shim import common, programs, roles, shell, staging
from stackyard.launch.shim.gpus import gpu_text


def shim_text(step: StepPaths, file: StepFile, plan: Plan, *, python: str = "") -> str:
    """The text of rank.sh for one step.

    Args:
        python: the agent's interpreter, an absolute path valid on all nodes; empty: each node's own.
    """
    make, agent = agent_text(step, python, programs.needed(file, plan))
    parts = (
        head_text(step, file),
        common.INTERFACE,
        *common.environments(file, plan),
        _SIDECAR.format(words=_sidecar(plan)) if plan.program.sidecar else "",
        common.identity(file, plan),
        _DIRECTORY.format(make=make, agent=agent),
        _LOG[file.logs].format(logs=shlex.quote(str(step.logs))),
        common.CPUS,
        _OPEN,
        staging.FUNCTIONS if file.stage else "",
        roles.gpus_text(file) if plan.roles else gpu_text(file),
        "sy_start\n",
        staging.WAIT if file.stage else "",
        _GO,
        roles.ADDRESS if plan.roles else "",
        common.loopback(file),
        *programs.programs(plan),
        _RUN.format(code=roles.SERVED if plan.roles else ""),
    )  # fmt: skip
    return "".join(parts)


def head_text(step: StepPaths, file: StepFile, base: str = "${STACKYARD_TMP:-/tmp}") -> str:
    """The beginning of a script on a node: its functions. `base`: where the node's directory is made."""
    return _HEAD.format(
        run=shlex.quote(file.run), step=shlex.quote(str(step.root)), tasks=file.tasks,
        start_s=max(1, round(file.start_s)), base=base, directory=f"stackyard-$UID-{file.id}-$sy_host",
    )  # fmt: skip


def private_text(file: StepFile, plan: Plan) -> str:
    """The text of private.sh, which rank.sh sources: the plan's possibly secret variables."""
    if plan.roles:
        return roles.cases(shell.site_variables(role.plan.private, file.run) for role in plan.roles)
    return shell.site_variables(plan.private, file.run)


def sidecar_argv(step: StepPaths, plan: Plan) -> tuple[str, ...]:
    """The command of the sidecar, which the agent of rank 0's node runs in the environment of a rank; or empty.

    The shim sets up that environment (the stack, the container, MASTER_PORT ...) and is then replaced by the sidecar.
    """
    return (str(step.shim), "sidecar") if plan.program.sidecar else ()


_HEAD = """#!/bin/bash -p
# One task of the run {run}. Written by stackyard; `stackyard launch --dry-run` shows the plan behind it.
sy_step={step}
sy_tasks_planned={tasks}
sy_start_s={start_s} sy_uid=$UID
sy_pipe= sy_tick= sy_started=
read -r sy_host < /proc/sys/kernel/hostname
sy_base={base}/{directory} sy_dir=

sy_unfit() {{
  sy_said="stackyard: task ${{sy_task:-?}} on $sy_host: $*"
  printf '%s\\n' "$sy_said" >&2
  if [[ -n $sy_pipe ]]; then
    [[ -n $sy_started ]] || sy_start
    printf '%s\\n' "$sy_said" >> "$sy_log"
    sy_report 71
  fi
  exit 71
}}

# Report to the agent that this task has started.
sy_start() {{
  printf 'start %d %d %d %s %s\\n' "$sy_local" "$sy_task" $$ "$sy_cpus" "${{sy_gpus:--}}" >&"$sy_pipe"
  sy_started=1
}}

# Wait a hundredth of a second without starting a program.
sy_pause() {{
  if [[ -z $sy_tick ]]; then
    {{ exec {{sy_tick}}<> <(:); }} 2>/dev/null || sy_tick=none
  fi
  if [[ $sy_tick == none ]]; then sleep 0.02; else read -r -t 0.01 -u "$sy_tick"; fi
}}

# Report the exit status to the agent, and wait until the hub has it; at most 2 s.
sy_report() {{
  printf 'exit %d %d\\n' "$sy_local" "$1" >&"$sy_pipe"
  for (( sy_i = 0; sy_i < 200; sy_i++ )); do
    [[ -e $sy_dir/ack.$sy_local || ! -d $sy_dir ]] && break
    sy_pause
  done
  sy_unstaged
}}
sy_unstaged() {{ :; }}

sy_until() {{
  sy_end=$(( SECONDS + sy_start_s ))
  until "$1"; do
    (( SECONDS <= sy_end )) || return 1
    sy_pause
  done
  return 0
}}

# The directory of this node: other users may have made the first names, to stop this launch.
sy_there() {{
  for sy_i in '' .{{1..9}}; do
    sy_dir=$sy_base$sy_i
    [[ -p $sy_dir/pipe && -O $sy_dir && ! -L $sy_dir ]] && return
  done
  return 1
}}
sy_make() {{
  for sy_i in '' .{{1..9}}; do
    sy_dir=$sy_base$sy_i
    sy_text=$(mkdir -m 700 -- "$sy_dir" 2>&1) && return
    [[ -O $sy_dir && ! -L $sy_dir ]] && sy_unfit "cannot create $sy_dir: two tasks of this node have local rank 0"
    [[ -e $sy_dir || -L $sy_dir ]] || break
  done
  sy_unfit "$sy_text (set STACKYARD_TMP to another directory)"
}}
sy_answered() {{ [[ -e $sy_dir/go || -e $sy_dir/stop ]]; }}

"""


_SIDECAR = """if [[ ${{1-}} == sidecar ]]; then
  sy_task=0 sy_local=0 sy_node=0 sy_rank=0 sy_in=0 sy_nth=0 sy_dir=$STACKYARD_DIR
  sy_until sy_answered || sy_unfit "timed out after $sy_start_s s waiting for all nodes"
  [[ -e $sy_dir/stop ]] && exit 70
  set -a; . "$sy_dir/go"; set +a
  sy_environment
{words}  exec "${{sy_words[@]}}" </dev/null
fi

"""


def _sidecar(plan: Plan) -> str:
    everywhere = [wrapper for wrapper in plan.wrappers if wrapper.tasks is None]
    return shell.array("sy_words", plan.program.sidecar) + "".join(programs.wrapped(w) for w in reversed(everywhere))


def agent_text(step: StepPaths, python: str, needed: str, gates: str = "") -> tuple[str, str]:
    """Shell text that makes the node's directory, and text that becomes its agent.

    Args:
        python: as in `shim_text`.
        needed: what looks for the files of the node's programs.
        gates: more FIFOs, as words of a shell; made before the one by which the ranks find the directory.
    """
    choice = f"sy_python={shlex.quote(python)}" if python else _PYTHON.format(own=shlex.quote(sys.executable))
    look = shell.LOOK if "sy_look" in needed else ""
    agent, fallback = shlex.quote(str(step.agent)), shlex.quote(python or sys.executable)
    return _MAKE.format(look=look, needed=needed, gates=gates), _AGENT.format(
        choice=choice, agent=agent, fallback=fallback
    )


_MAKE = """  sy_lacks=
  sy_lack() {{ [[ -n $sy_lacks ]] || sy_lacks=$*; }}
{look}{needed}  sy_make
  mkfifo -m 600 -- {gates}"$sy_dir/pipe" || sy_unfit "cannot create a FIFO in $sy_dir"
"""

_AGENT = """    [[ -n ${{PMI_FD-}} && $PMI_FD != *[!0-9]* ]] && eval "exec $PMI_FD>&-"
    export STACKYARD_NODE="$sy_node" STACKYARD_DIR="$sy_dir" STACKYARD_LACKS="$sy_lacks"
    {choice}
    exec "$sy_python" -I -S {agent} {fallback} </dev/null"""

_DIRECTORY = """if (( sy_local == 0 )); then
{make}  (
{agent} >> "$sy_dir/agent.log" 2>&1
  ) &
else
  sy_until sy_there || sy_unfit "timed out after $sy_start_s s waiting for local rank 0 of this node"
fi
sy_there || sy_unfit "no private directory of this user below ${{sy_base%/*}}"

"""

_PYTHON = """for sy_python in /usr/bin/python3.{{30..6}} /usr/libexec/platform-python3.{{30..6}} {own}; do
      [[ -x $sy_python ]] && break
    done"""
"""The node's own Python, on its own disk: looked for without starting a program."""

_LOG = {
    "all": """printf -v sy_log '%s/rank-%05d.log' {logs} "$sy_task"
""",
    "node": """printf -v sy_log '%s/node-%05d.log' {logs} "$sy_node"
(( sy_task )) || sy_log={logs}/rank-00000.log
""",
    "first": """printf -v sy_log '%s/rank-%05d.log' "$sy_dir" "$sy_task"
(( sy_task )) || sy_log={logs}/rank-00000.log
""",
}
"""Where both streams of a rank go, by `StepFile.logs`."""

_OPEN = """exec {sy_pipe}<> "$sy_dir/pipe"

"""

_GO = """if ! sy_until sy_answered; then
  sy_text=
  [[ -s $sy_dir/agent.log ]] && IFS= read -r -d '' sy_text < "$sy_dir/agent.log"
  sy_unfit "timed out after $sy_start_s s waiting for all nodes${sy_text:+: ${sy_text%$'\\n'}}"
fi
if [[ -e $sy_dir/stop ]]; then
  IFS= read -r -d '' sy_text < "$sy_dir/stop"
  (( sy_local == 0 )) && printf 'stackyard: %s\\n' "${sy_text%$'\\n'}" >&2
  printf 'exit %d 70\\n' "$sy_local" >&"$sy_pipe"
  sy_unstaged
  exit 70
fi
set -a
. "$sy_dir/go"
set +a
"""


_RUN = """trap : HUP INT QUIT TERM USR1 USR2
sy_close="$sy_pipe>&-"
[[ -n $sy_tick && $sy_tick != none ]] && sy_close="$sy_close $sy_tick>&-"
eval '"${{sy_words[@]}}" </dev/null >>"$sy_log" 2>&1' "$sy_close"
sy_code=$?
sy_report "$sy_code"
{code}exit "$sy_code"
"""
