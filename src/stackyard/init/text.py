"""Writes the commented site.yaml: each value with its origin behind it, and as a comment what nothing could tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stackyard.core.findings import counted
from stackyard.host.machine.platforms import LINUX
from stackyard.init.here import Here
from stackyard.init.kinds import Kind, word
from stackyard.init.model import Cluster, HostNode, Told
from stackyard.init.surroundings import Surroundings

COLUMN = 42
"""Where the origins begin."""
_PLAIN = re.compile(r"[A-Za-z_/$][\w./$@+-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "none"}
_AMD = re.compile(r"^(amd|instinct|mi\d|gfx|radeon)", re.IGNORECASE)
_INTEL = re.compile(r"^(intel|pvc|max_?1|gaudi|xe)", re.IGNORECASE)
_OF_FILES = ("apptainer", "singularity", "ch-run")
"""Runtimes that a launch finds by itself, for image files."""
_NAMED = ("podman-hpc", "shifter")
"""Those that a site has to name."""
_HEAD = """\
# Site file of Stackyard, as `stackyard init` found this machine. Edit it: the next `stackyard init` keeps what you
# changed, and adds what is new. Behind each value is its origin; what nothing here could tell is a comment.
"""


class Quoted(str):
    """Text that must not be read as a number."""

    __slots__ = ()


def site_text(
    cluster: Cluster | None, found: Sequence[Kind], here: Here, around: Surroundings, seen: Mapping[str, Here]
) -> str:
    """The text of a site.yaml.

    Args:
        cluster: what the scheduler tells; None: there is none, and this machine is the site.
        found: the kinds of its nodes.
        around: modules, package sources and places, as seen on this machine.
        seen: by the name of a kind, a node of it that was looked at.
    """
    lines = [_HEAD]
    lines += _top(cluster, here, around)
    lines += _nodes(cluster, found, here, seen)
    lines += _scheduler(cluster, here)
    lines += _rest(cluster, here, around)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def line(indent: int, key: str, value: Any, origin: str) -> str:
    """A key with its value, and the origin as a comment."""
    return _with(f"{' ' * indent}{key}: {scalar(value)}", origin)


def unknown(indent: int, key: str, example: str, how: str) -> str:
    """A key that nothing could tell, as a comment, with what would tell it."""
    return _with(f"{' ' * indent}# {key}: {example}", how)


def _with(text: str, comment: str) -> str:
    return f"{text.ljust(COLUMN - 2)}  # {as_comment(comment)}"


def scalar(value: Any) -> str:
    """A value in YAML: quoted where it would be read as something else."""
    if isinstance(value, Quoted):
        return json.dumps(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if value < 1e6 else f"{value:.0f}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(scalar, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {scalar(each)}' for key, each in value.items())}}}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT else json.dumps(text)


def as_comment(text: str) -> str:
    """Text for one line of a comment: what a scheduler says may hold anything."""
    return re.sub(r"[^\x20-\x7e]+", " ", text)[:200]


def _top(cluster: Cluster | None, here: Here, around: Surroundings) -> Iterator[str]:
    if cluster and cluster.name:
        yield line(0, "name", word(cluster.name), f"told by {cluster.title}")
    else:
        yield line(0, "name", word(here.host), f"assumed: the name of this machine, {here.host}")
    shared = ", ".join(around.shared) or "none is mounted here"
    yield unknown(0, "yard", "/DIRECTORY/stackyard", f"the site's yard, on a file system that all nodes see: {shared}")
    yield unknown(0, "user_yard", "$SCRATCH/stackyard", f"users' yards; not where files are purged; {around.scratch}")
    yield ""


def _nodes(cluster: Cluster | None, found: Sequence[Kind], here: Here, seen: Mapping[str, Here]) -> Iterator[str]:
    yield "nodes:"
    if not found:
        if cluster:
            yield f"  # {cluster.title} named no nodes: this is the machine on which init ran, which jobs may never see"
        yield f"  {word(here.host)}:"
        yield from _seen(here)
        yield ""
        return
    assert cluster
    for kind in found:
        hosts = as_comment(", ".join(kind.hosts[:3])) + (", ..." if len(kind.hosts) > 3 else "")
        yield _with(f"  {kind.name}:", f"{counted(len(kind.hosts), 'node')}: {hosts}")
        mine = here.host in {host.partition(".")[0] for host in kind.hosts}
        if mine or kind.name in seen:
            yield from _seen(seen.get(kind.name, here), kind.like, cluster.title)
        else:
            yield from _told(cluster, kind.like, here)
        if kind.queue:
            yield line(4, "queue", kind.queue, f"told by {cluster.title}")
        if kind.constraint:
            yield line(4, "constraint", kind.constraint, f"told by {cluster.title}: others of {kind.queue} lack it")
    yield ""


def _seen(here: Here, node: HostNode | None = None, title: str = "") -> Iterator[str]:
    """A kind of nodes of which this one was seen; what jobs get of it is what its scheduler tells, if that differs."""
    machine, own, seen = here.machine, here.cores, f"seen on {here.host}"
    yield line(4, "platform", machine.platform, seen)
    yield line(4, "microarchitecture", machine.microarchitecture, seen)
    agrees = node is None or own.cores == node.all_cores or (not node.smt and own.cores * own.smt == node.all_cores)
    if node and not agrees:
        yield from _cores(node, f"told by {title}; {seen}: {counted(own.cores, 'core')}")
    else:
        reserved = node.all_cores - node.cores if node and node.smt else 0
        yield line(4, "cores", own.cores - reserved, seen)
        if reserved:
            yield line(4, "all_cores", own.cores, f"{seen}; {reserved} are for the system")
        yield line(4, "sockets", own.sockets, seen)
        if own.smt > 1:
            yield line(4, "smt", own.smt, seen)
            yield line(4, "smt_numbering", own.numbering, seen)
    if node and node.memory_gib:
        yield line(4, "memory_gib", node.memory_gib, f"told by {title}")
    else:
        yield line(4, "memory_gib", machine.memory_gib, seen)
    if machine.glibc:
        yield line(4, "glibc", Quoted(machine.glibc), seen)
    if kernel := re.match(r"\d+(\.\d+)*", machine.kernel):
        yield line(4, "kernel", Quoted(kernel[0]), seen)
    yield from _seen_gpus(here, node, title)
    if here.local:
        yield line(4, "local_disk", here.local[0], seen)
    if here.interfaces:
        yield line(4, "nics", here.interfaces, seen)


def _seen_gpus(here: Here, node: HostNode | None, title: str) -> Iterator[str]:
    machine, seen = here.machine, f"seen on {here.host}"
    if not machine.gpus:
        if node and node.gpus:
            yield line(4, "gpu", _gpu(node, "").value, f"told by {title}; none was seen on {here.host}")
        return
    first = machine.gpus[0]
    driver = machine.nvidia_driver if first.vendor == "nvidia" else machine.amd_driver
    gpu: dict[str, Any] = {"count": len(machine.gpus), "vendor": first.vendor, "model": first.model}
    gpu |= {key: Quoted(value) for key, value in (("driver", driver), ("cuda", machine.cuda)) if value}
    yield line(4, "gpu", gpu, seen)
    if not here.cores.domains:
        yield unknown(
            4, "domains", "[...]", "which GPU is next to which cores: nvidia-smi topo -m; rocm-smi --showtopo"
        )
        return
    yield _with("    domains:", seen)
    for socket, cores, gpus in here.cores.domains:
        yield f"      - {scalar({'socket': socket, 'cores': Quoted(cores), 'gpus': list(gpus)})}"


def _cores(node: HostNode, why: str) -> Iterator[str]:
    yield line(4, "cores", node.cores, why)
    if node.all_cores > node.cores:
        yield line(4, "all_cores", node.all_cores, f"{why}; {node.all_cores - node.cores} are for the system")
    yield line(4, "sockets", node.sockets, why)
    if node.smt > 1:
        yield line(4, "smt", node.smt, why)


def _told(cluster: Cluster, node: HostNode, here: Here) -> Iterator[str]:
    """A kind of nodes as its scheduler describes it."""
    told, mine = f"told by {cluster.title}", here.machine
    platform = next((row.conda for row in LINUX if row.machine == node.arch), "")
    yield line(4, "platform", platform or mine.platform,
               f"{told}: {node.arch}" if platform else "assumed: that of this machine")  # fmt: skip
    if cluster.threads:
        smt = here.cores.smt if node.cores % here.cores.smt == 0 else 1
        threads = f"{cluster.title} counts {node.cores} CPUs, this machine has {smt} hardware threads a core"
        yield line(4, "cores", node.cores // smt, f"assumed: {threads}")
        if smt > 1:
            yield line(4, "smt", smt, "assumed: as this machine")
        yield unknown(4, "sockets", "2", f"{cluster.title} does not know it: lscpu on a node")
    else:
        yield from _cores(node, told)
    if node.memory_gib:
        yield line(4, "memory_gib", node.memory_gib, told)
    if node.gpus:
        yield line(4, "gpu", *_gpu(node, told))
    probe = "not told: stackyard init --probe asks a node"
    missing = ["microarchitecture", "glibc", "local_disk", *(["domains", "gpu: driver, cuda"] if node.gpus else [])]
    yield _with(f"    # {', '.join(missing)}", probe)


def _gpu(node: HostNode, told: str) -> Told:
    model = re.sub(r"^(nvidia|amd|intel)_", "", node.gpu_model)
    vendor = "amd" if _AMD.match(node.gpu_model) else "intel" if _INTEL.match(node.gpu_model) else "nvidia"
    value = {"count": node.gpus, "vendor": vendor} | ({"model": model} if model else {})
    return Told(value, told if model else f"{told}; assumed: of NVIDIA")


def _scheduler(cluster: Cluster | None, here: Here) -> Iterator[str]:
    yield "scheduler:"
    if cluster is None:
        yield line(2, "kind", Quoted("none"), f"seen on {here.host}: no scheduler answers here")
        yield line(2, "launcher", "local", "assumed: ranks are started on this machine")
        yield ""
        return
    yield line(2, "kind", cluster.kind, f"seen on {here.host}: its commands are on PATH")
    for key, told in cluster.settings.items():
        value = Quoted(told.value) if key == "version" else told.value
        yield line(2, key, value, told.origin)
    if default := next((queue.name for queue in cluster.queues if queue.is_default), ""):
        yield line(2, "queue", default, f"told by {cluster.title}: the default")
    limited = [queue for queue in cluster.queues if queue.is_up and (queue.max_nodes or queue.time_min)]
    if limited:
        yield _with("  queues:", f"told by {cluster.title}")
    for queue in sorted(limited, key=lambda queue: not queue.is_default):
        row: dict[str, Any] = {"name": queue.name}
        row |= {"min_nodes": queue.min_nodes} if queue.min_nodes > 1 else {}
        row |= {"max_nodes": queue.max_nodes} if queue.max_nodes else {}
        row |= {"time_min": queue.time_min} if queue.time_min else {}
        yield f"    - {scalar(row)}"
    for remark in cluster.remarks:
        yield f"  # {as_comment(remark)}"
    yield ""


def _runtime(cluster: Cluster | None, here: Here) -> Iterator[str]:
    """The runtime of images: set where there is one, and none that a launch would find by itself."""
    own = [Told(name, f"seen on {here.host}: {name} is on PATH") for name in here.runtimes if name in _NAMED]
    possible = list({told.value: told for told in (*own, *(cluster.runtimes if cluster else ()))}.values())
    if not possible:
        return
    told, *more = possible
    found = [name for name in here.runtimes if name in _OF_FILES]
    if found or more:
        why = f"{told.origin}; not set, since there are others: {', '.join([*found, *(each.value for each in more)])}"
        yield unknown(0, "launch", f"{{container: {{runtime: {told.value}}}}}", why)
    else:
        yield "launch:"
        yield line(2, "container", {"runtime": told.value}, told.origin)
    yield ""


def _rest(cluster: Cluster | None, here: Here, around: Surroundings) -> Iterator[str]:
    yield from _runtime(cluster, here)
    for section, rows in around.sections.items():
        yield f"{section}:"
        for key, told in rows.items():
            yield line(2, key, told.value, told.origin)
        yield ""
    if here.runtimes:
        yield f"# Containers on {here.host}: {', '.join(here.runtimes)}"
    for remark in around.remarks:
        yield f"# {as_comment(remark)}"
