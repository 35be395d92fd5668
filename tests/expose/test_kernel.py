"""Kernels of Jupyter: a notebook that runs inside a revision, as if its module was loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import programs, testbed
from support.accounts import Accounts
from support.cli import Done, inside
from support.processes import wait_for
from support.slurm import SlurmCluster

pytestmark = pytest.mark.real

NOTEBOOK = """
import nbclient, nbformat, sys
cells = [nbformat.v4.new_code_cell(text) for text in sys.argv[2:]]
book = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(book, kernel_name=sys.argv[1], timeout=240).execute()
print("".join(output.get("text", "") for cell in cells for output in cell.outputs), end="")
"""
SAYS = "import os, sys; print(sys.prefix, os.environ['DEMO_DATA'], len(os.listdir(sys.prefix)) > 2)"


@dataclass(frozen=True)
class Bed:
    """A yard, and a directory of kernels. Jupyter is that of the stack `desk`."""

    directory: Path

    @property
    def jupyter(self) -> Path:
        return self.directory / "jupyter"

    def run(self, *words: str | Path, expect: int | None = 0) -> Done:
        return inside("--yard", self.directory / "yard", *words, expect=expect, JUPYTER_DATA_DIR=str(self.jupyter))

    def deploy(self, name: str, *packages: str, form: str = "prefix", **more: object) -> Path:
        wheels = testbed.wheels(testbed.HERE / "wheels-jupyter.txt")
        file = self.directory / name / "stack.yaml"
        file.parent.mkdir(exist_ok=True)
        pip = [f"--no-index --find-links={wheels}", *packages]
        stack = {"name": name, "version": "1", "interpreter": {"source": "host", "path": sys.executable}}
        stack |= {"environment": {"dependencies": [{"pip": pip}]}, "modules": {"variables": {"DEMO_DATA": name}}}
        file.write_text(json.dumps({**stack, **more}))
        self.run("deploy", file, "--image", form)
        (root,) = (self.directory / "yard/stacks" / name).iterdir()
        return root

    def notebook(self, kernel: str, *cells: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A notebook of these cells with this kernel, opened by somebody who has loaded nothing."""
        (python,) = (self.directory / "yard/stacks/desk").glob("*/prefix/bin/python")
        environ = {"PATH": os.defpath, "JUPYTER_DATA_DIR": str(self.jupyter), "HOME": str(self.directory), **more}
        words = [python, "-c", NOTEBOOK, kernel, *cells]
        return subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=180, env=environ, cwd=self.directory
        )


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    try:
        testbed.wheels(testbed.HERE / "wheels-jupyter.txt")
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    made = Bed(tmp_path_factory.mktemp("kernels"))
    made.deploy("desk", "ipykernel", "nbclient")
    return made


@pytest.mark.parametrize("form", ["prefix", "squashfs"])
def test_a_notebook_runs_inside_a_revision(bed: Bed, form: str) -> None:
    if form == "squashfs":
        for name in ("mksquashfs", "squashfuse", "unshare"):
            programs.need(name)
    root = bed.deploy(f"mine-{form}", "ipykernel", form=form)
    bed.run("kernel", "install", f"mine-{form}", "--name", "Mine", "--replace")
    done = bed.notebook("mine", SAYS, "x = 1", "print(x + 1)")
    assert done.stdout == f"{root / 'prefix'} mine-{form} True\n2\n", done.stderr


def test_a_stack_that_offers_some_commands_has_a_kernel_of_its_own_python(bed: Bed) -> None:
    root = bed.deploy("tools", "ipykernel", modules={"commands": ["ipython"], "variables": {"DEMO_DATA": "tools"}})
    bed.run("kernel", "install", "tools")
    done = bed.notebook("tools-1-py3-1", SAYS)
    assert done.stdout == f"{root / 'prefix'} tools True\n", done.stderr


def test_kernels_are_listed_and_removed_with_their_revision(bed: Bed) -> None:
    root = bed.deploy("short", "ipykernel")
    bed.run("kernel", "install", "short")
    assert "short-1-py3-1  short/1-py3-1\n" in bed.run("kernel", "list").out
    root.rename(root.with_name("aside"))
    shutil.move(root.with_name("aside"), bed.directory / "aside")
    assert "short/1-py3-1  (removed)" in bed.run("kernel", "list").out
    done = bed.notebook("short-1-py3-1", "1")
    assert done.returncode and "was removed" in done.stderr
    assert "would remove short-1-py3-1" in bed.run("kernel", "remove", "--gone", "--dry-run").out
    assert "removed short-1-py3-1" in bed.run("kernel", "remove", "--gone").out
    assert "short" not in bed.run("kernel", "list").out


def test_a_kernel_is_removed_with_the_logos_in_its_directory(bed: Bed) -> None:
    bed.run("kernel", "install", "desk", "--name", "shown")
    (bed.jupyter / "kernels" / "shown" / "logo-64x64.png").write_bytes(b"x")
    assert "removed shown" in bed.run("kernel", "remove", "shown").out
    assert not (bed.jupyter / "kernels" / "shown").exists()


@pytest.mark.parametrize("options", ["-N2", "-r4", "-r 4", "--nodes=2", "--debug-rank 0", "--stream x", "--with a"])
def test_a_kernel_is_one_rank_whose_streams_are_jupyters(bed: Bed, options: str) -> None:
    told = bed.run("kernel", "install", "desk", "--name", "far", "--launch", f"-g 1 {options}", expect=2).err
    assert f"{options.split(maxsplit=1)[0]} cannot be given" in told


