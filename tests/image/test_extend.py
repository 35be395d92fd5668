"""Packages on top of a base's own Python, in a container of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from image.basebed import docker_archive, layer, of_folder, system
from stackyard.errors import InputError, MissingError
from stackyard.image import extend, sifbuild
from stackyard.image.bases import store
from stackyard.image.bases.sources import source_of
from stackyard.yard.layout import Yard
from support import images, programs, testbed
from support.cli import stackyard

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    programs.need("mksquashfs")
    (tmp_path / "yard").mkdir()
    return Yard(tmp_path / "yard")


def small(yard: Yard, tmp_path: Path, *entries: tuple[str, object], **said: object) -> store.Kept:
    archive = docker_archive(tmp_path / "a.tar", [of_folder(system(tmp_path / "root")), layer(entries)], **said)
    return store.add(yard, store.Wanted(source_of(f"docker-archive:{archive}"), "small"))


def test_the_python_that_is_activated_comes_first(yard: Yard, tmp_path: Path) -> None:
    conda = "opt/conda/envs"
    kept = small(yard, tmp_path, (f"{conda}/a/conda-meta/history", ""), (f"{conda}/b/conda-meta/history", ""),
                 ("usr/bin/python3", "-> ../../bin/busybox"), Env=["WITH_CONDA=. /opt/conda/envs/b"])  # fmt: skip
    assert extend.python_of(kept).path == "/opt/conda/envs/b"
    env = dict(each.partition("=")[::2] for each in extend.environment_of(kept.base))
    assert env["WITH_CONDA"] == ". /opt/conda/envs/b; . /opt/stackyard/venv/bin/activate"
    assert env["PATH"].startswith("/opt/stackyard/venv/bin:/usr/local/sbin:")


def test_a_system_with_and_without_python(yard: Yard, tmp_path: Path) -> None:
    kept = small(yard, tmp_path, ("etc/x", "1"))
    with pytest.raises(InputError, match="the base small has no Python"):
        extend.python_of(kept)
    (tmp_path / "more").mkdir()
    other = small(Yard(tmp_path / "other"), tmp_path / "more", ("usr/bin/python3", "-> ../../bin/busybox"))
    assert (extend.python_of(other).kind, extend.python_of(other).path) == ("system", "/usr")


def test_without_a_runtime_it_says_so(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = small(yard, tmp_path, ("usr/bin/python3", "-> ../../bin/busybox"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="neither apptainer nor singularity found"):
        extend.extend(yard, kept, "more", extend.Packages(("idna",)))


def test_a_base_alone_is_a_sif_too(yard: Yard, tmp_path: Path) -> None:
    kept = small(yard, tmp_path, ("etc/x", "1"), Env=["A=from the base"])
    for name in ("a", "b"):
        sifbuild.build_base(kept, tmp_path / f"{name}.sif")
    assert (tmp_path / "a.sif").read_bytes() == (tmp_path / "b.sif").read_bytes()
    assert len(sifbuild.check(tmp_path / "a.sif")) == 2
    images.apptainer()
    words = ["apptainer", "-q", "exec", "--no-home", "--no-mount", "tmp,cwd", "--pwd", "/", tmp_path / "a.sif", "env"]
    out = subprocess.run(words, capture_output=True, text=True, env=images.environ(), check=True).stdout
    assert "A=from the base\n" in out and "LD_LIBRARY_PATH=/.singularity.d/libs\n" in out


@pytest.mark.long
def test_a_package_on_top_of_a_virtual_environment(yard: Yard, tmp_path: Path) -> None:
    """It sees what the base's environment has, bytecode is that of its source, and the base's layers are unchanged."""
    images.apptainer()
    home, version = Path(sys.base_prefix, "bin"), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = f"opt/venv/lib/{version}/site-packages"
    own = layer([
        ("opt/venv/pyvenv.cfg", f"home = {home}\ninclude-system-site-packages = false\nversion = 3.11\n"),
        ("opt/venv/bin/python", f"-> {home}/{version}"), (f"{site}/inbase.py", "x = 'of the base'\n"),
    ])  # fmt: skip
    archive = docker_archive(tmp_path / "a.tar", [of_folder(images.image_folder()), own])
    kept = store.add(yard, store.Wanted(source_of(f"docker-archive:{archive}"), "system"))
    wheels, env = testbed.wheels(testbed.HERE / "wheels.txt"), images.environ()
    given = {"PATH": env["PATH"], "APPTAINER_USERNS": "1", "PIP_NO_INDEX": "1"}
    ours = ("--yard", yard.root, "image", "extend", "system", "--find-links", wheels)
    value = stackyard(*ours, "--name", "more", "--pip", "idna", "--env", "A=b", "--json", **given).value
    assert value["layers"][:2] == [vars(each) for each in kept.base.layers] and len(value["layers"]) == 3
    assert value["source"].startswith("base:system@sha256:") and value["source"].endswith("with idna")
    assert value["defaults"]["labels"]["io.stackyard.packages"].startswith("idna=")
    file = tmp_path / "more.sif"
    stackyard("--yard", yard.root, "image", "build", "--base", "more", "--format", "sif", "-o", file)
    code = "import idna, inbase, sys; print(idna.encode('ö.de').decode(), inbase.x, sys.prefix, idna.__cached__)"
    words = ("apptainer", "-q", "exec", "--no-home", "--no-mount", "tmp,cwd", "--pwd", "/", file)
    done = subprocess.run([*words, "python", "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.startswith("xn--nda.de of the base /opt/stackyard/venv /opt/stackyard/venv/lib"), done.stderr
    done = stackyard(*ours, "--name", "none", "--pip", "no-such-package", expect=1, **given)
    assert "cannot install no-such-package on the base system" in done.err and "No matching distribution" in done.err
    assert not yard.base("none").root.exists()
