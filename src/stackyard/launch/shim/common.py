"""The parts of rank.sh and inside.sh that are the same, in POSIX sh: identity, its checks, the environment of a rank.

Nothing here starts a program, so that a rank in an image needs no more than a shell.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from stackyard.core import posix
from stackyard.host.machine.daemons import PALS_DIRECTORY, PMIX_DIRECTORY, SLURM_DIRECTORIES
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import Plan
from stackyard.launch.shim import roles, shell
from stackyard.launch.shim.identity import FAMILIES, identity_text, names_of

INTERFACE = """# The interface of the route with the longest mask to an IPv4 address; both are little-endian there.
sy_interface() {
  STACKYARD_INTERFACE=
  case $1 in
    *[!0-9.]*) return 0 ;;
    127.*) STACKYARD_INTERFACE=lo && return 0 ;;
    *.*.*.*) ;;
    *) return 0 ;;
  esac
  sy_ifs=$IFS IFS=.
  set -- $1
  IFS=$sy_ifs
  sy_address=$(( $1 | $2 << 8 | $3 << 16 | $4 << 24 )) sy_mask=-1
  while read -r sy_if sy_to sy_x sy_x sy_x sy_x sy_x sy_bits sy_x; do
    [ "$sy_to" != Destination ] || continue
    if [ $(( (sy_address & 0x$sy_bits) == 0x$sy_to && 0x$sy_bits > sy_mask )) -eq 1 ]; then
      sy_mask=$(( 0x$sy_bits )) STACKYARD_INTERFACE=$sy_if
    fi
  done < /proc/net/route
}

"""

CPUS = """sy_cpus=-
while read -r sy_line sy_x; do
  [ "$sy_line" != Cpus_allowed_list: ] || sy_cpus=$sy_x
done < /proc/self/status
"""
"""The hardware threads that the task may use."""


def identity(file: StepFile, plan: Plan) -> str:
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
[ -n "$sy_task" ] && [ -n "$sy_tasks" ] && [ -n "$sy_local" ] ||
  sy_unfit "$sy_starter has not set the identity of this task: missing one of {names}"
case $sy_task$sy_tasks$sy_local$sy_node in
  *[!0-9]*) sy_unfit "{names} are not numbers: '$sy_task' '$sy_tasks' '$sy_local'" ;;
esac
if [ "$sy_tasks" -eq 1 ] && [ "$sy_tasks_planned" -gt 1 ]; then
  sy_unfit "PMI mismatch: every task sees world size 1, expected $sy_tasks_planned. $sy_starter provides another" \\
    "kind of PMI than was requested, or belongs to another MPI"
fi
[ "$sy_tasks" -eq "$sy_tasks_planned" ] || sy_unfit "world size mismatch: $sy_tasks, expected $sy_tasks_planned"
{place}
if [ "$sy_slot" -ne "$sy_local" ] || [ "${{sy_node:-$sy_at}}" -ne "$sy_at" ]; then
  sy_unfit "placement mismatch: $sy_starter started it as local rank $sy_local of node ${{sy_node:-(unknown)}}," \\
    "expected local rank $sy_slot of node $sy_at: tasks are distributed to nodes in another order than planned"
fi
sy_node=$sy_at
"""


def environments(file: StepFile, plan: Plan) -> list[str]:
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
        '  case ${MASTER_ADDR-} in *:*) STACKYARD_MASTER="[$MASTER_ADDR]:${MASTER_PORT-}" ;; esac',
        f"  export OMP_NUM_THREADS={plan.layout.threads}",
        '  export USER="${USER:-${LOGNAME:-$sy_uid}}"',
        '  export STACKYARD_WIRE_1="$sy_step" STACKYARD_WIRE_2="$sy_step"',
        f'  [ ! -d "${{{PMIX_DIRECTORY}-}}" ] || STACKYARD_WIRE_1=${PMIX_DIRECTORY}',
        f"  for sy_line in {SLURM_DIRECTORIES} ${{{PALS_DIRECTORY}-}}; do",
        '    [ ! -d "$sy_line" ] || STACKYARD_WIRE_2=$sy_line',
        "  done",
        '  export STACKYARD_WIRED="$sy_step"',
        '  for sy_line in "$STACKYARD_WIRE_1" "$STACKYARD_WIRE_2"; do',
        '    [ "$sy_line" = "$sy_step" ] || STACKYARD_WIRED=$STACKYARD_WIRED,$sy_line',
        "  done",
        *(["  STACKYARD_WIRED=$STACKYARD_WIRED,$sy_dir  # the probe, for a program in an image"] if file.probe else []),
        '  [ -n "${LC_ALL-}${LC_CTYPE-}${LANG-}" ] || export LANG=C.UTF-8',
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
        'if [ "${STACKYARD_PROBE-}" != off ]; then\n'
        f'  export PYTHONPATH="$sy_dir/probe${{PYTHONPATH:+:$PYTHONPATH}}"\n{signal}fi\n'
    )


_PRIVATE = """. "$sy_step/private.sh" || sy_unfit "cannot read $sy_step/private.sh, which has variables of this job"
"""
"""Values that may be secret are not in this script."""

_GLOO = """[ -z "$STACKYARD_INTERFACE" ] || export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-$STACKYARD_INTERFACE}"
"""
"""Gloo otherwise resolves the hostname, which is a loopback address on many systems."""


def loopback(file: StepFile) -> str:
    """With several nodes, reject a MASTER_ADDR that means "this machine" on each of them."""
    if file.nodes == 1:
        return ""
    return """case ${MASTER_ADDR-} in
  '' | localhost | localhost.* | 127.* | ::1 | 0.0.0.0)
    sy_unfit "MASTER_ADDR is '${MASTER_ADDR-}': other nodes cannot reach rank 0 there. Its hostname resolves to the" \\
      "loopback interface; set launch.interface in site.yaml to the interface that connects the nodes" ;;
esac
"""
