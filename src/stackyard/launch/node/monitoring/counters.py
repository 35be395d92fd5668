"""The energy counters of a node's GPUs, read in a process of its own: a driver that hangs or crashes leaves the agent.

`main` prints a reading as a line of JSON at once, and another one when its standard input is closed. Between them it
keeps NVML open, because without any user the driver may unload and start its counters again from 0.

Sources: NVML API reference, "Device Queries": nvmlDeviceGetTotalEnergyConsumption, in mJ since the driver was loaded,
from Volta on, status 3 where the GPU has no counter; of a GPU with MIG it counts all instances. ``rocm-smi
--showenergycounter`` gives the accumulator times its resolution (15.3 uJ) in uJ; ``amd-smi metric --energy``, which
follows it, J.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`). It
imports nothing of Stackyard, since `stackyard.launch.node.monitoring.energy` runs its text with ``python -c``.
"""

import json
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Reading = dict[str, Any]

LIBRARY = "libnvidia-ml.so.1"
NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED."""
PROGRAMS = (
    (("rocm-smi", "--showenergycounter", "--csv"), ("device", "Accumulated Energy (uJ)"), 1e-6),
    (("/opt/rocm/bin/rocm-smi", "--showenergycounter", "--csv"), ("device", "Accumulated Energy (uJ)"), 1e-6),
    (("amd-smi", "metric", "--energy", "--csv"), ("gpu", "total_energy_consumption"), 1.0),
)  # type: tuple[tuple[tuple[str, ...], tuple[str, str], float], ...]
"""AMD's programs, with their columns of the GPU's number and of its energy, and the joules of one unit."""


def main() -> "None":
    """Print both readings: {"at": s, "gpus": [{"index", "uuid", "joules" or "why", "others"}]}, or {"why"}."""
    read = nvidia() if sys.argv[1] == "nvidia" else amd
    for _ in range(2):
        sys.stdout.write(json.dumps(dict(read(), at=time.monotonic())) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def nvidia() -> "Callable[[], Reading]":
    """Open NVML; returns what reads the counters of all GPUs that it shows (of a job those of its control group)."""
    import ctypes

    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError:
        return lambda: {"why": f"{LIBRARY} not found"}
    status = nvml.nvmlInit_v2()
    if status:
        return lambda: {"why": f"nvmlInit_v2 returned {status}"}

    def read() -> "Reading":
        count = ctypes.c_uint()
        status = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        if status:
            return {"why": f"nvmlDeviceGetCount_v2 returned {status}"}
        return {"gpus": [_device(nvml, index) for index in range(count.value)]}

    return read


def _device(nvml: "Any", index: "int") -> "Reading":
    """The counter of one GPU, and how many processes compute on it now; with none of the ranks running, on others'."""
    import ctypes

    device, name, energy = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.c_ulonglong()
    mig, pending, others = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    row = {"index": str(index), "uuid": "", "others": 0}  # type: Reading
    status = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
    if status:
        return dict(row, why=f"nvmlDeviceGetHandleByIndex_v2 returned {status}")
    nvml.nvmlDeviceGetUUID(device, name, ctypes.c_uint(96))
    _newer(
        nvml, "nvmlDeviceGetComputeRunningProcesses", device, ctypes.byref(others), None
    )  # no room: only their number
    row.update(uuid=name.value.decode("ascii", "replace"), others=others.value)
    status = _newer(nvml, "nvmlDeviceGetMigMode", device, ctypes.byref(mig), ctypes.byref(pending))
    if not status and mig.value:
        return dict(row, why="is shared as MIG instances, and its counter counts all of them")
    status = _newer(nvml, "nvmlDeviceGetTotalEnergyConsumption", device, ctypes.byref(energy))
    if status == NOT_SUPPORTED:
        return dict(row, why="has no energy counter, as GPUs older than Volta")
    if status:
        return dict(row, why=f"has a counter that cannot be read (NVML status {status})")
    return dict(row, joules=energy.value / 1e3)


def _newer(nvml: "Any", name: "str", *arguments: "Any") -> "int":
    """The status of a function that older drivers do not have."""
    function = getattr(nvml, name, None)
    return int(function(*arguments)) if function else NOT_SUPPORTED


def amd() -> "Reading":
    """The counters of all GPUs by AMD's program, which does not see a job's limits, nor other users."""
    import subprocess

    for words, columns, joules in PROGRAMS:
        try:
            started = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        except OSError:
            continue
        text = started.communicate()[0].decode("utf-8", "replace")
        gpus = amd_rows(text, columns, joules)
        if started.returncode or not gpus:
            return {"why": f"{' '.join(words)} shows no energy counter (exit status {started.returncode})"}
        return {"gpus": gpus}
    return {"why": "rocm-smi and amd-smi not found"}


def amd_rows(text: "str", columns: "tuple[str, str]", joules: "float") -> "list[Reading]":
    """The rows of AMD's tables; other lines, such as warnings, stand around them, and columns move."""
    number, energy = columns
    rows = []  # type: list[Reading]
    head = []  # type: list[str]
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if number in words and energy in words:
            head = words
        elif head and len(words) == len(head):
            values = dict(zip(head, words))  # noqa: B905
            row = {"index": values[number].replace("card", "", 1), "uuid": "", "others": 0}  # type: Reading
            try:
                rows.append(dict(row, joules=float(values[energy]) * joules))
            except ValueError:
                rows.append(dict(row, why="has no energy counter"))
    return rows


if __name__ == "__main__":
    main()
