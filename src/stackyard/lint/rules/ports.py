"""Rules on the ports at which ranks meet: fixed ones, the same one twice, and those that others take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stackyard.lint.launches import AGENTS, Launch, python_program
from stackyard.lint.request import Request
from stackyard.lint.rules.address import assigned, commands
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.words import is_known

_PORTS = ("MASTER_PORT",)
_PORT_OPTION = re.compile(
    r"([+-]*(?:[\w-]+\.)*(?:master|main_process|dist|ddp|init|rdzv|distributed)[._-]port)(?:=(\d+))?"
)
_PORT_URL = re.compile(r"tcp://[^/\s]*:(\d+)$")
_ENDPOINT = re.compile(r"(--?rdzv[_-]endpoint)(?:=(\S+:\d+))?")


@rule(
    "fixed-port",
    why="Two jobs on one node with the same port collide: 'address already in use', or their ranks join each other",
    example="export MASTER_PORT=29500",
    instead="export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
)
def fixed_port(case: Case) -> Iterator[Hit]:
    """A hard-coded port for the rendezvous of ranks: a warning on shared nodes, otherwise a note."""
    if not case.script.scheduler:
        return
    request = case.script.request
    shared = case.shares_nodes
    array = bool(request.values.keys() & {"array", "J."}) or "[" in request.name
    ports = {"slurm": "$((20000 + SLURM_JOB_ID % 20000))", "lsf": "$((20000 + LSB_JOBID % 20000))"}
    seen: set[int] = set()
    for name, text, line in _ports(case):
        if text.isdecimal() and int(text) > 0 and line not in seen:
            seen.add(line)
            sure = shared is True or (
                shared is not False and (_takes_a_part(request) or (array and (request.nodes or 1) == 1))
            )
            sure = sure and not re.search(rf":?-{text}\}}", case.script.text)  # ${PORT:-29500}: by default
            host = "$MASTER_ADDR:" if "endpoint" in name or name == "tcp://" else ""
            sign = "" if name == "tcp://" else "="
            yield Hit(line, f"{name} is always {text}",
                      f"{name}{sign}{host}{ports.get(case.script.scheduler, 'a port derived from the job ID')}",
                      None if sure else "note")  # fmt: skip


def _takes_a_part(request: Request) -> bool:
    """Whether a job clearly uses part of a node: 1 or 2 GPUs with few cores or limited memory, or a shared queue."""
    if "shared" in request.queue.lower():
        return True
    cores = (request.cpus_per_task or 1) * (request.node_tasks or 1)
    limited = request.values.keys() & {"mem-per-cpu", "mem-per-gpu"} or request.memory_mib
    few = bool(request.node_gpus and request.node_gpus <= 2 and (request.nodes or 1) == 1)
    return few and bool(cores <= 32 or limited)


def _ports(case: Case) -> Iterator[tuple[str, str, int]]:
    known: set[str] = set()
    for resolved, line, _ in commands(case):
        for name, text in assigned(resolved):
            if name in _PORTS and (resolved.argv or _is_passed_on(case, name)):
                known.add(text)
                yield name, text, line
    for launch in case.launches:
        if launch.kind not in AGENTS:
            continue
        for option in ("master_port", "main_process_port", "rdzv_endpoint"):
            text = "" if _chooses_its_port(launch, option) else launch.get(option) or ""
            port = text.rsplit(":", 1)[-1] if option == "rdzv_endpoint" and ":" in text else text
            if is_known(port) and port.isdecimal() and port not in known:
                yield "--" + option, port, launch.line
    for words, line in _programs(case):
        for name, port in _ports_of_program(words):
            if port not in known:
                yield name, port, line


def _is_passed_on(case: Case, name: str) -> bool:
    """Whether a variable of the shell reaches a program: it is exported, or a word of the script has its value."""
    exported = rf"^\s*set\s+-\w*a|\b(?:export|declare|typeset)\b[^\n]*\b{name}\b"
    return bool(re.search(rf"{exported}|\$\{{?{name}\b", case.script.code, re.MULTILINE))


def _chooses_its_port(launch: Launch, option: str) -> bool:
    """Whether torchrun takes no notice of a port: alone on its node, or with a backend that needs none."""
    other = launch.get("rdzv_backend") not in (None, "static") or launch.given("rdzv_endpoint")
    return launch.given("standalone") or (option == "master_port" and other)


def _programs(case: Case) -> Iterator[tuple[tuple[str, ...], int]]:
    """The words of Python programs, those of launches and those that the script or a shell of its tasks runs itself."""
    for launch in case.launches:
        if case.innermost(launch):
            yield launch.program, launch.line
    started = {id(launch.command) for launch in case.launches}
    for resolved, line, _ in commands(case):
        if id(resolved) not in started and (program := python_program(resolved.argv)):
            yield program, line


def _ports_of_program(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Ports for the rendezvous of ranks among a program's words: ``--master_port=N``, ``dist.port=N``, ``tcp://h:N``."""
    for word, after in pairwise((*words, "")):
        if match := _PORT_URL.search(word):
            yield "tcp://", match[1]
        elif match := _PORT_OPTION.fullmatch(word):
            yield match[1], match[2] or after
        elif match := _ENDPOINT.fullmatch(word):
            yield match[1], (match[2] or after).rpartition(":")[2]


