"""Clusters whose programs are stand-ins, for whole jobs: a directory to work in, a site file, and the command line.

Every node has a host name of its own and shares the rest with this machine: so a job of two nodes has two agents, two
directories for what they say to their ranks, and a rendezvous over TCP.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackyard.host.run.command import which
from stackyard.launch.node.machine import addresses, is_loopback
from support.cli import STACKYARD, Done
from support.standins import DIRECTORY, MACHINES, USUAL, Family, placed, standins

_SUMMIT = """
nodes:
  batch:
    {sockets: 2, cores: 42, all_cores: 44, smt: 4, smt_numbering: adjacent, gpu: {count: 6, vendor: nvidia},
     domains: [{socket: 0, cores: 0-20, gpus: [0, 1, 2]}, {socket: 1, cores: 22-42, gpus: [3, 4, 5]}]}
scheduler: {kind: lsf, csm: true, queue: batch, rack_nodes: 18}
"""
_POLARIS = """
nodes:
  compute:
    {cores: 32, smt: 2, gpu: {count: 4, vendor: nvidia},
     domains: [{cores: 0-7, gpus: [3]}, {cores: 8-15, gpus: [2]}, {cores: 16-23, gpus: [1]}, {cores: 24-31, gpus: [0]}]}
scheduler: {kind: pbs, queue: debug, gpu_request: none}
"""
_TUOLUMNE = """
nodes:
  compute:
    {sockets: 4, cores: 96, smt: 2, gpu: {count: 4, vendor: amd},
     domains: [{socket: 0, cores: 0-23, gpus: [0]}, {socket: 1, cores: 24-47, gpus: [1]},
               {socket: 2, cores: 48-71, gpus: [2]}, {socket: 3, cores: 72-95, gpus: [3]}]}
scheduler: {kind: flux, queue: pdebug}
"""
_REACHED = (
    f"OMPI_MCA_plm_rsh_agent={DIRECTORY / 'ssh' / 'ssh'}",
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
)
"""Open MPI reaches the nodes by ssh, and here it is root who runs it."""
_TWO_CORES = f"""
nodes:
  compute: {{cores: 2, domains: [{{cores: 0-1}}]}}
launch:
  prologue: [{", ".join(f"export {line}" for line in _REACHED)}]
scheduler: {{launcher: mpirun, kind: """
SITES: dict[str, tuple[Family, str]] = {
    "jsrun": ("lsf", _SUMMIT),
    "lsf": ("lsf", _TWO_CORES + "lsf}\n"),
    "pals": ("pbs", _POLARIS),
    "pbs-openmpi": ("pbs", _TWO_CORES + "pbs}\n"),
    "flux": ("flux", _TUOLUMNE),
}
"""CSM with jsrun, plain LSF with Open MPI, PBS with PALS, PBS with Open MPI, and Flux."""
WITH_PLUGIN: dict[str, tuple[Family, str]] = {"sge": ("sge", _TWO_CORES + "sge}\n")}
"""Grid Engine with Open MPI."""
REAL_MPIRUN = ("lsf", "pbs-openmpi", "sge")


def missing(name: str) -> str:
    """Why a whole job cannot run here; empty where it can."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--uts", "--mount", "true"], check=False).returncode:
        return "nodes with host names of their own need root (unshare)"
    if not any(not is_loopback(address) for every in addresses().values() for address in every):
        return "this machine has no address but its loopback, and nodes cannot meet there"
    if name in REAL_MPIRUN:
        found = which("mpirun")
        if found is None or "Open MPI" not in subprocess.run([found, "--version"], capture_output=True, text=True,
                                                             check=False).stdout:  # fmt: skip
            return "Open MPI's mpirun is not here"
        if len(os.sched_getaffinity(0)) < 2:
            return "one CPU only"
    return ""