def test_a_revision_that_you_may_not_see_is_not_gone(accounts: Accounts, common: Path) -> None:
    user, closed = accounts.user("bert"), common / "closed"
    (closed / "revision").mkdir(parents=True)
    code = (
        "import pathlib, sys\nfrom stackyard.expose.kernel import Kernel, is_gone\n"
        "for path in sys.argv[1:]: print(is_gone(Kernel('k', pathlib.Path('.'), 'k', 'x/1', path)))\n"
    )
    closed.chmod(0o700)
    assert user.python(code, closed / "revision", common / "none").out.split() == ["False", "True"]


def test_kernels_of_others_are_left_alone(bed: Bed) -> None:
    theirs = bed.jupyter / "kernels" / "theirs" / "kernel.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"argv": [], "display_name": "R", "metadata": {}}')
    told = bed.run("kernel", "install", "desk", "--name", "theirs", "--replace", expect=2).err
    assert "is there already, and not made by stackyard" in told
    assert "theirs" not in bed.run("kernel", "list").out
    assert "no kernel of stackyard" in bed.run("kernel", "remove", "theirs", expect=2).err
    assert theirs.exists()
    bed.run("kernel", "install", "desk", "--name", "same")
    assert "kernel same of desk" in bed.run("kernel", "install", "desk", "--name", "same").out
    other = bed.run("kernel", "install", "desk", "--name", "same", "--display-name", "another", expect=2).err
    assert "the kernel same is there already, for desk/1-py3-1" in other and "--replace" in other


@pytest.mark.parametrize("name", ["../up", "..", ".x", "a b", "a/b", "ü", "a\nb", "x" * 300])
def test_names_that_jupyter_does_not_take_are_refused(bed: Bed, name: str) -> None:
    assert "is not a name of a kernel" in bed.run("kernel", "install", "desk", "--name", name, expect=2).err


def test_a_revision_without_ipykernel_is_refused(bed: Bed) -> None:
    bed.deploy("bare", "packaging")
    told = bed.run("kernel", "install", "bare", expect=2).err
    assert "bare/1-py3-1 has no ipykernel" in told and "add ipykernel" in told


def test_for_everybody_it_is_written_below_the_prefix_of_their_jupyter(bed: Bed) -> None:
    before = os.umask(0o077)
    try:
        bed.run("kernel", "install", "desk", "--prefix", bed.directory / "hub")
    finally:
        os.umask(before)
    file = bed.directory / "hub/share/jupyter/kernels/desk-1-py3-1/kernel.json"
    words = json.loads(file.read_text())["argv"]
    assert Path(words[0]).is_absolute() and words[1:3] == ["--yard", str(bed.directory / "yard")]
    assert file.stat().st_mode & 0o444 == 0o444 and file.parent.stat().st_mode & 0o555 == 0o555


def test_a_kernel_on_a_compute_node_is_started_by_launch(bed: Bed, slurm: SlurmCluster) -> None:
    site = bed.directory / "site.yaml"
    site.write_text(
        "nodes: {cpu: {platform: linux-64, cores: 2}}\nscheduler: {kind: slurm, launcher: srun, exclusive: false}\n"
    )
    bed.run("--site", site, "kernel", "install", "desk", "--name", "far", "--launch", "-c 1")
    where = "import os, sys; print(os.readlink('/proc/self/ns/net'), sys.prefix, os.environ['DEMO_DATA'])"
    environ = {"SLURM_CONF": os.environ["SLURM_CONF"], "PATH": os.environ["PATH"]}
    done = bed.notebook("far", where, "x = 20", "print(x + 1)", **environ)
    assert done.returncode == 0, done.stderr
    space, prefix, data, number = done.stdout.split()
    assert space != os.readlink("/proc/self/ns/net"), "it runs on a node, and not here"
    assert (Path(prefix).parts[-1], data, number) == ("prefix", "desk", "21")
    wait_for(lambda: not slurm.run("squeue", "--noheader").stdout.strip(), 120, lambda: "its job is still there")


@pytest.mark.parametrize("form", ["prefix", pytest.param("squashfs", marks=pytest.mark.long)])
def test_a_kernel_on_a_node_of_a_stack_that_offers_some_commands(bed: Bed, slurm: SlurmCluster, form: str) -> None:
    """Its Python is the stack's, though `python` on PATH is the node's own."""
    for name in ("mksquashfs", "squashfuse", "unshare") if form == "squashfs" else ():
        programs.need(name)
    site, stack = bed.directory / "site.yaml", f"offers-{form}"
    site.write_text(
        "nodes: {cpu: {platform: linux-64, cores: 2}}\nscheduler: {kind: slurm, launcher: srun, exclusive: false}\n"
    )
    offers = {"commands": ["ipython"], "variables": {"DEMO_DATA": "far"}}
    root = bed.deploy(stack, "ipykernel", form=form, modules=offers)
    bed.run("--site", site, "kernel", "install", stack, "--launch", "-c 1")
    environ = {"SLURM_CONF": os.environ["SLURM_CONF"], "PATH": os.environ["PATH"]}
    done = bed.notebook(f"{stack}-1-py3-1", SAYS, **environ)
    assert done.stdout == f"{root / 'prefix'} far True\n", done.stderr
    if form == "squashfs":
        return  # its image stays mounted for a while, which keeps it from being removed
    bed.run("remove", f"{stack}/1-py3-1")
    assert f"{stack}-1-py3-1  {stack}/1-py3-1  (removed)" in bed.run("kernel", "list").out
    done = bed.notebook(f"{stack}-1-py3-1", "1", **environ)
    assert done.returncode and f"{stack}/1-py3-1 was removed" in done.stderr
    assert f"removed {stack}-1-py3-1" in bed.run("kernel", "remove", "--gone").out
