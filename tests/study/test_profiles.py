"""The overview of a profiled run: what is named in planted programs, exact shares, and traces that are damaged."""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.launch.node import step as step_module
from stackyard.launch.node.step import StepFile
from stackyard.launch.records.naming import new_run
from stackyard.launch.records.record import RunRecord, write_record
from stackyard.study.profiles import intervals, stream
from stackyard.study.profiles.activity import read_trace
from stackyard.study.profiles.causes import causes
from stackyard.study.profiles.content import overview_document
from stackyard.study.profiles.load import overview
from stackyard.study.profiles.overview import Overview
from stackyard.study.report.html import html_text
from study.handtraces import Event, each_step, event, file_of, steps, write
from support import torchstack
from support.cli import stackyard

PROGRAMS = Path(__file__).parents[1] / "data" / "profiles"
PLANTED = ("slow-loader", "slow-rank", "cpu-bound", "communication", "copies")


def quiet(*_: object) -> None:
    """Tell nothing."""


def traced(output: Path, program: Path, kinds: Sequence[str]) -> dict[str, Overview]:
    """Run the two ranks of a program, and read the traces of each kind."""
    python = torchstack.python(torchstack.torch_yard())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen([python, program, output, *kinds], env={**common, "RANK": str(rank)},
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]  # fmt: skip
    for rank in ranks:
        _, err = rank.communicate(timeout=350)
        assert rank.returncode == 0, err
    return {kind: overview(output / kind, quiet) for kind in kinds}


def first_causes(found: dict[str, Overview]) -> dict[str, list[str]]:
    """The name of the first cause that is the program's.

    Two ranks on one core of a busy machine do not get the same of it: that one is slower with the same calls, or with
    the same loader, is true.
    """
    machine = "the same calls take longer there", "look at the data of that rank"
    return {
        kind: [cause.name for cause in causes(one) if not cause.remedy.startswith(machine)][:1]
        for kind, one in found.items()
    }


@pytest.mark.real
@pytest.mark.slow
def test_the_planted_cause_comes_first_and_a_healthy_program_has_none(tmp_path: Path) -> None:
    found = traced(tmp_path, PROGRAMS / "planted_ranks.py", ("healthy", "healthy-workers", *PLANTED))
    evidence = {kind: {cause.name: cause.evidence for cause in causes(one)} for kind, one in found.items()}
    assert first_causes(found) == {kind: [kind] if kind in PLANTED else [] for kind in found}, evidence
    assert "_SingleProcessDataLoaderIter" in evidence["slow-loader"]["slow-loader"]
    assert "aten::mm" in evidence["slow-rank"]["slow-rank"] and "of 12 steps" in evidence["slow-rank"]["slow-rank"]
    assert "aten::to" in evidence["copies"]["copies"] and "all_reduce" in evidence["communication"]["communication"]
    assert found["slow-rank"].slow and found["slow-rank"].slow.rank == 1
    for kind, one in found.items():
        assert [len(rank.steps) for rank in one.ranks] == [12, 12] and one.world == 2, kind
        assert all(sum(rank.share(part) for part in rank.parts[3]) == pytest.approx(1) for rank in one.ranks)
        assert html_text(overview_document(one)).count("<tr>") > 15
    assert "CPU" in found["copies"].ranks[0].trace.memory, "memory was asked for"


@pytest.mark.real
@pytest.mark.long
def test_programs_that_the_rules_were_not_made_with(tmp_path: Path) -> None:
    found = traced(tmp_path, PROGRAMS / "held_out.py", ("healthy-attention", "healthy-images", *PLANTED))
    evidence = {kind: {cause.name: cause.evidence for cause in causes(one)} for kind, one in found.items()}
    assert first_causes(found) == {kind: [kind] if kind in PLANTED else [] for kind in found}, evidence
    assert found["slow-rank"].slow and found["slow-rank"].slow.rank == 0
    assert (
        "MultiProcessing" in evidence["slow-loader"]["slow-loader"]
        and "aten::contiguous" in evidence["copies"]["copies"]
    )
    assert "small operations" in evidence["cpu-bound"]["cpu-bound"]


