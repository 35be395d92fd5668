"""``stackyard sbom`` and ``show --cite``, as a person types them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from support import smallyard
from support.cli import inside


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return smallyard.make(tmp_path_factory.mktemp("sbom") / "yard", "1.0").root


def test_a_bill_is_printed_and_what_it_lacks_is_noted(yard: Path) -> None:
    done = inside("--yard", yard, "sbom", "tool")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(done.out) is None
    assert done.value["metadata"]["component"]["version"] == "1.0-py311-1"
    assert "the lock cannot be read" in done.err and "5 packages without a known licence" in done.err
    assert inside("--yard", yard, "sbom", "tool", "--format", "spdx").value["spdxVersion"] == "SPDX-2.3"
    assert inside("--yard", yard, "sbom", "tool").out == done.out
    assert "no such revision" in inside("--yard", yard, "sbom", "nothing", expect=2).err


def test_a_revision_is_cited_with_the_name_of_the_site(yard: Path, tmp_path: Path) -> None:
    paths = smallyard.revision(smallyard.Yard(yard), "1.0")
    paths.lock.parent.mkdir(exist_ok=True)
    paths.lock.write_text("a lock\n")
    site = smallyard.give_site(tmp_path, text="name: Some Site\n")
    shown = inside("--yard", yard, "--site", site, "show", "tool/1.0", "--cite").out
    digest = hashlib.sha256(b"a lock\n").hexdigest()
    assert shown.count(digest) == 2 and shown.count("Some Site") == 2
    assert shown.startswith("@misc{tool/1.0-py311-1,") and "\n\ncff-version: 1.2.0\n" in shown
    assert set(inside("--yard", yard, "show", "tool", "--cite", "--json").value) == {"bibtex", "cff"}
