"""``flux run`` of flux-core.

RUN   https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-run.html
SHELL https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man7/flux-shell-options.html
ENV   https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man7/flux-environment.html
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass

from . import ranks
from .grammar import Given, Refused, Style, parse, table
from .machine import Machine, load, numbers

FSD = r"[0-9]+(\.[0-9]+)?[smhd]?"
COMMON = r"""
    -q --queue        | some                           | RUN
    -t --time-limit   | some                           | RUN
    --job-name        | some                           | RUN
    --flags           | some                           | RUN
    --requires        | some                           | RUN | many
    --dependency      | some                           | RUN | many
    --begin-time      | some                           | RUN
    --urgency         | some                           | RUN
    --signal          | some                           | RUN
    --cwd             | some                           | RUN
    --env             | some                           | RUN | many
    --env-remove      | some                           | RUN | many
    --env-file        | some                           | RUN | many
    --rlimit          | some                           | RUN | many
    --input           | some                           | RUN
    --output          | some                           | RUN
    --error           | some                           | RUN
    -l --label-io     | -                              | RUN
    -u --unbuffered   | -                              | RUN
    -o --setopt       | some                           | RUN | many
    -S --setattr      | some                           | RUN | many
    --add-file        | some                           | RUN | many
    -B --bank         | some                           | RUN
    -N --nodes        | some                           | RUN
    -x --exclusive    | -                              | RUN
    -v --verbose      | -                              | RUN | many
    --dry-run         | -                              | RUN
    --debug           | -                              | RUN
