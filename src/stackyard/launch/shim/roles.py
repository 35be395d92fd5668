"""The parts of rank.sh for a job with several roles: the role of a task, and its place within the role.

All tasks start the same rank.sh, so that one launch line starts all roles. The number of a task tells its node and its
place there (`StepFile.blocks`), and these its role. Within a role RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and so on
are those of a job that has only this role; STACKYARD_TASK is the rank in MPI_COMM_WORLD, which all roles share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stackyard.launch.node.step import StepFile
from stackyard.launch.shim.gpus import gpu_text

ALONE = "sy_size={tasks} sy_each={each} sy_nodes={nodes}\n\n"
"""The place of a task in a job with one program is that within its role."""

ADDRESS = """sy_line=STACKYARD_ADDR_$sy_upper MASTER_ADDR=${!sy_line}
sy_line=STACKYARD_PORT_$sy_upper MASTER_PORT=${!sy_line}
for (( sy_i = 1; ; sy_i++ )); do
  sy_line=STACKYARD_PORT_${sy_upper}_$sy_i
  [[ -n ${!sy_line-} ]] || break
  export STACKYARD_PORT_$sy_i="${!sy_line}"
done
export MASTER_ADDR MASTER_PORT
"""
"""The address and the ports of the first node of the task's own role."""

EXPORTS = """export STACKYARD_ROLE=$sy_name STACKYARD_ROLE_INDEX=$sy_role STACKYARD_ROLE_RANK=$sy_rank
export STACKYARD_ROLE_SIZE=$sy_size "${sy_sizes[@]}"
"""

SERVED = """[[ -n $sy_serves && $sy_code == 143 ]] && sy_code=0
"""
"""A role that serves is ended with SIGTERM: to the launcher no failure, for which it would kill other ranks."""


def cases(texts: Iterable[str]) -> str:
    """One text for each role; a task runs that of its own."""
    return "case $sy_role in\n" + "".join(f"{index})\n{text};;\n" for index, text in enumerate(texts)) + "esac\n"


def place_text(file: StepFile) -> str:
    """Shell text that finds the node of a task, its local number there, and its block."""
    lines, task, node = [], 0, 0
    for index, block in enumerate(file.blocks):
        per_node, last = len(block.slots), task + block.nodes * len(block.slots)
        test = f"{'el' if index else ''}if (( sy_task < {last} )); then"
        at = f"sy_at=$(( {node} + (sy_task - {task}) / {per_node} )) sy_slot=$(( (sy_task - {task}) % {per_node} ))"
        lines.append(f"{test} {at} sy_block={index}")
        task, node = last, node + block.nodes
    return "\n".join((*lines, "fi"))


def own_text(file: StepFile) -> str:
    """Shell text that finds the role of a task and its place within the role."""
    blocks = []
    for index, block in enumerate(file.blocks):
        within = [block.roles[:local].count(role) for local, role in enumerate(block.roles)]
        blocks.append(f"{index}) sy_roles=({_words(block.roles)}) sy_ins=({_words(within)}) ;;")
    own = [
        f"{index}) sy_name={role.name} sy_upper={role.name.upper()} sy_each={role.each} sy_first={role.first} "
        f"sy_nodes={role.nodes} sy_size={role.tasks} sy_serves={'1' if role.serves else ''} ;;"
        for index, role in enumerate(file.roles)
    ]
    sizes = _words(f"STACKYARD_SIZE_{role.name.upper()}={role.tasks}" for role in file.roles)
    return "\n".join((
        "case $sy_block in", *blocks, "esac",
        "sy_role=${sy_roles[sy_slot]} sy_in=${sy_ins[sy_slot]}",
        "case $sy_role in", *own, "esac",
        "sy_nth=$(( sy_node - sy_first )) sy_rank=$(( (sy_node - sy_first) * sy_each + sy_in ))",
        f"sy_sizes=({sizes})", "", "",
    ))  # fmt: skip


def _words(items: Iterable[object]) -> str:
    return " ".join(map(str, items))


def gpus_text(file: StepFile) -> str:
    """Shell text that selects the visible GPUs of a task, by its role, among those of the node's tasks."""
    lines = ["case $sy_block.$sy_role in\n"]
    for index, block in enumerate(file.blocks):
        for number in dict.fromkeys(block.roles):
            visibility = file.roles[number].gpu_visibility
            own = [slot for slot, role in zip(block.slots, block.roles, strict=True) if role == number]
            shown = {gpu for slot in own for gpu in slot.gpus}
            text = gpu_text(replace(file, slots=block.slots, gpu_visibility=visibility), shown)
            lines.append(f"{index}.{number})\n{text};;\n")
    return "".join((*lines, "esac\n"))
