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
from pathlib import Path

from stackyard.core import posix
from stackyard.host.machine.daemons import PALS_DIRECTORY, PMIX_DIRECTORY, SLURM_DIRECTORIES
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.shim import programs, roles, shell, staging
from stackyard.launch.shim.gpus import gpu_text
from stackyard.launch.shim.identity import FAMILIES, identity_text, names_of


def shim_text(step: StepPaths, file: StepFile, plan: Plan, *, python: str = "") -> str:
    """The text of rank.sh for one step.

    Args:
        python: the agent's interpreter, an absolute path valid on all nodes; empty: each node's own.
    """
    parts = (
        _HEAD.format(run=shlex.quote(file.run), step=shlex.quote(str(step.root)), tasks=file.tasks,
                     start_s=max(1, round(file.start_s)), directory=f"stackyard-$UID-{file.id}-$sy_host"),
        *_environments(file, plan),
        _SIDECAR.format(words=_sidecar(plan)) if plan.program.sidecar else "",
        _identity(file, plan),
        _directory(step, python, programs.needed(file, plan)),
        _LOG[file.logs].format(logs=shlex.quote(str(step.logs))),
        _OPEN,
        staging.FUNCTIONS if file.stage else "",
        roles.gpus_text(file) if plan.roles else gpu_text(file),
        "sy_start\n",
        staging.WAIT if file.stage else "",
        _GO,
        roles.ADDRESS if plan.roles else "",
        _loopback(file),
        *programs.programs(plan),
        _RUN.format(code=roles.SERVED if plan.roles else ""),
    )  # fmt: skip
    return "".join(parts)


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
sy_start_s={start_s}
sy_pipe= sy_tick= sy_started=
read -r sy_host < /proc/sys/kernel/hostname
sy_base=${{STACKYARD_TMP:-/tmp}}/{directory} sy_dir=

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

