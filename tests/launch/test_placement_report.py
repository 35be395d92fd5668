"""Planned and actual places of ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.host.machine.ranges import ranges
from stackyard.launch.node.step import PlannedSlot, StepFile
from stackyard.launch.records.outcome import Placement
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.run.placement import fold, placement_report

SLOTS = tuple(PlannedSlot(tuple(range(7 * i, 7 * i + 7)), (i,)) for i in range(2))


def plan(nodes: int = 4, **changes: object) -> StepFile:
    hosts = tuple(f"n{i + 1}" for i in range(nodes))
    made = StepFile(
        "r", "secret", "id", (), "slurm", nodes, 2, hosts=hosts, slots=SLOTS, gpu_visibility="own", gpu_vendor="nvidia"
    )
    return replace(made, **changes)


def places(file: StepFile) -> list[Placement]:
    found = []
    for task in range(file.tasks):
        node, local = (task % file.nodes, task // file.nodes) if file.distribution == "cyclic" else divmod(task, 2)
        found.append(Placement(task, f"n{node + 1}", 100 + task, SLOTS[local].cpus, str(local)))
    return found


@pytest.mark.parametrize("distribution", ["block", "cyclic"])
def test_all_as_planned(distribution: str) -> None:
    file = plan(distribution=distribution)
    made = placement_report(file, places(file))
    assert made.summary() == "8 of 8 ranks as planned"
    assert [(node.hosts, node.count) for node in made.nodes] == [("n[1-4]", 4)]


def test_a_domain_is_no_difference() -> None:
    file = plan(hosts=tuple(f"n{i}.cluster.example" for i in range(1, 5)))
    assert placement_report(file, places(file)).as_planned == 8


def test_another_host_and_other_cpus_differ_and_are_named() -> None:
    file = plan()
    real = places(file)
    real[5] = replace(real[5], host="n2")
    real[6] = replace(real[6], cpus=(0, 1, 2))
    made = placement_report(file, real)
    assert (made.as_planned, made.differing) == (6, 2)
    assert "rank 5 (n2): on n2 instead of n3" in made.summary()
    assert "rank 6 (n4): on CPUs 0-2 instead of 0-6" in made.summary()
    assert sorted(node.hosts for node in made.nodes) == ["n3", "n4", "n[1-2]"]


def test_ranks_that_nobody_bound_are_not_enforced_here() -> None:
    file = plan()
    made = placement_report(file, [replace(one, cpus=tuple(range(32))) for one in places(file)])
    assert made.not_enforced == 8 and made.differing == 0
    assert made.summary() == "cores: not enforced here (the scheduler does not bind)"


def test_a_rank_alone_on_its_node_with_more_than_planned_is_not_enforced() -> None:
    file = plan(tasks_per_node=1, slots=SLOTS[:1])
    real = [Placement(i, f"n{i + 1}", 1, tuple(range(32)), "0") for i in range(4)]
    assert placement_report(file, real).not_enforced == 4
    assert placement_report(file, [replace(one, cpus=(0,)) for one in real]).differing == 4


@pytest.mark.parametrize(
    ("seen", "counts"),
    [("", (0, 0, 2)), ("1", (1, 1, 0)), ("0", (1, 0, 1)), ("0,1,2", (0, 2, 0)), ("GPU-aaaa", (2, 0, 0)),
     ("GPU-a,GPU-b", (0, 2, 0))],
)  # fmt: skip
def test_what_a_rank_sees_of_the_gpus(seen: str, counts: tuple[int, int, int]) -> None:
    file = plan(nodes=1)
    made = placement_report(file, [replace(one, gpus=seen) for one in places(file)])
    assert (made.as_planned, made.differing, made.not_enforced) == counts


@pytest.mark.parametrize(("seen", "fine"), [("", True), ("1,0", True), ("0", False)])
def test_all_gpus_of_the_node_in_any_order(seen: str, fine: bool) -> None:
    file = plan(nodes=1, gpu_visibility="all")
    assert (placement_report(file, [replace(one, gpus=seen) for one in places(file)]).as_planned == 2) == fine


def test_ranks_that_were_never_seen_are_counted() -> None:
    file = plan()
    made = placement_report(file, places(file)[:6])
    assert made.missing == 2
    assert made.summary() == "6 of 8 ranks as planned; 2 ranks did not report"


def test_eighty_thousand_ranks_stay_readable() -> None:
    nodes, slots = 10_000, tuple(PlannedSlot((i,), ()) for i in range(8))
    file = StepFile(
        "r", "secret", "id", (), "slurm", nodes, 8, hosts=tuple(f"n{i:05d}" for i in range(nodes)), slots=slots
    )
    real = [Placement(t, f"n{t // 8:05d}", 1, (t % 8,)) for t in range(file.tasks)]
    real[4242] = replace(real[4242], host="n77777")
    text = json.dumps(placement_report(file, real).to_json())
    assert len(text) < 5000
    assert "rank 4242 (n77777): on n77777 instead of n00530" in text


def test_hosts_of_the_step_serve_where_the_plan_had_none() -> None:
    file = plan(hosts=())
    assert placement_report(file, places(file), ("n1", "n2", "n3", "n4")).as_planned == 8
    assert placement_report(file, places(file)).as_planned == 8


def test_folding() -> None:
    assert ranges([3, 1, 2, 9]) == "1-3,9"
    assert fold(["n1", "n2", "n4", "login", "a08", "a09", "a10"]) == "n[1-2,4],a[08-09],a10,login"


def test_runs_recorded_under_the_old_names_are_found(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert [paths.placement.name, paths.preflight.name] == ["placement.json", "preflight.json"]
    (tmp_path / "receipt.json").touch()
    (tmp_path / "gate" / "1").mkdir(parents=True)
    (tmp_path / "gate.json").touch()
    assert [paths.placement.name, paths.preflight.name] == ["receipt.json", "gate.json"]
    assert paths.preflight_step(1).root == tmp_path / "gate" / "1"
    paths.root.joinpath("placement.json").touch()
    assert paths.placement.name == "placement.json"