GPU = (("cpu_op", "aten::linear", 0, 1), ("cuda_runtime", "cudaLaunchKernel", 0.2, 0.3))


@pytest.mark.parametrize(("name", "parts"), [
    ("copies", [("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 4), ("kernel", "gemm", 3, 9.5)]),
    ("communication", [("kernel", "gemm", 0, 6), ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5, 9.5)]),
    ("slow-loader", [("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 4),
                     ("kernel", "gemm", 3, 9.8)]),
    ("cpu-bound", [("kernel", "gemm", at / 10, at / 10 + 0.05) for at in range(100)]),
    ("", [("kernel", "gemm", 0, 9.5), ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1, 4),
          ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 4, 9)]),
])  # fmt: skip
def test_the_cause_in_a_trace_of_a_gpu(tmp_path: Path, name: str, parts: list[tuple[str, str, float, float]]) -> None:
    for rank in range(2):
        write(file_of(tmp_path, rank), [*steps(6), *each_step(6, *GPU, *parts)], rank, 2)
    found = overview(tmp_path, quiet)
    assert [cause.name for cause in causes(found)] == ([name] if name else [])
    assert found.has_gpu and all(rank.share("idle") < 0.06 for rank in found.ranks if name != "cpu-bound")


def test_shares_and_overlap_are_exact(tmp_path: Path) -> None:
    write(tmp_path / "rank7.json", [*steps(4), *each_step(
        4, *GPU, ("kernel", "gemm", 1, 4), ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3, 6),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 5.5, 7),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 6, 9),
    )], 7, 8)  # fmt: skip
    (rank,) = overview(tmp_path / "rank7.json", quiet).ranks
    shares = {part: round(rank.share(part), 9) for part in rank.parts[3]}
    assert shares == {"computation": 0.3, "communication": 0.2, "copies": 0.1, "waiting for data": 0.2, "idle": 0.2}
    assert (rank.communication, rank.hidden) == (12_000, 4_000) and rank.trace.rank == 7


