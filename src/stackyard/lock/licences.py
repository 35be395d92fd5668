"""The licence of each locked package, as an SPDX expression if possible, and whether a site denies it.

A lock has the licences of conda packages. Those of pip packages are in their metadata: the file that an index serves
beside a wheel (PEP 658), else the metadata inside the wheel or inside a local source archive. The results are kept in
the yard's cache. Of several statements the most precise counts: ``License-Expression`` (PEP 639), then the classifiers,
then the free text, where it is one of the usual names.
"""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.error import HTTPError

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.names import canonical
from stackyard.core.secrets import host_of
from stackyard.host.files import at
from stackyard.host.files.hashing import local_path
from stackyard.host.net import http
from stackyard.host.net.ranged import RangedFile
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.yard import disk
from stackyard.yard.cache.caches import searched
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic

_AT_ONCE = 8
_TIMEOUT_S = 20
_LONGEST = 200
_UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)
"""What reading a member of an archive raises that is damaged, encrypted or of an unknown form."""
_USUAL = {
    "apache": "Apache-2.0", "apache 2": "Apache-2.0", "apache 2.0": "Apache-2.0", "apache software": "Apache-2.0",
    "apache software 2.0": "Apache-2.0", "apache, 2.0": "Apache-2.0", "bsd": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause", "modified bsd": "BSD-3-Clause", "3-clause bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause", "bsd 3 clause": "BSD-3-Clause", "bsd-3": "BSD-3-Clause",
    "simplified bsd": "BSD-2-Clause", "bsd 2-clause": "BSD-2-Clause", "gpl": "GPL-1.0-or-later",
    "gplv2": "GPL-2.0-only", "gplv2+": "GPL-2.0-or-later", "gpl 2": "GPL-2.0-only", "gplv3": "GPL-3.0-only",
    "gplv3+": "GPL-3.0-or-later", "gpl-3": "GPL-3.0-only", "gnu gplv3": "GPL-3.0-only",
    "gnu general public v2 (gplv2)": "GPL-2.0-only", "gnu general public v3 (gplv3)": "GPL-3.0-only",
    "gnu general public v2 or later (gplv2+)": "GPL-2.0-or-later", "gnu general public (gpl)": "GPL-1.0-or-later",
    "gnu general public v3 or later (gplv3+)": "GPL-3.0-or-later", "lgpl": "LGPL-2.0-or-later",
    "gnu lesser general public v3 (lgplv3)": "LGPL-3.0-only", "lgplv3": "LGPL-3.0-only",
    "lgplv2.1": "LGPL-2.1-only", "gnu lesser general public v3 or later (lgplv3+)": "LGPL-3.0-or-later",
    "lgplv2.1+": "LGPL-2.1-or-later", "gnu lesser general public v2 or later (lgplv2+)": "LGPL-2.0-or-later",
    "lgplv3+": "LGPL-3.0-or-later", "gnu affero general public v3": "AGPL-3.0-only", "agplv3": "AGPL-3.0-only",
    "agplv3+": "AGPL-3.0-or-later", "gnu affero general public v3 or later (agplv3+)": "AGPL-3.0-or-later",
    "isc (iscl)": "ISC", "expat": "MIT", "mozilla public 2.0 (mpl 2.0)": "MPL-2.0", "mpl 2.0": "MPL-2.0",
    "mpl": "MPL-2.0", "psf": "PSF-2.0", "psfl": "PSF-2.0", "python software foundation": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense", "zope public": "ZPL-2.1",
    "historical permission notice and disclaimer (hpnd)": "HPND", "boost software 1.0 (bsl-1.0)": "BSL-1.0",
    "mit no attribution (mit-0)": "MIT-0", "zlib/libpng": "Zlib", "public domain": "LicenseRef-Public-Domain",
    "other/proprietary": "LicenseRef-Proprietary", "proprietary": "LicenseRef-Proprietary",
    "nvidia proprietary software": "LicenseRef-NVIDIA-Proprietary",
    "cc0 1.0 universal (cc0 1.0) public domain dedication": "CC0-1.0",
}  # fmt: skip
"""What packages write, without the word licence and in lower case, and the SPDX expression that it means."""


