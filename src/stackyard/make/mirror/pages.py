"""Indexes by which pip, uv and conda use a mirror: PEP 503 pages, a page of links, channels."""

from __future__ import annotations

import asyncio
import html
import zipfile
from collections.abc import Iterable, Mapping
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from stackyard.core.errors import StackyardError
from stackyard.make.mirror.read import FILES, LINKS
from stackyard.yard.write.atomic import write_text

_SIMPLE = "pip/simple"
_PAGE = (
    '<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{title}</title></head><body>\n{lines}</body></html>\n'
)


def write_index(directory: Path, files: Mapping[str, str]) -> None:
    """Write the pages for the wheels and source archives of a mirror.

    Args:
        files: paths below the mirror, by sha256.
    """
    projects: dict[str, list[tuple[str, str]]] = {}
    for sha256, path in sorted(files.items(), key=lambda item: item[1]):
        name = project(PurePosixPath(path).name) if path.startswith(f"{FILES}/") else None
        if name:
            projects.setdefault(name, []).append((path, sha256))
    for name, archives in projects.items():
        lines = [_link(f"../../../{path}", sha256, directory / path) for path, sha256 in archives]
        _write(directory / _SIMPLE / name / "index.html", name, lines)
    _write(directory / _SIMPLE / "index.html", "index", [f'<a href="{name}/">{name}</a>' for name in sorted(projects)])
    links = [
        _link(f"../{path}", sha256, directory / path) for archives in projects.values() for path, sha256 in archives
    ]
    _write(directory / LINKS, "links", sorted(links))


def project(file: str) -> str | None:
    """The project name in a wheel's or source archive's file name; None without one, as for some URLs."""
    try:
        return parse_wheel_filename(file)[0] if file.endswith(".whl") else parse_sdist_filename(file)[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def _write(path: Path, title: str, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _PAGE.format(title=html.escape(title), lines="".join(f"{line}<br>\n" for line in lines)))


def _link(href: str, sha256: str, file: Path) -> str:
    python = html.escape(_requires_python(file))
    attribute = f' data-requires-python="{python}"' if python else ""
    return f'<a href="{quote(href)}#sha256={sha256}"{attribute}>{html.escape(file.name)}</a>'


def _requires_python(file: Path) -> str:
    """The Pythons that a wheel supports; pip reads this from the page before downloading."""
    if file.suffix != ".whl":
        return ""
    try:
        with zipfile.ZipFile(file) as wheel:
            name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA") and n.count("/") == 1)
            return HeaderParser().parsestr(wheel.read(name).decode("utf-8"))["Requires-Python"] or ""
    except (zipfile.BadZipFile, StopIteration, UnicodeDecodeError, OSError):
        return ""


def index_channels(channels: Iterable[Path]) -> None:
    """Write the repodata of conda channels, by py-rattler.

    Raises:
        StackyardError: an archive is not a conda package.
    """
    from rattler.index import index_fs

    for channel in channels:
        (channel / "noarch").mkdir(parents=True, exist_ok=True)
        try:
            asyncio.run(index_fs(channel, write_zst=False, write_shards=False))
        except Exception as error:  # rattler raises what its Rust part made of it
            raise StackyardError(f"cannot index the channel {channel}: {error}") from error
