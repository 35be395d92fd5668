"""Who shares a namespace: the tasks of one job step, and no two steps, whose processes a scheduler ends apart."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_bed import Revision

pytestmark = pytest.mark.real

V1, V2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/unified")
TASK = {"v1": "slurm_{own}/uid_0/job_7/step_{step}/task_{task}",
        "v2": "system.slice/slurmstepd.scope.{own}/job_7/step_{step}/user/task_{task}"}  # fmt: skip
"""Where Slurm puts a task: cgroup/v1 and cgroup/v2 of proctrack/cgroup."""


@pytest.fixture(params=["v1", "v2"])
def hierarchy(request: pytest.FixtureRequest) -> Iterator[str]:
    """The form of a task's directory; removed at the end."""
    root, own = {"v1": V1, "v2": V2}[request.param], f"test{os.getpid()}"
    form = str(root / TASK[request.param]).replace("{own}", own)
    if not os.access(root, os.W_OK) or os.geteuid() != 0:
        pytest.skip(f"{root} is not a hierarchy of cgroups that root can write")
    yield form
    top = Path(form[: form.index(own) + len(own)])
    until = time.monotonic() + 60
    while top.exists() and time.monotonic() < until:
        for path in [*sorted(top.rglob("*"), reverse=True), top]:
            if path.is_dir():
                with contextlib.suppress(OSError):
                    for pid in (path / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                    path.rmdir()
        time.sleep(0.05)


def in_task(form: str, step: int, task: int) -> Path:
    """The file by which a process joins a task of a step."""
    directory = Path(form.format(step=step, task=task))
    directory.mkdir(parents=True, exist_ok=True)
    return directory / "cgroup.procs"


def run(demo: Revision, place: Path, command: str) -> str:
    return demo.run("sh", "-c", f'echo $$ > {place} && exec "$@"', "sh", demo.command(command)).stdout


def test_the_tasks_of_a_step_share_one_and_two_steps_have_two(demo: Revision, hierarchy: str) -> None:
    spaces = {(step, task): run(demo, in_task(hierarchy, step, task), "space") for step in (0, 1) for task in (0, 1)}
    assert spaces[0, 0] == spaces[0, 1]
    assert spaces[1, 0] == spaces[1, 1]
    assert spaces[0, 0] != spaces[1, 0]
    assert len(demo.servers()) == 2


def test_a_step_goes_on_when_another_one_of_its_job_is_ended(demo: Revision, hierarchy: str) -> None:
    """proctrack/cgroup kills all processes of a step with it, the server of its image too."""
    code = f"cat {demo.paths.prefix}/share/data; read line; cat {demo.paths.prefix}/share/data"
    words = [str(demo.paths.launcher), "sh", "-c", code]
    run(demo, in_task(hierarchy, 0, 0), "pick")
    place = in_task(hierarchy, 1, 0)
    going = subprocess.Popen(["sh", "-c", f'echo $$ > {place} && exec "$@"', "sh", *words], env=demo.env(), text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert going.stdout is not None
    assert going.stdout.readline() == "data\n"
    step = Path(hierarchy.format(step=0, task=0)).parent
    ended = [int(pid) for file in step.rglob("cgroup.procs") for pid in file.read_text().split()]
    assert set(ended) & set(demo.servers())
    for pid in ended:
        os.kill(pid, signal.SIGKILL)
    out, err = going.communicate("go\n", timeout=240)
    assert (going.returncode, out) == (0, "data\n"), err
