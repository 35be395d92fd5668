"""Installs packages on a base's own Python: a virtual environment in one more layer, built in a container of the base.

The base is not changed; the result is a new base. Builds (Horovod) find the compilers, CUDA and MPI of the base.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from typing import Any, Literal

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.names import pip_name
from stackyard.core.secrets import redacted
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import CommandError, ending
from stackyard.images import inventory
from stackyard.images.bases import compile as onbase
from stackyard.images.bases import store
from stackyard.images.bases.blobs import EPOCH, TAR, Blob, Layout, manifest_of
from stackyard.images.bases.compile import BaseBuild, Judge, Packages
from stackyard.images.bases.container import VENV, Box, runtime
from stackyard.images.bases.directory import write_layer
from stackyard.images.bases.model import Base, Layer, PythonEnvironment
from stackyard.images.bases.sources import Source
from stackyard.images.bases.store import BaseImport, StoredBase
from stackyard.images.inventory import Inventory
from stackyard.images.labels import DEFAULT_PATH
from stackyard.inputs.models import Check
from stackyard.make.programs import telling
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.layout import Yard

_SYSTEM = ("/usr/local", "/usr")
_NAMES = ("python", "python3")
_ON_PATH = 'for p in python python3; do p=$(command -v "$p") && exec "$p" -E -c "$1"; done; exit 1'
_ABOUT = (
    "import sys; print('\\n'.join([sys.prefix, getattr(sys, 'base_prefix', sys.prefix), "
    "'.'.join(map(str, sys.version_info[:3]))]))"
)


@dataclass(frozen=True)
class Proof:
    """The judgement of checks: the problem in a check's output; why this machine cannot run it. None: no problem."""

    judge: Judge
    unmet: Callable[[Check], str | None]


@dataclass(frozen=True)
class ExtendedBase:
    """A base with packages on top, and sentences about checks that could not run here."""

    kept: StoredBase
    notices: tuple[str, ...] = ()


def extend(yard: Yard, stored: StoredBase, name: str, packages: Packages, proof: Proof) -> ExtendedBase:
    """Install packages on top of a base, as a new base. Call it within `deploy.writing`.

    Raises:
        InputError: the base has no Python, or another base has the name.
        MissingError: no container runtime, or the base lacks a program that the build needs.
        StackyardError: a package cannot be installed, or a check does not pass; the detail has the output.
    """
    program = runtime()
    environ = onbase.environment(packages.build)
    packages = packages.with_places(environ)
    with scratch("extend") as work:
        box = Box(program, stored, work, packages.given)
        box.prepare()
        variables = activated(box)
        building = onbase.BaseBuild(box, python_in(box), packages, environ)
        building = replace(building, tools=onbase.require_tools(building))
        own = _install(building, variables)
        notices = onbase.require_checks(building, own, proof.judge, proof.unmet)
        source = Source("oci", str(_layout(building, name, {**variables, **own}).directory), name)
        origin = f"base:{stored.base.name}@{stored.base.manifest} with {shlex.join(packages.requirements)}"
        request = BaseImport(source, name, platform=stored.base.platform, origin=origin,
                        licences=lambda _: (stored.base.licences, ()))  # fmt: skip
        return ExtendedBase(store.add(yard, request), tuple(notices))


def python_in(box: Box) -> PythonEnvironment:
    """The Python of a base: the one on the PATH that its activation sets, unless that is the system's.

    Raises:
        InputError: the base has no Python.
    """
    asked = box.run("/bin/sh", "-c", _ON_PATH, "sh", _ABOUT, check=False)
    words = asked.stdout.splitlines()[-3:] if not asked.returncode else []
    if len(words) == 3 and words[0] not in _SYSTEM:
        prefix, base, version = words
        files = inventory.read(box.kept.paths.image)
        return PythonEnvironment("venv" if prefix != base else _kind(prefix, files), prefix, version)
    return python_of(box.kept, box.given.activation)


