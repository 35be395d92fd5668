"""Lists of numbers, what launchers refuse, versions of Slurm, and the size of what is rendered."""

from __future__ import annotations

import re
import time
import tracemalloc
from typing import Any

import pytest
from launcherbed import CPU, CSM, HERE, LUMI_G, PERLMUTTER, SLURM, SUMMIT, WORKSTATION, packed, placed, span

from stackyard.core.errors import InputError
from stackyard.host.machine.ranges import ranges
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Block, Layout
from stackyard.launch.plan.launchers import TABLE, get
from stackyard.launch.plan.launchers.words import mask, version_of
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


def srun(layout: Layout, scheduler: Scheduler = SLURM, **changes: Any) -> str:
    return " ".join(get("srun").line(LaunchRequest(layout, scheduler, **changes)).words)


# ------------------------------------------------------------------------------------------------ lists


def test_ranges_masks_versions() -> None:
    assert ranges([8, 0, 1, 2, 2]) == "0-2,8"
    assert ranges([]) == ""
    assert (mask([1, 2, 3]), mask([64]), mask([])) == ("0xe", "0x10000000000000000", "0x0")
    assert (version_of("slurm 23.11.4"), version_of("")) == ((23, 11, 4), ())


# ------------------------------------------------------------------------------------------------ refusals


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        get("aprun")
    assert str(caught.value) == "no such launcher: aprun"
    assert caught.value.hint == "did you mean mpirun? use one of srun, jsrun, mpirun, mpich, pals, flux, local"


DEALT = packed(CPU, 2, 24, distribution="cyclic")
SHARED = Layout(HERE, (Block(0, 1, placed(HERE, ((0,), (0,), (1,)))),))
MIXED = Layout(CPU, (Block(0, 1, placed(CPU, (span(0, 23),))), Block(1, 1, placed(CPU, (span(0, 11),)))))

UNEQUAL = Layout(CPU, (Block(0, 1, placed(CPU, (span(0, 3), span(4, 4)))),))
SHARING = Scheduler(exclusive=False)


