"""nccl-tests' JSON, version 3: what a document has, and NVIDIA's own analyser where it is beside the repository."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT.parent / "shared" / "prototypes" / "studies" / "sample-nccl-v3.json"
ANALYSER = Path(os.environ.get("NCCL_TESTS") or ROOT.parent / "nccl-tests") / "tools" / "analyze_perf_json.py"


def conforms(document: dict[str, Any], *, ranks: int, iterations: int) -> None:
    """Hold that a document is as nccl-tests 2.19.6 writes it, field by field (src/util.cu)."""
    names = ["version", "start_time", "args", "env", "nccl_version", "config", "results", "out_of_bounds",
             "average_bus_bandwidth", "errors"]  # fmt: skip
    assert {name for name in document if name != "end_time"} == set(names)
    assert document["version"] == 3 and type(document["nccl_version"]) is int
    for name in ("start_time", "end_time"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", document.get(name, document["start_time"]))
    config = document["config"]
    assert {name: type(value) for name, value in config.items()} == {
        "nthreads": int, "ngpus": int, "minimum_bytes": int, "maximum_bytes": int, "step_factor": int,
        "warmup_iters": int, "iterations": int, "aggregated_iterations": int, "validation": int, "graph": int,
        "blocking_collectives": str, "per_iter_timing": str, "per_iter_skip": int, "parallel_init": str,
        "devices": list,
    }  # fmt: skip
    assert config["iterations"] == iterations and config["per_iter_timing"] == "true"
    for at, device in enumerate(config["devices"]):
        assert set(device) == {"rank", "group", "pid", "hostname", "device", "device_hex", "device_info"}
        assert device["rank"] == at
    assert len(config["devices"]) == ranks and document["results"]
    for row in document["results"]:
        _row_conforms(row, ranks, iterations)
    mean = statistics.fmean(row["out_of_place"]["bus_bw"] for row in document["results"])
    assert document["average_bus_bandwidth"] == {"bandwidth": pytest.approx(mean), "okay": "unchecked"}
    if SAMPLE.exists():
        _alike(json.loads(SAMPLE.read_text()), document)


def _row_conforms(row: dict[str, Any], ranks: int, iterations: int) -> None:
    assert set(row) == {"size", "count", "type", "redop", "root", "out_of_place", "out_of_place_per_iter", "in_place",
                         "actual_iterations", "experiment_name"}  # fmt: skip
    assert (row["type"], row["in_place"], row["experiment_name"]) == ("float", None, "") and len(row["root"]) == 6
    assert row["size"] in (4 * row["count"], 4 * row["count"] * ranks) and row["actual_iterations"] == iterations
    assert set(row["out_of_place"]) == {"time", "alg_bw", "bus_bw", "nwrong"}
    each = row["out_of_place_per_iter"]
    times = [max(column) for column in zip(*each["per_process_max_times_us"], strict=True)]
    assert len(each["per_process_max_times_us"]) == ranks and len(times) == iterations and each["times_us"] == times
    order, mean = sorted(times), statistics.fmean(times)
    rank = {part: order[min(iterations - 1, math.ceil(iterations * part / 100) - 1)] for part in (95, 99)}
    assert {name: value for name, value in each.items() if not isinstance(value, list)} == pytest.approx({
        "skipped_iterations": 0, "min_us": order[0], "max_us": order[-1], "avg_us": mean,
        "p50_us": order[iterations // 2], "p95_us": rank[95], "p99_us": rank[99], "stdev_us": statistics.pstdev(times),
        "cv_pct": 100 * statistics.pstdev(times) / mean,
    })  # fmt: skip
    assert row["out_of_place"]["time"] == mean
    assert row["out_of_place"]["alg_bw"] == pytest.approx(row["size"] / 1e9 / (mean / 1e6))


def _alike(sample: Any, own: Any) -> None:
    """Hold that a document has the keys and types of another, in each part."""
    if isinstance(sample, dict) and isinstance(own, dict):
        assert set(sample) - {"end_time"} == set(own) - {"end_time"}
        for name in own:
            _alike(sample[name], own[name])
    elif isinstance(sample, list) and isinstance(own, list):
        for item in own[: len(sample)]:
            _alike(sample[0], item)
    else:
        assert type(sample) is type(own), (sample, own)


def analysed(file: Path) -> None:
    """Hold that NVIDIA's own analyser reads a file, where it is at hand."""
    if ANALYSER.exists():
        done = subprocess.run([sys.executable, ANALYSER, file, "--all"], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "Consistency" in done.stdout and ": PASS" in done.stdout, done.stderr