def python_of(stored: StoredBase, activation: str = "") -> PythonEnvironment:
    """The Python of a base, as far as its files tell: the environment that is activated; else the one on its PATH.

    Where that is the system's, an environment comes before it.

    Args:
        activation: the site's activation commands.

    Raises:
        InputError: the base has no Python.
    """
    own = stored.base.software.environments
    named = next((candidate for candidate in own if f"{candidate.path}/" in activation), None)
    if named is not None:
        return named
    files = inventory.read(stored.paths.image)
    on_path = None if activation or stored.base.software.activate else _on_path(stored.base, files)
    if on_path is not None or own:
        return on_path or own[0]
    for directory in _SYSTEM:
        if files.real(f"{directory}/bin/python3"):
            return PythonEnvironment("system", directory)
    raise InputError(f"the base {stored.base.name} has no Python to install packages on",
                     hint="build a revision on it: stackyard image build REV --base NAME")  # fmt: skip


def _on_path(base: Base, files: Inventory) -> PythonEnvironment | None:
    """The Python on an image's PATH; None: it is the system's, or there is none."""
    path = dict(line.partition("=")[::2] for line in base.defaults.env).get("PATH") or DEFAULT_PATH
    for name in _NAMES:
        for directory in path.split(":"):
            if files.is_program(f"{directory}/{name}"):
                prefix = posixpath.dirname(directory)
                return None if prefix in (*_SYSTEM, "/") else PythonEnvironment(_kind(prefix, files), prefix)
    return None


def _kind(prefix: str, files: Inventory) -> Literal["conda", "venv", "system"]:
    if files.real(f"{prefix}/pyvenv.cfg") in files.entries:
        return "venv"
    return "conda" if files.real(f"{prefix}/conda-meta") in files.entries else "system"


def activated(box: Box) -> dict[str, str]:
    """The variables that the site's activation of a base sets. Raises StackyardError if it fails."""
    try:
        return box.activated()
    except CommandError as error:
        what = f"cannot activate the base {box.kept.base.name}: {ending(error.result.returncode)}"
        hint = f"correct `bases: {box.kept.base.name}: activate` in the site's file"
        raise StackyardError(what, detail=error.detail, hint=hint) from error


def _install(building: BaseBuild, activated: Mapping[str, str]) -> dict[str, str]:
    """Install all packages; returns the variables by which programs find them."""
    box, packages = building.box, building.packages
    try:
        place, variables = _environment(box, building.python, activated)
        wheels = onbase.compile_all(building)
        (box.tmp / "constraints.txt").write_text("\n".join([*packages.constraints, ""]), encoding="utf-8")
        rest = [line for line in packages.requirements if pip_name(line) not in wheels]
        options = [*place, "-c", "/tmp/constraints.txt", *(f"--no-binary={name}" for name in packages.no_binary)]
        building.pip("install", "--no-compile", *options, *wheels.values(), *rest)
    except CommandError as error:
        what = f"cannot install {shlex.join(packages.requirements)} on the base {box.kept.base.name}"
        detail = telling(redacted(error.result.output))
        raise StackyardError(f"{what}: {ending(error.result.returncode)}", detail=detail, hint=error.hint) from error
    bytecode = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", VENV)
    box.run(f"{VENV}/bin/python", *bytecode, check=False)
    return variables


