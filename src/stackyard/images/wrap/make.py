"""Makes a wrapped image in a finished, empty prefix: the image, the stubs, and the settings of its container.

As with packed revisions, it is complete before the revision is marked as built.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.core.findings import some
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.images import inventory
from stackyard.images.bases.container import variables
from stackyard.images.inventory import Inventory
from stackyard.images.squashfs import launcher
from stackyard.images.squashfs.enter import run_within
from stackyard.images.wrap import commands, interpreters, stubs
from stackyard.images.wrap.origin import CopiedImage, take
from stackyard.images.wrap.starts import starts, with_parts
from stackyard.inputs.workspace import Workspace
from stackyard.make.seal import PARTS
from stackyard.yard import disk
from stackyard.yard.kinds.payload import Container, Form
from stackyard.yard.revision import contents
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write.atomic import write_text
from stackyard.yard.write.permissions import file_mode

if TYPE_CHECKING:
    from stackyard.inputs.models import Wrap

PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""That of an image that says nothing of it. Source: the default of Docker and of Apptainer."""
_LIBRARY_PATH = "LD_LIBRARY_PATH"
_SINGULARITY = "/.singularity.d"
SCRIPTS = f"{_SINGULARITY}/env"
_OURS = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "TERM", "PWD", "OLDPWD", "SHLVL", "_", "PATH", "HOSTNAME",
                   "PS1"})  # fmt: skip
"""Variables that are the user's, or of the shell, whatever an image says."""
_NVIDIA_DIRECTORIES = ("/usr/lib64", "/usr/lib64/nvidia", "/usr/lib/*-linux-gnu", "/usr/local/nvidia/lib64")
_NVIDIA = ("libcuda.so*", "libnvidia-*.so*", "libnvcuvid.so*", "libnvoptix.so*", "libcudadebugger.so*")
"""The libraries that belong to the driver. Source: Apptainer's nvliblist.conf."""
SCRIPT_S = 120.0
BEFORE = ".before"
"""The script that is read before each command, in the container's place of the prefix."""
_MOST_SCRIPT = 1 << 20
_MOST_SETTINGS, _MOST_BYTES = 4095, 128 << 10
"""What the launcher reads at most."""
_EMPTY = ("/tmp", "/var/tmp")
_HIDDEN = {"host": ("/home", "/run", "/mnt", "/media", "/srv", *_EMPTY), "isolated": _EMPTY}
"""Directories of the image that are not in the container, by its mode (images/squashfs/launcher/newroot.c)."""


def wrap(record: BuildRecord, request: Wrap, workspace: Workspace, directory: Path) -> BuildRecord:
    """Put an image into a revision that is built but not yet marked; returns its record.

    Args:
        request: the request, with the digest of the image.
        directory: the directory to which paths in the stack's file are relative.

    Raises:
        MissingError: no compiler for the launcher, mksquashfs is missing, or the container cannot be made here.
        InputError: no such image or command, or the image is for another platform.
        StackyardError: it is damaged or harmful, or the disk is full.
    """
    paths = RevisionPaths.of(record.path)
    try:
        return _wrapped(record, paths, request, workspace, directory)
    finally:
        disk.remove_tree(paths.work, paths.yard)


