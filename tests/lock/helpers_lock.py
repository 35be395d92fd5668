"""What the tests of this room share: tiny wheels and sdists, variants in one line."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stackyard.core.names import conda_name, pip_name
from stackyard.inputs.models import CondaRequirement, Environment, PipRequirement, Stack, Variant
from support.tinywheel import wheel

__all__ = ["conda", "pip", "sdist", "simple_index", "stack", "variant", "wheel"]


def sdist(directory: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """A source archive with static metadata (2.2), so that nothing is built to read it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name.replace('-', '_')}-{version}.tar.gz"
    stem = f"{name.replace('-', '_')}-{version}"
    listed = ", ".join(f'"{r}"' for r in requires)
    files = {
        "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {r}\n" for r in requires),
        "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = [{listed}]\n',
    }
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{stem}/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def simple_index(directory: Path, files: Path) -> Path:
    """A PEP 503 index of a directory of files, as it lies on a disk."""
    pages: dict[str, list[str]] = {}
    for file in sorted(files.iterdir()):
        name = file.name.split("-")[0].replace("_", "-").lower()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        pages.setdefault(name, []).append(f'<a href="{file.as_uri()}#sha256={digest}">{file.name}</a>')
    for name, links in pages.items():
        page = directory / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("<!DOCTYPE html><html><body>\n" + "\n".join(links) + "\n</body></html>")
    return directory


def conda(*specs: str) -> tuple[CondaRequirement, ...]:
    return tuple(
        CondaRequirement(
            text=s, spec=s, name=conda_name(s), channel=s.split("::")[0] if "::" in s else "",
            url=s if s.startswith(("http", "file")) and "::" not in s else "",
        )
        for s in specs
    )  # fmt: skip


def pip(*lines: str, **more: Any) -> tuple[PipRequirement, ...]:
    return tuple(PipRequirement(text=line, line=line, name=pip_name(line), **more) for line in lines)


def stack(*variants: Variant, file: Path | None = None) -> Stack:
    return Stack(name=variants[0].stack, variants=variants, file=str(file or ""))


def variant(environment: Environment | None = None, **more: Any) -> Variant:
    values: dict[str, Any] = {"stack": "demo", "version": "1", "name": "base"} | more
    return Variant(environment=environment or Environment(), **values)
