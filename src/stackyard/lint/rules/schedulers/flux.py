"""Rules on Flux: directives that ``flux batch`` rejects, and ``flux run`` without a size.

Sources: flux-core's ``job/directives.py`` (RFC 36), flux-run(1), "Job parameters", and flux-shell(1), "gpu-affinity".
"""

from __future__ import annotations

from collections.abc import Iterator

from stackyard.lint.launches import Launch
from stackyard.lint.rules.base import Case, Hit, rule

_SIZE = (
    *("ntasks", "nodes", "cores-per-task", "gpus-per-task"),
    *("cores", "gpus-per-node", "tasks-per-node", "tasks-per-core", "exclusive"),
)


@rule(
    "flux-directive",
    "refused",
    why="All Flux directives begin alike and stand together above the first command: flux batch rejects others",
    example="#FLUX: -N 2\n# flux: -t 1h",
    instead="#FLUX: -N 2\n#FLUX: -t 1h",
)
def flux_directive(case: Case) -> Iterator[Hit]:
    """A Flux directive that begins in another way than the first, or that comes after a command."""
    for directive in case.script.directives if case.script.scheduler == "flux" else ():
        if directive.kind == "flux" and directive.state == "changed":
            text = "this directive does not begin as the first one does"
            yield Hit(directive.line, text, f"{directive.tag} {directive.text}   (all of them alike)")
        elif directive.kind == "flux" and directive.state == "late":
            yield Hit(directive.line, "this directive comes after a command", "move it above the first command")


@rule(
    "flux-run-size",
    why="flux run starts one rank with one core and no GPU unless it has -n, -c and -g",
    example="# flux: -N 2\nflux run python train.py",
    instead="flux run -N 2 -n 8 -c 8 -g 1 python train.py",
)
def flux_run_size(case: Case) -> Iterator[Hit]:
    """A flux run without -N, -n, -c or -g in a larger job; a note if the job's size is not in the script."""
    request = case.script.request
    gpus = request.gpus_per_task or request.gpus_per_node
    larger = (request.nodes or 1) > 1 or (request.tasks or 1) > 1 or (request.cpus_per_task or 1) > 1 or gpus
    for launch in case.steps:
        if launch.kind != "flux" or launch.doubtful:
            continue
        many = "submit" in launch.words[1] or launch.command.command.within("loop")
        if not launch.given(*_SIZE):
            text = "flux run starts 1 rank with 1 core and no GPU"
            known = larger and not many
            yield Hit(launch.line, text, "flux run -N NODES -n RANKS -c CORES -g GPUS ...", None if known else "note")
        elif gpus and not launch.given("gpus-per-task", "gpus-per-node", "exclusive"):
            yield Hit(launch.line, "flux run without -g: its ranks see no GPU", "flux run ... -g 1 ...")
        elif _one_core(case, launch):
            yield Hit(launch.line, "flux run without -c: each rank has 1 core", "flux run ... -c CORES ...")


def _one_core(case: Case, launch: Launch) -> bool:
    """Whether ranks have one core, although the job's slots or their threads say more."""
    if launch.given("cores-per-task", "cores", "tasks-per-node", "exclusive") or not launch.given("ntasks"):
        return False
    threads = launch.environment.get("OMP_NUM_THREADS")
    several = threads is not None and threads.text.isdecimal() and int(threads.text) > 1
    return several or (case.script.request.cpus_per_task or 1) > 1