def _wrapped(
    record: BuildRecord, paths: RevisionPaths, request: Wrap, workspace: Workspace, directory: Path
) -> BuildRecord:
    payload = Container(paths.prefix)
    made_by = launcher.make(paths.launcher, container=True)
    paths.work.mkdir(mode=0o700, parents=True, exist_ok=True)
    taken = take(request, workspace, directory, paths.image, paths.work)
    paths.image.chmod(file_mode() & 0o444)
    listed = inventory.read(paths.image)
    _let_write(paths)
    result = replace(
        record,
        form=Form("container", paths.image.name, taken.packed.sha256, taken.packed.size, taken.packed.entries,
                  f"{taken.packed.tool}; launcher: {made_by}", launcher=sha256_file(paths.launcher)),
    )  # fmt: skip
    environ = _environment(result, request, taken, listed)
    path = environ["PATH"].split(":")
    programs = with_parts(commands.chosen(listed, request.commands, path), listed)
    _require_visible(programs, request.mode, listed)
    how = starts(programs, listed, lambda file: inventory.text(paths.image, file, paths.work))
    settings = _settings(request, taken, environ, listed, next(iter(programs.values())),
                         how.settings(by_launcher=stubs.is_static(paths.launcher)))  # fmt: skip
    stubs.write(payload, programs, settings, how)
    if request.before:
        write_text(payload.inside / BEFORE, _script(request.before))
    stubs.add_links(payload, programs, interpreters.with_files(payload, how, programs, listed, paths.work))
    files = _noted(paths)
    return replace(
        result,
        container={
            "source": taken.source, "digest": taken.digest, "labels": dict(taken.labels), "mode": request.mode,
            "commands": programs, "shell": _shell(listed), "environment": environ,
            "directory": taken.defaults.directory,
        },
        disk=replace(disk.measure([paths.image.stat(), paths.launcher.stat()]), link_mode="image"),
        files_sha256=files,
        notices=(*result.notices, *taken.notices),
    )  # fmt: skip


def _require_visible(programs: Mapping[str, str], mode: str, listed: Inventory) -> None:
    hidden = {path: place for path in programs.values() if (place := _hidden_at(listed.way(path), _HIDDEN[mode]))}
    if hidden:
        place = next(iter(hidden.values()))
        instead = f"the host's {place}" if mode == "host" else f"an empty {place}"
        hint = "the image needs it in another directory" if place in _EMPTY else "wrap it with --mode isolated"
        raise InputError(f"{some(list(hidden), 3)}: the container has {instead} there", hint=hint)


def _hidden_at(way: Iterable[str], hidden: Sequence[str]) -> str:
    """The hidden directory on a path; empty without one."""
    return next((place for step in way for place in hidden if step.startswith(f"{place}/")), "")


def _let_write(paths: RevisionPaths) -> None:
    """Make directories of the prefix writable, which the build has sealed."""
    for name, status in contents.scan(paths.root, PARTS[:1]).items():
        if stat.S_ISDIR(status.st_mode):
            (paths.root / name).chmod(stat.S_IMODE(status.st_mode) | stat.S_IWUSR)


def _script(path: str) -> str:
    """The text of the file that is read before each command."""
    try:
        data = Path(path).read_bytes()
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {cause(error)}", hint="`before` of `wrap` is a file of shell") from error
    if len(data) > _MOST_SCRIPT or "\0" in text:
        raise InputError(f"{path} is not a file of shell", hint="`before` of `wrap` names one of a megabyte at most")
    return text


def _shell(listed: Inventory) -> str:
    return next((shell for shell in ("/bin/bash", "/bin/sh") if listed.is_program(shell)), "")


def _environment(record: BuildRecord, request: Wrap, taken: CopiedImage, listed: Inventory) -> dict[str, str]:
    """The environment from the image: its configuration, and the result of its scripts for Apptainer."""
    if taken.environment is not None:
        return dict(taken.environment)
    values = dict(line.partition("=")[::2] for line in taken.defaults.env if "=" in line)
    values.setdefault("PATH", ":".join(PATH))
    if listed.programs(SCRIPTS) or any(path.startswith(f"{SCRIPTS}/") for path in listed.entries):
        values = _of_scripts(record, request, taken, values, listed)
    values["PATH"] = ":".join(directory for directory in values["PATH"].split(":") if directory.startswith("/"))
    return values


