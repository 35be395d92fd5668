"""Variables of an allocation that would speak for a launch or a submission from within it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from stackyard.inputs.sites.site import load_site
from stackyard.inputs.sites.sitemodels import NodeKind
from stackyard.launch.layout.nodes import node_of
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.allocated import as_allocated
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.inherited import is_within_step, of_launcher, of_submission
from stackyard.launch.plan.make import make_plan
from stackyard.launch.plan.model import Allocation
from stackyard.launch.plan.schedulers.base import Offer
from stackyard.launch.request.intent import Intent
from support.cli import STACKYARD
from support.slurmcli import SHAPE, Work

NEWER_SRUN = """\
#!/bin/bash
# as src/common/slurm_opt.c of Slurm 23.11: two variables that differ end srun; without -c they are its -c
env | grep -E '^S(LURM|RUN)_' >> {seen}
tres=${{SLURM_TRES_PER_TASK#cpu=}}
if [ -n "$tres" ] && [ -n "$SLURM_CPUS_PER_TASK" ] && [ "$tres" != "$SLURM_CPUS_PER_TASK" ]; then
    echo "srun: fatal: cpus-per-task set by two different environment variables" >&2
    exit 1
fi
exec {srun} "$@"
"""


def test_a_launcher_gets_no_option_but_its_words() -> None:
    job = {
        "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "7", "SLURM_TRES_PER_TASK": "cpu=7", "SLURM_GPUS_PER_TASK": "1",
        "SLURM_GPUS": "8", "SRUN_CPUS_PER_TASK": "3", "SLURM_CPU_BIND": "none", "PATH": "/bin",
    }  # fmt: skip
    rest = {"SLURM_JOB_ID": "7", "SLURM_CPU_BIND": "none", "PATH": "/bin"}
    assert of_launcher(("srun", "-n", "2", "--gpus-per-node=2"), job) == rest
    gpus = {"SLURM_GPUS_PER_TASK": "1", "SLURM_GPUS": "8"}  # a step that names no GPUs gets those of its job
    assert of_launcher(("srun", "-n", "2"), job) == {**rest, **gpus}


@pytest.mark.parametrize(("scheduler", "job", "kept"), [
    ("slurm",
     {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_TRES_PER_TASK": "cpu=7", "SRUN_DEBUG": "3",
      "SLURMD_NODENAME": "n", "SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0", "PMIX_RANK": "0", "SLURM_HINT": "x"},
     {"SLURM_CONF": "/c", "SLURM_CLUSTERS": "a", "SBATCH_ACCOUNT": "me", "SLURM_JWT": "t", "OMP_NUM_THREADS": "1"}),
    ("slurm", {"SLURM_JOB_ID": "7"}, {"CUDA_VISIBLE_DEVICES": "1"}),  # yours: Slurm has chosen no GPUs
    ("pbs", {"PBS_JOBID": "7", "PBS_NODEFILE": "/n", "PBS_O_WORKDIR": "/w", "PALS_RANKID": "0"},
     {"PBS_CONF_FILE": "/c", "PBS_SERVER": "s", "PATH": "/bin"}),
    ("lsf", {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 1", "LS_SUBCWD": "/w", "JSM_NAMESPACE_RANK": "0"},
     {"LSB_DEFAULTQUEUE": "q", "LSF_ENVDIR": "/e", "PATH": "/bin"}),
    ("flux", {"FLUX_JOB_ID": "f1", "FLUX_TASK_RANK": "0"}, {"FLUX_URI": "local:///x", "PATH": "/bin"}),
])  # fmt: skip
def test_a_submission_gets_nothing_of_the_job_it_comes_from(
    scheduler: str, job: dict[str, str], kept: dict[str, str]
) -> None:
    batch = schedulers.get(scheduler)
    assert of_submission(batch, {**job, **kept}) == kept
    outside = {name: value for name, value in {**job, **kept}.items() if name != batch.job_variable}
    assert of_submission(batch, outside) == outside


@pytest.mark.parametrize(("environ", "within"), [
    ({}, False), ({"SLURM_STEP_ID": "0"}, True), ({"SLURM_STEPID": "3"}, True),
    ({"SLURM_STEP_ID": "4294967290"}, False), ({"SLURM_STEP_ID": "4294967291"}, False),
])  # fmt: skip
def test_a_step_of_tasks_is_not_the_batch_script_nor_the_shell_of_salloc(environ: dict[str, str], within: bool) -> None:
    assert is_within_step(environ) == within


@pytest.mark.parametrize(("step", "ranks"), [("4294967290", 2), ("4294967291", 2), ("0", None)])
def test_the_tasks_of_an_allocation_count_in_the_shell_of_salloc_too(step: str, ranks: int | None) -> None:
    """salloc with an interactive step, and the batch script; a step of tasks is one shell (srun --pty)."""
    environ = {"SLURM_NTASKS_PER_NODE": "2", "SLURM_STEP_ID": step}
    asked = as_allocated(Intent(program=("a",)), node_of("cpu", NodeKind(cores=8)), Offer(cpus=8), environ, hosts=1)
    assert asked.ranks_per_node == ranks


@pytest.mark.parametrize(("name", "environ", "expected"), [
    ("lumi", {"SLURM_CPUS_PER_TASK": "56"}, "7"), ("lumi", {}, None),  # masks: srun has no -c
    ("slurm-cluster", {"SLURM_CPUS_PER_TASK": "56"}, None),  # srun sets what its -c says
])  # fmt: skip
def test_programs_read_the_cores_of_their_rank(name: str, environ: dict[str, str], expected: str | None) -> None:
    site = load_site(Path(__file__).parents[2] / "examples" / name / "site.yaml")
    context = PlanContext("slurm", Allocation("slurm", "7", ("n1",)), environ=environ)
    plan = make_plan(Intent(program=("a",)), site, context)
    assert ("-c" in plan.line.words) == (name != "lumi")
    assert plan.variables.get("SLURM_CPUS_PER_TASK") == expected


def _shell(work: Work, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = work.cluster.environ(**variables)
    return subprocess.run(
        argv, cwd=work.directory, env=environ, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.real
def test_variables_of_the_job_that_disagree_do_not_end_srun(work: Work) -> None:
    (work.directory / "bin").mkdir()
    srun, seen = work.directory / "bin" / "srun", work.directory / "seen"
    real = work.cluster.run("which", "srun").stdout.strip()
    srun.write_text(NEWER_SRUN.format(srun=real, seen=seen))
    srun.chmod(0o755)
    (work.directory / "cpus.py").write_text("import os; print('cpus', os.environ['SLURM_CPUS_PER_TASK'])\n")
    launch = f"PATH={srun.parent}:$PATH SLURM_TRES_PER_TASK=cpu=3 {STACKYARD} launch -r 1 -g 0 -c 2 cpus.py"
    done = _shell(work, "salloc", "-Q", "--partition=debug", "-N1", "-n1", "-c4", "bash", "-c", launch)
    assert done.returncode == 0, done.stderr
    assert "cpus 2" in done.stdout
    assert "SLURM_JOB_ID" in seen.read_text() and "PER_TASK" not in seen.read_text()


@pytest.mark.real
def test_a_launch_in_an_interactive_step_does_not_wait_for_it(work: Work) -> None:
    """srun --pty bash: the step has all that the job was given, and its own steps would wait until it ends."""
    launch = f"{STACKYARD} launch -r 1 -g 0 -c 1"
    line = f"timeout 60 {launch} exit.py 0; echo status $?; {launch} --dry-run exit.py 0"
    done = _shell(work, "srun", "--partition=debug", "-N1", "-n1", "-c2", "bash", "-c", line)
    assert "rank 0 of 1" in done.stdout and "status 0" in done.stdout, done.stderr
    assert " --overlap " in done.stdout.split("status 0")[1]


@pytest.mark.real
def test_a_submission_from_within_an_allocation(work: Work) -> None:
    """The job has nothing of the allocation: here GPUs, tasks and CPUs that its own script does not name."""
    (work.directory / "env.py").write_text("import os, json; print('ENV', json.dumps(dict(os.environ)))\n")
    inside = f"export SLURM_GPUS_PER_TASK=3 SLURM_TRES_PER_TASK=cpu=9; {STACKYARD} submit {' '.join(SHAPE)} env.py"
    done = _shell(work, "salloc", "-Q", "--partition=debug", "-N1", "-n1", "-c3", "bash", "-c", inside, KEPT="yes")
    assert done.returncode == 0, done.stderr
    job = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("ENV"))[4:])
    assert job["KEPT"] == "yes" and job["SLURM_CONF"] == os.environ["SLURM_CONF"]
    assert not {"SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"} & set(job)
    assert job["SLURM_JOB_ID"] == work.status()["job"]
