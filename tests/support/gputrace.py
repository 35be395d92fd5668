"""Traces of a GPU in the format of PyTorch's profiler, made by hand, whose answers are known.

Two steps of 1,000 us on each rank. On the GPU, in each: a matrix product of 600 us, an all-reduce of 300 us that
overlaps it by 150 us, and 50 us of copies from the host; so it is idle for 200 us between the two steps.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

BASE_NS = 1_700_000_000_000_000_000
STEP_US = 1000.0
OVERLAP_PERCENT = 50.0
"""Of communication, with computation."""
KERNELS = (  # name, category, stream, begin and duration in us, the name of the call
    ("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 7, 50.0, 50.0, "cudaMemcpyAsync"),
    ("ampere_sgemm_128x64_tn", "kernel", 7, 100.0, 600.0, "cudaLaunchKernel"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "kernel", 20, 550.0, 300.0, "cudaLaunchKernelExC"),
)


def gpu_trace(rank: int, world: int = 2, late_us: float = 0.0) -> dict[str, Any]:
    """The content of one rank's trace; `late_us`: its clock is that much behind in its steps."""
    pid = 4000 + rank
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler",
         "ts": 0.0, "dur": 9000.0, "args": {"Op count": 0}},
    ]  # fmt: skip
    correlation = 100
    for step in (5, 6):
        begin = 1000.0 + (step - 5) * STEP_US + late_us
        annotation = {"External id": step, "Ev Idx": step}
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": pid, "tid": pid,
                       "ts": begin, "dur": STEP_US, "args": annotation})  # fmt: skip
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": pid, "ts": begin + 1,
                       "dur": 90.0, "args": {"External id": 10 + step, "Ev Idx": 10 + step}})  # fmt: skip
        for at, (name, category, stream, start, duration, call) in enumerate(KERNELS):
            correlation += 1
            flow = {"id": correlation, "cat": "ac2g", "name": "ac2g"}
            events += [
                {"ph": "X", "cat": "cuda_runtime", "name": call, "pid": pid, "tid": pid, "ts": begin + 10 + at * 10,
                 "dur": 5.0, "args": {"External id": 10 + step, "cbid": 211, "correlation": correlation}},
                {"ph": "s", "pid": pid, "tid": pid, "ts": begin + 10 + at * 10, **flow},
                {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": begin + start,
                 "dur": duration, "args": {"External id": 10 + step, "device": 0, "context": 1, "stream": stream,
                                           "correlation": correlation}},
                {"ph": "f", "bp": "e", "pid": 0, "tid": stream, "ts": begin + start, **flow},
            ]  # fmt: skip
    return {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}], "with_flops": 0,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "stackyard": {"rank": rank, "host": f"node{rank}"}, "traceEvents": events, "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS + rank * 2_000_000,
    }  # fmt: skip


def write_gpu_traces(directory: Path, world: int = 2) -> list[Path]:
    """``rank-00000.pt.trace.json.gz`` and the others in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    files = [directory / f"rank-{rank:05d}.pt.trace.json.gz" for rank in range(world)]
    for rank, file in enumerate(files):
        with gzip.open(file, "wt") as packed:
            json.dump(gpu_trace(rank, world), packed)
    return files