def _of_scripts(
    record: BuildRecord, request: Wrap, taken: CopiedImage, values: Mapping[str, str], listed: Inventory
) -> dict[str, str]:
    """The environment that a SIF's scripts produce: run once now, instead of for every command."""
    if not listed.is_program("/bin/sh"):
        return dict(values)
    cat = next((f"{directory}/cat" for directory in PATH if listed.is_program(f"{directory}/cat")), "")
    if not cat:
        raise InputError(f"cannot tell what the scripts in {SCRIPTS} set: no cat in the image")
    payload = Container(Path(record.prefix))
    isolated = request.model_copy(update={"mode": "isolated", "bind": (), "libraries": (), "nv": False, "before": ""})
    stubs.write(payload, {"sh": "/bin/sh"}, _settings(isolated, taken, {}, listed, "/bin/sh"))
    script = f'for each in {SCRIPTS}/*.sh; do [ ! -f "$each" ] || . "$each" >&2; done; exec {cat} /proc/self/environ'
    clean = {**values, "HOME": "/", "STACKYARD_TMP": str(RevisionPaths.of(record.path).work),
             "STACKYARD_IMAGE_IDLE_S": "10"}  # fmt: skip
    done = run_within(payload, ["/bin/sh", "-c", script], timeout_s=SCRIPT_S, environ=clean)
    if done.returncode:
        raise StackyardError(
            f"the image's own scripts in {SCRIPTS} exited with status {done.returncode}", detail=done.output,
            hint="see whether the image works: apptainer exec IMAGE true",
        )  # fmt: skip
    return _without_ours(variables(done.stdout))


def _without_ours(values: Mapping[str, str]) -> dict[str, str]:
    """The variables without our own, and without Apptainer's library directory, which is empty here."""
    others = {name: value for name, value in values.items() if not name.startswith("STACKYARD_")}
    libraries = (
        directory
        for directory in others.pop(_LIBRARY_PATH, "").split(":")
        if directory not in ("", f"{_SINGULARITY}/libs")
    )
    path = ":".join(libraries)
    return {**others, _LIBRARY_PATH: path} if path else others


def _settings(
    request: Wrap,
    taken: CopiedImage,
    environ: Mapping[str, str],
    listed: Inventory,
    program: str,
    more: Iterable[str] = (),
) -> str:
    """The launcher's settings file. Source: images/squashfs/launcher/container.c."""
    values = {key: text for key, text in environ.items() if key not in _OURS and "\n" not in text}
    own = dict(request.environment)
    if before := own.get(_LIBRARY_PATH):
        own[_LIBRARY_PATH] = ":".join(filter(None, (before, values.get(_LIBRARY_PATH))))
    values = {"PYTHONNOUSERSITE": "1", **values, **own}
    lines = [
        f"mode {request.mode}",
        f"probe {listed.real(program)}",
        f"holds {':'.join(listed.directories_with_files)}",
        *([f"bytes {taken.packed.size}"] if taken.layers else []),
        *(f"layer {offset}" for offset in taken.layers),
    ]
    if environ.get("PATH"):
        lines.append(f"path {environ['PATH']}")
    if taken.defaults.directory.startswith("/"):
        lines.append(f"directory {taken.defaults.directory}")
    if request.before:
        if not (shell := _shell(listed)):
            raise InputError("cannot read `before` in the container: the image has no shell")
        lines.append(f"before {shell}")
    lines += more
    lines += [f"env {name}={value}" for name, value in sorted(values.items())]
    lines += [f"bind {bind.source}\t{bind.target}\t{'ro' if bind.read_only else 'rw'}" for bind in request.bind]
    nvidia = [f"{directory}/{name}" for directory in _NVIDIA_DIRECTORIES for name in _NVIDIA] if request.nv else []
    lines += [f"library {library}" for library in (*request.libraries, *nvidia)]
    if len(lines) > _MOST_SETTINGS or sum(map(len, lines)) + len(lines) >= _MOST_BYTES:
        raise InputError("cannot wrap the image: too many variables or bindings")
    wrong = [line for line in lines if "\n" in line or "\0" in line]
    if wrong:
        raise InputError(f"cannot wrap the image: a setting of more than one line: {some(wrong, 1)}")
    return "".join(f"{line}\n" for line in lines)


def _noted(paths: RevisionPaths) -> str:
    """Note the present files of the prefix, and seal them; returns the hash of the note."""
    tree = contents.scan(paths.root, PARTS)
    text = contents.note(paths.root, tree).to_text()
    write_text(paths.files, text)
    contents.seal(paths.root, contents.scan(paths.root, PARTS[:1]), directories=True)
    return sha256_text(text)