def _environment(
    box: Box, python: PythonEnvironment, activated: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """A virtual environment on the base's Python, with access to its packages; pip's options, and variables.

    A Python without ensurepip (Debian's) has its own pip in it. One without its venv module (Python 2) gets a prefix
    that PYTHONPATH names.
    """
    program = _program(box, python)
    options = []
    if box.run(program, "-c", "import venv, ensurepip", check=False).returncode:
        if box.run(program, "-c", "import venv", check=False).returncode:
            return _prefix(box, program, activated)
        options = ["--without-pip"]
    box.run(program, "-m", "venv", "--system-site-packages", *options, VENV)
    if python.kind == "venv":  # one made from a virtual environment sees the packages of its base only
        code = "import site; print(*site.getsitepackages(), sep='\\n')"
        (own,) = box.venv.glob("lib/python3*/site-packages")
        (own / "base.pth").write_text(box.run(program, "-c", code).stdout, encoding="utf-8")
    return (), {"VIRTUAL_ENV": VENV}


def _program(box: Box, python: PythonEnvironment) -> str:
    """Its interpreter; of the system's, python3 where there is one."""
    plain = f"{python.path}/bin/python"
    if python.kind == "system" and inventory.read(box.kept.paths.image).real(f"{plain}3"):
        return f"{plain}3"
    return plain


def _prefix(box: Box, program: str, activated: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """A link to the base's Python under another name, with a package directory that comes before its own."""
    version = box.run(program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    own = f"{VENV}/lib/python{version}/site-packages"
    prefix = Prefix(box.venv)
    prefix.program_directories[0].mkdir()
    path = f'PYTHONPATH={own}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    python = f'#!/bin/sh\n{path} exec {shlex.quote(program)} "$@"\n'
    activate = f'export {path} PATH={VENV}/bin:"$PATH"\n'
    for name, text in (("python", python), (f"python{version[0]}", python), ("activate", activate)):
        prefix.program(name).write_text(text, encoding="utf-8")
        prefix.program(name).chmod(0o755)
    variables = dict(line.partition("=")[::2] for line in box.kept.base.defaults.env) | dict(activated)
    return ("--prefix", VENV), {"PYTHONPATH": ":".join(filter(None, [own, variables.get("PYTHONPATH", "")]))}


def _layout(building: BaseBuild, name: str, variables: Mapping[str, str]) -> Layout:
    """The layout with the base's layers and the new one."""
    box = building.box
    layout, stored = Layout(box.work / "oci"), box.kept
    write_layer(box.work / "root", box.work / "tar")
    with (box.work / "tar").open("rb") as stream:
        blob = layout.add(stream)
    (box.work / "tar").unlink()
    for layer in stored.base.layers:
        layout.path(layer.digest).symlink_to(stored.layout.path(layer.digest))  # `store.add` copies and compares it
    layers = (*stored.base.layers, Layer(blob.digest, blob.size, TAR, blob.digest))
    config = layout.add_json(_configuration(building, blob, variables))
    layout.finish(layout.add_json(manifest_of(config, layers)), name)
    return layout


def _configuration(building: BaseBuild, blob: Blob, variables: Mapping[str, str]) -> dict[str, Any]:
    box, recipe = building.box, building.packages.recipe
    layout = box.kept.layout
    value = dict(layout.read_json(layout.read_json(box.kept.base.manifest)["config"]["digest"]))
    value["rootfs"] = {**value["rootfs"], "diff_ids": [*value["rootfs"]["diff_ids"], blob.digest]}
    note = {"created": EPOCH, "created_by": "stackyard image extend"}
    if value.get("history"):
        value["history"] = [*value["history"], note]
    (own,) = box.venv.glob("lib/python*/site-packages")
    pairs = sorted({(distribution.name, distribution.version) for distribution in distributions(path=[str(own)])})
    said = dict(value.get("config") or {})
    said["Env"] = environment_of(box.kept.base, variables)
    labels = {"io.stackyard.packages": " ".join(f"{name}={version}" for name, version in pairs),
              "io.stackyard.recipe": " ".join(f"{file}={digest}" for file, digest in recipe.items())}  # fmt: skip
    said["Labels"] = {**(said.get("Labels") or {}), **{key: value for key, value in labels.items() if value}}
    return {**value, "config": said}


def environment_of(base: Base, activated: Mapping[str, str]) -> Sequence[str]:
    """The variables of an extended base: those of its activation, before the base's own environment."""
    variables = {**dict(line.partition("=")[::2] for line in base.defaults.env), **activated}
    own = {"PATH": f"{VENV}/bin:{variables.get('PATH') or DEFAULT_PATH}"}
    for name in ("WITH_CONDA", "WITH_VENV", "WITH_CONDA_VENV"):
        if variables.get(name):
            own[name] = f"{variables[name]}; . {VENV}/bin/activate"
    return [f"{name}={value}" for name, value in {**variables, **own}.items()]
