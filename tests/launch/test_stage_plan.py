"""``--stage`` before anything runs: what is refused, what is shown, and where it comes from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import stackyard as api
from stackyard.core.errors import InputError, MissingError
from stackyard.inputs.sites.sitemodels import NodeKind
from stackyard.launch.plan.context import PlanContext, StackInUse
from stackyard.launch.plan.staging import check_stage, plan_stage
from stackyard.launch.request.intent import Intent
from support import images
from support.accounts import Accounts
from support.cli import Done, stackyard

LAUNCH = ("launch", "--launcher", "local", "-r", "1", "-c", "1")
DISK = NodeKind(local_disk="/nvme")
"""A kind of node."""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("a/data", "b/data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "image.sif").write_text("an image")
    (tmp_path / "prefix/conda-meta").mkdir(parents=True)
    return tmp_path


def run(work: Path, *words: str | Path, expect: int = 0) -> Done:
    return stackyard(*words, cwd=work, expect=expect)


def planned(work: Path, *stage: str, kind: NodeKind | None = None, context: PlanContext | None = None, **more: object):  # type: ignore[no-untyped-def]
    intent = Intent.model_validate({"program": ["true"], "stage": stage, "cwd": str(work), **more})
    return plan_stage(intent, kind or NodeKind(), context or PlanContext())


def test_names_are_those_of_the_paths(work: Path) -> None:
    found = planned(work, "a/data/", "image.sif", "./a/data", str(work / "image.sif"))
    assert found.items == (("data", f"{work}/a/data"), ("image.sif", f"{work}/image.sif"))


@pytest.mark.parametrize(("stage", "why"), [
    (("a/data", "b/data"), "have the same name on the nodes"),
    (("/",), "has no name"),
    (("stack",), "this job runs in no image"),
])  # fmt: skip
def test_what_cannot_be_planned(work: Path, stage: tuple[str, ...], why: str) -> None:
    with pytest.raises(InputError, match=why) as error:
        planned(work, *stage)
    assert error.value.hint


def test_a_published_prefix_is_refused(work: Path) -> None:
    stack = StackInUse("pytorch/2.13", str(work / "rev"), str(work / "rev/prefix"))
    for path in ("rev/prefix", "rev"):
        with pytest.raises(InputError, match="a prefix does not work at another path"):
            planned(work, path, context=PlanContext(stack=stack))
    assert planned(work, "rev/prefix/share", context=PlanContext(stack=stack)).items


@pytest.mark.parametrize(("kind", "scheduler", "asked", "base"), [
    (NodeKind(), "slurm", False, ""),
    (DISK, "slurm", False, "/nvme"),
    (DISK, "lsf", False, ""),
    (DISK, "lsf", True, "/nvme"),
    (NodeKind(local_disk="/nvme", local_disk_constraint="nvme"), "slurm", False, ""),
    (NodeKind(local_disk="/nvme", local_disk_constraint="nvme"), "slurm", True, "/nvme"),
])  # fmt: skip
def test_the_sites_disk_where_the_job_has_it(
    work: Path, kind: NodeKind, scheduler: str, asked: bool, base: str
) -> None:
    context = PlanContext(scheduler)
    assert planned(work, "a/data", kind=kind, context=context, batch={"local_disk": asked}).base == base


def test_the_ranks_run_from_the_staged_image(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "apptainer").write_text("#!/bin/sh\n")
    (work / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}:{os.environ['PATH']}")
    words = (*LAUNCH, "--container", "image.sif", "--dry-run", "--json")
    for stage in ("stack", "image.sif", str(work / "image.sif")):
        plan = run(work, *words, "--stage", stage, "true").value
        assert plan["stage"] == [["image.sif", f"{work}/image.sif"]]
        assert "${STACKYARD_STAGE}/image.sif" in plan["program"]
        assert '--bind "${STACKYARD_STAGE}"' in plan["program"]
    plan = run(work, *words, "--stage", "a/data", "true").value
    assert f"{work}/image.sif" in plan["program"]
    assert "STACKYARD_STAGE" not in run(work, *words, "true").value["program"]


@pytest.mark.real
@pytest.mark.parametrize("image", [images.image_sif, images.image_squashfs])
def test_ranks_run_in_the_copy_of_the_image(work: Path, image: Callable[[], Path]) -> None:
    try:
        path = image()
    except MissingError as error:
        pytest.skip(str(error))
    (work / "x").write_text("staged")
    program = ("sh", "-c", "cat $STACKYARD_STAGE/x; echo; echo $APPTAINER_CONTAINER; ls -d /work")
    words = (*LAUNCH, "--container", path, "--stage", "stack", "--stage", "x")
    done = stackyard(*words, *program, cwd=work, **images.environ(STACKYARD_TMP=str(work)))
    x, container, inside = done.out.splitlines()[-3:]
    assert (x, inside) == ("staged", "/work")
    assert re.fullmatch(rf"{work}/stackyard-stage-.*/files/{path.name}", container)


def test_an_image_that_is_a_directory_is_refused(work: Path) -> None:
    intent = Intent.model_validate({"program": ["true"], "stage": ["stack"], "cwd": str(work), "container": "a"})
    with pytest.raises(InputError, match="is a directory, and only a file can be staged"):
        check_stage(intent)
    role = {"program": ["true"], "container": "a"}
    intent = Intent.model_validate({"roles": {"one": role}, "stage": ["a"], "cwd": str(work)})
    with pytest.raises(InputError, match="is a directory, and only a file can be staged"):
        check_stage(intent)


SITE = """\
nodes: {cpu: {cores: 4, local_disk: /nvme}}
scheduler: {kind: slurm}
"""


def test_what_is_not_there_is_an_error_before_anything_starts(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (LAUNCH, ("submit", "-r", "1")):
        done = run(work, *words, "--stage", "not/there", "true", expect=2)
        assert f"--stage: {work}/not/there not found" in done.err
        assert "hint: give a path on a file system that the nodes share" in done.err
        done = run(work, *words, "--stage", "prefix", "true", expect=2)
        assert "a prefix does not work at another path" in done.err
        (work / "site.yaml").write_text(SITE)
        monkeypatch.setenv("STACKYARD_SITE", str(work / "site.yaml"))
    assert not (work / "runs").exists()


def test_another_user_is_told_what_he_may_not_read(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna"), accounts.user("bert")
    (common / "data").write_text("of both")
    (common / "mine").write_text("nobody else's")
    (common / "mine").chmod(0o600)
    done = bert.stackyard(*LAUNCH, "--stage", common / "mine", "true", cwd=bert.home, expect=2)
    assert f"--stage: cannot read {common}/mine: permission denied" in done.err
    for user in (anna, bert):
        done = user.stackyard(
            *LAUNCH, "--stage", common / "data", "sh", "-c", "cat $STACKYARD_STAGE/data; id -u", cwd=user.home
        )
        assert done.out == f"of both{user.uid}\n"


def test_it_is_shown_recorded_and_repeated(work: Path) -> None:
    words = ("--stage", "a/data", "--stage", "image.sif", "true")
    shown = run(work, *LAUNCH, "--dry-run", *words).out
    assert f"stage: {work}/a/data to the disk of each node" in shown
    explained = run(work, "explain", "--launcher", "local", "-r", "1", "-c", "1", *words).out
    assert re.search(r"\$STACKYARD_STAGE/data +a copy of /", explained), explained
    run(work, *LAUNCH, *words)
    record = json.loads(next(work.glob("runs/*/record.json")).read_text())
    assert record["intent"]["stage"] == ["a/data", "image.sif"]
    assert record["plan"]["stage"] == [["data", f"{work}/a/data"], ["image.sif", f"{work}/image.sif"]]
    again = run(work, "launch", "--again", "last", "--dry-run", "--json").value
    assert again["stage"] == record["plan"]["stage"]
    found = run(work, "runs", "show", "--json").value
    assert (found["staged"]["size"], found["staged"]["files"], found["staged"]["nodes"]) == (8, 1, 1)
    assert "staged     8 bytes on " in run(work, "runs", "show").out


def test_a_job_file_and_python_have_it_too(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "job.yaml").write_text("format: 1\nprogram: ['true']\nstage: [a/data]\n")
    plan = run(work, *LAUNCH, "--job", "job.yaml", "--dry-run", "--json").value
    assert plan["stage"] == [["data", f"{work}/a/data"]]
    monkeypatch.chdir(work)
    ran = api.launch("sh", "-c", "ls $STACKYARD_STAGE", launcher="local", ranks_per_node=1, cores_per_rank=1,
                     stage=[work / "a/data", "image.sif"])  # fmt: skip
    ran.wait()
    assert ran.log(0).split() == ["data", "image.sif"]
