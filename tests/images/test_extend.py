"""Packages on top of a base's own Python, in a container of it."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from images.basebed import docker_archive, layer, of_directory, system
from images.python_bed import PY, VENV, VERSION, python_image
from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.images.bases import compile as onbase
from stackyard.images.bases import extend, store
from stackyard.images.bases.compile import Packages
from stackyard.images.bases.container import Box, ContainerSetup
from stackyard.images.bases.extend import Proof
from stackyard.images.bases.model import PythonEnvironment
from stackyard.images.bases.sources import source_of
from stackyard.images.sif import build as sifbuild
from stackyard.inputs.load import load_stack
from stackyard.inputs.models import BuildSpec, Check
from stackyard.inputs.sites.sitemodels import Site
from stackyard.yard.layout import Yard
from support import images, programs, testbed
from support.cli import inside, stackyard

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    programs.need("mksquashfs")
    (tmp_path / "yard").mkdir()
    return Yard(tmp_path / "yard")


def small(yard: Yard, tmp_path: Path, *entries: tuple[str, object], **said: object) -> store.StoredBase:
    archive = docker_archive(tmp_path / "a.tar", [of_directory(system(tmp_path / "root")), layer(entries)], **said)
    return store.add(yard, store.BaseImport(source_of(f"docker-archive:{archive}"), "small"))


def test_the_python_that_is_activated_comes_first(yard: Yard, tmp_path: Path) -> None:
    conda = "opt/conda/envs"
    kept = small(yard, tmp_path, (f"{conda}/a/conda-meta/history", ""), (f"{conda}/b/conda-meta/history", ""),
                 ("usr/bin/python3", "-> ../../bin/busybox"), Env=["WITH_CONDA=. /opt/conda/envs/b"])  # fmt: skip
    assert extend.python_of(kept).path == "/opt/conda/envs/b"
    env = dict(each.partition("=")[::2] for each in extend.environment_of(kept.base, {}))
    assert env["WITH_CONDA"] == ". /opt/conda/envs/b; . /opt/stackyard/venv/bin/activate"
    assert env["PATH"].startswith("/opt/stackyard/venv/bin:/usr/local/sbin:")


def test_a_system_with_and_without_python(yard: Yard, tmp_path: Path) -> None:
    kept = small(yard, tmp_path, ("etc/x", "1"))
    with pytest.raises(InputError, match="the base small has no Python"):
        extend.python_of(kept)
    (tmp_path / "more").mkdir()
    other = small(Yard(tmp_path / "other"), tmp_path / "more", ("usr/bin/python3", "-> ../../bin/busybox"))
    assert (extend.python_of(other).kind, extend.python_of(other).path) == ("system", "/usr")


def test_the_python_on_the_path_that_the_activation_sets(yard: Yard, tmp_path: Path) -> None:
    """The system's own does not win, and neither does an environment that is not activated."""
    root, other = python_image(tmp_path / "python"), "/opt/conda"
    shutil.copytree(root / PY[1:], root / other[1:], symlinks=True)
    (root / "usr/bin").mkdir(exist_ok=True)
    for path, text in (
        ("usr/bin/python3", "#!/bin/sh\necho /usr /usr 3.9.1 | tr ' ' '\\n'\n"),
        (f"{other[1:]}/conda-meta/history", ""),
    ):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    (root / "usr/bin/python3").chmod(0o755)
    (root / "bin/tr").symlink_to("busybox")
    version = ".".join(map(str, sys.version_info[:3]))
    archive = docker_archive(tmp_path / "a.tar", [of_directory(root)], Env=["PATH=/usr/bin:/bin"])
    kept = store.add(yard, store.BaseImport(source_of(f"docker-archive:{archive}"), "system"))
    with mock.patch.dict(os.environ, images.environ()):
        for number, (activation, found) in enumerate((
            (f"export PATH={PY}/bin:$PATH", PythonEnvironment("system", PY, version)),
            (f"export PATH={other}/bin:$PATH", PythonEnvironment("conda", other, version)),
            (f"export PATH={VENV}/bin:$PATH", PythonEnvironment("venv", VENV, version)),
            ("", PythonEnvironment("conda", other)),
        )):  # fmt: skip
            (tmp_path / str(number)).mkdir()
            box = Box(images.apptainer(), kept, tmp_path / str(number), ContainerSetup(activation))
            with mock.patch("stackyard.images.bases.container.VENV", "/opt/none"):
                box.prepare()
            assert extend.python_in(box) == found, activation
    ours = ("--yard", yard.root, "image", "extend", "system", "--name", "more", "--pip", "idna", "--dry-run")
    assert " on conda /opt/conda of system" in inside(*ours).out
    (tmp_path / "site.yaml").write_text(f"bases: {{system: {{activate: 'export PATH={PY}/bin:$PATH'}}}}\n")
    assert "the Python on the PATH that its activation sets" in inside("--site", tmp_path / "site.yaml", *ours).out


