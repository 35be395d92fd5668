"""Reads LSF by lshosts(1), bhosts(1) and bqueues(1)."""

from __future__ import annotations

import re

from stackyard.init.model import Ask, Cluster, HostNode, Queue, Told

TOLD = "told by LSF"
_ARCH = {"X86_64": "x86_64", "LINUXPPC64LE": "ppc64le", "LINUXPPC64": "ppc64le", "LINUX_ARM64": "aarch64"}
_UNITS = {"M": 1 / 1024, "G": 1.0, "T": 1024.0}


def is_here(ask: Ask) -> bool:
    """Whether bhosts and lshosts are on PATH."""
    return ask.has("bhosts") and ask.has("lshosts")


def read(ask: Ask) -> Cluster:
    """The hosts and queues."""
    about = ask("lsid", quiet=True)
    name = re.search(r"My cluster name is (\S+)", about)
    version = re.search(r"LSF \D*(\d+\.\d+)", about)
    csm = ask.has("jsrun")
    settings = {"launcher": Told("jsrun", "seen here: jsrun is on PATH") if csm else
                Told("mpirun", "assumed: no jsrun on PATH")}  # fmt: skip
    if csm:
        settings["csm"] = Told(value=True, origin="assumed: jsrun comes with CSM")
    if version:
        settings["version"] = Told(version[1], TOLD)
    nodes = _nodes(ask)
    parts = re.split(r"^(?=QUEUE:)", ask("bqueues", "-l"), flags=re.MULTILINE)
    queues = [_queue(part) for part in parts if part.startswith("QUEUE:")]
    return Cluster("lsf", "LSF", name[1] if name else "", nodes, queues, settings, threads=not _counts_cores(ask))


def _counts_cores(ask: Ask) -> bool:
    """Whether `ncpus` are cores: LSF counts processors, cores or threads, as EGO_DEFINE_NCPUS says."""
    return bool(re.search(r"EGO_DEFINE_NCPUS\s*=\s*cores", ask("badmin", "showconf", "mbd", quiet=True)))


def _nodes(ask: Ask) -> list[HostNode]:
    """The hosts that take jobs; those of ``lshosts`` that are only clients or managers do not."""
    states = {row["HOST_NAME"]: row for row in table(ask("bhosts", "-w"))}
    gpus = _gpus(ask("bhosts", "-gpu", "-w", quiet=True))
    found = []
    for row in table(ask("lshosts", "-w")):
        host, size = row["HOST_NAME"], re.fullmatch(r"([\d.]+)([MGT])", row.get("maxmem", ""))
        if host not in states or not row.get("ncpus", "").isdigit():
            continue
        cpus, (count, model) = int(row["ncpus"]), gpus.get(host, (0, ""))
        features = tuple(row.get("RESOURCES", "").strip("()").split())
        found.append(HostNode(
            host, _ARCH.get(row.get("type", "").upper(), ""), cpus, cpus, 1, 0,
            round(float(size[1]) * _UNITS[size[2]], 1) if size else 0.0, count, model, (), features,
            states[host].get("STATUS", "").startswith(("ok", "closed_Full", "closed_Excl", "closed_Busy")),
        ))  # fmt: skip
    return found


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table of LSF by its heading; the last column takes what is left of a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if line.startswith("HOST_NAME")), None)
    if start is None:
        return []
    names = lines[start].split()
    rows = (line.split(None, len(names) - 1) for line in lines[start + 1 :] if not line[0].isspace())
    return [dict(zip(names, row, strict=False)) for row in rows]


def _gpus(text: str) -> dict[str, tuple[int, str]]:
    """GPUs of each host, by a row per GPU: HOST_NAME GPU_ID MODEL ...; a host's further rows have no name."""
    found: dict[str, tuple[int, str]] = {}
    host = ""
    for line in text.splitlines():
        words = line.split()
        if not words or words[0] == "HOST_NAME":
            continue
        if not line[0].isspace():
            host, words = words[0], words[1:]
        if len(words) > 1 and words[0].isdigit() and host:
            count, model = found.get(host, (0, words[1]))
            found[host] = (count + 1, model)
    return found


def _queue(text: str) -> Queue:
    name = text.splitlines()[0].removeprefix("QUEUE:").strip()
    limit = re.search(r"^\s*RUNLIMIT\s*\n\s*([\d.]+) min", text, re.MULTILINE)
    state = re.search(r"^\s*PRIO.*\n\s*\S+\s+\S+\s+(\S+)", text, re.MULTILINE)
    exclusive = re.search(r"SCHEDULING POLICIES:.*\bEXCLUSIVE\b", text)
    is_default = bool(re.search(r"This is the default queue|default queue", text))
    return Queue(name, is_default, not state or state[1] == "Open:Active", bool(exclusive), 1, 0,
                 float(limit[1]) if limit else 0)  # fmt: skip
