"""Rules on jsrun: resource sets, binding, straddling ranks.

A set has `-c` cores and `-a` ranks; ``-b packed:N`` gives each rank the next N of them, the default is packed:1. A
node of Summit has 2 x 21 usable cores and 6 GPUs (OLCF, Summit user guide), a node of Lassen or Sierra 2 x 20 and 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stackyard.lint.launches import Launch
from stackyard.lint.rules.base import Case, Hit, rule

_LEARNING = re.compile(r"open-ce|wml-ce|powerai|conda|pytorch|torch|tensorflow|keras|horovod", re.I)


_GPU_AWARE = re.compile(
    r"(?:cuda|gpu)[-_ /]?aware|gpu_?direct|HOROVOD_GPU_(?:OPERATIONS|ALLREDUCE|ALLGATHER)=[\"']?MPI"
    r"|(?:MPICH_GPU_SUPPORT_ENABLED|MPICH_RDMA_ENABLED_CUDA|MV2_USE_CUDA|pami_enable_cuda)[= ][\"']?1",
    re.I,
)
_TURNED_OFF = re.compile(r"^[ \t]*#+[ \t]*(?:export[ \t]+)?\w+=.*$", re.M)
"""A setting in a comment: it says that the script once had it."""
_GPU_BENCHMARK = re.compile(r"\bosu_\w+\b.*(?:\s(?:-d|--accelerator)[ =]?(?:cuda|managed)\b|\sD D\b|\sD H\b|\sH D\b)")
"""The OSU benchmarks with buffers on the GPU: ``-d cuda``, ``D D`` (their README)."""


@dataclass(frozen=True)
class Sets:
    """The numbers of a jsrun line; None where they are not known. `width` is N of packed:N, 0 for rs and none."""

    count: int | None
    host: int | None
    ranks: int
    cores: int | None
    gpus: int | None
    width: int | None


def sets_of(launch: Launch) -> Sets | None:
    """The resource sets of a jsrun line; None for ERF files and lines that cannot be parsed."""
    if launch.kind != "jsrun" or launch.given("erf_input", "appfile") or launch.doubtful:
        return None
    ranks = launch.count("tasks_per_rs") if launch.given("tasks_per_rs") else 1
    count = launch.count("nrs")
    if launch.given("np"):
        total = launch.count("np")
        count = count if launch.given("nrs") else total
        ranks = total // count if total and count and total % count == 0 else None
    if ranks is None:
        return None
    cores = launch.count("cpu_per_rs") if launch.given("cpu_per_rs") else 1
    gpus = launch.count("gpu_per_rs") if launch.given("gpu_per_rs") else 0
    return Sets(count, launch.count("rs_per_host"), ranks, cores, gpus, _width(launch.get("bind")))


def _width(bind: str | None) -> int | None:
    """Cores of a rank: packed:7, proportional-packed:7; 1 by default; 0 where the rank has all cores of its set."""
    if bind is None:
        return 1
    if bind.strip() in ("rs", "none"):
        return 0
    match = re.fullmatch(r"(?:proportional-)?packed(?::(?:smt:)?(\d+))?", bind.strip())
    return (None if "smt" in bind else int(match[1] or 1)) if match else None


def socket_cores(case: Case, sets: Sets) -> int | None:
    """Usable cores of a socket: the site's, or Summit's 21 where a set of 42 or 21 cores and 6 or 3 GPUs names it."""
    kind = case.node_kind
    if kind and kind.cores and kind.sockets:
        return kind.cores // kind.sockets
    return 21 if sets.cores == 42 and (sets.gpus in (6, 0) or sets.gpus is None) else None


def _sets(case: Case) -> Iterator[tuple[Launch, Sets]]:
    for launch in case.launches:
        sets = sets_of(launch)
        if sets and not case.is_helper(launch):
            yield launch, sets


@rule(
    "straddling-ranks",
    evidence=("script", "site"),
    why="A rank on two sockets accesses half its memory and its GPU over the link between them",
    example="jsrun -r1 -g6 -a4 -c42 -bpacked:10 ./a.out",
    instead="jsrun -r1 -g6 -a6 -c42 -bpacked:7 ./a.out",
)
def straddling_ranks(case: Case) -> Iterator[Hit]:
    """Ranks whose cores span two sockets: -a, -c and -b packed:N compared with the cores of a socket."""
    for launch, sets in _sets(case):
        socket = socket_cores(case, sets)
        if (
            not socket
            or not sets.width
            or not sets.cores
            or sets.cores <= socket
            or sets.width * sets.ranks > sets.cores
            or "proportional" in (launch.get("bind") or "")  # spreads the ranks over the sockets first
        ):
            continue
        split = [rank for rank in range(sets.ranks) if rank * sets.width < socket < (rank + 1) * sets.width]
        if split:
            yield Hit(
                launch.line,
                f"rank {split[0]} of each set has cores on both sockets: {sets.ranks} ranks of {sets.width} "
                f"cores on sockets of {socket}",
                _remedy(sets, socket),
                "note" if sets.width > socket else None,  # such a rank fits on no socket: intended
            )


def _remedy(sets: Sets, socket: int) -> str:
    if sets.ranks % 2 == 0:
        half, gpus = sets.ranks // 2, (sets.gpus or 0) // 2
        width = socket // half if half <= socket else 1
        return f"jsrun -r2 -g{gpus} -a{half} -c{socket} -bpacked:{width} ...   (one set per socket)"
    width = max(n for n in range(1, socket + 1) if socket % n == 0 and n * sets.ranks <= 2 * socket)
    return f"jsrun ... -bpacked:{width} ...   ({socket} is a multiple of {width})"


@rule(
    "jsrun-idle-cores",
    why="Nothing else can use the cores of a set that no rank is bound to",
    example="jsrun -r1 -g6 -a4 -c42 -bpacked:10 ./a.out",
    instead="jsrun -r2 -g3 -a2 -c21 -bpacked:10 ./a.out",
)
def jsrun_idle_cores(case: Case) -> Iterator[Hit]:
    """A set with more cores than its ranks are bound to by an explicit packed:N."""
    for launch, sets in _sets(case):
        if not launch.given("bind") or not sets.width or not sets.cores or sets.cores == sets.ranks:
            continue
        idle = sets.cores - sets.ranks * sets.width
        threads = launch.environment.get("OMP_NUM_THREADS")
        if idle > 0:
            width = sets.cores // sets.ranks
            remedy = f"jsrun ... -a{sets.ranks} -c{sets.ranks * sets.width} ..."
            if idle >= sets.ranks:
                remedy = f"jsrun ... -a{sets.ranks} -c{sets.cores} -bpacked:{width} ..."
            yield Hit(
                launch.line,
                f"{idle} of the {sets.cores} cores of each set are idle: {sets.ranks} ranks x {sets.width}",
                remedy,
                "note" if threads and threads.text == str(sets.width) else None,  # as many as the program can use
            )


@rule(
    "jsrun-node-cores",
    evidence=("site",),
    why="Cores that no resource set requests stay idle; nodes are allocated and charged whole",
    example="jsrun -r1 -g6 -a6 -c36 -bpacked:6 ./a.out   (on nodes with 42 cores)",
    instead="jsrun -r1 -g6 -a6 -c42 -bpacked:7 ./a.out",
)
def jsrun_node_cores(case: Case) -> Iterator[Hit]:
    """Sets that use all GPUs of a node but leave cores that each rank could use; a note without the site's node."""
    kind = case.node_kind
    cores = kind.cores if kind and kind.cores else 42
    gpus = kind.gpu.count if kind and kind.gpu.count else 6
    for launch, sets in _sets(case):
        if not sets.cores or not sets.host or not sets.gpus or sets.host * sets.gpus != gpus:
            continue
        idle, ranks = cores - sets.host * sets.cores, sets.host * sets.ranks
        single = sets.width == 1 and not (sets.cores == sets.ranks and case.is_python(launch))
        if idle >= ranks and not single and not launch.command.command.background:
            share = cores // ranks
            threads = launch.environment.get("OMP_NUM_THREADS")
            fed = case.is_python(launch) and not threads  # data loaders and frameworks use all cores they can get
            yield Hit(launch.line, f"{idle} of the {cores} cores of each node stay idle",
                      f"jsrun -r{sets.host} -a{sets.ranks} -c{share * sets.ranks} -bpacked:{share} ...",
                      None if (kind and kind.cores) or (fed and idle >= cores // 4) else "note")  # fmt: skip


@rule(
    "jsrun-default-binding",
    why="Without -b, jsrun binds each rank to one core (packed:1), whatever -c requests",
    example="jsrun -n6 -a1 -c7 -g1 python train.py",
    instead="jsrun -n6 -a1 -c7 -g1 -bpacked:7 python train.py",
)
def jsrun_default_binding(case: Case) -> Iterator[Hit]:
    """Several cores per rank without -b; a note unless the program is known to use several threads."""
    for launch, sets in _sets(case):
        if launch.given("bind") or not sets.cores or sets.cores < 2 * sets.ranks:
            continue
        share = sets.cores // sets.ranks
        threads = launch.environment.get("OMP_NUM_THREADS")
        passed = re.search(r"OMP_NUM_THREADS=(\d+)", " ".join(launch.words))
        count = int(passed[1]) if passed else (int(threads.text) if threads and threads.text.isdecimal() else 0)
        learning = sets.gpus != 0 and (case.is_python(launch) or bool(_LEARNING.search(case.script.code)))
        yield Hit(
            launch.line,
            f"{share} cores per rank are requested, but each rank is bound to one",
            f"jsrun ... -bpacked:{share} ...",
            None if count > 1 or (learning and count != 1) else "note",
        )


@rule(
    "jsrun-bind-overflow",
    "note",
    why="jsrun does not document what happens to ranks for which no cores are left",
    example="jsrun -r1 -a6 -c42 -bpacked:8 ./a.out",
    instead="jsrun -r1 -a6 -c42 -bpacked:7 ./a.out",
)
def jsrun_bind_overflow(case: Case) -> Iterator[Hit]:
    """Ranks times N of packed:N exceed the cores of a set; a note, since jsrun accepts it."""
    for launch, sets in _sets(case):
        if sets.width and sets.cores and sets.ranks * sets.width > sets.cores and launch.given("bind"):
            yield Hit(
                launch.line,
                f"{sets.ranks} ranks x {sets.width} cores = {sets.ranks * sets.width}, but a set has {sets.cores}",
                f"jsrun ... -bpacked:{max(1, sets.cores // sets.ranks)} ...",
            )


@rule(
    "jsrun-more-than-node",
    "refused",
    evidence=("script", "site"),
    why="A resource set cannot span nodes, and each node holds all -r sets",
    example="jsrun -r6 -c8 -g1 ./a.out   (48 cores on nodes with 42)",
    instead="jsrun -r6 -c7 -g1 ./a.out",
)
def jsrun_more_than_node(case: Case) -> Iterator[Hit]:
    """Sets per host times cores or GPUs exceed a node: the site's, else the largest (44 cores, 6 GPUs)."""
    kind = case.node_kind
    cores = kind.cores if kind and kind.cores else 44
    gpus = kind.gpu.count if kind and kind.gpu.count else 6
    for launch, sets in _sets(case):
        host = sets.host or 1
        if sets.cores and host * sets.cores > cores:
            yield Hit(launch.line,
                      f"{host} sets x {sets.cores} cores = {host * sets.cores}, but a node has at most {cores}",
                      f"jsrun ... -r{host} -c{max(1, (42 if cores == 44 else cores) // host)} ...")  # fmt: skip
        if sets.gpus and host * sets.gpus > gpus:
            yield Hit(launch.line,
                      f"{host} sets x {sets.gpus} GPUs = {host * sets.gpus}, but a node has at most {gpus}",
                      f"jsrun ... -r{max(1, gpus // sets.gpus)} -g{min(gpus, sets.gpus)} ...")  # fmt: skip


def _over_node(case: Case, sets: Sets) -> bool:
    kind, host = case.node_kind, sets.host or 1
    cores = kind.cores if kind and kind.cores else 44
    gpus = kind.gpu.count if kind and kind.gpu.count else 6
    return host * (sets.cores or 0) > cores or host * (sets.gpus or 0) > gpus


@rule(
    "jsrun-more-than-job",
    "refused",
    why="jsrun waits for or rejects more resource sets than fit on the nodes of the job",
    example="#BSUB -nnodes 2\njsrun -n 18 -r 6 -g1 -c7 ./a.out",
    instead="jsrun -n 12 -r 6 -g1 -c7 ./a.out",
)
def jsrun_more_than_job(case: Case) -> Iterator[Hit]:
    """More resource sets than fit on the nodes of the job."""
    nodes, kind = case.script.request.nodes, case.node_kind
    for launch, sets in _sets(case):
        if not nodes or not sets.count or _over_node(case, sets):
            continue
        most = [sets.host] if sets.host else []
        most += [(kind.cores if kind and kind.cores else 44) // sets.cores] if sets.cores else []
        most += [(kind.gpu.count if kind and kind.gpu.count else 6) // sets.gpus] if sets.gpus else []
        if most and sets.count > nodes * max(1, min(most)):
            yield Hit(launch.line,
                      f"{sets.count} resource sets do not fit on {nodes} nodes of at most {max(1, min(most))} each",
                      f"jsrun -n {nodes * max(1, min(most))} ...")  # fmt: skip


@rule(
    "smpiargs-gpu",
    evidence=("script", "source"),
    why="Spectrum MPI accepts GPU pointers only with --smpiargs=-gpu; without it the program crashes",
    example="jsrun -n12 -g1 -a1 -c7 ./pingpong-cuda-aware",
    instead='jsrun -n12 -g1 -a1 -c7 --smpiargs="-gpu" ./pingpong-cuda-aware',
)
def smpiargs_gpu(case: Case) -> Iterator[Hit]:
    """A program that passes GPU pointers to MPI, by its script or its source, without --smpiargs=-gpu."""
    shared = _GPU_AWARE.search(_TURNED_OFF.sub("", case.script.text))
    denied = re.search(
        r"(?:aware\w*[= ]+(?:0|false|no|off)\b)|(?:not|no|non|without|disable)[- ](?:cuda|gpu)[- ]?aware",
        case.script.text,
        re.I,
    )
    for launch, sets in _sets(case):
        args = " ".join(option.value for option in launch.reading.options if option.name == "smpiargs")
        if "gpu" in args or args.strip() in ("off", "none") or not sets.gpus or "\ue000" in args:
            continue
        source = case.source(launch)
        own = _GPU_BENCHMARK.search(case.program_text(launch))
        if (shared and not denied) or own or (source and source.gpu_buffers):
            yield Hit(launch.line, "MPI receives GPU pointers, but jsrun has no --smpiargs=-gpu",
                      'jsrun --smpiargs="-gpu" ...')  # fmt: skip


@rule(
    "jsrun-ranks-over-cores",
    why="The ranks of a resource set share its cores: with fewer cores than ranks they run in turns, or not at all",
    example="jsrun -n1 -a10 -c4 ./a.out",
    instead="jsrun -n1 -a10 -c10 ./a.out",
)
def jsrun_ranks_over_cores(case: Case) -> Iterator[Hit]:
    """More ranks than cores in each resource set."""
    for launch, sets in _sets(case):
        if sets.ranks and sets.cores and sets.ranks > sets.cores and launch.given("cpu_per_rs"):
            text = f"{sets.ranks} ranks in a set with {sets.cores} cores"
            yield Hit(launch.line, text, f"jsrun ... -a{sets.ranks} -c{sets.ranks} ...")
