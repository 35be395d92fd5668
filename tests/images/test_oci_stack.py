"""A deployed stack as an OCI image: run by each runtime, built again from its recipe, and from the other form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import oci_bed as bed
import pytest
import rattler

from stackyard.core.errors import MissingError
from stackyard.images.oci.layout import Reference, image
from support import images, programs, testbed, usernsroot
from support.cli import Done, inside, stackyard

pytestmark = [pytest.mark.real, pytest.mark.long]
CODE = (
    "import idna, sys, sysconfig; print(idna.encode('ö.de').decode(), sys.prefix, sysconfig.get_config_var('LIBDIR'))"
)
SAYS = ["xn--nda.de", bed.PLACE, f"{bed.PLACE}/lib"]


def extensions() -> list[str]:
    """Modules that are linked to all that the base has to have: this Python's and rattler's; and numpy's library."""
    found = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
    compilers = subprocess.run(["gcc", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=True)
    return [compilers.stdout.strip(), *map(str, found), *map(str, Path(rattler.__file__).parent.glob("*.so"))]


def mounted() -> list[Path]:
    """What an installation reads of this machine: the channel, and how its package index is reached."""
    there = [place for name in ("/etc/pip.conf", "/etc/ssl") if (place := Path(name)).exists()]
    return [testbed.real_channel(), *there]


@dataclass(frozen=True)
class Bed:
    """A yard with a conda stack, and a base with a shell and the C library."""

    directory: Path
    base: Reference

    def stackyard(self, *words: str | Path, expect: int = 0) -> Done:
        home, node = str(self.directory / "home"), str(self.directory)
        run = stackyard if words[0] == "deploy" else inside
        return run("--yard", self.directory / "yard", *words, expect=expect, HOME=home, STACKYARD_TMP=node)

    def deploy(self, *dependencies: str, version: str = "1", form: str = "prefix") -> None:
        file = self.directory / "stack.yaml"
        listed = ", ".join(("python=3.11", "numpy", "pytest", "pip", *dependencies))
        file.write_text(
            f"name: demo\nversion: '{version}'\nimage: {form}\nenvironment:\n"
            f"  channels: ['{testbed.real_channel().as_uri()}', nodefaults]\n  dependencies: [{listed}]\n"
        )
        self.stackyard("deploy", file)

    def build(self, rev: str, target: str, *words: str) -> dict[str, object]:
        base = ("--format", "oci", "--base", str(self.base), "-o", self.directory / target)
        value: dict[str, object] = self.stackyard("image", "build", rev, *base, "--json", *words).value
        return value


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Iterator[Bed]:
    programs.need("gcc")
    directory = tmp_path_factory.mktemp("oci")
    (directory / "home").mkdir()
    made = Bed(directory, bed.base(directory, ("sh", "cat", *extensions()), "system", mounted()))
    made.deploy("idna=3.9")
    yield made
    subprocess.run(["pkill", "-9", "-f", f"squashfuse_ll .*{directory}/"], check=False)


def test_it_runs_at_its_new_path_and_has_its_environment(stack: Bed, tmp_path: Path) -> None:
    programs.need("ch-run")
    made = stack.build("demo/1-py311-1", "layout")
    told = " ".join(made["notices"])  # type: ignore[call-overload]
    assert "still with a path" not in told and "libraries that neither" not in told, told
    found = image(Reference(stack.directory / "layout", "demo-1-py311-1"))
    titles = {each.annotations.get("org.opencontainers.image.title") for each in found.layers}
    assert {"python", "numpy"} <= titles
    root = bed.unpacked(Reference(stack.directory / "layout", "demo-1-py311-1"), tmp_path / "root")
    (tmp_path / "env").write_text("\n".join(found.settings["config"]["Env"]) + "\n")
    words = ["ch-run", "--unset-env=*", f"--set-env={tmp_path}/env", root, "--", "python", "-c", CODE]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "USER": "root"})
    assert done.stdout.split() == SAYS, done.stderr
    words[-3:] = ["pytest", "--version"]
    assert subprocess.run(words, capture_output=True, check=False, env={**os.environ, "USER": "root"}).returncode == 0


