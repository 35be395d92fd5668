"""The daemons that start ranks: their sockets, the kind of PMI they offer, and the variables for ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import run, which

_ASK_S = 20
SOCKETS = {
    "/run/spmix": "Slurm's PMIx server",
    "/var/spool/slurmd": "Slurm's PMIx server, and the job's credentials for Slingshot",
    "/var/spool/slurm": "Slurm's PMIx server",
    "/var/run/palsd": "PALS, which starts the ranks",
}
"""Directories of a node, and whose they are."""
RANKS = (
    "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "FLUX_TASK_RANK",
    "JSM_NAMESPACE_RANK",
)  # fmt: skip
"""Variables with the number of a rank. The PMI's come first: mpirun's ranks have those of its daemon's task too."""
PMIX_DIRECTORY, PALS_DIRECTORY, SLURM_DIRECTORIES = "PMIX_SERVER_TMPDIR", "PALS_SPOOL_DIR", "/run/spmix*"
"""Where a rank finds the directory of its job's server: two variables that it alone has, and a pattern."""


@dataclass(frozen=True)
class Daemons:
    """`sockets`: directories that ranks need, with their owners. `pmi`: the kind without --mpi; empty: unknown."""

    sockets: Mapping[str, str]
    pmi: str = ""


def daemons(environ: Mapping[str, str]) -> Daemons:
    """The daemons of this machine. A cluster may have Slurm's directories anywhere, by its configuration."""
    sockets = {path: why for path, why in SOCKETS.items() if Path(path).is_dir()}
    settings = slurm_settings(environ)
    for name, why in (("PMIxCliTmpDirBase", "Slurm's PMIx server"), ("SlurmdSpoolDir", "Slurm's PMIx server")):
        path = _whole(settings.get(name, ""))
        if path and Path(path).is_dir():
            sockets[path] = why
    return Daemons(sockets, settings.get("MpiDefault", ""))


def slurm_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The configuration of this machine's Slurm; empty without one, or while it does not answer."""
    if which("scontrol", environ) is None:
        return {}
    try:
        said = run(["scontrol", "show", "config"], env=dict(environ), check=False, timeout_s=_ASK_S)
    except StackyardError:
        return {}
    lines = re.findall(r"^(\w+)\s*= (.*)$", said.stdout, re.MULTILINE) if said.returncode == 0 else []
    return {name: value.strip() for name, value in lines if value.strip() != "(null)"}


def _whole(path: str) -> str:
    """A directory common to all nodes: without a node-specific part (``/var/spool/%n``). /tmp is always bound."""
    fixed = path.split("%", maxsplit=1)[0]
    directory = path if fixed == path else fixed.rpartition("/")[0]
    return "" if directory in ("", "/", "/tmp", "/var", "/run") else directory
