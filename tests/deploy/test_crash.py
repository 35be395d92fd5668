"""Killed anywhere, or with a full disk: what was published stays usable, and the next deploy finishes the work.

The points are named places in the program (`stackyard.yard.write.atomic.fault_point`) and counts of passing them, not
times. They are tried in chains, on a copy of a yard in which an older revision is published: each deploy finds what the
one before left. Afterwards the finished prefix must have the same hash as that of a deploy which nobody disturbed, and
every file in the cache must still have its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import stackyard as stackyard_package
from stackyard.make.hashes.tree import tree_hash
from stackyard.yard.cache.audit import audit, unfinished
from stackyard.yard.layout import Yard
from support.cli import STACKYARD, Done, stackyard

CHAINS = [
    ("link:3", "cache:2", "write:3", "after-flip:1"),
    ("fetch:1", "extract:1", "link:1", "cache:1", "wheel:1", "write:1", "marker-before:1", "before-flip:1"),
    ("extract:2", "link:2", "wheel:2", "bytecode:1", "write:2", "marker-after:1", "flip:1"),
    ("write:8",),
    ("write:5",),
]
FULL = ("fetch:1", "cache:1", "wheel:1", "bytecode:1", "write:4", "before-flip:1")
FREE_KIB = (60, 200, 400)

BACKEND = """# builds a wheel in no time
import zipfile
INFO = "native-VERSION.dist-info"
FILES = {
    f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: native\\nVersion: VERSION\\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    f"{INFO}/RECORD": f"native.py,,\\n{INFO}/METADATA,,\\n{INFO}/WHEEL,,\\n{INFO}/RECORD,,\\n",
}
def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(f"{folder}/native-VERSION-py3-none-any.whl", "w") as wheel:
        wheel.write("native.py")
        for name, text in FILES.items():
            wheel.writestr(name, text)
    return "native-VERSION-py3-none-any.whl"
"""


class Scene:
    """A yard at one fixed path, put back to its first state before every try."""

    def __init__(self, directory: Path, channel: Path) -> None:
        self.yard = directory / "yard"
        self.kept = directory / "kept"
        self.old = self._spec(directory / "old", channel, "six=1.16", "1.0")
        self.new = self._spec(directory / "new", channel, "six=1.17", "2.0")

    def _spec(self, directory: Path, channel: Path, six: str, version: str) -> Path:
        directory.mkdir()
        (directory / "native").mkdir()
        (directory / "native" / "native.py").write_text(f"version = {version!r}\n")
        (directory / "native" / "backend.py").write_text(BACKEND.replace("VERSION", version))
        (directory / "native" / "pyproject.toml").write_text(
            f'[project]\nname = "native"\nversion = "{version}"\n'
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        )
        spec = directory / "stack.yaml"
        spec.write_text(
            f'name: demo\nversion: "{version}"\nenvironment:\n  channels: ["{channel.as_uri()}"]\n'
            f"  dependencies: [python=3.11, {six}, {{pip: [tomli-w==1.2.0, ./native]}}]\n"
        )
        return spec

    def begin(self) -> None:
        stackyard("--yard", self.yard, "deploy", self.old)
        stackyard("--yard", self.yard, "lock", self.new)
        subprocess.run(["cp", "-a", self.yard, self.kept], check=True)

    def restore(self) -> None:
        shutil.rmtree(self.yard)
        subprocess.run(["cp", "-a", self.kept, self.yard], check=True)

    def deploy(self, fault: str = "", expect: int | None = 0) -> Done:
        return stackyard(
            "--yard", self.yard, "deploy", self.new, expect=expect, **({"STACKYARD_FAULT": fault} if fault else {})
        )

    def state(self) -> str:
        """The hash of the new revision's prefix, for which it must be published."""
        return tree_hash(Path(stackyard("--yard", self.yard, "show", "demo/2.0", "--json").value["prefix"]))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Scene:
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    scene = Scene(tmp_path_factory.mktemp("scene"), real_channel)
    scene.begin()
    return scene


@pytest.fixture(scope="module")
def undisturbed(scene: Scene) -> str:
    scene.restore()
    scene.deploy()
    return scene.state()


def check_old_generation(scene: Scene) -> None:
    """The revision that was published before loads and works, and nothing half-built is listed."""
    done = stackyard(
        "--yard", scene.yard, "run", "demo/1.0", "--", "python", "-c", "import six, native; print(native.version)"
    )
    assert done.out == "1.0\n"
    for row in stackyard("--yard", scene.yard, "list", "--all", "--json").value:
        assert (Path(row["path"]) / "record.json").exists(), row
        modulefile = scene.yard / "modules" / f"{row['module']}.lua"
        assert row["state"] == "built" or modulefile.exists()


