"""What accounts leave in ``uses/``: as much of it as an honest account has counts, and everything else is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stackyard.host.run.identity import this_process
from stackyard.inputs.models import Site
from stackyard.upkeep.gc.inuse import Watch
from stackyard.yard.layout import Yard
from stackyard.yard.others import uses
from support import smallyard
from support.accounts import Account, Accounts
from support.cli import inside

OLD = "tool/1.0-py311-1"


@pytest.fixture
def yard(common: Path) -> Yard:
    """A site's yard, with directories for notes."""
    made = smallyard.make(common / "yard", "1.0", "2.0")
    site = smallyard.give_site(common, made.root, f"user_yard: {common}/users/$USER/yard")
    inside("--site", site, "--yard", made.root, "default", "tool/2.0")
    return made


def note(yard: Yard, account: Account, name: str, directory: str | Path, **more: str) -> Path:
    """A note that could be an account's."""
    value = {"revision": str(directory), "what": "job", **more, **this_process().to_json(), "place": "elsewhere"}
    file = yard.uses / f"{name}.json"
    file.write_text(json.dumps(value))
    os.chown(file, account.uid, account.gid)
    return file


def site_of(yard: Yard) -> Site:
    """The site, without the homes of other accounts of this machine."""
    return Site(yard=str(yard.root), user_yard=f"{yard.root.parent}/users/$USER/yard")


def test_what_is_no_note_is_named_and_left(accounts: Accounts, yard: Yard) -> None:
    bert = accounts.user("bert")
    used = note(yard, bert, "a", smallyard.revision(yard, "1.0").root, scheduler="slurm", job="7")
    bert.run("sh", "-c", f"cd {yard.uses}; mkdir d.json; mkfifo p.json; ln -s a.json l.json; echo > w; echo [ > b.json")
    large = yard.uses / "large.json"
    large.write_text(used.read_text() + " " * 20_000)
    seen = Watch(site_of(yard), yard, tidy=True).look()
    assert len(seen.of(OLD)) == 1 and not seen.everything
    strange = [text for text in seen.unseen if text.startswith("uses/")]
    assert len(strange) == 4 and strange[3] == "uses/: 3 more that stackyard does not write; left"
    assert len(os.listdir(yard.uses)) == 7
    used.chmod(0o600)
    code = "import sys, pathlib\nfrom stackyard.yard.others import uses\nu = uses.UnreadNotes()\n" \
           "print(list(uses.found(pathlib.Path(sys.argv[1]), u)), u.unread)"  # fmt: skip
    yard.uses.chmod(0o1777)
    said = accounts.user("carl").python(code, yard.uses).out
    assert said == f"[] {{{bert.uid}: 'permission denied: uses/a.json'}}\n"


def test_an_account_with_too_many_notes_may_use_everything(
    accounts: Accounts, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert, carl = accounts.user("bert"), accounts.user("carl")
    monkeypatch.setattr(uses, "_MOST_NOTES", 20)
    directory = smallyard.revision(yard, "2.0").root
    for number in range(21):
        note(yard, bert, f"b{number}", directory, scheduler="slurm", job="7")
    note(yard, carl, "c", directory, scheduler="slurm", job="8")
    why = f"possibly the yard of {bert.name}, which cannot be looked into: more than 20 notes in uses/"
    seen = Watch(site_of(yard), yard).look()
    assert seen.of(OLD) == (why,)
    assert f"job 8 of {carl.name}" in " ".join(seen.of("tool/2.0-py311-1"))
    assert Watch(site_of(yard), yard, despite=frozenset({bert.uid})).look().of(OLD) == ()


def test_few_jobs_and_yards_of_an_account_are_asked_about(accounts: Accounts, yard: Yard, common: Path) -> None:
    """Each job costs a program, each path a disk that may hang. A job that is not asked about holds for some days."""
    bert, asked = accounts.user("bert"), []
    directory = smallyard.revision(yard, "1.0").root
    for number in range(600):
        note(yard, bert, f"j{number}", directory, scheduler="slurm", job=f"{number}")

    def is_over(scheduler: str, job: str) -> bool:
        asked.append(job)
        return True

    seen = Watch(site_of(yard), yard, is_over, tidy=True).look()
    assert len(asked) == 500 and len(seen.of(OLD)) == 100 and len(os.listdir(yard.uses)) == 100
    assert all("which cannot be asked from here" in text for text in seen.of(OLD))
    for file in yard.uses.iterdir():
        file.unlink()
    for number in range(40):
        note(yard, bert, f"y{number}", common / str(number) / "stacks/tool/1.0-py311-1", scheduler="slurm", job="7")
    seen = Watch(site_of(yard), yard).look()
    assert seen.of(OLD) == (f"possibly the yard of {bert.name}, which cannot be looked into: names more than 32 yards",)
