"""The machines of examples/: every site file gives a node, and the usual job there is laid out without a complaint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from stackyard.host.machine.ranges import ranges
from stackyard.inputs.sites.jobmodels import ContainerPolicy, LaunchPolicy, Scheduler
from stackyard.inputs.sites.site import load_site
from stackyard.inputs.sites.sitemodels import Domain, NodeKind, Reference, Site
from stackyard.launch.layout.model import Layout, Node
from stackyard.launch.layout.nodes import node_of, pick_kind
from stackyard.launch.layout.picture import draw
from stackyard.launch.layout.placing import masks, plan_layout
from stackyard.launch.request.intent import Intent

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.glob("*/site.yaml"))
KINDS = [(file.parent.name, kind) for file in FILES for kind in load_site(file).nodes]


def site(name: str) -> Site:
    return load_site(EXAMPLES / name / "site.yaml")


def node(name: str, kind: str) -> Node:
    return node_of(kind, site(name).nodes[kind])


def usual(name: str, kind: str = "") -> Layout:
    """One rank per GPU (per socket where there is none), on two nodes."""
    return plan_layout(Intent(nodes=2), pick_kind(site(name), Intent(node_kind=kind)))


def test_all_machines_are_there() -> None:
    assert {file.parent.name for file in FILES} == {
        "frontier", "longhorn", "lumi", "perlmutter", "polaris", "pytorch", "slurm-cluster", "summit-containers",
        "summit-open-ce", "workstation",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_the_usual_job_is_fine(name: str, kind: str) -> None:
    layout = usual(name, kind)
    assert [finding for finding in layout.findings if finding.severity != "note"] == []
    assert layout.ranks_per_node == (layout.node.gpus or layout.node.sockets)
    assert sum(len(slot.cores) for slot in layout.slots) == layout.node.cores
    assert max(map(len, draw(layout, width=80).splitlines())) <= 80


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_gpus_are_used_near_their_cores(name: str, kind: str) -> None:
    layout, made = usual(name, kind), node(name, kind)
    for slot in layout.slots:
        for gpu in slot.gpus:
            domain = next(domain for domain in made.domains if gpu in domain.gpus)
            assert {made.os_core(core) for core in slot.cores} <= set(domain.cores)


MACHINES = {
    ("summit-open-ce", "batch"): ["0-6", "7-13", "14-20", "22-28", "29-35", "36-42"],
    ("summit-containers", "batch"): ["0-6", "7-13", "14-20", "22-28", "29-35", "36-42"],
    ("frontier", "batch"): ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"],
    ("lumi", "lumi-g"): ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"],
    ("lumi", "lumi-c"): ["0-63", "64-127"],
    ("perlmutter", "gpu"): ["48-63", "32-47", "16-31", "0-15"],
    ("perlmutter", "cpu"): ["0-63", "64-127"],
    ("polaris", "compute"): ["24-31", "16-23", "8-15", "0-7"],
    ("pytorch", "h200"): [f"{12 * rank}-{12 * rank + 11}" for rank in range(8)],
    ("pytorch", "mi300x"): [f"{12 * rank}-{12 * rank + 11}" for rank in range(8)],
    ("pytorch", "cpu"): ["0-95", "96-191"],
    ("longhorn", "ac922"): ["0-9", "10-19", "20-29", "30-39"],
    ("slurm-cluster", "gpu"): ["0-9", "10-19", "20-29", "30-39"],
    ("slurm-cluster", "cpu"): ["0-19", "20-39"],
    ("workstation", "workstation"): ["0-7", "8-15"],
}
"""The operating system's cores of each local rank. On Frontier and LUMI-G rank 0 is not on the first cores."""


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_cores_of_each_rank(name: str, kind: str) -> None:
    layout = usual(name, kind)
    assert [
        ranges(layout.node.os_core(core) for core in slot.cores) for slot in layout.slots
    ] == MACHINES[(name, kind)]  # fmt: skip


