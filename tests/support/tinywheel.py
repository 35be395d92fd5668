"""The smallest wheel that installs, and the smallest project that makes one without any requirement."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "{name}-1.0-py3-none-any.whl"
    info = "{name}-1.0.dist-info"
    with zipfile.ZipFile(f"{{folder}}/{{name}}", "w") as archive:
        archive.writestr("{name}/__init__.py", "")
        archive.writestr(f"{{info}}/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        archive.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{{info}}/RECORD", "")
    return name
"""


def wheel(
    directory: Path, name: str, version: str, requires: Sequence[str] = (), tag: str = "py3-none-any",
    licence: str = "", code: str = "",
) -> Path:  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    path = directory / f"{stem}-{tag}.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"License: {licence}\n" if licence else ""
    metadata += "".join(f"Requires-Dist: {r}\n" for r in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{name.replace('-', '_')}/__init__.py"), f"tag = {tag!r}\n{code}")
        archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/METADATA"), metadata)
        archive.writestr(
            zipfile.ZipInfo(f"{stem}.dist-info/WHEEL"), f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/RECORD"), "")
    return path


def project(directory: Path, name: str) -> Path:
    """A project whose wheel is made by a backend of its own, so that nothing is fetched to build it."""
    directory.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
    )
    (directory / "backend.py").write_text(BACKEND.format(name=name))
    return directory
