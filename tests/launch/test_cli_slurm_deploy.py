"""``stackyard deploy --on KIND``: a build as a job of a real Slurm, published from the node it ran on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path, real_channel: Path) -> Iterator[Work]:
    with working(slurm, tmp_path) as made:
        head = f"name: small\nchannels: [{real_channel.as_uri()}]\ndependencies:\n"
        (made.directory / "environment.yml").write_text(head + "  - python=3.11\n  - six\n")
        (made.directory / "wrong.yml").write_text(head + "  - python=3.11\n  - no-such-package-anywhere\n")
        yield made


@pytest.mark.slow
def test_a_build_runs_on_a_node_and_is_published_from_there(work: Work) -> None:
    words = ("--yard", "yard", "deploy", "--version", "1.0", "environment.yml", "--on", "gpu", "-t", "30", "-Aproject")
    shown = work.run(*words, "--dry-run").out
    assert "#SBATCH --account=project\n" in shown
    assert "#SBATCH --mem=0\n" in shown
    assert f'TMPDIR=$(mktemp -d "{work.directory}/disk/stackyard-XXXXXXXX") || exit 1\n' in shown
    assert not (work.directory / "runs").exists()

    done = work.run(*words)
    node = work.status()["hosts"][0]
    assert f"running on {node}" in done.err
    assert "small/1.0-py311-1" in done.out
    assert (work.last / "job.sh").read_text() == shown
    assert list((work.directory / "disk").iterdir()) == []
    assert (
        work.run("--yard", "yard", "run", "small", "--", "python", "-c", "import six; print('there')").out == "there\n"
    )
    row = work.run("runs", "--json").value[0]
    assert (row["how"], row["state"], row["code"]) == ("deploy", "done", 0)


def test_a_build_that_fails_says_why_here(work: Work) -> None:
    done = work.run("--yard", "yard", "deploy", "wrong.yml", "--on", "gpu", expect=None)
    assert done.code == work.status()["code"] != 0
    assert "no-such-package-anywhere" in done.err + done.out
    assert work.status()["state"] == "failed"
    told = work.run("--yard", "yard", "deploy", "wrong.yml", "--on", "gpu", "--json", expect=done.code).value
    assert (told["state"], told["code"]) == ("failed", done.code)


def test_what_cannot_be_is_said_before_a_job_waits(work: Work) -> None:
    done = work.run("deploy", "environment.yml", "--on", "fpga", expect=2)
    assert "node kinds: gpu" in done.err
    done = work.run("deploy", "nothing.yml", "--on", "gpu", expect=2)
    assert "no such file: nothing.yml" in done.err
    assert not (work.directory / "runs").exists()
