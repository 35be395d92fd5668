"""A licence is accepted by an account, for itself and for the text that it saw."""

import json
import os
import pwd
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError, StackyardError
from stackyard.deploy import licences
from stackyard.expose.asking import mark_name
from stackyard.inputs.models import Licence, Site
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic
from stackyard.yard.write.lease import Lease
from support.accounts import Accounts


@pytest.fixture
def licence(tmp_path: Path) -> Licence:
    text = tmp_path / "LICENCE"
    text.write_text("You may.\n")
    return Licence(name="powerai", text=str(text), variable="IBM_POWERAI_LICENSE_ACCEPT")


def forget() -> None:
    """Remove what the first command of a stack finds."""
    for mark in licences._marks().glob("*.json"):
        mark.unlink()


def _as_another(yard: Yard) -> None:
    """Make the acceptances in a yard those of another account, and none of this one."""
    forget()
    others = [{**asdict(entry), "uid": 12345, "who": "anna"} for entry in licences._ledger(yard)]
    atomic.write_json(yard.licences, {"format": 2, "acceptances": others}, checked=True)


def test_nothing_is_accepted_silently(tmp_path: Path, licence: Licence) -> None:
    with pytest.raises(MissingError, match=r"licence not accepted by \w+ in .*: powerai") as caught:
        licences.require(Workspace(Site(), Yard(tmp_path / "yard")), [licence], [])
    assert "--accept-licence" in (caught.value.hint or "")
    assert not (tmp_path / "yard").exists()


def test_an_acceptance_is_recorded_and_holds_for_the_same_account(tmp_path: Path, licence: Licence) -> None:
    yard, child = Yard(tmp_path / "yard"), Yard(tmp_path / "mine", parent=Yard(tmp_path / "yard"))
    (entry,) = licences.require(Workspace(Site(), yard), [licence], ["powerai"])
    assert entry["who"] == pwd.getpwuid(entry["uid"]).pw_name and entry["when"]
    assert entry["sha256"] == licences.text_hash(licence)
    kept = json.loads(yard.licences.read_text())
    assert (kept["format"], kept["acceptances"]) == (2, [dict(entry)])
    assert licences.require(Workspace(Site(), child), [licence], []) == (entry,)


def test_the_first_command_finds_what_this_account_accepted_for_a_build(tmp_path: Path, licence: Licence) -> None:
    yard = Yard(tmp_path / "yard")
    licences.require(Workspace(Site(), yard), [licence], ["powerai"])
    mark = licences._marks() / mark_name("powerai", licences.text_hash(licence))
    entry = json.loads(mark.read_text())
    assert (entry["uid"], entry["variable"]) == (os.getuid(), "IBM_POWERAI_LICENSE_ACCEPT")
    forget()  # accepted by a deploy that wrote none
    licences.require(Workspace(Site(), yard), [licence], [])
    assert json.loads(mark.read_text()) == entry
    site = Site(yard=str(yard.root))
    _as_another(yard)
    licences.require(Workspace(site, yard), [licence], [])
    assert not mark.exists()


def test_what_staff_accepted_holds_in_the_sites_yard_and_for_no_user(tmp_path: Path, licence: Licence) -> None:
    yard = Yard(tmp_path / "yard")
    site = Site(yard=str(yard.root))
    licences.require(Workspace(site, yard), [licence], ["powerai"])
    _as_another(yard)
    (entry,) = licences.require(Workspace(site, yard), [licence], [])
    assert entry["who"] == "anna"
    child = Yard(tmp_path / "mine", parent=yard)
    with pytest.raises(MissingError, match="licence not accepted by"):
        licences.require(Workspace(site, child), [licence], [])
    with pytest.raises(MissingError, match="licence not accepted by"):
        licences.require(Workspace(Site(), yard), [licence], [])  # not the site's: each account for itself
    (own,) = licences.require(Workspace(site, child), [licence], ["powerai"])
    assert own["who"] != "anna" and licences.require(Workspace(site, child), [licence], []) == (own,)


def test_the_first_format_is_read_as_the_acceptance_of_who_is_named(tmp_path: Path, licence: Licence) -> None:
    yard, digest = Yard(tmp_path), licences.text_hash(licence)
    me = tmp_path.owner()
    old = {"name": "powerai", "sha256": digest, "variable": "A", "when": "2025-01-01T00:00:00Z"}
    yard.licences.write_text(json.dumps({f"powerai:{digest}": {**old, "who": me}}))
    assert licences.require(Workspace(Site(), yard), [licence], [])[0]["who"] == me
    forget()
    yard.licences.write_text(json.dumps({f"powerai:{digest}": {**old, "who": "anna"}}))
    with pytest.raises(MissingError):
        licences.require(Workspace(Site(), yard), [licence], [])
    yard.licences.write_text("[1]")
    with pytest.raises(StackyardError, match=r"cannot read .*licences\.json"):
        licences.require(Workspace(Site(), yard), [licence], [])


def test_a_changed_text_must_be_accepted_anew(tmp_path: Path, licence: Licence) -> None:
    yard = Yard(tmp_path / "yard")
    licences.require(Workspace(Site(), yard), [licence], ["powerai"])
    Path(licence.text).write_text("You may not.\n")
    with pytest.raises(MissingError):
        licences.require(Workspace(Site(), yard), [licence], [])


def test_an_error_of_the_file_system_is_no_empty_ledger(
    tmp_path: Path, licence: Licence, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path / "yard")
    licences.require(Workspace(Site(), yard), [licence], ["powerai"])
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda *_: False)
        licences.accept(yard, licences.NeededLicence("other", "0" * 64, ""))
    assert {entry.name for entry in licences._ledger(yard)} == {"powerai", "other"}


def test_an_acceptance_is_not_written_by_who_lost_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: Lease) -> None:
        raise StackyardError("taken over")

    monkeypatch.setattr(Lease, "check", lost)
    with pytest.raises(StackyardError, match="taken over"):
        licences.accept(Yard(tmp_path), licences.NeededLicence("other", "0" * 64, ""))
    assert not Yard(tmp_path).licences.exists()


def test_two_that_are_accepted_at_once_are_both_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard, read = Yard(tmp_path / "yard"), licences._ledger

    def slow(of: Yard) -> tuple[licences.Acceptance, ...]:
        found = read(of)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(licences, "_ledger", slow)
    both = [licences.NeededLicence(name, "0" * 64, "") for name in ("one", "two")]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda licence: licences.accept(yard, licence), both))
    assert {entry.name for entry in read(yard)} == {"one", "two"}


def test_who_accepts_is_the_account_and_not_a_variable(accounts: Accounts) -> None:
    anna = accounts.user("anna")
    code = "from stackyard.deploy import licences; print(licences.me())"
    assert anna.python(code, LOGNAME="root", USER="root").out.strip() == anna.name
