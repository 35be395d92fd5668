"""mpiexec of HPE's Parallel Application Launch Service (PALS), as Polaris and Aurora have it.

HPE   mpiexec(1) of PALS; the options of its client as published with the Cray CLI (cray/modules/mpiexec): after a colon
      it reads -n, --ppn, --depth, --wdir and --umask only. Here such ranks begin on the next host.
ALCF  https://docs.alcf.anl.gov/aurora/running-jobs-aurora/, https://docs.alcf.anl.gov/polaris/running-jobs/
"""

from __future__ import annotations

import os
from pathlib import Path

from . import ranks
from .grammar import Given, Refused, Style, parse, table
from .machine import Machine, load, numbers

OPTIONS = table(
    r"""
    -n --np                | positive                    | HPE
    --ppn                  | [0-9]+                      | HPE
    --soft                 | some                        | HPE
    --host --hosts --hostlist | some                     | HPE
    -f --hostfile          | some                        | HPE
    --arch                 | some                        | HPE
    --wdir                 | some                        | HPE
    --path                 | some                        | HPE
    --umask                | 0?[0-7]{1,3}                | HPE
    --env                  | some                        | HPE | many
    --genv                 | some                        | ALCF | many
    --envlist              | some                        | HPE
    --envall               | -                           | HPE
    --envnone              | -                           | HPE
    --transfer             | -                           | HPE
    --no-transfer          | -                           | HPE
    --cpu-bind             | (verbose,)?(none|numa|socket|core|thread|depth|list:[0-9,:-]+|mask:[0-9a-fA-Fx,]+) | HPE
    --mem-bind             | (verbose,)?(none|local|list:.+|mask:.+)  | HPE
    --gpu-bind             | (verbose,)?(none|list:[0-9.,:-]+)        | ALCF
    -d --depth             | positive                    | HPE
    -l --label             | -                           | HPE
    --no-label             | -                           | HPE
    --exclusive            | -                           | HPE
    --shared               | -                           | HPE
    --line-buffer          | -                           | HPE
    --no-line-buffer       | -                           | HPE
    --procinfo-file        | some                        | HPE
    --abort-on-failure     | -                           | HPE
    --no-abort-on-failure  | -                           | HPE
    --pmi                  | (?i:cray|pmix|none)         | HPE
    --rlimits              | some                        | HPE
    --sstartup             | -                           | HPE
    --no-sstartup          | -                           | HPE
    --no-vni               | -                           | ALCF
    -o                     | some                        | ALCF
    -e                     | some                        | ALCF
    """
)
STYLE = Style(
    "mpiexec",
    single=True,
    code=2,
    unknown="mpiexec: unrecognized option '{word}'",
    missing="mpiexec: option '{word}' requires an argument",
    invalid="mpiexec: invalid value '{value}' for option '{word}'",
)