def test_operators_are_counted_without_those_that_they_call(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = each_step(2, ("user_annotation", loader, 0, 1), ("cpu_op", "aten::stack", 0.2, 0.8),
                       ("cpu_op", "aten::to", 2, 5), ("cpu_op", "aten::_to_copy", 2.5, 5),
                       ("cpu_op", "aten::copy_", 3, 5), ("cpu_op", "aten::mm", 5, 9))  # fmt: skip
    trace = read_trace(write(tmp_path / "a.json", [*steps(2), *events]), 0)
    assert {name: us / 2000 for name, us in trace.operations.us.items()} == {
        "aten::to": 0.5, "aten::_to_copy": 0.5, "aten::copy_": 2, "aten::mm": 4,
    }, "the loader's own are left out"  # fmt: skip
    assert trace.copied_by.us == {"aten::to": 4000} and trace.strays == 0


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def of_ranks(
    directory: Path, works: Sequence[Sequence[float]], work_is: tuple[str, str] = ("cpu_op", "aten::mm")
) -> Overview:
    """Ranks that work for some ms in each step and then wait for each other until 9.5 ms; exchanges take 0.5 ms."""
    last = [max(column) for column in zip(*works, strict=True)]
    for rank, own in enumerate(works):
        found: list[Event] = steps(len(own))
        for number, (work, late) in enumerate(zip(own, last, strict=True)):
            start, us = number * 10_000.0, 1000 * work
            found.append(event(*work_is, start, us))
            found.append(event("user_annotation", "gloo:all_reduce", start + us, 1000 * (late + 0.5) - us, (1, 2)))
        write(file_of(directory, rank), found, rank, len(works), host=f"n{rank}")
    return overview(directory, quiet)


def test_the_others_wait_for_a_slow_rank_and_that_is_not_communication(tmp_path: Path) -> None:
    found = of_ranks(tmp_path, [[4] * 8, [9] * 8, [4.2] * 8])
    (cause,) = causes(found)
    assert (cause.name, round(cause.share, 3)) == ("slow-rank", 0.5) and "on n1" in cause.evidence
    assert "the same calls take longer there" in cause.remedy
    (exchange,) = found.exchanges
    assert exchange.transport == pytest.approx(500) and exchange.us == pytest.approx((5500 + 500 + 5300) / 3)


def test_ranks_that_take_turns_are_not_a_slow_rank(tmp_path: Path) -> None:
    found = of_ranks(tmp_path, [[2, 9] * 6, [9, 2] * 6])
    assert found.slow is None and [cause.name for cause in causes(found)] == ["uneven-ranks"]
    few = of_ranks(tmp_path / "few", [[4] * 3, [9] * 3])
    assert few.slow is None, "three of three steps happen in one of four pairs of equal ranks"


def test_ranks_that_wait_in_turns_for_their_data_have_a_slow_loader(tmp_path: Path) -> None:
    found = of_ranks(tmp_path, [[0.5, 9] * 6, [9, 0.5] * 6], ("user_annotation", LOADER))
    (cause,) = causes(found)
    assert (cause.name, round(cause.share, 3)) == ("slow-loader", 0.9)
    assert "90 % of a step" in cause.evidence and cause.evidence.endswith(", 42 % of a step for another rank's data")


def test_one_rank_alone_says_that_it_does_not_know_whom_it_waits_for(tmp_path: Path) -> None:
    of_ranks(tmp_path, [[4] * 8, [9] * 8])
    found = overview(tmp_path, quiet, {0})
    (cause,) = causes(found)
    assert cause.name == "communication" and "ranks=all" in cause.remedy and found.world == 2
    assert "waiting for a slower rank" not in cause.evidence


def test_times_together_are_those_of_counting_every_moment() -> None:
    draw = random.Random(3)
    for _ in range(200):
        spans = {bit: [(a := draw.randrange(60), a + draw.randrange(20)) for _ in range(6)] for bit in (1, 2, 4)}
        unions = {bit: intervals.Union() for bit in spans}
        for bit, own in spans.items():
            for start, end in own:
                unions[bit].add(start, end)
        windows = [(5, 20), (20, 31), (40, 55)]
        counted = [dict[int, float]() for _ in windows]
        for number, (first, last) in enumerate(windows):
            for moment in range(first, last):
                held = sum(bit for bit, own in spans.items() if any(a <= moment < b for a, b in own))
                counted[number][held] = counted[number].get(held, 0) + 1
        assert intervals.together(unions, windows) == counted


def test_of_too_many_events_the_first_steps_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "MOST", 1000)
    parts = [("cpu_op", "aten::mm", at / 10, at / 10 + 0.05) for at in range(100)]
    events = [*steps(60), *each_step(60, *parts)]
    for number, shuffled in enumerate((events, random.Random(1).sample(events, len(events)))):
        (rank,) = overview(write(tmp_path / f"{number}.json", shuffled), quiet).ranks
        assert 1 <= len(rank.steps) <= 10 and list(rank.steps) == list(range(3, 3 + len(rank.steps)))
        assert rank.share("computation") == pytest.approx(0.5)
        assert "shares are those of its first steps" in str(overview_document(overview(rank.trace.path, quiet)))


def healthy_events(count: int = 5) -> list[Event]:
    """Steps with an operator and a collective."""
    return [*each_step(count, ("user_annotation", "gloo:all_reduce", 8, 9)), *steps(count),
            *each_step(count, ("cpu_op", "aten::mm", 0, 9.8))]  # fmt: skip


