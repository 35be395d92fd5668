"""The ranks' own program, started on this machine: what it finds out, and whom it names when something is wrong."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from stackyard.launch.preflight import PreflightOptions, trial
from stackyard.launch.preflight.node import probe
from stackyard.launch.preflight.node.connections import Connections
from support import torchstack
from support.processes import wait_for

QUICK = PreflightOptions(seconds=0.1, speed_seconds=0.05, start_s=60, answer_s=60, connect_s=60, collective_s=6)


class Ranks:
    """Some ranks of a step on this machine, with the variables that the launcher's shim would set."""

    def __init__(self, directory: Path, python: str | Path = sys.executable) -> None:
        self.step, self.python = directory / "1", python
        self.start = trial.install(directory / "program")
        with socket.socket() as probe_socket:
            probe_socket.bind(("127.0.0.1", 0))
            self.port = probe_socket.getsockname()[1]
        self.running: list[subprocess.Popen[str]] = []

    def spec(self, *stages: str, options: PreflightOptions = QUICK, host: str = "") -> None:
        self.step.mkdir(exist_ok=True)
        trial.write_spec(self.step, [host or os.uname().nodename], stages, options)

    def rank(self, rank: int, size: int, local: int | None = None, **more: str) -> subprocess.Popen[str]:
        local = rank if local is None else local
        environ = {"PATH": "/usr/bin:/bin", "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(local),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), **more}  # fmt: skip
        started = subprocess.Popen([self.python, self.start, self.step], env=environ, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        self.running.append(started)
        return started

    def end(self) -> list[int]:
        for one in self.running:
            one.communicate(timeout=240)
        return [one.returncode for one in self.running]

    def stages(self) -> dict[str, dict[str, Any]]:
        return {stage["name"]: stage for stage in self.result()["stages"]}

    def result(self) -> Any:
        return json.loads((self.step / "result.json").read_text())


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    for one in made.running:
        one.kill()
        one.communicate()


@pytest.fixture(scope="session")
def torch_python() -> Path:
    try:
        return torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


def test_ranks_of_one_node_say_who_and_what_they_are(ranks: Ranks) -> None:
    ranks.spec("identity", "hosts", "libraries", "gloo", "tcp")
    for rank in range(3):
        ranks.rank(rank, 3)
    assert ranks.end() == [0, 0, 0]
    told = ranks.stages()
    assert ranks.result()["finished"]
    (facts,) = ranks.result()["facts"].values()
    assert facts["cores"] == os.cpu_count() and facts["memory_gib"] > 0 and facts["kernel"] == os.uname().release
    assert {m["name"] for m in told["libraries"]["measurements"]} >= {"cpu", "memory", "share"}
    assert told["gloo"]["outcome"] == "skipped" and "No module named 'torch'" in told["gloo"]["reason"]
    assert told["tcp"]["reason"] == "one node"


def test_a_missing_rank_is_named(ranks: Ranks) -> None:
    ranks.spec("identity", "hosts", options=PreflightOptions(start_s=4.6))
    for rank in (0, 1, 3):
        ranks.rank(rank, 4)
    assert 0 not in ranks.end()
    identity = ranks.stages()["identity"]
    assert identity["outcome"] == "failed" and identity["reason"].startswith(
        "timed out after 5 s waiting for rank 2 of 4"
    )
    assert "hosts" not in ranks.stages() and not ranks.result()["finished"]


def test_two_processes_with_one_rank_are_named(ranks: Ranks) -> None:
    ranks.spec("identity", options=PreflightOptions(start_s=5))
    for rank in (0, 1, 1):
        ranks.rank(rank, 3)
    ranks.end()
    host = os.uname().nodename
    assert ranks.stages()["identity"]["reason"] == f"duplicate rank: rank 1 on {host} and on {host}"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"size": 5}, r"world size mismatch: 5, expected 2 \(rank 1 on "),
        ({"local": 0}, r"local rank mismatch: \[0, 0\], expected 0 to 1"),
    ],
)
def test_ranks_that_disagree_are_named(ranks: Ranks, second: dict[str, int], words: str) -> None:
    ranks.spec("identity")
    ranks.rank(0, 2)
    ranks.rank(1, **{"size": 2, **second})
    ranks.end()
    assert re.search(words, ranks.stages()["identity"]["reason"])