@pytest.mark.parametrize(("missing", "files"), [("ensurepip", {"pyvenv.cfg"}), ("venv", {"bin"})])
def test_a_python_without_what_makes_environments(yard: Yard, tmp_path: Path, missing: str, files: set[str]) -> None:
    """Debian's has no ensurepip: it is a virtual environment all the same, with the pip of the base."""
    root = python_image(tmp_path / "python")
    shutil.rmtree(root / PY[1:] / "lib" / VERSION / missing)
    shutil.rmtree(root / VENV[1:])
    kept = small_of(yard, tmp_path, root)
    with mock.patch.dict(os.environ, images.environ()):
        (tmp_path / "work").mkdir()
        box = Box(images.apptainer(), kept, tmp_path / "work", ContainerSetup(f"export PATH={PY}/bin:$PATH"))
        box.prepare()
        options, variables = extend._environment(box, extend.python_in(box), {})
        assert {path.name for path in box.venv.iterdir()} >= files
        is_virtual = missing == "ensurepip"
        assert (box.venv / "pyvenv.cfg").exists() == (not options) == ("VIRTUAL_ENV" in variables) == is_virtual


def small_of(yard: Yard, tmp_path: Path, root: Path) -> store.StoredBase:
    archive = docker_archive(tmp_path / "a.tar", [of_directory(root)], Env=["PATH=/usr/bin:/bin"])
    return store.add(yard, store.BaseImport(source_of(f"docker-archive:{archive}"), "system"))


def test_the_path_of_a_base_names_its_python(yard: Yard, tmp_path: Path) -> None:
    entries = (("opt/py/bin/python", "-> /bin/busybox"), ("usr/bin/python3", "-> ../../bin/busybox"))
    kept = small(yard, tmp_path, *entries, Env=["PATH=/opt/py/bin:/usr/bin"])
    assert extend.python_of(kept) == PythonEnvironment("system", "/opt/py")


