"""Rules on the address at which ranks meet: MASTER_ADDR, --rdzv_endpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stackyard.lint.launches import AGENTS, RANKS
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import OPEN, TASK, shown

_NAMES = ("MASTER_ADDR", "MAIN_PROCESS_IP", "master_addr")
_LOCAL = re.compile(r"^(localhost|127\.0\.0\.1|::1|0\.0\.0\.0)$")
_OWN_NAME = re.compile(
    r"\$\(\s*/?(?:bin/)?hostname\b(?!.*\bnodelist)|\$\{?HOSTNAME\b|`hostname|SLURMD_NODENAME|\$\(\s*uname -n"
)


_CUT = re.compile(r"^\$\(\s*echo\s+\S*SLURM_(?:JOB_)?NODELIST\S*\s*\|\s*cut\s+-d\s?\S+\s+-f\s?1\s*\)$")


@dataclass(frozen=True)
class Address:
    """One occurrence of rank 0's address, where its value comes from, and whether each task evaluates it."""

    text: str
    origin: str
    line: int
    per_rank: bool
    option: str


def addresses(case: Case) -> Iterator[Address]:
    """MASTER_ADDR assignments of the body and of the tasks' shells, and the options of agents."""
    seen: set[tuple[int, str]] = set()
    for resolved, line, per_rank in commands(case):
        for name, text in assigned(resolved):
            if name in _NAMES and (line, name) not in seen:
                seen.add((line, name))
                yield Address(
                    text,
                    shown(case.script.origin(text, resolved)),
                    line,
                    per_rank and (TASK in text or OPEN not in text),
                    name,
                )
    yield from _passed(case)
    for launch in case.launches:
        if launch.kind not in AGENTS:
            continue
        for option in ("rdzv_endpoint", "master_addr", "main_process_ip"):
            text = launch.get(option) or ""
            text = text.rsplit(":", 1)[0] if option == "rdzv_endpoint" else text
            if text:
                yield Address(
                    text, shown(case.script.origin(text, launch.command)), launch.line, TASK in text, "--" + option
                )


def _passed(case: Case) -> Iterator[Address]:
    """Addresses that a launch line passes on: srun --export, jsrun -E, mpirun -x, a program's ``tcp://host:port``."""
    for launch in case.launches:
        for option in launch.reading.options:
            for item in option.value.split(",") if option.name in ("export", "env", "x") else ():
                name, equals, text = item.partition("=")
                if equals and name in _NAMES:
                    yield Address(text, shown(case.script.origin(text, launch.command)), launch.line, False, name)
        for word in launch.program if case.innermost(launch) else ():
            match = re.search(r"tcp://((?:\$\{[^}]*\}|[^:/\s])+):", word)
            if match:
                yield Address(match[1], shown(match[1]), launch.line, False, "tcp://")


def commands(case: Case) -> Iterator[tuple[ResolvedCommand, int, bool]]:
    """The commands of the script and of the shells of its tasks: each with its line, and whether tasks run it."""
    for resolved in case.script.commands:
        yield resolved, resolved.line, False
    for inner in case.script.inner:
        yield inner.resolved, inner.line, any(launch.kind in RANKS for launch in (inner.launch, *inner.launch.via))


def assigned(resolved: ResolvedCommand) -> Iterator[tuple[str, str]]:
    """The names that a command sets, with their values."""
    if resolved.argv[:1] in (("export",), ("declare",), ("typeset",)):
        for word in resolved.argv[1:]:
            name, equals, text = word.partition("=")
            if equals:
                yield name, text
    for assignment in resolved.command.assignments:
        value = resolved.environment.get(assignment.name)
        if value:
            yield assignment.name, value.text
        if assignment.value is None and resolved.argv:
            yield assignment.name, shown(assignment.raw)


def _start(case: Case) -> str:
    values = {
        "slurm": "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
        "lsf": "$(grep -v batch $LSB_DJOB_HOSTFILE | head -n 1)",
        "pbs": "$(head -n 1 $PBS_NODEFILE)",
        "flux": "$(flux hostlist -n 0 local)",
    }
    return values.get(case.script.scheduler, "the hostname of rank 0's node")


