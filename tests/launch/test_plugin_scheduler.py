"""Whole jobs of a scheduler that a plug-in adds: examples/plugins has Grid Engine, of which stand-ins are here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.test_cli_standins import HELLO, told
from support.pluginvenv import venv_with_plugins
from support.standinsites import Cluster, missing

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return venv_with_plugins(tmp_path_factory.mktemp("plugins"))


@pytest.fixture
def sge(venv: Path, tmp_path: Path) -> Iterator[Cluster]:
    if why := missing("sge"):
        pytest.skip(why)
    made = Cluster.make("sge", tmp_path, python=venv / "bin/python")
    shutil.copy(HELLO, made.directory)
    yield made
    made.close()


def test_two_nodes(sge: Cluster) -> None:
    done = sge.submit("hello.py")
    assert "sge job" in done.err and "done; run directory: " in done.err
    ranks = told(sge)
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert len({rank["host"] for rank in ranks}) == 2
    script = (sge.last() / "job.sh").read_text()
    assert "#$ -pe whole_nodes 4\n" in script and "#$ -l h_rt=0:10:00\n" in script
    assert "export PATH=" in script  # qsub does not pass the environment on
    record = json.loads((sge.last() / "record.json").read_text())
    assert record["scheduler"] == "sge" and record["versions"]["schedulers sge"] == "stackyard_site 1.0"
    assert sge.left() == []


def test_a_failing_rank_and_an_array(sge: Cluster) -> None:
    done = sge.submit("hello.py", "3", "1", expect=3)
    assert "error: rank 1 on" in done.err and sge.status()["code"] == 3
    done = sge.run("submit", "-N", "1", "-r", "2", "-t", "10", "--array", "1-2", "hello.py")
    tasks = sorted(path.name for path in (sge.last() / "array").iterdir())
    assert tasks == ["1", "2"]
    for task in tasks:
        status = json.loads((sge.last() / "array" / task / "status.json").read_text())
        assert status["state"] == "done" and status["job"].endswith(f".{task}")


@pytest.mark.long
def test_cancelled_and_out_of_time(sge: Cluster) -> None:
    sge.run("submit", "--no-follow", "-N", "2", "-r", "2", "-t", "10", "hello.py", "wait")
    sge.wait(sge.last() / "status.json", '"running"')
    assert "cancelled sge job" in sge.run("runs", "cancel", "last").out
    sge.run("runs", "attach", expect=None)
    assert sge.status()["state"] == "cancelled" and sge.left() == []
    sge.env["STANDIN_MINUTE"] = "5"
    done = sge.run("submit", "-N", "2", "-r", "2", "-t", "1", "hello.py", "wait", expect=None)
    assert done.code != 0 and sge.status()["state"] == "timeout", done.err


def test_what_the_table_lacks_is_refused_by_name(sge: Cluster) -> None:
    done = sge.submit("--qos", "high", "hello.py", expect=2)
    assert "SGE has no option for qos=high" in done.err
    done = sge.submit("--requeue", "--signal", "60", "hello.py", expect=2)
    assert "SGE has no option for signal=60" in done.err
    assert not (sge.directory / "runs").exists()


def test_without_the_plugin_the_scheduler_is_unknown(sge: Cluster) -> None:
    plain = Cluster(sge.name, sge.directory, sge.env)
    done = plain.submit("--dry-run", "hello.py", expect=2)
    assert "no such scheduler: sge" in done.err and "one of slurm, lsf, pbs, flux, none" in done.err
