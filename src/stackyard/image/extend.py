"""Packages on top of a base's own Python: a virtual environment in one more layer, made in a container of the base.

The base stays as it is, and the result is a base of its own. What compiles (Horovod) finds the compilers, the CUDA and
the MPI of the base.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackyard.errors import InputError, MissingError, StackyardError
from stackyard.host.command import CommandError, Result, run, which
from stackyard.host.pipconf import read_config
from stackyard.host.scratch import scratch
from stackyard.image import fit, sifbuild
from stackyard.image.bases import store
from stackyard.image.bases.blobs import EPOCH, TAR, Blob, Layout, manifest_of
from stackyard.image.bases.folder import write_layer
from stackyard.image.bases.model import Base, Layer, PythonEnvironment
from stackyard.image.bases.sources import Source
from stackyard.image.bases.store import Kept, Wanted
from stackyard.yard.layout import Yard

VENV = "/opt/stackyard/venv"
BUILD_S = 6 * 3600.0
RUNTIMES = ("apptainer", "singularity")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_FILES = ("cert", "client-cert", "find-links", "constraint")


@dataclass(frozen=True)
class Packages:
    """What is installed on top.

    Attributes:
        requirements: as pip takes them.
        find_links: directories of this machine with packages.
        variables: set while they are built, e.g. HOROVOD_WITH_PYTORCH.
    """

    requirements: tuple[str, ...]
    find_links: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def extend(yard: Yard, kept: Kept, name: str, packages: Packages) -> Kept:
    """Install packages on top of a base, as a new base. Call it within `publish.writing`.

    Raises:
        InputError: the base has no Python, or the name is that of another base.
        MissingError: no container runtime.
        StackyardError: a package cannot be installed; the detail has pip's output.
    """
    program, python = runtime(), python_of(kept)
    with scratch("extend") as work:
        box = _Box(program, kept, work, packages)
        box.prepare()
        _install(box, python, packages)
        source = Source("oci", str(_layout(box, name).folder), name)
        origin = f"base:{kept.base.name}@{kept.base.manifest} with {shlex.join(packages.requirements)}"
        wanted = Wanted(source, name, platform=kept.base.platform, origin=origin,
                        licences=lambda _: (kept.base.licences, ()))  # fmt: skip
        return store.add(yard, wanted)


def python_of(kept: Kept) -> PythonEnvironment:
    """The Python of a base: its own environment, the one that is activated first; else its system's.

    Raises:
        InputError: it has none.
    """
    if kept.base.software.environments:
        return kept.base.software.environments[0]
    files = fit.listing(kept.paths.image)
    for folder in ("/usr/local", "/usr"):
        if fit.resolved(files, f"{folder}/bin/python3") is not None:
            return PythonEnvironment("system", folder)
    raise InputError(f"the base {kept.base.name} has no Python to install packages on",
                     hint="build a revision on it: stackyard image build REV --base NAME")  # fmt: skip


def runtime() -> Path:
    """The program that runs containers. Raises MissingError without one."""
    found = next(filter(None, map(which, RUNTIMES)), None)
    if found is None:
        raise MissingError("neither apptainer nor singularity found: packages are installed in a container",
                           hint="install Apptainer, or do it on a machine that has it")  # fmt: skip
    return found


class _Box:
    """A container of a base, that sees nothing of the host but a directory to install into, and where packages are."""

    def __init__(self, program: Path, kept: Kept, work: Path, packages: Packages) -> None:
        self.kept, self.work, self._runtime = kept, work, program
        self.venv = work / "root" / VENV.lstrip("/")
        self._packages, self._settings = packages, read_config(os.environ)

    def prepare(self) -> None:
        """Make what is bound, and the image."""
        for folder in (self.venv, self.work / "tmp", self.work / "home"):
            folder.mkdir(parents=True)
        sifbuild.build_base(self.kept, self.work / "base.sif")

    def run(self, *argv: str, check: bool = True) -> Result:
        """Run a program in it, after the base's own activation."""
        activate = self.kept.base.software.activate
        words = ["/bin/sh", "-c", f'{activate}\nexec "$@"', "sh", *argv] if activate else list(argv)
        binds = [f"{self.venv}:{VENV}", f"{self.work / 'tmp'}:/tmp", *map(str, self._given())]
        command = [
            str(self._runtime), "-q", "exec", "--contain", "--cleanenv", "--home", f"{self.work / 'home'}:{VENV}.home",
            *(word for bind in binds for word in ("--bind", bind)), "--pwd", "/tmp", str(self.work / "base.sif"),
        ]  # fmt: skip
        return run([*command, *words], env={**os.environ, **self._variables()}, timeout_s=BUILD_S, check=check)

    def _given(self) -> list[Path]:
        """Files and directories of the host that pip's settings name."""
        named = [word for key in _FILES for word in self._settings.get(key, "").split()]
        places = [*self._packages.find_links, *(Path(word) for word in named if word.startswith("/"))]
        return [place for place in dict.fromkeys(places) if place.exists()]

    def _variables(self) -> dict[str, str]:
        """What is set inside. Logins of indexes are handed on in the environment, and written nowhere."""
        pip = {f"PIP_{key.upper().replace('-', '_')}": " ".join(value.split()) for key, value in self._settings.items()}
        proxies = {name: os.environ[name] for name in _PROXIES if name in os.environ}
        inner = {**pip, **proxies, **self._packages.variables, "PYTHONNOUSERSITE": "1"}
        return {
            f"{prefix}{name}": value for name, value in inner.items() for prefix in ("APPTAINERENV_", "SINGULARITYENV_")
        }


