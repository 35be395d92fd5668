"""Shells for the checks of the doctor: environments like those of conda and venv, made quickly; and what is found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stackyard.core.findings import Finding
from stackyard.doctor.examine import examine
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard

SYSTEM_PATH = "/usr/bin:/bin"
PROGRAM = """
import os, sys
from pathlib import Path
from stackyard.doctor.examine import examine
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
result = examine(os.environ, lambda: Workspace(Site(), Yard(Path(sys.argv[1]))), root=Path(sys.argv[2]))
for findings in result.findings.values():
    for one in findings:
        print(one.rule, one.message, one.remedy.replace("\\n", " "), sep="\\t")
"""
"""Prints what is found with the yard and the root that are its words: the rule, the message and the remedy."""


def found(
    environ: Mapping[str, str], yard: Path, root: Path = Path("/"), about: str = "shell", site: Site | None = None
) -> dict[str, Finding]:
    """What is found in the shell (or `about` the machine, the yard), by rule."""
    result = examine({"HOME": "/nonexistent", "PATH": SYSTEM_PATH, **environ},
                     lambda: Workspace(site or Site(), Yard(yard)), root=root)  # fmt: skip
    return {finding.rule: finding for finding in result.findings[about]}


def rules(environ: Mapping[str, str], yard: Path, root: Path = Path("/"), about: str = "shell") -> set[str]:
    """The names of `found`."""
    return set(found(environ, yard, root, about))


def conda(prefix: Path, python: str = "3.11", **packages: str) -> Path:
    """A directory as conda makes it: its own Python, and packages with these versions."""
    (prefix / "conda-meta").mkdir(parents=True)
    return _python(prefix, python, packages)


def venv(prefix: Path, python: str = "3.11", **packages: str) -> Path:
    """A directory as ``python -m venv`` makes it."""
    prefix.mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}.4\n")
    return _python(prefix, python, packages)


def _python(prefix: Path, python: str, packages: Mapping[str, str]) -> Path:
    command(prefix / f"bin/python{python}")
    (prefix / "bin/python").symlink_to(f"python{python}")
    install(prefix / f"lib/python{python}/site-packages", **packages)
    return prefix


def install(directory: Path, **packages: str) -> Path:
    """Metadata of distributions in a directory of packages."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, version in packages.items():
        (directory / f"{name}-{version}.dist-info").mkdir()
    return directory


def command(file: Path, first: str = "#!/bin/sh") -> Path:
    """An executable file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{first}\n")
    file.chmod(0o755)
    return file


def path(*directories: Path) -> str:
    """A PATH with these before the system's."""
    return ":".join([*map(str, directories), SYSTEM_PATH])


def machine(root: Path, **files: str) -> Path:
    """A captured tree of a healthy machine: ``machine(root, proc__version="...")`` makes ``proc/version``."""
    for name in ("proc/self", "etc", "dev/shm", "sys/class"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write(root / name.replace("__", "/"), text)
    return root


def write(file: Path, text: str = "") -> Path:
    """A file with the directories above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return file