# The interface that leads to an IPv4 address: the route with the longest mask; both are little-endian there.
sy_interface() {{
  STACKYARD_INTERFACE=
  [[ $1 == *[!0-9.]* || $1 != *.*.*.* ]] && return
  [[ $1 == 127.* ]] && STACKYARD_INTERFACE=lo && return
  sy_octets=(${{1//./ }}) sy_mask=-1
  sy_address=$(( sy_octets[0] | sy_octets[1] << 8 | sy_octets[2] << 16 | sy_octets[3] << 24 ))
  mapfile -t sy_lines < /proc/net/route
  for sy_line in "${{sy_lines[@]:1}}"; do
    sy_route=($sy_line)
    if (( (sy_address & 0x${{sy_route[7]}}) == 0x${{sy_route[1]}} && 0x${{sy_route[7]}} > sy_mask )); then
      sy_mask=$(( 0x${{sy_route[7]}} )) STACKYARD_INTERFACE=${{sy_route[0]}}
    fi
  done
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


def _environments(file: StepFile, plan: Plan) -> list[str]:
    """The function that sets the environment of a rank; with several roles one for each."""
    if plan.roles:
        return [_environment(file, role.plan, f"sy_environment_{i}") for i, role in enumerate(plan.roles)]
    return [roles.ALONE.format(tasks=file.tasks, each=file.tasks_per_node, nodes=file.nodes), _environment(file, plan)]


def _environment(file: StepFile, plan: Plan, name: str = "sy_environment") -> str:
    """The function that sets the environment of a rank: identity, stack, the plan's variables, the backend's."""
    several = (plan.program if file.roles else file).ranks_per_task > 1
    identity = {
        "RANK": "$sy_rank", "WORLD_SIZE": "$sy_size", "LOCAL_RANK": "$sy_in",
        "LOCAL_WORLD_SIZE": "$sy_each", "NODE_RANK": "$sy_nth", "GROUP_RANK": "$sy_nth",
    }  # fmt: skip
    if several:
        identity = {"NODE_RANK": "$sy_nth", "GROUP_RANK": "$sy_nth"}
    lines = [f'  export {name}="{value}"' for name, value in identity.items()]
    if several:
        lines.append("  unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE")
    lines += [
        '  export STACKYARD_TASK="$sy_task" STACKYARD_LOCAL_TASK="$sy_local" STACKYARD_NODE="$sy_node"',
        f'  export STACKYARD_TASKS={file.tasks} STACKYARD_NODES="$sy_nodes"',
        f"  {posix.export('STACKYARD_RUN', file.run)}",
        f"  export STACKYARD_ATTEMPT={file.attempt}",
        '  export STACKYARD_STEP="$sy_step" STACKYARD_HOST="$sy_host" STACKYARD_DIR="$sy_dir"',
        '  sy_interface "${MASTER_ADDR-}"; export STACKYARD_INTERFACE',
        '  export STACKYARD_MASTER="${MASTER_ADDR-}:${MASTER_PORT-}"',
        '  [[ ${MASTER_ADDR-} != *:* ]] || STACKYARD_MASTER="[$MASTER_ADDR]:${MASTER_PORT-}"',
        f"  export OMP_NUM_THREADS={plan.layout.threads}",
        '  export USER="${USER:-${LOGNAME:-$UID}}"',
        '  export STACKYARD_WIRE_1="$sy_step" STACKYARD_WIRE_2="$sy_step"',
        f"  [[ -d ${{{PMIX_DIRECTORY}-}} ]] && STACKYARD_WIRE_1=${PMIX_DIRECTORY}",
        f"  for sy_line in {SLURM_DIRECTORIES} ${{{PALS_DIRECTORY}-}}; do",
        "    [[ -d $sy_line ]] && STACKYARD_WIRE_2=$sy_line",
        "  done",
        '  export STACKYARD_WIRED="$sy_step"',
        '  for sy_line in "$STACKYARD_WIRE_1" "$STACKYARD_WIRE_2"; do',
        '    [[ $sy_line == "$sy_step" ]] || STACKYARD_WIRED+=,$sy_line',
        "  done",
        *(['  STACKYARD_WIRED+=,"$sy_dir"  # the probe, for a program in an image'] if file.probe else []),
        "  [[ -n ${LC_ALL-}${LC_CTYPE-}${LANG-} ]] || export LANG=C.UTF-8",
    ]
    return "\n".join(
        (f"{name}() {{", *lines, posix.change_text(plan.change)
         + shell.site_variables(plan.variables, file.run) + (_PRIVATE if plan.private else "") + _GLOO
         + shell.exports(plan.program.variables) + _probe(file) + "}\n\n")
    )  # fmt: skip


def _probe(file: StepFile) -> str:
    """The variables of the probe; its directory is first, whatever else is on PYTHONPATH."""
    if not file.probe:
        return ""
    signal = f"  export STACKYARD_PROBE_SIGNAL={file.probe_signal}\n" if file.probe_signal else ""
    return (
        "if [[ ${STACKYARD_PROBE-} != off ]]; then\n"
        f'  export PYTHONPATH="$sy_dir/probe${{PYTHONPATH:+:$PYTHONPATH}}"\n{signal}fi\n'
    )


_PRIVATE = """. "$sy_step/private.sh" || sy_unfit "cannot read $sy_step/private.sh, which has variables of this job"
"""
"""Values that may be secret are not in this script."""

_GLOO = """[[ -z $STACKYARD_INTERFACE || -n ${GLOO_SOCKET_IFNAME-} ]] || export GLOO_SOCKET_IFNAME=$STACKYARD_INTERFACE
"""
"""Gloo otherwise resolves the hostname, which is a loopback address on many systems."""

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


def _identity(file: StepFile, plan: Plan) -> str:
    """Read the identity of the task from the variables of the plan's launcher, and compare it with the plan."""
    family = plan.line.family
    starter = plan.line.words[0] if plan.line.words else family
    of_rank = plan.line.ranks or FAMILIES[family]
    names = " ".join(names_of(of_rank))
    own = "sy_rank=$sy_task sy_in=$sy_local sy_nth=$sy_node\n\n"
    if plan.roles:
        place, own = roles.place_text(file), roles.own_text(file)
    elif file.distribution == "cyclic":
        place = f"sy_at=$(( sy_task % {file.nodes} )) sy_slot=$(( sy_task / {file.nodes} ))"
    else:
        place = f"sy_at=$(( sy_task / {file.tasks_per_node} )) sy_slot=$(( sy_task % {file.tasks_per_node} ))"
    checks = _CHECKS.format(place=place, names=names, starter=shlex.quote(Path(starter).name))
    return identity_text(of_rank, "sy_") + checks + own


_CHECKS = """sy_starter={starter}
[[ -n $sy_task && -n $sy_tasks && -n $sy_local ]] ||
  sy_unfit "$sy_starter has not set the identity of this task: missing one of {names}"
[[ $sy_task$sy_tasks$sy_local$sy_node == *[!0-9]* ]] &&
  sy_unfit "{names} are not numbers: '$sy_task' '$sy_tasks' '$sy_local'"
if (( sy_tasks == 1 && sy_tasks_planned > 1 )); then
  sy_unfit "PMI mismatch: every task sees world size 1, expected $sy_tasks_planned. $sy_starter provides another" \\
    "kind of PMI than was requested, or belongs to another MPI"
fi
(( sy_tasks == sy_tasks_planned )) || sy_unfit "world size mismatch: $sy_tasks, expected $sy_tasks_planned"
{place}
if (( sy_slot != sy_local )) || [[ -n $sy_node && $sy_node != "$sy_at" ]]; then
  sy_unfit "placement mismatch: $sy_starter started it as local rank $sy_local of node ${{sy_node:-(unknown)}}," \\
    "expected local rank $sy_slot of node $sy_at: tasks are distributed to nodes in another order than planned"
fi
sy_node=$sy_at
"""


def _directory(step: StepPaths, python: str, needed: str) -> str:
    choice = f"sy_python={shlex.quote(python)}" if python else _PYTHON.format(own=shlex.quote(sys.executable))
    return _DIRECTORY.format(
        look=shell.LOOK if "sy_look" in needed else "", needed=needed, choice=choice, logs=shlex.quote(str(step.logs)),
        agent=shlex.quote(str(step.agent)), fallback=shlex.quote(python or sys.executable),
    )  # fmt: skip


_DIRECTORY = """if (( sy_local == 0 )); then
  sy_lacks=
  sy_lack() {{ [[ -n $sy_lacks ]] || sy_lacks=$*; }}
{look}{needed}  sy_make
  mkfifo -m 600 -- "$sy_dir/pipe" || sy_unfit "cannot create a FIFO in $sy_dir"
  (
    [[ -n ${{PMI_FD-}} && $PMI_FD != *[!0-9]* ]] && eval "exec $PMI_FD>&-"
    export STACKYARD_NODE="$sy_node" STACKYARD_DIR="$sy_dir" STACKYARD_LACKS="$sy_lacks"
    {choice}
    exec "$sy_python" -I -S {agent} {fallback} </dev/null >> "$sy_dir/agent.log" 2>&1
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

_OPEN = """sy_cpus=-
mapfile -t sy_lines < /proc/self/status
for sy_line in "${sy_lines[@]}"; do
  [[ $sy_line == Cpus_allowed_list:* ]] && sy_cpus=${sy_line##*[[:blank:]]}
done
exec {sy_pipe}<> "$sy_dir/pipe"

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


def _loopback(file: StepFile) -> str:
    """With several nodes, reject a MASTER_ADDR that means "this machine" on each of them."""
    if file.nodes == 1:
        return ""
    return """case ${MASTER_ADDR-} in
  '' | localhost | localhost.* | 127.* | ::1 | 0.0.0.0)
    sy_unfit "MASTER_ADDR is '${MASTER_ADDR-}': other nodes cannot reach rank 0 there. Its hostname resolves to the" \\
      "loopback interface; set launch.interface in site.yaml to the interface that connects the nodes" ;;
esac
"""


_RUN = """trap : HUP INT QUIT TERM USR1 USR2
sy_close="$sy_pipe>&-"
[[ -n $sy_tick && $sy_tick != none ]] && sy_close="$sy_close $sy_tick>&-"
eval '"${{sy_words[@]}}" </dev/null >>"$sy_log" 2>&1' "$sy_close"
sy_code=$?
sy_report "$sy_code"
{code}exit "$sy_code"
"""
