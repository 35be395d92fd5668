"""What goes wrong while ResNet trains, or before: within seconds the message names it, and nothing is left running."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import programs, torchstack, venvs
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = [pytest.mark.real, pytest.mark.slow]

ENDLESS = ("--depth=14", "--width=8", "--image-size=32", "--classes=10", "--batch=12", "--samples=48", "--device=cpu",
           "--steps=1000000")  # fmt: skip
TRAIN = str(torchstack.EXAMPLES / "resnet" / "train.py")
RANK_EACH = ("-r", "1", "-c", "1", "-g", "0")
AT_ONCE_S = 50
"""From the harm to the end of the command. Measured on two idle cores: 1 to 3 s, and 6 to 8 s for a lost node."""

FIXED_PORT = """\
import os, torch.distributed as dist
os.environ["MASTER_PORT"] = "{port}"
dist.init_process_group("gloo")
"""
HANGS = """\
import os, threading, time
begun = threading.Event()
def says():  # Torch may take its time to begin
    while not begun.wait(1):
        print("begins", flush=True)
threading.Thread(target=says, daemon=True).start()
import torch, torch.distributed as dist
def sleeps():
    time.sleep(600)
dist.init_process_group("gloo")
begun.set()
if dist.get_rank() == 1:
    sleeps()
dist.all_reduce(torch.ones(1))
"""
ORDINAL = """\
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit("RuntimeError: CUDA error: invalid device ordinal")
time.sleep(300)
"""
WHO = "from mpi4py import MPI\nprint('mpi rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size, flush=True)\n"
LISTENS = """\
import socket, sys
with socket.create_server(("", 0)) as here:
    print(here.getsockname()[1])
    sys.stdin.read()
"""
PROGRAMS = {"hangs": HANGS, "ordinal": ORDINAL, "who": WHO}


@pytest.fixture(scope="module")
def yard() -> Path:
    """The yard in which the example's stack is deployed."""
    try:
        return torchstack.torch_yard()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    with working(slurm, tmp_path, **PROGRAMS) as made:
        yield made


def training(work: Work, yard: Path, nodes: int, *more: str) -> subprocess.Popen[str]:
    """ResNet on so many nodes, beyond its second step."""
    words = ("--yard", str(yard), "launch", "-N", str(nodes), *RANK_EACH, "--with", "resnet", *more, TRAIN, *ENDLESS)
    started = work.start(*words, salloc=(f"-N{nodes}",))
    work.until(lambda: '"step": 1,' in (work.last / "logs" / "rank-00000.log").read_text(), 240)
    return started


def ended(started: subprocess.Popen[str], since: float, within_s: float = AT_ONCE_S) -> str:
    """What a launch printed on standard error; it must end soon."""
    _, err = started.communicate(timeout=240)
    took = time.monotonic() - since
    print(f"ended {took:.1f} s after the harm")
    assert took < within_s, err
    return err


def rank_process(work: Work, rank: int) -> int:
    """The Python of a rank."""
    for directory in Path("/proc").iterdir():
        try:
            environ = (directory / "environ").read_bytes().split(b"\0") if directory.name.isdigit() else []
            line = (directory / "cmdline").read_bytes()
        except OSError:
            continue
        if f"RANK={rank}".encode() in environ and work.mark.encode() in b"".join(environ) and b"train.py" in line:
            return int(directory.name)
    raise AssertionError(f"rank {rank} does not run; {work.said()}")


def test_a_killed_rank(work: Work, yard: Path) -> None:
    """Its peers fail of it within the same second, and are not taken for the cause."""
    started = training(work, yard, 3)
    began = time.monotonic()
    os.kill(rank_process(work, 1), signal.SIGKILL)
    err = ended(started, began)
    assert started.returncode == 137, err
    assert re.search(r"error: rank 1 on n\d was killed by signal 9 \(SIGKILL\)", err), err
    work.nothing_left()


def test_a_node_dies(slurm_exclusive: SlurmCluster, tmp_path: Path, yard: Path) -> None:
    with working(slurm_exclusive, tmp_path) as work:
        started = training(work, yard, 3, "--lost-timeout", "5")
        began = time.monotonic()
        slurm_exclusive.lose_node("n3", "cut")
        work.until(lambda: work.status()["state"] == "node-lost", AT_ONCE_S)
        print(f"named and ended {time.monotonic() - began:.1f} s after the node was lost")
        slurm_exclusive.run("scancel", "--user=root", check=False)  # salloc waits for the node for minutes
        _, err = started.communicate(timeout=240)
        assert started.returncode == 1, err
        assert "heartbeat timeout: n3" in err
        for node in ("n1", "n2"):
            assert not [line for line in slurm_exclusive.processes(node).values() if "train.py" in line]


