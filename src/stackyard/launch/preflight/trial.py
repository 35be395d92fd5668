"""One start of ranks for the preflight: writes its files, and evaluates its result.json."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackyard.core.hostlist import same_host, short_host
from stackyard.inputs.sites.sitemodels import Reference
from stackyard.launch.layout.model import Layout
from stackyard.launch.preflight.judge import judge
from stackyard.launch.preflight.model import WORST, Measurement, Outcome, Stage, Verdict
from stackyard.launch.records.outcome import StepResult
from stackyard.yard.write.atomic import write_json, write_text

START = """import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from stackyard_preflight.preflight.node.rank import main

main()
"""
"""The directory is added to sys.path since PYTHONSAFEPATH and -I exclude it."""
PYTHON = 'p=$(command -v python || command -v python3) && exec "$p" "$0" "$1"'
"""The environment's Python: `python` in a stack; elsewhere perhaps only `python3`."""

SHARED = ("__init__.py", "handshake.py", "messages.py", "sockets.py")
"""What the ranks' program uses of `stackyard.launch.node`."""
ALL_STAGES = ("identity", "hosts", "libraries", "gpus", "gloo", "node", "pairs", "all", "mpi", "tcp")
GONE = {"lost": "ended", "unresponsive": "stopped responding"}
"""Values of `at` for ranks that are at fault themselves, rather than waiting for others."""
LOCAL_STAGES = ("hosts", "libraries", "gpus", "node")
"""Stages whose errors concern only the host on which they happen."""


@dataclass(frozen=True)
class PreflightOptions:
    """The parameters of a preflight.

    Attributes:
        stages: the stages, in order; `mpi` runs only where the launcher wires the ranks up for MPI.
        seconds: the approximate duration of a bandwidth measurement; `speed_seconds`: one of CPU, memory or GPU.
        bytes: the size of an all-reduce; 0: 1 GiB on GPUs, calibrated on CPUs.
        start_s, answer_s, connect_s, collective_s: time limits for all ranks to connect, for one answer (including the
            import of torch from a cold file system), for a group to connect, for one round of all-reduces.
        clock_limit_s: the largest tolerated difference of clocks.
        side_by_side: the largest number of groups that are tested at a time.
    """

    stages: tuple[str, ...] = ALL_STAGES
    seconds: float = 1.0
    speed_seconds: float = 0.3
    bytes: int = 0
    start_s: float = 60.0
    answer_s: float = 180.0
    connect_s: float = 60.0
    collective_s: float = 120.0
    clock_limit_s: float = 0.5
    side_by_side: int = 16


@dataclass(frozen=True)
class Trial:
    """The result of one start. `bad`: hosts known to be bad without a search, with reasons; `pairs`: good pairs."""

    hosts: tuple[str, ...]
    stages: tuple[Stage, ...]
    bad: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[tuple[tuple[str, ...], bool], ...] = ()
    differences: tuple[str, ...] = ()
    launcher_output: str = ""

    @property
    def passed(self) -> bool:
        """Whether a program may start on these hosts."""
        return bool(self.stages) and all(stage.good for stage in self.stages) and not self.bad

    @property
    def failing(self) -> Stage | None:
        """The first stage that did not pass."""
        return next((stage for stage in self.stages if not stage.good), None)


def install(directory: Path, program: str = "rank") -> Path:
    """Write the ranks' program below `directory`, where all nodes can read it; returns its start file.

    The package `stackyard_preflight` holds copies at the same places as in `stackyard.launch`, so that relative imports
    work in both. `program` is the module whose `main` is called.
    """
    launch = Path(__file__).parents[1]
    copied = [*(launch / "node" / name for name in SHARED), *sorted((launch / "preflight" / "node").glob("*.py"))]
    for file in copied:
        write_text(directory / "stackyard_preflight" / file.relative_to(launch), file.read_text(encoding="utf-8"))
    start = directory / "start.py"
    write_text(start, START.replace("node.rank", f"node.{program}"))
    return start


def rank_argv(start: Path, step: Path) -> tuple[str, ...]:
    """The command of every rank."""
    return ("/bin/sh", "-c", PYTHON, str(start), str(step))


def write_spec(step: Path, hosts: Sequence[str], stages: Sequence[str], options: PreflightOptions) -> None:
    """Write spec.json, which all ranks read. It has the secret by which ranks are recognised."""
    limits = {"start": options.start_s, "answer": options.answer_s, "connect": options.connect_s,
              "collective": options.collective_s}  # fmt: skip
    write_json(
        step / "spec.json",
        {"secret": secrets.token_hex(32), "hosts": list(hosts), "stages": list(stages), "limits": limits,
         "seconds": options.seconds, "speed_seconds": options.speed_seconds, "bytes": options.bytes,
         "clock_limit_s": options.clock_limit_s},
        mode=0o600,
    )  # fmt: skip


def host_of(layout: Layout, rank: int) -> str:
    """The planned host of a rank."""
    index = rank % layout.nodes if layout.distribution == "cyclic" else rank // layout.ranks_per_node
    return layout.host(index)


