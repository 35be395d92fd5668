"""Turns PyPI wheels into conda packages: pure ones noarch, compiled ones for this machine's platform.

Requirements are evaluated for the interpreter at hand: a marker that does not hold is left out, ``~=`` is expanded.
Metadata and RECORD are kept, so pip and uv see the distribution and can replace it.
"""

from __future__ import annotations

import configparser
import platform
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from support.channel import JANUARY_2024_MS, PLACEHOLDER, Content, Package
from support.pythonpkg import SITE_PACKAGES, VERSION

CONDA_NAMES = {"typing-extensions": "typing_extensions", "msgpack": "msgpack-python", "torch": "pytorch"}
"""PyPI name: the name that conda channels give the same software, where they differ."""

SUBDIRS = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le"}


def host_subdir() -> str:
    """This machine's conda platform."""
    return SUBDIRS[platform.machine()]


def conda_name(name: str) -> str:
    """What conda channels call a PyPI distribution."""
    canonical = canonicalize_name(name)
    return CONDA_NAMES.get(canonical, canonical)


def package_from_wheel(wheel: Path, timestamp_ms: int = JANUARY_2024_MS) -> Package:
    """Read a wheel and describe the conda package that installs the same files."""
    name, version, _, tags = parse_wheel_filename(wheel.name)
    pure = all(tag.platform == "any" for tag in tags)
    with zipfile.ZipFile(wheel) as archive:
        contents = {entry.filename: (archive.read(entry), _mode(entry)) for entry in archive.infolist()}
    contents = {path: value for path, value in contents.items() if not path.endswith("/")}
    info = next(path.split("/")[0] for path in contents if path.split("/")[0].endswith(".dist-info"))
    metadata = HeaderParser().parsestr(contents[f"{info}/METADATA"][0].decode("utf-8", "replace"))
    scripts = entry_points(contents.get(f"{info}/entry_points.txt", (b"", 0))[0].decode())
    return Package(
        conda_name(name),
        str(version),
        build=f"py{VERSION.replace('.', '')}_0" if not pure else "pyhd_0",
        subdir="noarch" if pure else host_subdir(),
        depends=tuple(_depends(metadata.get_all("Requires-Dist", []), metadata.get("Requires-Python", ""), pure)),
        files=dict(_files(contents, info, scripts, "site-packages" if pure else SITE_PACKAGES)),
        noarch_python=pure,
        entry_points=scripts,
        timestamp_ms=timestamp_ms,
        suffix=".tar.bz2" if pure else ".conda",
        license=(metadata.get("License-Expression") or metadata.get("License") or "unknown").splitlines()[0][:60],
    )


def entry_points(text: str) -> tuple[str, ...]:
    """The console and GUI scripts of an ``entry_points.txt`` as ``name = module:function``."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    sections = [parser[s] for s in ("console_scripts", "gui_scripts") if parser.has_section(s)]
    return tuple(f"{name} = {target.split('[')[0].strip()}" for section in sections for name, target in section.items())


def conda_specs(specifiers: SpecifierSet) -> str:
    """A version range as conda writes it: ``~=1.4.5`` becomes ``>=1.4.5,1.4.*``."""
    return ",".join(sorted(part for specifier in specifiers for part in _conda_spec(specifier)))


def _conda_spec(specifier: Specifier) -> Iterable[str]:
    if specifier.operator != "~=":
        return [f"{specifier.operator}{specifier.version}"]
    release = Version(specifier.version).release[:-1]
    return [f">={specifier.version}", ".".join(str(number) for number in release) + ".*"]


def _depends(requirements: Iterable[str], requires_python: str, pure: bool) -> Iterator[str]:
    if pure:
        yield f"python {conda_specs(SpecifierSet(requires_python))}".rstrip()
    else:
        yield f"python {VERSION}.*"
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield f"{conda_name(requirement.name)} {conda_specs(requirement.specifier)}".rstrip()


def _mode(entry: zipfile.ZipInfo) -> int:
    return 0o755 if entry.external_attr >> 16 & 0o111 else 0o644


def _files(
    contents: Mapping[str, tuple[bytes, int]], info: str, scripts: tuple[str, ...], site_packages: str
) -> Iterator[tuple[str, Content]]:
    data_directory = info.removesuffix(".dist-info") + ".data"
    record: list[str] = []
    for path, (data, mode) in contents.items():
        if path == f"{info}/RECORD":
            record += data.decode().rstrip().splitlines()
        elif path.startswith(f"{data_directory}/"):
            kind, relative = path.removeprefix(f"{data_directory}/").split("/", 1)
            yield _data_file(kind, relative, data, mode, site_packages)
        else:
            yield f"{site_packages}/{path}", (data, mode)
    record += [f"../../../bin/{line.split('=')[0].strip()},," for line in scripts]
    record = [_installed(line, data_directory) for line in record]
    yield f"{site_packages}/{info}/INSTALLER", "conda\n"
    yield f"{site_packages}/{info}/RECORD", "\n".join([*record, f"{info}/INSTALLER,,"]) + "\n"


def _data_file(kind: str, relative: str, data: bytes, mode: int, site_packages: str) -> tuple[str, Content]:
    """Where a file of a wheel's ``.data`` directory goes (binary distribution format, "The .data directory")."""
    if kind == "scripts":
        return f"bin/{relative}", (data.replace(b"#!python", f"#!{PLACEHOLDER}/bin/python".encode(), 1), 0o755)
    roots = {"purelib": f"{site_packages}/", "platlib": f"{site_packages}/", "data": ""}
    return roots.get(kind, f"include/python{VERSION}/") + relative, (data, mode)


def _installed(line: str, data_directory: str) -> str:
    """A RECORD line with the path that the file has once installed."""
    path, _, rest = line.partition(",")
    if not path.startswith(f"{data_directory}/"):
        return line
    kind, relative = path.removeprefix(f"{data_directory}/").split("/", 1)
    if kind in ("purelib", "platlib"):
        return f"{relative},{rest}"
    return (
        {"scripts": "../../../bin/", "data": "../../../"}.get(kind, f"../../../include/python{VERSION}/")
        + relative
        + ",,"
    )
