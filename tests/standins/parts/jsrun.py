"""jsrun of IBM Job Step Manager, by its manual and by what it printed on Summit.

IBM   https://www.ibm.com/docs/en/SSWRJV_10.1.0/jsm/jsrun.html
OLCF  https://docs.olcf.ornl.gov/systems/summit_user_guide.html (Job Launcher)
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from . import erf, ranks
from .grammar import Given, Refused, Style, parse, table
from .machine import Machine, load

OPTIONS = table(
    r"""
    -n --nrs                  | [0-9]+|ALL_HOSTS                                         | OLCF
    -a --tasks_per_rs         | positive                                                 | OLCF
    -p --np                   | positive                                                 | OLCF
    -c --cpu_per_rs           | [0-9]+|ALL_CPUS                                          | OLCF
    -g --gpu_per_rs           | [0-9]+|ALL_GPUS                                          | OLCF
    -m --memory_per_rs        | [0-9]+                                                   | IBM
    -r --rs_per_host          | positive                                                 | OLCF
    -K --rs_per_socket        | positive                                                 | IBM
    -b --bind                 | none|rs|(proportional-)?packed(:(smt:)?0*[1-9][0-9]*)?   | OLCF
    -d --launch_distribution  | packed|cyclic|plane:0*[1-9][0-9]*                        | OLCF
    -l --latency_priority     | (?i:(gpu-cpu|cpu-cpu|cpu-mem)(,(gpu-cpu|cpu-cpu|cpu-mem))*) | OLCF
    -M --smpiargs             | any                                                      | OLCF
    -E --env                  | [A-Za-z_][A-Za-z0-9_]*(=(?s:.*))?                        | IBM | many
    -F --env_eval             | some                                                     | IBM | many
    -D --env_no_propagate     | some                                                     | IBM | many
    -e --stdio_mode           | individual|collected|prepended?                          | IBM
    -I --stdin_rank           | number                                                   | IBM
    -t --stdio_input          | some                                                     | IBM
    -o --stdio_stdout         | some                                                     | IBM
    -k --stdio_stderr         | some                                                     | IBM
    -h --chdir                | some                                                     | IBM
    -X --exit_on_error        | 0|1                                                      | IBM
    -x --exclude_hosts        | some                                                     | IBM
    -H --launch_node_task     | some                                                     | IBM
    -i --immediate            | -                                                        | IBM
    -J --use_reservation      | some                                                     | IBM
    -S --save_resources       | some                                                     | IBM
    -P --pre_post_exec        | some                                                     | IBM
    -Z --progress             | some                                                     | IBM
    -f --appfile              | some                                                     | IBM
    -A --allocate_only        | some                                                     | IBM
    -U --erf_input            | some                                                     | IBM
    --erf_output              | some                                                     | IBM
    --print_placement         | [01]                                                     | IBM
    -V --version              | -                                                        | IBM
    -? --help                 | -                                                        | IBM
    """
)
STYLE = Style(
    "jsrun",
    unknown="jsrun: bad argument {word}: unknown option",
    missing="jsrun: bad argument {word}: missing argument",
    invalid="Error: Invalid argument {value} for option {word}",
)
SIZES = ("nrs", "tasks_per_rs", "np", "cpu_per_rs", "gpu_per_rs", "memory_per_rs", "rs_per_host", "rs_per_socket")


@dataclass(frozen=True)
class ResourceSet:
    """Cores (indices of usable cores) and GPUs of one set on one host."""

    host: int
    cores: tuple[int, ...]
    gpus: tuple[int, ...]


def main(words: list[str]) -> int:
    """Place the ranks and run them."""
    given = parse(words, OPTIONS, STYLE)
    if "version" in given:
        print("jsrun 10.3.1.02 (stand-in)")
        return 0
    machine = load()
    hosts = _hosts(given)
    smt = int(os.environ.get("STANDIN_SMT", machine.smt))
    if "erf_input" in given:
        for size in (*SIZES, "bind", "latency_priority"):
            if size in given:
                raise Refused(f"Error: --erf_input cannot be combined with --{size}")
        placed, command = erf.place(given.get("erf_input"), machine, hosts, smt, given.rest)
    else:
        placed, command = _place(given, machine, hosts, smt), given.rest
    if not command:
        raise Refused("Error: No program was given to start")
    named = [_rank(rank, placed, given) for rank in placed]
    ranks.placement("jsrun", named)
    out = given.get("stdio_stdout")
    error = given.get("stdio_stderr")
    if given.get("stdio_mode") == "individual":
        out, error = (f"{name}.{{rank}}" if name else "" for name in (out, error))
    return ranks.run(
        named, command, _environ(given), cwd=given.get("chdir") or None, label=given.get("stdio_mode") == "prepended",
        end_on_error=given.get("exit_on_error", "0") == "1", output=out, error=error,
    )  # fmt: skip


def _hosts(given: Given) -> tuple[str, ...]:
    fields = os.environ.get("LSB_MCPU_HOSTS", "").split()
    if "LSB_JOBID" not in os.environ or len(fields) < 4:
        raise Refused("Error initializing RM connection. Exiting.")
    excluded = set(given.get("exclude_hosts").split(","))
    return tuple(host for host in fields[2::2] if host not in excluded)


def _environ(given: Given) -> dict[str, str]:
    environ = dict(os.environ)
    for name in given.lists.get("env_no_propagate", []):
        environ.pop(name, None)
    environ.pop("OMP_NUM_THREADS", None)
    for item in given.lists.get("env", []):
        name, equals, value = item.partition("=")
        environ[name] = value if equals else os.environ.get(name, "")
    return environ


def _amount(given: Given, key: str, everything: str, most: int, default: int) -> int:
    return most if given.get(key) == everything else given.number(key, default)


def _place(given: Given, machine: Machine, hosts: tuple[str, ...], smt: int) -> list[ranks.Rank]:
    if "tasks_per_rs" in given and "np" in given:
        raise Refused("Error: --tasks_per_rs and --np cannot be used together")
    cpus = _amount(given, "cpu_per_rs", "ALL_CPUS", len(machine.cores), 1)
    gpus = _amount(given, "gpu_per_rs", "ALL_GPUS", len(machine.gpus), 0)
    if cpus == 0:
        raise Refused("Error: A resource set needs at least one CPU (-c)")
    per_host = _sets_per_host(given, machine, cpus, gpus)
    most = per_host * len(hosts)
    count = len(hosts) if given.get("nrs") == "ALL_HOSTS" else given.number("nrs", most)
    if not 0 < count <= most:
        raise Refused(f"Error: {count} resource sets were requested; the allocation has room for {most}")
    sets = [
        ResourceSet(i // per_host, *pattern)
        for i, pattern in zip(range(count), _patterns(machine, per_host, cpus, gpus) * len(hosts), strict=False)
    ]
    tasks = given.number("np", count * given.number("tasks_per_rs", 1))
    return _deal(given, machine, hosts, smt, sets, tasks)


def _sets_per_host(given: Given, machine: Machine, cpus: int, gpus: int) -> int:
    fit = len(machine.cores) // cpus
    if gpus:
        fit = min(fit, len(machine.gpus) // gpus)
    wanted = given.number("rs_per_host", fit)
    if "rs_per_socket" in given:
        sockets = len({domain.socket for domain in machine.domains})
        wanted = given.number("rs_per_socket", 1) * sockets
    if wanted == 0 or wanted > fit:
        raise Refused(
            f"Error: It is only possible to start {fit} per host with the requested resources; "
            f"{wanted or 1} requested ({cpus} CPUs and {gpus} GPUs each)"
        )
    return wanted


def _patterns(machine: Machine, count: int, cpus: int, gpus: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cores and GPUs of each set of a host: GPUs in order, cores of the socket that is next to them while they last.

    Without GPUs sets fill the cores in order but keep to a socket where they fit into one (cpu-mem).
    """
    free = [list(range(len(machine.cores)))]
    sockets: dict[int, list[int]] = {}
    for index, core in enumerate(machine.cores):
        sockets.setdefault(machine.socket(core), []).append(index)
    free_gpus = list(machine.gpus)
    near = {gpu: domain.socket for domain in machine.domains for gpu in domain.gpus}
    patterns = []
    for _ in range(count):
        own = tuple(free_gpus[:gpus])
        del free_gpus[:gpus]
        wanted = [near[own[0]]] if own else []
        pool = next((sockets[s] for s in [*wanted, *sorted(sockets)] if len(sockets[s]) >= cpus), free[0])
        cores = tuple(pool[:cpus])
        for left in (*free, *sockets.values()):
            left[:] = [core for core in left if core not in cores]
        patterns.append((cores, own))
    return patterns


