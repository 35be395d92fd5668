"""The prefix of an extension: a virtual environment on its base's Python, with access to the base's packages.

Its ``.pth`` file adds the site-packages of the base as a directory of packages (``site.addsitedir``), so that the
``.pth`` files there work too, and before the layer's own that of its drift directory. Python commands of the base run
with the Python of the layer: their first line names that of the base, which does not see the layer.
"""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.core.names import conda_name
from stackyard.host.run.command import run
from stackyard.lock.base import extension as onbase
from stackyard.lock.base import interpreter as asking
from stackyard.lock.lockfile.model import LockedInterpreter, LockedVariant
from stackyard.make.job import Job
from stackyard.yard.kinds.extension import BaseRevision, Drift
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.write.atomic import write_text
from stackyard.yard.write.permissions import program_mode

PTH = "_stackyard_base.pth"
_COMMAND = "of-base"
"""The program in ``libexec`` behind each command of the base."""
_NOT_TAKEN = frozenset({"conda", "conda-env", "activate", "deactivate", "mamba", "micromamba"})
"""Commands that manage the prefix of the Python they run with."""
_BASES_COMMAND = """#!{python}
# Written by stackyard: runs a Python command of the base with the Python of this extension.
import os
import sys

name = os.path.basename(sys.argv[0])
__file__ = next(f for f in (os.path.join(directory, name) for directory in {directories!r}) if os.path.exists(f))
with open(__file__, "rb") as stream:
    code = compile(stream.read(), __file__, "exec")
exec(code)
"""
"""The command is the main module itself: `multiprocessing` imports that again in a new process, and pickles find it."""
_PIP = """#!{python}
# Written by stackyard: pip for the loaded module {module}. It installs into the drift directory of that revision:
# `stackyard status` shows what is there, `stackyard update` records it, `stackyard update --reset` removes it.
import glob
import importlib.util
import os
import runpy
import sys

spec = importlib.util.find_spec("ensurepip")
directories = [os.path.join(os.path.dirname(spec.origin), "_bundled")] if spec and spec.origin else []
wheels = [sorted(glob.glob(os.path.join(d, "pip-*.whl"))) for d in [*directories, "/usr/share/python-wheels"]]
own = next(filter(None, wheels), None)
if own:
    sys.path.insert(0, own[-1])
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
elif os.path.exists({base!r}):
    runpy.run_path({base!r}, run_name="__main__")
else:
    sys.exit("pip: neither this Python nor the base has a pip\\nhint: stackyard extend --name NAME --pip REQUIREMENT")
"""
_PIP_MODULE = """\"\"\"Written by stackyard: `python -m pip` is the `pip` of this extension.\"\"\"

import os
import sys

os.execv({program!r}, [{program!r}, *sys.argv[1:]])
"""
_LIBRARIES = """
import json, os, sys
for prefix, stems in zip(sys.argv[1::2], sys.argv[2::2]):
    for stem in filter(None, stems.split(",")):
        with open(os.path.join(prefix, "conda-meta", stem + ".json"), encoding="utf-8") as stream:
            files = json.load(stream).get("files", [])
        for name in files:
            if name.startswith("lib/") and name.count("/") == 1 and ".so" in name:
                sys.stdout.write(os.path.join(prefix, name) + "\\0")
"""


class Ground:
    """The foundation of a build: here nothing."""

    @property
    def locks(self) -> tuple[LockedVariant, ...]:
        """The locks of everything below."""
        return ()

    @property
    def bytecode(self) -> tuple[str, str] | None:
        """The cache tag and the magic number of a Python below it."""
        return None

    def prepare(self, job: Job) -> dict[str, str]:
        """Create what packages need before they are installed; returns the interpreter's record entry, if any."""
        return {}

    def link_libraries(self, job: Job) -> None:
        """The step after conda packages are installed."""

    def finish(self, job: Job) -> None:
        """The step after all packages are installed."""


class BaseGround(Ground):
    """The foundation of a layer: the Python of its base, and the base's packages."""

    def __init__(self, base: BaseRevision) -> None:
        self._base = base

    @property
    def locks(self) -> tuple[LockedVariant, ...]:
        """The locks of the base and of its own base."""
        return onbase.locks(self._base)

    @property
    def bytecode(self) -> tuple[str, str] | None:
        """The cache tag and the magic number of the base's Python."""
        return asking.answer(self._base).bytecode

    def prepare(self, job: Job) -> dict[str, str]:
        """Create the environment on the base's Python."""
        return prepare(job, self._base)

    def link_libraries(self, job: Job) -> None:
        """Link the base's libraries that conda packages of the layer need."""
        link_libraries(job, self._base)

    def finish(self, job: Job) -> None:
        """Add the commands of the base, `pip`, and the drift directory."""
        finish(job, self._base)


def ground(job: Job) -> Ground:
    """The foundation of a build."""
    return BaseGround(job.variant.base) if job.variant.base else Ground()


def prepare(job: Job, base: BaseRevision) -> dict[str, str]:
    """Create the environment; return the entry of its interpreter in the record.

    Raises:
        StackyardError: the base was removed.
    """
    onbase.record_of(base)
    locked = job.locked.interpreter
    _environment(job.prefix, job.python, base, locked)
    drift = Drift(job.paths.drift)
    lines = _pth(job.site_packages, drift.site_packages(locked.version), packages(base, locked.version))
    write_text(job.site_packages / PTH, lines)
    return {"source": "base", "path": locked.path, "version": locked.version}


