"""Variables of a job that may be secret: who gets them, who can read them, and how long they are kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.host.run.command import CommandError
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.api import jobs
from stackyard.launch.plan.carried import carried
from stackyard.launch.records import arrays
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import read_private, write_private
from stackyard.launch.records.record import RunStatus, read_run, write_status
from stackyard.launch.records.status import cancel
from stackyard.yard.layout import Yard
from support.accounts import Accounts
from support.processes import wait_for

VALUE = 'it\'s $(a) "se\\cret"\nof two lines'


def workspace(directory: Path, **environ: str) -> jobs.Workspace:
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
        "key=3",
        "max_token=12",
    )
    return jobs.Workspace(Site(), Yard(directory / "yard"), None, directory / "runs", {**os.environ, **environ}, words)


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
    assert kept.command[1:6] == ("submit", "--env", "HF_TOKEN", "--env=MY_KEY", "--env") and kept.command[-3:] == (
        "--k=KEY=1",
        "key=3",
        "max_token=12",
    )
    write_private(run.paths, {"MY_NAME": "me", "HF_TOKEN": VALUE})  # as at the submission of a batch job
    assert VALUE not in run.paths.record.read_text() and run.paths.record.stat().st_mode & 0o077 == 0
    job, _ = jobs.recorded_job(workspace(here), run.paths.root)
    assert job.plan().private == {"MY_NAME": "me", "HF_TOKEN": VALUE}
    assert job.plan().variables == {"COLOUR": "red", "PYTHONFAULTHANDLER": "1"}
    assert read_private(run.paths) == job.plan().private and run.paths.private.stat().st_mode & 0o077 == 0
    for end in ("failed", "lost", "done"):
        write_private(run.paths, {"HF_TOKEN": VALUE})
        write_status(run.paths, RunStatus("queued"))
        assert read_private(run.paths)
        write_status(run.paths, RunStatus(end))
        assert read_private(run.paths) == {}


def test_an_end_removes_the_values_of_every_step_and_attempt(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "2026-11-21-001")
    steps = (".", "preflight/0", "preflight/1", "attempts/1/preflight/0")
    for step in steps:
        (paths.root / step).mkdir(parents=True, exist_ok=True)
        (paths.root / step / "private.sh").write_text("")
    write_status(paths, RunStatus("running"))
    assert len(list(tmp_path.rglob("private.*"))) == len(steps)
    write_status(paths, RunStatus("failed"))
    assert list(tmp_path.rglob("private.*")) == []


def test_the_values_of_an_array_stay_until_its_last_task_has_ended(tmp_path: Path) -> None:
    whole = RunPaths(tmp_path / "2026-11-21-001")
    tasks = arrays.tasks(whole, "1-2")
    for task in tasks.values():
        task.root.mkdir(parents=True)
    write_private(whole, {"HF_TOKEN": VALUE})
    for left, task in zip((1, 0), tasks.values(), strict=True):
        write_status(task, RunStatus("done"))
        arrays.forget_shared(task, "1-2")
        assert len(read_private(whole)) == left


def test_a_job_that_the_scheduler_refuses_or_that_is_cancelled_in_the_queue_keeps_no_values(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "sbatch").write_text("#!/bin/sh\n[ -e refuse ] && exit 1\necho 17\n")
    (here / "squeue").write_text("#!/bin/sh\necho '17|PENDING|None'\n")
    (here / "scancel").write_text("#!/bin/sh\n")
    for name in ("sbatch", "squeue", "scancel"):
        (here / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
    site = Site.model_validate({"scheduler": {"kind": "slurm"}})
    where = jobs.Workspace(site, Yard(here / "yard"), None, here / "runs", {**os.environ, "MY_NAME": "me"}, ())
    asked = intent(passed=("MY_NAME",), launcher="srun")
    run = jobs.record_submission(jobs.batch_job(where, asked))
    jobs.submit(run)
    assert read_private(run.paths) == {"MY_NAME": "me"}
    cancel(run.paths)
    assert read_private(run.paths) == {}
    (here / "refuse").touch()
    with pytest.raises(CommandError):
        jobs.submit(run)
    assert read_private(run.paths) == {}


def test_the_programs_own_words_are_recorded_as_they_are(tmp_path: Path) -> None:
    program = ("x.py", "--env", "MY_KEY=1", "--env=A_TOKEN=2", "HF_TOKEN=3")
    words = ("stackyard", "launch", "--env", "MY_KEY=s", "key=value", *program)
    place = replace(workspace(tmp_path), argv=words)
    assert place.command(program) == ("stackyard", "launch", "--env", "MY_KEY", "key=value", *program)
    assert place.command(()) == (*words[:3], "MY_KEY", "key=value", "x.py", "--env", "MY_KEY", "--env=A_TOKEN",
                                 "HF_TOKEN=3")  # fmt: skip


def test_a_value_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    run.private.mkdir()
    run.main.private.parent.mkdir(exist_ok=True)
    run.main.private.write_text("export HF_TOKEN=x\n")
    write_status(run, RunStatus(state="failed", code=1))
    assert not run.main.private.exists()


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
        assert "ermission denied" in bert.run("ls", run, expect=2).err
        run.chmod(0o755)  # as its owner may, to show a log to others
        for name in ("private.sh", "record.json", "rank.sh", "plan.json"):
            assert "ermission denied" in bert.run("cat", run / name, expect=1).err
        assert bert.run("grep", "-rs", "a-secret-of-anna", work, expect=None).out == ""
        assert "a-secret-of-anna" not in bert.run("ps", "axww", "-o", "args").out
    finally:
        process.terminate()
        process.wait(30)
    assert not (run / "private.sh").exists()


def _started(work: Path) -> Path:
    wait_for(lambda: any("started" in log.read_text() for log in work.glob("runs/*/logs/rank-*.log")), 60)
    return next(work.glob("runs/*"))
