"""Nodes: what a site file says of them, what is assumed, what is refused; and this machine, read from the kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackyard.core.errors import InputError
from stackyard.host.machine.ranges import core_list, ranges
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.launch.layout.model import Node, NodeDomain
from stackyard.launch.layout.nodes import node_of, pick_kind, this_node
from stackyard.launch.layout.this_node import THIS
from stackyard.launch.request.intent import Intent

SUMMIT: dict[str, Any] = {
    "cores": 42, "all_cores": 44, "sockets": 2, "smt": 4, "smt_numbering": "adjacent",
    "gpu": {"count": 6, "vendor": "nvidia"},
    "domains": [
        {"socket": 0, "cores": "0-20", "gpus": [0, 1, 2]},
        {"socket": 1, "cores": "22-42", "gpus": [3, 4, 5]},
    ],
}  # fmt: skip


def kind(**fields: Any) -> NodeKind:
    return NodeKind.model_validate(fields)


def node(**fields: Any) -> Node:
    return node_of("batch", kind(**fields))


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0-20,22", (*range(21), 22)), ("5", (5,)), ("1-7, 9-10", (1, 2, 3, 4, 5, 6, 7, 9, 10)), ("3,1", (3, 1))],
)
def test_core_list(text: str, cores: tuple[int, ...]) -> None:
    assert core_list(text) == cores


@pytest.mark.parametrize("text", ["", "a", "1-", "7-3", "1,,2", "-1", "0x1", "1-2-3"])
def test_core_list_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        core_list(text)


@settings(deadline=None)
@given(st.frozensets(st.integers(0, 400), min_size=1))
def test_ranges_are_read_back(cores: frozenset[int]) -> None:
    assert frozenset(core_list(ranges(cores))) == cores


def test_said_domains() -> None:
    made = node(**SUMMIT)
    assert made.domains == (
        NodeDomain(0, tuple(range(21)), (0, 1, 2)),
        NodeDomain(1, tuple(range(22, 43)), (3, 4, 5)),
    )
    assert (made.kind, made.cores, made.gpus, made.sockets, made.all_cores) == ("batch", 42, 6, 2, 44)
    assert made.assumed == ()


def test_summit_hardware_threads() -> None:
    """The published formulas of logical and physical threads, checked for every core and SMT level."""
    made = node(**SUMMIT)
    for smt in (1, 2, 4):
        for core in range(42):
            expected = tuple(4 * (core + core // 21) + thread for thread in range(smt))
            assert made.os_threads(core, smt) == expected
    used = {thread for core in range(42) for thread in made.os_threads(core, 4)}
    assert set(range(176)) - used == {*range(84, 88), *range(172, 176)}


def test_split_evenly() -> None:
    made = node(cores=40, sockets=2, gpu={"count": 4})
    assert [(d.socket, d.cores, d.gpus) for d in made.domains] == [
        (0, tuple(range(20)), (0, 1)),
        (1, tuple(range(20, 40)), (2, 3)),
    ]
    assert made.assumed == (
        "the 40 cores of batch are split evenly over its 2 sockets, in order",
        "the 4 GPUs of batch are split evenly over its 2 sockets, in order",
    )


def test_split_of_what_does_not_divide() -> None:
    made = node(cores=7, sockets=2, gpu={"count": 3})
    assert [(len(d.cores), d.gpus) for d in made.domains] == [(4, (0, 1)), (3, (2,))]


def test_kept_cores_are_the_last_of_each_socket() -> None:
    made = node(cores=42, all_cores=44, sockets=2)
    assert [ranges(d.cores) for d in made.domains] == ["0-20", "22-42"]
    assert any("the 2 reserved cores of batch" in sentence for sentence in made.assumed)


def test_one_socket_assumes_nothing() -> None:
    assert node(cores=16, gpu={"count": 2}).assumed == ()


def test_gpus_are_spread_over_said_domains() -> None:
    made = node(cores=4, gpu={"count": 2}, domains=[{"cores": "0-1"}, {"cores": "2-3"}])
    assert [d.gpus for d in made.domains] == [(0,), (1,)]
    assert "2 domains" in made.assumed[0]


def test_cores_may_come_from_the_domains_alone() -> None:
    made = node(domains=[{"cores": "1-3"}, {"cores": "5-7"}])
    assert (made.cores, made.all_cores) == (6, 8)
    assert "8 cores" in made.assumed[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": [{"cores": "0-21"}, {"cores": "21-40"}]}, "core 21 is in two domains"),
        ({"domains": [{"cores": "0-20,3"}, {"cores": "22-41"}]}, "core 3 is in two domains"),
        ({"domains": [{"cores": "0-20", "gpus": [1]}, {"cores": "22-42", "gpus": [1]}]}, "GPU 1 is in two domains"),
        ({"domains": [{"cores": "0-20"}, {"cores": "22-41"}]}, "cores is 42, but its domains have 41"),
        ({"domains": [{"cores": "0-20"}, {"cores": "24-44"}]}, "core 44 is out of range"),
        ({"domains": [{"cores": "0-20", "gpus": [0]}, {"cores": "22-42"}]}, "gpu.count is 6, but its domains have 1"),
        ({"sockets": 1}, "sockets is 1, but its domains name more"),
        ({"domains": [{"cores": "0-x"}]}, "domains[0].cores: '0-x' is neither"),
        ({"domains": [{"cores": "9-3"}]}, "9-3 is not an ascending range"),
        ({"domains": [], "cores": 0}, "missing number of cores"),
    ],
)
def test_refuses_what_contradicts_itself(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        node(**{**SUMMIT, **change})
    assert message in caught.value.message
    assert "batch" in caught.value.message
    assert caught.value.hint or "domains[0]" in caught.value.message


def site(**kinds: dict[str, Any]) -> Site:
    return Site.model_validate({"nodes": kinds})


@pytest.mark.parametrize(
    ("kinds", "asked", "picked"),
    [
        ({"only": {"cores": 2}}, "", "only"),
        ({"cpu": {"cores": 2}, "gpu": {"cores": 2, "gpu": {"count": 1}}}, "", "gpu"),
        ({"cpu": {"cores": 2}, "gpu": {"cores": 2, "gpu": {"count": 1}}}, "cpu", "cpu"),
        ({"cpu": {"cores": 2}, "gpu": {"domains": [{"cores": "0-1", "gpus": [0]}]}}, "", "gpu"),
    ],
)
def test_pick_kind(kinds: dict[str, Any], asked: str, picked: str) -> None:
    assert pick_kind(site(**kinds), Intent(node_kind=asked)).kind == picked


def test_pick_kind_among_several() -> None:
    with pytest.raises(InputError, match="several node kinds: small, large") as caught:
        pick_kind(site(small={"cores": 2}, large={"cores": 4}), Intent())
    assert "--node-kind" in (caught.value.hint or "")


def test_pick_kind_of_another_name() -> None:
    with pytest.raises(InputError, match="no such node kind: huge") as caught:
        pick_kind(site(small={"cores": 2}), Intent(node_kind="huge"))
    assert caught.value.hint == "use one of small"


def test_no_site_is_this_machine() -> None:
    assert pick_kind(Site(), Intent()).kind == THIS


def test_this_machine() -> None:
    made = this_node()
    threads = {t for core in range(made.cores) for t in made.os_threads(core, made.smt)}
    assert threads <= os.sched_getaffinity(0)
    assert made.cores >= 1
    assert made.memory_gib > 0


def test_affinity_of_one_cpu_is_one_core() -> None:
    one = min(os.sched_getaffinity(0))
    made = this_node(affinity={one})
    assert (made.cores, made.os_threads(0)) == (1, (one,))


def machine(root: Path, siblings: list[str], packages: list[int], numa: list[str] | None = None) -> Path:
    """A machine's /sys, from the lists of the threads of each core."""
    for threads, package in zip(siblings, packages, strict=True):
        for cpu in core_list(threads):
            directory = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
            directory.mkdir(parents=True)
            (directory / "core_cpus_list").write_text(threads + "\n")
            (directory / "physical_package_id").write_text(f"{package}\n")
    for number, cpus in enumerate(numa or []):
        directory = root / f"sys/devices/system/node/node{number}"
        directory.mkdir(parents=True)
        (directory / "cpulist").write_text(cpus + "\n")
    return root


