"""Whole jobs on LSF, PBS and Flux: submitted, followed, found again, ended; the schedulers and launchers stand in.

script -> bsub, qsub or flux batch -> ``launch --recorded`` -> jsrun, mpiexec, flux run or a real mpirun -> rank.sh ->
hello.py, on two nodes. The stand-ins read commands by the manuals and place ranks by themselves.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import wait_for
from support.standinsites import REAL_MPIRUN, SITES, Cluster, missing

HELLO = Path(__file__).parent / "programs" / "hello.py"
STARTERS = {"jsrun": "jsrun", "lsf": "mpirun", "pals": "mpiexec", "pbs-openmpi": "mpirun", "flux": "flux run"}
NAMES = {"jsrun": "lsf", "lsf": "lsf", "pals": "pbs", "pbs-openmpi": "pbs", "flux": "flux"}


def on(*often: str, sites: Iterable[str] = SITES) -> pytest.MarkDecorator:
    """Run a test on these stand-ins in `make test`, and on the other `sites` too in `make test-long`."""
    return pytest.mark.parametrize("cluster", _cases(sites, *often), indirect=True)


def _cases(sites: Iterable[str], *often: str) -> list[pytest.ParameterSet]:
    return [pytest.param(name, marks=() if name in often else pytest.mark.long) for name in sites]


@pytest.fixture(params=SITES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if why := missing(request.param):
        pytest.skip(why)
    made = Cluster.make(request.param, tmp_path)
    shutil.copy(HELLO, made.directory)
    yield made
    made.close()


def told(cluster: Cluster) -> list[dict[str, Any]]:
    """What the ranks wrote of themselves, in order."""
    return [json.loads(path.read_text()) for path in sorted((cluster.last() / "ranks").iterdir())]


def test_two_nodes(cluster: Cluster) -> None:
    """Everything that a job of two nodes promises, and what can be seen of it later."""
    plan = cluster.run(*cluster.asking("--dry-run", "--json", "hello.py")).value
    assert not (cluster.directory / "runs").exists()
    done = cluster.submit("hello.py")
    assert "done; run directory: " in done.err
    assert f"{NAMES[cluster.name]} job" in done.err
    assert "rank 0 met" in done.out
    planned = plan["layout"]
    _check_identity(told(cluster), planned)
    if cluster.name in REAL_MPIRUN:
        report = json.loads((cluster.last() / "placement.json").read_text())
        assert report["summary"].startswith(f"{planned['ranks']} of {planned['ranks']} ranks as planned")
    else:
        _check_places(cluster, planned)
    assert STARTERS[cluster.name] in (cluster.last() / "job.sh").read_text()
    assert "rank 0 met" in cluster.run("runs", "attach").out
    assert "state" in cluster.run("runs", "show", "--json").value["status"]
    assert cluster.left() == []


def _check_identity(ranks: list[dict[str, Any]], planned: dict[str, Any]) -> None:
    count, per_node = planned["ranks"], planned["ranks_per_node"]
    assert [rank["RANK"] for rank in ranks] == [str(n) for n in range(count)]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {str(count)}
    assert [rank["LOCAL_RANK"] for rank in ranks] == [str(n % per_node) for n in range(count)]
    assert [rank["NODE_RANK"] for rank in ranks] == [str(n // per_node) for n in range(count)]
    assert {rank["LOCAL_WORLD_SIZE"] for rank in ranks} == {str(per_node)}
    assert {rank["OMP_NUM_THREADS"] for rank in ranks} == {str(planned["threads_per_rank"])}
    assert len({(rank["MASTER_ADDR"], rank["MASTER_PORT"]) for rank in ranks}) == 1
    assert len({rank["host"] for rank in ranks}) == planned["nodes"]
    hosts = [rank["host"] for rank in ranks]
    assert sorted(ranks[0]["met"]) == sorted(f"{n} on {host}" for n, host in enumerate(hosts) if n)


def _check_places(cluster: Cluster, planned: dict[str, Any]) -> None:
    machine = json.loads(Path(cluster.env["STANDIN_MACHINE"]).read_text())
    usable = [core for domain in machine["domains"] for core in domain["cores"]]
    ranks = cluster.placed()
    assert len(ranks) == planned["ranks"]
    for rank in ranks:
        assert rank["host"] == machine["hosts"][rank["rank"] // planned["ranks_per_node"]]
        slot = planned["slots"][rank["local_rank"]]
        split = machine["numbering"] == "split"
        cores = {cpu % machine["all_cores"] if split else cpu // machine["smt"] for cpu in rank["cpus"]}
        assert cores == {usable[core] for core in slot["cores"]}
        if planned["gpu_visibility"] == "all":
            assert len(rank["gpus"]) == len({gpu for d in machine["domains"] for gpu in d["gpus"]})


@on("lsf", "flux")
def test_a_rank_that_fails(cluster: Cluster) -> None:
    """The job's code is the rank's, for the person and for the scheduler; who it was is said, also later."""
    done = cluster.submit("hello.py", "3", "1", expect=3)
    assert "error: rank 1 on" in done.err
    assert "exited with status 3" in done.err
    assert "rank 1 gives up" in done.err
    assert cluster.status()["code"] == 3
    again = cluster.run("runs", "attach", expect=3)
    assert "error: rank 1 on" in again.err
    job = json.loads(max(Path(cluster.env["STANDIN_STATE"]).glob("jobs/*/job.json")).read_text())
    assert (job["result"], job["code"]) == ("failed", 3)
    assert cluster.left() == []


@on("jsrun", "pbs-openmpi")
def test_left_alone_found_again_and_cancelled(cluster: Cluster) -> None:
    """Ctrl-C stops following only; `attach` follows again; `cancel` ends all ranks, and a job that waits."""
    process = cluster.start(*cluster.asking("hello.py", "wait"))
    assert process.stdout is not None
    assert "rank 0 met" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    left = cluster.end(process, expect=130)
    assert "the job is running" in left.err
    running = cluster.last()
    cluster.submit("--no-follow", "hello.py")
    waiting = cluster.last()
    assert waiting != running
    assert "cancelled" in cluster.run("runs", "cancel", waiting.name).out
    gone = cluster.run("runs", "attach", waiting.name, expect=None)
    assert gone.code != 0
    assert cluster.status()["state"] == "cancelled"
    follower = cluster.start("runs", "attach", running.name)
    assert follower.stdout is not None
    assert "rank 0 met" in follower.stdout.readline()
    began = time.monotonic()
    cluster.run("runs", "cancel", running.name)
    ended = cluster.end(follower, expect=None)
    assert ended.code not in (0, None)
    assert "cancelled" in ended.err
    assert json.loads((running / "status.json").read_text())["state"] == "cancelled"
    assert time.monotonic() - began < 120, "ranks that would sleep for ten minutes"
    assert cluster.left() == []
    cluster.run("runs", "cancel", running.name, expect=2)


@on("pals", sites=("jsrun", "pals", "flux"))
def test_a_job_whose_time_is_over(cluster: Cluster) -> None:
    """The hub is ended by a signal like any other; that it was the time is the scheduler's to say."""
    cluster.env["STANDIN_MINUTE"] = "0.5"
    done = cluster.submit("hello.py", "wait", expect=None)  # ten minutes of half a second
    assert done.code not in (0, None)
    assert "timeout" in done.err
    assert cluster.status()["state"] == "timeout"
    assert "reason" in cluster.run("runs", "show").out
    assert cluster.left() == []


