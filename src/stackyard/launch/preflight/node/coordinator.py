"""The coordinator, a thread of rank 0: leads all ranks through the stages and writes the results after each stage.

result.json holds ``stages`` (name, outcome ``done | skipped | failed``, reason, seconds, measurements, silent, errors),
``facts`` by host, ``differences``, and ``finished``. It only checks what prevents further stages: missing or duplicate
ranks, nodes that differ.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import compare
from .connections import Answers, Connections
from .groups import bracketed, ranks_text, rounds, short
from .operations import KINDS

FAILED = 3
GLOO_RANKS = 1024
LOST = "lost"
DEAD = "unresponsive"
ALIVE_S = 3.0


class Stop(Exception):
    """A stage failed, and no further stage makes sense."""


class Coordinator:
    """The stages in order. `spec` is spec.json: secret, stages, hosts, limits (s), seconds, bytes, mpi, device."""

    def __init__(self, directory: Path, spec: dict[str, Any], address: str, port: int, size: int) -> None:
        self.directory, self.spec, self.size = directory, spec, size
        self.ranks = Connections(address, port, spec["secret"], directory / "stop", size)
        self.nodes: list[tuple[str, list[int]]] = []
        self.libraries: dict[int, dict[str, Any]] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.result: dict[str, Any] = {"format": 1, "stages": [], "facts": self.facts, "finished": False}

    # ------------------------------------------------------------------------------------------------ the order

    def lead(self) -> int:
        """Run all stages; returns the exit status for all ranks."""
        code = 0
        for name in self.spec["stages"]:
            stage: dict[str, Any] = {"name": name, "outcome": "done", "reason": "", "measurements": [],
                                     "silent": [], "errors": []}  # fmt: skip
            self.result["stages"].append(stage)
            began = time.monotonic()
            stopped = False
            try:
                _STAGES[name](self, stage)
            except Stop as stop:
                stage["outcome"], stage["reason"], stopped = "failed", str(stop), True
            stage["seconds"] = round(time.monotonic() - began, 3)
            print(
                f"preflight: {name}: {stage['outcome']}{': ' if stage['reason'] else ''}{stage['reason']}", flush=True
            )
            self._write()
            if stopped:
                code = FAILED
                break
        self.result["finished"] = code == 0
        self._write()
        hung = any(stage["silent"] for stage in self.result["stages"])
        end = {"do": "end", "code": code or (FAILED if hung else 0), "now": bool(code or hung)}
        self.ranks.finish(end)
        return code

    def _write(self) -> None:
        target = self.directory / "result.json"
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(self.result), encoding="utf-8")
        os.replace(partial, target)

    # ------------------------------------------------------------------------------------------------ the stages

    def identity(self, stage: dict[str, Any]) -> None:
        """Check that every rank has connected, once, with the same world size, on the planned hosts."""
        self.ranks.gather(self.size, self.spec["limits"]["start"])
        by_host: dict[str, list[int]] = {}
        for rank, connection in sorted(self.ranks.by_rank.items()):
            by_host.setdefault(connection.host, []).append(rank)
        self.nodes = sorted(by_host.items(), key=lambda item: item[1][0])
        missing = sorted(set(range(self.size)) - set(self.ranks.by_rank))
        there = {short(host) for host in by_host}
        absent = [host for host in self.spec["hosts"] if short(host) not in there]
        stage["silent"] = [{"rank": rank, "host": "", "at": "start", "peers": []} for rank in missing]
        stage["missing_hosts"] = absent
        if self.ranks.twice:
            raise Stop(f"duplicate rank: {'; '.join(self.ranks.twice)}")
        if missing:
            where = f" (no rank on {', '.join(absent)})" if absent else ""
            waited = f"timed out after {self.ranks.waited_s:.0f} s"
            raise Stop(f"{waited} waiting for {ranks_text(missing)} of {self.size}{where}")
        self._agreed(there, absent)
        stage["measurements"].append({"name": "ranks", "value": float(self.size), "unit": "ranks", "hosts": []})

    def _agreed(self, there: set[str], absent: list[str]) -> None:
        other = [one for one in self.ranks.by_rank.values() if int(one.hello["size"]) != self.size]
        if other:
            raise Stop(
                f"world size mismatch: {other[0].hello['size']}, expected {self.size} (rank {other[0].rank} on "
                f"{other[0].host})"
            )
        for host, ranks in self.nodes:
            local = [int(self.ranks.by_rank[rank].hello["local_rank"]) for rank in ranks]
            if sorted(local) != list(range(len(local))):
                raise Stop(f"local rank mismatch: {sorted(local)}, expected 0 to {len(local) - 1} (on {host})")
        if absent and len(absent) < len(self.spec["hosts"]):
            unplanned = sorted(there - {short(host) for host in self.spec["hosts"]})
            raise Stop(f"no rank on {', '.join(absent)}; unplanned nodes: {', '.join(unplanned) or 'none'}")

    def hosts(self, stage: dict[str, Any]) -> None:
        """Collect facts and clocks of all nodes."""
        answers = self._ask(stage, self._leaders(), {"do": "facts"})
        for host, ranks in self.nodes:
            if ranks[0] in answers.results:
                self.facts[host] = {**answers.results[ranks[0]], "clock_s": self._clock(ranks[0])}
        if stage["silent"] or stage["errors"]:
            raise Stop("not every node reported its facts")
        differences = compare.compare(self.facts, float(self.spec.get("clock_limit_s", compare.CLOCK_LIMIT_S)))
        self.result["differences"] = [difference._asdict() for difference in differences]
        hard = [difference for difference in differences if difference.hard]
        if hard:
            more = f"; and {len(hard) - 1} more differences" if len(hard) > 1 else ""
            raise Stop(f"{hard[0]}{more}")

    def libraries_of_all(self, stage: dict[str, Any]) -> None:
        """Import torch on every rank, then measure the nodes: all ranks at once; the slowest rank of a node counts."""
        answers = self._ask(stage, range(self.size), {"do": "libraries"})
        self.libraries = answers.results
        if stage["silent"] or stage["errors"]:
            raise Stop("not every rank could load the libraries")
        without = [rank for rank, row in self.libraries.items() if not row["torch"]]
        if without and len(without) < self.size:
            hosts = self._hosts_of(without)
            stage["errors"] = [
                {"rank": r, "host": self._host(r), "error": self.libraries[r]["why"]} for r in without[:16]
            ]
            raise Stop(
                f"cannot import torch on {', '.join(hosts)}, unlike on other nodes: {self.libraries[without[0]]['why']}"
            )
        for host, ranks in self.nodes:
            seconds = [float(self.libraries[rank].get("seconds", 0)) for rank in ranks]
            if max(seconds):
                stage["measurements"].append({"name": "import", "value": max(seconds), "unit": "s", "hosts": [host]})
        if self.spec["speed_seconds"]:
            self._speeds(stage, {"do": "speed", "seconds": self.spec["speed_seconds"]}, range(self.size))

    def gpus(self, stage: dict[str, Any]) -> None:
        """Check that every rank has its own GPU, and measure each."""
        seen = {rank: int(row.get("gpus", 0)) for rank, row in self.libraries.items()}
        driver = any(fact["gpus"] for fact in self.facts.values())
        if not any(seen.values()):
            assigned = next((fact["assigned"] for fact in self.facts.values() if fact["assigned"]), "")
            why = "no GPU found on any node" if not driver else "the nodes have GPUs, but torch sees none"
            return _skip(stage, f"{why} ({assigned} is set)" if assigned else why)
        without = [rank for rank, count in seen.items() if not count]
        if without:
            stage["errors"] = [{"rank": r, "host": self._host(r), "error": "torch sees no GPU"} for r in without[:16]]
            raise Stop(f"torch sees no GPU on {', '.join(self._hosts_of(without))}, unlike on other nodes")
        self._speeds(stage, {"do": "gpu", "seconds": self.spec["speed_seconds"]}, range(self.size))
        if stage["errors"]:
            raise Stop(f"rank {stage['errors'][0]['rank']}: {stage['errors'][0]['error']}")

    def gloo(self, stage: dict[str, Any]) -> None:
        """All ranks connect over Gloo and add numbers; only connecting is timed. Above 1024 ranks one rank per node,
        since Gloo connects all ranks with each other.
        """
        if not self._torch(stage):
            return
        group = list(range(self.size)) if self.size <= GLOO_RANKS else self._leaders()
        self._reduce(stage, [group], "gloo", gpu=False, name="gloo_connect", seconds=0.0)

    def node(self, stage: dict[str, Any]) -> None:
        """Run an all-reduce on all ranks of each node, all nodes in parallel."""
        groups = [ranks for _, ranks in self.nodes if len(ranks) > 1]
        if not groups:
            return _skip(stage, "one rank on each node")
        if self._torch(stage):
            self._reduce(stage, groups, *self._backend(), name="allreduce_node")

    def pairs(self, stage: dict[str, Any]) -> None:
        """Run an all-reduce on all ranks of neighbouring nodes, in two or three rounds of disjoint pairs."""
        if len(self.nodes) < 3:
            return _skip(stage, "fewer than three nodes")
        if not self._torch(stage):
            return
        for pairs in rounds(len(self.nodes)):
            groups = [sorted(self.nodes[a][1] + self.nodes[b][1]) for a, b in pairs]
            self._reduce(stage, groups, *self._backend(), name="allreduce_pair")
        if stage["errors"]:
            first = stage["errors"][0]
            raise Stop(f"rank {first['rank']} on {first['host']}: {first['error']}")

    def all(self, stage: dict[str, Any]) -> None:
        """Run an all-reduce on all ranks of all nodes."""
        if self.size == 1:
            return _skip(stage, "one rank")
        if self._torch(stage):
            self._reduce(stage, [list(range(self.size))], *self._backend(), name="allreduce_all")

    def mpi(self, stage: dict[str, Any]) -> None:
        """Run an all-reduce on all ranks over MPI, as connected by the launcher."""
        without = [rank for rank, row in self.libraries.items() if not row["mpi4py"]]
        if without or not self.libraries:
            where = "this environment" if len(without) == len(self.libraries) else ", ".join(self._hosts_of(without))
            return _skip(stage, f"mpi4py not found in {where}")
        self._write_hung(stage)
        self._reduce(stage, [list(range(self.size))], "mpi", gpu=False, name="mpi_allreduce_all")

    def _write_hung(self, stage: dict[str, Any]) -> None:
        """Write the result of a hang of rank 0, which ends its process, with this thread (`collective.over_mpi`)."""
        host, others = self._host(0), list(range(1, self.size))
        reason = f"rank 0 on {host} timed out after {self.spec['limits']['connect']:g} s in MPI_Init"
        silent = {"rank": 0, "host": host, "at": "starting MPI", "peers": others[:16], "hosts": self._hosts_of(others)}
        self.result["stages"][-1] = {**stage, "outcome": "failed", "reason": reason, "silent": [silent], "seconds": 0.0}
        self._write()
        self.result["stages"][-1] = stage

    def tcp(self, stage: dict[str, Any]) -> None:
        """Measure plain TCP streams between neighbouring nodes, in both directions; only without torch."""
        if any(library.get("torch") for library in self.libraries.values()):
            return _skip(stage, "covered by Gloo")
        if len(self.nodes) < 2:
            return _skip(stage, "one node")
        for pairs in rounds(len(self.nodes)):
            leaders = [(self.nodes[a][1][0], self.nodes[b][1][0]) for a, b in pairs]
            there = self._streams(stage, leaders)
            back = self._streams(stage, [(b, a) for a, b in leaders])
            for a, b in leaders:
                if (a, b) in there and (b, a) in back:
                    value, hosts = min(there[a, b], back[b, a]), self._hosts_of([a, b])
                    stage["measurements"].append({"name": "tcp", "value": value, "unit": "GB/s", "hosts": hosts})
        if stage["silent"] or stage["errors"]:
            raise Stop("not every node can connect to its neighbour")

    # ------------------------------------------------------------------------------------------------ parts of stages

    def _torch(self, stage: dict[str, Any]) -> bool:
        why = next((str(library["why"]) for library in self.libraries.values() if not library.get("torch")), "")
        if why or not self.libraries:
            _skip(stage, f"torch not found in this environment ({why or 'not checked'})")
            return False
        if not all(library["gloo"] for library in self.libraries.values()):
            _skip(stage, "torch was built without Gloo")
            return False
        return True

    def _backend(self) -> tuple[str, bool]:
        """nccl if every rank sees a GPU (on AMD it is RCCL), else gloo."""
        gpu = all(library["gpus"] and library["nccl"] for library in self.libraries.values())
        return ("nccl", True) if gpu else ("gloo", False)

    def _reduce(
        self, stage: dict[str, Any], groups: list[list[int]], backend: str, gpu: bool, name: str,
        seconds: float | None = None,
    ) -> None:  # fmt: skip
        """Run one all-reduce in each of several disjoint groups, in parallel."""
        ports = self._ask(stage, [group[0] for group in groups], {"do": "port"})
        commands: dict[int, dict[str, Any]] = {}
        for group in (group for group in groups if group[0] in ports.results):
            address = f"tcp://{bracketed(self._address(group[0]))}:{ports.results[group[0]]['port']}"
            for index, rank in enumerate(group):
                task = {"backend": backend, "address": address, "rank": index, "size": len(group), "gpu": gpu,
                        "bytes": self.spec["bytes"], "limit_s": self.spec["limits"]["connect"],
                        "seconds": self.spec["seconds"] if seconds is None else seconds}  # fmt: skip
                commands[rank] = {"do": "allreduce", "task": task}
        answers = self.ranks.ask(commands, self.spec["limits"]["collective"])
        self._note(stage, answers, groups)
        for group in groups:
            results = [answers.results[rank] for rank in group if rank in answers.results]
            if len(results) == len(group):
                stage["measurements"].append(self._bandwidth(name, backend, group, results[0]))
        if stage["silent"]:
            raise Stop(self._hung(stage))
        if stage["errors"] and len(groups) == 1:
            raise Stop(
                f"rank {stage['errors'][0]['rank']} on {stage['errors'][0]['host']}: {stage['errors'][0]['error']}"
            )

    def _bandwidth(self, name: str, backend: str, group: list[int], result: dict[str, Any]) -> dict[str, Any]:
        """The measurement: busbw = bytes / time x 2(n-1)/n, independent of n on a uniform network (nccl-tests)."""
        common = {"name": name, "hosts": self._hosts_of(group), "ranks": len(group), "backend": backend, **result}
        if not result["seconds"]:
            return {**common, "value": result["connect_s"], "unit": "s"}
        factor = KINDS["all_reduce"].bus(len(group))
        return {**common, "value": result["bytes"] / result["seconds"] * factor / 1e9, "unit": "GB/s"}

    def _streams(self, stage: dict[str, Any], pairs: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """GB/s from the first to the second of each pair, without failed pairs."""
        limit_s = float(self.spec["limits"]["collective"])
        ports = self._ask(stage, [b for _, b in pairs], {"do": "listen"})
        commands: dict[int, dict[str, Any]] = {}
        for a, b in pairs:
            if b in ports.results:
                commands[b] = {"do": "receive", "limit_s": limit_s / 2}
                commands[a] = {"do": "stream", "address": self._address(b), "port": ports.results[b]["port"],
                               "seconds": self.spec["seconds"], "limit_s": limit_s / 2}  # fmt: skip
        answers = self.ranks.ask(commands, limit_s)
        self._note(stage, answers, [list(pair) for pair in pairs])
        sent = {(a, b): answers.results[a] for a, b in pairs if a in answers.results and b in answers.results}
        return {pair: row["bytes"] / row["seconds"] / 1e9 for pair, row in sent.items()}

    def _speeds(self, stage: dict[str, Any], command: dict[str, Any], ranks: Sequence[int]) -> None:
        answers = self._ask(stage, ranks, command)
        for host, mine in self.nodes:
            measured: dict[tuple[str, str], float] = {}
            for row in (m for rank in mine for m in answers.results.get(rank, {}).get("measured", ())):
                key = (row["name"], row["unit"])
                measured[key] = min(measured.get(key, float("inf")), row["value"])
            for (name, unit), value in measured.items():
                stage["measurements"].append({"name": name, "value": value, "unit": unit, "hosts": [host]})

    def _clock(self, rank: int) -> float:
        """Seconds by which a node's clock is ahead of this one's.

        Of several exchanges the quickest has the smallest error, at most half its round trip (the offset formula of
        NTP, RFC 5905 section 8, with one time stamp at the peer).
        """
        quickest, offset = float("inf"), 0.0
        for _ in range(5):
            sent, began = time.time(), time.perf_counter()
            answers = self.ranks.ask({rank: {"do": "clock"}}, 5.0)
            trip = time.perf_counter() - began
            if rank in answers.results and trip < quickest:
                quickest, offset = trip, float(answers.results[rank]["time"]) - (sent + trip / 2)
        return round(offset, 4)

    def _ask(self, stage: dict[str, Any], ranks: Sequence[int], command: dict[str, Any]) -> Answers:
        answers = self.ranks.ask(dict.fromkeys(ranks, command), self.spec["limits"]["answer"])
        self._note(stage, answers, [[rank] for rank in ranks])
        return answers

    def _note(self, stage: dict[str, Any], answers: Answers, groups: list[list[int]]) -> None:
        group_of = {rank: group for group in groups for rank in group}
        dead = answers.lost or self._unresponsive(answers.silent)
        for rank in dead or answers.silent:
            peers = [other for other in group_of.get(rank, []) if other != rank]
            at = answers.at.get(rank, "asked")
            at = LOST if rank in answers.lost else DEAD if dead else at
            stage["silent"].append(
                {"rank": rank, "host": self._host(rank), "at": at, "peers": peers[:16], "hosts": self._hosts_of(peers)}
            )
        for rank, text in sorted(answers.errors.items()):
            hosts = self._hosts_of(group_of.get(rank, [rank]))
            stage["errors"].append({"rank": rank, "host": self._host(rank), "error": text, "hosts": hosts})

    def _unresponsive(self, silent: list[int]) -> list[int]:
        """The hanging ranks whose process does not respond at all: the others only wait for them.

        A thread responds while the rank is in a collective operation.
        """
        if not silent:
            return []
        return self.ranks.ask({rank: {"do": "clock"} for rank in silent}, ALIVE_S).silent

    def _hung(self, stage: dict[str, Any]) -> str:
        first = stage["silent"][0]
        others = f" and {len(stage['silent']) - 1} others" if len(stage["silent"]) > 1 else ""
        where = f"rank {first['rank']} on {first['host']}{others}"
        peers = f"({first['at']}; with {', '.join(first['hosts']) or 'no other node'})"
        if first["at"] == LOST:
            return f"{where} ended or lost its connection {peers}"
        if first["at"] == DEAD:
            return f"{where} stopped responding {peers}"
        return f"{where} timed out after {self.spec['limits']['collective']:g} s {peers}"

    def _leaders(self) -> list[int]:
        return [ranks[0] for _, ranks in self.nodes]

    def _host(self, rank: int) -> str:
        return self.ranks.by_rank[rank].host

    def _hosts_of(self, ranks: Sequence[int]) -> list[str]:
        return list(dict.fromkeys(self._host(rank) for rank in ranks))

    def _address(self, rank: int) -> str:
        return self.ranks.by_rank[rank].address


def _skip(stage: dict[str, Any], reason: str) -> None:
    stage["outcome"], stage["reason"] = "skipped", reason


_STAGES: dict[str, Callable[[Coordinator, dict[str, Any]], None]] = {
    "identity": Coordinator.identity, "hosts": Coordinator.hosts, "libraries": Coordinator.libraries_of_all,
    "gpus": Coordinator.gpus, "gloo": Coordinator.gloo, "node": Coordinator.node, "pairs": Coordinator.pairs,
    "all": Coordinator.all, "mpi": Coordinator.mpi, "tcp": Coordinator.tcp,
}  # fmt: skip


def run(directory: Path, spec: dict[str, Any], address: str, port: int, size: int) -> None:
    """Run the coordinator's thread. An error here ends rank 0, and with it all ranks."""
    try:
        Coordinator(directory, spec, address, port, size).lead()
    except BaseException as error:
        print(f"preflight: {type(error).__name__}: {error}", flush=True)
        os._exit(FAILED)
