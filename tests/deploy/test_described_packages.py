"""The packages of a revision with their licences: from its record, and for an earlier one from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stackyard.deploy.described.packages import packages_of
from stackyard.lock.lockfile.model import CondaPackage, Lock, LockedInterpreter, LockedVariant
from stackyard.lock.lockfile.text import dump
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, PackageRecord
from support import stackrecords

SHA = "a" * 64


def _former(tmp_path: Path) -> BuildRecord:
    """A record of a version without licences, with its lock, an installed package and the note of another."""
    yard = Yard(tmp_path / "yard")
    packages = (
        PackageRecord("zlib", "1.3", "conda"), PackageRecord("Inst_alled", "1.0", "pip"),
        PackageRecord("noted", "1.0", "pip", sha256=SHA), PackageRecord("nowhere", "1.0", "pip"),
    )  # fmt: skip
    record = stackrecords.record(yard, "s", "1", packages=packages, interpreter={"version": "3.11.7"})
    paths = RevisionPaths.of(record.path)
    url = "https://example.org/c/linux-64/zlib-1.3-h_0.conda"
    conda = CondaPackage("zlib", "1.3", "h_0", 0, "linux-64", "https://example.org/c", url, SHA, license="Zlib License")
    lock = LockedVariant("s", "1", "py311", "linux-64", SHA, LockedInterpreter("conda", "3.11.7"), conda=(conda,))
    paths.lock.parent.mkdir(parents=True)
    paths.lock.write_text(dump(Lock("s", (lock,))))
    info = paths.prefix / "lib/python3.11/site-packages/inst_alled-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: inst-alled\nVersion: 1.0\nLicense: MIT License\n")
    note = yard.licence_note(SHA)
    note.parent.mkdir(parents=True)
    note.write_text("ISC\n")
    return record


def test_an_earlier_record_takes_licences_from_lock_files_and_notes(tmp_path: Path) -> None:
    record = _former(tmp_path)
    assert {p.name: p.licence for p in packages_of(record)} == {
        "zlib": "Zlib", "Inst_alled": "MIT", "noted": "ISC", "nowhere": "",
    }  # fmt: skip


def test_a_record_with_licences_reads_nothing_else(tmp_path: Path) -> None:
    record = _former(tmp_path)
    first, *rest = record.packages
    record = replace(record, packages=(replace(first, licence="MIT"), *rest))
    assert packages_of(record) == record.packages


def test_an_extension_has_the_licences_of_an_earlier_base(tmp_path: Path) -> None:
    base = _former(tmp_path)
    below = tuple(replace(package, of_base=True) for package in base.packages)
    of = BaseRevision(str(tmp_path / "yard"), base.module, "0" * 64, base.prefix)
    own = PackageRecord("own", "2", "pip", licence="MIT")
    record = replace(base, path=str(tmp_path / "other"), base=of, packages=(*below, own))
    told = {p.name: (p.licence, p.of_base) for p in packages_of(record, lambda _: base)}
    assert told["zlib"] == ("Zlib", True) and told["nowhere"] == ("", True) and told["own"] == ("MIT", False)


def test_a_revision_whose_lock_is_damaged_and_base_gone_is_told_without_licences(tmp_path: Path) -> None:
    record = _former(tmp_path)
    RevisionPaths.of(record.path).lock.write_text("damaged")
    of = BaseRevision(str(tmp_path / "gone"), "b/1", "0" * 64, "/p")
    below = PackageRecord("base", "1", "conda", of_base=True)
    record = replace(record, base=of, packages=(below, *record.packages))
    assert [p.licence for p in packages_of(record)] == ["", "", "MIT", "ISC", ""]
