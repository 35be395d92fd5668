"""Source to compile: fetched, checked against the lock, unpacked, patched."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.files import space
from stackyard.host.files.hashing import local_path
from stackyard.host.net import gateway
from stackyard.host.run import command
from stackyard.host.tools import uv
from stackyard.lock.lockfile.model import PipPackage
from stackyard.lock.pip.snapshot import sha256_files, tree_files
from stackyard.lock.renewal import repository
from stackyard.make import programs
from stackyard.make.fetch import copy_from, source_archive
from stackyard.make.job import Job
from stackyard.make.wheels.indexes import pip_settings
from stackyard.yard import disk

if sys.version_info >= (3, 12):
    import tarfile
else:  # the filters of `extractall` came with 3.10.12 and 3.11.4; Debian 12 has 3.11.2
    from backports import tarfile


def prepare(job: Job, package: PipPackage, directory: Path) -> Path:
    """The package's source, ready to be patched and compiled, in the new directory `directory`. Returns its root.

    Raises:
        StackyardError: it cannot be downloaded, or its hash differs.
    """
    directory.mkdir(parents=True)
    root = {"vcs": _checkout, "path": _snapshot}.get(package.kind, _archived)(job, package, directory)
    return root / package.subdirectory if package.subdirectory else root


def apply_patches(patches: Sequence[str], source: Path, package: str, log: Path) -> None:
    """Apply patch files with ``patch -p1``, or with ``git apply`` if patch is not installed.

    Raises:
        MissingError: neither program is installed.
        InputError: a patch does not apply; the detail names the part.
    """
    for patch in patches:
        if command.which("patch"):
            argv = ["patch", "-p1", "--batch", "--forward", "--no-backup-if-mismatch", "-i", patch]
        elif command.which("git"):
            argv = ["git", "apply", "-p1", patch]
        else:
            raise MissingError(f"cannot patch {package}: neither patch nor git found on PATH", hint="install patch")
        result = programs.run(argv, what=f"patching {package}", log=log, cwd=source, timeout_s=60, check=False)
        if result.returncode != 0:
            raise InputError(
                f"cannot apply the patch {patch} to {package}", detail=result.output,
                hint="check that it is for this version, with paths that start one directory above the source",
            )  # fmt: skip


def _archived(job: Job, package: PipPackage, directory: Path) -> Path:
    return unpacked(source_archive(job, package), directory)


def unpacked(archive: Path, directory: Path) -> Path:
    """Unpack a source archive into an empty directory; returns the only directory in it, if there is one."""
    unpack(archive, directory)
    inside = [entry for entry in directory.iterdir() if entry.is_dir()]
    return inside[0] if len(inside) == 1 else directory


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a source archive; entries outside `directory` are rejected."""
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, directory)
            return
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, OSError) as error:
        if space.is_full(error):
            raise disk.no_space(f"unpacking {archive.name}") from error
        raise StackyardError(f"cannot unpack the source archive {archive.name}: {error}") from error


def _unzip(archive: Path, directory: Path) -> None:
    with zipfile.ZipFile(archive) as bundle:
        for info in bundle.infolist():
            target = Path(bundle.extract(info, directory))
            mode = info.external_attr >> 16
            if target.is_file() and mode & stat.S_IXUSR:
                target.chmod(0o755)


def _checkout(job: Job, package: PipPackage, directory: Path) -> Path:
    if command.which("git") is None:
        raise MissingError(f"cannot fetch {package.name} from {package.url}: git not found on PATH", hint="install git")
    place, _ = repository(package.url)
    url = _bundle(job, package) if job.mirror else uv.place_for_uv(place, pip_settings(job))
    env = {**os.environ, **gateway.variables(os.environ)}
    what = f"fetching {package.name} from {package.url}"

    def git(*words: str, check: bool = True) -> command.Result:
        return programs.run(["git", *words], what=what, log=job.paths.log, cwd=directory, env=env, check=check)

    git("init", "--quiet", ".")
    if git("fetch", "--quiet", "--depth=1", url, package.commit, check=False).returncode != 0:
        git("fetch", "--quiet", "--tags", url, "+refs/heads/*:refs/remotes/origin/*")
    git("checkout", "--quiet", "--detach", package.commit)
    if (directory / ".gitmodules").exists():
        git("submodule", "--quiet", "update", "--init", "--recursive", "--depth=1")
    commit = git("rev-parse", "HEAD").stdout.strip()
    if commit != package.commit:
        raise StackyardError(f"hash mismatch for {place}: locked commit {package.commit}, found {commit}")
    return directory


def _bundle(job: Job, package: PipPackage) -> str:
    """The path of the mirror's git bundle with a commit, fetched into the work directory from a web server."""
    assert job.mirror is not None
    url = job.mirror.pip(package).url
    path = local_path(url)
    if path is None:
        path = job.work / f"{package.commit}.bundle"
        with path.open("wb") as stream:
            copy_from(url, stream)
    return str(path)


def _snapshot(job: Job, package: PipPackage, directory: Path) -> Path:
    """A copy of a local project's snapshot; a local archive is unpacked instead.

    The copy is verified against the lock, since the project may be edited meanwhile.
    """
    path = local_path(package.url)
    if path is None or not path.exists():
        raise StackyardError(f"no such local project: {package.url} of {package.name}")
    if path.is_file():
        return unpacked(source_archive(job, package), directory)
    names = tree_files(path)
    for name in names:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path / name, target, follow_symlinks=False)
    digest = sha256_files(directory, names)
    if digest != package.sha256:
        raise StackyardError(
            f"the local project {path} changed after it was locked: expected {package.sha256}, found {digest}",
            hint="run `stackyard lock` again",
        )
    return directory