@contextlib.contextmanager
def listener(work: Work, node: str) -> Iterator[int]:
    """The port on which another job's program listens on a node."""
    argv = ["srun", "-N1", "--partition=debug", f"--nodelist={node}", sys.executable, "-u", "-c", LISTENS]
    with subprocess.Popen(argv, env=work.cluster.environ(), text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdin
        assert other.stdout
        yield int(other.stdout.readline())
        other.stdin.close()  # at which it ends


def test_a_busy_port(work: Work, yard: Path) -> None:
    """A program that insists on a port of its own, which something on the node of rank 0 has."""
    node = "n3"
    with listener(work, node) as port:
        (work.directory / "fixed.py").write_text(FIXED_PORT.format(port=port))
        words = ("--yard", str(yard), "launch", "-N", "2", *RANK_EACH, "--with", "resnet", "fixed.py")
        began = time.monotonic()
        started = work.start(*words, salloc=("-N2", f"--nodelist={node},n4"))
        err = ended(started, began, 120)
    assert started.returncode == 1, err
    assert f"rank 0 on {node} exited with status 1" in err
    assert "cause: address already in use on the node of rank 0" in err
    work.nothing_left()


@pytest.mark.parametrize(("words", "cause"), [
    (("--launcher", "mpirun", "--launcher-arg=--host", "--launcher-arg=nowhere"), "hosts that are not in this job"),
    (("--launcher-arg=--nodelist=n9",), "the job step requests nodes that are not in the job"),
], ids=["mpirun", "srun"])  # fmt: skip
def test_a_wrong_host(work: Work, words: tuple[str, ...], cause: str) -> None:
    began = time.monotonic()
    started = work.start("launch", "-N", "2", *RANK_EACH, *words, "block.py", salloc=("-N2",))
    err = ended(started, began)
    assert started.returncode == 1, err
    assert "0 of 2 nodes reported" in err
    assert cause in err
    work.nothing_left()


def test_an_invalid_device(work: Work) -> None:
    began = time.monotonic()
    started = work.start("launch", "-N", "2", *RANK_EACH, "ordinal.py", salloc=("-N2",))
    err = ended(started, began)
    assert started.returncode == 1, err
    assert re.search(r"error: rank 1 on n\d exited with status 1", err)
    assert "cause: invalid GPU index" in err
    work.nothing_left()


def test_an_mpi_that_srun_does_not_wire_up(work: Work, yard: Path) -> None:
    words = ("--yard", str(yard), "launch", "-N", "2", *RANK_EACH, "--with", "resnet", "--launcher-arg=--mpi=none")
    done = work.allocated(*words, "who.py", salloc=("-N2",), expect=None)
    assert done.code == 1, done.err
    assert "cause: this MPI library was built without a PMI that srun provides" in done.err
    work.nothing_left()


def test_ranks_that_are_all_alone(work: Work, yard: Path) -> None:
    """MPICH under PMIx: every rank is rank 0 of 1, which no rank can see."""
    (work.directory / "libmpi.so.12").symlink_to(programs.need("libmpich.so.12"))  # its name everywhere but on Debian
    words = ("--env", f"LD_LIBRARY_PATH={work.directory}", "--env", "MPI4PY_MPIABI=mpich", "--launcher-arg=--mpi=pmix")
    line = ("--yard", str(yard), "launch", "-N", "2", *RANK_EACH, "--with", "resnet", *words, "who.py")
    done = work.allocated(*line, salloc=("-N2",), expect=1)
    assert "PMI mismatch: every rank sees world size 1" in done.err
    assert "pmi2 for MPICH" in " ".join(done.err.split())


def test_a_program_that_hangs(work: Work, yard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stacks of all ranks show who waits and for what."""
    try:
        spy = venvs.python("py-spy").parent
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{spy}")
    words = ("--yard", str(yard), "launch", "-N", "2", *RANK_EACH, "--with", "resnet", "--hang", "0.25", "hangs.py")
    done = work.allocated(*words, salloc=("-N2",), expect=1)
    assert "no output for 0.25 min" in done.err
    assert work.status()["state"] == "hung"
    stacks = {path.name: path.read_text() for path in (work.last / "stacks").iterdir() if path.is_file()}
    assert sum("all_reduce" in text for text in stacks.values()) == 1, stacks
    assert sum("sleeps" in text for text in stacks.values()) == 1, stacks
    work.nothing_left()