def test_a_rank_without_an_identity_says_so(ranks: Ranks) -> None:
    ranks.spec("identity")
    lost = ranks.rank(0, 1, LOCAL_RANK="")
    said, _ = lost.communicate(timeout=240)
    assert lost.returncode == 1 and "the launcher has not set the identity of this rank" in said


def test_a_stranger_is_not_taken_for_a_rank(ranks: Ranks) -> None:
    ranks.spec("identity")
    ranks.rank(0, 2)

    def greeted() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", ranks.port), timeout=240) as sock:
                assert b"challenge" in sock.recv(4096)
                sock.sendall(b'{"hello": {"rank": 1, "size": 2, "local_rank": 1, "host": "x"}}\n')
                return sock.recv(1) == b""
        except ConnectionRefusedError:
            return False

    wait_for(greeted)
    ranks.rank(1, 2)
    assert ranks.end() == [0, 0]


def test_the_stop_file_ends_everything_in_seconds(ranks: Ranks) -> None:
    ranks.spec("identity", options=PreflightOptions(start_s=100))
    ranks.rank(0, 3)

    def listening() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", ranks.port)) == 0

    wait_for(listening)
    ranks.rank(1, 3)
    time.sleep(1)
    (ranks.step / "stop").touch()
    began = time.monotonic()
    assert 0 not in ranks.end()
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_gloo_within_a_node_measures_and_a_stopped_rank_is_named(tmp_path: Path, torch_python: Path) -> None:
    ranks = Ranks(tmp_path, torch_python)
    ranks.spec("identity", "libraries", "gloo", "node", "all", options=QUICK)
    started = [ranks.rank(rank, 2) for rank in range(2)]
    wait_for(lambda: (ranks.step / "result.json").exists() and "gloo" in ranks.stages(), 120)
    started[1].send_signal(signal.SIGSTOP)
    started[0].communicate(timeout=240)
    started[1].kill()
    ranks.end()
    told = ranks.stages()
    assert told["gloo"]["measurements"][0]["name"] == "gloo_connect"
    hung = next((stage for stage in told.values() if stage["outcome"] == "failed"), None)
    assert hung is not None and hung["reason"].startswith(f"rank 1 on {os.uname().nodename} stopped responding")
    assert not ranks.result()["finished"]


def test_the_program_can_be_read_by_the_pythons_of_old_stacks() -> None:
    files = list(Path(probe.__file__).parent.glob("*.py"))
    assert len(files) > 5
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 7))
        imported = re.findall(r"^(?:from|import) (\S+)", file.read_text(), re.M)
        assert not [name for name in imported if name.startswith("stackyard")], "it is run where stackyard is not"


# ------------------------------------------------------------------------------------------------ what a node is


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("text", "model", "ghz"),
    [("processor : 0\nmodel name : AMD EPYC 7A53 64-Core Processor\ncpu MHz : 1996.2\ncpu MHz\t: 3490.5\n",
      "AMD EPYC 7A53 64-Core Processor", 3.4905),
     ("processor : 0\ncpu : POWER9, altivec supported\nclock : 3800.000000MHz\n", "POWER9", 3.8)],
)  # fmt: skip
def test_the_processor(tmp_path: Path, text: str, model: str, ghz: float) -> None:
    write(tmp_path, proc__cpuinfo=text)
    assert probe.cpu_model(tmp_path) == model
    assert probe.clock_ghz(tmp_path) == pytest.approx(ghz)


