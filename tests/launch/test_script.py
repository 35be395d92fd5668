"""The text of a batch script, run by bash."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stackyard.inputs.sites.jobmodels import LaunchPolicy, Scheduler
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.api import jobs
from stackyard.launch.jobs.batch import batch_script
from stackyard.yard.layout import Yard


def test_a_prologue_changes_the_path_that_pbs_does_not_pass_on(tmp_path: Path) -> None:
    """`module load` in the prologue puts its directory before those of the shell that submitted the job."""
    site = Site(
        scheduler=Scheduler(kind="pbs"),
        launch=LaunchPolicy(prologue=('export PATH="/opt/site/bin:$PATH"',)),
    )
    environ = {"PATH": "/shell/bin:/usr/bin:/bin", "NCCL_DEBUG": "INFO"}
    workspace = jobs.Workspace(site, Yard(tmp_path / "yard"), None, tmp_path / "runs", environ, ("stackyard", "submit"))
    wanted = jobs.Intent(program=("true",), ranks_per_node=1, cwd=str(tmp_path), prologue=("export NCCL_DEBUG=WARN",))
    job = jobs.batch_job(workspace, wanted)
    text = batch_script(job, job.plan(head=True), jobs.RunPaths(tmp_path / "runs" / "2026-11-21-001"))
    lines = [line for line in text.splitlines() if not line.startswith("exec ")]
    script = "\n".join([*lines, 'echo "$PATH $NCCL_DEBUG"'])
    done = subprocess.run(["bash", "-c", script], env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "/opt/site/bin:/shell/bin:/usr/bin:/bin WARN\n"
