"""Where a deploy cannot succeed is refused before anything is built, with what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, StackyardError
from stackyard.deploy.preconditions import surroundings
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
from support.accounts import Accounts
from support.cli import STACKYARD, stackyard


@pytest.mark.parametrize("name", ["y ard", "y\\ard", "yärd", "y:ard", 'y"ard', "y{ard", "y\nard"])
def test_a_path_that_module_systems_cannot_hold(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not a path that module systems") as caught:
        surroundings.require(Workspace(Site(), Yard(tmp_path / name)))
    assert "ASCII" in (caught.value.hint or "") and not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["yard", "y'ard", "y[ard]", "y=ard", "y%20ard", "y@ard+1", "y#;&|()"])
def test_a_path_that_they_can_hold(tmp_path: Path, name: str) -> None:
    surroundings.require(Workspace(Site(), Yard(tmp_path / name / "not" / "yet")))


@pytest.fixture
def noexec(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "noexec"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,size=1m", "tmpfs", place], check=False)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_file_system_without_programs(noexec: Path) -> None:
    with pytest.raises(StackyardError, match=r"its file system is mounted noexec"):
        surroundings.require(Workspace(Site(), Yard(noexec / "yard")))


def test_without_proc(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("six\n")
    script = 'umount -l /proc && exec "$@"'
    words = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        STACKYARD,
        "--yard",
        tmp_path / "yard",
        "deploy",
        "--locked",
    ]
    done = subprocess.run([*words, tmp_path / "requirements.txt"], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("a mount namespace needs root")
    assert done.returncode == 4 and "/proc is not mounted\n  hint: mount it" in done.stderr


@pytest.mark.parametrize("below", ["", "below"])
def test_a_yard_in_the_place_of_a_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    yard = tmp_path / "file" / below
    for words in (["list"], ["show", "x"], ["deploy", "environment.yml"]):
        done = stackyard("--yard", yard, *words, expect=2)
        assert f"cannot use the yard {yard}: {tmp_path / 'file'} is not a directory\n  hint: choose" in done.err
    assert "is not a directory" in stackyard("list", expect=2, HOME=str(tmp_path / "file")).err


def test_an_output_that_takes_no_more(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full not found")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([STACKYARD, "--yard", tmp_path, "list"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and b"No space left on device" in done.stderr and b"Traceback" not in done.stderr
    closed = subprocess.run(
        ["sh", "-c", '"$0" --yard "$1" list >&-', STACKYARD, tmp_path], capture_output=True, check=False
    )
    assert closed.returncode in (0, 1) and b"Traceback" not in closed.stderr


def test_a_link_to_the_modules_that_only_root_can_make(accounts: Accounts, common: Path) -> None:
    service = accounts.user("stacks")
    site = common / "site.yaml"
    site.write_text(f"yard: {service.home}/yard\nmodules: {{root: {common}/modules}}\n")
    (service.home / "requirements.txt").write_text("six\n")
    words = ("--site", site, "--yard", service.home / "yard", "deploy", service.home / "requirements.txt")
    refused = service.stackyard(*words, expect=2)
    assert f"cannot create the symlink {common}/modules: permission denied: {common}" in refused.err
    assert f"let root create it once: ln -s {service.home}/yard/modules {common}/modules" in refused.err