@pytest.mark.slow
@on("jsrun", sites=("jsrun", "flux"))
def test_a_job_that_goes_on_after_its_time(cluster: Cluster) -> None:
    """Twelve minutes (of a second) before the end its ranks are told; LSF starts it again, Flux cannot."""
    cluster.env.update(STANDIN_MINUTE="1", STANDIN_LATE_S="1")  # brequeue returns before anything has happened
    lsf = cluster.name == "jsrun"
    options = ("-t", "20", "--requeue", "--signal", "720")
    done = cluster.submit(*options, "hello.py", "again", expect=0 if lsf else 5)
    assert done.out.count("rank 0 met") == (2 if lsf else 1)
    assert cluster.status()["attempts"] == (2 if lsf else 1)
    assert ("queued again: out of time" in done.err) == lsf
    assert ("flux cannot requeue a running job" in done.err) != lsf
    assert cluster.left() == []


@pytest.mark.parametrize("name", _cases(SITES, "jsrun", "pbs-openmpi"))
def test_one_of_two_nodes_in_hand(name: str, tmp_path: Path) -> None:
    """In an allocation `launch` takes all of its nodes, or those that it names to the launcher."""
    if why := missing(name):
        pytest.skip(why)
    cluster = Cluster.make(name, tmp_path, inside=True)
    shutil.copy(HELLO, cluster.directory)
    ranks = ("-r", "2") if name in REAL_MPIRUN else ()
    plan = cluster.run("launch", *ranks, "--dry-run", "--json", "hello.py").value
    assert len(plan["layout"]["hosts"]) == plan["layout"]["nodes"] == 2
    done = cluster.run("launch", "-N", "1", *ranks, "hello.py")
    assert "rank 0 met" in done.out
    assert {rank["host"] for rank in told(cluster)} == set(plan["layout"]["hosts"][:1])
    assert cluster.run("launch", "-N", "3", "hello.py", expect=2).err.count("this allocation has 2")
    assert cluster.left() == []