def nvidia(root: Path, *places: tuple[str, int]) -> None:
    for address, numa in places:
        (root / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
        directory = root / "sys/bus/pci/devices" / address
        directory.mkdir(parents=True)
        (directory / "numa_node").write_text(f"{numa}\n")


def test_split_numbering(tmp_path: Path) -> None:
    """Two sockets of two cores with two threads, as x86 servers number them; the GPUs' order is not the cores'."""
    root = machine(tmp_path, ["0,4", "1,5", "2,6", "3,7"], [0, 0, 1, 1], ["0-1,4-5", "2-3,6-7"])
    nvidia(root, ("0000:0a:00.0", 1), ("0000:8a:00.0", 0))
    made = this_node(root, range(8), {})
    assert made.domains == (NodeDomain(0, (0, 1), (1,)), NodeDomain(1, (2, 3), (0,)))
    assert (made.smt, made.smt_numbering, made.all_cores, made.gpu_vendor) == (2, "split", 4, "nvidia")
    assert made.os_threads(3, 2) == (3, 7)
    assert made.assumed == ()


def test_adjacent_numbering(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0-3", "4-7", "8-11", "12-15"], [0, 0, 8, 8])
    made = this_node(root, range(16), {})
    assert [(d.socket, d.cores) for d in made.domains] == [(0, (0, 1)), (8, (2, 3))]
    assert (made.smt, made.smt_numbering) == (4, "adjacent")
    assert made.os_threads(2, 4) == (8, 9, 10, 11)


def test_cores_of_two_kinds(tmp_path: Path) -> None:
    """Two cores with two threads and two with one, as in recent laptops: one thread of each is used."""
    root = machine(tmp_path, ["0-1", "2-3", "4", "5"], [0, 0, 0, 0])
    made = this_node(root, range(6), {})
    assert [made.os_threads(core) for core in range(made.cores)] == [(0,), (2,), (4,), (5,)]
    assert (made.smt, made.assumed[0]) == (1, "one hardware thread per core is used, since its cores differ")


def test_mask_of_second_threads(tmp_path: Path) -> None:
    """A container that was given the second threads of two cores only."""
    root = machine(tmp_path, ["0,4", "1,5", "2,6", "3,7"], [0, 0, 0, 0])
    made = this_node(root, {5, 6}, {})
    assert [made.os_threads(core) for core in range(made.cores)] == [(5,), (6,)]
    assert "may not use all threads" in made.assumed[0]


def test_mask_of_whole_cores(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0,4", "1,5", "2,6", "3,7"], [0, 0, 1, 1])
    made = this_node(root, {1, 5, 2, 6}, {})
    assert [d.cores for d in made.domains] == [(1,), (2,)]
    assert (made.smt, made.all_cores) == (2, 4)


def test_silent_kernel(tmp_path: Path) -> None:
    made = this_node(tmp_path, {0, 1, 7}, {})
    assert made.domains == (NodeDomain(0, (0, 1, 7)),)
    assert (made.memory_gib, made.gpus) == (0, 0)


def test_gpu_without_a_device_file_is_not_there(tmp_path: Path) -> None:
    """A container that was given the second GPU of two: the driver's directories show both."""
    root = machine(tmp_path, ["0", "1"], [0, 1], ["0", "1"])
    nvidia(root, ("0000:0a:00.0", 0), ("0000:8a:00.0", 1))
    for minor, address in enumerate(("0000:0a:00.0", "0000:8a:00.0")):
        information = root / "proc/driver/nvidia/gpus" / address / "information"
        information.write_text(f"Model: \t\t NVIDIA A100\nBus Location: \t {address}\nDevice Minor: \t {minor}\n")
    (root / "dev").mkdir()
    (root / "dev/nvidia1").touch()
    assert [d.gpus for d in this_node(root, {0, 1}, {}).domains] == [(), (0,)]


@pytest.mark.parametrize(
    ("value", "left"), [(None, (0, 1)), ("1", (1,)), ("", ()), ("-1", ()), ("0,1", (0, 1)), ("GPU-8932f937", (0, 1))]
)
def test_hidden_gpus(tmp_path: Path, value: str | None, left: tuple[int, ...]) -> None:
    root = machine(tmp_path, ["0", "1"], [0, 0])
    nvidia(root, ("0000:0a:00.0", -1), ("0000:8a:00.0", -1))
    made = this_node(root, {0, 1}, {} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    assert made.domains[0].gpus == left


def test_gpu_in_an_unknown_place_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0", "1"], [0, 1], ["0", "1"])
    nvidia(root, ("0000:0a:00.0", -1))
    assert "GPU 0 is assumed to be next to the first cores" in this_node(root, {0, 1}, {}).assumed[0]


def test_amd_gpus(tmp_path: Path) -> None:
    """Two CPUs and two GPUs of the compute driver; bus 0xc1 is next to the first NUMA node, 0xd1 to the second."""
    root = machine(tmp_path, ["0", "1"], [0, 0], ["0", "1"])
    for number, (simd, location) in enumerate([(0, 0), (0, 0), (440, 0xC100), (440, 0xD100)]):
        directory = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        directory.mkdir(parents=True)
        (directory / "properties").write_text(
            f"cpu_cores_count 0\nsimd_count {simd}\nlocation_id {location}\ndomain 0\n"
        )
    for address, numa in (("0000:c1:00.0", 0), ("0000:d1:00.0", 1)):
        directory = root / "sys/bus/pci/devices" / address
        directory.mkdir(parents=True)
        (directory / "numa_node").write_text(f"{numa}\n")
    made = this_node(root, {0, 1}, {})
    assert ([d.gpus for d in made.domains], made.gpu_vendor) == ([(0,), (1,)], "amd")
    assert this_node(root, {0, 1}, {"ROCR_VISIBLE_DEVICES": "1"}).gpus == 1
