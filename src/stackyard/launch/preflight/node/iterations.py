"""The ranks' program of ``stackyard bench collectives``: every iteration, timed on every rank. ``start.py SPEC``.

Rank 0 prints a table as OSU's benchmarks do, and writes `FILE` in the run directory, a line of JSON for each result as
it comes: a header, rows, and ``end_time``. Times are differences of a rank's own monotonic clock: the clocks of nodes
are never compared.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from .groups import bracketed
from .operations import KINDS, MpiGroup, TorchGroup, buffer_bytes, count_of, prepare, size_of
from .rank import Identity, device_of

FILE = "collectives.jsonl"
STAMP = "%Y-%m-%d %H:%M:%S"
SHOWN = re.compile(r"(?:NCCL|UCX|FI|GLOO)_(?![^=]*(?:KEY|TOKEN|SECRET|PASS|AUTH|CRED|COOKIE|SIG))(?!.*://[^/]*@)")
"""The environment variables that are recorded, ``NAME=value``: none that may have a secret."""
UNSUPPORTED = re.compile(r"not (?:support|implement)|unsupported|unimplemented", re.IGNORECASE)
MISSING = 4
BAD_REQUEST = 2
GIB = 1 << 30


def main() -> None:
    """Run this rank. The exit status is 0 even if values are wrong: they are counted."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    who = Identity(os.environ)
    if who.size < 2:
        _end(BAD_REQUEST, "one rank only: nothing is sent", "start two ranks or more: -N 2, or -r 2")
    group = _connect(spec, who)
    devices = [{"rank": at, **facts} for at, facts in enumerate(group.everyone(_facts(group, who)))]
    _require_memory(spec, devices)
    bench = _Bench(group, spec, devices)
    gc.disable()
    for operation in spec["operations"]:
        bench.measure(operation)
    bench.write({"end_time": time.strftime(STAMP)})
    group.close()


