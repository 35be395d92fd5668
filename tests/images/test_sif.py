"""SIF files: what others read of them, what runs in them, what is refused before one is written, what a kill leaves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.basebed import docker_archive, layer, of_directory, system
from stackyard.core.change import Default, EnvironmentChange, Flags, Operation, Prepend, SetRestorable, UserPath
from stackyard.core.errors import ChecksFailed, InputError, MissingError, StackyardError
from stackyard.images import room
from stackyard.images.bases import fit, store
from stackyard.images.bases.model import PythonEnvironment
from stackyard.images.bases.sources import source_of
from stackyard.images.sif import build as sifbuild
from stackyard.images.sif import file as sif
from stackyard.images.sif import inside, overlay, sign
from stackyard.images.squashfs import file as squashfs
from stackyard.inputs.models import Site
from stackyard.yard.kinds.payload import Form
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from support import images, programs, stackrecords
from support.cli import stackyard

pytestmark = [pytest.mark.real, pytest.mark.slow]

CHANGE = EnvironmentChange((
    Prepend("PATH", "/nowhere"), Prepend("MANPATH", "/man", keep_system=True), SetRestorable("PLAIN", "it's $HOME `x`"),
    SetRestorable("GONE", None), Default("KEPT", "d"), Default("NEW", "d e"), Flags("FLAGS", "-O2 -g"),
    UserPath("CACHE", ("SCRATCH", "WORK"), "a b/c", ".cache", ("/site",)),
))  # fmt: skip


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Not below /tmp, which a runtime hides."""
    programs.need("mksquashfs")
    place = Path("/srv" if os.access("/srv", os.W_OK) else tmp_path_factory.mktemp("yard")) / f"sif-{os.getpid()}"
    place.mkdir()
    yield Yard(place)
    subprocess.run(["chmod", "-R", "u+w", place], check=True)
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def base(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> store.StoredBase:
    root = system(tmp_path_factory.mktemp("base") / "root")
    (root / "usr/bin").mkdir()
    (root / "usr/bin/hostpython").symlink_to("../../bin/busybox")
    archive = docker_archive(
        root.parent / "a.tar", [of_directory(root)], Env=["FROM=the base", "PATH=/bin:/usr/bin", "KEPT=b"]
    )
    return store.add(yard, store.BaseImport(source_of(f"docker-archive:{archive}"), "base"))


@pytest.fixture(scope="module")
def record(yard: Yard) -> BuildRecord:
    made = stackrecords.record(yard, "demo", "1")
    prefix = Path(made.prefix)
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/hello").write_text("#!/bin/sh\necho hello from $0\n")
    (prefix / "bin/hello").chmod(0o755)
    (prefix / "share").mkdir()
    (prefix / "share/noise").write_bytes(os.urandom(200_000))
    paths = RevisionPaths.of(made.path)
    paths.lock.parent.mkdir()
    paths.lock.write_text("the lock\n")
    paths.recipe.mkdir()
    (paths.recipe / "stack.yaml").write_text("name: demo\n")
    return made


def build(record: BuildRecord, base: store.StoredBase, file: Path, site: Site | None = None) -> list[str]:
    own = EnvironmentChange((Prepend("PATH", f"{record.prefix}/bin"),))
    return sifbuild.build(sifbuild.SifRequest(record, CHANGE + own, base, file, site or Site()))


@pytest.fixture(scope="module")
def built(record: BuildRecord, base: store.StoredBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sif") / "demo.sif"
    assert build(record, base, file) == []
    return file


def test_the_same_revision_and_base_give_the_same_file(
    record: BuildRecord, base: store.StoredBase, built: Path, tmp_path: Path
) -> None:
    """Also from a revision that is an image, whose image is not packed again."""
    build(record, base, tmp_path / "again.sif")
    assert (tmp_path / "again.sif").read_bytes() == built.read_bytes()
    paths = RevisionPaths.of(record.path)
    packed = squashfs.pack(paths.prefix, paths.image, level=squashfs.QUICK)
    try:
        form = Form("squashfs", "image.sqsh", packed.sha256, packed.size, packed.entries, packed.tool)
        build(replace(record, form=form), base, tmp_path / "image.sif")
    finally:
        paths.image.unlink()
    assert (tmp_path / "image.sif").read_bytes() == built.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.sif", "image.sif"]


def test_it_is_packed_while_what_changes_is_looked_for(
    record: BuildRecord, base: store.StoredBase, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One waits for the other to begin: in turn neither would."""
    packing, staging = threading.Event(), threading.Event()

    def packed(*words: Any) -> None:
        packing.set()
        assert staging.wait(60)
        take(*words)

    def staged(move: overlay.Move) -> list[str]:
        staging.set()
        assert packing.wait(60)
        return stage(move)

    take, stage = overlay._take, overlay.stage
    monkeypatch.setattr(overlay, "_take", packed)
    monkeypatch.setattr(overlay, "stage", staged)
    build(record, base, tmp_path / "again.sif")
    assert (tmp_path / "again.sif").read_bytes() == built.read_bytes()


def test_an_error_of_either_ends_the_build_and_leaves_nothing(
    record: BuildRecord, base: store.StoredBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise StackyardError("this one")

    for name in ("_take", "stage"):
        with monkeypatch.context() as patched, pytest.raises(StackyardError, match="this one"):
            patched.setattr(overlay, name, failing)
            build(record, base, tmp_path / "demo.sif")
        assert not list(tmp_path.iterdir())


def test_what_it_says_of_itself(record: BuildRecord, base: store.StoredBase, built: Path) -> None:
    found = sif.read(built)
    labels = found.labels()
    assert (
        labels["org.opencontainers.image.title"] == record.module
        and "pytorch=2.13.0" in labels["io.stackyard.packages"]
    )
    assert labels["org.opencontainers.image.base.digest"] == base.base.manifest
    assert labels["io.stackyard.recipe"].startswith("stack.yaml=") and len(labels["io.stackyard.lock-sha256"]) == 64
    assert [part.title for part in found.parts] == [
        "definition", "JSON", "primary system partition", "overlay partition", "overlay partition",
    ]  # fmt: skip
    assert {part.architecture for part in found.parts} == {"", "amd64"}
    assert sifbuild.check(built) == ["primary system partition", "overlay partition", "overlay partition"]
    assert os.access(built, os.X_OK)


def test_siftool_reads_it(base: store.StoredBase, built: Path, tmp_path: Path) -> None:
    """Another maker's program finds the base byte for byte, adds to the file and takes away again."""
    programs.need("siftool")
    listed = subprocess.run(["siftool", "list", built], capture_output=True, text=True, check=True).stdout
    assert "Squashfs/*System/amd64" in listed and "Squashfs/Overlay/amd64" in listed and "JSON.Generic" in listed
    dumped = subprocess.run(["siftool", "dump", "3", built], capture_output=True, check=True).stdout
    assert dumped == base.paths.image.read_bytes()
    copy = tmp_path / "copy.sif"
    shutil.copy(built, copy)
    (tmp_path / "note").write_text("hello")
    words = ["siftool", "add", "--datatype", "7", "--groupid", "1", copy, tmp_path / "note"]
    subprocess.run(words, check=True)
    assert sif.read(copy).parts[:5] == sif.read(built).parts and len(sif.read(copy).parts) == 6
    subprocess.run(["siftool", "del", "6", copy], check=True)
    assert sifbuild.check(copy)


def apptainer(*words: str | Path, **variables: str) -> str:
    env = images.environ(**variables)
    done = subprocess.run(
        ["apptainer", "-q", *words], capture_output=True, text=True, env=env, timeout=240, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


APART = ("--no-home", "--no-mount", "tmp,cwd", "--pwd", "/")


def test_it_is_signed(record: BuildRecord, base: store.StoredBase, built: Path, tmp_path: Path) -> None:
    """Apptainer verifies it by the public key, and refuses it with another key, unsigned, and changed."""
    programs.need("openssl")
    environ = images.environ(HOME=str(tmp_path))
    for name in ("key", "other"):
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / f"{name}.pem"], check=True)
        words = ["openssl", "pkey", "-in", tmp_path / f"{name}.pem", "-pubout", "-out", tmp_path / f"{name}.pub"]
        subprocess.run(words, check=True)
    file = tmp_path / "signed.sif"
    own = EnvironmentChange((Prepend("PATH", f"{record.prefix}/bin"),))
    request = sifbuild.SifRequest(record, CHANGE + own, base, file, Site(), "", tmp_path / "key.pem")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/usr/bin:/bin")
        if not shutil.which("apptainer") and not shutil.which("singularity"):
            with pytest.raises(MissingError, match="cannot sign a SIF: apptainer or singularity not found"):
                sifbuild.build(request)
        for name, value in environ.items():
            patch.setenv(name, value)
        sifbuild.build(request)
        sifbuild.build_base(base, tmp_path / "base.sif", tmp_path / "key.pem")

    def verified(sif_file: Path, key: str = "key") -> bool:
        words = ["apptainer", "verify", "--key", tmp_path / f"{key}.pub", sif_file]
        return not subprocess.run(words, env=environ, capture_output=True, check=False).returncode

    assert verified(file) and verified(tmp_path / "base.sif")
    assert not verified(file, "other") and not verified(built)
    assert [part.title for part in sif.read(file).parts][-1] == "signature" and not sif.read(built).signatures
    assert sifbuild.check(file) == sifbuild.check(built)
    (upper,) = sif.read(file).partitions(sif.OVERLAY)[-1:]
    data = bytearray(file.read_bytes())
    data[upper.offset + upper.size // 2] ^= 1
    (tmp_path / "changed.sif").write_bytes(data)
    assert not verified(tmp_path / "changed.sif")
    said = stackyard("image", "inspect", file).out
    assert f"it is signed; `apptainer verify --key PUBLIC.pem {file}` says whether by that key" in said
    assert "signed" not in stackyard("image", "inspect", built).out
    words = ("image", "from", f"sif:{file}", "--name", "signed")
    said = stackyard("--yard", tmp_path / "yard", *words, HOME=str(tmp_path)).err
    assert f"{file} was imported as it is, and its signature not verified" in said


def test_a_key_that_cannot_sign_is_named_before_the_work(built: Path, tmp_path: Path) -> None:
    programs.need("openssl", "ssh-keygen")
    words = ["openssl", "genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:x", "-out", tmp_path / "locked"]
    subprocess.run(words, check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "ssh"], check=True)
    for name, says in (
        ("none", "cannot read the key"), ("ssh.pub", "is not a private key in PEM format"),
        ("ssh", "it is a key of OpenSSH"), ("locked", "it is encrypted, and neither program asks"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says) as caught:
            sign.require(tmp_path / name)
        assert "openssl genpkey -algorithm ed25519" in str(caught.value.hint)
    (tmp_path / "environment.yml").write_text("name: x\ndependencies: [no-such-package]\n")
    words = ["image", "build", tmp_path / "environment.yml", "--base", "x", "--sign", tmp_path / "ssh", "-o", "x"]
    said = stackyard("--yard", tmp_path / "yard", *words, "--format", "sif", expect=2, HOME=str(tmp_path)).err
    assert "it is a key of OpenSSH" in said, "and not that the package is not found"


def test_a_program_of_the_revision_runs_in_it(record: BuildRecord, built: Path) -> None:
    images.apptainer()
    assert apptainer("exec", *APART, built, "hello") == "hello from /opt/stackyard/demo/bin/hello\n"
    assert apptainer("run", *APART, built, "hello").startswith("hello from")
    assert apptainer("exec", *APART, built, "cat", "/etc/os-release") == "ID=small\n"
    given = {"HOME": "/home/x", "SCRATCH": "/scratch", "FLAGS": "-O1", "GONE": "1", "NEW": "my own"}
    out = apptainer("exec", *APART, built, "env", **given)
    seen = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    assert seen["PLAIN"] == "it's $HOME `x`" and seen["CACHE"] == "/scratch/a b/c:/site" and "GONE" not in seen
    assert (seen["FLAGS"], seen["KEPT"], seen["NEW"], seen["FROM"]) == ("-O1 -O2 -g", "b", "my own", "the base")
    assert seen["PATH"].startswith("/opt/stackyard/demo/bin:/nowhere:/bin:/usr/bin")
    assert json.loads(apptainer("inspect", "--json", built))["data"]["attributes"]["labels"] == sif.read(built).labels()
    assert "name: demo" in apptainer("inspect", "--deffile", built)


@pytest.mark.parametrize("place", ["/", "above", "within"])
def test_the_files_of_the_image_run_wherever_it_starts(
    yard: Yard, record: BuildRecord, built: Path, place: str
) -> None:
    """Also where a runtime shows the yard itself, whose files may have changed."""
    images.apptainer()
    planted, program = Path(record.prefix, "share/planted"), Path(record.prefix, "bin/hello")
    cwd = {"/": Path("/"), "above": yard.root.parent, "within": Path(record.prefix)}[place]
    text = program.read_text()
    try:
        planted.touch()
        program.write_text("#!/bin/sh\necho planted\n")
        shown = ["exec", "--no-home", "-B", str(yard.root), "--pwd", str(cwd), built]
        with contextlib.chdir(cwd):
            assert apptainer(*shown, "hello") == "hello from /opt/stackyard/demo/bin/hello\n"
            assert "planted" not in apptainer(*shown, "ls", "/opt/stackyard/demo/share")
    finally:
        planted.unlink()
        program.write_text(text)


def test_a_directory_of_the_host_over_its_files_is_named(built: Path, tmp_path: Path) -> None:
    images.apptainer()
    words = ["apptainer", "-q", "exec", "-B", f"{tmp_path}:/opt/stackyard", built, "/bin/sh", "-c", "echo started"]
    done = subprocess.run(words, capture_output=True, text=True, env=images.environ(), timeout=240, check=False)
    assert done.returncode == 4 and "started" not in done.stdout
    assert "a directory of the host hides /opt/stackyard/demo of this image" in done.stderr
    assert "hint: leave out the bind mount" in done.stderr


def test_a_base_that_names_no_path(yard: Yard, record: BuildRecord, tmp_path: Path) -> None:
    """As debootstrap makes it: programs of the base are found."""
    root = system(tmp_path / "root")
    kept = store.add(yard, store.BaseImport(source_of(f"folder:{root}"), "plain"))
    build(record, kept, tmp_path / "x.sif")
    images.apptainer()
    assert apptainer("exec", *APART, tmp_path / "x.sif", "cat", "/etc/os-release") == "ID=small\n"


def test_another_prefix(record: BuildRecord, base: store.StoredBase, tmp_path: Path) -> None:
    own = EnvironmentChange((Prepend("PATH", f"{record.prefix}/bin"),))
    request = sifbuild.SifRequest(record, own, base, tmp_path / "x.sif", Site(), "/sw/demo")
    sifbuild.build(request)
    assert sif.read(tmp_path / "x.sif").labels()["io.stackyard.prefix"] == "/sw/demo"
    with pytest.raises(InputError, match="not an absolute path"):
        sifbuild.build(replace(request, prefix="sw/../demo"))
    images.apptainer()
    assert apptainer("exec", *APART, tmp_path / "x.sif", "hello") == "hello from /sw/demo/bin/hello\n"


def test_a_python_that_uv_installed_goes_with_it(yard: Yard, base: store.StoredBase, tmp_path: Path) -> None:
    """It is in the yard's cache and not in the prefix, which names it by a link to its directory."""
    images.apptainer()
    pythons = yard.root / "cache/python"
    (pythons / "cpython-3.11.9/bin").mkdir(parents=True)
    (pythons / "cpython-3.11").symlink_to("cpython-3.11.9")
    program = pythons / "cpython-3.11.9/bin/python3.11"
    program.write_text("#!/bin/sh\necho snake\n")
    program.chmod(0o755)
    uv = {"source": "uv", "path": str(pythons / "cpython-3.11/bin/python3.11"), "version": "3.11.9"}
    made = stackrecords.record(yard, "uv", "1", interpreter=uv)
    (Path(made.prefix) / "bin").mkdir(parents=True)
    (Path(made.prefix) / "bin/python").symlink_to(pythons / "cpython-3.11/bin/python3.11")
    build(made, base, tmp_path / "uv.sif")
    assert apptainer("exec", *APART, tmp_path / "uv.sif", "python") == "snake\n"
    shutil.copy(sys.executable, program)
    with pytest.raises(InputError, match=r"needs glibc 2\.\d+ \(bin/python3.11\)"):
        build(made, base, tmp_path / "uv.sif")


def test_bound_libraries_are_found(built: Path, tmp_path: Path) -> None:
    """What CONTAINLIBS, --nv and --rocm bind is on the library path, which takes a script in the image."""
    images.apptainer()
    (tmp_path / "libx.so.1").write_text("x")
    bound = {"APPTAINER_CONTAINLIBS": str(tmp_path / "libx.so.1")}
    command = 'for d in $(echo $LD_LIBRARY_PATH | tr : " "); do ls $d; done'
    out = apptainer("exec", *APART, built, "sh", "-c", command.replace("tr", "/bin/busybox tr"), **bound)
    assert "libx.so.1" in out
    both = apptainer("exec", *APART, built, "env", APPTAINERENV_LD_LIBRARY_PATH="/mine", **bound)
    assert "LD_LIBRARY_PATH=/mine:/.singularity.d/libs\n" in both


def test_a_base_without_a_shell(yard: Yard, record: BuildRecord, tmp_path: Path) -> None:
    """What does not work in it is said; Apptainer itself goes as far as starting the program."""
    images.apptainer()
    busybox = programs.need("busybox")
    data = layer([("usr/only", Path(busybox).read_bytes())])
    archive = docker_archive(tmp_path / "a.tar", [data])
    bare = store.add(yard, store.BaseImport(source_of(f"docker-archive:{archive}"), "bare"))
    said = build(record, bare, tmp_path / "bare.sif")
    assert ["no /bin/sh" in sentence for sentence in said] == [True]
    with pytest.raises(AssertionError, match=r"(?i)permission denied"):
        apptainer("exec", *APART, tmp_path / "bare.sif", "/usr/only", "echo")


@pytest.mark.parametrize("environ", [
    {}, {"PATH": "/a:/b", "MANPATH": "/m", "KEPT": "mine", "FLAGS": "-O1", "GONE": "1", "SCRATCH": "/s s"},
    {"WORK": "/w", "HOME": "/h", "CACHE": "own"}, {"MANPATH": "", "FLAGS": "", "SCRATCH": "", "HOME": "/h"},
])  # fmt: skip
@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
def test_the_script_does_what_the_module_does(environ: Mapping[str, str], shell: str, tmp_path: Path) -> None:
    inside.write(tmp_path, [], CHANGE, {})
    script = tmp_path / ".singularity.d/env/95-stackyard.sh"
    given = {"PATH": "/p", **environ}
    program, *rest = shell.split()
    words = [shutil.which(program) or program, *rest, "-c", f". {script}; exec {shutil.which('env')}"]
    out = subprocess.run(words, env=given, capture_output=True, text=True, check=True).stdout
    seen = dict(line.split("=", 1) for line in out.splitlines())
    for own in ("PWD", "SHLVL", "_", "OLDPWD"):
        seen.pop(own, None)
    assert seen == CHANGE.apply(given)


def refused(record: BuildRecord, base: store.StoredBase, file: Path, said: str, site: Site | None = None) -> None:
    with pytest.raises(InputError, match=said):
        build(record, base, file, site)
    assert list(file.parent.iterdir()) == []


def test_a_prefix_for_a_newer_c_library_is_refused(yard: Yard, base: store.StoredBase, tmp_path: Path) -> None:
    made = stackrecords.record(yard, "elf", "1")
    (Path(made.prefix) / "bin").mkdir(parents=True)
    shutil.copy(sys.executable, Path(made.prefix) / "bin/python")
    refused(made, base, tmp_path / "x.sif", r"needs glibc 2\.\d+ \(bin/python\), and the base base has no glibc")
    for version, fits in (("2.5", False), ("2.99", True)):
        software = replace(base.base.software, libc=f"glibc {version}")
        other = replace(base, base=replace(base.base, software=software))
        if fits:
            build(made, other, tmp_path / "x.sif")
        else:
            refused(made, other, tmp_path / "x.sif", rf"the base base has glibc {version}")


def test_what_does_not_fit_is_refused(record: BuildRecord, base: store.StoredBase, tmp_path: Path) -> None:
    file = tmp_path / "x.sif"
    refused(
        replace(record, platform="linux-ppc64le"), base, file, "is for linux-ppc64le, and the base base for linux-64"
    )
    host = {"source": "host", "path": "/usr/bin/python3.11", "version": "3.11"}
    refused(replace(record, interpreter=host), base, file, "uses the interpreter /usr/bin/python3.11 of the machine")
    cuda = {"vendor": "nvidia", "version": "12.4", "path": "/x/libcudart.so.12.4"}
    gpu = replace(base, base=replace(base.base, software=replace(base.base.software, toolkits=(cuda,))))
    old = {"platform": "linux-64", "gpu": {"count": 1, "vendor": "nvidia", "driver": "450.80.02"}}
    new = {"platform": "linux-64", "gpu": {"count": 1, "vendor": "nvidia", "driver": "550.54.14"}}
    refused(record, gpu, file, "450.80.02 of node kind a is too old", Site.model_validate({"nodes": {"a": old}}))
    said = build(record, gpu, file, Site.model_validate({"nodes": {"a": old, "b": new}}))
    assert "450.80.02 of node kind a is too old" in said[0]
    linked = {**host, "path": "/usr/bin/hostpython"}
    build(replace(record, interpreter=linked), base, file)


def test_what_a_runtime_hides_is_said(record: BuildRecord, base: store.StoredBase) -> None:
    """A runtime binds the host's directories over what the image has there."""
    assert list(fit.notices(base, "/opt/stackyard/demo")) == []
    (said,) = fit.notices(base, "/home/x/demo")
    assert "shows the host's /home there" in said
    venv = PythonEnvironment("venv", "/opt/venv", "3.9.2")
    other = replace(base, base=replace(base.base, software=replace(base.base.software, environments=(venv,))))
    (said,) = fit.notices(other, "/opt/stackyard/demo")
    assert "a Python of its own in /opt/venv (venv 3.9.2)" in said


def test_a_link_of_the_base_is_not_hidden(yard: Yard, record: BuildRecord, tmp_path: Path) -> None:
    """An overlay's directory at the path of a link would hide what is found through it."""
    archive = docker_archive(tmp_path / "l.tar", [layer([("usr/x", None), ("opt", "-> usr/x")])])
    linked = store.add(yard, store.BaseImport(source_of(f"docker-archive:{archive}"), "linked"))
    (tmp_path / "out").mkdir()
    refused(record, linked, tmp_path / "out/x.sif", "in the base linked /opt is a link to usr/x")


def test_a_revision_whose_image_changed(record: BuildRecord, base: store.StoredBase, tmp_path: Path) -> None:
    paths = RevisionPaths.of(record.path)
    packed = squashfs.pack(paths.prefix, paths.image, level=squashfs.QUICK)
    try:
        form = Form("squashfs", "image.sqsh", "0" * 64, packed.size, packed.entries, packed.tool)
        with pytest.raises(StackyardError, match=r"image\.sqsh has changed"):
            build(replace(record, form=form), base, tmp_path / "x.sif")
    finally:
        paths.image.unlink()


def test_a_sif_is_a_base_for_another(yard: Yard, record: BuildRecord, tmp_path: Path) -> None:
    """As sites and vendors give them, with an environment of their own in scripts, and a conda of its own."""
    root = system(tmp_path / "root")
    (root / "opt/conda/conda-meta").mkdir(parents=True)
    (root / "opt/conda/conda-meta/history").touch()
    scripts = root / ".singularity.d/env"
    scripts.mkdir(parents=True)
    (scripts / "10-docker2singularity.sh").write_text("export WITH_CONDA='. /opt/conda/bin/activate'\n")
    (scripts / "90-environment.sh").write_text("export THEIRS=1\n")
    (root / "bin/su").chmod(0o755)
    squashfs.pack(root, tmp_path / "root.sqsh", as_it_is=True)
    sif.write(tmp_path / "a.sif", "amd64", [sif.PartSource(sif.PARTITION, "x", tmp_path / "root.sqsh", sif.SYSTEM)])
    kept = store.add(yard, store.BaseImport(source_of(f"sif:{tmp_path / 'a.sif'}"), "vendor"))
    with pytest.raises(StackyardError, match=r"a\.sif has more than 0\.0009766 GiB when it is unpacked"):
        store.add(yard, store.BaseImport(source_of(f"sif:{tmp_path / 'a.sif'}"), "large", most_bytes=1 << 20))
    assert kept.base.software.activate == ". /opt/conda/bin/activate"
    assert [each.path for each in kept.base.software.environments] == ["/opt/conda"]
    build(record, kept, tmp_path / "b.sif")
    images.apptainer()
    out = apptainer("exec", *APART, tmp_path / "b.sif", "env")
    assert "THEIRS=1\n" in out and "WITH_CONDA=. /opt/conda/bin/activate\n" in out and "NEW=d e\n" in out


def test_a_missing_directory(record: BuildRecord, base: store.StoredBase, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        build(record, base, tmp_path / "no/x.sif")


def test_a_base_that_changed_is_refused(
    yard: Yard, record: BuildRecord, base: store.StoredBase, tmp_path: Path
) -> None:
    other = replace(base, base=replace(base.base, root=replace(base.base.root, sha256="0" * 64)))
    with pytest.raises(StackyardError, match=r"root\.sqsh has changed"):
        build(record, other, tmp_path / "x.sif")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import pickle, sys
from stackyard.images.sif import build as sifbuild
sifbuild.build(pickle.loads(sys.stdin.buffer.read()))
"""


def test_a_build_that_was_killed_leaves_no_file(record: BuildRecord, base: store.StoredBase, tmp_path: Path) -> None:
    import pickle

    asked = pickle.dumps(sifbuild.SifRequest(record, CHANGE, base, tmp_path / "x.sif", Site()))
    words = [sys.executable, "-c", KILLED]
    environ = {**os.environ, "STACKYARD_FAULT": "sif"}
    assert subprocess.run(words, input=asked, env=environ, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "x.sif").exists()
    subprocess.run(words, input=asked, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x.sif"], "what was left is removed by the next one"


@pytest.mark.parametrize("certain", [0.0, room.CERTAIN])
def test_a_full_disk_leaves_nothing(
    record: BuildRecord, base: store.StoredBase, tmp_path: Path, certain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base, and the revision twice: as a layer, and in the file."""
    monkeypatch.setattr(room, "CERTAIN", certain)
    own = room.estimate(room.files_of(Path(record.prefix)), squashfs.packed_bytes)
    size = (base.base.root.bytes + 2 * own) / (1 << 20)
    says = f"no space left: about {size:.1f} MiB are needed, 0.6 MiB are free" if certain else "o space left on device"
    programs.need("mount")
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", place], check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(StackyardError, match=says):
            build(record, base, place / "x.sif")
        assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_damaged_file(built: Path, tmp_path: Path) -> None:
    data = built.read_bytes()
    file = tmp_path / "x.sif"
    overlay = sif.read(built).partition(sif.OVERLAY)
    assert overlay is not None
    file.write_bytes(data[:-1])
    with pytest.raises(StackyardError, match="is truncated: its overlay partition ends at"):
        sif.read(file)
    file.write_bytes(
        data[: overlay.offset + 200] + bytes([data[overlay.offset + 200] ^ 1]) + data[overlay.offset + 201 :]
    )
    with pytest.raises(ChecksFailed, match="has changed: its overlay partition"):
        sifbuild.check(file)
    for damaged in (b"", data[:50], b"x" * 5000):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="is not a SIF image"):
            sif.read(file)
    file.write_bytes(data[:88] + b"\xff" * 40 + data[128:])
    with pytest.raises(StackyardError, match="is damaged: impossible table"):
        sif.read(file)


def test_every_operation_has_a_rule() -> None:
    from stackyard.core.change import OPERATIONS

    assert set(inside.RULES) == set(OPERATIONS)
    assert {type(each) for each in CHANGE} < set(OPERATIONS) and isinstance(CHANGE.operations[0], Operation)
