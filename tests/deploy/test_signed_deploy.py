"""Signed by the deploy that builds, killed in between, sent to another yard, and judged there by another list."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stackyard.images.oci import artefact
from stackyard.images.oci.layout import Reference
from stackyard.images.oci.writer import writer
from stackyard.yard import checksum
from stackyard.yard.revision import contents
from stackyard.yard.revision.directories import RevisionPaths
from support import programs, sshkeys, testbed
from support.cli import Done, stackyard

pytestmark = [pytest.mark.real, pytest.mark.slow]
ALL = "[load, extend, pull, launch]"


@dataclass
class Bed:
    """A yard whose deploys are signed by anna; revisions that were pushed from it; and new yards at its path."""

    directory: Path

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    @property
    def paths(self) -> RevisionPaths:
        return RevisionPaths(self.yard / "stacks/small/1-py3-1")

    def signers(self, **names: str) -> None:
        """Who may sign; the keys have the names of their owners."""
        sshkeys.allow(
            self.directory / "signers", **{name: self.directory / "keys" / key for name, key in names.items()}
        )

    def site(self, policy: str) -> None:
        text = f"yard: {self.yard}\nmodules: {{formats: [tcl]}}\n{policy}\n"
        (self.directory / "site.yaml").write_text(text)

    def stackyard(self, *words: str | Path, expect: int | None = 0, **variables: Any) -> Done:
        own = {
            "HOME": str(self.directory / "home"),
            "STACKYARD_SITE": str(self.directory / "site.yaml"),
            "SSH_AUTH_SOCK": "",
        }
        return stackyard("--yard", self.yard, *words, expect=expect, **own, **variables)

    def begin(self) -> None:
        (self.directory / "home").mkdir()
        for name in ("anna", "other"):
            sshkeys.key(self.directory / "keys", name)
        self.signers(anna="anna")
        wheels = testbed.wheels(testbed.HERE / "wheels.txt")
        (self.directory / "small.yaml").write_text(
            "name: small\nversion: '1'\nenvironment:\n"
            f"  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
        )

    def pushed(self, name: str) -> str:
        return f"oci:{self.directory}/layout:{name}"

    def pull(self, name: str = "signed", expect: int = 0) -> Done:
        return self.stackyard("pull", self.pushed(name), expect=expect)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """Deployed and killed before it was signed, then deployed: what that leaves is looked at by its first test."""
    programs.need("ssh-keygen")
    bed = Bed(tmp_path_factory.mktemp("signed"))
    bed.begin()
    bed.site(f"signatures: {{key: keys/anna, allowed_signers: signers, require: {ALL}}}")
    killed = bed.stackyard("deploy", bed.directory / "small.yaml", expect=None, STACKYARD_FAULT="sign-before")
    assert killed.code == -9 and bed.paths.record.exists() and not bed.paths.signatures.exists()
    assert not (bed.yard / "modules").exists(), "nobody sees what is not signed"
    said = bed.stackyard("run", "small/1-py3-1", "--", "python", "-c", "", expect=3)
    assert "cannot load small/1-py3-1: it has no signature" in said.err
    done = bed.stackyard("deploy", bed.directory / "small.yaml", "--json").value
    assert [row["status"] for row in done["revisions"]] == ["published"]
    bed.stackyard("push", "small", bed.pushed("signed"))
    shutil.move(bed.paths.signatures, bed.directory / "signatures")
    bed.stackyard("push", "small", bed.pushed("unsigned"))
    shutil.move(bed.directory / "signatures", bed.paths.signatures)
    bed.yard.rename(bed.directory / "away")
    return bed


@pytest.fixture
def bed(made: Bed) -> Iterator[Bed]:
    made.signers(anna="anna")
    yield made
    shutil.rmtree(made.yard, ignore_errors=True)


def test_a_deploy_signs_and_one_that_was_killed_goes_on(bed: Bed) -> None:
    """The kill, and that nobody sees the revision until it is signed, are in the fixture."""
    bed.site(f"signatures: {{key: keys/anna, allowed_signers: signers, require: {ALL}}}")
    (bed.directory / "away").rename(bed.yard)
    try:
        shown = bed.stackyard("show", "small", "--json").value
        assert [each["signer"] for each in shown["signatures"]] == ["anna@site"]
        assert bed.stackyard("run", "small", "--", "python", "-c", "import idna; print(1)").out == "1\n"
        again = bed.stackyard("deploy", bed.directory / "small.yaml", "--json").value
        assert [row["status"] for row in again["revisions"]] == ["unchanged"]
        file = next((bed.paths.prefix / "lib").rglob("idna/core.py"))
        file.chmod(0o644)
        kept = file.read_bytes()
        file.write_bytes(kept + b"# more\n")
        assert "idna/core.py has changed" in bed.stackyard("verify", "small", expect=3).out, "the record has its hash"
        file.write_bytes(kept)
    finally:
        bed.yard.rename(bed.directory / "away")


def test_a_deploy_without_a_key_stops_before_it_builds(bed: Bed) -> None:
    for policy, says, code in (
        (f"allowed_signers: signers, require: {ALL}", "demands signatures, and no key is named", 2),
        (f"allowed_signers: signers, require: {ALL}, key: keys/nobody", "keys/nobody: no such file", 2),
        (
            f"allowed_signers: signers, require: {ALL}, key: keys/other",
            "is not an accepted signing key: its signer SHA256:",
            1,
        ),
    ):
        bed.site(f"signatures: {{{policy}}}")
        done = bed.stackyard("deploy", bed.directory / "small.yaml", expect=code)
        assert says in done.err and "Traceback" not in done.err
        assert not bed.paths.record.exists() and not (bed.yard / "modules").exists()


def test_a_pull_keeps_the_signature_and_the_bytes_that_it_covers(bed: Bed) -> None:
    bed.site(f"signatures: {{allowed_signers: signers, require: {ALL}}}")
    assert bed.pull().out == "small/1-py3-1: published\n"
    away = RevisionPaths(bed.directory / "away/stacks/small/1-py3-1")
    assert bed.paths.record.read_bytes() == away.record.read_bytes()
    assert bed.stackyard("show", "small", "--json").value["signatures"][0]["signer"] == "anna@site"
    assert bed.stackyard("run", "small", "--", "python", "-c", "import idna; print(1)").out == "1\n"


@pytest.mark.parametrize("what", ["pull", "load"])
def test_what_the_other_yard_does_not_accept_leaves_nothing(bed: Bed, what: str) -> None:
    """Another list of signers, nobody's signature: refused before anything is unpacked."""
    bed.site(f"signatures: {{allowed_signers: signers, require: [{what}]}}")
    said = bed.pull("unsigned", expect=3).err
    assert f"cannot pull small/1-py3-1: it has no signature, and {bed.yard} demands a valid signature" in said
    bed.signers(other="other")
    said = bed.pull(expect=3).err
    assert "cannot pull small/1-py3-1: its signer SHA256:" in said and f"is not in {bed.directory}/signers" in said
    assert not bed.paths.root.exists() and not (bed.yard / "modules").exists()


