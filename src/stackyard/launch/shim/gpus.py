"""The GPUs visible to a rank, as shell text of rank.sh: the plan's policy applied to the launcher's assignment.

A program that calls ``set_device(LOCAL_RANK)`` must get its own, nearest GPU; a launcher that shows each task only one
GPU makes that index invalid (``invalid device ordinal``). So:

own     the slot's own GPUs, chosen among those assigned; unchanged where the launcher has assigned exactly as many
all     what the launcher has assigned, or all, in the order of local ranks: LOCAL_RANK is the index of the rank's own

STACKYARD_DEVICE is the index of the rank's (first) own GPU among those that it sees: 0 where it sees only its own. Any
other number of visible GPUs is rejected with status 71 before the program starts.
"""

from __future__ import annotations

from stackyard.launch.node.step import StepFile

VISIBILITY = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}
"""CUDA C programming guide, "CUDA environment variables"; ROCm "GPU isolation techniques"; Level Zero specification,
"environment variables" (numbers are tiles where ZE_FLAT_DEVICE_HIERARCHY is FLAT, its default on GPUs with tiles)."""


def gpu_text(file: StepFile, shown: set[int] | None = None) -> str:
    """Shell lines that set the visibility variable and STACKYARD_DEVICE of a task; empty if no task has a GPU.

    Args:
        shown: the GPUs that a task may see; None: all of the node's tasks.
    """
    name = VISIBILITY.get(file.gpu_vendor, "")
    owned = [slot.gpus for slot in file.slots]
    order = list(dict.fromkeys(gpu for gpus in owned for gpu in gpus))
    if not name or not order:
        return ""
    ranked, seen = sorted(order), [gpu for gpu in order if shown is None or gpu in shown]
    own = " ".join(f"{local}) sy_own='{' '.join(map(str, gpus))}' ;;" for local, gpus in enumerate(owned))
    places = " ".join(f"{gpu}) sy_place={ranked.index(gpu)} ;;" for gpu in order)
    head = _GIVEN.format(name=name, own=own, places=places, total=len(order), last=max(order))
    body = _OWN if file.gpu_visibility == "own" else _ALL.format(order=" ".join(map(str, seen)))
    tail = _AMD if file.gpu_vendor == "amd" else ""
    return head + body + _SET.format(name=name, amd=tail)


_GIVEN = """# GPUs: those that the launcher has assigned, and this task's own.
sy_given=${{{name}-}} sy_gpus=${{{name}-}} sy_show= sy_own= sy_name={name} sy_total={total}
case $sy_local in {own} esac
sy_count() {{ sy_ifs=$IFS IFS=$1; set -- $2; IFS=$sy_ifs; sy_number=$#; }}
sy_count , "$sy_given" && sy_seen=$sy_number
sy_count ' ' "$sy_own" && sy_mine=$sy_number
# The entry of a GPU among those assigned: by position if there are as many as planned, by number if there are more.
sy_pick() {{
  sy_got=$1
  case $1 in {places} esac
  sy_ifs=$IFS IFS=,
  set -- $sy_given
  IFS=$sy_ifs
  if [ "$sy_seen" -eq "$sy_total" ]; then shift "$sy_place" && sy_got=$1
  elif [ "$sy_seen" -gt {last} ]; then shift "$sy_got" && sy_got=$1
  elif [ "$sy_seen" -gt 0 ]; then
    sy_unfit "GPU mismatch: sees $sy_seen GPUs ($sy_name=$sy_given), expected $sy_mine (its own) or" \\
      "$sy_total (all of the node): its device index would be invalid. Let the launcher assign one or the other"
  fi
  sy_show=$sy_show${{sy_show:+,}}$sy_got
}}
"""

_OWN = """if [ "$sy_mine" -gt 0 ]; then
  if [ "$sy_seen" -ne "$sy_mine" ] || [ "$sy_total" -eq "$sy_mine" ]; then
    for sy_gpu in $sy_own; do sy_pick "$sy_gpu"; done
  fi
  export STACKYARD_DEVICE=0
fi
"""

_ALL = """if [ "$sy_mine" -gt 0 ]; then
  if [ "$sy_seen" -eq "$sy_mine" ] && [ "$sy_seen" -lt "$sy_total" ]; then
    export STACKYARD_DEVICE=0
  else
    sy_i=0
    for sy_gpu in {order}; do
      [ "$sy_gpu" != "${{sy_own%% *}}" ] || export STACKYARD_DEVICE=$sy_i
      sy_pick "$sy_gpu"
      sy_i=$(( sy_i + 1 ))
    done
  fi
fi
"""

_SET = """if [ -n "$sy_show" ]; then
  [ "$sy_show" = "$sy_given" ] || {{ export {name}="$sy_show"; {amd}:; }}
  sy_gpus=$sy_show
fi

"""

_AMD = "unset HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL; "