def check_cache(scene: Scene) -> None:
    """Every package, wheel and bytecode file in the cache still has its hash, and nothing unfinished is left."""
    yard = Yard(scene.yard)
    assert audit(yard) == []
    assert unfinished(yard) == []


def check_no_space(scene: Scene, fault: str = "") -> None:
    """A deploy that finds the disk full says so, and leaves the old revision as it was."""
    done = scene.deploy(fault, expect=1)
    assert "no space left" in done.err.lower() and "Traceback" not in done.err, done.err
    check_old_generation(scene)


def check_finished(scene: Scene, undisturbed: str) -> None:
    """The next deploy makes what one that nobody disturbed makes."""
    scene.deploy()
    assert scene.state() == undisturbed
    check_cache(scene)


def test_every_fault_point_of_the_program_is_tried() -> None:
    source = Path(stackyard_package.__file__).parent
    named = {name for file in source.rglob("*.py") for name in re.findall(r'fault_point\("([^"]+)"', file.read_text())}
    elsewhere = {
        "base": "images/test_bases", "blob": "images/test_oci_layout", "index": "images/test_oci_layout",
        "sif": "images/test_sif", "sqsh": "images/test_sqsh", "tune-journal": "study/test_tune_here",
        "mirror": "make/test_mirror",
        **dict.fromkeys(("trash-noted", "trash-moved", "trash-back", "remove-published"), "upkeep/test_remove"),
        **dict.fromkeys(("trash-delete", "trash-doomed"), "upkeep/test_collect"),
        "arrival-unpacked": "upkeep/test_push_pull", "sign-before": "deploy/test_signed_deploy",
        **dict.fromkeys(("mend", "mended"), "upkeep/test_fsck"),
        "launcher-made": "images/test_launcher_recorded", "collision": "deploy/test_collisions_published",
        "manifest-packed": "deploy/test_packed_manifests", "given-up": "deploy/test_mounted",
        **dict.fromkeys(("lease-taken", "lease-aside"), "yard/test_idle_leases"),
        "child-noted": "yard/test_childnotes", "catalogue-rename": "catalogue/test_catalogue_files",
        **dict.fromkeys(("carry", "move-noted", "move-verified", "put-aside"), "upkeep/test_move"),
    }  # fmt: skip
    assert named - elsewhere.keys() == {point.partition(":")[0] for chain in CHAINS for point in chain}
    for point, file in elsewhere.items():
        assert f'"{point}' in (Path(__file__).parents[1] / f"{file}.py").read_text(), f"{point} is not tried"


@pytest.mark.long
@pytest.mark.parametrize("chain", CHAINS, ids=" ".join)
def test_killed_at(scene: Scene, undisturbed: str, chain: tuple[str, ...]) -> None:
    """Killed, killed again in the deploy that resumes, and so on; then finished."""
    scene.restore()
    for point in chain:
        assert scene.deploy(point, expect=None).code == -9, f"{point} is not passed in this deploy"
        check_old_generation(scene)
    check_finished(scene, undisturbed)


@pytest.mark.long
def test_the_disk_is_full_at(scene: Scene, undisturbed: str) -> None:
    scene.restore()
    for point in FULL:
        check_no_space(scene, f"{point}:enospc")
    check_finished(scene, undisturbed)


@pytest.mark.long
def test_a_disk_that_really_is_full(scene: Scene, undisturbed: str) -> None:
    """The yard on a small file system of its own, with little left, then with enough."""
    shutil.rmtree(scene.yard)
    scene.yard.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", scene.yard], capture_output=True, text=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip(f"a file system of its own cannot be mounted here: {mount.stderr.strip()}")
    try:
        subprocess.run(["cp", "-a", f"{scene.kept}/.", scene.yard], check=True)
        for free_kib in FREE_KIB:
            ballast = scene.yard / "ballast"
            with ballast.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(scene.yard).free - (free_kib << 10))
            check_no_space(scene)
            ballast.unlink()
        check_finished(scene, undisturbed)
    finally:
        subprocess.run(["umount", "-l", scene.yard], check=True)


@pytest.mark.long
def test_two_deploys_at_once(scene: Scene, undisturbed: str) -> None:
    scene.restore()
    words = [STACKYARD, "--yard", scene.yard, "deploy", scene.new, "--json"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    values = []
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        values.append(json.loads(out))
    assert sorted(v["revisions"][0]["status"] for v in values) == ["published", "unchanged"]
    assert scene.state() == undisturbed
    check_cache(scene)
