"""A map of four tasks of the Python API as one job array of Slurm, beside that of submitit: whole processes.

On a Slurm of its own, whose nodes are network namespaces of this machine: all tasks share its processors.
"""

from __future__ import annotations

import importlib.util

from benchmarks.measure import Figure, alternate, figure_of, seconds
from benchmarks.tools import PYTHON, scratch

NODES, TARGET = 4, 1.2
OURS = """\
import stackyard
with stackyard.Executor(time_min=5, cores_per_rank=1, gpus_per_rank=0) as executor:
    assert list(executor.map(abs, [-1, 2, -3, 4])) == [1, 2, 3, 4]
"""
THEIRS = """\
import submitit
executor = submitit.AutoExecutor(folder="log")
executor.update_parameters(timeout_min=5, cpus_per_task=1, slurm_partition="debug")
assert [job.result() for job in executor.map_array(abs, [-1, 2, -3, 4])] == [1, 2, 3, 4]
"""
SITE = """\
name: bench
nodes: {cpu: {platform: linux-64, cores: 32}}
scheduler: {kind: slurm, exclusive: false}
"""


def measure(pairs: int = 9) -> list[Figure]:
    """Seconds of our map over seconds of submitit's."""
    if importlib.util.find_spec("submitit") is None:
        raise SystemExit(f"submitit not found: {PYTHON} -m pip install submitit")
    from support.slurm import SlurmCluster

    with scratch("map") as directory, SlurmCluster.own(NODES) as cluster:
        (directory / "site.yaml").write_text(SITE)
        env = cluster.environ(
            HOME=str(directory), STACKYARD_SITE=str(directory / "site.yaml"), STACKYARD_HOME=str(directory / "yard")
        )
        programs = [directory / "ours.py", directory / "theirs.py"]
        for program, text in zip(programs, (OURS, THEIRS), strict=True):
            program.write_text(f"import os\nos.chdir({str(directory)!r})\n{text}")
        ours, theirs = programs
        measured = alternate(
            lambda: seconds([PYTHON, ours], env=env), lambda: seconds([PYTHON, theirs], env=env), pairs
        )
    note = "submitit looks for results once a second, so its time is one or two seconds and a bit"
    return [figure_of(f"a map of 4 tasks on {NODES} nodes", "submitit", measured, TARGET, note=note, unit="s")]