"""
OPTIONS = table(
    COMMON
    + r"""
    -n --ntasks         | some | RUN
    -c --cores-per-task | some | RUN
    -g --gpus-per-task  | some | RUN
    --cores             | some | RUN
    --tasks-per-node    | some | RUN
    --tasks-per-core    | some | RUN
    --gpus-per-node     | some | RUN
    --taskmap           | block|cyclic(:[0-9]+)?|manual:.+ | RUN
    """
)
SHELL = {
    "cpu-affinity": r"((verbose|dry-run),)*(off|on|per-task|map:.+)", "gpu-affinity": r"off|on|per-task|map:.+",
    "exit-timeout": rf"none|{FSD}", "exit-on-error": r"1?", "verbose": r"[0-9]+", "nosetpgrp": "1?", "pmi": ".+",
    "mpi": ".+", "stage-in": ".*", "pty.interactive": "1?", "hwloc.xmlfile": "1?", "hwloc.restrict": "1?",
    "output.limit": r"[0-9.]+[kKMG]?", "output.mode": "truncate|append", "mpibind": ".+", "fastload": ".*",
}  # fmt: skip
COUNTS = ("nodes", "ntasks", "cores-per-task", "gpus-per-task", "cores", "tasks-per-node", "tasks-per-core",
          "gpus-per-node")  # fmt: skip


def style(program: str) -> Style:
    """Options as Python's argparse reads them."""
    return Style(
        program, prefix=True, code=2,
        unknown="usage: {program} [OPTIONS] ...\n{program}: error: unrecognized arguments: {word}",
        missing="usage: {program} [OPTIONS] ...\n{program}: error: argument {word}: expected one argument",
        invalid="usage: {program} [OPTIONS] ...\n{program}: error: argument {word}: invalid choice: '{value}'",
    )  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What is asked for: tasks per node in order of nodes, and what each task gets."""

    tasks: tuple[int, ...]
    cores: int
    gpus: int
    exclusive: bool
    node_gpus: int = -1


def main(words: list[str]) -> int:
    """Place the tasks and run them."""
    given = parse(words, OPTIONS, style("flux-run"))
    check_common(given, "flux-run", load())
    machine = load()
    hosts = instance_hosts(machine)
    shape = _shape(given, machine, hosts)
    if "dry-run" in given:
        print('{"version": 1}')
        return 0
    options = shell_options(given, "flux-run")
    placed = _places(given, machine, hosts, shape, options)
    ranks.placement("flux", placed)
    return ranks.run(
        placed, given.rest, environ(given), cwd=given.get("cwd") or None, label="label-io" in given,
        end_on_error="exit-on-error" in options, end_after_s=seconds(options.get("exit-timeout", "30s")),
        output=_template(given.get("output")), error=_template(given.get("error")),
    )  # fmt: skip


def fail(program: str, message: str) -> Refused:
    """A ValueError or OSError of the real command."""
    return Refused(f"{program}: ERROR: {message}", 1)


def check_common(given: Given, program: str, machine: Machine) -> None:
    """What ``flux run`` and ``flux batch`` have in common."""
    for key in (*COUNTS, "nslots", "cores-per-slot", "gpus-per-slot"):
        if key in given:
            text = given.get(key)
            if not re.fullmatch(r"[+-]?\d+", text):
                raise fail(program, f"--{key}: invalid int value '{text}'")
            if int(text) < (0 if key.startswith("gpus") else 1):
                raise fail(program, f"--{key} must be >= 1")
    if "time-limit" in given and not re.fullmatch(FSD, given.get("time-limit")):
        raise fail(program, f"invalid Flux standard duration: {given.get('time-limit')}")
    if "queue" in given and given.get("queue") not in machine.queues:
        raise fail(program, f"Invalid queue '{given.get('queue')}' specified")
    for uri in given.lists.get("dependency", []):
        if not re.fullmatch(r"(after|afterany|afterok|afternotok|afterexcept|begin-time):.+|singleton:?", uri):
            raise fail(program, f"Invalid dependency URI: {uri}")
    if "urgency" in given and not re.fullmatch(r"hold|default|expedite|[0-9]|[12][0-9]|3[01]", given.get("urgency")):
        raise fail(program, f"invalid urgency value {given.get('urgency')}")
    if "signal" in given and not re.fullmatch(rf"([A-Za-z0-9]+)?(@{FSD})?", given.get("signal")):
        raise fail(program, f"--signal={given.get('signal')}: invalid signal or time")


def shell_options(given: Given, program: str) -> dict[str, str]:
    """-o options."""
    options: dict[str, str] = {}
    for item in given.lists.get("setopt", []):
        key, equals, value = item.partition("=")
        if key in SHELL and equals and not re.fullmatch(SHELL[key], value):
            raise fail(program, f"shell: invalid value for {key}: {value}")
        if key not in SHELL:
            raise fail(program, f"shell: {key}: unknown shell option")
        options[key] = value if equals else "1"
    return options


def instance_hosts(machine: Machine) -> tuple[str, ...]:
    """The hosts of the Flux instance that a command talks to."""
    uri = os.environ.get("FLUX_URI", "")
    if not uri:
        raise Refused("flux-run: ERROR: [Errno 2] Unable to connect to Flux: ENOENT: No such file or directory", 1)
    return tuple(os.environ.get("STANDIN_FLUX_HOSTS", ",".join(machine.hosts)).split(","))


def environ(given: Given) -> dict[str, str]:
    """The environment of the tasks."""
    made = dict(os.environ)
    for name in given.lists.get("env-remove", []):
        made.pop(name, None)
    for item in given.lists.get("env", []):
        name, equals, value = item.partition("=")
        if equals:
            made[name] = value
    return made


def _shape(given: Given, machine: Machine, hosts: tuple[str, ...]) -> Shape:
    if not given.rest:
        raise fail("flux-run", "job command and arguments are missing")
    per_resource = [k for k in ("tasks-per-node", "tasks-per-core", "gpus-per-node", "cores") if k in given]
    per_task = [k for k in ("ntasks", "cores-per-task", "gpus-per-task") if k in given]
    if "tasks-per-node" in given and "tasks-per-core" in given:
        raise fail("flux-run", "Do not specify both the number of tasks per node and per core")
    if "gpus-per-node" in given and "nodes" not in given:
        raise fail("flux-run", "--gpus-per-node requires --nodes")
    if per_resource and per_task:
        raise fail("flux-run", "Per-resource options can't be used with per-task options. (See --help for details)")
    if "exclusive" in given and "nodes" not in given:
        raise fail("flux-run", "exclusive can only be set with a node count")
    shape = _per_node(given, machine, hosts) if per_resource else _per_task(given, machine, hosts)
    if len(shape.tasks) > len(hosts) or any(
        n * shape.cores > len(machine.cores) or n * shape.gpus > len(machine.gpus) for n in shape.tasks
    ):
        raise fail("flux-run", "job-ingest: unsatisfiable request")
    return shape


def _per_node(given: Given, machine: Machine, hosts: tuple[str, ...]) -> Shape:
    nodes = given.number("nodes", 1)
    if nodes > len(hosts):
        raise fail("flux-run", "job-ingest: unsatisfiable request")
    per_node = given.number("tasks-per-node", 1)
    if "tasks-per-core" in given:
        per_node = given.number("tasks-per-core", 1) * len(machine.cores)
    if "cores" in given and "nodes" in given and given.number("cores", 1) % nodes:
        raise fail("flux-run", "number of cores must be evenly divisible by node count")
    if given.number("gpus-per-node", 0) > len(machine.gpus):
        raise fail("flux-run", "job-ingest: unsatisfiable request")
    return Shape((per_node,) * nodes, 0, 0, "cores" not in given, given.number("gpus-per-node", 0))


def _per_task(given: Given, machine: Machine, hosts: tuple[str, ...]) -> Shape:
    exclusive = "exclusive" in given or ("nodes" in given and "ntasks" not in given)
    count = given.number("ntasks", given.number("nodes", 1))
    cores, gpus = given.number("cores-per-task", 1), given.number("gpus-per-task", 0)
    if "nodes" in given:
        nodes = given.number("nodes", 1)
        if nodes > count:
            raise fail("flux-run", "node count must not be greater than task count")
        tasks = tuple(count // nodes + (1 if n < count % nodes else 0) for n in range(nodes))
    else:
        fit = min(len(machine.cores) // cores, len(machine.gpus) // gpus if gpus else count) or 1
        tasks = tuple(min(fit, count - first) for first in range(0, count, fit))
    return Shape(tasks, cores, gpus, exclusive)


def _places(
    given: Given, machine: Machine, hosts: tuple[str, ...], shape: Shape, options: dict[str, str]
) -> list[ranks.Rank]:
    total = sum(shape.tasks)
    directory = tempfile.mkdtemp(prefix="flux-", dir=os.environ.get("STANDIN_STATE"))
    placed = []
    for (node, local), rank in _numbering(given, shape.tasks).items():
        cores, gpus = _granted(machine, shape, shape.tasks[node])
        cpus = _affinity(options.get("cpu-affinity", "on"), machine, cores, shape.tasks[node], local)
        own, visible = _gpu_affinity(options.get("gpu-affinity", "on"), gpus, shape.tasks[node], local)
        variables = {
            "FLUX_TASK_RANK": rank, "FLUX_TASK_LOCAL_ID": local, "FLUX_JOB_SIZE": total,
            "FLUX_JOB_NNODES": len(shape.tasks), "FLUX_JOB_ID": "ƒ2Tz1", "FLUX_JOB_TMPDIR": directory,
            "FLUX_KVS_NAMESPACE": "job-1",
        }  # fmt: skip
        if options.get("pmi", "simple") not in ("off", "none"):
            variables |= {"PMI_RANK": rank, "PMI_SIZE": total}
        if visible is not None:
            variables |= {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        text = {name: str(value) for name, value in variables.items()}
        placed.append(ranks.Rank(rank, local, node, hosts[node], cpus, own, text))
    return placed


def _numbering(given: Given, tasks: tuple[int, ...]) -> dict[tuple[int, int], int]:
    how = given.get("taskmap", "block")
    if how.startswith("manual"):
        raise fail("flux-run", "this stand-in knows no manual task map")
    if how == "block":
        places = [(node, local) for node, count in enumerate(tasks) for local in range(count)]
        return {place: rank for rank, place in enumerate(places)}
    stride = int(how.partition(":")[2] or 1)
    left = {node: list(range(count)) for node, count in enumerate(tasks)}
    found: dict[tuple[int, int], int] = {}
    while any(left.values()):
        for node, waiting in left.items():
            for local in waiting[:stride]:
                found[node, local] = len(found)
            del waiting[:stride]
    return found


def _granted(machine: Machine, shape: Shape, tasks: int) -> tuple[list[int], tuple[int, ...]]:
    """Indices of the usable cores and the GPUs that a job gets on a node: the first free ones."""
    if shape.exclusive:
        return list(range(len(machine.cores))), machine.gpus
    return list(range(tasks * shape.cores)), machine.gpus[: tasks * shape.gpus]


def _affinity(how: str, machine: Machine, cores: list[int], tasks: int, local: int) -> tuple[int, ...]:
    how = how.removeprefix("verbose,").removeprefix("dry-run,")
    every = list(range(len(machine.cores)))
    if how == "off":
        mine = every
    elif how == "on":
        mine = cores
    elif how == "per-task":
        share, more = divmod(len(cores), tasks)
        first = local * share + min(local, more)
        mine = cores[first : first + max(share + (1 if local < more else 0), 1)]
    else:
        lists = how.removeprefix("map:").split(";")
        try:
            return tuple(numbers(lists[local % len(lists)]))
        except ValueError as error:
            raise fail("flux-run", f"shell: cpu-affinity: failed to parse map: {how}") from error
    return tuple(sorted(t for core in mine for t in machine.threads(machine.cores[core], machine.smt)))


def _gpu_affinity(how: str, gpus: tuple[int, ...], tasks: int, local: int) -> tuple[tuple[int, ...], str | None]:
    if how == "off":
        return gpus, None
    if how.startswith("map:"):
        lists = how.removeprefix("map:").split(";")
        own = tuple(numbers(lists[local % len(lists)]))
        return own, ",".join(str(gpu) for gpu in own)
    own = gpus
    if how == "per-task":
        share = len(gpus) // tasks
        own = gpus[local * share : (local + 1) * share]
    return own, ",".join(str(gpu) for gpu in own) if own else "-1"


def seconds(text: str) -> float | None:
    """A Flux standard duration (RFC 23); None for ``none``."""
    if text == "none":
        return None
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1])
    return float(text[:-1]) * unit if unit else float(text)


def _template(text: str) -> str:
    return text.replace("{{taskid}}", "{rank}").replace("{{task.id}}", "{rank}").replace("{{id}}", "1")
