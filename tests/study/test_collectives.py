"""``stackyard bench collectives``: real ranks over gloo and MPI, planted faults, and the files of nccl-tests."""

from __future__ import annotations

import json
import os
import re
import stat
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError, MissingError
from stackyard.launch.preflight.node import iterations, operations
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, RunStatus, write_record, write_status
from stackyard.study.collectives.request import collectives_request
from study.nccl_format import ANALYSER, SAMPLE, analysed, conforms
from support import programs, torchstack
from support.cli import Done, inside, stackyard
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

TWO = ("-r", "2", "-c", "1", "--oversubscribe")
MPI_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WRAPPER = "import os, runpy, sys, time\nrank = int(os.environ['RANK'])\n{}\nsys.argv.pop(0)\n"
WRAPPER += "sys.path.insert(0, os.path.dirname(sys.argv[0]))\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
OTHER_CLOCK = "if rank: time.time, time.strftime = (lambda: 0.0), (lambda *_: '1970-01-01 00:00:00')"
BROKEN = """
import torch.distributed as dist
real = dist.all_reduce
def all_reduce(data, *words, **more):
    real(data, *words, **more)
    if rank == 1:
        data[-1] += 1
        time.sleep(0.1)
dist.all_reduce = all_reduce
for name in ("reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base"):
    if hasattr(dist, name):
        delattr(dist, name)
"""
DYING = """
from mpi4py import MPI
calls = []
class Comm(MPI.Intracomm):
    def Alltoall(self, *words):
        calls.append(1)
        if rank == 1 and len(calls) == 12:
            os.kill(os.getpid(), 9)
        return super().Alltoall(*words)
MPI.COMM_WORLD = Comm(MPI.COMM_WORLD)
"""


