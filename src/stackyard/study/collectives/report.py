"""What a run measured, as nccl-tests writes it: one JSON file (version 3) for each operation.

Source: nccl-tests 2.19.6, src/util.cu; its tools/analyze_perf_json.py reads these files. As there, booleans are
strings, and times are those of the slowest rank in each iteration. Of the environment only NCCL_, UCX_, FI_ and GLOO_
are recorded, where nccl-tests records all of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.core.secrets import is_secret
from stackyard.launch.api.collectives import KINDS, read_measured
from stackyard.launch.api.runs import RunPaths, read_run, read_status
from stackyard.yard.write.atomic import write_json

FORMAT = 1
"""Of what the ranks write."""


@dataclass(frozen=True)
class CollectivesResult:
    """What was measured.

    Attributes:
        directory: of the files.
        documents: by operation, the content of its file.
        wrong: sentences about wrong values; `skipped`: by operation, why it was not measured.
    """

    directory: Path
    documents: dict[str, dict[str, Any]]
    wrong: tuple[str, ...]
    skipped: dict[str, str]


def collectives_result(paths: RunPaths) -> CollectivesResult:
    """Read what a run measured, and write a file for each operation into its directory, ``collectives/``.

    Raises:
        InputError: it has measured nothing, or the measurements are damaged.
    """
    lines, status = read_measured(paths), read_status(paths)
    first = status.first or {}
    errors = [] if status.ended_well else [str(first.get("message") or status.message or status.state)]
    try:
        head, rows = lines[0], [line for line in lines[1:] if "times_us" in line]
        skipped = {line["operation"]: str(line["skipped"]) for line in lines[1:] if "skipped" in line}
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']}, expected {FORMAT}")
        bad = [row for row in rows if row["wrong"]]
        wrong = tuple(f"{row['operation']} of {row['size']} bytes: {row['wrong']} values" for row in bad)
        command = read_run(paths).command
        end = {"errors": errors, **{key: value for key, value in lines[-1].items() if key == "end_time"}}
        documents = {
            name: _document(head, [row for row in rows if row["operation"] == name], command) | end
            for name in dict.fromkeys(row["operation"] for row in rows)
        }
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(f"the measurements of {paths.name} are damaged: {type(error).__name__}: {error}") from error
    directory = paths.root / "collectives"
    for name, document in documents.items():
        write_json(directory / f"{name}.json", document)
    return CollectivesResult(directory, documents, wrong, skipped)


def _document(head: dict[str, Any], rows: Sequence[dict[str, Any]], command: Sequence[str]) -> dict[str, Any]:
    results = [_result(row) for row in rows]
    bad = sum(bool(row["wrong"]) for row in rows)
    devices = [{key: value for key, value in one.items() if key != "free"} for one in head["devices"]]
    shown = [text for text in head["environment"] if not is_secret(*text.split("=", 1))]
    config = {
        "nthreads": 1, "ngpus": 1, "minimum_bytes": head["sizes"][0], "maximum_bytes": head["sizes"][-1],
        "step_factor": head["factor"], "warmup_iters": head["warmup"], "iterations": head["iterations"],
        "aggregated_iterations": 1, "validation": 1, "graph": 0, "blocking_collectives": "true",
        "per_iter_timing": "true", "per_iter_skip": 0, "parallel_init": "false", "devices": devices,
    }  # fmt: skip
    mean = statistics.fmean(result["out_of_place"]["bus_bw"] for result in results)
    return {
        "version": 3, "start_time": head["start_time"], "args": list(command), "env": shown,
        "nccl_version": head["nccl_version"], "config": config, "results": results,
        "out_of_bounds": {"count": bad, "okay": "false" if bad else "true"},
        "average_bus_bandwidth": {"bandwidth": mean, "okay": "unchecked"},
    }  # fmt: skip


def _result(row: dict[str, Any]) -> dict[str, Any]:
    """One size. Torch reduces and broadcasts in place; all is reported as out of place, which readers look at first."""
    kind, ranks = KINDS[row["operation"]], row["times_us"]
    times = [max(each) for each in zip(*ranks, strict=True)]
    own = sorted(times)
    mean, spread = statistics.fmean(times), statistics.pstdev(times)
    rate = row["size"] / 1e3 / mean  # bytes per microsecond / 1000 = GB/s
    p95, p99 = (own[min(len(own) - 1, (len(own) * part + 99) // 100 - 1)] for part in (95, 99))
    return {
        "size": row["size"], "count": row["count"], "type": "float", "redop": kind.redop, "root": f"{kind.root:6d}",
        "out_of_place": {
            "time": mean, "alg_bw": rate, "bus_bw": rate * kind.bus(len(ranks)), "nwrong": float(row["wrong"])
        },
        "out_of_place_per_iter": {
            "skipped_iterations": 0, "min_us": own[0], "max_us": own[-1], "avg_us": mean, "p50_us": own[len(own) // 2],
            "p95_us": p95, "p99_us": p99, "stdev_us": spread, "cv_pct": 100 * spread / mean, "times_us": times,
            "per_process_max_times_us": ranks,
        },
        "in_place": None, "actual_iterations": len(times), "experiment_name": "",
    }  # fmt: skip