def test_frontier_and_lumi_map_cpus_alike() -> None:
    """``--cpu-bind=map_cpu:49,57,17,25,1,9,33,41`` in LUMI's guide: the first core of each mask."""
    for name, kind in (("frontier", "batch"), ("lumi", "lumi-g")):
        lowest = [(mask & -mask).bit_length() - 1 for mask in masks(usual(name, kind))]
        assert lowest == [49, 57, 17, 25, 1, 9, 33, 41]


@pytest.mark.parametrize(
    ("name", "picked"), [("perlmutter", "gpu"), ("lumi", "lumi-g"), ("slurm-cluster", "gpu"), ("frontier", "batch")]
)
def test_jobs_go_to_the_gpu_nodes(name: str, picked: str) -> None:
    assert pick_kind(site(name), Intent()).kind == picked


@pytest.mark.parametrize(
    ("name", "scheduler", "launcher"),
    [
        ("summit-open-ce", "lsf", "jsrun"),
        ("summit-containers", "lsf", "jsrun"),
        ("longhorn", "slurm", "srun"),
        ("lumi", "slurm", "srun"),
        ("frontier", "slurm", "srun"),
        ("perlmutter", "slurm", "srun"),
        ("polaris", "pbs", "pals"),
        ("pytorch", "slurm", "srun"),
        ("slurm-cluster", "slurm", "srun"),
        ("workstation", "none", "local"),
    ],
)
def test_schedulers(name: str, scheduler: str, launcher: str) -> None:
    said = site(name).scheduler
    assert (said.kind, said.launcher) == (scheduler, launcher)


def test_summit_has_racks() -> None:
    """144 nodes on 8 racks, as in the page's reservation: ``-n 6049`` and ``maxcus=8``."""
    scheduler, summit = site("summit-open-ce").scheduler, node("summit-open-ce", "batch")
    assert scheduler.csm
    assert 144 * summit.cores + 1 == 6049
    assert -(-144 // scheduler.rack_nodes) == 8


def test_what_ranks_are_told() -> None:
    for name in ("lumi", "frontier"):
        cache = site(name).launch.variables["MIOPEN_USER_DB_PATH"]
        assert cache.startswith("/tmp/")
        assert "{user}" in cache and "{run}" in cache
    for name, kind in (("lumi", "lumi-g"), ("frontier", "batch")):
        variables = site(name).nodes[kind].variables
        assert variables["NCCL_SOCKET_IFNAME"] == "hsn0,hsn1,hsn2,hsn3"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_every_number_of_a_node_has_its_source(file: Path) -> None:
    """A number stands on a line with a comment, in a block that one introduces, or below a line that has one."""
    explained = False
    for line in file.read_text().splitlines():
        text, _, comment = line.partition("#")
        if re.search(r"^\s+(cores|all_cores|sockets|smt|memory_gib|rack_nodes|core_spec|count):\s*\d", text):
            assert comment or explained, line
        explained = bool(comment) or (explained and bool(text.strip()))


@pytest.mark.parametrize("name", ["frontier", "perlmutter", "slurm-cluster", "workstation"])
def test_readme_is_about_this_machine(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    assert text.startswith("# ")
    assert "stackyard" in text and "It shows" in text


@pytest.mark.parametrize("model", [NodeKind, Domain, Reference, Scheduler, LaunchPolicy, ContainerPolicy])
def test_reference_has_every_key(model: type[BaseModel]) -> None:
    text = (ROOT / "docs/reference/site.md").read_text()
    assert [field for field in model.model_fields if f"`{field}`" not in text] == []


def test_examples_in_the_reference(tmp_path: Path) -> None:
    """What the page shows is a site file, and its nodes are without contradiction."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/reference/site.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    kinds = 0
    for block in blocks:
        file = tmp_path / "site.yaml"
        file.write_text(block)
        for name, kind in load_site(file).nodes.items():
            assert node_of(name, kind).cores == kind.cores
            kinds += 1
    assert kinds >= 2