def test_nvidia_gpus_as_the_kernel_module_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path, proc__driver__nvidia__version=(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"))  # fmt: skip
    for slot in ("0000:03:00.0", "0000:41:00.0"):
        write(tmp_path / f"proc/driver/nvidia/gpus/{slot}", information="Model: \t\t NVIDIA H100\nIRQ: 5\n")
    assert probe.nvidia(tmp_path) == [{"model": "NVIDIA H100", "driver": "550.54.15", "ecc": 0}] * 2


def test_nvidia_smi_is_asked_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 550.54.15, 81559, 00000000:03:00.0, 0'\n"
                       "echo 'NVIDIA H100 80GB HBM3, 550.54.15, 81559, 00000000:41:00.0, 2'\n")  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = probe.nvidia(tmp_path)
    assert [gpu["ecc"] for gpu in found] == [0, 2]
    assert found[0]["model"] == "NVIDIA H100 80GB HBM3 81559 MiB" and found[0]["driver"] == "550.54.15"
    assert probe.facts(tmp_path)["gpu_errors"] == ["GPU 1: 2 memory errors"]


def test_amd_gpus_from_the_kernels_topology(tmp_path: Path) -> None:
    base = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(base / "0", properties="cpu_cores_count 64\nsimd_count 0\n")
    write(base / "1", properties="cpu_cores_count 0\nsimd_count 440\ngfx_target_version 90010\ndevice_id 29704\n")
    write(tmp_path, sys__module__amdgpu__version="6.3.6\n")
    assert probe.amd(tmp_path) == [{"model": "gfx 90010 device 29704", "driver": "6.3.6", "ecc": 0}]


def test_too_few_open_files_are_said_before_anything_waits() -> None:
    """At 10,000 ranks rank 0 would otherwise fail in the middle, with a connection that cannot be accepted."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))\n"
        "from stackyard.launch.preflight.node.rank import _many_files\n_many_files(200); _many_files(1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1000 ranks need 1256 on the node of rank 0, where the hard limit is 500" in done.stderr


def test_rank_0_gets_its_command_last(tmp_path: Path) -> None:
    """It starts MPI in the coordinator's own process, which can send nothing then: MPI_Init keeps Python's lock."""
    order: list[int] = []

    class Told:
        waiting = False

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def send(self, command: dict[str, Any]) -> None:
            order.append(self.rank)

    made = Connections("127.0.0.1", 0, "secret", tmp_path / "stop", 3)
    made.by_rank = {rank: Told(rank) for rank in (1, 0, 2)}
    answers = made.ask({0: {}, 1: {}, 2: {}}, limit_s=0)
    assert order[-1] == 0 and sorted(order) == [0, 1, 2] and answers.waiting == {0, 1, 2}
    for one in made.listening:
        one.close()


HANGING = """
import ctypes, os
if os.environ["RANK"] in os.environ["HANGING"]:
    ctypes.PyDLL(None).pause()  # with Python's lock, as mpi4py in MPI_Init
raise ImportError("the others do not wait for them here")
"""


@pytest.mark.parametrize("hanging", ["0", "01"])
def test_a_hang_of_rank_0_in_mpi_init_ends_by_itself(ranks: Ranks, tmp_path: Path, hanging: str) -> None:
    for name, text in (("__init__", ""), ("MPI", HANGING)):
        (tmp_path / "fake" / "mpi4py").mkdir(parents=True, exist_ok=True)
        (tmp_path / "fake" / "mpi4py" / f"{name}.py").write_text(text)
    ranks.spec("identity", "hosts", "libraries", "mpi", options=replace(QUICK, connect_s=2.0, collective_s=200.0))
    for rank in range(2):
        ranks.rank(rank, 2, PYTHONPATH=str(tmp_path / "fake"), HANGING=hanging)
    assert 0 not in ranks.end()
    stage, host = ranks.stages()["mpi"], os.uname().nodename
    assert (stage["outcome"], stage["reason"]) == ("failed", f"rank 0 on {host} timed out after 2 s in MPI_Init")
    assert not ranks.result()["finished"]
