"""The bill of materials of revisions of every kind: accepted by the validators of both formats, and always the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from ruamel.yaml import YAML
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from stackyard.deploy.described.bill import Bill, bill_of
from stackyard.deploy.described.cite import bibtex, cff, citation_of
from stackyard.deploy.described.formats import FORMATS
from stackyard.deploy.described.notebook import Revision, Revisions
from stackyard.deploy.published.describe import revision_json
from stackyard.lock.lockfile.model import CondaPackage, Lock, LockedInterpreter, LockedVariant, PipPackage
from stackyard.lock.lockfile.text import dump
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.kinds.payload import Form
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, PackageRecord
from support import stackrecords

CHANNEL = "https://conda.example.org/conda-forge"
INDEX = "https://pypi.example.org/simple"
A, B, C, MD5 = "a" * 64, "b" * 64, "c" * 64, "d" * 32


def _conda(name: str, version: str, depends: tuple[str, ...] = (), ending: str = ".conda") -> CondaPackage:
    url = f"{CHANNEL}/linux-64/{name}-{version}-h_0{ending}"
    return CondaPackage(name, version, "h_0", 0, "linux-64", CHANNEL, url, A, MD5, 7, license="MIT", depends=depends)


CONDA = (
    _conda("python", "3.11.7", ("__glibc >=2.17", "libzlib >=1.2")), _conda("libzlib", "1.3"),
    _conda("numpy", "1!2.0", ("python >=3.11",), ".tar.bz2"),
)  # fmt: skip
PIP = (
    PipPackage("torch", "2.9.0+cpu", "wheel", "https://w.example.org/torch-2.9.0%2Bcpu-cp311.whl", B, INDEX,
               requires=("numpy>=1.26", "Typing_Extensions")),
    PipPackage("typing-extensions", "4.12", "sdist", "https://w.example.org/typing_extensions-4.12.tar.gz", C, INDEX),
    PipPackage("own", "0.1", "vcs", "https://git.example.org/own.git", "", commit="e" * 40, subdirectory="py"),
    PipPackage("local", "1.0", "path", "file:///home/anna/local", C),
)  # fmt: skip
LICENCES = {"torch": "BSD-3-Clause", "typing-extensions": "our own terms <b>", "own": "LicenseRef-Proprietary"}


def built(tmp_path: Path, **more: Any) -> BuildRecord:
    """A revision as a build leaves it: with its lock, conda and pip packages of every kind."""
    packages = [
        PackageRecord(p.name, p.version, "conda", p.build, p.channel, p.url, p.sha256, p.size, p.depends, licence="MIT")
        for p in CONDA
    ] + [
        PackageRecord(p.name, p.version, "pip", "", p.index, p.url, p.sha256, 0, p.requires,
                      licence=LICENCES.get(p.name, ""))
        for p in PIP
    ]  # fmt: skip
    record = stackrecords.record(
        Yard(tmp_path / "yard"),
        "sci",
        "1.0",
        packages=packages,
        summary='A "stack" & <more>',
        interpreter={"source": "conda", "version": "3.11.7"},
    )
    asked = ("numpy", "pip: torch")
    lock = LockedVariant("sci", "1.0", "py311", "linux-64", A, LockedInterpreter("conda", "3.11.7"), requested=asked,
                         conda=CONDA, pip=PIP)  # fmt: skip
    path = RevisionPaths.of(record.path).lock
    path.parent.mkdir(parents=True)
    path.write_text(dump(Lock("sci", (lock,))))
    return replace(record, **more)


def image(tmp_path: Path) -> BuildRecord:
    return built(tmp_path, form=Form("squashfs", "image.sqsh", B, 1, 1, "mksquashfs"))


def adopted(tmp_path: Path) -> BuildRecord:
    return built(tmp_path, adopted=AdoptedPrefix("conda", "/sw/old", A))


def extension(tmp_path: Path) -> BuildRecord:
    """A layer whose own lock has one pip package."""
    base = built(tmp_path / "base")
    of = BaseRevision(str(tmp_path / "base/yard"), base.module, "9" * 64, base.prefix)
    record = built(tmp_path)
    own = PackageRecord("mine", "1.0", "pip", requires=("torch",), licence="MIT")
    return replace(record, base=of, packages=(*(replace(p, of_base=True) for p in base.packages), own))


def wrapped(tmp_path: Path) -> BuildRecord:
    facts = {"source": "oci:/home/anna/layout", "digest": f"sha256:{C}", "labels": {}, "mode": "host", "commands": {},
             "shell": "/bin/sh"}  # fmt: skip
    form = Form("container", "image.sqsh", B, 1, 1, "mksquashfs")
    return stackrecords.record(Yard(tmp_path / "yard"), "tool", "1", packages=(), form=form, container=facts)


def on_host(tmp_path: Path) -> BuildRecord:
    python = {"source": "host", "version": "3.11.2", "path": "/usr/bin/python3.11", "sha256": B}
    return stackrecords.record(Yard(tmp_path / "yard"), "s", "1", packages=stackrecords.PYTORCH[3:], interpreter=python)


KINDS = (built, image, adopted, extension, wrapped, on_host)


def texts(bill: Bill) -> dict[str, str]:
    return {name: json.dumps(made(bill)) for name, made in FORMATS.items()}


@pytest.mark.parametrize("made", KINDS)
def test_both_formats_are_valid_and_the_same_each_time(made: Callable[[Path], BuildRecord], tmp_path: Path) -> None:
    record = made(tmp_path)
    shown = texts(bill_of(record))
    assert texts(bill_of(record)) == shown
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(shown["cyclonedx"]) is None
    assert validate_full_spdx_document(JsonLikeDictParser().parse(json.loads(shown["spdx"]))) == []
    purls = [component["purl"] for component in json.loads(shown["cyclonedx"])["components"]]
    assert [PackageURL.from_string(purl).to_string() for purl in purls] == purls and len(set(purls)) == len(purls)
    assert "/home/anna" not in shown["cyclonedx"] + shown["spdx"]


def test_packages_have_purl_hashes_licence_place_and_needs(tmp_path: Path) -> None:
    value = FORMATS["cyclonedx"](bill_of(built(tmp_path)))
    by_name = {component["name"]: component for component in value["components"]}
    torch, numpy, own = by_name["torch"], by_name["numpy"], by_name["own"]
    assert torch["purl"] == "pkg:pypi/torch@2.9.0%2Bcpu?file_name=torch-2.9.0%2Bcpu-cp311.whl"
    assert torch["hashes"] == [{"alg": "SHA-256", "content": B}]
    assert torch["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert torch["externalReferences"] == [{"type": "distribution", "url": PIP[0].url}]
    assert numpy["purl"] == "pkg:conda/numpy@1%212.0?build=h_0&channel=conda-forge&subdir=linux-64&type=tar.bz2"
    assert numpy["hashes"] == [{"alg": "SHA-256", "content": A}, {"alg": "MD5", "content": MD5}]
    assert own["purl"] == f"pkg:pypi/own@0.1?vcs_url=git%2Bhttps://git.example.org/own.git%40{'e' * 40}#py"
    assert own["externalReferences"] == [{"type": "vcs", "url": f"git+https://git.example.org/own.git@{'e' * 40}"}]
    assert by_name["typing-extensions"]["licenses"] == [{"license": {"name": "our own terms <b>"}}]
    assert by_name["local"]["purl"] == "pkg:generic/local@1.0" and "externalReferences" not in by_name["local"]
    needs = {entry["ref"]: entry["dependsOn"] for entry in value["dependencies"]}
    assert needs[torch["purl"]] == sorted([numpy["purl"], by_name["typing-extensions"]["purl"]])
    assert needs[numpy["purl"]] == [by_name["python"]["purl"]]
    assert needs["sci/1.0-py311-1"] == sorted(by_name[n]["purl"] for n in ("numpy", "torch", "own", "local"))


def test_spdx_has_the_same_packages(tmp_path: Path) -> None:
    value = FORMATS["spdx"](bill_of(built(tmp_path)))
    by_name = {package["name"]: package for package in value["packages"]}
    assert by_name["numpy"]["checksums"][1] == {"algorithm": "MD5", "checksumValue": MD5}
    assert by_name["typing-extensions"]["licenseDeclared"] == "LicenseRef-our-own-terms-b"
    assert {row["licenseId"]: row["extractedText"] for row in value["hasExtractedLicensingInfos"]} == {
        "LicenseRef-our-own-terms-b": "our own terms <b>", "LicenseRef-Proprietary": "LicenseRef-Proprietary",
    }  # fmt: skip
    relations = {(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]) for r in value["relationships"]}
    assert (by_name["torch"]["SPDXID"], "DEPENDS_ON", by_name["numpy"]["SPDXID"]) in relations


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    bill = bill_of(wrapped(tmp_path))
    assert bill.notes[0] == "the packages inside the wrapped image are not known"
    root = FORMATS["cyclonedx"](bill)["metadata"]["component"]
    assert (
        root["type"] == "container" and {"name": "stackyard:image_digest", "value": f"sha256:{C}"} in root["properties"]
    )
    assert FORMATS["cyclonedx"](bill)["compositions"] == [{"aggregate": "unknown", "assemblies": [root["bom-ref"]]}]
    record = built(tmp_path / "b")
    assert bill_of(record).notes == (
        "1 package without a known licence: local", "1 package without a known hash of the archive: own",
    )  # fmt: skip
    RevisionPaths.of(record.path).lock.unlink()
    bill = bill_of(record)
    assert bill.notes[0].startswith("the lock cannot be read") and bill.lock_sha256 == ""
    assert {c.name for c in bill.components} == {p.name for p in record.packages}
    assert "adopted" in bill_of(adopted(tmp_path / "c")).notes[0]


def test_the_number_is_that_of_the_lock(tmp_path: Path) -> None:
    one, again = built(tmp_path / "1"), replace(built(tmp_path / "2"), module="sci/1.0-py311-2", input_hash="1")
    assert bill_of(one).number == bill_of(again).number
    other = replace(built(tmp_path / "3"))
    path = RevisionPaths.of(other.path).lock
    path.write_text(path.read_text().replace("4.12", "4.13"))
    assert bill_of(other).number != bill_of(one).number
    assert bill_of(extension(tmp_path / "4")).number != bill_of(one).number


def test_an_extension_has_the_packages_of_its_base(tmp_path: Path) -> None:
    value = FORMATS["cyclonedx"](bill_of(extension(tmp_path)))
    by_name = {component["name"]: component for component in value["components"]}
    assert by_name["torch"]["properties"] == [{"name": "stackyard:of_base", "value": "true"}]
    assert "properties" not in by_name["mine"]
    needs = {entry["ref"]: entry["dependsOn"] for entry in value["dependencies"]}
    assert needs[by_name["mine"]["purl"]] == [by_name["torch"]["purl"]]


def test_the_python_of_a_host_is_a_component(tmp_path: Path) -> None:
    first = FORMATS["cyclonedx"](bill_of(on_host(tmp_path)))["components"][0]
    assert (first["purl"], first["hashes"]) == ("pkg:generic/python@3.11.2", [{"alg": "SHA-256", "content": B}])


@pytest.mark.parametrize("made", KINDS)
def test_it_is_cited_with_the_hash_of_its_lock(made: Callable[[Path], BuildRecord], tmp_path: Path) -> None:
    bill = bill_of(replace(made(tmp_path), summary='{50 %} of\x1b "it"\nand more: yes'))
    exact = bill.lock_sha256 or bill.record.input_hash
    value = YAML(typ="safe").load(cff(citation_of(bill.record), 'Site: "A" & Sons', "https://example.org/{a}"))
    assert (value["cff-version"], value["type"], value["authors"]) == (
        "1.2.0", "software", [{"name": 'Site: "A" & Sons'}],
    )  # fmt: skip
    assert exact in [entry["value"] for entry in value["identifiers"]]
    assert value["abstract"] == '{50 %} of "it" and more: yes' and str(value["date-released"]) == "2026-03-01"
    entry = bibtex(citation_of(bill.record), "A & {Sons}_50%", "https://example.org/{a}")
    assert entry.startswith(f"@misc{{{bill.record.module},") and exact in entry
    assert r"{A \& \{Sons\}\_50\%}" in entry and "https://example.org/%7Ba%7D" in entry
    plain = re.sub(r"\\[{}]", "", entry)
    assert plain.count("{") == plain.count("}")


def test_a_notebook_shows_texts_and_no_markup(tmp_path: Path) -> None:
    record = built(tmp_path, summary="<script>alert(1)</script>")
    revisions.mark(record)
    value = Revision(revision_json(Yard(tmp_path / "yard"), stackrecords.entry(record), record))
    shown = value._repr_html_()
    assert "&lt;script&gt;alert(1)" in shown and "our own terms &lt;b&gt;" in shown and "7 packages" in shown
    rows = Revisions([{**value, "deprecated": "<img onerror=x>"}])._repr_html_()
    assert "&lt;img onerror=x&gt;" in rows and "sci/1.0-py311-1" in rows
    for html in (shown, rows):
        assert not re.search(r"<(script|img|b)\b", html)
        ElementTree.fromstring(html)  # every element is closed
    assert json.dumps(value) == json.dumps(dict(value))
