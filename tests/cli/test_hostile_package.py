"""A package whose import writes into another package's file changes nothing that is published, whoever runs it.

It changes the file's mode first, since an owner may, and hides that it failed. Where the checks have a read-only view
it fails; where they have none the verification does, and names the file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.accounts import Account, Accounts
from support.cli import Done
from support.confined import confined
from support.plainwheel import write_wheel

EVIL = """
import os, victim
try:
    os.chmod(victim.__file__, 0o644)
    with open(victim.__file__, "a") as stream:
        stream.write("changed = True\\n")
except OSError:
    pass
"""
NAIVE = "import victim\nopen(victim.__file__, 'a').write('changed = True')\n"
VICTIM = "value = 1\n"


@dataclass
class Person:
    """Root or an account, with a yard in which the victim is published."""

    accounts: Accounts
    account: Account | None
    directory: Path

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    def deploy(self, name: str, *wheels: Path, views: bool = True) -> Done:
        file = self.directory / name / "requirements.txt"
        file.parent.mkdir()
        file.write_text("".join(f"{wheel.name.split('-')[0]} @ {wheel.as_uri()}\n" for wheel in wheels))
        return self.stackyard("deploy", file, "--name", name, "--version", "1", views=views)

    def stackyard(self, *words: str | Path, views: bool = True) -> Done:
        argv = [self.accounts.bin / "stackyard", "--yard", self.yard, *words]
        if views and self.account:
            return self.account.run(*argv, expect=None)
        environ = {"HOME": str(self.directory), "PATH": f"{self.accounts.bin}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        line = list(map(str, argv)) if views else confined(self.directory / "root", argv, self.account)
        done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def victims(self) -> dict[str, str]:
        """The victim's file wherever it is."""
        found = [*self.yard.glob("stacks/**/victim/__init__.py"), *self.yard.glob("cache/**/victim/__init__.py")]
        return {str(path.relative_to(self.yard)): path.read_text() for path in found}


@pytest.fixture(scope="module", params=["root", "account"])
def person(request: pytest.FixtureRequest, accounts: Accounts, tmp_path_factory: pytest.TempPathFactory) -> Person:
    account = accounts.user("anna") if request.param == "account" else None
    directory = account.home if account else tmp_path_factory.mktemp("root")
    (directory / "wheels").mkdir()
    made = Person(accounts, account, directory)
    write_wheel(directory / "wheels", "victim", VICTIM)
    for name, source in {"evil": EVIL, "naive": NAIVE}.items():
        write_wheel(directory / "wheels", name, source)
    own(made)
    done = made.deploy("first", wheel(made, "victim"))
    assert done.code == 0, done.err
    return made


def own(person: Person) -> None:
    if person.account:
        subprocess.run(["chown", "-R", f"{person.account.uid}:{person.account.gid}", person.directory], check=True)


def wheel(person: Person, name: str) -> Path:
    return person.directory / "wheels" / f"{name}-1.0-py3-none-any.whl"


def test_with_a_view_nothing_is_changed(person: Person) -> None:
    done = person.deploy("second", wheel(person, "victim"), wheel(person, "evil"))
    assert done.code == 0, done.err
    assert set(person.victims().values()) == {VICTIM} and len(person.victims()) > 2


def test_an_import_that_fails_for_it_is_named(person: Person) -> None:
    done = person.deploy("naive", wheel(person, "victim"), wheel(person, "naive"))
    assert done.code == 3
    assert "failed: naive" in done.out and ("Read-only" if person.account is None else "Permission") in done.out
    assert set(person.victims().values()) == {VICTIM}


def test_without_a_view_the_verification_names_the_file(person: Person) -> None:
    copy = Person(person.accounts, person.account, person.directory)
    kept = person.directory / "kept"
    subprocess.run(["cp", "-a", person.yard, kept], check=True)
    time.sleep(0.01)
    try:
        done = copy.deploy("third", wheel(person, "victim"), wheel(person, "evil"), views=False)
        assert done.code == 3, done.out + done.err
        assert "victim/__init__.py: changed by programs of the stack" in done.out
        first = person.stackyard("verify", "first")
        assert first.code == 3 and "victim/__init__.py has changed" in first.out
        again = person.deploy("fourth", wheel(person, "victim"))
        assert again.code == 0 and "damaged in the cache" in again.out + again.err
        (path,) = person.yard.glob("stacks/fourth/*/prefix/**/victim/__init__.py")
        assert path.read_text() == VICTIM
    finally:
        shutil.rmtree(person.yard)
        kept.rename(person.yard)