def test_both_forms_of_a_revision_give_the_same_layers(stack: Bed) -> None:
    programs.need("mksquashfs", "squashfuse")
    stack.build("demo/1-py311-1", "layout")
    stack.deploy("idna=3.10", version="20", form="squashfs")
    second = stack.build("demo/20-py311-1", "layout")
    one, two = (
        bed.titled(Reference(stack.directory / "layout", name)) for name in ("demo-1-py311-1", "demo-20-py311-1")
    )
    assert {title for title in one if one[title] == two.get(title)} >= {"base", "numpy", "python", "pytest"}
    stack.stackyard("image", "push", "demo/20-py311-1", f"oci:{stack.directory}/pushed:2", "--base", str(stack.base))
    assert image(Reference(stack.directory / "pushed", "2")).manifest.digest == second["digest"]
    assert second["bytes_new"] < 0.2 * second["bytes"]  # type: ignore[operator]


def test_a_dry_run_and_what_is_asked_wrongly(stack: Bed, tmp_path: Path) -> None:
    words = ["image", "build", "demo/1-py311-1", "--format", "oci", "-o", tmp_path / "x", "--base"]
    said = stack.stackyard(*words, str(stack.base), "--dry-run").out
    assert bed.PLACE in said and not (tmp_path / "x").exists()
    assert "error: no such base in " in stack.stackyard(*words, "none", expect=2).err
    push = stack.stackyard("image", "push", "demo/1-py311-1", f"oci:{tmp_path}/x:1", expect=2)
    assert "no base given" in push.err
    base = "docker://debian@sha256:abc"
    recipe = stack.stackyard("recipe", "demo/1-py311-1", "--as", "def", "--base", base, "-o", tmp_path / "r", expect=2)
    assert "error: invalid digest: sha256:abc\n" in recipe.err


# --------------------------------------------------------------------------- each runtime


