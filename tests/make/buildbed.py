"""Builds small variants for the tests of this room, without going through spec and lock."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stackyard.core.progress import SilentProgress
from stackyard.inputs.models import Site, Variant
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, LockedVariant, PipPackage
from stackyard.make import builder
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

PYTHON = Path(sys.executable).resolve()
PROJECT = {
    "setup.py": "from setuptools import setup\nsetup(name='cext', version='1.0', py_modules=['cext'])\n",
    "cext.py": "value = 1\n",
}
"""The files of a project for `sdist`, without anything to compile."""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def host_python() -> LockedInterpreter:
    version = ".".join(map(str, sys.version_info[:3]))
    return LockedInterpreter("host", version, str(PYTHON), sha256(PYTHON))


def conda_packages(channel: Path, names: Iterable[str] | None = None) -> tuple[CondaPackage, ...]:
    """Packages of a local channel as a lock would hold them: the newest of each name, or of all."""
    found: dict[str, CondaPackage] = {}
    wanted = set(names) if names is not None else None
    for subdir in ("noarch", "linux-64"):
        repodata = json.loads((channel / subdir / "repodata.json").read_text())
        for file, record in {**repodata["packages"], **repodata["packages.conda"]}.items():
            if wanted is not None and record["name"] not in wanted:
                continue
            package = CondaPackage(
                name=record["name"], version=record["version"], build=record["build"],
                build_number=record["build_number"], subdir=subdir, channel=channel.as_uri(),
                url=(channel / subdir / file).as_uri(), sha256=record["sha256"], md5=record.get("md5", ""),
                size=record["size"], noarch=record.get("noarch") or "", timestamp_ms=record.get("timestamp", 0),
                depends=tuple(record["depends"]), python_site_packages_path=record.get("python_site_packages_path", ""),
            )  # fmt: skip
            other = found.get(package.name)
            if other is None or other.timestamp_ms < package.timestamp_ms:
                found[package.name] = package
    return tuple(found[name] for name in sorted(found))


def locked(
    conda: Iterable[CondaPackage] = (), pip: Iterable[PipPackage] = (), interpreter: LockedInterpreter | None = None
) -> LockedVariant:
    conda = tuple(conda)
    if interpreter is None:
        interpreter = LockedInterpreter("conda") if any(p.name == "python" for p in conda) else host_python()
    return LockedVariant("demo", "1.0", "py311", "linux-64", "0" * 64, interpreter, conda=conda, pip=tuple(pip))


def wheel_package(path: Path, **more: Any) -> PipPackage:
    name, version = path.name.split("-")[:2]
    return PipPackage(name, version, "wheel", path.as_uri(), sha256(path), size=path.stat().st_size, **more)


def sdist(directory: Path, files: dict[str, str], name: str = "cext", version: str = "1.0") -> PipPackage:
    """A source archive in `directory`, as a lock holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}-{version}/{file}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return PipPackage(name, version, "sdist", path.as_uri(), sha256(path))


def wheel(
    directory: Path, name: str, files: Mapping[str, bytes], *, hashed: Mapping[str, bytes] | None = None, more: str = ""
) -> PipPackage:
    """A wheel of version 1.0 in `directory`, as a lock holds it.

    Args:
        hashed: what its RECORD says that files hold.
        more: lines of its RECORD.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path, info = directory / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    about = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    said = {**files, **about, **(hashed or {})}
    listed = "".join(f"{file},sha256={_urlsafe(data)},{len(data)}\n" for file, data in said.items())
    listed += f"{more}{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as bundle:
        for file, data in {**files, **about, f"{info}/RECORD": listed.encode()}.items():
            bundle.writestr(file, data)
    return wheel_package(path)


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build(
    yard: Yard,
    lock: LockedVariant,
    variant: Variant | None = None,
    *,
    site: Site | None = None,
    directory: str = "1.0-py311-1",
    progress: SilentProgress | None = None,
    rebuild: bool = False,
) -> BuildRecord:
    variant = variant or Variant(stack="demo", version="1.0", name="py311")
    paths = RevisionPaths(yard.root / "stacks" / "demo" / directory)
    module, progress = f"demo/{directory}", progress or SilentProgress()
    record = builder.build(variant, lock, site or Site(), yard, paths, module, 1, progress, rebuild=rebuild)
    revisions.mark(record)
    return record
