"""An image that this machine cannot pack or mount: said before the work, by each verb whose result needs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_bed import confined

from support import programs, testbed
from support.cli import STACKYARD, stackyard
from support.processes import end_image_servers

pytestmark = [pytest.mark.real, pytest.mark.slow]

NO_FUSE = "mount --bind /dev/null /dev/fuse"


class Place:
    """A yard, and a stack that is to be an image."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.yard = directory, directory / "yard"
        (directory / "home").mkdir()
        self.environ = {"HOME": str(directory / "home"), "STACKYARD_TMP": str(directory), "STACKYARD_IMAGE_IDLE_S": "5"}

    def stack(self, *lines: str, form: str = "image: squashfs") -> Path:
        wheels = testbed.wheels(testbed.HERE / "wheels.txt")
        file = self.directory / "stack.yaml"
        pip = f"environment:\n  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
        file.write_text(f"name: demo\nversion: '1'\n{form}\n{pip}" + "".join(f"{line}\n" for line in lines))
        return file

    def confined(self, *words: str | Path, expect: int = 0) -> str:
        """Run stackyard where nothing can be mounted; what it printed."""
        argv = confined(NO_FUSE, str(STACKYARD), "--yard", str(self.yard), *map(str, words))
        environ = {**os.environ, **self.environ}
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def run(self, *words: str | Path, expect: int = 0) -> str:
        done = stackyard("--yard", self.yard, *words, expect=expect, **self.environ)
        return done.out + done.err

    @property
    def image(self) -> Path:
        return self.yard / "stacks/demo/1-py3-1/image.sqsh"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    made = Place(tmp_path)
    yield made
    end_image_servers(made.image)


def test_a_deploy_is_refused_before_it_solves(place: Place) -> None:
    said = place.confined("deploy", place.stack(), expect=4)
    assert "error: cannot deploy demo as an image: this machine cannot mount images\n" in said, said
    assert "user namespace: /dev/fuse" in said, "what each way lacks"
    assert "--allow-unverified" in said
    assert not list(place.directory.rglob("*.lock*")), "nothing was solved"
    place.confined("deploy", "--fetch-only", place.stack())
    assert list(place.directory.rglob("*.lock*")), "to be built elsewhere"
    assert "cannot mount images" in place.confined("deploy", "--dry-run", place.stack(), expect=4)
    assert "published" in place.confined("deploy", place.stack(form="image: prefix"))


def test_a_build_is_refused_and_what_is_built_is_not(place: Place) -> None:
    place.run("deploy", place.stack())
    end_image_servers(place.image)
    assert "unchanged" in place.confined("deploy", place.stack("# the same"), "--json"), "it needs no image"
    said = place.confined("deploy", place.stack(), "--rebuild", expect=4)
    assert "error: cannot deploy demo/1-py3-2 as an image: this machine cannot mount images\n" in said, said
    assert [path.name for path in (place.yard / "stacks/demo").iterdir()] == ["1-py3-1"], "nothing was built"


def test_unverified_it_is_packed_and_verified_elsewhere(place: Place) -> None:
    """For a build host without FUSE, whose nodes have it."""
    said = place.confined("deploy", "--allow-unverified", place.stack())
    assert "published unverified" in said or "unverified" in said, said
    assert "the image was not read back: the machine that packed it cannot mount it" in said
    assert place.image.exists()
    assert "passed" in place.run("verify", "--deep", "demo/1-py3-1")
    assert place.run("run", "demo", "--", "python", "-c", "import idna; print(idna.__name__)") == "idna\n"


def test_a_pull_is_refused_before_it_fetches(place: Place) -> None:
    place.run("deploy", place.stack())
    layout = place.directory / "layout"
    place.run("push", "demo/1-py3-1", f"oci:{layout}:demo")
    end_image_servers(place.image)
    place.yard.rename(place.directory / "aside")
    source = f"oci:{layout}:demo"
    for blob in (layout / "blobs/sha256").iterdir():
        if blob.stat().st_size > 1 << 17:
            os.truncate(blob, 5)  # a pull that read it would say so
    said = place.confined("pull", source, expect=4)
    assert "error: cannot pull demo/1-py3-1, an image: this machine cannot mount images\n" in said, said
    assert not place.yard.exists()


def test_without_mksquashfs_nothing_is_fetched_or_built(place: Place) -> None:
    programs.need("skopeo")
    tools = place.directory / "bin"
    tools.mkdir()
    for name in ("sh", "env", "skopeo"):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    environ = {**place.environ, "PATH": str(tools)}
    file = place.stack()
    for words in (
        ["image", "from", "oci:no-such-layout", "--name", "base"],
        ["deploy", file],
        ["image", "build", file, "--format", "sif", "--base", "oci:no-such-layout", "-o", "x.sif"],
    ):
        done = stackyard("--yard", place.yard, *words, expect=4, **environ)
        assert "error: mksquashfs not found\n  hint: install squashfs-tools" in done.err, (words, done.err)
    assert not list(place.directory.rglob("*.lock*"))
