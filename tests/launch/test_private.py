"""Variables of a job that may be secret: who gets them, who can read them, and how long they are kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stackyard.launch.api import jobs
from stackyard.launch.plan.carried import carried
from stackyard.launch.records.private import read_private
from stackyard.launch.records.record import read_run
from stackyard.spec.sitemodels import Site
from stackyard.yard.layout import Yard
from support.accounts import Accounts

VALUE = 'it\'s $(a) "se\\cret"\nof two lines'


def workspace(folder: Path, **environ: str) -> jobs.Workspace:
    words = (
        "stackyard",
        "submit",
        "--env",
        "HF_TOKEN=abc",
        "--env=MY_KEY=abc",
        "--env",
        "COLOUR=red",
        "x.py",
        "--k=KEY=1",
    )
    return jobs.Workspace(Site(), Yard(folder / "yard"), None, folder / "runs", {**os.environ, **environ}, words)


def intent(**more: object) -> jobs.Intent:
    return jobs.Intent.model_validate({"program": ("x.py",), "launcher": "local", "ranks_per_node": 1, **more})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    return tmp_path


def test_a_recorded_job_has_the_values_that_its_record_lacks(here: Path) -> None:
    """A batch job carries its run out in another environment."""
    asked = intent(passed=("MY_NAME",), variables={"HF_TOKEN": VALUE, "COLOUR": "red"})
    run = jobs.record_launch(jobs.launch_job(workspace(here, MY_NAME="me"), asked))
    kept = read_run(run.paths)
    assert kept.intent["variables"] == {"COLOUR": "red"} and kept.intent["passed"] == ["MY_NAME", "HF_TOKEN"]
    assert (
        kept.command[1:6] == ("submit", "--env", "HF_TOKEN", "--env=MY_KEY", "--env")
        and kept.command[-1] == "--k=KEY=1"
    )
    assert VALUE not in run.paths.record.read_text() and run.paths.record.stat().st_mode & 0o077 == 0
    job, _ = jobs.recorded_job(workspace(here), run.paths.root)
    assert job.plan().private == {"MY_NAME": "me", "HF_TOKEN": VALUE} and job.plan().variables == {"COLOUR": "red"}
    assert read_private(run.paths.main) == job.plan().private


def test_only_listed_variables_are_carried() -> None:
    environ = {
        "HOROVOD_TIMELINE": "t", "HOROVOD_SECRET_KEY": "s", "HOROVOD_ANYTHING": "s", "TORCH_LOGS": "l", "TORCH_X": "s",
        "JAX_PLATFORMS": "cpu", "NCCL_DEBUG": "INFO", "NCCL_X_TOKEN": "s", "OMP_TOOL": "https://u:pw@host/x",
        "WANDB_API_KEY": "s", "PATH": "/bin",
    }  # fmt: skip
    assert set(carried(environ)) == {"HOROVOD_TIMELINE", "TORCH_LOGS", "JAX_PLATFORMS", "NCCL_DEBUG", "PATH"}


def test_nobody_else_reads_what_holds_an_environment(accounts: Accounts, common: Path) -> None:
    """A job of one user in a directory that all can read, with a umask that hides nothing."""
    anna, bert = accounts.user("anna", umask=0), accounts.user("bert")
    work = common / "work"
    work.mkdir()
    os.chown(work, anna.uid, anna.gid)
    (work / "x.py").write_text("import time; print('started', flush=True); time.sleep(60)")
    environ = anna.environment(HF_TOKEN="a-secret-of-anna")
    words = ("launch", "--launcher", "local", "-r", "1", "--env", "HF_TOKEN", "x.py")
    process = anna.popen(anna.bin / "stackyard", *words, cwd=work, env=environ)
    try:
        run = _started(work)
        assert bert.run("ls", run).out.split()
        for name in ("private.sh", "record.json", "rank.sh", "plan.json"):
            assert "ermission denied" in bert.run("cat", run / name, expect=1).err
        assert bert.run("grep", "-rs", "a-secret-of-anna", work, expect=None).out == ""
        assert "a-secret-of-anna" not in bert.run("ps", "axww", "-o", "args").out
    finally:
        process.terminate()
        process.wait(30)
    assert not (run / "private.sh").exists()


def _started(work: Path) -> Path:
    end = time.monotonic() + 60
    while not any("started" in log.read_text() for log in work.glob("runs/*/logs/rank-*.log")):
        assert time.monotonic() < end
        time.sleep(0.1)
    return next(work.glob("runs/*"))