def test_without_a_runtime_it_says_so(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = small(yard, tmp_path, ("usr/bin/python3", "-> ../../bin/busybox"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="neither apptainer nor singularity found"):
        extend.extend(yard, kept, "more", Packages(("idna",)), Proof(lambda *_: None, lambda _: None))


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


FILE = """\
name: more
environment: {dependencies: [python, {pip: ["mine==1", idna]}]}
build:
  tools: [{name: sh, variable: SHELL_OF_BASE}]
  packages:
    mine:
      requires: [setuptools, wheel]
      patches: [mine.patch]
      variables: {SAYS: "{env:GIVEN}/{ncores}"}
checks: [{name: mine, run: [python, -c, "import mine; print(mine.x)"], expect: patched}]
"""
PATCH = "--- a/mine.py\n+++ b/mine.py\n@@ -1 +1 @@\n-x = 'plain'\n+x = 'patched'\n"
SETUP = """\
import os, setuptools
assert os.path.isdir(os.environ["SAYS"].rpartition("/")[0]), os.environ["SAYS"]
assert os.environ["SHELL_OF_BASE"].endswith("/bin/sh")
setuptools.setup(name="mine", version="1", py_modules=["mine"])
"""


def written(directory: Path, text: str = FILE) -> Path:
    """A file for a base, with its patch."""
    (directory / "mine.patch").write_text(PATCH)
    (directory / "more.yaml").write_text(text)
    return directory / "more.yaml"


def source(directory: Path) -> Path:
    """A directory with a package as source, and what it is built with."""
    directory.mkdir()
    entries = (("setup.py", SETUP), ("mine.py", "x = 'plain'\n"), ("PKG-INFO", "Name: mine\nVersion: 1\n"))
    (directory / "mine-1.tar").write_bytes(layer([(f"mine-1/{name}", text) for name, text in entries]))
    (directory / "mine-1.tar.gz").write_bytes(gzip.compress((directory / "mine-1.tar").read_bytes()))
    return directory


def test_what_a_file_asks_for(tmp_path: Path) -> None:
    (variant,) = load_stack(written(tmp_path), Site()).variants
    packages = onbase.of_variant(variant, "linux-64")
    assert packages.requirements == ("mine==1", "idna") and packages.checks[0].expect == "patched"
    assert set(packages.recipe) == {"more.yaml", "mine.patch"}
    places = packages.with_places({"GIVEN": str(tmp_path)}).given.places
    assert places == (tmp_path,) and packages.with_places({"GIVEN": "/"}).given.places == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{dependencies: [numpy, {pip: [idna]}]}", "numpy"),
        ("{dependencies: [python]}", "no pip packages"),
        ("{dependencies: [{pip: [./mine]}]}", "/mine"),
        ("{dependencies: [{pip: [idna, --pre]}]}", "the options of its pip section"),
    ],
)
def test_what_is_not_for_a_base_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/setup.py").touch()
    file = written(tmp_path, f"name: more\nenvironment: {text}\n")
    (variant,) = load_stack(file, Site()).variants
    with pytest.raises(InputError, match=f"cannot install .*more.yaml on a base: .*{message}"):
        onbase.of_variant(variant, "linux-64")


def test_what_the_command_line_says_wrong(yard: Yard, tmp_path: Path) -> None:
    small(yard, tmp_path, ("usr/bin/python3", "-> ../../bin/busybox"))
    ours = ("--yard", yard.root, "image", "extend", "small", "--name", "more")
    for words, message in (
        ((), "no packages given"),
        (("--pip", "idna", "--bind", tmp_path / "none"), "no such directory"),
        (("--pip", "idna", "--env", "A"), "not a variable: A"),
        ((written(tmp_path, f"{FILE}matrix: {{python: ['3.11', '3.12']}}\n"),), "has 2 variants"),
    ):
        assert message in inside(*ours, *words, expect=2).err
    told = inside(*ours, written(tmp_path), "--dry-run").out
    assert told == "would install mine==1 idna on system /usr of small, as more\n"