def _deal(
    given: Given, machine: Machine, hosts: tuple[str, ...], smt: int, sets: Sequence[ResourceSet], tasks: int
) -> list[ranks.Rank]:
    per_set = -(-tasks // len(sets))
    how = given.get("launch_distribution", "packed")
    plane = 1 if how == "cyclic" else per_set if how == "packed" else int(how.split(":")[1])
    filled = [0] * len(sets)
    owners: list[int] = []
    while len(owners) < tasks:
        for index in range(len(sets)):
            for _ in range(min(plane, per_set - filled[index], tasks - len(owners))):
                owners.append(index)
                filled[index] += 1
    placed, seen = [], [0] * len(sets)
    for task, owner in enumerate(owners):
        where = sets[owner]
        cores, threads = _bind(given, len(where.cores), per_set, seen[owner], smt)
        seen[owner] += 1
        own = [where.cores[c] for c in cores]
        every = [thread for core in own for thread in machine.threads(machine.cores[core], smt)]
        cpus = [every[t] for t in threads] if threads is not None else every
        omp = len(threads) if threads is not None else len(own)
        variables = {"OMP_NUM_THREADS": str(omp)}
        if where.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(i) for i in range(len(where.gpus)))
        placed.append(ranks.Rank(task, 0, where.host, hosts[where.host], tuple(cpus), where.gpus, variables))
    return placed