def read(
    step: Path, hosts: tuple[str, ...], layout: Layout, result: StepResult, references: Sequence[Reference]
) -> Trial:
    """Evaluate a finished step. Raises OSError, ValueError if result.json exists but cannot be read."""
    file = step / "result.json"
    if not file.exists():
        return _without_result(hosts, result)
    data = json.loads(file.read_text(encoding="utf-8"))
    stages = tuple(_stage(stage, references) for stage in data["stages"])
    bad, pairs = _bad_hosts(data, stages, hosts, layout), tuple(_pairs(data, stages))
    if not data["finished"] and all(stage.good for stage in stages):
        stages = (*stages, _ended_early(result))
        bad = {**bad, **_lost(hosts, result)}
    soft = [d for d in data.get("differences", ()) if not d["hard"]]
    texts = tuple(f"{d['host']}: {d['what']} is {d['value']}, on most nodes {d['usual']}" for d in soft)
    return Trial(hosts, stages, bad, pairs, texts)


def _without_result(hosts: tuple[str, ...], result: StepResult) -> Trial:
    return Trial(hosts, (_ended_early(result),), _lost(hosts, result), launcher_output=result.launcher_output)


def _ended_early(result: StepResult) -> Stage:
    first = result.first
    said = first.tail if first and first.tail else result.launcher_output.strip().splitlines()
    tail = f": {said[-1].strip()}" if said else ""
    why = first.message if first and first.message else f"the ranks ended early ({result.state}, status {result.code})"
    return Stage("identity", "failed", why + tail)


def _lost(hosts: tuple[str, ...], result: StepResult) -> dict[str, str]:
    """Hosts that the hub reported as lost, or that never reported."""
    first = result.first
    if result.state == "node-lost" and first is not None and first.host in hosts:
        return {first.host: first.message or "lost connection to the node"}
    if result.state == "no-start" and result.hosts:
        return {host: "did not report" for host in hosts if not any(same_host(host, one) for one in result.hosts)}
    return {}


def _stage(data: Mapping[str, Any], references: Sequence[Reference]) -> Stage:
    measured = tuple(
        Measurement(m["name"], m["value"], m["unit"], tuple(m["hosts"]),
                    {key: value for key, value in m.items() if key not in ("name", "value", "unit", "hosts")})
        for m in data["measurements"]
    )  # fmt: skip
    verdicts = judge(measured, references)
    if data["outcome"] == "skipped":
        return Stage(data["name"], "skipped", data["reason"])
    outcome: Outcome = "failed" if data["outcome"] == "failed" or data["errors"] or data["silent"] else _worst(verdicts)
    reason = data["reason"] or next((v.message for v in verdicts if v.outcome == outcome != "passed"), "")
    return Stage(data["name"], outcome, reason, data["seconds"], measured, verdicts)


def _worst(verdicts: Sequence[Verdict]) -> Outcome:
    there = {verdict.outcome for verdict in verdicts}
    return next((outcome for outcome in WORST if outcome in there), "passed")


def _bad_hosts(
    data: Mapping[str, Any], stages: Sequence[Stage], hosts: tuple[str, ...], layout: Layout
) -> dict[str, str]:
    """Hosts that are bad without a search: no rank, different hardware, a local error, too slow alone."""
    bad: dict[str, str] = {}
    for raw, stage in zip(data["stages"], stages, strict=True):
        if raw["name"] == "identity" and raw["silent"]:
            bad.update(dict.fromkeys(raw.get("missing_hosts", ()), "no rank connected"))
            bad.update({host_of(layout, s["rank"]): f"rank {s['rank']} did not connect" for s in raw["silent"]})
        if raw["name"] in LOCAL_STAGES:
            bad.update({s["host"]: f"rank {s['rank']} timed out in {raw['name']}" for s in raw["silent"]})
            bad.update({e["host"]: e["error"] for e in raw["errors"]})
        bad.update({s["host"]: _gone(s, raw["name"]) for s in raw["silent"] if s["at"] in GONE})
        bad.update({v.hosts[0]: v.message for v in stage.verdicts if v.outcome == "slow" and len(v.hosts) == 1})
    bad.update({d["host"]: _different(d) for d in data.get("differences", ()) if d["hard"] and d["clear"]})
    full = {short_host(host): host for host in hosts}
    return {full.get(short_host(host), host): reason for host, reason in bad.items()}


def _gone(silent: Mapping[str, Any], stage: str) -> str:
    return f"rank {silent['rank']} {GONE[silent['at']]} in {stage}"


def _different(d: Mapping[str, Any]) -> str:
    return str(d["value"]) if d["what"] == "gpu_errors" else f"{d['what']} is {d['value']}, on most nodes {d['usual']}"


def _pairs(data: Mapping[str, Any], stages: Sequence[Stage]) -> list[tuple[tuple[str, ...], bool]]:
    """The pairs that passed the stages `pairs` and `tcp`."""
    pairs: list[tuple[tuple[str, ...], bool]] = []
    for raw, stage in zip(data["stages"], stages, strict=True):
        if raw["name"] in ("pairs", "tcp"):
            failed = {tuple(sorted(e["hosts"])) for e in raw["errors"] if len(e.get("hosts", ())) == 2}
            pairs += [(pair, False) for pair in sorted(failed)]
            pairs += [(v.hosts, v.outcome != "slow") for v in stage.verdicts if tuple(sorted(v.hosts)) not in failed]
    return pairs
