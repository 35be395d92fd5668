"""What follows from who made the files of a revision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.origins import Built, Wrapped, origin_of
from stackyard.yard.kinds.payload import Form
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord
from support import stackrecords


@pytest.fixture
def built(tmp_path: Path) -> BuildRecord:
    return stackrecords.record(Yard(tmp_path / "yard"), "demo", "1.0", 1)


def test_what_was_built_is_the_yards(built: BuildRecord) -> None:
    origin = built.origin
    assert type(origin) is Built and origin.owns_files and origin.again == "build"
    assert (origin.outside, origin.needs, origin.remark) == ((), built.path, "")
    refusing = (origin.require_present, origin.require_repairable, origin.require_sendable, origin.require_packable)
    for allowed in refusing:
        allowed()


def test_what_was_adopted_is_not(built: BuildRecord, tmp_path: Path) -> None:
    prefix = tmp_path / "conda"
    record = replace(built, prefix=str(prefix), adopted=AdoptedPrefix("conda", str(prefix), "0" * 64))
    origin = record.origin
    assert not origin.owns_files and origin.again == "adopt" and origin.remark == "adopted, conda"
    assert (origin.outside, origin.needs) == ((prefix,), str(prefix))
    with pytest.raises(MissingError, match="not found: its files were adopted"):
        origin.require_present()
    prefix.mkdir()
    origin.require_present()
    with pytest.raises(StackyardError, match="cannot repair demo") as caught:
        origin.require_repairable()
    assert caught.value.hint == f"adopt it as it is now: `stackyard adopt {prefix} --name demo`"
    for refused in (origin.require_sendable, origin.require_packable):
        with pytest.raises(InputError, match="it was adopted"):
            refused()


def test_what_was_wrapped_is_the_yards_and_cannot_be_built(built: BuildRecord) -> None:
    record = replace(built, form=Form("container"), container={"source": "docker://tool:1"})
    origin = origin_of(record)
    assert type(origin) is Wrapped and origin.owns_files and origin.again == "copy"
    with pytest.raises(InputError, match="it is a wrapped image"):
        origin.require_sendable()
    with pytest.raises(InputError, match="is a wrapped image itself") as caught:
        origin.require_packable()
    assert caught.value.hint == "use docker://tool:1"
