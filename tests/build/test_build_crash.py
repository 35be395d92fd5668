"""A build that is killed at any point leaves nothing that is taken for finished, and the next one ends the same."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from buildbed import build, conda_packages, locked
from test_build_wheels import sdist

from stackyard.build.audit import audit
from stackyard.build.tree import tree_hash
from stackyard.lock.model import LockedVariant, PipPackage
from stackyard.spec.models import BuildSpec, PackageBuild, Variant
from stackyard.yard.layout import RevisionPaths, Yard
from support.channel import PLACEHOLDER, Package, make_channel

POINTS = [
    "fetch:1", "fetch:3", "extract:1", "extract:2", "extract:4", "link:1", "link:3", "link:5", "link:8", "link:9",
    "wheel:1", "wheel:2", "bytecode:1", "bytecode:2", "cache:1", "cache:2", "cache:4", "write:2", "write:4",
    "marker-before:1", "marker-after:1",
]  # fmt: skip
VARIANT = Variant(stack="demo", version="1.0", name="py311", build=BuildSpec(packages={"tiny": PackageBuild()}))
BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(folder + "/tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "V = 1")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\\n")
    return "tiny-1.0-py3-none-any.whl"
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture(scope="module")
def lock(wheelhouse: dict[str, PipPackage], tmp_path_factory: pytest.TempPathFactory) -> LockedVariant:
    source = sdist(tmp_path_factory.mktemp("src"), {"pyproject.toml": PROJECT, "backend.py": BACKEND}, "tiny")
    files = {f"share/{n}": f"{n} " * 9000 for n in range(40)}
    made = [Package(f"tool{n}", "1.0", files={**files, f"bin/tool{n}": f"#!{PLACEHOLDER}/bin/x\n"}) for n in range(4)]
    made[1:] = [
        Package(p.name, p.version, files={f"share/{p.name}/{k}": v for k, v in p.files.items()}) for p in made[1:]
    ]
    conda = conda_packages(make_channel(tmp_path_factory.mktemp("channel"), made))
    return locked(conda, [*(wheelhouse[n] for n in ("six", "idna", "packaging")), source])


@pytest.fixture(scope="module")
def undisturbed(lock: LockedVariant, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which all of these builds happen, and the hash of the prefix that nobody disturbed."""
    root = tmp_path_factory.mktemp("crash") / "yard"
    return root, tree_hash(Path(build(Yard(root), lock, VARIANT).prefix))


def killed(yard: Yard, lock: LockedVariant, point: str) -> None:
    """Build in a process of its own that is killed at the point."""
    job = yard.root.parent / "job.pickle"
    job.write_bytes(pickle.dumps((yard, lock, VARIANT)))
    code = (
        "import pickle, buildbed\nfrom stackyard.build import bytecode\nbytecode._BATCH = 5\n"
        f"buildbed.build(*pickle.loads(open({str(job)!r}, 'rb').read()))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "STACKYARD_FAULT": point, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, f"{point} was never passed: {done.stderr}"


@pytest.mark.parametrize("point", POINTS)
def test_the_next_build_ends_as_an_undisturbed_one(
    lock: LockedVariant, undisturbed: tuple[Path, str], point: str
) -> None:
    root, expected = undisturbed
    shutil.rmtree(root)
    yard = Yard(root)
    killed(yard, lock, point)
    paths = RevisionPaths(root / "stacks/demo/1.0-py311-1")
    assert paths.record.exists() == point.startswith("marker-after")
    assert audit(yard) == []
    record = build(yard, lock, VARIANT)
    assert tree_hash(Path(record.prefix)) == expected
    assert audit(yard) == []
    assert not paths.building.exists()
    assert not list(root.rglob(".build-*")), "scratch space of a killed compilation is taken over"
