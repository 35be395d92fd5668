"""A licence is accepted by a person, for the text that he saw."""

import json
from pathlib import Path

import pytest

from stackyard.errors import MissingError
from stackyard.publish import licences
from stackyard.spec.models import Licence
from stackyard.yard.layout import Yard


@pytest.fixture
def licence(tmp_path: Path) -> Licence:
    text = tmp_path / "LICENCE"
    text.write_text("You may.\n")
    return Licence(name="powerai", text=str(text), variable="IBM_POWERAI_LICENSE_ACCEPT")


def test_nothing_is_accepted_silently(tmp_path: Path, licence: Licence) -> None:
    with pytest.raises(MissingError, match=r"licence not accepted in .*: powerai") as caught:
        licences.require(Yard(tmp_path / "yard"), [licence], [])
    assert "--accept-licence" in (caught.value.hint or "")
    assert not (tmp_path / "yard").exists()


def test_an_acceptance_is_recorded_and_holds_for_children(tmp_path: Path, licence: Licence) -> None:
    yard = Yard(tmp_path / "yard")
    (entry,) = licences.require(yard, [licence], ["powerai"])
    assert entry["who"] and entry["when"] and entry["sha256"] == licences.text_hash(licence)
    assert list(json.loads((yard.root / "licences.json").read_text()).values()) == [dict(entry)]
    assert licences.require(Yard(tmp_path / "mine", parent=yard), [licence], []) == (entry,)


def test_a_changed_text_must_be_accepted_anew(tmp_path: Path, licence: Licence) -> None:
    yard = Yard(tmp_path / "yard")
    licences.require(yard, [licence], ["powerai"])
    Path(licence.text).write_text("You may not.\n")
    with pytest.raises(MissingError):
        licences.require(yard, [licence], [])
