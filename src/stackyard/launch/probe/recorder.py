"""Where a rank is in its collective operations, from PyTorch's flight recorder, also while the program waits in C.

The recorder keeps the last operations of each process group (torch/csrc/distributed/c10d/FlightRecorder.hpp). The probe
loads this file when it is asked. Python 3.6 or newer.
"""
# ruff: noqa: PTH103, PTH120, PTH123

import os
import pickle
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GROUPS_MOST, RECENT = 64, 20


def dump(output: "str", rank: "int") -> "dict[str, Any]":
    """Write the recorder into a file, with ``{rank}`` in its name filled in; where this rank is in each process group.

    Raises:
        ValueError: no recorder here.
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    dumped = getattr(module, "_dump_fr_trace", None) or getattr(module, "_dump_nccl_trace", None)
    if dumped is None:
        raise ValueError("this PyTorch has no flight recorder")
    data = completed(pickle.loads(dumped()))
    if not data["pg_config"]:
        raise ValueError("this process belongs to no process group")
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        rank = distributed.get_rank()
    path = output.replace("{rank}", f"{rank:05d}")
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(path + ".new", "wb") as stream:
        pickle.dump(data, stream)
    os.replace(path + ".new", path)
    return {"rank": rank, "file": path, "groups": groups(data)}


def completed(data: "dict[str, Any]") -> "dict[str, Any]":
    """With the members of each group, which gloo does not record and `torchfrtrace` requires."""
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    config = data.setdefault("pg_config", {})
    config.pop("", None)
    for group, name in dict(getattr(world, "pg_names", {})).items():
        members = sorted(world.pg_group_ranks.get(group, ())) if world is not None else ()
        known = config.setdefault(name, {"name": name, "desc": getattr(group, "group_desc", ""), "ranks": "[]"})
        if known["ranks"] in ("", "[]"):
            known["ranks"] = str(list(members))
    return data


def groups(data: "dict[str, Any]") -> "dict[str, Any]":
    """For each process group its members, the number of its last operation here, and the names of the recent ones."""
    found = {}  # type: dict[str, Any]
    for name, config in list(data["pg_config"].items())[:GROUPS_MOST]:
        status = data.get("pg_status", {}).get(name, {})
        last = max(0, int(status.get("last_enqueued_collective", 0)))
        found[name] = {"desc": config["desc"], "ranks": config["ranks"], "last": last, "waits": False, "names": {}}
    for entry in data.get("entries", ()):
        group = found.get(str(entry["process_group"][0]))
        if group is not None and not entry.get("is_p2p"):
            number = int(entry["collective_seq_id"])
            group["names"][number] = str(entry["profiling_name"]).split(":")[-1]
            if number >= group["last"]:
                group["last"], group["waits"] = number, not entry.get("retired", entry["state"] == "completed")
    for group in found.values():
        group["names"] = {number: name for number, name in group["names"].items() if number > group["last"] - RECENT}
    return found