def test_what_does_not_pass_is_not_kept(yard: Yard, tmp_path: Path) -> None:
    """A program that the base lacks, a version that differs, a check that fails, one for another machine."""
    kept = small(yard, tmp_path, ("etc/x", "1"), ("bin/cmake", {"mode": 0o755}))
    tools = BuildSpec.model_validate({"tools": [{"name": "nvcc"}, {"name": "cmake", "version": ">=3"}]})
    packages = Packages((), build=tools, checks=(Check(name="a", run=("cat", "/etc/x")),))
    (tmp_path / "work").mkdir()
    with mock.patch.dict(os.environ, images.environ()):
        box = Box(images.apptainer(), kept, tmp_path / "work", ContainerSetup("echo to nobody", ("export B=2",)))
        box.prepare()
        assert box.activated() == {} and box.run("env").stdout.count("B=2\n") == 1
        building = onbase.BaseBuild(box, PythonEnvironment("system", "/usr"), packages, {})
        with pytest.raises(MissingError, match=r"nvcc not found on PATH; cmake of unknown version .*, not >=3"):
            onbase.require_tools(building)
        assert onbase.require_checks(building, {}, lambda _, done: done.stdout.strip() and None, lambda _: None) == []
        assert onbase.require_checks(building, {}, lambda *_: "bad", lambda _: "no GPU") == ["skipped: a: no GPU"]
        with pytest.raises(StackyardError, match="check failed: a: bad"):
            onbase.require_checks(building, {}, lambda *_: "bad", lambda _: None)
        packages = Packages((), checks=(Check(name="b", run=("cat", "/none"), required=False),))
        building = onbase.BaseBuild(box, PythonEnvironment("system", "/usr"), packages, {})
        notices = onbase.require_checks(building, {}, lambda _, done: done.returncode and "bad", lambda _: None)
        assert notices == ["not passed: b: bad"]
        wrong = Box(images.apptainer(), kept, tmp_path / "work", ContainerSetup("echo not yet; exit 9"))
        with pytest.raises(StackyardError, match="cannot activate the base small: exited with status 9") as caught:
            extend.activated(wrong)
    assert "not yet" in str(caught.value.detail)


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
    archive = docker_archive(tmp_path / "a.tar", [of_directory(images.image_directory()), own])
    kept = store.add(yard, store.BaseImport(source_of(f"docker-archive:{archive}"), "system"))
    wheels, env = testbed.wheels(testbed.HERE / "wheels.txt"), images.environ()
    given = {"PATH": env["PATH"], "APPTAINER_USERNS": "1", "PIP_NO_INDEX": "1", "GIVEN": str(tmp_path)}
    (tmp_path / "site.yaml").write_text("bases: {system: {activate: 'export ACTIVATED=$PYTHONNOUSERSITE; echo on'}}\n")
    both = ("--yard", yard.root, "--site", tmp_path / "site.yaml")
    ours = (*both, "image", "extend", "system", "--find-links", wheels, "--find-links", source(tmp_path / "source"))
    file = written(tmp_path)
    value = stackyard(*ours, file, "--name", "more", "--pip", "six", "--env", "A=b", "--json", **given).value
    assert value["layers"][:2] == [vars(each) for each in kept.base.layers] and len(value["layers"]) == 3
    assert value["source"].startswith("base:system@sha256:") and value["source"].endswith("with mine==1 idna six")
    labels = value["defaults"]["labels"]
    assert [each.partition("=")[0] for each in labels["io.stackyard.packages"].split()][:3] == ["idna", "mine", "pip"]
    assert "mine.patch=" in labels["io.stackyard.recipe"] and "ACTIVATED=1" in value["defaults"]["env"]
    file = tmp_path / "more.sif"
    stackyard("--yard", yard.root, "image", "build", "--base", "more", "--format", "sif", "-o", file)
    code = (
        "import idna, inbase, mine, os, sys; "
        "print(idna.encode('ö.de').decode(), inbase.x, mine.x, os.environ['ACTIVATED'], sys.prefix, idna.__cached__)"
    )
    words = ("apptainer", "-q", "exec", "--no-home", "--no-mount", "tmp,cwd", "--pwd", "/", file)
    done = subprocess.run([*words, "python", "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.startswith("xn--nda.de of the base patched 1 /opt/stackyard/venv /opt/stackyard/venv/lib"), (
        done.stderr
    )
    done = stackyard(*ours, "--name", "none", "--pip", "no-such-package", expect=1, **given)
    assert "cannot install no-such-package on the base system" in done.err and "No matching distribution" in done.err
    assert not yard.base("none").root.exists()
    done = stackyard(*both, "image", "extend", "more", "--name", "none", "--pip", "idna", expect=2, **given)
    assert "the base more has packages on top already" in done.err
