"""The merged timeline of a run, by the rules of the trace-event format, which are written down here again."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError
from stackyard.study.profiles import merge as module
from stackyard.study.profiles import stream
from stackyard.study.profiles.merge import Timeline, merge
from support.gputrace import BASE_NS, write_gpu_traces

HOROVOD = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1700000000001000}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.layer1.weight"}},
{"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 2000, "pid": 1},
{"ph": "X", "name": "0", "ts": 2010, "pid": 1, "dur": 0},
{"ph": "E", "ts": 2100, "pid": 1},{"ph": "B", "name": "ALLREDUCE", "ts": 2110, "pid": 1},
{"ph": "B", "name": "MPI_ALLREDUCE", "ts": 2120, "pid": 1},{"ph": "i", "name": "CYCLE_START", "ts": 2130, "s": "g"},
{"ph": "E", "ts": 2200, "pid": 1}"""
"""As `horovod/common/timeline.cc` writes it, of a program that was killed: no end of ALLREDUCE, no ``]``."""


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as packed:
        content = json.load(packed)
    assert set(content) == {"displayTimeUnit", "traceEvents"}
    events: list[dict[str, Any]] = content["traceEvents"]
    return events


def check(events: list[dict[str, Any]]) -> None:
    """Google's "Trace Event Format", phase by phase."""
    open_ends: dict[tuple[int, int], int] = defaultdict(int)
    names = {event["pid"] for event in events if event.get("name") == "process_name"}
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["pid"] in names
        if event["ph"] == "M":
            assert event["args"]
            continue
        assert event["ph"] in "XBEisftbneC" and isinstance(event["ts"], int | float) and event["ts"] >= 0
        assert event["ph"] == "E" or isinstance(event["name"], str)
        match event["ph"]:
            case "X":
                assert event["dur"] >= 0
            case "B":
                open_ends[event["pid"], event["tid"]] += 1
            case "E":
                open_ends[event["pid"], event["tid"]] -= 1
                assert open_ends[event["pid"], event["tid"]] >= 0
            case "i":
                assert event["s"] in ("g", "p", "t")
            case "s" | "t" | "f":
                assert isinstance(event["id"], str) and event["id"].startswith(("rank ", "Horovod"))
            case "C":
                assert all(isinstance(value, int | float) for value in event["args"].values())
    assert not any(open_ends.values())


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    write_gpu_traces(tmp_path / "torch")
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "timeline.json").write_text(HOROVOD)
    return tmp_path


def merged(profile: Path) -> tuple[Timeline, list[dict[str, Any]]]:
    timeline = merge(profile, profile / "timeline.json.gz")
    return timeline, read(profile / "timeline.json.gz")


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_all_ranks_on_one_clock(profile: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(stream, "BLOCK", block)  # in which a clock may be cut in two
    (profile / "torch" / "rank-00009.pt.trace.json.gz").symlink_to("gone")
    timeline, events = merged(profile)
    check(events)
    processes = [event["args"]["name"] for event in events if event.get("name") == "process_name"]
    assert {"rank 0: torch python", "rank 1: torch python", "Horovod: horovod grad.layer1.weight"} <= set(processes)
    steps = {(event["pid"], event["ts"]) for event in events if event.get("name") == "ProfilerStep#5"}
    assert sorted(ts for _, ts in steps) == [1000.0, 3000.0]  # rank 1 began 2 ms later, by its clock
    assert len({pid for pid, _ in steps}) == 2
    (negotiation,) = (event for event in events if event.get("name") == "NEGOTIATE_ALLREDUCE")
    assert negotiation["ts"] == 2000 + (1_700_000_000_001_000 - BASE_NS / 1000)
    assert timeline.left_out == {"a known name and its argument in metadata": 1}
    assert timeline.unread == {
        "horovod/timeline.json": "its end is missing", "torch/rank-00009.pt.trace.json.gz": "No such file or directory",
    }  # fmt: skip
    assert sum(timeline.traces.values()) == sum(event["ph"] != "M" for event in events) - 2  # ends that were added


def test_flows_of_ranks_are_not_mixed_up(profile: Path) -> None:
    _, events = merged(profile)
    begins, ends = (Counter(event["id"] for event in events if event["ph"] == phase) for phase in "sf")
    assert begins == ends and set(begins.values()) == {1} and len(begins) == 2 * 2 * 3


def test_what_breaks_the_rules_is_left_out(profile: Path) -> None:
    bad = [
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": -1},
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": float("nan"), "dur": 1},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "s", "name": "a", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "C", "name": "a", "pid": 1, "tid": 1, "ts": 1, "args": {"n": "many"}},
        {"ph": "Q", "name": "a", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "M", "name": "process_name", "pid": 1},
        {"ph": ["X"], "name": {}, "pid": {"a": []}, "tid": None, "ts": "1"},
        {},
        7,
    ]
    (profile / "torch" / "rank-00002.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(bad).encode()))
    timeline, events = merged(profile)
    check(events)
    assert timeline.traces["torch/rank-00002.pt.trace.json.gz"] == 0
    assert timeline.left_out.total() == len(bad) - 2 + 1


def test_a_trace_that_is_cut_off(profile: Path) -> None:
    """Its clock, which is at the end of the file, is that of the other ranks."""
    path = profile / "torch" / "rank-00001.pt.trace.json.gz"
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[: text.index(b'"ProfilerStep#6"')])[:-4])
    timeline, events = merged(profile)
    check(events)
    assert timeline.unread["torch/rank-00001.pt.trace.json.gz"]
    assert (
        0 < timeline.traces["torch/rank-00001.pt.trace.json.gz"] < timeline.traces["torch/rank-00000.pt.trace.json.gz"]
    )
    assert [event["ts"] for event in events if event.get("name") == "ProfilerStep#5"] == [1000.0, 1000.0]


def test_too_much_for_a_viewer(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (profile / "torch" / "rank-00000.pt.trace.json.gz").stat().st_size
    monkeypatch.setattr(module, "MOST_MB", (size + 1) / 1e6)
    timeline, _ = merged(profile)
    assert list(timeline.traces) == ["torch/rank-00000.pt.trace.json.gz"]
    assert "torch/rank-00001.pt.trace.json.gz" in timeline.unread


def test_nothing_to_merge_and_no_room(profile: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no traces to merge"):
        merge(tmp_path / "torch", tmp_path / "t.json.gz")
    with pytest.raises(OSError, match="No such file"):
        merge(profile, tmp_path / "missing" / "t.json.gz")
    assert not list(tmp_path.glob("*.json.gz"))