@dataclass(frozen=True)
class PackageLicence:
    """The licence of one package: `licence` is SPDX if possible, else the original text; empty if unknown."""

    name: str
    version: str
    kind: str
    licence: str


def spdx(text: str) -> str:
    """The SPDX expression for a text; empty if it has no known one."""
    words = " ".join(text.split())
    if not words or len(words) > _LONGEST:
        return ""
    plain = " ".join(re.sub(r"\b(the|licen[cs]ed?|version)\b", " ", words.lower()).split())
    bare = " ".join(plain.replace(",", " ").split())
    return _canonical(words) or _USUAL.get(plain, "") or _USUAL.get(bare, "") or _canonical(plain)


def _canonical(words: str) -> str:
    try:
        return str(canonicalize_license_expression(words))
    except InvalidLicenseExpression:
        return ""


def of_metadata(text: str) -> str:
    """The licence in a package's metadata: SPDX if possible, else the original text."""
    message = HeaderParser().parsestr(text)
    licence = spdx(message.get("License-Expression") or "") or _classified(message)
    if licence:
        return licence
    said = " ".join((message.get("License") or "").split())
    return spdx(said) or ("" if said.upper() == "UNKNOWN" else said[:_LONGEST])


def _classified(message: Message) -> str:
    """The licence from the classifiers: ``License :: OSI Approved :: MIT License``."""
    classifiers: Iterable[str] = message.get_all("Classifier") or ()
    last = (line.rpartition("::")[2].strip() for line in classifiers if line.startswith("License ::"))
    licences = dict.fromkeys(filter(None, map(spdx, last)))
    return " OR ".join(licences)


def is_denied(expression: str, patterns: Sequence[str]) -> bool:
    """Whether a licence is denied: every alternative of an OR has to be, and any part of an AND.

    Args:
        patterns: shell patterns, case-insensitive: ``AGPL-*``. Text other than SPDX expressions is compared as a whole.
    """
    if not spdx(expression):
        return bool(expression) and _matches(expression, patterns)
    words = re.findall(r"[()]|[^\s()]+", expression)
    return _any_of(words, patterns)


def _any_of(words: list[str], patterns: Sequence[str]) -> bool:
    """Evaluate an OR at the front of the words, and remove it from them."""
    return all(_parts(words, "OR", lambda: _all_of(words, patterns)))


def _all_of(words: list[str], patterns: Sequence[str]) -> bool:
    return any(_parts(words, "AND", lambda: _one(words, patterns)))


def _parts(words: list[str], between: str, part: Callable[[], bool]) -> list[bool]:
    parts = [part()]
    while words and words[0] == between:
        words.pop(0)
        parts.append(part())
    return parts


def _one(words: list[str], patterns: Sequence[str]) -> bool:
    word = words.pop(0)
    if word == "(":
        is_match = _any_of(words, patterns)
        words.pop(0)
        return is_match
    if words and words[0] == "WITH":
        word = f"{word} WITH {words[1]}"
        del words[:2]
    return _matches(word, patterns)


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(text.lower(), pattern.lower()) for pattern in patterns)


def installed(directory: Path) -> dict[str, str]:
    """The licences of the distributions in a package directory, by their canonical names; unknown ones are left out."""
    known: dict[str, str] = {}
    for file in sorted(directory.glob("*.dist-info/METADATA")) + sorted(directory.glob("*.egg-info/PKG-INFO")):
        try:
            text = at.read_regular(file).decode("utf-8", "replace")
        except (OSError, StackyardError):
            continue
        if licence := of_metadata(text):
            known[canonical(HeaderParser().parsestr(text, headersonly=True).get("Name") or "")] = licence
    return known


def of_conda(package: CondaPackage) -> str:
    """The licence of a conda package: SPDX if possible, else the original text; empty if unknown."""
    return spdx(package.license) or package.license


def noted(sha256: str, yard: Yard) -> str | None:
    """The licence of a pip package that an earlier look-up left in a yard's cache; None: it was not looked up."""
    for ancestor in searched(yard) if sha256 else ():
        note = disk.content(ancestor.licence_note(sha256))
        if note is not None:
            return note.decode("utf-8", "replace").strip()
    return None


