"""What packages say of their licences, as SPDX expressions if possible: in metadata, in what is installed, in notes.

Of several statements the most precise counts: ``License-Expression`` (PEP 639), then the classifiers, then the free
text, where it is one of the usual names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from stackyard.core.errors import StackyardError
from stackyard.core.names import canonical
from stackyard.host.files import at
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.yard import disk
from stackyard.yard.cache.caches import searched
from stackyard.yard.layout import Yard

_LONGEST = 200
"""The longest text that is taken for a licence."""
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