def _install(box: _Box, python: PythonEnvironment, packages: Packages) -> None:
    program = f"{python.path}/bin/python{'3' if python.kind == 'system' else ''}"
    inner = f"{VENV}/bin/python"
    try:
        box.run(program, "-m", "venv", "--system-site-packages", VENV)
        if python.kind == "venv":  # one made from a virtual environment sees the packages of its base only
            code = "import site; print(*site.getsitepackages(), sep='\\n')"
            (own,) = box.venv.glob("lib/python3*/site-packages")
            (own / "base.pth").write_text(box.run(program, "-c", code).stdout, encoding="utf-8")
        links = [f"--find-links={folder}" for folder in packages.find_links]
        box.run(inner, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--no-compile", *links,
                *packages.requirements)  # fmt: skip
    except CommandError as error:
        what = f"cannot install {shlex.join(packages.requirements)} on the base {box.kept.base.name}"
        raise StackyardError(f"{what}: {error.message}", detail=error.detail, hint=error.hint) from error
    box.run(inner, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", VENV, check=False)


def _layout(box: _Box, name: str) -> Layout:
    """The base's layers and one more."""
    layout, kept = Layout(box.work / "oci"), box.kept
    write_layer(box.work / "root", box.work / "tar")
    with (box.work / "tar").open("rb") as stream:
        blob = layout.add(stream)
    (box.work / "tar").unlink()
    for each in kept.base.layers:
        with kept.layout.path(each.digest).open("rb") as stream:
            layout.add(stream, expected=each.digest, size=each.size)
    layers = (*kept.base.layers, Layer(blob.digest, blob.size, TAR, blob.digest))
    config = layout.add_json(_configuration(box, blob))
    layout.finish(layout.add_json(manifest_of(config, layers)), name)
    return layout


def _configuration(box: _Box, blob: Blob) -> dict[str, Any]:
    layout = box.kept.layout
    value = dict(layout.read_json(layout.read_json(box.kept.base.manifest)["config"]["digest"]))
    value["rootfs"] = {**value["rootfs"], "diff_ids": [*value["rootfs"]["diff_ids"], blob.digest]}
    note = {"created": EPOCH, "created_by": "stackyard image extend"}
    if value.get("history"):
        value["history"] = [*value["history"], note]
    freeze = box.run(f"{VENV}/bin/python", "-m", "pip", "list", "--local", "--format", "freeze").stdout.split()
    said = dict(value.get("config") or {})
    said["Env"] = environment_of(box.kept.base)
    said["Labels"] = {**(said.get("Labels") or {}), "io.stackyard.packages": " ".join(freeze).replace("==", "=")}
    return {**value, "config": said}


def environment_of(base: Base) -> Sequence[str]:
    """The variables of an extended base: its environment comes first, also after the base's own activation."""
    given = dict(each.partition("=")[::2] for each in base.defaults.env)
    own = {"PATH": f"{VENV}/bin:{given.get('PATH') or _PATH}", "VIRTUAL_ENV": VENV}
    for name in ("WITH_CONDA", "WITH_VENV", "WITH_CONDA_VENV"):
        if given.get(name):
            own[name] = f"{given[name]}; . {VENV}/bin/activate"
    return [f"{name}={value}" for name, value in {**given, **own}.items()]