@rule(
    "address-localhost",
    why="On several nodes every node looks for rank 0 on itself: startup hangs until it times out",
    example="#SBATCH --nodes=2\nexport MASTER_ADDR=localhost",
    instead="export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
)
def address_localhost(case: Case) -> Iterator[Hit]:
    """localhost as the address of rank 0 in a job of several nodes."""
    nodes = case.script.request.nodes
    if not nodes or nodes == 1:
        return
    single = [
        launch
        for launch in case.launches
        if launch.kind == "torchrun" and (launch.given("standalone") or launch.get("nnodes") == "1")
    ]
    for address in addresses(case):
        if _LOCAL.match(address.text.strip("[]")) and not single and "LAUNCH_NODE_IPADDR:-" not in case.script.code:
            yield Hit(address.line, f"{address.option} is {address.text} in a job of {nodes} nodes",
                      f"{_set(address, _start(case))}")  # fmt: skip


def _set(address: Address, value: str) -> str:
    if address.option == "tcp://":
        return f"tcp://{value}:$PORT"
    return f"export {address.option}={value}" if address.option in _NAMES else f"{address.option} {value}:$PORT"


def _made(case: Case, address: Address) -> str:
    """The lines before an address that fill the array it is taken from."""
    name = re.search(r"\$\{(\w+)\[", address.text + address.origin)
    rows = case.script.text.splitlines()[: address.line]
    return "\n".join(row for row in rows if name and re.search(rf"\b{name[1]}\b", row))


@rule(
    "address-own-name",
    why="Each task uses its own hostname, so tasks on different nodes never connect",
    example="srun bash -c 'export MASTER_ADDR=$(hostname); python train.py'",
    instead="export MASTER_ADDR=$(hostname)   (before srun, in the batch script)",
)
def address_own_name(case: Case) -> Iterator[Hit]:
    """$(hostname) evaluated inside the tasks, or in an LSF script with -nnodes, which runs on the launch node."""
    nodes = case.script.request.nodes
    launch_node = case.script.scheduler == "lsf" and case.script.request.values.keys() & {"nnodes", "csm"}
    for address in addresses(case):
        own = _OWN_NAME.search(address.origin) and "srun" not in address.origin
        if not own:
            continue
        if address.per_rank and nodes != 1:
            yield Hit(address.line, f"{address.option} is each task's own hostname", _set(address, _start(case)),
                      None if nodes else "note")  # fmt: skip
        elif launch_node and any(launch.kind == "jsrun" for launch in case.launches):
            yield Hit(
                address.line, f"{address.option} is the launch node, where no rank runs", _set(address, _start(case))
            )


@rule(
    "address-launch-node",
    why="This is the address of the node that called srun, not of rank 0; in a batch script it is unset",
    example="export MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR",
    instead="export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
    evidence=("script", "source"),
)
def address_launch_node(case: Case) -> Iterator[Hit]:
    """SLURM_LAUNCH_NODE_IPADDR, SLURM_SUBMIT_HOST, the last node or the whole node list as rank 0's address."""
    named = re.search(
        r"(?m)^(?![ \t]*#).*(?:endpoint|master_addr|MASTER_ADDR)[= ]\S{0,100}\$\{SLURM_LAUNCH_NODE_IPADDR:-",
        case.script.text,
    )
    if named:
        line = case.script.text.count("\n", 0, named.end()) + 1
        yield Hit(line, "rank 0's address comes from $SLURM_LAUNCH_NODE_IPADDR", _start(case), "note")
    code = case.script.code
    named = re.search(r"(?:endpoint|master_addr|MASTER_ADDR)[= ]\S{0,100}\$\{SLURM_LAUNCH_NODE_IPADDR:-", code)
    if named:
        line = code.count("\n", 0, named.end()) + 1
        yield Hit(line, "rank 0's address comes from $SLURM_LAUNCH_NODE_IPADDR", _start(case), "note")
    for address in addresses(case):
        wrong = re.search(r"SLURM_LAUNCH_NODE_IPADDR|SLURM_SUBMIT_HOST|PBS_O_HOST|LSB_SUB_HOST", address.origin)
        if wrong:
            inside = address.per_rank and "LAUNCH" in wrong.group()
            yield Hit(address.line, f"{address.option} comes from ${wrong.group()}", _set(address, _start(case)),
                      "note" if inside else None)  # fmt: skip
    yield from _not_rank_0(case)
    for launch in case.launches:
        source = case.source(launch)
        if source and source.launch_node_line:
            yield Hit(launch.line,
                      f"{source.file}:{source.launch_node_line} reads rank 0's address from SLURM_LAUNCH_NODE_IPADDR",
                      "set MASTER_ADDR in the script", "note")  # fmt: skip


