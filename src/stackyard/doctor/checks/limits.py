"""The limits of processes: those of this shell, which its jobs inherit, and those of its control group."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from stackyard.core.findings import Finding
from stackyard.doctor.checks.base import Surroundings, listed, said
from stackyard.host.machine import cgroups

GIB = 1 << 30
_UNLIMITED = float("inf")


def look_at_limits(around: Surroundings) -> Iterator[Finding]:
    """Limits of processes (getrlimit(2)) below what findings.yaml lists."""
    for row in listed("limits"):
        if ("where" in row and not getattr(around, row["where"])) or (row.get("root") is False and os.geteuid() == 0):
            continue
        soft, hard = (_UNLIMITED if one == resource.RLIM_INFINITY else one
                      for one in resource.getrlimit(getattr(resource, row["resource"])))  # fmt: skip
        least = float(row["large"] if around.large and "large" in row else row["least"])
        least = max(least, row.get("per_core", 0) * len(os.sched_getaffinity(0)))
        if soft < least or soft > row.get("most", _UNLIMITED):
            unit = row.get("unit", 1)
            shown = "unlimited" if least == _UNLIMITED else f"{least / unit:.0f}"
            how = "remedy" if hard >= least else "remedy_hard"
            yield said(row["rule"], how, soft=f"{soft / unit:.0f}", hard=f"{hard / unit:.0f}", least=shown)


def look_at_groups(around: Surroundings) -> Iterator[Finding]:
    """Limits of the control group: processors, memory, processes."""
    group = cgroups.limits(around.root)
    cores = len(os.sched_getaffinity(0))
    if group.cores and group.cores <= cores - 1:
        yield said("cpu-quota", quota=f"{group.cores:g}", cores=cores, threads=max(1, int(group.cores)))
    if group.memory and group.memory < listed("memory")[0]:
        yield said("memory-limit", limit=f"{group.memory / GIB:.1f}")
    if group.processes and group.processes < listed("processes")[0]:
        yield said("process-limit", limit=group.processes, used=group.running)
    threads = around.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if threads.isdecimal() and int(threads) > cores:
        yield said("too-many-threads", threads=threads, cores=cores)


def look_at_numa(around: Surroundings) -> Iterator[Finding]:
    """Cores that this process may use, without the memory beside them."""
    fields = dict(line.split(":\t", 1) for line in around.read("proc/self/status").splitlines() if ":\t" in line)
    allowed = numbers(fields.get("Mems_allowed_list", ""))
    cores = numbers(fields.get("Cpus_allowed_list", ""))
    for name in around.names("sys/devices/system/node"):
        number = name.removeprefix("node")
        near = cores & numbers(around.read(f"sys/devices/system/node/{name}/cpulist")) if number.isdecimal() else ()
        if near and allowed and int(number) not in allowed:
            yield said("numa-memory", node=number, cores=len(near))


def numbers(text: str) -> frozenset[int]:
    """A list of the kernel, ``0-3,8``, as numbers."""
    ranges = (part.split("-") for part in text.split(",") if part[:1].isdecimal())
    return frozenset(number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1))
