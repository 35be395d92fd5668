"""Finds the Python distributions in conda packages, which satisfy requirements of pip.

pip finds a distribution by its ``dist-info`` or ``egg-info`` directory, so the names of these in the list of an
archive's files decide, and not the name of the conda package (python-annoy installs annoy). They become the purls of
the locked package; the yard's cache keeps them by the archive's hash.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from urllib.parse import quote

from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.core.late import dataclass
from stackyard.core.names import PYPI_NAMES, canonical, is_distribution
from stackyard.lock.conda.filelist import MOST_BYTES, PATHS, metadata_directories, paths_of
from stackyard.lock.lockfile.model import CondaPackage, PipPackage
from stackyard.yard import checksum, disk
from stackyard.yard.cache.caches import searched, unpacked_from
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic

_MOST_NOTED = 1 << 20
_PYTHONS = frozenset(("python", "python_abi", "pypy"))
_OF_ANY = re.compile(r"lib/(?:python|pypy)\d+\.\d+t?/site-packages")
_SHOWN = 5


@dataclass(frozen=True)
class UnreadPackage:
    """A conda package whose distributions are unknown, and why."""

    package: CondaPackage
    reason: str

    def may_install(self, name: str) -> bool:
        """Whether the package probably contains the distribution of this name, judging by its name alone."""
        own = self.package.name
        bare = re.sub(r"^(?:python|py)[-_]|[-_](?:python|base|core)$", "", own)
        return name in {canonical(own), canonical(bare), PYPI_NAMES.get(own, "")}


def described(
    packages: Sequence[CondaPackage], yard: Yard, places: Collection[str] = ()
) -> tuple[tuple[CondaPackage, ...], tuple[UnreadPackage, ...]]:
    """The packages with their distributions as purls, and the packages that cannot be read.

    Args:
        yard: its cache and its parents' caches hold the packages and the results.
        places: where in a prefix its Python looks for packages (`site_packages`); none: the places of any Python.
    """
    candidates = [package for package in packages if _may_hold_some(package)]
    lists = {p.sha256: directories for p in candidates if (directories := _kept(p, yard)) is not None}
    missing = [package for package in candidates if package.sha256 not in lists]
    read = _read(missing) if missing else {}
    for package in missing:
        listing = read[package.sha256]
        if not isinstance(listing, str):
            lists[package.sha256] = listing
            _keep(package, listing, yard)
    result = [_with_purls(p, lists[p.sha256], places) if p.sha256 in lists and p in candidates else p for p in packages]
    unread = [UnreadPackage(p, str(read[p.sha256])) for p in missing if p.sha256 not in lists and not p.purls]
    return tuple(result), tuple(unread)


def site_packages(version: str, packages: Iterable[CondaPackage] = ()) -> tuple[str, ...]:
    """The paths in a prefix where a Python of this version looks for packages, by its conda package or by default."""
    own = next((p.python_site_packages_path for p in packages if p.name == "python"), "")
    minor = ".".join(version.split(".")[:2])
    return (own,) if own else (f"lib/python{minor}/site-packages", f"lib/pypy{minor}/site-packages") if minor else ()


def require_read(unread: Iterable[UnreadPackage], installed: Sequence[PipPackage]) -> tuple[str, ...]:
    """A notice that names the packages whose distributions are unknown.

    Raises:
        StackyardError: pip would install a distribution that such a package probably contains.
    """
    for owner in unread:
        for package in (p for p in installed if owner.may_install(p.name)):
            raise StackyardError(
                f"cannot read what the conda package {owner.package.stem} installs, from {owner.package.url}: "
                f"{owner.reason}; pip would install {package.name} {package.version} beside it",
                hint=f"make the archive readable and lock again; or require {package.name} of one of the two only",
            )
    names = [owner.package.name for owner in unread]
    if not names:
        return ()
    reason = next(iter(unread)).reason
    return (f"what these conda packages install for pip is not known ({reason}): {some(names, _SHOWN)}",)


def _may_hold_some(package: CondaPackage) -> bool:
    needs = {re.split(r"[\s=<>!~\[]", text, maxsplit=1)[0] for text in package.depends}
    return package.noarch == "python" or not needs.isdisjoint(_PYTHONS)


# --------------------------------------------------------------------------- what an archive lists


def _with_purls(package: CondaPackage, directories: Iterable[str], places: Collection[str]) -> CondaPackage:
    pairs = {
        pair
        for directory in directories
        if _is_importable(directory, package, places)
        for pair in _pair(directory, package)
    }
    return replace(
        package, purls=tuple(f"pkg:pypi/{name}@{quote(version, safe='')}" for name, version in sorted(pairs))
    )


def _is_importable(directory: str, package: CondaPackage, places: Collection[str]) -> bool:
    """Whether Python finds the metadata directory in a prefix, and not inside another package."""
    place = directory.rpartition("/")[0]
    if package.noarch == "python":
        return place == "site-packages"
    return place in places if places else _OF_ANY.fullmatch(place) is not None


def _pair(directory: str, package: CondaPackage) -> Iterator[tuple[str, str]]:
    """Name and version from a directory's name; a missing version is taken from the conda package."""
    stem, _, kind = directory.rpartition("/")[2].rpartition(".")
    if kind == "egg-info":
        stem = re.sub(r"-py\d(?:\.\d+)?(?:-.*)?$", "", stem)
    name, dash, version = stem.rpartition("-")
    if not dash:
        name, version = stem, package.version
    if is_distribution(name):
        yield canonical(name), version


# --------------------------------------------------------------------------- where it is read


def _kept(package: CondaPackage, yard: Yard) -> tuple[str, ...] | None:
    """The cached contents of an archive: an earlier result, or the unpacked package."""
    places = searched(yard)
    for place in places:
        with suppress(OSError, ValueError):
            raw, _ = disk.of_anybody(place.distributions_note(package.sha256), _MOST_NOTED)
            text, checked = checksum.remove(raw.decode())
            if checked:
                return tuple(text.splitlines())
    for place in places:
        if unpacked_from(place, package.stem) == package.sha256:
            with suppress(OSError, ValueError):
                raw, _ = disk.of_anybody(place.package(package.stem) / PATHS, MOST_BYTES)
                directories = metadata_directories(paths_of(PATHS, raw))
                _keep(package, directories, yard)
                return directories
    return None


def _keep(package: CondaPackage, directories: Iterable[str], yard: Yard) -> None:
    text = checksum.add("".join(f"{directory}\n" for directory in directories))
    with suppress(OSError):  # it is read again
        atomic.write_text(yard.distributions_note(package.sha256), text, synced=False)


def _read(packages: Sequence[CondaPackage]) -> dict[str, tuple[str, ...] | str]:
    from stackyard.lock.conda.archive import metadata  # late: it comes with rattler and ssl

    return metadata(packages)