@rule(
    "same-port-twice",
    why="The second launch on the same node finds the port in use",
    example="torchrun --master_port=29500 a.py &\ntorchrun --master_port=29500 b.py &",
    instead="torchrun --master_port=29501 b.py &",
)
def same_port_twice(case: Case) -> Iterator[Hit]:
    """Two concurrent launches on one node with the same port."""
    seen: dict[str, int] = {}
    for launch in case.launches:
        if (
            launch.kind not in AGENTS
            or not launch.command.command.background
            or launch.ranks_of
            or launch.given("standalone")
        ):
            continue
        port = launch.get("master_port") or (
            "29500" if launch.kind == "torchrun" and not launch.given("rdzv_endpoint", "rdzv_backend") else ""
        )
        if not port.isdecimal() or int(port) == 0 or launch.remote or launch.command.command.within("branch"):
            continue
        if port in seen and seen[port] != launch.line:
            yield Hit(launch.line, f"port {port} is already used by the launch on line {seen[port]}",
                      f"--master_port={int(port) + 1}")  # fmt: skip
        seen.setdefault(port, launch.line)


@rule(
    "port-of-kernel",
    "note",
    why="The kernel gives ports from 32768 on to any connection: now and then the computed one is in use",
    example="MASTER_PORT=$((SLURM_JOB_ID % 16384 + 49152))",
    instead="MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
)
def port_of_kernel(case: Case) -> Iterator[Hit]:
    """A port that is computed from the job, in the range of the kernel, or drawn from one where root's ports are."""
    for number, row in enumerate(case.script.code.splitlines(), 1):
        if drawn := re.search(r"\bMASTER_PORT=(?:\$\{?RANDOM\b|\$\(\(\s*\$?RANDOM\s*\)\))", row):
            text = f"{drawn[0]} is 0 to 32767: ports below 1024 are root's, and each shell draws another one"
            yield Hit(number, text, "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))", "warning")
            return
        match = re.search(r"PORT=\$\(\([^)]*%[^)]*\+\s*(\d{5})\s*\)\)|PORT=\$\(\(\s*(\d{5})\s*\+[^)]*%", row)
        base = int(match[1] or match[2]) if match else 0
        if 32768 <= base <= 65535:
            yield Hit(number, f"the port is from {base} on", "$((20000 + SLURM_JOB_ID % 10000))")
            return


_DIGITS = re.compile(
    r"\$\(\([^()]*(?<!#)\$(?:\((?:[^()]*\|)?\s*(?:tail -c|cut -c|rev)[^()]*\)|\{SLURM_JOB_?ID: ?-\d\})"
)


@rule(
    "digits-as-octal",
    why="In arithmetic a number that begins with 0 is octal: 0089 is an error, and 0123 is 83",
    example="MASTER_PORT=$((10000 + $(echo -n $SLURM_JOBID | tail -c 4)))",
    instead="MASTER_PORT=$((10000 + SLURM_JOB_ID % 10000))",
)
def digits_as_octal(case: Case) -> Iterator[Hit]:
    """The last digits of a text, such as the job's number, in arithmetic without the base ``10#``."""
    for number, row in enumerate(case.script.code.splitlines(), 1):
        if _DIGITS.search(row):
            yield Hit(number, "digits that are cut off a number may begin with 0",
                      "$((10000 + SLURM_JOB_ID % 10000)), or 10#$(...)")  # fmt: skip
