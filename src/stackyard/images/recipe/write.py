"""A Containerfile or an Apptainer definition that installs a revision's locked packages by their hashes.

It comes with the files that it copies: what to install, and the program that installs it (`recipe.install`), which
needs py-rattler and uv from the package index. The result has the same files at the same path as with `image build`,
except installers' notes and recompiled files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import InputError
from stackyard.core.findings import counted, some
from stackyard.host.files.hashing import local_path
from stackyard.images.oci.settings import COMPRESSOR, environment, labels
from stackyard.images.recipe import install
from stackyard.images.relocation.paths import Moves
from stackyard.lock.lockfile.export import pylock
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

BUILDER = "docker://docker.io/library/python:3.12-slim"
"""Where conda packages are installed: any system with a Python that can make virtual environments."""
_TOOLS = ("py-rattler", "uv")
_PLACE = "/recipe"
"""Not below /tmp, which Apptainer shares with the host while it builds."""
_PATH = "(the base's PATH)"
_AGENTS = ("docker://", "oci:", "localimage:")


@dataclass(frozen=True)
class Recipe:
    """The request for a recipe.

    Attributes:
        place: the prefix in the image.
        base: docker://NAME, oci:DIR or localimage:FILE.
        builder: the image of the build stage, in the same format; empty: chosen automatically.
    """

    record: BuildRecord
    locked: LockedVariant
    change: EnvironmentChange
    place: str
    base: str
    builder: str = ""

    @property
    def stages(self) -> tuple[str, str]:
        """The image of the build stage, and the base of the result."""
        own = self.locked.interpreter.source == "conda"
        return self.builder or (BUILDER if own else self.base), self.base

    def variables(self) -> tuple[list[tuple[str, str]], list[str]]:
        """The environment of a container, and sentences about the parts that it lacks."""
        yard = str(RevisionPaths.of(self.record.path).yard)
        moves = Moves.of([(self.record.prefix, self.place)])
        variables, lost = environment(self.change, moves, yard, [f"PATH={_PATH}"])
        return [line.partition("=")[::2] for line in variables], lost


def files(recipe: Recipe, kind: str) -> tuple[dict[str, str], list[str]]:
    """The texts of a recipe by file name, and sentences about differences from this revision.

    Raises:
        InputError: the revision has a part that is unavailable elsewhere: a local project, a post script, uv's own
            Python.
    """
    notes = _check(recipe)
    name, render = KINDS[kind]
    texts = {
        name: render(recipe),
        "install.py": Path(install.__file__).read_text(encoding="utf-8"),
        "packages.json": json.dumps(_packages(recipe.locked), indent=1, sort_keys=True) + "\n",
    }
    if recipe.locked.pip:
        texts["pylock.toml"] = pylock(recipe.locked)
    return texts, [*notes, *(f"not in the environment: {sentence}" for sentence in recipe.variables()[1])]


def _check(recipe: Recipe) -> list[str]:
    locked = recipe.locked
    local = [package.name for package in locked.pip if package.kind == "path"]
    for is_there, what in (
        (local, f"it has local projects: {some(local, 3)}"),
        ("post" in recipe.record.timings_s, "it has a post script"),
        (locked.interpreter.source == "uv", "its Python is one that uv keeps in the yard"),
    ):
        if is_there:
            raise InputError(f"no recipe builds {recipe.record.module} elsewhere: {what}",
                             hint="send the image itself: `stackyard image push`")  # fmt: skip
    if not recipe.base.startswith(_AGENTS):
        raise InputError(f"not a base that others can name: {recipe.base}", hint="docker://NAME@sha256:..., oci:DIR")
    digest = recipe.base.partition("@")[2]
    if digest and not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise InputError(f"invalid digest: {digest}", hint="write sha256: and 64 hexadecimal digits")
    compiled = [package.name for package in locked.pip if package.kind in ("sdist", "vcs")]
    here = sorted({package.url for package in locked.packages if local_path(package.url)})
    return [
        *([f"compiled again where it is built, so other bytes: {some(compiled, 5)}"] if compiled else []),
        *(
            [f"{counted(len(here), 'archive')} of this machine must be at the same path elsewhere: {some(here, 1)}"]
            if here
            else []
        ),
    ]


def _packages(locked: LockedVariant) -> dict[str, object]:
    conda = [
        {"name": p.name, "version": p.version, "build": p.build, "build_number": p.build_number, "subdir": p.subdir,
         "noarch": p.noarch, "depends": p.depends, "sha256": p.sha256, "size": p.size, "channel": p.channel,
         "url": Path(p.url).as_uri() if p.url.startswith("/") else p.url, "site_packages": p.python_site_packages_path}
        for p in locked.conda
    ]  # fmt: skip
    return {"conda": conda, "platform": locked.platform, "python": locked.interpreter.path}


def _tools() -> str:
    return " ".join(f"{name}=={version(name)}" for name in _TOOLS)


def _labels(recipe: Recipe) -> dict[str, str]:
    return {key: value for key, value in labels(recipe.record, recipe.place, "", "").items() if key != COMPRESSOR}


def _sources(recipe: Recipe) -> str:
    return "install.py packages.json" + (" pylock.toml" if recipe.locked.pip else "")


# --------------------------------------------------------------------------- the two languages


def _containerfile(recipe: Recipe) -> str:
    builder, base = (image.removeprefix("docker://") for image in recipe.stages)
    variables = [f"ENV {name}={_in_containerfile(value)}" for name, value in recipe.variables()[0]]
    noted = [f"LABEL {name}={_in_containerfile(value)}" for name, value in _labels(recipe).items()]
    return "\n".join([
        *_head(recipe), f"# podman build --tag {recipe.record.stack} .",
        f"FROM {builder} AS build",
        f"RUN python3 -m venv {_PLACE}/tools && {_PLACE}/tools/bin/python -m pip install --no-cache-dir {_tools()}",
        f"COPY {_sources(recipe)} {_PLACE}/",
        f"RUN {_PLACE}/tools/bin/python {_PLACE}/install.py {recipe.place}",
        "", f"FROM {base}", f"COPY --from=build {recipe.place} {recipe.place}", *variables, *noted, "",
    ])  # fmt: skip


def _in_containerfile(value: str) -> str:
    quoted = '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'
    return quoted.replace(_PATH, "${PATH}")


def _definition(recipe: Recipe) -> str:
    builder, base = recipe.stages
    copied = [f"    {name} {_PLACE}/{name}" for name in _sources(recipe).split()]
    variables = [f"    export {name}={_in_shell(value)}" for name, value in recipe.variables()[0]]
    noted = [f"    {name} {value}" for name, value in _labels(recipe).items()]
    return "\n".join([
        *_head(recipe), f"# apptainer build {recipe.record.stack}.sif stack.def",
        *_from(builder), "Stage: build", "", "%files", *copied, "", "%post", "    set -e",
        f"    python3 -m venv {_PLACE}/tools && {_PLACE}/tools/bin/python -m pip install --no-cache-dir {_tools()}",
        f"    {_PLACE}/tools/bin/python {_PLACE}/install.py {recipe.place}", "",
        *_from(base), "Stage: final", "", "%files from build", f"    {recipe.place} {recipe.place}", "",
        "%environment", *variables, "", "%labels", *noted, "",
    ])  # fmt: skip


def _from(image: str) -> Sequence[str]:
    """The first lines of a stage: Apptainer's bootstrap agent and image."""
    agent, _, name = image.partition(":")
    return f"Bootstrap: {agent}", f"From: {name.removeprefix('//')}"


def _in_shell(value: str) -> str:
    quoted = '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
    return quoted.replace(_PATH, "$PATH")


def _head(recipe: Recipe) -> Sequence[str]:
    return (f"# {recipe.record.module}: the packages of its lock, each by its sha256, at {recipe.place}.",)


KINDS: Mapping[str, tuple[str, Callable[[Recipe], str]]] = {
    "containerfile": ("Containerfile", _containerfile),
    "def": ("stack.def", _definition),
}
"""The kinds of recipe: the file's name, and what writes it."""