def test_without_a_demand_what_has_no_signature_is_pulled_as_ever(bed: Bed) -> None:
    bed.site("")
    assert bed.pull("unsigned").out == "small/1-py3-1: published\n"
    assert not bed.paths.signatures.exists()


def other_record(signed: artefact.SignedRecord) -> artefact.SignedRecord:
    return artefact.SignedRecord(signed.record.replace("small", "smell"), signed.statement, signed.signatures)


def other_operations(signed: artefact.SignedRecord) -> artefact.SignedRecord:
    """The statement of what was signed, with the operations of another module: it is not what was unpacked."""
    return artefact.SignedRecord(signed.record, signed.statement[:-3] + "00\n", signed.signatures)


def no_signature(signed: artefact.SignedRecord) -> artefact.SignedRecord:
    return artefact.SignedRecord(signed.record, signed.statement, ("nothing",))


HARMS = {
    other_record: ("checksum mismatch", 1),
    other_operations: ("it was changed after anna@site had signed it", 3),
    no_signature: ("not a signature of ssh-keygen", 1),
}


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_an_artefact_that_was_changed_on_the_way(
    bed: Bed, tmp_path: Path, harm: Callable[[artefact.SignedRecord], artefact.SignedRecord]
) -> None:
    bed.site("signatures: {allowed_signers: signers, require: [pull]}")
    says, code = HARMS[harm]
    done = bed.stackyard("pull", harmed(bed, tmp_path, harm), expect=code)
    assert says in done.err and "Traceback" not in done.err
    assert not bed.paths.root.exists()


