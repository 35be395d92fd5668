"""Scripts with the containers of a scheduler become jobs with the same image, mounts, user and directory, or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from composing_containers import OWN, SYSTEMS, Inside, composed

from stackyard.core.errors import InputError, ManyErrors
from stackyard.inputs.sites.jobmodels import ContainerPolicy, LaunchPolicy, Scheduler
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.launch.plan import runtimes
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.request.intent import Intent
from stackyard.launch.request.job_file import job_text, load_job
from stackyard.lint.api import lint_text, to_intent
from stackyard.lint.systems import TABLE
from support.cli import stackyard

SEEDS = 500
SITE = Site(
    nodes={"n": NodeKind(cores=64)},
    scheduler=Scheduler(kind="slurm"),
    launch=LaunchPolicy(container=ContainerPolicy(runtime="pyxis")),  # for Sarus, which launch does not start
)
FILES = ("torch.sqsh", "icon.squashfs")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the files that scripts name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDF_PATH", str(tmp_path))
    for name in FILES:
        (tmp_path / name).touch()
    yield tmp_path


def different(truth: Inside, intent: Intent, notes: list[str]) -> list[str]:
    """What of the script neither the job nor a note has."""
    said = "\n".join(notes)
    got = {
        "container": (intent.container, truth.container),
        "mounts": (sorted(intent.mounts), sorted(truth.mounts)),
        "workdir": (intent.workdir, truth.workdir),
        "options": (sorted(intent.container_options), sorted(truth.options)),
        "variables": ({**intent.variables, **truth.variables}, intent.variables),
        "program": (intent.program, truth.program),
        "nodes": (intent.nodes, truth.nodes),
        "ranks": (intent.nodes * (intent.ranks_per_node or 1), truth.ranks),
    }
    found = [f"{name}: {mine!r}, expected {theirs!r}" for name, (mine, theirs) in got.items() if mine != theirs]
    return found + [f"not said: {text}" for text in truth.said if text not in said]


def lost(truth: Inside, intent: Intent) -> list[str]:
    """What of the script the plan of its job has not: words of the launcher, or before the program."""
    plan = make_plan(intent, SITE, PlanContext("slurm", environ={"PATH": "/usr/bin"}), head=True)
    words = [*plan.line.words, *(word for wrapper in plan.wrappers for word in wrapper.argv)]
    words += [f"--annotation={match[1]}={match[2]}" for text in plan.line.files.values()
              for match in re.finditer(r'"(com\.[^"]*)" = "([^"]*)"', text)]  # fmt: skip
    text = " ".join((*words, *plan.line.files.values())).replace("#", "/")
    image = re.sub(r":[\w.-]+(?=@sha256:)", "", re.sub(r"^docker://|^\./", "", truth.container))  # the digest counts
    places = {*words, *(wrapper.workdir for wrapper in plan.wrappers)}
    wanted = [*image.split(","), *(":".join(mount.split(":")[:2]) for mount in truth.mounts)]
    found = [f"not planned: {each}" for each in wanted if each not in text]
    found += [f"not planned: {option}" for option in truth.options if option not in words]
    if truth.workdir not in ("", OWN) and not any(truth.workdir == place.rpartition("=")[2] for place in places):
        found.append(f"not planned: {truth.workdir}")
    return found


def converted(system: str, seed: int, here: Path) -> list[str]:
    """What is wrong with the job of one script."""
    text, truth = composed(system, seed)
    text, truth = text.replace("HERE", str(here)), replace(truth, container=truth.container.replace("HERE", str(here)))
    for file in here.glob("*.toml"):
        file.unlink()
    for name, content in truth.files.items():
        (here / name).write_text(content.replace("HERE", str(here)))
    try:
        intent, notes = to_intent(lint_text(text, name="job.sh").script)
    except InputError as error:
        problems = [str(each) for each in getattr(error, "problems", (error,))]
        return [] if truth.refused and truth.refused in "\n".join(problems) else [*problems, "refused", text]
    if truth.refused:
        return [f"not refused: {truth.refused}", repr(intent.container), text]
    job = here / "job.yaml"
    job.write_text(job_text(intent, notes))
    wrong = different(truth, intent, notes) + (["read back"] if load_job(job) != intent else [])
    wrong += lost(truth, intent)
    return [*wrong, *notes, text] if wrong else []


def test_launch_has_the_runtimes() -> None:
    assert {system.runtime for system in TABLE if system.runtime} <= runtimes.TABLE.keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_same_image_mounts_and_directory(system: str, here: Path) -> None:
    for seed in range(SEEDS):
        wrong = converted(system, seed, here)
        assert not wrong, f"seed {seed}\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("srun --container-image=$IMAGE ./a", "$IMAGE is known only at run time"),
        ("srun --container-name=train ./a", "--container-name=train: a container that outlives its step"),
        ("srun --container-image=ubuntu --container-name=train:exec ./a", "--container-name=train:exec"),
        ("srun --container-image=ubuntu --container-save=/n.sqsh ./a", "--container-save=/n.sqsh: the image that"),
        ("srun --container-mounts=/data ./a", "no image"),
        ("srun --container-image=ubuntu --container-mounts=data ./a", "a source begins with / or ."),
        ("export PYXIS_CONTAINER_IMAGE=ubuntu\nsrun ./a", "a variable that all steps of the job would obey"),
        ("srun sarus run load/library/x:1 ./a", "is in a store of a node or of a user"),
        ("srun --container-image=<IMAGE> ./a", "<IMAGE> is known only at run time"),
        ("srun sarus run a#b:1 ./a", "does not know #"),
    ],
)
def test_no_job_file_and_why(lines: str, said: str) -> None:
    with pytest.raises(ManyErrors) as raised:
        to_intent(lint_text(f"#!/bin/bash\n#SBATCH -t 10 -n 1\n{lines}\n", name="job.sh").script)
    assert any(said in str(problem) for problem in raised.value.problems)


def test_the_command_line_says_why_and_writes_the_others(tmp_path: Path) -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -n 1\n"
    (tmp_path / "a.sh").write_text(head + "srun sarus run load/library/x:1 ./a\n")
    (tmp_path / "b.sh").write_text(head + "srun sarus run --mount=type=bind,source=/d,destination=/e x/y:1 ./a\n")
    (tmp_path / "c.sh").write_text(head + "srun --container-image=nvcr.io#NVIDIA/torch:1 ./a\n")
    done = stackyard("lint", "--fix", "a.sh", "b.sh", "c.sh", cwd=tmp_path, expect=2)
    assert "NVIDIA/torch:1 is not an image of a registry" in done.err, "which no launch would take"
    assert not (tmp_path / "c.sh.job.yaml").exists()
    assert "a.sh:3" in done.err and "no job file can be made" in done.err and not (tmp_path / "a.sh.job.yaml").exists()
    job = load_job(tmp_path / "b.sh.job.yaml")
    assert (job.container, job.mounts, job.program) == ("docker://x/y:1", ("/d:/e",), ("./a",))
    assert any("the image's own" in line for line in job.unanswered)


def test_a_batch_script_that_is_inside_itself() -> None:
    """Only the ranks of a job are: lines before them must be looked at."""
    head = "#!/bin/bash\n#SBATCH -t 10 -n 1 --container-image=ubuntu --container-workdir=/w\n"
    intent, _ = to_intent(lint_text(head + "pip install x\npython a.py\n").script)
    assert (intent.container, intent.workdir, intent.program) == ("docker://ubuntu", "/w", ("a.py",))
    assert any("of the job its ranks alone" in line for line in intent.unanswered)


@pytest.mark.parametrize(("runtime", "words"), [
    ("apptainer", ("--bind", "/data:/mnt:ro", "--pwd", "/w", "--fakeroot")),
    ("charliecloud", ("-b", "/data:/mnt", "-c", "/w", "--fakeroot")),
])  # fmt: skip
def test_a_job_has_its_own_mounts_directory_and_words(runtime: str, words: tuple[str, ...], here: Path) -> None:
    site = SITE.model_copy(update={"launch": LaunchPolicy(container=ContainerPolicy(runtime=runtime, binds=("/s",)))})
    job = Intent(program=("./a",), container="torch.sqsh", mounts=("/data:/mnt:ro",), workdir="/w",
                 container_options=("--fakeroot",))  # fmt: skip
    plan = make_plan(job, site, PlanContext("slurm", environ={"PATH": "/usr/bin"}), head=True)
    argv = plan.wrappers[0].argv
    assert all(word in argv for word in (*words, "/s")) and "/data" in plan.wrappers[0].needed
    own = job.model_copy(update={"workdir": OWN})
    with pytest.raises(InputError, match="and not in the image's own"):
        make_plan(own, site, PlanContext("slurm", environ={"PATH": "/usr/bin"}), head=True)


@pytest.mark.parametrize("key", ["mounts: [/data]", "workdir: /w", "container_options: [--nv]"])
def test_no_job_on_the_bare_host_has_them(key: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"format: 1\nprogram: [./a]\n{key}\n")
    with pytest.raises(InputError, match="is for a job in an image"):
        load_job(tmp_path / "job.yaml")
