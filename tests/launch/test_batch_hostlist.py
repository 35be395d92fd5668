"""Hostlists: against scontrol itself, and there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackyard.core.errors import InputError
from stackyard.core.hostlist import compress, expand
from support.slurm import SlurmCluster

LISTS = ["n1", "n[1-3]", "n[1,3-4],login1", "n[007-011]", "n[8-12],n013", "rack[1-2]n[01-03]", "n09,n10", "n1,n1",
         "x1000c0s[0-1]b0n[0-1]", "a1b3,a1b4,a2b3,a2b4,q,n08,n09,n10,n11", "n3,n1,n2", "gpu-a1-[10-12]"]  # fmt: skip


@pytest.mark.parametrize("text", LISTS)
def test_expand_is_what_scontrol_says(slurm: SlurmCluster, text: str) -> None:
    assert list(expand(text)) == slurm.run("scontrol", "show", "hostnames", text).stdout.split()


@pytest.mark.parametrize("text", LISTS)
def test_scontrol_reads_what_compress_writes(slurm: SlurmCluster, text: str) -> None:
    names = expand(text)
    assert slurm.run("scontrol", "show", "hostnames", compress(names)).stdout.split() == list(names)


@pytest.mark.parametrize("text", ["n[1-3]", "n[08-11]", "n[1,3-4]", "a1b[3-4],a2b[3-4],q,n[08-11]", "n[3,1-2]"])
def test_compress_is_as_short_as_scontrols(slurm: SlurmCluster, text: str) -> None:
    names = expand(text)
    assert compress(names) == slurm.run("scontrol", "show", "hostlist", ",".join(names)).stdout.strip() == text


def test_text_after_the_brackets() -> None:
    assert expand("n[1-3,007]x,r[1-2]-ib0") == ("n1x", "n2x", "n3x", "n007x", "r1-ib0", "r2-ib0")


def test_nothing_is_no_host() -> None:
    assert expand("") == ()
    assert compress(()) == ""


@pytest.mark.parametrize(
    "text", ["n[1", "n1]", "n[2-1]", "n[a-b]", "n[]", "n[[1]]", "n[1-99999999]", "n[0-9999][0-999]"]
)
def test_what_is_no_hostlist(text: str) -> None:
    with pytest.raises(InputError, match="is not a hostlist"):
        expand(text)


@given(st.lists(st.from_regex(r"[a-z]{1,3}(-[a-z])?[0-9]{0,4}([a-z][0-9]{1,3})?", fullmatch=True), max_size=30))
def test_there_and_back(names: list[str]) -> None:
    assert list(expand(compress(names))) == names


def test_many_hosts_make_a_short_list() -> None:
    names = [f"nid{n:06d}" for n in range(10_000)]
    assert compress(names) == "nid[000000-009999]"
    assert list(expand("nid[000000-009999]")) == names
