"""inside.sh, the script of a task that its launcher starts inside an image, and node.sh, of the agents beside it.

The image has a POSIX sh and need not have anything else, so inside.sh starts no program but a ``sleep`` where the agent
is late. As rank.sh does it reads its identity, waits for all nodes, sets the environment and runs the program; the
environment comes from this file, since of srun's the image's own values win, and the runtime removes and sets others.

It meets the agent in a directory of /dev/shm, which Enroot binds: node.sh makes it, with a FIFO for each task besides
the one of `launch.node.step`. ``gate.<local>`` says ``go`` or ``stop`` and later ``ack``, so that a rank waits without
polling; the agent holds it open, and a rank reads its end where the agent is gone.
"""

from __future__ import annotations

import os
import shlex

from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import Plan
from stackyard.launch.plan.runtimes.entering import HOST
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.shim import common, programs, rank_sh
from stackyard.launch.shim.gpus import gpu_text

SHARED = "/dev/shm"
"""Of the host in every image that Enroot starts; /tmp and /run are not."""


def inside_text(step: StepPaths, file: StepFile, plan: Plan) -> str:
    """The text of inside.sh for one step."""
    log = step.node_log if file.logs == "node" else step.rank_log
    name = "node" if file.logs == "node" else "rank"
    place = f"{SHARED}/stackyard-{os.getuid()}-{file.id}-"
    parts = (
        _HEAD.format(
            run=shlex.quote(file.run), step=shlex.quote(str(step.root)), tasks=file.tasks, uid=os.getuid(),
            directory=place, limit=100 * max(1, round(file.start_s)), start_s=round(file.start_s),
            first=shlex.quote(str(step.rank_log(0))), logs=shlex.quote(str(log(0).parent)), name=name,
            libraries=HOST["LD_LIBRARY_PATH"], modules=HOST["PYTHONPATH"],
            number="$sy_node" if name == "node" else "$sy_task",
        ),
        common.INTERFACE,
        *common.environments(file, plan),
        common.identity(file, plan),
        _MEET,
        common.CPUS,
        gpu_text(file),
        _GO,
        common.loopback(file),
        "sy_environment\n",
        programs.directory(next(wrapper.workdir for wrapper in plan.wrappers if wrapper.inside)),
        programs.positional(plan),
        _RUN,
    )  # fmt: skip
    return "".join(parts)


def node_text(step: StepPaths, file: StepFile, plan: Plan, *, python: str = "") -> str:
    """The text of node.sh: it makes the node's directory, looks for what the ranks need, and becomes the agent."""
    gates = "".join(f'"$sy_dir/gate.{local}" ' for local in range(file.tasks_per_node))
    make, agent = rank_sh.agent_text(step, python, programs.needed(file, plan), gates=gates)
    return f"{rank_sh.head_text(step, file, base=SHARED)}{_NODE}{make}{agent}\n"


_HEAD = """#!/bin/sh
# One task of the run {run}, inside an image. Written by stackyard.
sy_step={step} sy_tasks_planned={tasks} sy_uid={uid} sy_dir= sy_log= sy_fd=9
[ "${{PMI_FD-}}" != 9 ] || sy_fd=8
read -r sy_host < /proc/sys/kernel/hostname
# libraries and modules of the host, which come with its environment where the image has none of its own
[ "${{LD_LIBRARY_PATH-}}" != "${{{libraries}-}}" ] || unset LD_LIBRARY_PATH
[ "${{PYTHONPATH-}}" != "${{{modules}-}}" ] || unset PYTHONPATH

sy_tell() {{ printf "$@" 1<> "$sy_dir/pipe"; }}
sy_hear() {{ eval "read -r sy_line <&$sy_fd"; }}
sy_start() {{
  sy_started=1
  sy_tell 'start %d %d %d %s %s\\n' "$sy_local" "$sy_task" $$ "$sy_cpus" "${{sy_gpus:--}}"
}}
sy_started= sy_cpus=-
sy_unfit() {{
  printf 'stackyard: task %s on %s: %s\\n' "${{sy_task:-?}}" "$sy_host" "$*" >&2
  if [ -n "$sy_dir" ]; then
    [ -n "$sy_started" ] || sy_start
    printf 'stackyard: task %s on %s: %s\\n' "$sy_task" "$sy_host" "$*" >> "$sy_log"
    sy_tell 'exit %d 71\\n' "$sy_local"
    sy_hear
  fi
  exit 71
}}
# The directory that the agent of this node has made; other users may have made the first names.
sy_there() {{
  for sy_i in '' .1 .2 .3 .4 .5 .6 .7 .8 .9; do
    [ -p "{directory}$sy_host$sy_i/pipe" ] && [ -O "{directory}$sy_host$sy_i" ] || continue
    sy_found={directory}$sy_host$sy_i
    return 0
  done
  return 1
}}
sy_find() {{
  sy_tried=0
  until sy_there; do
    if sleep 0.01 2>/dev/null || sleep 1 2>/dev/null; then sy_tried=$(( sy_tried + 1 )); fi
    [ "$sy_tried" -lt {limit} ] || sy_unfit "timed out after {start_s} s waiting for the agent of this node"
  done
}}
sy_logs() {{
  sy_log={logs}/{name}-$(printf '%05d' "{number}").log
  [ "$sy_task" -ne 0 ] || sy_log={first}
}}

"""

_MEET = """sy_find
sy_logs
eval "exec $sy_fd< \\"\\$sy_found/gate.\\$sy_local\\""
sy_dir=$sy_found
"""
"""The FIFO is opened once the agent has it open, and read to its end if the agent is gone."""

_GO = """sy_start
if ! sy_hear || [ "$sy_line" != go ]; then
  sy_line='the agent of this node is gone'
  [ ! -r "$sy_dir/stop" ] || read -r sy_line < "$sy_dir/stop"
  [ "$sy_local" -ne 0 ] || printf 'stackyard: %s\\n' "$sy_line" >&2
  sy_tell 'exit %d 70\\n' "$sy_local"
  exit 70
fi
set -a
. "$sy_dir/go"
set +a
"""

_RUN = """trap : HUP INT QUIT TERM USR1 USR2
eval '"$@" </dev/null >>"$sy_log" 2>&1' "$sy_fd<&-"
sy_code=$?
sy_tell 'exit %d %d\\n' "$sy_local" "$sy_code"
sy_hear
exit "$sy_code"
"""
"""The agent answers once the hub has the exit status, for which the launcher ends the other ranks."""

_NODE = """sy_node=${SLURM_NODEID-} sy_local=0
[[ -n $sy_node ]] || sy_unfit "srun has not set SLURM_NODEID"
"""
