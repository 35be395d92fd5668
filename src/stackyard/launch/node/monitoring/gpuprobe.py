"""Memory and utilisation of this node's GPUs, from the vendor's program, which is started seldom.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIRST_S, EVERY_S, LIMIT_S = 5.0, 10.0, 20.0
"""Seconds from the first look to the program's first start, between two starts at least, and for it to end."""
SHARE = 400
"""The program takes at most one part in so many of one core's time."""
PROGRAMS = {
    # nvidia-smi --help-query-gpu; MiB and percent
    "nvidia": [("nvidia-smi", "--query-gpu=index,memory.used,memory.total,utilization.gpu",
                "--format=csv,noheader,nounits")],
    # rocm-smi --help, ROCm 5 and 6; bytes and percent
    "amd": [("rocm-smi", "--showmeminfo", "vram", "--showuse", "--csv"),
            ("/opt/rocm/bin/rocm-smi", "--showmeminfo", "vram", "--showuse", "--csv")],
}  # type: dict[str, list[tuple[str, ...]]]  # fmt: skip


class GpuProbe:
    """Runs the program without blocking. After a failure it is not started again.

    `peaks` has for each GPU, by its number: peak and total memory in bytes, mean utilisation in percent or -1.
    """

    def __init__(self, vendor: "str") -> "None":
        self.peaks = {}  # type: dict[str, list[int]]
        self._vendor = vendor
        self._programs = list(PROGRAMS.get(vendor, ()))
        self._running = None  # type: Any
        self._next, self._deadline, self._spent = 0.0, 0.0, 0.0
        self._uses = {}  # type: dict[str, list[int]]

    def step(self, now: "float") -> "None":
        """Start the program if it is due, or collect its result if it has ended."""
        if self._running is not None:
            self._take(now)
        elif self._programs and now >= self._next:
            self._next = self._next or now + FIRST_S
            if now >= self._next:
                self._start(now)

    def _start(self, now: "float") -> "None":
        self._spent, self._deadline = _children_s(), now + LIMIT_S
        try:
            self._running = _begun(self._programs[0])
        except OSError:
            del self._programs[0]

    def _take(self, now: "float") -> "None":
        if self._running.poll() is None and now < self._deadline:
            return
        if self._running.poll() is None:
            self._running.kill()
        code = self._running.wait()
        text = self._running.stdout.read(1 << 16).decode("utf-8", "replace") if code == 0 else ""
        self._running.stdout.close()
        self._running = None
        self._next = now + max(EVERY_S, SHARE * (_children_s() - self._spent))
        rows = nvidia_rows(text) if self._vendor == "nvidia" else amd_rows(text)
        for index, used, total, use in rows:
            self._add(index, used, total, use)
        if not rows:
            self._programs = []

    def _add(self, index: "str", used: "int", total: "int", use: "int") -> "None":
        uses = self._uses.setdefault(index, [])
        if use >= 0:
            uses.append(use)
        peak = max(used, self.peaks.get(index, [0])[0])
        self.peaks[index] = [peak, total, round(sum(uses) / float(len(uses))) if uses else -1]


def _begun(words: "tuple[str, ...]") -> "Any":
    import subprocess

    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def nvidia_rows(text: "str") -> "list[tuple[str, int, int, int]]":
    """Number, used and total bytes, utilisation in percent (-1: ``[N/A]``, as with MIG) of each GPU, by nvidia-smi."""
    rows = []
    for line in text.splitlines():
        index, used, total, use = [*(word.strip() for word in line.split(",")), "", "", "", ""][:4]
        if used.isdigit() and total.isdigit():
            rows.append((index, int(used) << 20, int(total) << 20, int(use) if use.isdigit() else -1))
    return rows


def amd_rows(text: "str") -> "list[tuple[str, int, int, int]]":
    """The same values from rocm-smi, whose order of columns differs between versions."""
    lines = [line.split(",") for line in text.splitlines() if "," in line]
    head = [name.strip() for name in lines[0]] if lines else []
    names = ("device", "VRAM Total Used Memory (B)", "VRAM Total Memory (B)", "GPU use (%)")
    if not all(name in head for name in names[:3]):
        return []
    rows = []
    for row in lines[1:]:
        card, used, total, use = [dict(zip(head, row)).get(name, "").strip() for name in names]  # noqa: B905
        if used.isdigit() and total.isdigit():
            rows.append((card.replace("card", "", 1), int(used), int(total), int(use) if use.isdigit() else -1))
    return rows


def _children_s() -> "float":
    times = os.times()
    return times[2] + times[3]