@pytest.mark.parametrize(
    ("name", "layout", "changes", "said"),
    [
        ("local", packed(CPU, 2, 24), {}, "cannot start ranks on 2 nodes"),
        ("pals", DEALT, {}, "PALS mpiexec does not support the cyclic distribution"),
        ("flux", SHARED, {}, "cannot assign one core to two ranks"),
        ("mpirun", packed(CPU, 2, 24), {}, "requires hostnames"),
        ("mpich", packed(CPU, 2, 24), {}, "requires hostnames"),
        *((name, packed(CPU, 2, 24), {"inside": False}, "requires hostnames")
          for name in ("srun", "jsrun", "mpirun", "mpich", "pals", "flux")),
        ("flux", MIXED, {}, "cannot place ranks differently"),
        ("mpich", MIXED, {}, "binds local rank i of every node"),
        ("srun", MIXED, {"scheduler": Scheduler(mpi="pmi2"), "mpi": True}, "MPI_Init waits for ever"),
        ("srun", UNEQUAL, {"scheduler": SHARING}, "the same number of cores and GPUs, unless the nodes are exclusive"),
        ("flux", UNEQUAL, {"scheduler": SHARING}, "the same number of cores and GPUs"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused(name: str, layout: Layout, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        get(name).line(LaunchRequest(**{"layout": layout, "scheduler": Scheduler(), **changes}))
    assert caught.value.hint


def test_a_rankfile_says_what_differs_by_host() -> None:
    line = get("mpirun").line(LaunchRequest(Layout(MIXED.node, MIXED.blocks, hosts=("a", "b")), Scheduler()))
    assert line.files["rankfile"] == "rank 0=a slot=0:0-23\nrank 1=b slot=0:0-11\n"


def test_jsrun_takes_a_file_for_hosts_that_differ() -> None:
    assert get("jsrun").line(LaunchRequest(MIXED, CSM)).files["erf"].splitlines()[1:] == [
        "rank: 0: { host: 1; cpu: {0-23} }",
        "rank: 1: { host: 2; cpu: {0-11} }",
    ]


def test_gpus_of_a_shared_node_are_counted_from_zero() -> None:
    shared = Scheduler(kind="slurm", exclusive=False)
    layout = packed(WORKSTATION, 2, 8)
    assert "--gpus-per-node=2 " in srun(layout, shared)
    assert "--gpu-bind" not in srun(layout, shared)
    last = Layout(WORKSTATION, (Block(0, 1, placed(WORKSTATION, (span(0, 7),), ((1,),))),))
    with pytest.raises(InputError, match="the GPUs 1 on a node shared"):
        srun(last, shared)


# ------------------------------------------------------------------------------------------------ srun


def test_a_linear_slurm_is_not_asked_for_gpus_per_task() -> None:
    layout = packed(PERLMUTTER, 4, 16, gpu_visibility="own")
    new = Scheduler(kind="slurm", version="24.11", linear=True, gpu_request="gpus-per-task")
    old = new.model_copy(update={"version": "24.05"})
    assert "--gpus-per-node=4 --gpu-bind=map_gpu:3,2,1,0" in srun(layout, new)
    assert "--gpus-per-task=1 --gpu-bind=closest" in srun(layout, old)


def test_ranks_that_share_a_gpu_ask_by_node() -> None:
    slots = placed(WORKSTATION, (span(0, 3), span(4, 7), span(8, 11), span(12, 15)), ((0,), (0,), (1,), (1,)))
    layout = Layout(WORKSTATION, (Block(0, 1, slots),), "own")
    scheduler = Scheduler(kind="slurm", gpu_request="gpus-per-task")
    assert "--gpus-per-node=2 --gpu-bind=map_gpu:0,0,1,1" in srun(layout, scheduler)


def test_several_gpus_each_are_a_mask() -> None:
    slots = placed(SUMMIT, (span(0, 20), span(21, 41)), ((0, 1, 2), (3, 4, 5)))
    assert "--gpu-bind=mask_gpu:0x7,0x38" in srun(Layout(SUMMIT, (Block(0, 1, slots),), "own"))


def test_gres_has_its_type() -> None:
    layout = packed(PERLMUTTER, 4, 16)
    assert "--gres=gpu:a100:4" in srun(layout, Scheduler(kind="slurm", gpu_request="gres", gres_type="a100"))
    assert "--gres=gpu:4" in srun(layout, Scheduler(kind="slurm", gpu_request="gres"))
    assert "--gpus-per-node=a100:4" in srun(layout, Scheduler(kind="slurm", gres_type="a100"))
    assert "gpu" not in srun(layout, Scheduler(kind="slurm", gpu_request="none"))


def test_a_step_asks_for_the_gpus_that_its_ranks_own() -> None:
    first = Layout(SUMMIT, (Block(0, 1, placed(SUMMIT, (span(0, 6), span(7, 13)), ((0,), (1,)))),))
    spread = Layout(SUMMIT, (Block(0, 1, placed(SUMMIT, (span(0, 6), span(21, 27)), ((0,), (3,)))),))
    assert "--gpus-per-node=2" in srun(first)
    assert "--gpus-per-node=6" in srun(spread)


@pytest.mark.parametrize(("version", "overlap"), [("20.02", False), ("20.11", True), ("23.11", True), ("", True)])
def test_named_hosts_may_overlap_where_slurm_knows_it(version: str, overlap: bool) -> None:
    layout = packed(CPU, 2, 24, hosts=("n08", "n09"))
    line = srun(layout, Scheduler(kind="slurm", version=version), inside=False)
    assert "-w n[08-09]" in line
    assert ("--overlap" in line) is overlap
    assert "-w" not in srun(layout).split()


def test_one_task_with_all_cores_needs_no_mask() -> None:
    """The order of cores within a rank does not matter: torchrun's one task per node."""
    line = srun(packed(LUMI_G, 8, 7).per_node())
    assert "-c 56 --threads-per-core=1 --cpu-bind=threads" in line
    flux = get("flux").line(LaunchRequest(packed(LUMI_G, 8, 7).per_node(), Scheduler(kind="flux")))
    assert "cpu-affinity=per-task" in flux.words


def test_flux_names_hosts_as_a_constraint() -> None:
    layout = packed(CPU, 2, 24, hosts=("n08", "n10"))
    words = get("flux").line(LaunchRequest(layout, Scheduler(kind="flux"), inside=False)).words
    assert "--requires=hosts:n[08,10]" in words


def test_masks_need_whole_nodes() -> None:
    line = get("srun").line(LaunchRequest(packed(LUMI_G, 8, 7), Scheduler(kind="slurm", exclusive=False)))
    assert "--cpu-bind=threads" in line.words
    assert [finding.rule for finding in line.findings] == ["binding-not-exact"]


def test_the_environment_flag_is_given_once() -> None:
    layout = packed(CPU, 2, 24)
    assert srun(layout).count("--export") == 1
    assert srun(layout, args=("--export=NONE",)).count("--export") == 1
    assert srun(layout, Scheduler(kind="slurm", launcher_options=("--export", "ALL,A=1"))).count("--export") == 1


def test_mpi_is_wired_up_only_where_asked_for() -> None:
    layout = packed(CPU, 2, 24)
    assert "--mpi=none" in srun(layout)
    assert not any(word.startswith("--mpi") for word in srun(layout, mpi=True)), "MpiDefault: Cray MPICH has no pmix"
    assert "--mpi=cray_shasta" in srun(layout, Scheduler(kind="slurm", mpi="cray_shasta"), mpi=True)
    jsrun = {mpi: get("jsrun").line(LaunchRequest(packed(SUMMIT, 6, 7), CSM, mpi=mpi)).words for mpi in (True, False)}
    assert "--smpiargs=off" in jsrun[False]
    assert not any(word.startswith("--smpiargs") for word in jsrun[True])


def test_jsrun_has_one_word_for_spectrum_mpi() -> None:
    layout, site = packed(SUMMIT, 6, 7), CSM.model_copy(update={"launcher_options": ("--smpiargs=-async", "-L")})
    for scheduler, args, expected in (
        (CSM, ("--smpiargs=-tcp", "-l", "cpu-cpu"), ("--smpiargs=-gpu -tcp", "-l", "cpu-cpu")),
        (CSM, ("--smpiargs=-gpu -tcp",), ("-X1", "--smpiargs=-gpu -tcp")),
        (site, ("--smpiargs=-tcp",), ("--smpiargs=-gpu -async -tcp", "-L")),
    ):
        request = LaunchRequest(layout, scheduler, mpi=True, gpu_aware_mpi=True, args=args)
        assert get("jsrun").line(request).words[-len(expected) :] == expected


@pytest.mark.parametrize("name", TABLE)
def test_options_of_the_site_and_of_the_launch_come_last(name: str) -> None:
    scheduler = Scheduler(launcher_options=("--site",))
    words = get(name).line(LaunchRequest(packed(CPU, 2, 24, nodes=1), scheduler, args=("--mine", "x"))).words
    tail = words[:-1] if name == "local" else words
    assert tail[-3:] == ("--site", "--mine", "x")


# ------------------------------------------------------------------------------------------------ jsrun


def test_jsrun_counts_hardware_threads_where_the_job_has_them() -> None:
    layout = packed(SUMMIT, 6, 7, smt=2)
    two = Scheduler(kind="lsf", csm=True, alloc_flags=("smt2",))
    assert "-bpacked:smt:14" in get("jsrun").line(LaunchRequest(layout, two)).words
    line = get("jsrun").line(LaunchRequest(layout, CSM))
    assert "rank: 0,1,2,3,4,5: { host: 1; cpu: {0-1,4-5,8-9,12-13,16-17,20-21,24-25}," in line.files["erf"]


def test_horovods_erf_numbers() -> None:
    """The numbers of horovod's runner/util/lsf.py tests: 28 threads for each of six ranks, none across sockets."""
    layout = packed(SUMMIT, 6, 7, hosts=("h1", "h2"))
    line = get("jsrun").line(LaunchRequest(layout, CSM, inside=False))
    cpus = "{0-27},{28-55},{56-83},{84-111},{112-139},{140-167}"
    assert line.files["erf"].splitlines() == [
        "cpu_index_using: logical",
        f"rank: 0,1,2,3,4,5: {{ host: h1; cpu: {cpus}; gpu: {{0-5}} }}",
        f"rank: 6,7,8,9,10,11: {{ host: h2; cpu: {cpus}; gpu: {{0-5}} }}",
    ]


# ------------------------------------------------------------------------------------------------ size


def _big(nodes: int) -> Layout:
    return packed(LUMI_G, 8, 7, nodes=nodes, hosts=tuple(f"nid{n:06d}" for n in range(1, nodes + 1)))


@pytest.mark.parametrize("name", [name for name in TABLE if name != "local"])
def test_ten_thousand_nodes(name: str) -> None:
    few, many = _big(100), _big(10_000)
    small = _words(get(name).line(LaunchRequest(few, SLURM, inside=False)))
    tracemalloc.start()
    begun = time.process_time()
    line = get(name).line(LaunchRequest(many, SLURM, inside=False))
    seconds = time.process_time() - begun
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert _words(line) <= small + 20
    assert peak < 60_000_000
    assert seconds < 20
    assert sum(map(len, line.files.values())) < 80 * many.ranks


def _words(line: LaunchLine) -> int:
    return sum(len(word) + 1 for word in line.words)