def _bind(given: Given, cores: int, tasks: int, index: int, smt: int) -> tuple[list[int], list[int] | None]:
    """Cores of a set that a task is bound to, and which of their hardware threads (None: all)."""
    how = given.get("bind", "packed:1")
    if how in ("none", "rs"):
        return list(range(cores)), None
    match = re.fullmatch(r"(proportional-)?packed(?::(smt:)?(\d+))?", how)
    assert match is not None
    width = int(match[3] or 1)
    have = cores * smt if match[2] else cores
    if tasks * width > have and "bind" in given:
        raise Refused(f"Error: {tasks} tasks bound to {width} CPUs each do not fit a resource set of {have} (--bind)")
    step = max(width, have // tasks) if match[1] else width
    first = index * step % max(have - width + 1, 1) if tasks * width > have else index * step
    if match[2]:
        low, high = first // smt, (first + width - 1) // smt
        return list(range(low, high + 1)), list(range(first - low * smt, first - low * smt + width))
    return list(range(first, first + width)), None


def _rank(rank: ranks.Rank, placed: Sequence[ranks.Rank], given: Given) -> ranks.Rank:
    there = [other.rank for other in placed if other.node == rank.node]
    local = there.index(rank.rank)
    identity = {"RANK": rank.rank, "SIZE": len(placed), "LOCAL_RANK": local, "LOCAL_SIZE": len(there)}
    variables = dict(rank.variables)
    for family in ("JSM_NAMESPACE", "OMPI_COMM_WORLD"):
        variables |= {f"{family}_{name}": str(value) for name, value in identity.items()}
    variables["PMIX_RANK"] = str(rank.rank)
    for item in given.lists.get("env", []):
        variables.pop(item.partition("=")[0], None)
    return ranks.Rank(rank.rank, local, rank.node, rank.host, rank.cpus, rank.gpus, variables)