@on("lsf", "pals", sites=("jsrun", "lsf", "pals", "pbs-openmpi"))
def test_an_array(cluster: Cluster) -> None:
    """Every index is a job with a directory, a log and an end of its own."""
    done = cluster.submit("-a", "1-2", "hello.py")
    assert "each task of the array has a run directory below" in done.err
    run = cluster.last()
    for index in ("1", "2"):
        cluster.wait(run / "array" / index / "status.json", '"state": "done"')
        assert cluster.wait(run / f"batch-{index}.log", "done in")
        assert len(list((run / "array" / index / "ranks").iterdir())) >= 4
    assert cluster.run("runs", "attach").code == 0


@on("pals", sites=("jsrun", "pals"))
def test_an_array_that_is_cancelled(cluster: Cluster) -> None:
    """One task runs, one waits: both are ended, and neither is said to have failed by itself."""
    cluster.submit("-a", "1-2", "--no-follow", "hello.py", "wait")
    run = cluster.last()
    wait_for(lambda: list(run.glob("array/*/ranks/000.json")), 120, cluster.logs)  # either may be first
    cluster.run("runs", "cancel", run.name)
    done = cluster.run("runs", "attach", run.name, expect=None)
    assert done.code not in (0, None)
    assert "2 cancelled of 2 tasks" in done.err
    assert cluster.left() == []


def test_flux_has_no_arrays(tmp_path: Path) -> None:
    done = Cluster.make("flux", tmp_path).submit("-a", "1-2", "hello.py", expect=2)
    assert "Flux has no job arrays" in done.err


@pytest.mark.parametrize("cluster", ["jsrun", "lsf"], indirect=True)
def test_lsf_counts_from_one(cluster: Cluster) -> None:
    done = cluster.submit("-a", "0-1", "hello.py", expect=2)
    assert "start at 1" in done.err


def test_a_request_that_the_scheduler_refuses(cluster: Cluster) -> None:
    """Its own words are shown, and the run is not left as one that waits."""
    done = cluster.submit("-q", "nosuch", "hello.py", expect=1)
    assert "queue" in done.err.lower()
    assert cluster.status()["state"] == "failed"
    assert "Traceback" not in done.err


def test_explain_and_dry_run_write_nothing(cluster: Cluster) -> None:
    before = sorted(cluster.directory.rglob("*"))
    script = cluster.run(*cluster.asking("--dry-run", "hello.py"))
    assert script.out.startswith("#!/bin/bash\n#")
    explained = cluster.run("explain", "-N", "2", "hello.py")
    assert STARTERS[cluster.name] in explained.out
    assert sorted(cluster.directory.rglob("*")) == before
    assert os.environ.get("LSB_JOBID") is None


ROLES = """\
format: 1
batch: {time_min: 10, account: PROJ}
cores_per_rank: 1
gpus_per_rank: 0
roles:
  server: {program: [sh, -c, "echo $STACKYARD_ROLE $RANK on $NODE_RANK; touch up; exec sleep 300"], serves: true,
           ranks_per_node: 1}
  workers: {program: [sh, -c, "while [ ! -e up ]; do sleep 0.02; done; echo $STACKYARD_ROLE $RANK"], ranks_per_node: 2}
"""


@on("jsrun", "pals", sites=("jsrun", "lsf", "pals", "pbs-openmpi"))
def test_roles_with_different_ranks_per_node(cluster: Cluster) -> None:
    """A server on one node and two workers on the other, by an ERF file, a rankfile or colons."""
    (cluster.directory / "job.yaml").write_text(ROLES)
    cluster.run("submit", "--job", "job.yaml")
    logs = [path.read_text() for path in sorted((cluster.last() / "logs").glob("rank-*.log"))]
    assert logs == ["server 0 on 0\n", "workers 0\n", "workers 1\n"]
    assert cluster.status()["state"] == "done"
    assert len(set(cluster.status()["hosts"])) == 2
    assert cluster.left() == []


@on("flux", sites=("flux",))
def test_flux_refuses_nodes_with_different_ranks(cluster: Cluster) -> None:
    (cluster.directory / "job.yaml").write_text(ROLES)
    done = cluster.run("submit", "--job", "job.yaml", expect=2)
    assert "flux run cannot place ranks differently on different hosts" in done.err
