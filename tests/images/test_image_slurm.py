"""Ranks of a Slurm job from an image: one namespace on each node, and MPI within and between nodes."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from image_bed import make

from stackyard.core.errors import MissingError
from support import programs
from support.cli import stackyard
from support.slurm import SlurmCluster
from support.slurmcli import working

pytestmark = [pytest.mark.real, pytest.mark.long]

PROGRAM = """\
import os, time
from mpi4py import MPI
import numpy
world = MPI.COMM_WORLD
total = numpy.zeros(200_000)
world.Allreduce(numpy.full(200_000, world.rank + 1.0), total)  # above the size from which ranks attach to each other
print(world.rank, world.size, int(total[-1]), os.uname().nodename, os.readlink("/proc/self/ns/mnt"),
      numpy.__file__, flush=True)
"""


def test_mpi_from_an_image_on_two_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    example = Path(__file__).parents[2] / "examples" / "quickstart"
    for file in ("stack.yaml", "requirements.txt"):
        shutil.copy(example / file, tmp_path)
    yard = tmp_path / "yard"
    stackyard("--yard", yard, "deploy", "--image", "squashfs", tmp_path / "stack.yaml")
    with working(slurm, tmp_path, program=PROGRAM) as work:
        words = (
            "--yard",
            str(yard),
            "launch",
            "--with",
            "quickstart",
            "--stream",
            "all",
            "-N",
            "2",
            "-r",
            "2",
            "-c",
            "1",
        )
        done = work.run(*words, "-g", "0", "--launcher-arg=--mpi=pmi2", "program.py", STACKYARD_TMP=str(tmp_path))
        rows = [line.split()[1:] for line in done.out.splitlines() if line.startswith("[")]
        rows = [row for row in rows if len(row) == 6 and row[0].isdigit()]  # UCX says something too
        assert sorted(row[:3] for row in rows) == [[str(rank), "4", "10"] for rank in range(4)]
        spaces = defaultdict(set)
        for row in rows:
            spaces[row[3]].add(row[4])
            assert row[5].startswith(str(yard))
        assert [len(each) for each in spaces.values()] == [1, 1], "the ranks of a node share one"
        assert len(set.union(*spaces.values())) == 2
        work.nothing_left()


CGROUPS = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint=/sys/fs/cgroup\n"


def with_cgroups(files: dict[str, str]) -> None:
    files["slurm.conf"] = files["slurm.conf"].replace("proctrack/linuxproc", "proctrack/cgroup")
    files["cgroup.conf"] = CGROUPS


def test_a_step_outlives_the_one_that_has_mounted_the_image(tmp_path: Path) -> None:
    """Under proctrack/cgroup, which kills all that a step has started."""
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    if not os.access("/sys/fs/cgroup/freezer", os.W_OK):
        pytest.skip("no freezer of cgroup v1 that root can write")
    demo = make(tmp_path)
    look = f"cat {demo.paths.prefix}/share/data"
    first = f"{look}; touch first; until [ -e second ]; do sleep 0.1; done"
    second = f"{look}; touch second; until [ -e over ]; do sleep 0.1; done; {look}; grep -m1 step /proc/self/cgroup"
    script = tmp_path / "job.sh"
    script.write_text(
        f"#!/bin/sh\ncd {tmp_path}\n"
        f"srun -n1 --overlap {demo.paths.launcher} sh -c '{first}' & one=$!\n"
        "until [ -e first ]; do sleep 0.1; done\n"
        f"srun -n1 --overlap {demo.paths.launcher} sh -c '{second}' & two=$!\n"
        "wait $one; sleep 1; touch over; wait $two\n"
    )
    script.chmod(0o755)
    try:
        with SlurmCluster.own(1, with_cgroups) as cluster:
            done = cluster.run("salloc", "-N1", "-n2", script, **{k: v for k, v in demo.env().items() if k != "PATH"})
    except MissingError as error:
        pytest.skip(str(error))
    finally:
        demo.end()
    lines = done.stdout.splitlines()
    assert lines[:3] == ["data"] * 3, done.output
    assert "/step_1" in lines[3], "proctrack/cgroup is in use"
