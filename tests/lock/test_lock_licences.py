"""Under which licence packages are, and which a site denies."""

from __future__ import annotations

import http.server
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from stackyard.core.errors import InputError
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.licences import PackageLicence, Policy, is_denied, require_allowed, stated
from stackyard.lock.licencetexts import of_metadata, spdx
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, LockedVariant, PipPackage
from stackyard.yard.layout import Yard
from support.tinywheel import wheel
from support.webserver import served

OSI = "Classifier: License :: OSI Approved ::"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("MIT", "MIT"), ("MIT License", "MIT"), ("The MIT License", "MIT"), ("mit", "MIT"), ("BSD", "BSD-3-Clause"),
        ("Apache License, Version 2.0", "Apache-2.0"), ("Apache Software License", "Apache-2.0"),
        ("apache-2.0 and (mit or bsd-3-clause)", "Apache-2.0 AND (MIT OR BSD-3-Clause)"),
        ("GPLv3+", "GPL-3.0-or-later"),
        ("GNU Lesser General Public License v3 (LGPLv3)", "LGPL-3.0-only"),
        ("Python Software Foundation License", "PSF-2.0"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0"), ("GPL-3.0-only WITH GCC-exception-3.1",) * 2,
        ("see LICENSE.txt", ""), ("", ""), ("a" * 5000, ""),
    ],
)  # fmt: skip
def test_what_packages_write_is_told_as_spdx(text: str, meant: str) -> None:
    assert spdx(text) == meant


@pytest.mark.parametrize(
    ("lines", "meant"),
    [
        ("License-Expression: MIT\nLicense: other", "MIT"),
        ("Classifier: License :: OSI Approved :: MIT License\nLicense: whatever", "MIT"),
        ("Classifier: License :: OSI Approved", ""),
        ("License: BSD 3-Clause", "BSD-3-Clause"),
        ("License: UNKNOWN", ""),
        ("License: our own terms", "our own terms"),
        (f"{OSI} MIT License\n{OSI} Apache Software License", "MIT OR Apache-2.0"),
    ],
)  # fmt: skip
def test_the_strictest_word_of_the_metadata_counts(lines: str, meant: str) -> None:
    assert of_metadata(f"Metadata-Version: 2.4\nName: a\n{lines}\n\nLicense: of the description\n") == meant


@pytest.mark.parametrize(
    ("licence", "denied"),
    [
        ("AGPL-3.0-only", True), ("MIT", False), ("MIT OR AGPL-3.0-only", False), ("MIT AND AGPL-3.0-only", True),
        ("(AGPL-3.0-only OR GPL-3.0-only) AND MIT", False), ("AGPL-3.0-only OR (AGPL-1.0-only AND MIT)", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False), ("LicenseRef-Proprietary", True), ("secret terms", True),
        ("", False), ("GPL-3.0-only WITH GCC-exception-3.1", True),
    ],
)  # fmt: skip
def test_an_expression_is_denied_by_its_parts(licence: str, denied: bool) -> None:
    assert is_denied(licence, ["agpl-*", "*Proprietary", "secret*", "GPL-3.0-* WITH *"]) is denied


def _licensed(directory: Path, name: str, line: str) -> Path:
    file = wheel(directory, name, "1.0")
    other = file.with_suffix(".new")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(other, "w") as new:
        new.writestr("big", b"0" * 200_000)
        for member in old.namelist():
            text = old.read(member)
            new.writestr(member, text + f"{line}\n".encode() if member.endswith("METADATA") else text)
    return other.replace(file)


def _package(url: str, name: str) -> PipPackage:
    return PipPackage(name, "1.0", "wheel", url, (name * 64)[:64])


