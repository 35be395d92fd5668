"""Short names: what a person who types less means."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from stackyard.core.errors import InputError
from stackyard.deploy.published.names import claim
from stackyard.deploy.published.versions import version_keys
from stackyard.yard.revision.manifest import Entry


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


def test_a_superseded_revision_comes_after_all_others() -> None:
    one, two = entry("s", "1", "a", 1), entry("s", "1", "a", 2)
    found = names([one, replace(two, superseded=True), entry("s", "1", "b", 1, rank=-1)])
    assert found == {"s": "s/1-a-1", "s/1": "s/1-a-1", "s/1-a": "s/1-a-1", "s/1-b": "s/1-b-1"}
    removed = replace(entry("s", "1", "z", 1, rank=9), superseded=True)
    assert names([one, removed])["s/1"] == "s/1-a-1" and names([one, removed])["s/1-z"] == "s/1-z-1"
    assert names([one, replace(entry("s", "2", "a", 1), superseded=True)])["s"] == "s/1-a-1"
    assert names([replace(one, superseded=True)])["s"] == "s/1-a-1", "the only one"


@pytest.mark.parametrize(
    "ordered",
    [
        ["2.9", "2.13"],
        ["1.0.dev1", "1.0a2", "1.0b1", "1.0rc1", "1.0", "1.0+cu128", "1.0.post1", "1.0.1", "1!0.1"],
        ["2026.11.9", "2026.11.20"],
        ["1.7.0", "1.7.0.1"],
        ["9d", "9e"],
        ["1.1.1a", "1.1.1k", "1.1.1w", "1.1.2", "3.0.0"],
        ["2021a", "2021b", "2022-custom-2", "2022-custom-10"],
        ["1.0-beta-2", "1.0", "1.0.post1"],
        ["1..9", "1..10", "2"],
    ],
)
def test_versions_are_compared_as_their_makers_count_them(ordered: list[str]) -> None:
    keys = version_keys(ordered)
    assert all(keys[older] < keys[newer] for older, newer in pairwise(ordered))
    revisions = [entry("s", version, "a", 1) for version in ordered]
    assert names(revisions)["s"] == f"s/{ordered[-1]}-a-1"
    assert [e.version for e in claim(reversed(revisions))] == ordered


def test_usual_versions_need_no_solver() -> None:
    code = (
        "import sys; from stackyard.deploy.published.versions import version_keys; version_keys({'1.0', '2.1'}); "
        "sys.exit('rattler' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
