"""Ranks of a Slurm job that are commands of a wrapped image: one container on each node, which they share."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from images.wrap_bed import bed
from support import programs
from support.slurm import SlurmCluster
from support.slurmcli import working

pytestmark = [pytest.mark.real, pytest.mark.long]

RANK = """#!/bin/sh
echo "row $SLURM_PROCID $SLURMD_NODENAME $(readlink /proc/self/ns/mnt) $(cat /etc/os-release) $(pwd)"
sleep 3
"""


def test_the_ranks_of_a_node_share_one_container(slurm: SlurmCluster, tmp_path: Path) -> None:
    for name in ("mksquashfs", "squashfuse", "unshare", "gcc"):
        programs.need(name)
    tool = bed(tmp_path, rank=RANK)
    tool.wrap("--commands", "rank,sh")
    try:
        with working(slurm, tmp_path) as work:
            words = ("--yard", str(tool.yard), "launch", "--with", "tool", "--stream", "all", "-N", "2", "-r", "2")
            done = work.run(*words, "-c", "1", "-g", "0", "rank", STACKYARD_TMP=str(tmp_path))
            rows = [line.split()[2:] for line in done.out.splitlines() if line.startswith("[") and " row " in line]
            work.nothing_left()
        assert sorted(row[0] for row in rows) == list("0123"), done.out + done.err
        spaces = defaultdict(set)
        for _, node, space, system, directory in rows:
            spaces[node].add(space)
            assert (system, directory) == ("ID=small", str(work.directory))
        assert [len(each) for each in spaces.values()] == [1, 1], "the ranks of a node share one"
        assert len(set.union(*spaces.values())) == 2
    finally:
        tool.end()