class Bed:
    """A directory in which collectives are measured with a Python of one's choice."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "bin").mkdir()

    def python(self, program: str | Path, before: str = "") -> None:
        """What `python` is: a Python that runs these lines first."""
        (self.directory / "before.py").write_text(WRAPPER.format(before))
        file = self.directory / "bin" / "python"
        file.write_text(f'#!/bin/sh\nexec {program} {self.directory}/before.py "$@"\n')
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def bench(self, *words: str, expect: int = 0, **variables: str) -> Done:
        """``stackyard bench collectives WORDS...``."""
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        return stackyard("bench", "collectives", *words, expect=expect, cwd=self.directory, PATH=path,
                         **MPI_ROOT, **variables)  # fmt: skip

    @property
    def last(self) -> Path:
        """The directory of the last run."""
        return sorted((self.directory / "runs").iterdir())[-1]

    def document(self, operation: str) -> dict[str, Any]:
        """The file of an operation."""
        found: dict[str, Any] = json.loads((self.last / "collectives" / f"{operation}.json").read_text())
        return found


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


@pytest.fixture(scope="session")
def torch_python() -> Path:
    try:
        return torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


# --------------------------------------------------------------------------------------------- real ranks


@pytest.mark.slow
@pytest.mark.real
def test_all_operations_over_gloo(bed: Bed, torch_python: Path) -> None:
    bed.python(torch_python, OTHER_CLOCK)
    done = bed.bench(*TWO, "--sizes", "8:4K:8", "--iterations", "7", "--warmup", "1", NCCL_DEBUG="INFO",
                     FI_PROVIDER="tcp", UCX_AUTH_KEY="hidden-1", NCCL_X="https://me:hidden-2@host/",
                     HF_TOKEN="hidden-3")  # fmt: skip
    assert "deprecated" not in "".join(log.read_text() for log in (bed.last / "logs").glob("rank-*"))
    for name in operations.KINDS:
        document = bed.document(name)
        conforms(document, ranks=2, iterations=7)
        shown = [word.split("=")[0] for word in document["env"]]
        assert {"NCCL_DEBUG", "FI_PROVIDER"} <= set(shown)
        assert all(word.startswith(("NCCL_", "UCX_", "FI_", "GLOO_")) for word in shown)
        assert document["args"][1:3] == ["bench", "collectives"] and "hidden" not in json.dumps(document)
        assert document["out_of_bounds"] == {"count": 0, "okay": "true"} and document["errors"] == []
        assert document["start_time"] > "2020" and document["end_time"] >= document["start_time"]
    assert "hidden" not in (bed.last / iterations.FILE).read_text()
    assert [row["size"] for row in bed.document("all_reduce")["results"]] == [8, 64, 512, 4096]
    assert [row["size"] for row in bed.document("all_gather")["results"]] == [64, 512, 4096]  # 16 bytes a rank
    assert {row["redop"] for row in bed.document("broadcast")["results"]} == {"none"}
    assert bed.document("broadcast")["results"][0]["root"] == "     0"
    tables = re.findall(r"^# \w+ over gloo, 2 ranks\n# Size +Avg Latency\(us\)", done.out, re.M)
    assert len(tables) == len(operations.KINDS)
    for name in operations.KINDS:
        analysed(bed.last / "collectives" / f"{name}.json")


@pytest.mark.real
def test_three_ranks_over_mpi_and_the_results_again(bed: Bed, torch_python: Path) -> None:
    programs.need("mpirun")
    bed.python(torch_python)
    words = ("--sizes", "48:200K:64", "--iterations", "5", "--warmup", "0", "--json")
    done = bed.bench("-r", "3", *TWO[2:], "--over", "mpi", *words, OMPI_MCA_mpi_yield_when_idle="1")  # fmt: skip
    documents = done.value["operations"]
    assert set(documents) == set(operations.KINDS)
    for document in documents.values():
        conforms(document, ranks=3, iterations=5)
        assert [row["size"] for row in document["results"]] == [48, 3072, 196608]
        assert "MPI" in document["config"]["devices"][0]["device_info"]
    again = bed.bench("--of", "last", "--json")
    assert again.value == done.value
    shown = stackyard("runs", "show", bed.last, "--json", cwd=bed.directory).value
    assert "collectives" in " ".join(shown["record"]["command"])


@pytest.mark.slow
@pytest.mark.real
def test_wrong_values_a_slow_rank_and_a_missing_operation_are_seen(bed: Bed, torch_python: Path) -> None:
    bed.python(torch_python, BROKEN)
    words = ("--ops", "all_reduce,reduce_scatter,broadcast", "--sizes", "64K", "--iterations", "5", "--warmup", "0")
    done = bed.bench(*TWO, *words, expect=3)
    assert "wrong values received: all_reduce of 65536 bytes: 1 values" in done.err
    assert "reduce_scatter not measured: torch" in done.err
    document = bed.document("all_reduce")
    assert document["out_of_bounds"] == {"count": 1, "okay": "false"}
    (row,) = document["results"]
    assert row["out_of_place"]["nwrong"] == 1
    fast, slow = map(statistics.median, row["out_of_place_per_iter"]["per_process_max_times_us"])
    assert slow - fast > 50_000, "the barrier is outside of what is timed"
    assert bed.document("broadcast")["results"][0]["out_of_place"]["nwrong"] == 0
    file = bed.last / iterations.FILE
    file.write_text(file.read_text().replace('"wrong": 1', '"wrong": 0'))
    assert "not measured: reduce_scatter" in bed.bench("--of", "last", "--ops", "reduce_scatter", expect=4).err


@pytest.mark.real
def test_a_rank_that_dies_leaves_what_was_measured_before(bed: Bed, torch_python: Path) -> None:
    bed.python(torch_python, DYING)
    done = bed.bench(*TWO, "--over", "mpi", "--ops", "send_recv,all_to_all", "--sizes", "1K:2K", expect=137)
    assert "rank 1 on" in done.err and "SIGKILL" in done.err
    document = bed.document("send_recv")
    conforms(document, ranks=2, iterations=20)
    assert "rank 1 on" in document["errors"][0] and "end_time" not in document
    assert not (bed.last / "collectives" / "all_to_all.json").exists()


@pytest.mark.real
def test_sizes_beyond_the_memory_are_refused_before_anything_is_measured(bed: Bed, torch_python: Path) -> None:
    bed.python(torch_python)
    done = bed.bench(*TWO, "--over", "mpi", "--sizes", "1K:1024G:1024", expect=2)
    assert re.search(r"out of memory: \w+ of \d+ bytes needs [\d.]+ GiB for 2 ranks on", done.err), done.err
    assert re.search(r"hint: measure less: --sizes 1024:\d{7,10}, or start fewer", done.err)
    assert (bed.last / "logs").exists() and not (bed.last / iterations.FILE).exists()


@pytest.mark.parametrize(("over", "package"), [("gloo", "torch"), ("mpi", "mpi4py")])
def test_an_environment_without_the_library_says_what_to_do(bed: Bed, over: str, package: str) -> None:
    if over == "mpi":
        programs.need("mpirun")
    bed.python(f"{sys.executable} -I")
    done = bed.bench(*TWO, "--over", over, "--sizes", "8", expect=4)
    assert f"{package} cannot be imported" in done.err and f"use a stack that has {package} (--with REV)" in done.err


def test_one_rank_is_refused_before_anything_is_written(bed: Bed) -> None:
    done = bed.bench("-r", "1", "-c", "1", expect=2)
    assert "one rank only" in done.err and "-r 2" in done.err
    assert not (bed.directory / "runs").exists()


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path) as made:
        yield made


@pytest.mark.real
def test_two_nodes_in_an_allocation_and_as_a_batch_job(work: Work, torch_python: Path) -> None:
    shape = ("-N", "2", "-r", "1", "-c", "1", "-g", "0", "--sizes", "1K:4K", "--ops", "all_reduce,send_recv")
    path = f"PATH={torch_python.parent}:{os.environ['PATH']}"
    work.allocated("bench", "collectives", *shape, "--env", path)
    file = work.last / "collectives" / "send_recv.json"
    document = json.loads(file.read_text())
    conforms(document, ranks=2, iterations=20)
    assert len({one["hostname"] for one in document["config"]["devices"]}) == 2
    analysed(file)
    done = work.run("bench", "collectives", *shape, "--env", path, "--shared", "-t", "3", "--submit", "--json")
    conforms(done.value["operations"]["all_reduce"], ranks=2, iterations=20)
    assert work.status()["state"] == "done"


# --------------------------------------------------------------------------------------------- the format


def test_nvidias_analyser_fails_a_file_that_is_not_consistent(tmp_path: Path) -> None:
    """Else `analysed` proves nothing."""
    if not ANALYSER.exists():
        pytest.skip(f"nccl-tests is not beside this repository: {ANALYSER}")
    if not SAMPLE.exists():
        pytest.skip("the sample is not beside this repository")
    analysed(SAMPLE)
    document = json.loads(SAMPLE.read_text())
    document["results"][0]["out_of_place_per_iter"]["times_us"][0] += 1
    (tmp_path / "bad.json").write_text(json.dumps(document))
    with pytest.raises(AssertionError):
        analysed(tmp_path / "bad.json")


# --------------------------------------------------------------------------------------------- parts

HEADER = {"format": 1, "operations": ["all_reduce"], "sizes": [1000000], "factor": 2, "over": "gloo", "warmup": 5,
          "iterations": 2, "limit_s": 600, "start_time": "2026-11-28 12:00:00", "environment": [], "nccl_version": 0,
          "devices": [{"rank": rank, "group": 0, "pid": 1, "hostname": "n1", "device": -1, "device_hex": "",
                       "device_info": "cpu, gloo", "free": 1} for rank in range(4)]}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "bus"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("broadcast", 1.0),
     ("send_recv", 1.0)],
)  # fmt: skip
def test_the_bus_bandwidth_of_four_ranks(bed: Bed, operation: str, bus: float) -> None:
    """10^6 bytes within the 1000 us of the slowest rank are 1 GB/s."""
    row = {"operation": operation, "size": 1000000, "count": 1, "wrong": 0,
           "times_us": [[1000, 500], [400, 1000], [1000, 1000], [999, 100]]}  # fmt: skip
    run = recorded(bed, HEADER, row, {"end_time": "2026-11-28 12:00:01"})
    found = inside("bench", "collectives", "--of", str(run), "--json").value["operations"][operation]
    assert found["results"][0]["out_of_place"] == {"time": 1000, "alg_bw": 1, "bus_bw": pytest.approx(bus), "nwrong": 0}
    assert iterations.text_of(row).split() == ["1000000", "749.88", "549.50", "1000.00", "2", f"{bus:g}", "0"]


def recorded(bed: Bed, *lines: Any, raw: str = "") -> Path:
    """A run that has measured these lines, and perhaps a part of one more."""
    bed.directory.joinpath("bin", "python").write_text("")
    run = bed.directory / "runs" / "2026-11-28-001"
    run.mkdir(parents=True)
    write_record(RunPaths(run), RunRecord(run.name, "2026-11-28T12:00:00+0000", "launch", ("stackyard", "bench"), {}))
    write_status(RunPaths(run), RunStatus(state="done"))
    (run / iterations.FILE).write_text("".join(json.dumps(line) + "\n" for line in lines) + raw)
    return run


def test_a_line_that_was_cut_off_is_left_out_and_damaged_ones_are_errors(bed: Bed) -> None:
    row = {"operation": "all_reduce", "size": 8, "count": 2, "wrong": 0, "times_us": [[1.0], [2.0]]}
    run = recorded(bed, HEADER, row, raw='{"operation": "all_red')
    assert len(inside("bench", "collectives", "--of", run, "--json").value["operations"]["all_reduce"]["results"]) == 1
    for text in ("", "[]\n", "{\n", '{"sizes": []}\n{"times_us": 1, "operation": 2}\n',
                 json.dumps(HEADER) + "\n" + json.dumps({**row, "times_us": [[], []]}) + "\n"):  # fmt: skip
        (run / iterations.FILE).write_text(text)
        assert "are damaged" in inside("bench", "collectives", "--of", run, expect=2).err, text
    (run / iterations.FILE).unlink()
    assert "has no measurements" in inside("bench", "collectives", "--of", run, expect=2).err


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("8:64", [8, 16, 32, 64]), ("1K:1M:32", [1024, 32768, 1048576]), ("2GiB", [2 << 30]), ("24:100", [24, 48, 96])],
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert list(collectives_request("", text).sizes) == sizes


@pytest.mark.parametrize("text", ["", "8:", "0:8", "64:8", "2", "8:64:1", "8:64:x", "8:64:2:2", "-8:8", "8X", "9" * 99])
def test_what_is_no_range_of_sizes(text: str) -> None:
    if text == "8:":
        assert collectives_request("", text).sizes == (8,)
        return
    with pytest.raises(InputError, match=re.escape(f"--sizes {text}: not a range")):
        collectives_request("", text)


def test_unknown_operations_are_named() -> None:
    with pytest.raises(InputError, match="--ops allreduce: no such operation") as caught:
        collectives_request("broadcast,allreduce", "8")
    assert caught.value.hint is not None and "all_reduce" in caught.value.hint
    assert collectives_request("send-recv,all_reduce,send_recv", "8").operations == ("send_recv", "all_reduce")


def test_what_ranks_receive_is_known_for_any_number_of_them() -> None:
    for ranks in (1, 3, 64, 200):
        sums = [float(sum((rank + 5 + i) % 64 for rank in range(ranks))) for i in range(64)]
        assert operations._sums(ranks, 5) == sums
    assert operations.count_of("all_gather", 8, 2) == 0 and operations.count_of("all_to_all", 100, 3) == 8
    assert operations.buffer_bytes("all_to_all", 8, 3) == 2 * operations.size_of("all_to_all", 8, 3) == 192


def test_the_free_memory_is_that_of_the_node_or_of_the_jobs_control_group(tmp_path: Path) -> None:
    for name, text in {
        "proc/meminfo": "MemTotal: 900 kB\nMemAvailable: 500 kB\n", "proc/self/cgroup": "0::/job/step\n",
        "sys/fs/cgroup/job/memory.max": "300000\n", "sys/fs/cgroup/job/memory.current": "250000\n",
        "sys/fs/cgroup/job/memory.stat": "anon 1\nactive_file 20000\ninactive_file 30000\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert iterations._free(tmp_path) == 100_000
    (tmp_path / "sys/fs/cgroup/job/memory.max").write_text("max\n")
    assert iterations._free(tmp_path) == 512_000
