"""Put the stand-ins for LSF, PBS, Flux or Grid Engine on PATH, on a machine of one's choice.

env = standins(tmp_path, "lsf", inside=True)
run(["jsrun", "-r1", "-g6", "-a6", "-c42", "-bpacked:7", "hostname"], env=env)
placed(env)        # [{"rank": 0, "local_rank": 0, "host": "h01n01", "cpus": [0, ...], "gpus": [0, ...]}, ...]
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Literal

DIRECTORY = Path(__file__).resolve().parent.parent / "standins"
Family = Literal["lsf", "pbs", "flux", "sge"]


def _span(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


MACHINES: dict[str, dict[str, Any]] = {
    # docs.olcf.ornl.gov/systems/summit_user_guide.html: 2 x 22 cores, one of each kept, SMT4, 6 V100, 18 nodes a rack
    "summit": {
        "hosts": [f"h{rack:02d}n{node:02d}" for rack in (1, 2) for node in range(1, 19)],
        "launch": "batch1",
        "domains": [
            {"socket": 0, "cores": _span(0, 20), "gpus": [0, 1, 2]},
            {"socket": 1, "cores": _span(22, 42), "gpus": [3, 4, 5]},
        ],
        "all_cores": 44, "smt": 4, "numbering": "adjacent", "vendor": "nvidia",
        "queues": ["batch", "debug", "killable"], "rack_nodes": 18,
    },
    # docs.alcf.anl.gov/polaris/hardware-overview: EPYC 7543P, 4 NUMA domains of 8 cores, GPU 3 next to the first
    "polaris": {
        "hosts": [f"x3001c0s{slot}b0n0" for slot in range(1, 9)],
        "launch": "",
        "domains": [{"socket": 0, "cores": _span(8 * n, 8 * n + 7), "gpus": [3 - n]} for n in range(4)],
        "all_cores": 32, "smt": 2, "numbering": "split", "vendor": "nvidia",
        "queues": ["debug", "prod", "preemptable", "workq"], "rack_nodes": 4,
    },
    # docs.alcf.anl.gov/aurora: 2 x 52 cores, 6 GPUs, three next to each socket
    "aurora": {
        "hosts": [f"x4102c0s{slot}b0n0" for slot in range(8)],
        "launch": "",
        "domains": [{"socket": s, "cores": _span(52 * s, 52 * s + 51), "gpus": [3 * s, 3 * s + 1, 3 * s + 2]}
                    for s in (0, 1)],
        "all_cores": 104, "smt": 2, "numbering": "split", "vendor": "intel",
        "queues": ["debug", "prod", "workq"], "rack_nodes": 4,
    },
    # hpc.llnl.gov/hardware/compute-platforms/tuolumne: 4 MI300A, each with 24 cores
    "tuolumne": {
        "hosts": [f"tuolumne{1001 + n}" for n in range(8)],
        "launch": "",
        "domains": [{"socket": s, "cores": _span(24 * s, 24 * s + 23), "gpus": [s]} for s in range(4)],
        "all_cores": 96, "smt": 2, "numbering": "split", "vendor": "amd",
        "queues": ["pdebug", "pbatch"], "rack_nodes": 4,
    },
    # as many cores as any machine has that runs the tests: for a real mpirun
    "small": {
        "hosts": [f"node{n:02d}" for n in range(1, 9)], "launch": "",
        "domains": [{"socket": 0, "cores": [0, 1], "gpus": []}], "all_cores": 2, "smt": 1, "numbering": "split",
        "vendor": "", "queues": ["all.q"], "rack_nodes": 4,
    },
}  # fmt: skip
USUAL = {"lsf": "summit", "pbs": "polaris", "flux": "tuolumne", "sge": "small"}


def standins(
    tmp_path: Path, family: Family, *, machine: str | dict[str, Any] = "", inside: bool = False, nodes: int = 2
) -> dict[str, str]:
    """An environment in which the programs of a family are found.

    Args:
        machine: one of `MACHINES`, or such a description; empty: the usual one of the family.
        inside: as if in an allocation of the first `nodes` hosts, with the variables that the scheduler sets.
    """
    described = MACHINES[machine or USUAL[family]] if isinstance(machine, str) else machine
    state = tmp_path / f"standin-{family}"
    state.mkdir(parents=True, exist_ok=True)
    (state / "machine.json").write_text(json.dumps(described), encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    env |= {
        "PATH": ":".join(map(str, (*_PROGRAMS[family], env.get("PATH", "")))),
        "STANDIN_MACHINE": str(state / "machine.json"),
        "STANDIN_STATE": str(state),
        "STANDIN_PLACEMENT": str(state / "placement.json"),
    }
    if family == "flux":
        env["FLUX_URI"] = f"local://{state}/flux/local-0"
    if inside:
        env |= _allocation(family, described, state, nodes)
    return env


_PROGRAMS = {name: (DIRECTORY / name,) for name in ("lsf", "flux", "sge")} | {
    "pbs": (DIRECTORY / "pbs", DIRECTORY / "pals")
}
_FOREIGN = ("SLURM_", "LSB_", "LSF_", "LS_", "PBS_", "PALS_", "PMI_", "PMIX_", "OMPI_", "JSM_", "FLUX_", "STANDIN_")


def _allocation(family: Family, machine: dict[str, Any], state: Path, nodes: int) -> dict[str, str]:
    hosts = machine["hosts"][:nodes]
    cores = sum(len(domain["cores"]) for domain in machine["domains"])
    listed = state / "allocation"
    if family == "lsf":
        listed.write_text("\n".join([machine["launch"], *(h for h in hosts for _ in range(cores))]) + "\n")
        pairs = " ".join(f"{host} {cores}" for host in hosts)
        return {
            "LSB_JOBID": "101",
            "LSB_MCPU_HOSTS": f"{machine['launch']} 1 {pairs}",
            "LSB_DJOB_RANKFILE": str(listed),
            "LSB_DJOB_HOSTFILE": str(listed),
        }
    if family == "pbs":
        listed.write_text("".join(f"{host}\n" for host in hosts))
        return {"PBS_JOBID": "101.pbs", "PBS_NODEFILE": str(listed), "PBS_O_HOST": socket.gethostname()}
    return {"FLUX_ENCLOSING_ID": "ƒ101", "STANDIN_FLUX_JOB": "ƒ101", "STANDIN_FLUX_HOSTS": ",".join(hosts)}


def placed(env: dict[str, str]) -> list[dict[str, Any]]:
    """The ranks that the last launcher placed, in order."""
    value = json.loads(Path(env["STANDIN_PLACEMENT"]).read_text(encoding="utf-8"))
    ranks: list[dict[str, Any]] = value["ranks"]
    return ranks
