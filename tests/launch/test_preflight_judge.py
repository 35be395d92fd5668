"""What the preflight makes of numbers and facts: pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.sites.sitemodels import Reference
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.preflight import trial
from stackyard.launch.preflight.judge import floor, judge
from stackyard.launch.preflight.model import Measurement, PreflightReport, Stage, Verdict
from stackyard.launch.preflight.node.compare import compare
from stackyard.launch.preflight.node.groups import rounds
from stackyard.launch.preflight.node.rank import device_of
from stackyard.launch.records.outcome import Failure, StepResult

NODE = {"cpu": "EPYC", "cores": 64, "memory_gib": 503.2, "gpus": ["H100 81559 MiB"] * 4, "driver": "550.54.15",
        "kernel": "5.14.0", "glibc": "glibc 2.34", "hugepages": 0, "clock_s": 0.0, "gpu_errors": []}  # fmt: skip


def nodes(count: int = 4, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"n{i}": {**NODE, **changes.get(f"n{i}", {})} for i in range(1, count + 1)}


def measured(*values: float, name: str = "memory", unit: str = "GB/s") -> list[Measurement]:
    return [Measurement(name, value, unit, (f"n{i + 1}",)) for i, value in enumerate(values)]


# ------------------------------------------------------------------------------------------------ against references


@pytest.mark.parametrize(
    ("value", "outcome"), [(100, "passed"), (80.1, "passed"), (79.9, "slow"), (109.9, "passed"), (110.1, "odd")]
)
def test_a_reference_has_a_lower_and_an_upper_limit(value: float, outcome: str) -> None:
    reference = Reference(name="memory", value=100, low=0.2, high=0.1, unit="GB/s")
    assert judge(measured(value), [reference])[0].outcome == outcome


def test_without_an_upper_limit_nothing_is_too_fast() -> None:
    reference = Reference(name="allreduce_all", value=450, low=0.1)
    assert judge(measured(482, name="allreduce_all"), [reference])[0].outcome == "passed"


@pytest.mark.parametrize(("unit", "value"), [("Gbit/s", 800), ("MB/s", 100_000), ("TB/s", 0.1), ("GiB/s", 93.13)])
def test_units_are_converted(unit: str, value: float) -> None:
    reference = Reference(name="memory", value=value, low=0.01, high=0.01, unit=unit)
    assert judge(measured(100), [reference])[0].outcome == "passed"
    assert judge(measured(90), [reference])[0].outcome == "slow"


def test_a_reference_in_another_kind_of_unit_is_an_error() -> None:
    with pytest.raises(InputError, match="reference memory is in GHz, the measurement in GB/s"):
        judge(measured(100), [Reference(name="memory", value=3, low=0.1, unit="GHz")])


def test_an_unjudged_reference_leaves_the_comparison_with_the_others() -> None:
    reference = Reference(name="memory", value=100)
    assert [v.outcome for v in judge(measured(100, 98, 30), [reference])] == ["passed", "passed", "slow"]


# ------------------------------------------------------------------------------------------------ against the others


def test_the_slow_one_of_three_is_named_with_the_median() -> None:
    verdicts = judge(measured(200, 190, 60, 195), [])
    assert [v.outcome for v in verdicts] == ["passed", "passed", "slow", "passed"]
    assert "n3" in verdicts[2].message and "median" in verdicts[2].message


def test_two_cannot_outvote_each_other() -> None:
    assert {v.outcome for v in judge(measured(200, 20), [])} == {"passed"}


def test_what_is_only_told_is_never_judged_against_the_others() -> None:
    assert {v.outcome for v in judge(measured(1, 1, 1, 60, name="import", unit="s"), [])} == {"passed"}


def test_the_least_that_a_group_must_reach() -> None:
    pairs = measured(10, 10, 2, 2, 10, name="allreduce_pair")
    assert floor("allreduce_pair", "GB/s", pairs, []) == pytest.approx(3.3)
    reference = Reference(name="allreduce_pair", value=100, low=0.2, unit="Gbit/s")
    assert floor("allreduce_pair", "GB/s", pairs, [reference]) == pytest.approx(10)
    assert floor("allreduce_all", "GB/s", measured(1, name="allreduce_all"), []) == 0


# ------------------------------------------------------------------------------------------------ hardware, clocks


def test_equal_nodes_do_not_differ() -> None:
    assert compare(nodes(n2={"memory_gib": 502.9}, n3={"clock_s": 0.02})) == []


@pytest.mark.parametrize(
    ("change", "what", "hard"),
    [({"cpu": "Xeon"}, "cpu", True), ({"gpus": ["H100 81559 MiB"] * 3}, "gpus", True),
     ({"driver": "535.1"}, "driver", True), ({"memory_gib": 251.5}, "memory_gib", True), ({"cores": 32}, "cores", True),
     ({"clock_s": 3.2}, "clock", True), ({"clock_s": -61.0}, "clock", True), ({"kernel": "5.14.1"}, "kernel", False),
     ({"glibc": "glibc 2.28"}, "glibc", False)],
)  # fmt: skip
def test_the_odd_node_is_named(change: dict[str, Any], what: str, hard: bool) -> None:
    (found,) = compare(nodes(n3=change))
    assert (found.host, found.what, found.hard, found.clear) == ("n3", what, hard, True)
    assert str(found).startswith("n3: ")


def test_the_reference_nodes_own_clock_can_be_the_wrong_one() -> None:
    found = compare(nodes(n2={"clock_s": 5.0}, n3={"clock_s": 5.01}, n4={"clock_s": 4.99}))
    assert [difference.host for difference in found] == ["n1"]


def test_two_nodes_that_differ_are_not_clear() -> None:
    (found,) = compare(nodes(2, n2={"driver": "535.1"}))
    assert found.hard and not found.clear


def test_memory_errors_of_a_gpu_are_its_nodes_fault() -> None:
    (found,) = compare(nodes(n2={"gpu_errors": ["GPU 1: 3 memory errors"]}))
    assert str(found) == "n2: GPU 1: 3 memory errors"


# ------------------------------------------------------------------------------------------------ reading a step


def layout(distribution: Any = "block") -> Layout:
    node = Node("k", (NodeDomain(0, tuple(range(8))),), 8)
    slots = (Slot(0, (0,)), Slot(1, (1,)))
    return Layout(node, (Block(0, 3, slots),), distribution=distribution, hosts=("n1", "n2", "n3"))


def test_the_planned_host_of_a_rank() -> None:
    for distribution in ("block", "cyclic"):
        made = layout(distribution)
        assert all(trial.host_of(made, rank) == made.host(host) for rank, host, _ in made.places())


def stage(name: str, outcome: str = "done", **more: Any) -> dict[str, Any]:
    return {"name": name, "outcome": outcome, "reason": "", "seconds": 1.0, "measurements": [], "silent": [],
            "errors": [], **more}  # fmt: skip


def read(tmp_path: Path, *stages: dict[str, Any], finished: bool = True, **more: Any) -> trial.Trial:
    told = {"format": 1, "stages": stages, "facts": {}, "finished": finished, **more}
    (tmp_path / "result.json").write_text(json.dumps(told))
    result = StepResult("done" if finished else "failed", 0 if finished else 3)
    return trial.read(tmp_path, ("n1", "n2", "n3"), layout(), result, ())


def pair(a: str, b: str, value: float) -> dict[str, Any]:
    return {"name": "allreduce_pair", "value": value, "unit": "GB/s", "hosts": [a, b], "backend": "nccl"}


def test_slow_pairs_are_evidence_not_a_conviction(tmp_path: Path) -> None:
    made = read(
        tmp_path, stage("pairs", measurements=[pair("n1", "n2", 9), pair("n2", "n3", 1), pair("n1", "n3", 9.5)])
    )
    assert not made.passed and not made.bad
    assert dict(made.pairs) == {("n1", "n2"): True, ("n2", "n3"): False, ("n1", "n3"): True}


def test_a_slow_node_by_itself_is_convicted(tmp_path: Path) -> None:
    numbers = [
        {"name": "cpu", "value": v, "unit": "GFLOP/s", "hosts": [h]} for h, v in (("n1", 90), ("n2", 30), ("n3", 91))
    ]
    made = read(tmp_path, stage("libraries", measurements=numbers))
    assert list(made.bad) == ["n2"] and made.failing is not None and made.failing.outcome == "slow"


def test_a_missing_rank_convicts_its_planned_host(tmp_path: Path) -> None:
    silent = [{"rank": 4, "host": "", "at": "start", "peers": []}]
    made = read(tmp_path, stage("identity", "failed", silent=silent, missing_hosts=[]), finished=False)
    assert made.bad == {"n3": "rank 4 did not connect"}


def test_hanging_together_convicts_nobody_but_ending_does(tmp_path: Path) -> None:
    hung = [{"rank": r, "host": f"n{r // 2 + 1}", "at": "connected", "peers": []} for r in range(6)]
    made = read(tmp_path, stage("all", "failed", silent=hung), finished=False)
    assert not made.passed and not made.bad
    lost = [{**hung[2], "at": "lost"}]
    assert read(tmp_path, stage("all", "failed", silent=lost), finished=False).bad == {"n2": "rank 2 ended in all"}


def test_only_a_clear_hard_difference_convicts(tmp_path: Path) -> None:
    said = {"host": "n2", "what": "driver", "value": "535.1", "usual": "550.54", "hard": True, "clear": True}
    failed = stage("hosts", "failed", reason="differs")
    assert read(tmp_path, failed, finished=False, differences=[said]).bad == {
        "n2": "driver is 535.1, on most nodes 550.54"
    }
    assert read(tmp_path, failed, finished=False, differences=[{**said, "clear": False}]).bad == {}
    soft = read(tmp_path, stage("hosts"), differences=[{**said, "hard": False, "what": "kernel"}])
    assert soft.passed and soft.differences == ("n2: kernel is 535.1, on most nodes 550.54",)


def test_a_skipped_stage_is_not_passed_and_stops_nobody(tmp_path: Path) -> None:
    made = read(tmp_path, stage("gloo", "skipped", reason="no torch"))
    assert made.stages[0].outcome == "skipped" and made.passed


@pytest.mark.parametrize(
    ("result", "bad"),
    [(StepResult("node-lost", 1, Failure(-1, "n2", 1, (), None, "n2 was lost")), {"n2": "n2 was lost"}),
     (StepResult("no-start", 1, hosts=("n1", "n3")), {"n2": "did not report"}),
     (StepResult("no-start", 1, launcher_output="srun: error: no"), {}),
     (StepResult("failed", 1, Failure(4, "n3", 1, ("cannot reach rank 0",))), {})],
)  # fmt: skip
def test_without_a_result_only_what_the_hub_saw_convicts(
    tmp_path: Path, result: StepResult, bad: dict[str, str]
) -> None:
    made = trial.read(tmp_path, ("n1", "n2", "n3"), layout(), result, ())
    assert dict(made.bad) == bad and not made.passed


# ------------------------------------------------------------------------------------------------ small things


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9])
def test_neighbours_meet_in_rounds_of_disjoint_pairs(count: int) -> None:
    made = rounds(count)
    met = [frozenset(pair) for pairs in made for pair in pairs]
    ring = {frozenset((i, (i + 1) % count)) for i in range(count)}
    assert set(met) == ring and len(met) == len(ring)
    assert len(made) == (1 if count == 2 else 2 + count % 2)
    for pairs in made:
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)


def test_which_gpu_is_a_ranks_own() -> None:
    assert device_of(1, 3, {}) == 0
    assert device_of(4, 3, {}) == 3
    assert device_of(4, 3, {"STACKYARD_DEVICE": "1"}) == 1
    with pytest.raises(ValueError, match="local rank 3 sees 2 GPUs"):
        device_of(2, 3, {})


def test_a_report_is_read_by_people_and_programs() -> None:
    slow = Verdict("cpu", ("n2",), "slow", "cpu is 30 GFLOP/s on n2, median 90")
    stages = (
        Stage("libraries", "slow", slow.message, 1.0, tuple(measured(90, 30, 91, name="cpu", unit="GFLOP/s")), (slow,)),
        Stage("gpus", "skipped", "no GPU driver answers on any node"),
    )
    report = PreflightReport(False, (), (), {"n2": slow.message}, stages, steps=1, seconds=2.5)
    lines = report.summary()
    assert lines[0].startswith("libraries, CPU and memory: slow (") and "cpu 30 to 91 GFLOP/s" in lines[0]
    assert lines[1] == "GPUs: skipped (no GPU driver answers on any node)"
    assert lines[-1] == "preflight failed (2.5 s)"
    assert json.loads(json.dumps(report.to_json()))["bad"] == {"n2": slow.message}


def test_a_start_that_ended_between_two_stages_is_a_failure_of_its_own(tmp_path: Path) -> None:
    """As where a library of MPI crashes: all stages so far passed, and none follows."""
    numbers = [{"name": "allreduce_pair", "value": 1.0, "unit": "GB/s", "hosts": ["n1", "n2"]}]
    made = read(tmp_path, stage("pairs", measurements=numbers), finished=False)
    assert not made.passed and made.stages[0].good and made.failing is made.stages[1]
    assert made.pairs == ((("n1", "n2"), True),)