def _end(code: int, why: str, hint: str) -> None:
    print(f"collectives: {why}\nhint: {hint}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def _connect(spec: dict[str, Any], who: Identity) -> Any:
    over, device = spec["over"], -1
    try:
        if over == "mpi":
            return MpiGroup(who.rank, who.size)
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        package, other = ("mpi4py", "gloo needs torch") if over == "mpi" else ("torch", "mpi needs mpi4py")
        _end(MISSING, f"{package} cannot be imported: {error}",
             f"use a stack that has {package} (--with REV), or another --over: {other}")  # fmt: skip
    if over == "nccl":
        if not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
            _end(MISSING, f"torch {torch.__version__} on {who.host} has no GPU or no NCCL", "use --over gloo")
        device = device_of(torch.cuda.device_count(), who.local_rank, os.environ)
    address = f"tcp://{bracketed(who.address)}:{who.port}"
    return TorchGroup(torch, over, address, who.rank, who.size, device, float(spec["limit_s"]))


def _facts(group: Any, who: Identity) -> dict[str, Any]:
    """This rank as ``devices`` of nccl-tests has it, and the bytes that are free for it or its node."""
    facts = {"group": 0, "pid": os.getpid(), "hostname": who.host, "device": -1, "device_hex": ""}
    if getattr(group, "device", -1) < 0:
        library = getattr(group, "library", "gloo")
        return {**facts, "device_info": f"cpu, {library}", "free": _free()}
    own = group.torch.cuda.get_device_properties(group.device)
    bus = "{:04x}:{:02x}:{:02x}".format(*(getattr(own, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")))
    return {**facts, "device": group.device, "device_hex": bus, "device_info": own.name,
            "free": group.torch.cuda.mem_get_info(group.device)[0]}  # fmt: skip


def _free(root: Path = Path("/")) -> int:
    """Bytes that this node can still give to the job: of its memory, and within the job's control groups, v1 or v2."""
    meminfo = re.search(r"^MemAvailable:\s+(\d+)", (root / "proc/meminfo").read_text(), re.M)
    free = [int(meminfo.group(1)) * 1024] if meminfo else []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and controllers != "memory":
            continue
        top = root / "sys/fs/cgroup" / controllers
        names = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        for place in (top / path.lstrip("/"), *(top / path.lstrip("/")).parents):
            try:
                most, used, stat = ((place / f"memory.{name}").read_text().strip() for name in (*names, "stat"))
            except OSError:
                continue
            cached = sum(map(int, re.findall(r"^(?:in)?active_file (\d+)", stat, re.M)))
            free += [int(most) - int(used) + cached] if most != "max" else []
    return min(free, default=1 << 62)


def _require_memory(spec: dict[str, Any], devices: list[dict[str, Any]]) -> None:
    """End before anything is measured if the buffers, and once the size for the library, do not fit into memory."""
    n = len(devices)
    needs = {size: max((buffer_bytes(op, count_of(op, size, n), n) + size, op) for op in spec["operations"])
             for size in spec["sizes"]}  # fmt: skip
    for one in devices:
        ranks = 1 if one["device"] >= 0 else sum(other["hostname"] == one["hostname"] for other in devices)
        size, (need, operation) = max(needs.items())
        if need * ranks > one["free"]:
            fits = max((size for size, (need, _) in needs.items() if need * ranks <= one["free"]), default=0)
            gpu = f", GPU {one['device']}" if one["device"] >= 0 else ""
            hint = f"measure less: --sizes {min(needs)}:{fits}, or " if fits else ""
            _end(BAD_REQUEST,
                 f"out of memory: {operation} of {size} bytes needs {need * ranks / GIB:.1f} GiB for {ranks} ranks on "
                 f"{one['hostname']}{gpu}, which has {one['free'] / GIB:.1f} GiB free",
                 f"{hint}start fewer ranks per node")  # fmt: skip


class _Bench:
    """Measures, and in rank 0 writes and prints."""

    def __init__(self, group: Any, spec: dict[str, Any], devices: list[dict[str, Any]]) -> None:
        self.group, self.spec, self.out = group, spec, None
        if group.rank == 0:
            self.out = (Path(os.environ.get("STACKYARD_STEP", ".")) / FILE).open("w", encoding="utf-8")
        version = group.torch.cuda.nccl.version() if spec["over"] == "nccl" else 0
        if not isinstance(version, int):  # as in nccl.h: 22705 for 2.27.5
            version = sum(part * unit for part, unit in zip(version, (10000, 100, 1)))  # noqa: B905
        shown = sorted(filter(SHOWN.match, map("=".join, os.environ.items())))
        self.write({"format": 1, **spec, "start_time": time.strftime(STAMP), "environment": shown,
                    "nccl_version": version, "devices": devices})  # fmt: skip

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        if self.out:
            self.out.write(json.dumps(line) + "\n")
            self.out.flush()

    def say(self, text: str) -> None:
        """Print a line of the table."""
        if self.out:
            print(text, flush=True)

    def measure(self, operation: str) -> None:
        """All sizes of an operation; one that the library lacks is recorded as skipped."""
        n = self.group.size
        self.say(f"\n# {operation} over {self.spec['over']}, {n} ranks\n{HEAD}")
        counts = dict.fromkeys(filter(None, (count_of(operation, size, n) for size in self.spec["sizes"])))
        if not counts:
            self._skip(operation, f"all sizes are below 16 bytes for each of {n} ranks")
        for count in counts:
            try:
                times, wrong = self._times(operation, count)
            except RuntimeError as error:  # NotImplementedError is one
                if not (isinstance(error, NotImplementedError) or UNSUPPORTED.search(str(error))):
                    raise
                self._skip(operation, (str(error).strip() or type(error).__name__).splitlines()[0])
                return
            rows = self.group.everyone((times, wrong))
            row = {"operation": operation, "size": size_of(operation, count, n), "count": count,
                   "wrong": sum(bad for _, bad in rows), "times_us": [mine for mine, _ in rows]}  # fmt: skip
            self.write(row)
            self.say(text_of(row))

    def _skip(self, operation: str, reason: str) -> None:
        self.write({"operation": operation, "skipped": reason})
        self.say(f"# not measured: {reason}")

    def _times(self, operation: str, count: int) -> tuple[list[float], int]:
        """Microseconds of each iteration on this rank, all starting after a barrier, and its wrong values."""
        made, times = prepare(self.group, operation, count), []
        wrong = made.wrong()
        for iteration in range(-self.spec["warmup"], self.spec["iterations"]):
            self.group.barrier()
            start = time.perf_counter()
            made.run()
            if iteration >= 0:
                times.append((time.perf_counter() - start) * 1e6)
        return times, max(wrong, made.wrong())


HEAD = f"{'# Size':<14}{'Avg Latency(us)':>18}{'Min Latency(us)':>18}{'Max Latency(us)':>18}{'Iterations':>12}" + (
    f"{'BusBW(GB/s)':>14}{'Wrong':>8}"
)


def text_of(row: dict[str, Any]) -> str:
    """A line of the table: over all ranks the mean, the least and the largest of their mean times, as OSU has them.

    The bus bandwidth (10^9 bytes a second) is that of the slowest rank in each iteration.
    """
    ranks = row["times_us"]
    means = [sum(mine) / len(mine) for mine in ranks]
    slowest = sum(map(max, *ranks)) / len(ranks[0])
    numbers = "".join(f"{value:>18.2f}" for value in (sum(means) / len(means), min(means), max(means)))
    rate = row["size"] / slowest / 1000 * KINDS[row["operation"]].bus(len(ranks))
    return f"{row['size']:<14}{numbers}{len(ranks[0]):>12}{rate:>14.4g}{row['wrong']:>8}"