def _environment(root: Path, python: Path, base: BaseRevision, locked: LockedInterpreter) -> None:
    """Create an empty virtual environment: its marker file, interpreter links and site-packages.

    The links lead to the Python of the base, not to the file behind it: where the base is an image that is not mounted,
    there is the stub that mounts it.
    """
    version = locked.version
    home = Path(locked.path).parent
    lines = (f"home = {home}", "include-system-site-packages = false", f"version = {version}")
    write_text(root / "pyvenv.cfg", "".join(f"{line}\n" for line in lines))
    python.parent.mkdir(parents=True, exist_ok=True)
    short = ".".join(version.split(".")[:2])
    names = {python.name: str(base.payload.python), "python3": python.name, f"python{short}": python.name}
    for name, link in names.items():
        (python.parent / name).unlink(missing_ok=True)
        (python.parent / name).symlink_to(link)
    Prefix(root).site_packages(version).mkdir(parents=True, exist_ok=True)


def packages(base: BaseRevision, version: str) -> Path:
    """The site-packages of a base."""
    python = next((p for locked in onbase.locks(base) for p in locked.conda if p.name == "python"), None)
    inside = python.python_site_packages_path if python is not None and not onbase.record_of(base).base else ""
    return Path(base.prefix) / inside if inside else base.payload.site_packages(version)


def _pth(own: Path, drift: Path, base: Path) -> str:
    """The line that `site` executes in the layer's packages: it puts the drift directory before and the base behind.

    The drift has one that adds the layer, for the interpreter that installs into it; each looks if the other is there.
    What is executed cannot have nested scopes: their names would not be found.
    """
    return (
        f"import sys, site; n = len(sys.path); {str(drift)!r} in sys.path or site.addsitedir({str(drift)!r}); "
        f"new = sys.path[n:]; del sys.path[n:]; "
        f"i = sys.path.index({str(own)!r}) if {str(own)!r} in sys.path else n; sys.path[i:i] = new; "
        f"site.addsitedir({str(base)!r})\n"
    )


def pth_of_drift(layer: Path) -> str:
    """The text of the file that makes a drift directory's Python find the packages of its layer."""
    return f"import sys, site; {str(layer)!r} in sys.path or site.addsitedir({str(layer)!r})\n"


def finish(job: Job, base: BaseRevision) -> None:
    """Add what follows the installation of packages: the commands of the base, `pip`, the drift directory."""
    (job.prefix / ".lock").unlink(missing_ok=True)  # of uv
    commands = [name for name in asking.answer(base).commands if not _is_taken(name)]
    directories = [str(revision.payload.program_directories[0]) for revision in base.lineage()]
    program = job.prefix / "libexec" / _COMMAND
    _write_program(program, _BASES_COMMAND.format(python=job.python, directories=directories))
    for name in commands:
        if not os.path.lexists(job.payload.program(name)):
            job.payload.program(name).symlink_to(f"../libexec/{_COMMAND}")
    _add_pip(job, base)


def link_libraries(job: Job, base: BaseRevision) -> None:
    """Link the libraries of the base that the layer's conda packages need into its ``lib``.

    Their files find libraries relative to themselves, in the layer; so do these libraries, once they are linked there.
    """
    needed = _needed(job, base)
    program = str(base.payload.python)
    words = [program, "-I", "-S", "-c", _LIBRARIES]
    for revision, locked in zip(base.lineage(), onbase.locks(base), strict=True):
        stems = [package.stem for package in locked.conda if package.name in needed]
        words += [revision.prefix, ",".join(stems)]
    argv, environ = base.payload.command(words, dict(os.environ))
    done = run(argv, env=environ, timeout_s=asking.ANSWER_S, leaves_others=True)
    for path in filter(None, done.stdout.split("\0")):
        link = job.prefix / "lib" / Path(path).name
        if not os.path.lexists(link):
            link.symlink_to(path)


def _needed(job: Job, base: BaseRevision) -> set[str]:
    """The names of all direct and indirect dependencies of the layer's conda packages."""
    known = {p.name: p for locked in onbase.locks(base) for p in locked.conda}
    names = [conda_name(text) for package in job.locked.conda for text in package.depends]
    libraries: set[str] = set()
    while names:
        name = names.pop()
        if name in known and name not in libraries:
            libraries.add(name)
            names += [conda_name(text) for text in known[name].depends]
    return libraries


def _add_pip(job: Job, base: BaseRevision) -> None:
    """Add a `pip` that installs into the drift directory, an environment on top of the layer."""
    drift, version = Drift(job.paths.drift), job.locked.interpreter.version
    _environment(drift.root, drift.python, base, job.locked.interpreter)
    write_text(drift.site_packages(version) / "_stackyard_layer.pth", pth_of_drift(job.site_packages))
    short = ".".join(version.split(".")[:2])
    text = _PIP.format(python=drift.python, base=str(packages(base, version) / "pip"), module=job.module)
    for name in ("pip", "pip3", f"pip{short}"):
        _write_program(job.payload.program(name), text)
    own = job.site_packages / "pip"
    write_text(own / "__init__.py", '"""Written by stackyard: see __main__."""\n')
    write_text(own / "__main__.py", _PIP_MODULE.format(program=str(job.payload.program("pip"))))


def _write_program(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    write_text(path, text, mode=program_mode())


def _is_taken(name: str) -> bool:
    return name in _NOT_TAKEN or name.startswith(("pip", "python"))