def test_licences_are_read_from_the_index_from_wheels_and_once(tmp_path: Path) -> None:
    web, yard = tmp_path / "web", Yard(tmp_path / "yard")
    yard.cache.mkdir(parents=True)
    here = _licensed(tmp_path, "c", "License: ISC")
    _licensed(web, "a", "License-Expression: MIT")
    (web / "b-1.0-py3-none-any.whl.metadata").write_text("Metadata-Version: 2.1\nName: b\nLicense: BSD\n")
    conda = CondaPackage("d", "2", "0", 0, "noarch", "ch", "file:///d.conda", "0" * 64, license="GPLv2+")
    with served(web) as url:
        pip = (*(_package(f"{url}/{n}-1.0-py3-none-any.whl", n) for n in "ab"), _package(here.as_uri(), "c"))
        locked = LockedVariant("s", "1", "", "linux-64", "", LockedInterpreter("none"), conda=(conda,), pip=pip)
        found = stated(locked, PipSettings(), yard)
    # http.server knows no ranges: of `a` nothing is known
    assert [(each.name, each.licence) for each in found] == [
        ("d", "GPL-2.0-or-later"), ("a", ""), ("b", "BSD-3-Clause"), ("c", "ISC"),
    ]  # fmt: skip
    assert [each.licence for each in stated(locked, PipSettings(), yard)][2:] == ["BSD-3-Clause", "ISC"]


class _Parts(http.server.SimpleHTTPRequestHandler):
    """Gives out one file by range requests, and counts the bytes."""

    data = b""
    says = "bytes {first}-{last}/{size}"
    sent: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        if self.path.endswith(".metadata"):
            self.send_error(404)
            return
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        start = int(first) if first else max(0, len(self.data) - int(last))
        part = self.data[start : int(last) + 1 if first else None]
        self.sent.append(len(part))
        self.send_response(206)
        said = self.says.format(first=start, last=start + len(part) - 1, size=len(self.data))
        if said:
            self.send_header("Content-Range", said)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def in_parts(tmp_path: Path) -> Iterator[LockedVariant]:
    """A lock with a wheel on a server that gives it out by parts."""
    _Parts.data = _licensed(tmp_path, "a", "License-Expression: MIT").read_bytes()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Parts)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    package = _package(f"http://127.0.0.1:{server.server_address[1]}/a-1.0-py3-none-any.whl", "a")
    yield LockedVariant("s", "1", "", "linux-64", "", LockedInterpreter("none"), pip=(package,))
    server.shutdown()
    server.server_close()


def test_of_a_wheel_without_a_metadata_file_beside_it_only_parts_are_read(
    tmp_path: Path, in_parts: LockedVariant
) -> None:
    _Parts.sent.clear()
    assert [each.licence for each in stated(in_parts, PipSettings(), Yard(tmp_path / "yard"))] == ["MIT"]
    assert sum(_Parts.sent) < 70_000 < len(_Parts.data)


@pytest.mark.parametrize("says", ["", "bytes {first}-{last}/*", "bytes", "bytes {first}-{last}/x"])
def test_a_server_that_does_not_say_how_large_a_wheel_is(
    tmp_path: Path, in_parts: LockedVariant, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    monkeypatch.setattr(_Parts, "says", says)
    assert [each.licence for each in stated(in_parts, PipSettings(), Yard(tmp_path / "yard"))] == [""]


def test_of_a_damaged_wheel_no_licence_is_known(tmp_path: Path) -> None:
    file = tmp_path / "a-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("a-1.0.dist-info/METADATA", "License: MIT\n" * 100)
        start = bundle.infolist()[0].header_offset + 30 + len("a-1.0.dist-info/METADATA")
    data = bytearray(file.read_bytes())
    data[start : start + 4] = b"\xff" * 4
    file.write_bytes(data)
    locked = LockedVariant("s", "1", "", "linux-64", "", LockedInterpreter("none"), pip=(_package(file.as_uri(), "a"),))
    assert [each.licence for each in stated(locked, PipSettings(), Yard(tmp_path / "yard"))] == [""]


def test_a_lock_with_a_denied_licence_is_refused_with_every_package() -> None:
    packages = [
        PackageLicence("good", "1", "pip", "MIT"),
        PackageLicence("bad", "1", "pip", "AGPL-3.0-only"),
        PackageLicence("odd", "2", "conda", ""),
    ]
    told: list[str] = []
    with pytest.raises(InputError, match=r"demo has licences that the site denies: bad 1 \(AGPL-3.0-only\)"):
        require_allowed("demo", packages, Policy(("AGPL-*",)), told.append)
    assert told == ["the licences of these packages of demo are not known: odd 2"]
    require_allowed("demo", packages, Policy(("AGPL-*",), ("bad",)), told.append)
    with pytest.raises(InputError, match=r"odd 2 \(not known\)"):
        require_allowed("demo", packages, Policy(("AGPL-*",), ("bad",), unknown=True), told.append)