def test_a_trace_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.json", healthy_events(), 0, 2).read_bytes()
    seen = set()
    for length in range(0, len(whole), 97):
        for name, data in (("cut.json", whole[:length]), ("cut.json.gz", gzip.compress(whole)[: length // 8])):
            (tmp_path / name).write_bytes(data)
            trace = read_trace(tmp_path / name, 0)
            assert trace.reading.cut == "its end is missing"
            ends = [end for _, _, end in trace.steps]
            assert all(end <= trace.last + 2000 for end in ends), "a step of which events are missing does not count"
            seen.add(len(ends))
    assert seen >= {0, 1, 2, 3, 4}
    assert read_trace(tmp_path / "whole.json", 0).reading.cut == ""


def test_a_kind_of_events_that_is_cut_off_is_no_cause(tmp_path: Path) -> None:
    events = [*steps(5), *each_step(5, ("cpu_op", "aten::mm", 0, 2), ("cpu_op", "aten::add_", 9.5, 9.9))]
    events += each_step(5, ("user_annotation", "gloo:all_reduce", 4, 9))
    file = write(tmp_path / "rank-0.json", events, 0, 2)
    file.write_bytes(file.read_bytes().partition(b"gloo:")[0][:-40])
    found = overview(tmp_path, quiet)
    assert causes(found) == [] and len(found.ranks[0].steps) == 5
    text = str(overview_document(found))
    assert "its end is missing" in text and "it is used for no cause" in text and "No cause is named" in text


@pytest.mark.parametrize("text", [
    "", "{", "[", "null", "\x00\x01", '{"traceEvents": 3}', '{"traceEvents": [' + "[" * 100_000, '[{"ph":"X"},3,null]',
    '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e999, "dur": NaN, "pid": {}, "tid": []}]}',
    '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": "9" , "dur": -1}]}',
    '{"distributedInfo": {"rank": -5, "world_size": 1e400}, "traceEvents": [{"cat": 5, "ph": ["X"], "name": {}}]}',
    '{"traceEvents": [{"name": "' + "x" * (stream.MOST_VALUE + 5_000_000),
])  # fmt: skip
def test_what_is_not_a_trace_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank-0.json").write_text(text)
    with pytest.raises(InputError, match=r"rank-0\.json"):
        overview(tmp_path, quiet)


def test_what_is_not_a_file_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    write(file_of(tmp_path, 0), healthy_events())
    os.mkfifo(tmp_path / "rank-00001.json")
    (tmp_path / "rank-00002.json").symlink_to("/dev/zero")
    (tmp_path / "rank-00003.json").mkdir()
    write(tmp_path / "rank-00004.json", healthy_events())  # says that it is rank 0
    (tmp_path / "rank-00005.json").symlink_to("gone")
    found = overview(tmp_path, lambda at, count, file: file.stat())
    assert len(found.ranks) == 1 and sorted(found.unread) == [f"rank-0000{n}.json" for n in (1, 2, 3, 4, 5)]
    assert not found.ranks[0].trace.times, "what is large is dropped: there may be many ranks"
    assert "is of rank 0 too" in found.unread["rank-00004.json"]


def test_names_of_others_are_inert(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[2J\u202e{rank}{0.__class__}"
    loader = f"enumerate(DataLoader)#{evil}"
    for rank in range(2):
        more = each_step(6, ("user_annotation", f"gloo:{'x' * 3000}", 8, 9), ("user_annotation", loader, 0, 5),
                         ("cpu_op", evil, 5, 8), ("cpu_op", "aten::copy_", 5, 7))  # fmt: skip
        write(file_of(tmp_path, rank), [*steps(6), *more], rank, 2, host=evil)
    found = overview(tmp_path, quiet)
    assert causes(found)[0].name == "slow-loader"
    page = html_text(overview_document(found))
    assert "<script" not in page and "\x1b" not in page and "\u202e" not in page and "x" * 300 not in page
    assert "alert(1)" in page and "{0.__class__}" in page


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "rank-00000.pt.trace.json.gz"
    one = json.dumps(event("cpu_op", "aten::mm", 77, 5, **{"Input Dims": [[64, 64]] * 20})).encode()
    before, after = one.split(b"77")
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(b'{"traceEvents": [')
        packed.writelines(before + b"%d" % (10 * number) + after + b",\n" for number in range(300_000))
        packed.write(one + b"]}")
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom stackyard.study.profiles.activity import read_trace\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\ntrace = read_trace(Path(sys.argv[1]), 0)\n"
        "print(trace.reading.bytes >> 20, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", program, file], check=True, text=True, stdout=subprocess.PIPE)
    size_mib, more_mib = map(int, done.stdout.split())
    assert size_mib > 90 and more_mib < 30, done.stdout


def test_the_command_reads_a_run_a_directory_and_a_file(tmp_path: Path) -> None:
    run = new_run(tmp_path / "runs")
    write_record(run, RunRecord(run.name, "2026-01-01T00:00:00", "launch", ("stackyard",), {"program": ["a"]}))
    missing = stackyard("report", "last", cwd=tmp_path, expect=2)
    assert f"run {run.name} has no traces of PyTorch" in missing.err and "launch --profile torch" in missing.err
    slow = of_ranks(run.main.profile / "torch", [[4] * 8, [9] * 8])
    usage = {
        "ranks": [{"task": 0, "peak_bytes": 3 << 30}, {"task": 1, "peak_bytes": 5 << 29, "gpu_peak_bytes": 1 << 30}]
    }
    run.usage.write_text(json.dumps(usage))
    shown = stackyard("report", "last", cwd=tmp_path).out
    assert f"Profile of {run.name}" in shown and "Rank 1 is slow: it works 9.50 ms" in shown.replace("\n  ", " ")
    assert "2.50           1.00" in shown and "aten::mm" in shown and "Ten most expensive operations" in shown
    assert "planned, profiled (torch)" in stackyard("runs", cwd=tmp_path).out
    data = json.loads(stackyard("report", run.root, "--json", cwd=tmp_path).out)
    assert [one["name"] for one in data["causes"]] == ["slow-rank"] and data["ranks"][1]["memory"]["bytes"] == 5 << 29
    one = json.loads(stackyard("report", slow.ranks[0].trace.path, "--json", cwd=tmp_path).out)
    assert len(one["ranks"]) == 1 == len(json.loads(
        stackyard("report", "last", "--ranks", "1", "--json", cwd=tmp_path).out
    )["ranks"])  # fmt: skip
    step = StepFile(run.name, "", "", (), "torchrun", 2, 1, ranks_per_task=2)
    run.main.plan.write_text(json.dumps({"format": step_module.FORMAT, **step.to_json()}))
    alone = json.loads(stackyard("report", "last", "--json", cwd=tmp_path).out)["ranks"]
    assert not any(row["memory"] for row in alone), "an agent saw two ranks as one"
    for suffix, inside in ((".html", "<svg"), (".md", "| aten::mm |"), (".csv", "rank,host,steps"), (".svg", "<svg"),
                           (".json", '"slow-rank"')):  # fmt: skip
        stackyard("report", "last", "-o", f"out{suffix}", cwd=tmp_path)
        assert inside in (tmp_path / f"out{suffix}").read_text()


def test_a_directory_that_is_nothing_of_this_is_said(tmp_path: Path) -> None:
    shown = stackyard("report", tmp_path, cwd=tmp_path, expect=2)
    assert "is neither a study nor a run: it has no study.json, no record.json and no trace" in shown.err


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
def test_a_trace_is_read_alike_in_blocks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(stream, "BLOCK", block)
    events = [event("cpu_op", 'é\\u0041"{[', 12.5, 3), {"name": "é"}, *steps(2)]
    text = json.dumps({"number": 1234567890, "host_name": "n1", "traceEvents": events, "x": [1], "last": 12})
    for name, data in (("a.json", text.encode()), ("b.json.gz", gzip.compress(text.encode())),
                       ("c.json", json.dumps(events, ensure_ascii=False).encode())):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        reading = stream.Reading()
        assert list(stream.read_events(tmp_path / name, reading)) == events
        assert reading.cut == "" and reading.head == ({} if name == "c.json" else {"host_name": "n1"})
