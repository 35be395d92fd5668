"""Short names: what a person who types less means."""

from dataclasses import replace

import pytest

from stackyard.errors import InputError
from stackyard.publish.names import claim, version_key
from stackyard.yard.record import Entry


def entry(stack: str, version: str, variant: str, revision: int, rank: int = 0) -> Entry:
    module = f"{stack}/" + "-".join(filter(None, (version, variant, str(revision))))
    return Entry(stack, version, variant, revision, module, "/yard", f"2026-01-0{revision or 1}", rank=rank)


def names(entries: list[Entry]) -> dict[str, str]:
    result = {}
    for e in claim(entries):
        result.update({f"{e.stack}/{alias}": e.module for alias in e.aliases})
        if e.default:
            result[e.stack] = e.module
    return result


def test_the_names_of_the_issue() -> None:
    assert names([entry("pytorch", "2.13", "py311", 1)]) == {
        "pytorch": "pytorch/2.13-py311-1",
        "pytorch/2.13": "pytorch/2.13-py311-1",
        "pytorch/2.13-py311": "pytorch/2.13-py311-1",
    }


def test_open_ce_counts_from_zero_and_may_have_no_variant() -> None:
    found = names([entry("open-ce", "0.1", "", 0), *(entry("open-ce", "1.1.3", f"py{v}", 0, v) for v in (36, 37, 38))])
    assert found["open-ce"] == found["open-ce/1.1.3"] == "open-ce/1.1.3-py38-0"
    assert found["open-ce/0.1"] == "open-ce/0.1-0"
    assert found["open-ce/1.1.3-py36"] == "open-ce/1.1.3-py36-0"


def test_a_rebuild_takes_the_names_over() -> None:
    found = names([entry("s", "1", "a", 1), entry("s", "1", "a", 2), entry("s", "1", "b", 1, rank=-1)])
    assert found == {"s": "s/1-a-2", "s/1": "s/1-a-2", "s/1-a": "s/1-a-2", "s/1-b": "s/1-b-1"}


def test_withdrawn_and_hidden_revisions_get_none() -> None:
    old, new = entry("s", "1", "a", 1), entry("s", "1", "a", 2)
    assert names([old, replace(new, state="withdrawn")])["s"] == "s/1-a-1"
    assert names([old, replace(new, hidden=True)])["s"] == "s/1-a-1"
    assert names([replace(old, state="withdrawn")]) == {}


def test_two_revisions_that_claim_one_name_are_an_error() -> None:
    with pytest.raises(InputError, match=r"s/1-a would load both s/1-a(-1)? and s/1-a(-1)?"):
        claim([entry("s", "1", "a", 1), replace(entry("s", "1-a", "", 1), module="s/1-a")])


@pytest.mark.parametrize(
    ("older", "newer"),
    [("2.9", "2.13"), ("1.0rc1", "1.0"), ("2026.11.9", "2026.11.20"), ("1.7.0", "1.7.0.1"), ("1.0a2", "1.0b1")],
)
def test_versions_are_compared_as_people_read_them(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)
