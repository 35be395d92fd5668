"""`gc` packs the manifests of old generations: smaller, and read as before by whatever reads a manifest."""

from __future__ import annotations

import gzip
import os
import signal
from pathlib import Path

import pytest

from stackyard.upkeep.transfer import carry as carrying
from stackyard.upkeep.transfer.rebuilding import Ways
from stackyard.yard.generation import generations, manifestfile
from stackyard.yard.layout import Yard
from stackyard.yard.others.moved import look
from stackyard.yard.revision import manifest as manifestformat
from stackyard.yard.write import atomic
from support import smallyard
from support.accounts import Accounts
from support.cli import inside

OLD, NEW = (1, 2, 3, 4), (5, 6)


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """Six generations, of which four are older than what is kept."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(place, text="removal: {keep: 1, grace_days: 0}")))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return smallyard.make(tmp_path / "yard", *(f"{n}.0" for n in range(1, 7)))


def manifests(yard: Yard) -> dict[str, bytes]:
    return {
        str(path.relative_to(yard.generations)): path.read_bytes() for path in yard.generations.glob("*/manifest.json*")
    }


def kinds(yard: Yard) -> list[str]:
    return sorted(manifests(yard))


PACKED = sorted([*(f"{n}/manifest.json.gz" for n in OLD), *(f"{n}/manifest.json" for n in NEW)])


def test_old_ones_are_packed_and_say_the_same(yard: Yard) -> None:
    before, told = manifests(yard), inside("history", "--json").value
    freed = inside("gc", "--dry-run", "--json").value["pack"]
    assert list(freed) == [str(yard.generation(n).manifest) for n in reversed(OLD)]
    assert manifests(yard) == before, "a dry run writes nothing"
    assert inside("gc", "--json").value["packed"] == freed
    after = manifests(yard)
    assert sorted(after) == PACKED
    assert sum(map(len, before.values())) - sum(map(len, after.values())) == sum(freed.values()) > 0
    assert {name.removesuffix(".gz"): gzip.decompress(d) if ".gz" in name else d for name, d in after.items()} == before
    assert inside("history", "--json").value == told
    assert inside("gc", "--json").value["packed"] == {} and manifests(yard) == after
    assert inside("fsck").code == 0


def test_what_a_person_sees(yard: Yard) -> None:
    assert "\npack 4 manifests of old generations  " in inside("gc", "--dry-run").out
    assert "\npacked 4 manifests of old generations  " in inside("gc").out
    assert "manifests" not in inside("gc").out


def test_a_rollback_to_one_of_them_and_a_link_set_by_hand(yard: Yard) -> None:
    inside("gc")
    inside("rollback", "2")
    assert {e.module for e in generations.entries(yard) if e.is_visible} == {f"tool/{n}.0-py311-1" for n in (1, 2)}
    yard.generation(3).modules.mkdir(exist_ok=True)
    yard.modules.unlink()
    yard.modules.symlink_to("generations/3/modules")
    assert [e.version for e in generations.entries(yard)] == ["1.0", "2.0", "3.0"]


def test_only_the_end_of_a_packed_one_is_read_for_the_generation_before(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifestfile, "_END", 300)
    inside("gc")
    assert manifestfile.end(yard.generation(4).manifest) == manifestfile.text(yard.generation(4).manifest)[-300:]
    assert [manifest.number for manifest in generations.complete(yard)] == [6]
    packed = yard.generation(4).packed
    packed.write_bytes(packed.read_bytes()[:-300])
    assert [manifest.number for manifest in generations.complete(yard)] == [6, 3]


@pytest.mark.parametrize("damage", [b"", b"{}", b"\x1f\x8b\x08", "cut", "flipped"])
def test_a_damaged_one_is_named(yard: Yard, damage: bytes | str) -> None:
    inside("gc")
    packed = yard.generation(2).packed
    data = packed.read_bytes()
    flipped = bytes([*data[:60], data[60] ^ 1, *data[61:]])
    packed.write_bytes({"cut": data[:-9], "flipped": flipped}[damage] if isinstance(damage, str) else damage)
    assert f"2  damaged: cannot read {packed}: " in inside("history").out
    assert "generations/2/manifest.json.gz: " in inside("fsck", expect=3).out
    assert [manifest.number for manifest in generations.readable(yard)] == [6, 5, 4, 3, 1]


@pytest.mark.parametrize("point", ["manifest-packed:1", "manifest-packed:3", "write:1"])
def test_killed_anywhere(yard: Yard, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """With both files or with either one the generation is the same, and the next collection packs it."""
    before = inside("history", "--json").value
    monkeypatch.setenv("STACKYARD_FAULT", point)
    child = os.fork()
    if not child:
        atomic._hits.clear()
        for number in OLD:
            manifestfile.pack(yard.generation(number).manifest)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    monkeypatch.delenv("STACKYARD_FAULT")
    assert yard.generation(4).manifest.exists() and inside("history", "--json").value == before
    assert inside("fsck").code == 0
    inside("gc")
    assert kinds(yard) == PACKED and inside("history", "--json").value == before


def test_what_cannot_be_read_stays_as_it_is(yard: Yard) -> None:
    yard.generation(2).manifest.write_text("{")
    inside("gc")
    assert manifests(yard)["2/manifest.json"] == b"{" and yard.generation(1).packed.exists()


def test_a_yard_moves_with_them(yard: Yard, tmp_path: Path) -> None:
    before = {m.number: [e.module for e in m.entries] for m in generations.readable(yard)}
    inside("gc")
    ways = Ways(yard, yard.root, Yard(tmp_path / "moved"))
    carrying.history(ways)
    manifestfile.pack(ways.target.generation(1).manifest)
    carrying.history(ways)
    assert not ways.target.generation(1).manifest.exists(), "a move that continues took it for missing"
    assert {m.number: [e.module for e in m.entries] for m in generations.readable(ways.target)} == before


def test_a_renamed_yard_whose_link_names_a_packed_one_is_recognised(yard: Yard, tmp_path: Path) -> None:
    inside("gc")
    yard.modules.unlink()
    yard.modules.symlink_to("generations/2/modules")
    there = yard.root.rename(tmp_path / "renamed")
    found = look(Yard(there))
    assert found is not None and found.built_in == yard.root


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_format_is_read_packed(data: Path, tmp_path: Path, version: int) -> None:
    plain = data / f"formats/manifest-{version}.json"
    file = tmp_path / "manifest.json"
    file.write_bytes(plain.read_bytes())
    wanted = manifestformat.read_manifest(plain)
    first = manifestfile.freed(file)
    assert manifestfile.pack(file) == first and manifestformat.read_manifest(file) == wanted
    packed = manifestfile.place(file).read_bytes()
    file.write_bytes(plain.read_bytes())
    manifestfile.pack(file)
    assert manifestfile.place(file).read_bytes() == packed, "the same text is the same file"


def test_whose_they_are(accounts: Accounts, common: Path) -> None:
    """Root packs those of staff for them; staff packs its own, and leaves a colleague's."""
    anna, bert = accounts.user("anna", "staff", umask=0o002), accounts.user("bert", "staff", umask=0o002)
    yard = smallyard.make(common / "yard", *(f"{n}.0" for n in range(1, 5)))
    place, group = yard.generation(1).manifest, anna.groups[0]
    for path in (yard.root, *yard.root.rglob("*")):
        os.chown(path, anna.uid, group, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o060 | (0o2010 if path.is_dir() else 0))
    policy = f"permissions: {{group: {accounts.group('staff')}, umask: '0002'}}\nremoval: {{keep: 1}}"
    given = ("--site", smallyard.give_site(common, yard.root, policy), "--yard", yard.root)
    assert "packed" not in bert.stackyard(*given, "gc").out and place.exists()
    status = place.stat()
    assert "packed 1 manifest of" in anna.stackyard(*given, "gc", "--keep", "2").out
    manifestfile.pack(yard.generation(2).manifest)
    for number in (1, 2):
        packed = yard.generation(number).packed.stat()
        assert (packed.st_uid, packed.st_gid, packed.st_mode) == (status.st_uid, status.st_gid, status.st_mode)