@dataclass(frozen=True)
class Cluster:
    """A cluster of two nodes, and a person on its login node."""

    name: str
    directory: Path
    env: dict[str, str]
    stackyard: tuple[str, ...] = (str(STACKYARD),)

    @classmethod
    def make(cls, name: str, directory: Path, *, inside: bool = False, python: Path | None = None) -> Cluster:
        """One of `SITES`, with the two nodes of a machine; `inside` an allocation of both.

        python: the one that has the plug-in for a site of `WITH_PLUGIN`.
        """
        family, text = {**SITES, **WITH_PLUGIN}[name]
        machine = MACHINES[USUAL[family]]
        env = standins(directory, family, machine={**machine, "hosts": machine["hosts"][:2]}, inside=inside)
        if inside and name in REAL_MPIRUN:
            env |= dict(pair.split("=") for line in _REACHED for pair in line.split())
        work = directory / "work"
        work.mkdir()
        (work / "site.yaml").write_text(f"name: {name}\n{text}", encoding="utf-8")
        env |= {"STACKYARD_HOME": str(directory / "yard"), "STACKYARD_TMP": str(directory), "LANG": "C.UTF-8"}
        return cls(name, work, env, (str(python), "-m", "stackyard") if python else (str(STACKYARD),))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """``stackyard --site site.yaml WORDS...``, which goes on."""
        return subprocess.Popen(
            [*self.stackyard, "--site", "site.yaml", *words], cwd=self.directory, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, *words: str, expect: int | None = 0) -> Done:
        """The same to its end."""
        return self.end(self.start(*words), expect)

    def end(self, process: subprocess.Popen[str], expect: int | None = 0) -> Done:
        """Wait for a command line; another exit code than `expect` fails the test with all that is known."""
        out, err = process.communicate(timeout=300)
        assert expect is None or process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}{self.logs()}"
        return Done(process.returncode, out, err)

    def submit(self, *words: str, expect: int | None = 0) -> Done:
        """``submit`` with what every cluster here wants to know."""
        return self.run(*self.asking(*words), expect=expect)

    def asking(self, *words: str) -> tuple[str, ...]:
        """The words of a job of two nodes: time and account are said, and two ranks a node where there is no GPU."""
        ranks = ("-r", "2") if self.name in REAL_MPIRUN else ()
        return ("submit", "-N", "2", *ranks, "-t", "10", "-A", "PROJ", *words)

    def last(self) -> Path:
        """The directory of the newest run."""
        return max((self.directory / "runs").iterdir())

    def status(self) -> dict[str, Any]:
        """What the newest run says of itself."""
        value: dict[str, Any] = json.loads((self.last() / "status.json").read_text())
        return value

    def wait(self, file: Path, text: str = "", patience_s: float = 120) -> str:
        """Wait until a file is there and holds a text."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if file.exists() and text in (found := file.read_text()):
                return found
            time.sleep(0.03)
        raise AssertionError(f"no {text!r} in {file}{self.logs()}")

    def logs(self) -> str:
        """All that was written by jobs, for a test that fails."""
        files = [*sorted(self.directory.glob("runs/*/batch*.log")), *sorted(self.directory.glob("runs/*/logs/*"))]
        return "".join(f"\n-- {file}\n{file.read_text(errors='replace')}" for file in files)

    def placed(self) -> list[dict[str, Any]]:
        """Where the launcher put the ranks."""
        return placed(self.env)

    def close(self) -> None:
        """End the jobs that a failed test has left."""
        for file in Path(self.env["STANDIN_STATE"]).glob("jobs/*/job.json"):
            if json.loads(file.read_text())["state"] != "ended":
                (file.parent / "end").write_text("cancel")

    def left(self, patience_s: float = 60) -> list[str]:
        """Processes of this cluster's jobs that are still there when patience is over: ranks, agents, launchers."""
        until = time.monotonic() + patience_s
        while (found := self._running()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def _running(self) -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if str(self.directory) in words or ("hello.py" in words and str(self.directory) in _cwd(entry)):
                    found.append(words)
        return found


def _cwd(process: Path) -> str:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""
