"""Where a rank is in its collective operations, from PyTorch's flight recorder, also while the program waits in C.

The recorder keeps the last operations of each process group (torch/csrc/distributed/c10d/FlightRecorder.hpp). The probe
loads this file when it is asked. Python 3.6 or newer.
"""
# ruff: noqa: PTH123

import os
import pickle
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GROUPS_MOST = 64


def dump(output: "str") -> "dict[str, Any]":
    """Write the recorder into a file; `groups`: the last operation of each process group, and the names of recent ones.

    Raises:
        ValueError: no recorder here.
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    dumped = getattr(module, "_dump_fr_trace", None) or getattr(module, "_dump_nccl_trace", None)
    if dumped is None:
        raise ValueError("this PyTorch has no flight recorder")
    data = readable(pickle.loads(dumped()))
    with open(output + ".new", "wb") as stream:
        pickle.dump(data, stream)
    os.replace(output + ".new", output)
    return {"groups": groups(data)}


def readable(data: "dict[str, Any]") -> "dict[str, Any]":
    """As `torchfrtrace` reads it: the default group of gloo has no name in `pg_config`, and is ``0`` in the entries."""
    config = data.get("pg_config", {})
    if "" in config and "0" not in config:
        config["0"] = config.pop("")
    return data


def groups(data: "dict[str, Any]") -> "dict[str, Any]":
    """The number, name and state of the last collective operation of each group, and the names of the recent ones."""
    found = {}  # type: dict[str, dict[str, Any]]
    for entry in data.get("entries", ()):
        name = str(entry["process_group"][0])
        if entry.get("is_p2p") or (name not in found and len(found) == GROUPS_MOST):
            continue
        number, operation = int(entry["collective_seq_id"]), str(entry["profiling_name"]).split(":")[-1]
        last = found.setdefault(name, {"last": -1, "operations": {}})
        last["operations"][number] = operation
        if number >= last["last"]:
            last.update(last=number, operation=operation, state=str(entry["state"]))
    for name, last in found.items():
        config = data.get("pg_config", {}).get(name, {})
        last.update(ranks=str(config.get("ranks", "")), of=str(config.get("desc", "")))
        last["operations"] = {n: name for n, name in last["operations"].items() if n > last["last"] - 100}
    return found
