"""The door of `launch` as a library: jobs planned, run, repeated and found without the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, MissingError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.launch.api import commands, explaining, jobs, runs
from stackyard.yard.layout import Yard
from support.watched import Heard

PROGRAM = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], os.environ.get('COLOUR', ''))\n"


def workspace(directory: Path, site: Site | None = None, environ: Mapping[str, str] | None = None) -> jobs.Workspace:
    """A workspace in an empty directory, with the variables of this process unless others are given."""
    return jobs.Workspace(
        site or Site(), Yard(directory / "yard"), None, directory / "runs", os.environ if environ is None else environ,
        ("stackyard", "launch", "hello.py"),
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.py").write_text(PROGRAM)
    return tmp_path


def intent(**more: object) -> jobs.Intent:
    given = {"program": ("hello.py",), "ranks_per_node": 2, "cores_per_rank": 1, "launcher": "local", **more}
    return jobs.Intent.model_validate({**given, "oversubscribe": True})


def test_a_job_is_previewed_run_found_and_repeated(here: Path) -> None:
    place = workspace(here)
    job = jobs.launch_job(place, intent())
    found = jobs.preview_launch(job)
    assert set(found.files) == {"rank.sh"} and found.plan.layout.ranks == 2
    assert not place.runs.exists()

    run, heard, plans = jobs.record_launch(job), Heard(), list[jobs.Plan]()
    result = jobs.carry_out(job, run.paths, heard, plans.append, "all")
    assert (result.state, result.code, len(plans)) == ("done", 0, 1)
    assert heard.text[1].startswith("rank 1 of 2")
    report = runs.report(runs.find_run("last", place.runs))
    assert report.record.command == place.argv
    assert (report.status.state, report.placement["summary"]) == ("done", "2 of 2 ranks as planned")

    again = jobs.with_changes(jobs.repeat(run.paths, os.environ), intent(ranks_per_node=1, variables={"COLOUR": "red"}))
    second = jobs.record_launch(jobs.launch_job(place, again.intent, again))
    jobs.carry_out(second.job, second.paths, Heard(), plans.append)
    assert second.paths.main.rank_log(0).read_text() == "rank 0 of 1 red\n"
    assert runs.report(second.paths).record.again_of == str(run.paths.root)
    assert ("intent.ranks_per_node", "2", "1") in runs.compare(run.paths, second.paths)
    assert [row["state"] for row in runs.list_runs(place.runs)] == ["done", "done"]


def test_a_change_to_the_default_value_counts(here: Path) -> None:
    run = jobs.record_launch(jobs.launch_job(workspace(here), intent(gpu_visibility="own")))
    again = jobs.repeat(run.paths, {})
    assert jobs.with_changes(again, jobs.Intent(variables={})).intent.gpu_visibility == "own"
    assert jobs.with_changes(again, jobs.Intent(gpu_visibility="auto")).intent.gpu_visibility == "auto"
    assert again.notices and "different in this shell: PATH" in again.notices[0]


def test_the_newer_wish_for_a_variable_wins_over_the_site_and_the_repeated_run(here: Path) -> None:
    site = Site.model_validate({"run_variables": {"COLOUR": "site"}})
    place = workspace(here, site, {**os.environ, "COLOUR": "shell", "USER": "me"})
    run = jobs.record_launch(jobs.launch_job(place, intent(variables={"COLOUR": "red"}, passed=("USER",))))
    again = jobs.repeat(run.paths, place.environ)
    passed = jobs.with_changes(again, jobs.Intent(passed=("COLOUR", "USER"))).intent
    assert passed.passed == ("COLOUR", "USER") and passed.variables == {}
    assert jobs.launch_job(place, passed).plan().private["COLOUR"] == "shell"
    given = jobs.with_changes(again, jobs.Intent(variables={"USER": "x"})).intent
    assert given.passed == () and given.variables == {"COLOUR": "red", "USER": "x"}


def test_a_batch_job_is_previewed_for_another_cluster(here: Path) -> None:
    site = Site(scheduler=Scheduler(kind="slurm"), nodes={"cpu": NodeKind(cores=8, sockets=2)})
    job = jobs.batch_job(workspace(here, site), intent(launcher="", nodes=2))
    found = jobs.preview_submission(job)
    assert found.submit == f"sbatch --parsable {found.run.script}"
    assert "#SBATCH --nodes=2" in found.script and f"launch --recorded {found.run.root}" in found.script
    build = commands.build_job(workspace(here, site), "cpu", [Path("stack.yaml")], jobs.BatchOptions(time_min=30))
    assert "deploy --recorded" in commands.preview_build(build, ["stack.yaml"])
    lines = explaining.explain(workspace(here, site), intent(launcher="", nodes=2), ["jsrun", "srun"]).lines
    assert list(lines) == ["srun", "jsrun"] and "reasons" in lines["srun"]
    assert not (here / "runs").exists()


def test_what_cannot_be_is_refused_before_anything_is_written(here: Path) -> None:
    with pytest.raises(MissingError, match="no scheduler found"):
        jobs.batch_job(workspace(here, environ={"PATH": ""}), intent())
    with pytest.raises(InputError, match=r"gone\.py not found"):
        jobs.record_launch(jobs.launch_job(workspace(here), intent(program=("gone.py",))))
    with pytest.raises(InputError, match="revision"):
        jobs.launch_job(workspace(here), intent(stack="nothing/1"))
    assert not (here / "runs").exists()


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (3, "failed")])
def test_the_end_of_a_recorded_command_is_kept(here: Path, code: int, state: str) -> None:
    run = jobs.record_launch(jobs.launch_job(workspace(here), intent()))
    with commands.recorded_command(run.paths.root) as ended:
        assert runs.read_status(run.paths).state == "running"
        ended.code = code
    status = runs.read_status(run.paths)
    assert (status.state, status.code, status.message) == (state, code, "")
    with pytest.raises(InputError), commands.recorded_command(run.paths.root):
        raise InputError("no such file: a.yaml")
    assert (runs.read_status(run.paths).code, runs.read_status(run.paths).message) == (2, "no such file: a.yaml")