def test_apptainer_runs_it(stack: Bed, tmp_path: Path) -> None:
    try:
        environ = images.environ(TMPDIR=str(tmp_path))
    except MissingError as error:
        pytest.skip(str(error))
    stack.build("demo/1-py311-1", "for-apptainer", "--compression", "zstd")
    packing = ["--mksquashfs-args", "-comp zstd -Xcompression-level 1"]
    for words in (
        ["build", *packing, "x.sif", f"oci:{stack.directory}/for-apptainer"],
        ["exec", "x.sif", "python", "-c", CODE],
    ):
        done = subprocess.run(["apptainer", "-q", *words], cwd=tmp_path, env=environ, capture_output=True, text=True,
                              check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == SAYS


def test_podman_runs_it(stack: Bed) -> None:
    programs.need("podman", "runc")
    stack.build("demo/1-py311-1", "for-podman", "--compression", "zstd")
    limits = ["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="p") as store:  # its own paths have to be short
        podman = ["podman", "--root", f"{store}/root", "--runroot", f"{store}/run", "--storage-driver", "overlay",
                  "--runtime", "runc", "--cgroup-manager", "cgroupfs"]  # fmt: skip
        pulled = subprocess.run([*podman, "pull", "-q", f"oci:{stack.directory}/for-podman"], capture_output=True,
                                text=True, check=False)  # fmt: skip
        assert pulled.returncode == 0, pulled.stderr
        words = [*podman, "run", "--rm", *limits, pulled.stdout.strip(), "python", "-c", CODE]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        subprocess.run(["umount", f"{store}/root/overlay"], capture_output=True, check=False)
    assert done.stdout.split() == SAYS, done.stderr


# --------------------------------------------------------------------------- recipes


def test_a_recipe_names_each_package_by_its_hash(stack: Bed, tmp_path: Path) -> None:
    words = ["recipe", "demo/1-py311-1", "--base", "docker://debian@sha256:" + "0" * 64, "--as"]
    stack.stackyard(*words, "containerfile", "-o", tmp_path / "c")
    stack.stackyard(*words, "def", "-o", tmp_path / "d")
    text, definition = (tmp_path / "c/Containerfile").read_text(), (tmp_path / "d/stack.def").read_text()
    assert f"FROM debian@sha256:{'0' * 64}\n" in text and f'ENV PATH="{bed.PLACE}/bin:${{PATH}}"\n' in text
    assert f"Bootstrap: docker\nFrom: debian@sha256:{'0' * 64}\nStage: final\n" in definition
    assert f'    export PATH="{bed.PLACE}/bin:$PATH"\n' in definition
    packages = json.loads((tmp_path / "c/packages.json").read_text())["conda"]
    assert {len(each["sha256"]) for each in packages} == {64} and {"python", "numpy"} <= {p["name"] for p in packages}
    assert str(stack.directory) not in text + definition
    assert "has other files" in stack.stackyard(*words, "def", "-o", tmp_path / "c", expect=2).err
    other = stack.stackyard(
        "recipe", "demo/1-py311-1", "--base", "folder:x", "--as", "def", "-o", tmp_path / "e", expect=2
    )
    assert "not a base that others can name" in other.err


@pytest.mark.parametrize("kind", ["containerfile", "def"])
def test_a_recipe_gives_the_same_files_elsewhere(stack: Bed, tmp_path: Path, kind: str) -> None:
    """Built by buildah, or Apptainer, which know nothing of the yard: every file but notes and bytecode is the same.

    So this compares what is moved to another path with what the installers install there.
    """
    stack.build("demo/1-py311-1", "layout")
    wanted = bed.unpacked(Reference(stack.directory / "layout", "demo-1-py311-1"), tmp_path / "wanted", below=1)
    stack.build("demo/1-py311-1", "tools", "--prefix", "/opt/tools")
    builder = f"oci:{stack.directory}/tools" + (":demo-1-py311-1" if kind == "containerfile" else "")
    base = str(stack.base).rpartition(":")[0]
    words = ["recipe", "demo/1-py311-1", "--as", kind, "--builder", builder, "--base", base]
    stack.stackyard(*words, "-o", tmp_path / "recipe")
    build = _buildah if kind == "containerfile" else _apptainer
    found = build(tmp_path, mounted())
    left = subprocess.run(
        ["diff", "-rq", found, wanted / bed.PLACE.lstrip("/")], capture_output=True, text=True, check=False
    )
    lines = [line for line in left.stdout.splitlines() if ".pyc differ" not in line and "conda-meta" not in line]
    assert [line.rpartition(": ")[2] for line in lines] == [".stackyard", "EXTERNALLY-MANAGED"], left.stdout
    assert (found / "bin/python").exists()


def _buildah(tmp_path: Path, mounts: list[Path]) -> Path:
    store = ["--root", tmp_path / "root", "--runroot", tmp_path / "run", "--storage-driver", "overlay"]
    buildah = [programs.need("buildah"), *store]
    volumes = [word for mount in mounts for word in ("--volume", f"{mount}:{mount}:ro")]
    built = subprocess.run([*buildah, "bud", "--isolation", "chroot", *volumes, "--tag", "out", tmp_path / "recipe"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    _may_lack_the_index(built)
    name = subprocess.run([*buildah, "from", "--pull-never", "out"], capture_output=True, text=True, check=True).stdout
    copied = tmp_path / "copied"
    script = f'cp -a "$({" ".join(map(str, buildah))} mount {name.strip()})"{bed.PLACE} {copied}'
    subprocess.run(["sh", "-ec", script], check=True)
    subprocess.run([*buildah, "rm", name.strip()], check=True, capture_output=True)
    return copied


def _apptainer(tmp_path: Path, mounts: list[Path]) -> Path:
    try:
        environ = images.environ(TMPDIR=str(tmp_path))
    except MissingError as error:
        pytest.skip(str(error))
    if os.geteuid() != 0:
        pytest.skip("building a definition needs root")
    binds = [word for mount in mounts for word in ("--bind", f"{mount}:{mount}:ro")]
    argv = ["apptainer", "build", "--sandbox", *binds, tmp_path / "box", "stack.def"]
    built = subprocess.run([sys.executable, usernsroot.__file__, *argv], cwd=tmp_path / "recipe", env=environ,
                           capture_output=True, text=True, check=False)  # fmt: skip
    _may_lack_the_index(built)
    return tmp_path / "box" / bed.PLACE.lstrip("/")


def _may_lack_the_index(built: subprocess.CompletedProcess[str]) -> None:
    said = built.stdout + built.stderr
    if built.returncode and "No matching distribution found" in said:
        pytest.skip("the index has no py-rattler or uv that pip can fetch")
    assert built.returncode == 0, said[-4000:]


def test_what_others_cannot_have_is_no_recipe(tmp_path: Path) -> None:
    programs.need("bash")
    file = tmp_path / "stack.yaml"
    (tmp_path / "post.sh").write_text("touch $PREFIX/made\n")
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    file.write_text(
        f"name: demo\nversion: '1'\npost: post.sh\nenvironment:\n"
        f"  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
    )
    stackyard("--yard", tmp_path / "yard", "deploy", file)
    words = ["recipe", "demo", "--as", "def", "--base", "docker://x", "-o", tmp_path / "r"]
    done = stackyard("--yard", tmp_path / "yard", *words, expect=2)
    assert "no recipe builds demo/1" in done.err and "it has a post script" in done.err and "image push" in done.err
    assert not (tmp_path / "r").exists()
