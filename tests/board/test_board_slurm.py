"""Boards within jobs of a Slurm cluster, whose nodes have networks and names of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from board.boardbed import HTTP, answering, asked
from stackyard.host.run.identity import hostname, whoami
from support.cli import STACKYARD
from support.slurm import SlurmCluster

pytestmark = pytest.mark.real


def test_a_board_in_a_batch_job_names_its_node_and_ends_with_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello\n")
    words = " ".join(f"'{word}'" for word in (STACKYARD, "board", tmp_path, *HTTP))
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n#SBATCH -N1 -w n3 -p debug -o {tmp_path}/out\n{words} &\nwait\n")
    submit = ["sbatch", "--parsable", str(tmp_path / "job.sh")]
    job = subprocess.run(submit, check=True, text=True, stdout=subprocess.PIPE, env=slurm.environ(), cwd=tmp_path)
    number = job.stdout.strip()
    waits = subprocess.Popen(["sleep", "600"], text=True)
    try:
        out = tmp_path / "out"
        shown = answering(waits, lambda: out.read_text() if out.exists() else "")
        me = whoami()
        assert f"/s -J {me}@{hostname()} {me}@n3\n" in shown.said
        hello = subprocess.run(asked(shown.socket, "/hello.txt"), check=True, text=True, stdout=subprocess.PIPE)
        assert hello.stdout == "hello\n" and len(shown.processes) >= 3
    finally:
        subprocess.run(["scancel", number], check=True, env=slurm.environ())
        waits.kill()
    shown.ended()


@pytest.mark.long
def test_a_board_of_salloc_on_the_login_node_ends_with_the_job_too(slurm: SlurmCluster, tmp_path: Path) -> None:
    """salloc itself lets its command go on; the controller is asked once a minute."""
    argv = ["salloc", "-N1", "-p", "debug", str(STACKYARD), "board", str(tmp_path), *HTTP]
    salloc = subprocess.Popen(argv, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=slurm.environ())  # fmt: skip
    shown = answering(salloc)
    assert f"/s {whoami()}@{hostname()}\n" in shown.said
    child = Path(f"/proc/{salloc.pid}/task/{salloc.pid}/children").read_text().split()
    variables = Path(f"/proc/{child[0]}/environ").read_text().split("\0")
    (job,) = (each.partition("=")[2] for each in variables if each.startswith("SLURM_JOB_ID="))
    subprocess.run(["scancel", job], check=True, env=slurm.environ())
    _, said = salloc.communicate(timeout=150)
    assert f"job {job} has ended, and its board with it" in said
    shown.ended()
