"""The machine that the stand-ins pretend to be: read from the JSON file that STANDIN_MACHINE names."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Domain:
    """Cores (the operating system's numbers) and GPUs of one socket or NUMA domain."""

    socket: int
    cores: tuple[int, ...]
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """Nodes that are all alike, and a launch node in front of them."""

    hosts: tuple[str, ...]
    launch: str
    domains: tuple[Domain, ...]
    all_cores: int
    smt: int
    adjacent: bool
    vendor: str
    queues: tuple[str, ...]
    rack_nodes: int

    @property
    def cores(self) -> tuple[int, ...]:
        """All usable cores of a node, in order."""
        return tuple(core for domain in self.domains for core in domain.cores)

    @property
    def gpus(self) -> tuple[int, ...]:
        """All GPUs of a node."""
        return tuple(sorted(gpu for domain in self.domains for gpu in domain.gpus))

    def threads(self, core: int, smt: int) -> tuple[int, ...]:
        """The hardware threads of a core as the kernel numbers them."""
        if self.adjacent:
            return tuple(core * self.smt + t for t in range(smt))
        return tuple(core + t * self.all_cores for t in range(smt))

    def socket(self, core: int) -> int:
        """The socket of a core."""
        return next(domain.socket for domain in self.domains if core in domain.cores)


def load() -> Machine:
    """The pretended machine."""
    value = json.loads(Path(os.environ["STANDIN_MACHINE"]).read_text(encoding="utf-8"))
    domains = tuple(Domain(d["socket"], tuple(d["cores"]), tuple(d["gpus"])) for d in value["domains"])
    return Machine(
        tuple(value["hosts"]), value["launch"], domains, value["all_cores"], value["smt"],
        value["numbering"] == "adjacent", value["vendor"], tuple(value["queues"]), value["rack_nodes"],
    )  # fmt: skip


def numbers(text: str) -> list[int]:
    """``0-3,8`` as numbers; ValueError where it is not such a list."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(text)
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found
