"""Apptainer for the tests, and an image for it and others: a small system as a directory, a SquashFS and a SIF file.

Apptainer is packaged in Debian's unstable suite alone. Its packages, and the C library it was built for, are fetched
with apt-get from where this machine's own come from, unpacked and pointed at each other; nothing is installed.

The image's system is made of the packages that are installed here, copied file by file as dpkg lists them: a shell, the
core utilities, Open MPI, and this interpreter with the libraries it links to. A deployed stack that uses this
interpreter runs in it when its yard is bound.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from filelock import FileLock

from stackyard.core.errors import MissingError
from stackyard.host.run.command import CommandError, run
from support import programs, suites
from support.testbed import cache_directory, kept

SUITE = "sid"
PACKAGES = ("apptainer", "libc6", "libseccomp2", "libsqlite3-0")
PROGRAMS = ("patchelf", "mksquashfs", "squashfuse", "fusermount3")

SYSTEM = ("bash", "coreutils", "dash", "findutils", "grep", "hostname", "openmpi-bin", "procps", "sed")
"""Packages of the image, with all they depend on."""

NOT_COPIED = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/", "/usr/share/lintian/")
DIRECTORIES = ("dev", "etc", "home", "proc", "root", "run", "srv", "sys", "tmp", "var/tmp", "work")
BUILD_S = 300


def environ(**extra: str) -> dict[str, str]:
    """This process's environment with `apptainer` on PATH, able to run here.

    Raises:
        MissingError: Apptainer cannot be had.
    """
    path = f"{apptainer().parent}:{os.environ.get('PATH', '')}"
    # in a user namespace: with that, root needs no more capabilities than a container's own root may have
    return {**os.environ, "PATH": path, "APPTAINER_USERNS": "1", **extra}


def apptainer() -> Path:
    """The program, unpacked in the cache.

    Raises:
        MissingError: its packages cannot be fetched, or a program it needs is not here.
    """
    programs.require(*PROGRAMS)
    directory = cache_directory() / "apptainer"  # paths are written into the programs, so it stays where it is made
    program = directory / "usr" / "bin" / "apptainer"
    with FileLock(f"{directory}.lock"):
        if not (directory / "done").exists():
            packages = kept("apptainer-packages", [], lambda scratch: suites.download(SUITE, PACKAGES, scratch))
            shutil.rmtree(directory, ignore_errors=True)
            _unpack(packages, directory)
            run([program, "--version"])
            (directory / "done").touch()
    return program


def image_directory() -> Path:
    """The image as a directory; don't write to it.

    Raises:
        MissingError: a package it is made of is not installed.
    """
    return kept("image", [Path(__file__)], _make_whole) / "root"


def system_directory(name: str, packages: tuple[str, ...]) -> Path:
    """Another system as a directory: of these packages, with what this interpreter links to; don't write to it.

    Args:
        name: what it is called in the cache.

    Raises:
        MissingError: a package is not installed.
    """
    return kept(f"image-{name}", [Path(__file__)], lambda scratch: _make_system(scratch, packages)) / "root"


def image_squashfs() -> Path:
    """The image as a SquashFS file."""
    root = image_directory()
    return (
        kept("image-squashfs", [Path(__file__)], lambda scratch: _squash(root, scratch / "image.sqfs")) / "image.sqfs"
    )


def image_sif() -> Path:
    """The image as a SIF file, built by Apptainer.

    Raises:
        MissingError: Apptainer cannot be had.
    """
    root, program = image_directory(), apptainer()

    def build(scratch: Path) -> None:
        run([program, "--quiet", "build", "--mksquashfs-args", "-comp zstd -Xcompression-level 3",
             scratch / "image.sif", root], timeout_s=BUILD_S, env=environ(TMPDIR=str(scratch)))  # fmt: skip

    return kept("image-sif", [Path(__file__)], build) / "image.sif"


def _unpack(packages: Path, directory: Path) -> None:
    for package in sorted(packages.glob("*.deb")):
        run(["dpkg-deb", "-x", package, directory])
    loader = next(directory.glob("usr/lib/*/ld-linux-*.so.*"))
    libraries = loader.parent
    for program in (directory / "usr" / "bin" / "apptainer", libraries / "apptainer" / "bin" / "starter"):
        run(["patchelf", "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program])
    # moved, it looks for its configuration and its session directory relative to these two
    for prefix in (directory / "usr", directory / "usr" / "lib"):
        shutil.copytree(directory / "etc" / "apptainer", prefix / "etc" / "apptainer")
        (prefix / "var" / "lib" / "apptainer" / "mnt" / "session").mkdir(parents=True)


def _make_whole(scratch: Path) -> None:
    _make_system(scratch, SYSTEM)
    _copy_interpreter(scratch / "root")


def _make_system(scratch: Path, packages: tuple[str, ...]) -> None:
    root = scratch / "root"
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for path in _installed_files(packages):
        _copy(path, root)
    for name in ("passwd", "group", "nsswitch.conf"):
        shutil.copy2(Path("/etc") / name, root / "etc" / name)
    for name in ("hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    run(["ldconfig", "-r", root], env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})


def _installed_files(packages: tuple[str, ...]) -> list[Path]:
    """Every file and link of these packages and of all that they depend on."""
    wanted = ["apt-cache", "depends", "--recurse", "--installed", "--important", *packages, *_interpreter_packages()]
    try:
        words = run(wanted).stdout.splitlines()
        listed = run(["dpkg", "-L", *sorted({word for word in words if word and word[0] not in " <|"})], check=False)
    except (CommandError, MissingError) as error:
        raise MissingError(f"the test image cannot be made: {error}", hint="see scripts/test-programs.sh") from error
    paths = {Path(line) for line in listed.stdout.splitlines() if line.startswith("/")}
    return sorted(
        path for path in paths if not f"{path}/".startswith(NOT_COPIED) and (path.is_symlink() or path.is_file())
    )


def _interpreter_packages() -> list[str]:
    """The packages whose libraries this interpreter and its extension modules link to."""
    modules = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
    linked = run(["ldd", os.path.realpath(sys.executable), *modules]).stdout
    libraries = {str(Path(path).resolve()) for path in re.findall(r"=> (/\S+)", linked)}
    both = {library.removeprefix("/usr") for library in libraries} | libraries  # a package may still say /lib
    owners = run(["dpkg", "-S", *sorted(both)], check=False).stdout
    return sorted({line.split(":")[0] for line in owners.splitlines()})


def _copy(path: Path, root: Path) -> None:
    """One file or link, to where its directory really is."""
    target = root / str(path.parent.resolve()).lstrip("/") / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() and not target.is_symlink():
        shutil.copy2(path, target, follow_symlinks=False)


def _copy_interpreter(root: Path) -> None:
    base = Path(sys.base_prefix).resolve()
    if base == Path("/usr"):
        return
    unwanted = shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "config-*", "idlelib", "*.a")
    target = root / str(base).lstrip("/")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(base / "lib" / version, target / "lib" / version, symlinks=True, ignore=unwanted)
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(library, target / "lib" / library.name, follow_symlinks=False)
    (target / "bin").mkdir()
    shutil.copy2(base / "bin" / version, target / "bin" / version)
    (target / "bin" / "python3").symlink_to(version)


def _squash(root: Path, file: Path) -> None:
    run(["mksquashfs", root, file, "-quiet", "-no-progress", "-all-root", "-comp", "zstd",
         "-Xcompression-level", "3"], timeout_s=BUILD_S)  # fmt: skip
