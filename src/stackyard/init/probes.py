"""One small job per kind of nodes, which looks at its node: what no scheduler tells."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files.scratch import scratch
from stackyard.host.machine.probe import GpuDevice, Machine
from stackyard.host.run.command import run
from stackyard.init.here import Cores, Here
from stackyard.init.kinds import Kind
from stackyard.init.model import Cluster

_MARK = "stackyard-node: "
LIMIT_MIN = 5
"""The wall time of a probe."""


@dataclass(frozen=True)
class Probe:
    """A job: its command, which ends with the job; and the file with its output, if that is not its own."""

    kind: Kind
    argv: tuple[str, ...]
    output: Path | None = None


def report(here: Here) -> str:
    """One line, which `seen_by` reads among others."""
    return _MARK + json.dumps(asdict(here))


def probes(cluster: Cluster, kinds: Sequence[Kind], directory: Path) -> list[Probe]:
    """The probe of each kind, as its scheduler starts one process and waits for it."""
    program = (sys.executable, "-m", "stackyard", "init", "--node")
    return [_probe(cluster, kind, directory / f"{kind.name}.out", program) for kind in kinds]


def _probe(cluster: Cluster, kind: Kind, output: Path, program: tuple[str, ...]) -> Probe:
    queue, feature, gpus = kind.queue, kind.constraint, kind.like.gpus
    if cluster.kind == "slurm":
        whole = "gpu_request" in cluster.settings and cluster.settings["gpu_request"].value != "none"
        words = ["srun", "--quiet", "-N1", "-n1", "--exclusive", "--mpi=none", f"--time={LIMIT_MIN}",
                 *_given("--partition=", queue), *_given("--constraint=", feature),
                 *([f"--gres=gpu:{gpus}"] if gpus and whole else [])]  # fmt: skip
        return Probe(kind, (*words, *program))
    if cluster.kind == "lsf":
        in_queue = ("-q", queue) if queue else ()
        return Probe(kind, ("bsub", "-I", "-n", "1", "-x", "-W", str(LIMIT_MIN), *in_queue, *program))
    if cluster.kind == "flux":
        requires = (f"--requires={feature}",) if feature else ()
        return Probe(kind, ("flux", "run", "-N1", "-n1", "--exclusive", f"-t{LIMIT_MIN}m",
                            *(("-q", queue) if queue else ()), *requires, *program))  # fmt: skip
    select = ":".join(["select=1", f"ncpus={kind.like.cores}", *([f"ngpus={gpus}"] if gpus else []),
                       *([feature] if "=" in feature else [])])  # fmt: skip
    words = ["qsub", "-W", "block=true", "-l", select, "-l", f"walltime=00:{LIMIT_MIN:02d}:00", "-j", "oe",
             "-o", str(output), *(("-q", queue) if queue else ()), "--"]  # fmt: skip
    return Probe(kind, (*words, *program), output)


def _given(option: str, value: str) -> tuple[str, ...]:
    return (option + value,) if value else ()


def seen_by(
    found: Sequence[Probe], environ: Mapping[str, str], wait_s: float, started: Callable[[str], None]
) -> Iterator[tuple[Kind, Here | str]]:
    """Run the probes one after the other; for each its node, or why there is none.

    Args:
        wait_s: for each, in which the job has to start and end.
        started: is told each command.
    """
    for probe in found:
        started(shlex.join(probe.argv))
        try:
            result = run(probe.argv, env=dict(environ), timeout_s=wait_s)
            text = probe.output.read_text("utf-8", "replace") if probe.output else result.stdout
            yield probe.kind, read(text)
        except (StackyardError, OSError) as error:
            yield probe.kind, error.message if isinstance(error, StackyardError) else str(error)


def read(text: str) -> Here | str:
    """The node of a `report` among other lines; or why there is none."""
    line = next((line for line in text.splitlines() if line.startswith(_MARK)), "")
    try:
        values = json.loads(line.removeprefix(_MARK))
        machine = {**values["machine"], "gpus": tuple(GpuDevice(**gpu) for gpu in values["machine"]["gpus"])}
        domains = tuple((socket, cores, tuple(gpus)) for socket, cores, gpus in values["cores"].pop("domains"))
        lists = {key: tuple(values[key]) for key in ("shared", "local", "interfaces", "runtimes")}
        return Here(values["host"], Machine(**machine), Cores(**values["cores"], domains=domains), **lists)
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the job printed no description of its node: {text.strip()[-200:]}"


def ask_nodes(
    cluster: Cluster, kinds: Sequence[Kind], environ: Mapping[str, str], wait_s: float, started: Callable[[str], None]
) -> Iterator[tuple[Kind, Here | str]]:
    """A node of each kind as one of its processes sees it; or why not.

    PBS writes the output of a job into a file: in a directory below the working directory, which the node sees too.
    """
    with scratch("init", Path.cwd() if cluster.kind == "pbs" else None) as directory:
        yield from seen_by(probes(cluster, kinds, directory), environ, wait_s, started)
