"""jsrun, PALS and Flux: every rendering goes through a program that reads options by the launcher's manual.

The stand-ins place ranks by themselves; they are asked where each rank is, and that is compared with the layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launcherbed import CSM, ready

from stackyard.host.run.command import run
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Layout, Node, NodeDomain
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.plan.launchers import get
from stackyard.launch.plan.model import LaunchRequest
from stackyard.launch.request.intent import Intent
from support.standins import MACHINES, USUAL, Family, placed, standins

FAMILIES: dict[Family, tuple[str, Scheduler]] = {
    "lsf": ("jsrun", CSM),
    "pbs": ("pals", Scheduler(kind="pbs")),
    "flux": ("flux", Scheduler(kind="flux")),
}
INTENTS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "own GPUs": {"gpu_visibility": "own"},
    "one rank": {"ranks_per_node": 1},
    "two ranks of all GPUs": {"ranks_per_node": 2},
    "cores left idle": {"ranks_per_node": 4, "cores_per_rank": 5},
    "a core each": {"ranks_per_node": 4, "cores_per_rank": 1, "gpus_per_rank": 0},
    "sockets, no GPUs": {"ranks_per_node": 2, "gpus_per_rank": 0},
    "no GPUs": {"ranks_per_node": 4, "gpus_per_rank": 0},
    "all hardware threads": {"smt": 4},
    "two hardware threads": {"smt": 2},
    "two ranks share a GPU": {"ranks_per_node": 12, "cores_per_rank": 2},
    "their own shared GPU": {"ranks_per_node": 12, "cores_per_rank": 2, "gpu_visibility": "own"},
    "dealt": {"distribution": "cyclic"},
    "dealt, own GPUs": {"distribution": "cyclic", "gpu_visibility": "own"},
}


def node_of(machine: str) -> Node:
    told = MACHINES[machine]
    domains = tuple(NodeDomain(d["socket"], tuple(d["cores"]), tuple(d["gpus"])) for d in told["domains"])
    return Node(machine, domains, told["all_cores"], told["smt"], told["numbering"], told["vendor"])


def cores_of(node: Node, cpus: list[int]) -> set[int]:
    """The operating system's cores of hardware threads."""
    return {cpu // node.smt if node.smt_numbering == "adjacent" else cpu % node.all_cores for cpu in cpus}


def check(layout: Layout, ranks: list[dict[str, Any]], hosts: list[str], gpus: bool) -> None:
    where = {rank["rank"]: rank for rank in ranks}
    assert sorted(where) == list(range(layout.ranks))
    for number, host, slot in layout.places():
        rank = where[number]
        assert rank["host"] == hosts[host]
        assert cores_of(layout.node, rank["cpus"]) == {layout.node.os_core(core) for core in slot.cores}
        if gpus and layout.gpus_per_rank:
            seen = slot.gpus if layout.gpu_visibility == "own" else range(layout.node.gpus)
            assert set(rank["gpus"]) == set(seen)


def cases() -> list[tuple[Family, str]]:
    """PALS has no option that deals ranks over hosts; four threads per core are POWER's."""
    not_there = {("pbs", "dealt"), ("pbs", "dealt, own GPUs"), *((f, "all hardware threads") for f in ("pbs", "flux"))}
    return [(family, what) for family in FAMILIES for what in INTENTS if (family, what) not in not_there]


@pytest.mark.parametrize(("family", "what"), cases())
def test_ranks_are_where_the_layout_has_them(family: Family, what: str, tmp_path: Path) -> None:
    name, scheduler = FAMILIES[family]
    layout = plan_layout(Intent(nodes=2, **INTENTS[what]), node_of(USUAL[family]))
    assert not [finding for finding in layout.findings if finding.severity == "refused"]
    env = standins(tmp_path, family, inside=True)
    line = get(name).line(LaunchRequest(layout, scheduler, mpi=True))
    run([*ready(line, tmp_path / "step"), "true"], env=env, timeout_s=240)
    # PALS gives out no GPUs: the rank's script sets what a rank sees.
    check(layout, placed(env), MACHINES[USUAL[family]]["hosts"], gpus=family != "pbs")


@pytest.mark.parametrize("family", ["lsf", "pbs"])
def test_some_hosts_of_an_allocation_are_named(family: Family, tmp_path: Path) -> None:
    name, scheduler = FAMILIES[family]
    hosts = MACHINES[USUAL[family]]["hosts"]
    layout = plan_layout(Intent(nodes=2), node_of(USUAL[family]), (hosts[1], hosts[3]))
    env = standins(tmp_path, family, inside=True, nodes=4)
    line = get(name).line(LaunchRequest(layout, scheduler, inside=False))
    run([*ready(line, tmp_path / "step"), "true"], env=env, timeout_s=240)
    check(layout, placed(env), [hosts[1], hosts[3]], gpus=family != "pbs")


@pytest.mark.parametrize("machine", ["aurora", "polaris", "tuolumne"])
def test_pals_on_other_nodes(machine: str, tmp_path: Path) -> None:
    layout = plan_layout(Intent(nodes=2), node_of(machine), tuple(MACHINES[machine]["hosts"][:2]))
    env = standins(tmp_path, "pbs", machine=machine, inside=True)
    line = get("pals").line(LaunchRequest(layout, Scheduler(kind="pbs"), mpi=True))
    run([*ready(line, tmp_path / "step"), "true"], env=env, timeout_s=240)
    check(layout, placed(env), MACHINES[machine]["hosts"], gpus=False)


@pytest.mark.parametrize("smt", [1, 2, 4])
def test_erf_counts_the_threads_that_the_job_has(smt: int, tmp_path: Path) -> None:
    """Under -alloc_flags smtN the logical numbers of an ERF file change."""
    scheduler = Scheduler(kind="lsf", csm=True, alloc_flags=("gpumps", f"smt{smt}"))
    layout = plan_layout(Intent(nodes=2, ranks_per_node=4, cores_per_rank=10), node_of("summit"))
    line = get("jsrun").line(LaunchRequest(layout, scheduler))
    assert "--erf_input" in line.words
    env = standins(tmp_path, "lsf", inside=True) | {"STANDIN_SMT": str(smt)}
    run([*ready(line, tmp_path / "step"), "true"], env=env, timeout_s=240)
    check(layout, placed(env), MACHINES["summit"]["hosts"], gpus=True)
    assert all(len(rank["cpus"]) == 10 * smt for rank in placed(env))