def stated(locked: LockedVariant, settings: PipSettings, yard: Yard) -> list[PackageLicence]:
    """The licence of every package of a locked variant, in the lock's order; unknown if metadata cannot be read.

    After a failed request, a server gets no further ones.
    """
    silent: set[str] = set()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        pip = list(pool.map(lambda package: _of_pip(package, settings, yard, silent), locked.pip))
    return [*map(_of_conda, locked.conda), *pip]


def _of_conda(package: CondaPackage) -> PackageLicence:
    return PackageLicence(package.name, package.version, "conda", of_conda(package))


def _of_pip(package: PipPackage, settings: PipSettings, yard: Yard, silent: set[str]) -> PackageLicence:
    known = noted(package.sha256, yard)
    if known is not None:
        return PackageLicence(package.name, package.version, "pip", known)
    text = _metadata(package, settings, silent)
    licence = of_metadata(text) if text else ""
    if text and package.sha256 and os.access(yard.cache, os.W_OK):
        place = yard.licence_note(package.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(place, f"{licence}\n", synced=False)
    return PackageLicence(package.name, package.version, "pip", licence)


def _metadata(package: PipPackage, settings: PipSettings, silent: set[str]) -> str:
    """The text of a package's metadata; empty if it cannot be read without downloading the package."""
    path = local_path(package.url) if package.url else None
    try:
        if package.kind == "wheel" and path is None:
            return _beside_wheel(package.url.partition("#")[0], settings, silent)
        return _in_archive(path) if path is not None and path.is_file() else ""
    except (StackyardError, KeyError, *_UNREADABLE):
        return ""


def _beside_wheel(url: str, settings: PipSettings, silent: set[str]) -> str:
    """The metadata of a wheel on a server: from the file beside it, else from the wheel by range requests."""
    trust, server = uv.trust(url, settings), host_of(url)
    if server in silent:
        return ""
    try:
        return http.read(f"{url}.metadata", timeout_s=_TIMEOUT_S, trust=trust).decode("utf-8", "replace")
    except StackyardError as error:
        if not isinstance(error.__cause__, HTTPError):  # no answer at all
            silent.add(server)
            raise
    with zipfile.ZipFile(RangedFile(url, _TIMEOUT_S, trust)) as wheel:
        return wheel.read(_first(wheel.namelist())).decode("utf-8", "replace")


def _in_archive(path: Path) -> str:
    """The metadata in a wheel or in a source archive."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as bundle:
            return bundle.read(_first(bundle.namelist())).decode("utf-8", "replace")
    with tarfile.open(path) as tar:
        member = tar.extractfile(_first(tar.getnames()))
        return member.read().decode("utf-8", "replace") if member else ""


def _first(names: Sequence[str]) -> str:
    """The metadata file nearest to the top. Raises KeyError if there is none."""
    candidates = [n for n in names if n.count("/") == 1 and n.endswith((".dist-info/METADATA", "/PKG-INFO"))]
    if not candidates:
        raise KeyError("metadata")
    return candidates[0]


@dataclass(frozen=True)
class Policy:
    """The licences that a site denies; `allowed`: packages exempt from it; `unknown`: deny unknown licences too."""

    deny: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    unknown: bool = False


def require_allowed(
    label: str, packages: Sequence[PackageLicence], policy: Policy, notice: Callable[[str], None]
) -> None:
    """Reject a locked variant with a licence that the site denies.

    Args:
        label: the name of the variant, for the message.
        notice: is called with the unknown licences, if these are not denied.

    Raises:
        InputError: lists every such package.
    """
    looked_at = [package for package in packages if package.name not in policy.allowed]
    bad = [f"{p.name} {p.version} ({p.licence})" for p in looked_at if is_denied(p.licence, policy.deny)]
    unknown = [f"{p.name} {p.version}" for p in looked_at if not p.licence]
    if policy.unknown:
        bad += [f"{licence_label} (not known)" for licence_label in unknown]
    elif unknown:
        notice(f"the licences of these packages of {label} are not known: {', '.join(unknown)}")
    if bad:
        raise InputError(
            f"{label} has licences that the site denies: {', '.join(bad)}",
            hint="require other packages or versions; the site may except one: `licences: {allow: [NAME]}`",
        )