def test_a_module_that_was_changed_on_the_way_is_found_without_a_demand(bed: Bed, tmp_path: Path) -> None:
    """Its operations are no file that the record has the hash of; the signature covers them."""
    bed.site("")

    def change(tree: Path) -> None:
        text = checksum.read(tree / "module.json")
        value = json.loads(text)
        value["change"] = value["change"][1:]
        (tree / "module.json").write_text(checksum.add(json.dumps(value, indent=2) + "\n"))

    done = bed.stackyard("pull", harmed(bed, tmp_path, lambda signed: signed, change), expect=1)
    assert "is not what was signed: its record or its operations were changed" in done.err
    assert not any(bed.paths.root.glob("*"))


def test_what_no_signature_covers_is_made_by_who_pulls(bed: Bed, tmp_path: Path) -> None:
    """A registry cannot add checks, which would run here, nor commands, nor a policy for environments."""
    bed.site("signatures: {allowed_signers: signers, require: [pull]}")
    ran = tmp_path / "ran"

    def change(tree: Path) -> None:
        check = {"name": "theirs", "run": ["touch", str(ran)]}
        value = {"format": 1, "checks": [check], "exceptions": {}}
        (tree / "checks.json").write_text(checksum.add(json.dumps(value) + "\n"))
        (tree / "condarc").write_text("channels: [https://elsewhere.invalid]\n")
        for directory in ("commands", "checks"):
            (tree / directory).mkdir()
            (tree / directory / "python").write_text("#!/bin/sh\n")

    assert "published" in bed.stackyard("pull", harmed(bed, tmp_path, lambda signed: signed, change)).out
    assert not ran.exists()
    assert not any((bed.paths.root / name).exists() for name in ("checks.json", "checks", "commands"))
    away = RevisionPaths(bed.directory / "away/stacks/small/1-py3-1")
    assert bed.paths.condarc.read_text() == away.condarc.read_text()


def test_a_signature_that_comes_later_is_kept_and_opens_the_module(bed: Bed) -> None:
    bed.site("")
    bed.pull("unsigned")
    bed.site("signatures: {allowed_signers: signers, require: [load]}")
    assert "it has no signature" in bed.pull("unsigned", expect=3).err
    module = bed.yard / "modules/small/1-py3-1"
    bed.stackyard("default", "small/1-py3-1")
    assert "may not be loaded" in module.read_text()
    assert bed.pull().out == "small/1-py3-1: unchanged\n"
    assert bed.stackyard("show", "small", "--json").value["signatures"][0]["signer"] == "anna@site"
    assert "may not be loaded" not in module.read_text()
    generations = len(bed.stackyard("history", "--json").value)
    assert bed.pull("unsigned").out == "small/1-py3-1: unchanged\n", "what is here is judged, and it is signed"
    assert len(bed.stackyard("history", "--json").value) == generations


def harmed(
    bed: Bed,
    directory: Path,
    harm: Callable[[artefact.SignedRecord], artefact.SignedRecord],
    change: Callable[[Path], None] | None = None,
) -> str:
    """The artefact with other signatures, or another tree."""
    from stackyard.images.oci import layers

    found = artefact.read(Reference(bed.directory / "layout", "signed"))
    assert found.signed is not None
    (directory / "tree").mkdir(parents=True)
    artefact.unpack(found, directory / "tree")
    tree = directory / "tree" / artefact.BESIDE
    if change:
        change(tree)
    with writer(directory / "layout") as into:
        whole = layers.Layer("all", tuple(artefact._entries(tree, contents.scan(tree))))
        parts = [artefact._layer(into, 0, artefact.BESIDE, whole, "gzip")]
        artefact._publish(into, "x", found.record, found.entry, parts, found.image.annotations, harm(found.signed))
    return f"oci:{directory}/layout:x"


def test_an_image_is_signed_only_with_the_bytes_that_were_packed(bed: Bed) -> None:
    """Also where it is not mounted, so that stubs lie in the place of its files."""
    for name in ("mksquashfs", "squashfuse"):
        programs.need(name)
    bed.site("signatures: {allowed_signers: signers}")
    bed.stackyard("deploy", bed.directory / "small.yaml", "--image", "squashfs")
    assert "anna" in bed.stackyard("sign", "small", "--key", bed.directory / "keys/anna").out
    image = bed.paths.image
    changed = bytearray(image.read_bytes())
    changed[5000] ^= 1
    image.chmod(0o644)
    image.write_bytes(changed)
    said = bed.stackyard("sign", "small", "--key", bed.directory / "keys/anna", expect=1).err
    assert "cannot sign small/1-py3-1: it does not hold what was built" in said and "image.sqsh: sha256" in said