def main(words: list[str]) -> int:
    """Place the ranks and run them."""
    given = parse(_pairs(words), OPTIONS, STYLE)
    machine = load()
    if not given.rest:
        raise Refused("mpiexec: no executable given", 2)
    hosts, default_ppn = _hosts(given)
    commands = _commands(given)
    in_all = sum(command.number("np", 1) for command in commands)
    placed: list[ranks.Rank] = []
    node = 0
    for command in commands:
        ppn = command.number("ppn", 0) or default_ppn
        count = command.number("np", 1)
        if count > ppn * (len(hosts) - node):
            raise Refused(
                f"mpiexec: {count} ranks do not fit on {len(hosts) - node} hosts with {ppn} ranks per node", 2
            )
        _check_bind(command, machine, ppn)
        first = (node, len(placed))
        placed += [_rank(command, machine, hosts, rank, ppn, count, first, in_all) for rank in range(count)]
        node += -(-count // ppn)
    ranks.placement("mpiexec", placed)
    output, error = (given.get(name).replace("%r", "{rank}") for name in ("o", "e"))
    return ranks.run(
        placed, commands[0].rest, _environ(given), cwd=given.get("wdir") or None, label="label" in given,
        end_on_error="no-abort-on-failure" not in given, output=output, error=error,
    )  # fmt: skip


OF_A_COMMAND = tuple(row for row in OPTIONS if row.names[0] in ("-n", "--ppn", "-d", "--wdir", "--umask"))


def _commands(given: Given) -> list[Given]:
    """What is said of each command between colons; hosts and the kind of binding are those of the whole line."""
    groups: list[list[str]] = [[]]
    for word in given.rest:
        groups.append([]) if word == ":" else groups[-1].append(word)
    found = [Given(groups[0], given.lists)]
    whole = {name: values for name, values in given.lists.items() if name != "np"}
    for words in groups[1:]:
        own = parse(words, OF_A_COMMAND, STYLE)
        if not own.rest:
            raise Refused("mpiexec: no executable given after a colon", 2)
        if own.rest != groups[0]:
            raise Refused("mpiexec: this stand-in starts one program only", 2)
        found.append(own.under(Given([], whole)))
    return found


def _pairs(words: list[str]) -> list[str]:
    """``--env NAME VALUE`` as ``--env NAME=VALUE``; both are documented."""
    done: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        done.append(word)
        if word == "--":
            break
        if word in ("--env", "-env", "--genv", "-genv") and queue:
            item = queue.pop(0)
            done.append(item if "=" in item or not queue else f"{item}={queue.pop(0)}")
        elif not word.startswith("-") and (len(done) < 2 or not _takes_value(done[-2])):
            break
    return done + queue


def _takes_value(word: str) -> bool:
    rows = [row for row in OPTIONS if word in row.names or "-" + word in row.names]
    return any(row.value is not None for row in rows)


def _hosts(given: Given) -> tuple[list[str], int]:
    if "hostlist" in given:
        named = given.get("hostlist").split(",")
    else:
        name = given.get("hostfile") or os.environ.get("PBS_NODEFILE", "")
        if not name:
            raise Refused("mpiexec: no hosts: not in a PBS job and neither --hosts nor --hostfile given")
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise Refused(f"mpiexec: {name}: {error.strerror}", 2) from error
        named = [line.split(":")[0].strip() for line in text.splitlines() if line.strip()]
    hosts = list(dict.fromkeys(named))
    allowed = _allocated()
    for host in hosts:
        if host not in allowed:
            raise Refused(f"mpiexec: host {host or '(empty)'} is not in the job's allocation")
    if not hosts:
        raise Refused("mpiexec: Host list is empty", 2)
    return hosts, max(named.count(host) for host in hosts)


def _allocated() -> set[str]:
    name = os.environ.get("PBS_NODEFILE")
    return set(Path(name).read_text(encoding="utf-8").split()) if name else set(load().hosts)


def _environ(given: Given) -> dict[str, str]:
    environ = dict(os.environ)
    if "envnone" in given or "envlist" in given:
        kept = [*given.get("envlist").split(","), "STANDIN_STATE", "STANDIN_MACHINE"]
        environ = {name: environ[name] for name in kept if name in environ}
    for item in (*given.lists.get("genv", []), *given.lists.get("env", [])):
        name, equals, value = item.partition("=")
        if not equals:
            raise Refused(f"mpiexec: --env {item}: a value is needed", 2)
        environ[name] = value
    return environ


def _bind(given: Given) -> str:
    return given.get("cpu-bind", "none").removeprefix("verbose,")


def _check_bind(given: Given, machine: Machine, ppn: int) -> None:
    how, depth = _bind(given), given.number("depth", 1)
    threads = machine.all_cores * machine.smt
    if how == "depth" and ppn * depth > threads:
        raise Refused(f"mpiexec: {ppn} ranks of depth {depth} need more than the {threads} CPUs of a node", 2)
    if how == "core" and ppn > machine.all_cores:
        raise Refused(f"mpiexec: {ppn} ranks cannot be bound to {machine.all_cores} cores", 2)
    if how.startswith("list:"):
        for part in how[5:].split(":"):
            try:
                most = max(numbers(part))
            except ValueError as error:
                raise Refused(f"mpiexec: --cpu-bind: '{part}' is not a range list of CPUs", 2) from error
            if most >= threads:
                raise Refused(f"mpiexec: --cpu-bind: CPU {most} does not exist; a node has {threads}", 2)


def _cpus(given: Given, machine: Machine, local: int) -> tuple[int, ...]:
    how, depth = _bind(given), given.number("depth", 1)
    every = tuple(range(machine.all_cores * machine.smt))
    if how == "depth":
        return every[local * depth : (local + 1) * depth]
    if how == "thread":
        return (every[local],)
    if how == "core":
        return machine.threads(local, machine.smt)
    if how.startswith("list:"):
        lists = how[5:].split(":")
        return tuple(numbers(lists[local % len(lists)]))
    if how.startswith("mask:"):
        masks = how[5:].split(",")
        mask = int(masks[local % len(masks)], 16)
        return tuple(cpu for cpu in every if mask >> cpu & 1)
    if how in ("numa", "socket"):
        own = machine.domains[local % len(machine.domains)]
        sockets = [d for d in machine.domains if d.socket == own.socket] if how == "socket" else [own]
        return tuple(sorted(t for d in sockets for core in d.cores for t in machine.threads(core, machine.smt)))
    return every


def _rank(
    given: Given,
    machine: Machine,
    hosts: list[str],
    rank: int,
    ppn: int,
    ranks_of_it: int,
    first: tuple[int, int],
    count: int,
) -> ranks.Rank:
    """A rank of a command with `ranks_of_it` ranks, whose `first` node and rank are these; `count` are all ranks."""
    node, local = divmod(rank, ppn)
    here = min(ppn, ranks_of_it - node * ppn)
    node, rank = node + first[0], rank + first[1]
    variables = {
        "PALS_RANKID": rank, "PALS_LOCAL_RANKID": local, "PALS_LOCAL_SIZE": here, "PALS_NODEID": node,
        "PALS_DEPTH": given.number("depth", 1), "PALS_APID": "5d1e0000-0000-4000-8000-000000000001",
    }  # fmt: skip
    if given.get("pmi", "cray").lower() == "cray":
        variables |= {"PMI_RANK": rank, "PMI_SIZE": count, "PMI_LOCAL_RANK": local, "PMI_LOCAL_SIZE": here}
    elif given.get("pmi").lower() == "pmix":
        variables |= {"PMIX_RANK": rank}
    gpus = machine.gpus
    how = given.get("gpu-bind").removeprefix("verbose,")
    if how.startswith("list:"):
        lists = how[5:].split(":")
        own = lists[local % len(lists)]
        variables["ZE_AFFINITY_MASK" if machine.vendor == "intel" else "CUDA_VISIBLE_DEVICES"] = own
        gpus = tuple(numbers(",".join(part.split(".")[0] for part in own.split(","))))
    text = {name: str(value) for name, value in variables.items()}
    return ranks.Rank(rank, local, node, hosts[node], _cpus(given, machine, local), gpus, text)
