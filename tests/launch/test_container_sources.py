"""Two nodes, one of which lacks something that an image or a stack needs: nothing starts, and the error names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import images, smallyard
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real

SITE = """\
name: test
scheduler: {kind: slurm, exclusive: false}
launch: {runs: %s, container: {runtime: apptainer, %s}}
"""
WAITS = ("sh", "-c", 'touch "up.$RANK"; sleep 300')


@contextmanager
def lacking(cluster: SlurmCluster, node: str, directory: Path) -> Iterator[None]:
    """Let a directory be empty on one node."""
    cluster.on(node, "mount", "-t", "tmpfs", "none", directory)
    try:
        yield
    finally:
        cluster.on(node, "umount", "--lazy", directory)  # the step's last processes may still be in it


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A directory that the second node will not have the contents of."""
    (tmp_path / "there/lib").mkdir(parents=True)
    return tmp_path / "there"


def refused(work: Work, *words: str | Path, binds: str = "binds: []") -> str:
    """What a launch on both nodes prints, of which no rank has started."""
    (work.directory.parent / "site.yaml").write_text(SITE % (work.directory.parent.parent / "runs", binds))
    shape = ("-N", "2", "-r", "1", "-c", "1", "-g", "0")
    done = work.allocated(*map(str, words), *shape, *WAITS, expect=71, salloc=("-N2", "-w", "n1,n2"))
    assert not list(work.directory.glob("up.*")), "a program waits for the others"
    work.nothing_left()
    return done.err


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests' image, and a runtime for it."""
    try:
        for name, value in images.environ().items():
            monkeypatch.setenv(name, value)
        return images.image_sif()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


def test_what_an_image_is_bound_to(slurm: SlurmCluster, tmp_path: Path, there: Path, image: Path) -> None:
    with working(slurm, tmp_path / "work") as work, lacking(slurm, "n2", there):
        said = refused(work, "launch", "--container", image, binds=f"binds: ['{there}/lib:/lib64/fabric:ro']")
        assert f"error: n2: cannot bind {there}/lib into the image: it does not exist on this node" in said
        assert "compare launch.container in site.yaml with the node" in said


def test_the_image_itself(slurm: SlurmCluster, tmp_path: Path, there: Path, image: Path) -> None:
    (there / "x.sif").symlink_to(image)
    with working(slurm, tmp_path / "work") as work, lacking(slurm, "n2", there):
        said = refused(work, "launch", "--container", there / "x.sif")
        assert f"error: n2: {there}/x.sif does not exist on this node" in said
        assert "keep it where all nodes see it" in said


def test_the_stack(slurm: SlurmCluster, tmp_path: Path, there: Path) -> None:
    yard = smallyard.make(there / "yard", "1")
    with working(slurm, tmp_path / "work") as work, lacking(slurm, "n2", there):
        said = refused(work, "--yard", yard.root, "launch", "--with", "tool/1")
        assert f"error: n2: {there}/yard/stacks/tool/1-py311-1/prefix does not exist on this node" in said


def test_the_working_directory(slurm: SlurmCluster, tmp_path: Path) -> None:
    with working(slurm, tmp_path / "work") as work, lacking(slurm, "n2", work.directory.parent):
        assert f"error: n2: cannot enter {work.directory}: it does not exist on this node" in refused(work, "launch")
