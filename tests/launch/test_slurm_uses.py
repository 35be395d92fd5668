"""A revision that a job of a real Slurm waits to use, or is using, is not removed; once the job is over it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.deploy import signing
from stackyard.yard.layout import Yard
from stackyard.yard.revision import signatures
from stackyard.yard.revision.record import read_record
from stackyard.yard.revision.signatures import Demand
from support import smallyard, sshkeys
from support.slurmcli import SHAPE, Work

pytestmark = pytest.mark.real
OLD = "tool/1.0-py311-1"


def test_a_job_keeps_its_revision_from_its_submission_to_its_end(work: Work) -> None:
    yard: Yard = smallyard.make(work.directory / "yard", "1.0", "2.0")
    site = ("--yard", yard.root)
    made = work.run(
        *site, "submit", *SHAPE, "--with", OLD, "--scheduler-arg=--hold", "--no-follow", "--json", "block.py"
    ).value
    waiting = work.run(*site, "remove", OLD, expect=1)
    assert f"kept {OLD}: job {made['job']} of root" in waiting.out
    work.cluster.run("scontrol", "release", made["job"])
    work.up()
    (line,) = work.run(*site, "remove", OLD, expect=1).out.splitlines()
    assert f"job {made['job']} of root" in line and smallyard.revision(yard, "1.0").prefix.exists()
    work.run("runs", "cancel", "last")
    work.until(lambda: work.status()["state"] == "cancelled")
    work.nothing_left()
    work.until(lambda: f"removed {OLD}" in work.run(*site, "remove", OLD, expect=None).out)
    assert not smallyard.revision(yard, "1.0").root.exists()


def test_a_job_that_waits_is_refused_once_its_signer_is_nobody_any_more(work: Work) -> None:
    """Signatures are judged when a job is submitted, and again when it starts."""
    yard: Yard = smallyard.make(work.directory / "yard", "1.0")
    key = sshkeys.key(work.directory / "keys", "anna")
    signers = sshkeys.allow(work.directory / "signers", anna=key)
    signatures.keep_demand(yard, Demand(str(signers), "", ("launch",)))
    words = ("--yard", yard.root, "submit", *SHAPE, "--with", OLD, "--no-follow", "--json")
    said = work.run(*words, "block.py", expect=3).err
    assert f"cannot launch {OLD}: it has no signature" in said
    signing.sign(read_record(smallyard.revision(yard, "1.0").record), yard, key)
    made = work.run(*words, "--scheduler-arg=--hold", "block.py").value
    signers.write_text("# nobody\n")
    work.cluster.run("scontrol", "release", made["job"])
    text = f"cannot launch {OLD}: its signer SHA256:"
    work.until(lambda: text in (Path(made["run"]) / "batch.log").read_text())
    assert not list(Path(made["run"]).glob("logs/rank-*.log"))
