"""The reader of metrics: known formats, declared metrics, ranks, warm-up, and logs on bad days."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from stackyard.core import plugins
from stackyard.core.errors import InputError
from stackyard.launch.records.record import RunStatus, write_status
from stackyard.study.metrics import lines, resources, series
from stackyard.study.metrics.formats import Format, formats, known_quantity
from stackyard.study.metrics.measured import Energy, Memory, Quantity
from stackyard.study.metrics.model import Metric, measured_by
from stackyard.study.metrics.read import read_run
from stackyard.study.metrics.resources import energy_of
from study.logs import KNOWN, megatron
from study.metricsbed import first, read, run_of


def steps(count: int, rate: float = 256, seconds: float = 0.5, **more: Any) -> str:
    """What examples/resnet prints, the first step slow."""
    head = json.dumps({"start": 0, "ranks": 2, "host": "n1", "torch": "2.13"})
    rows = [
        {"step": i, "loss": 1.5, "seconds": seconds * (1 if i else 10), "images_per_s": rate / (1 if i else 10), **more}
        for i in range(count)
    ]
    return "\n".join([head, *map(json.dumps, rows), json.dumps({"done": count})]) + "\n"


@pytest.mark.parametrize("form", KNOWN)
def test_a_known_format(tmp_path: Path, form: str) -> None:
    log, name, value = KNOWN[form]
    measured = read(tmp_path, log)
    assert not measured.problems
    found = {one.name: one for one in measured.values}[name]
    assert found.value == pytest.approx(value, rel=5e-3), found


def test_lines_of_the_resnet_example(tmp_path: Path) -> None:
    rate, time = read(tmp_path, steps(40)).values
    assert (rate.name, rate.value, rate.unit, rate.kind, rate.better) == (
        "images_per_s",
        256,
        "images/s",
        "rate",
        "higher",
    )
    assert (time.name, time.value, time.unit, time.kind, time.better) == ("seconds", 0.5, "s", "time", "lower")
    assert rate.spread is not None and time.spread is not None
    assert (rate.spread.steps, rate.spread.warmup, time.spread.first) == (40, 10, 5.0)
    assert (rate.slowest_rank, rate.ranks, rate.source) == (-1, 1, "JSON lines")


def test_a_rate_is_samples_by_time_and_a_time_the_median(tmp_path: Path) -> None:
    rows = [
        {"step": i, "step_time_s": 1.0 if i % 2 else 3.0, "samples_per_sec": 90 if i % 2 else 30} for i in range(100)
    ]
    rate, time = read(tmp_path, "\n".join(map(json.dumps, rows)) + "\n").values
    assert rate.value == pytest.approx(90 * 2 / 4)  # not the mean of 30 and 90
    assert time.value == 2.0
    assert time.spread is not None
    assert (time.spread.p5, time.spread.p95, time.spread.p99) == (1.0, 3.0, 3.0)
    bare = [{"step": i, "samples_per_sec": 90 if i % 2 else 30} for i in range(100)]
    (rate,) = read(tmp_path / "b", "\n".join(map(json.dumps, bare)) + "\n").values
    assert rate.value == pytest.approx(45), "without times as if steps had equally many samples"


@pytest.mark.parametrize(("count", "skipped"), [(11, 10), (99, 10), (200, 20), (201, 21)])
def test_the_warmup_is_ten_steps_or_ten_percent(tmp_path: Path, count: int, skipped: int) -> None:
    rows = [{"step": i, "seconds": 9.0 if i < skipped else 1.0} for i in range(count)]
    time = first(read(tmp_path, "\n".join(map(json.dumps, rows)) + "\n"))
    assert time.spread is not None
    assert (time.spread.warmup, time.spread.p99, time.value) == (skipped, 1.0, 1.0)


def test_the_warmup_is_counted_in_steps_of_the_program(tmp_path: Path) -> None:
    """A line every 50 steps: the first one has the warm-up in it, the second none of it."""
    rows = [{"step": 50 * i, "seconds": 9.0 if i == 1 else 1.0} for i in range(1, 5)]
    time = first(read(tmp_path, "\n".join(map(json.dumps, rows)) + "\n"))
    assert time.spread is not None
    assert (time.spread.steps, time.spread.warmup, time.spread.p99) == (200, 20, 1.0)


def test_too_few_steps_are_no_value_unless_the_warmup_is_shorter(tmp_path: Path) -> None:
    measured = read(tmp_path / "a", steps(8))
    assert not measured.values
    assert measured.problems[0] == (
        "images_per_s: rank 0: all 8 steps are within the warm-up of 10; run more, set a shorter warm-up, or declare "
        "over_steps: last"
    )
    assert first(read(tmp_path / "b", steps(8), warmup=2)).value == 256


# Ranks.


def test_what_all_ranks_print_alike_is_one_value(tmp_path: Path) -> None:
    rate, time = read(tmp_path, steps(40), steps(40), steps(40, seconds=0.6)).values
    assert (rate.value, rate.over_ranks, rate.ranks) == (256, "first", 3)
    assert (time.value, time.over_ranks, time.slowest_rank, round(time.slowest_by, 3)) == (0.6, "slowest", 2, 0.2)


def test_ranks_that_differ_need_a_declaration(tmp_path: Path) -> None:
    logs = (steps(40, rate=100), steps(40, rate=110), steps(40, rate=120))
    measured = read(tmp_path / "0", *logs)
    assert measured.problems[0] == (
        "images_per_s: 3 ranks print different values (100 of rank 0 to 120 of rank 2); declare over_ranks: sum if "
        "each prints its own part, mean or first if each prints that of all, slowest if they wait for each other"
    )
    for how, value in (("sum", 330), ("mean", 110), ("first", 100), ("slowest", 100)):
        metric = Metric(name="images_per_s", over_ranks=how)  # type: ignore[arg-type]
        found = first(read(tmp_path / how, *logs, metrics=(metric,)))
        assert (found.value, found.over_ranks, found.unit) == (pytest.approx(value), how, "images/s")
        assert (found.slowest_rank, round(found.slowest_by, 3)) == (0, 0.1)


def test_benchmarks_whose_ranks_did_not_find_each_other_are_not_averaged(tmp_path: Path) -> None:
    alone = "Devices:     ['/gpu:0']\ntotal images/sec: {}\n"
    measured = read(tmp_path / "a", alone.format(300.1), alone.format(290.2))
    assert "2 ranks print different values" in measured.problems[0]
    together = "Devices:     ['horovod/gpu:0', 'horovod/gpu:1']\ntotal images/sec: {}\n"
    assert first(read(tmp_path / "b", together.format(600), together.format(602))).value == 601


def test_many_ranks_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackyard.study.metrics.read.MOST_LOGS", 2)
    logs = (steps(20, rate=100 + rank) for rank in range(5))
    measured = read(tmp_path, *logs, metrics=(Metric(name="images_per_s", over_ranks="mean"),))
    assert measured.notes == ("the logs of 3 of 5 ranks were read",)  # a first one, every second, the last
    assert (measured.values[0].value, measured.values[0].ranks) == (pytest.approx(307 / 3), 3)


# Declared.


def test_a_pattern_a_key_and_a_tag_are_declared() -> None:
    assert measured_by(r"images/s=speed: (\S+)") == Metric(name="images/s", pattern=r"speed: (\S+)")
    assert measured_by("images_per_s") == Metric(name="images_per_s")
    assert Metric(name="t", key="t", kind="time").quantity == Quantity("t", "", "time", "lower", "")
    for text in ("", "a=(", "a=no group", "a=(two)(groups)"):
        with pytest.raises(InputError, match="not NAME=PATTERN"):
            measured_by(text)
    with pytest.raises(ValueError, match="one of pattern, key and tag"):
        Metric(name="a", key="b", pattern="(c)")


def test_declared_metrics_alone_are_read_in_their_order(tmp_path: Path) -> None:
    log = steps(20, lr=0.1, perf={"tokens": 12.5}) + "speed now 1,234.5 img/s\nspeed now 1.3e+3 img/s\n"
    metrics = (
        Metric(name="speed", pattern=r"speed now (\S+)", unit="img/s", over_steps="last"),
        Metric(name="tokens", key="perf.tokens", unit="tokens/s"),
        Metric(name="absent", pattern="(never)"),
    )
    measured = read(tmp_path, log, metrics=metrics)
    assert [(str(one), one.name, one.source) for one in measured.values] == [
        ("1300 img/s", "speed", "declared"), ("12.5 tokens/s", "tokens", "JSON lines"),
    ]  # fmt: skip
    assert measured.problems == ("absent: not in the output of any rank; see its log",)


def test_a_declared_time_is_the_median_after_the_warmup(tmp_path: Path) -> None:
    log = "".join(f"iter {i}: loss 4.1, time {500 if i < 10 else 560 + i % 3}.5ms\n" for i in range(40))
    metric = Metric(name="step", pattern=r"time ([\d.]+)ms", kind="time", unit="ms")
    found = first(read(tmp_path, log, metrics=(metric,)))
    assert (found.value, found.better, found.unit) == (561.5, "lower", "ms")


@pytest.mark.parametrize(("name", "unit", "kind"), [
    ("images_per_s", "images/s", "rate"), ("tokens_per_sec", "tokens/s", "rate"), ("a/samples_per_second",
     "a/samples/s", "rate"), ("throughput", "1/s", "rate"), ("img/s", "img/s", "rate"), ("step_time_ms", "ms", "time"),
    ("step_time", "s", "time"), ("seconds", "s", "time"), ("train/iteration_seconds", "s", "time"),
])  # fmt: skip
def test_names_say_what_they_are(name: str, unit: str, kind: str) -> None:
    found = known_quantity(name)
    assert found is not None
    assert (found.unit, found.kind) == (unit, kind)


def test_other_names_are_not_taken_for_rates() -> None:
    assert not any(
        map(known_quantity, ("loss", "lr", "time", "step", "epoch", "per_second_cost", "elapsed", "loss/step"))
    )
    assert known_quantity("\x1b[31mimages_per_s") is known_quantity("x" * 100 + "_per_s") is None


# Bad days.


def test_a_killed_program_has_no_half_number(tmp_path: Path) -> None:
    log = "total images/sec: 20"
    assert not read(tmp_path / "killed", log, state="failed").values
    assert first(read(tmp_path / "done", log)).value == 20


def test_nan_is_no_value(tmp_path: Path) -> None:
    measured = read(tmp_path / "a", "total images/sec: nan\n")
    assert measured.problems == ("images_per_s: rank 0: it is not a finite number above 0",)
    broken = steps(40).replace('"images_per_s": 256.0', '"images_per_s": NaN', 25)
    measured = read(tmp_path / "b", broken)
    assert first(measured).value == 256
    assert measured.notes == ("25 values of images_per_s of rank 0 are not numbers above 0: left out",)
    measured = read(tmp_path / "c", steps(40).replace("256.0", "-1").replace("25.6", "0"))
    assert measured.problems == ("images_per_s: rank 0: it is not a finite number above 0",)


def test_nothing_known_says_what_to_do(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, "hello\n").problems
    assert problem == "no metric: no known format in the output of any rank; declare one (--measure 'NAME=PATTERN')"
    assert "no known format" in read(tmp_path / "b").problems[0], "no log at all"


@pytest.mark.parametrize("line", [
    b"\x00\xff\xfe it/s 3/4 [00:01<00:02, 2it/s", b'{"step": 1e999, "images_per_s": 1e400}', b"[" * 60_000 + b"it/s",
    b'{"step": ' + b"[" * 60_000, b'{"step": {"a": 1}, "images_per_s": [1]}', b'{"step": true, "seconds": 1}',
    b'{"step": ' + b"9" * 5000 + b', "images_per_s": 5}', b"1" * 60_000 + b"/1 [1:11<1:11, 1it/s",
    b" " * 60_000 + b"it/s", b"iteration " * 6000 + b"elapsed time per iteration (ms): x", b"x" * 3_000_000,
    "Total img/sec on ٤ GPU(s): ٤٣٢".encode(), b'{"step": 3, "images_per_s": 1e-320, "seconds": 1e308}',
], ids=range(13))  # fmt: skip
def test_lines_that_hurt_are_passed_over(tmp_path: Path, line: bytes) -> None:
    measured = read(tmp_path, line + b"\n" + steps(20).encode() + line)
    assert measured.values[0].value == pytest.approx(256)


def test_long_lines_are_skipped_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    half = b"a" * lines.BLOCK
    log.write_bytes(b"first\n" + half + half + b"end of a long line\r\nlast")
    assert list(lines.lines(log, ended=True)) == [b"first", b"last"]
    assert list(lines.lines(log, ended=False)) == [b"first"]
    log.write_bytes(b"a" * (lines.LONGEST + 1) + b"\n" + b"b" * lines.LONGEST + b"\n")
    assert [line[:1] for line in lines.lines(log, ended=True)] == [b"b"]
    log.write_bytes(half)
    assert list(lines.lines(log, ended=True)) == []


def test_a_million_lines_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small part of it, with smaller bounds: only numbers are kept, and of some too many that is said."""
    monkeypatch.setattr(series, "MOST", 6000)
    monkeypatch.setattr("stackyard.study.metrics.read.MOST", 6000)
    monkeypatch.setattr(lines, "BLOCK", 1 << 14)
    text = '{"step": %d, "loss": 1.5, "images_per_s": 256.0, "text": "' + "x" * 1000 + '"}\n'
    paths = run_of(tmp_path, "".join(text % i for i in range(10_000)))
    tracemalloc.start()
    measured = read_run(paths, energy=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first(measured).value == 256
    assert measured.notes == ("4000 values of images_per_s of rank 0 come after 6,000 others: left out",)
    assert peak < 2_000_000 < 10_000_000 < paths.main.rank_log(0).stat().st_size, peak


def test_a_log_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    paths = run_of(tmp_path, steps(20))
    os.mkfifo(paths.main.rank_log(1))
    (paths.main.logs / "rank-x.log").write_text("not a rank")
    measured = read_run(paths, energy=False)
    assert measured.values[0].value == 256
    assert measured.notes == ("the log of rank 1 was not read: not a regular file",)


# Plug-ins.


class Lammps(Format):
    """A format of another distribution."""

    name = "lammps"
    needles = (b"timesteps/s",)

    def read(self, line: str) -> None:
        self.of(Quantity("timesteps_per_s", "1/s"), final=True).add(float(line.split()[1]))


def test_a_plugin_adds_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = plugins.EntryPoint("lammps", "x:Lammps", "lammps 1.0")
    monkeypatch.setattr(
        plugins, "load", lambda group, name: plugins.Plugin(Lammps, source) if name == "lammps" else None
    )
    assert formats(["lammps"])[0] is Lammps
    log = "Performance: 104.5 timesteps/s\n"
    assert first(read(tmp_path / "a", log, plugins=("lammps",))).value == 104.5
    assert not read(tmp_path / "b", log).values
    with pytest.raises(InputError, match="no such format of metrics: gromacs"):
        read(tmp_path / "c", log, plugins=("gromacs",))


# Memory and energy.


def test_memory_is_that_of_the_largest_rank(tmp_path: Path) -> None:
    paths = run_of(tmp_path, steps(20))
    assert read_run(paths, energy=False).memory is None
    ranks = [{"task": 0, "peak_bytes": 5}, {"task": 3, "peak_bytes": 9, "gpu_peak_bytes": 7}]
    paths.usage.write_text(json.dumps({"format": 1, "ranks": ranks}))
    assert read_run(paths, energy=False).memory == Memory(9, 3, 7)
    for damage in (
        "",
        "[]",
        '{"ranks": 3}',
        '{"ranks": [7]}',
        '{"ranks": [{"task": [], "peak_bytes": 1}]}',
        "[" * 9999,
    ):
        paths.usage.write_text(damage)
        assert read_run(paths, energy=False).memory is None


SACCT = """\
#!/usr/bin/env python3
import os, sys
assert sys.argv[1:] == "-n -P -j 77 -o JobID,Start,End,ConsumedEnergyRaw".split(), sys.argv
assert os.environ["SLURM_TIME_FORMAT"] == "%s"
print(open(os.path.join(os.path.dirname(__file__), "rows")).read(), end="")
"""
"""Stands in for sacct, which no test cluster has with counters; its options are in sacct(1)."""


@pytest.mark.parametrize(("rows", "joules", "why"), [
    ("77|990|2100|90000\n77.batch|990|2100|800\n77.0|1001|1002|5\n77.1|1003|1999|4200\n77.2|2500|2600|70\n", 4200, ""),
    ("77|990|2100|0\n77.0|1001|1999|0\n", None, "Slurm has no counters"),
    ("77.0|1001|1999|18446744073709551614\n", None, "Slurm has no counters"),
    ("77.0|1001|Unknown|12\n", None, "accounting does not have the end of its step"),
    ("77|990|2100|90000\n77.batch|990|2100|800\n", None, "accounting has no step of this run"),
    ("77.0|500|900|12\n77.1|2500|2600|70\n", None, "accounting has no step of this run"),
])  # fmt: skip
def test_energy_is_that_of_the_last_step_within_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str, joules: float | None, why: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sacct").write_text(SACCT)
    (tmp_path / "bin/sacct").chmod(0o755)
    (tmp_path / "bin/rows").write_text(rows)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(resources, "LATE_S", 0)
    own = read_run(run_of(tmp_path, scheduler="slurm", intent={"batch": {"exclusive": True}})).energy
    # a run of a study, within a job that has several: the same by the number of that job
    within = run_of(tmp_path, scheduler="slurm", name="b")
    write_status(within, RunStatus("done", started=1000, ended=2000))
    for found in (own, read_run(within, job="77", whole_nodes=True).energy):
        assert found.joules == joules
        assert (why or "Slurm's ConsumedEnergyRaw") in found.source


def test_a_step_whose_end_is_accounted_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sacct").write_text(f"{SACCT}os.system('cd {tmp_path} && cp later rows')\n")
    (tmp_path / "sacct").chmod(0o755)
    (tmp_path / "rows").write_text("77.0|1001|Unknown|0\n")
    (tmp_path / "later").write_text("77.0|1001|1999|4200\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(resources, "LATE_S", 0)
    paths = run_of(tmp_path, scheduler="slurm", intent={"batch": {"exclusive": True}})
    assert read_run(paths).energy == Energy(4200, "Slurm's ConsumedEnergyRaw")


def test_energy_of_shared_nodes_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status = RunStatus("done", job="77", started=1, ended=2)
    shared = run_of(tmp_path, scheduler="slurm", name="a")
    assert energy_of(shared, status) == Energy(None, "not measured: the job may share its nodes (--exclusive)")
    assert energy_of(shared, status, whole_nodes=True).source.startswith("not measured: sacct")
    assert "no Slurm job" in energy_of(run_of(tmp_path, name="b"), status).source
    outside = RunStatus("done", started=1, ended=2)
    assert "no Slurm job" in energy_of(shared, outside, whole_nodes=True).source


def test_the_energy_of_gpus_is_that_of_their_counters(tmp_path: Path) -> None:
    paths = run_of(tmp_path, steps(20))
    assert read_run(paths, energy=False).gpu_energy is None
    value = {"joules": 7200, "gpus": 2, "source": "NVML's counters of the GPUs", "notes": ["others used GPU 1 of n0"]}
    paths.usage.write_text(json.dumps({"format": 1, "ranks": [], "gpu_energy": value}))
    source = "NVML's counters of the GPUs; others used GPU 1 of n0"
    assert read_run(paths, energy=False).gpu_energy == Energy(7200, source)
    paths.usage.write_text(json.dumps({"gpu_energy": {**value, "joules": None, "notes": 3}}))
    assert read_run(paths, energy=False).gpu_energy is None


def test_what_was_measured_is_json(tmp_path: Path) -> None:
    measured = read(tmp_path, steps(40), megatron(1, 40))
    plain = json.loads(json.dumps(measured.to_json(), allow_nan=False))
    assert plain["values"][0]["name"] == "images_per_s"
    assert plain["values"][0]["spread"]["median"] == 256
    assert math.isclose(plain["values"][0]["value"], 256)