_LAST = re.compile(
    r"(?:\bsrun\b(?![^|]*(?:\s-[nN]\s*|--(?:ntasks|nodes)[= ])1\b)[^|]*\bhostname|\bhostnames|NODEFILE)\b[^|]*"
    r"\|\s*tail\b(?!\s+-n\s*\+)"
)
"""The end of a list of all nodes."""


def _not_rank_0(case: Case) -> Iterator[Hit]:
    """The last node, a node of another kind, or a value that is not a hostname."""
    nodes = case.script.request.nodes
    reason = "Rank 0 runs on the first node of the job: ranks that look for it elsewhere time out"
    for address in addresses(case) if nodes and nodes > 1 else ():
        origin, plain = address.origin, address.origin.strip("\"'")
        last = _LAST.search(origin)
        item = re.search(r"\w\[-1\]\}|\w: -1\}", address.text + origin)
        text = ""
        if last or (item and "hostnames" in _made(case, address)):
            text = "is the last node of the job, not rank 0's"
        elif _CUT.search(origin):
            text = f"is cut from a compressed list such as node[1-{nodes}], not from hostnames"
        elif re.fullmatch(r"login[-\w.]*", address.text, re.I):
            text = f"is {address.text}, where no rank runs"
        elif re.fullmatch(r"\$\{?SLURM_(?:JOB_)?NODELIST\}?", plain):
            text = f"is the whole list node[1-{nodes}], not one hostname"
        if text:
            yield Hit(address.line, f"{address.option} {text}", _set(address, _start(case)), reason=reason)


@rule(
    "address-lsf-first-host",
    why="The first host in LSF's lists is the launch node, where no rank runs; sorting the lists changes their order",
    example="export MASTER_ADDR=$(head -1 $LSB_DJOB_HOSTFILE)",
    instead="export MASTER_ADDR=$(grep -v batch $LSB_DJOB_HOSTFILE | head -n 1)",
)
def address_lsf_first_host(case: Case) -> Iterator[Hit]:
    """Rank 0's address from an LSF host list that still contains the launch node or was sorted."""
    if case.script.scheduler != "lsf" or not case.script.request.values.keys() & {"nnodes", "csm"}:
        return
    for address in addresses(case):
        listed = re.search(r"LSB_(?:DJOB_HOSTFILE|HOSTS|DJOB_RANKFILE|MCPU_HOSTS)", address.origin)
        if not listed:
            continue
        origin = re.sub(r"\|\s*awk\s+'\{\s*print \$1;?\s*\}'", "", address.origin)  # the first word is the first host
        removed = re.search(
            r"grep\s+(?:-\w*\s+)*-?\w*v|batch|login|tail|sed|awk|NR|-f\s?[23]|\[[1-9]\]|\$[23]|1d", origin
        )
        ordered = re.search(r"\bsort\b|\buniq\b.*-u|set\(", address.origin)
        if not removed:
            yield Hit(
                address.line, f"the first host of {listed.group()} is the launch node", _set(address, _start(case))
            )
        elif ordered:
            yield Hit(address.line, f"the hosts of {listed.group()} are sorted: the first one may not be rank 0's",
                      _set(address, _start(case)), "note")  # fmt: skip
