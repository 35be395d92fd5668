"""What users' own conda finds in a yard: the packages of its cache, without a download, and its revisions to clone.

conda itself runs here (`support.realconda`), as an account that only reads the yard, on a channel behind a web server
that counts what is fetched.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from support.accounts import Account, Accounts, common_directory, give
from support.cli import Done
from support.realconda import Conda
from support.sitechannels import longhorn_channels
from support.webserver import served
from support.wheelpkg import host_subdir

pytestmark = [pytest.mark.real, pytest.mark.long]
EXAMPLE = Path(__file__).parents[2] / "examples" / "longhorn"
STACK = "powerai-1.7.0-py3-1"
PACKAGES = (".tar.bz2", ".conda")


@dataclass
class Place:
    """A site whose yard belongs to anna, and from which bert, another account, only reads.

    Attributes:
        fetched: the names of the packages that the channels' server has sent.
    """

    accounts: Accounts
    directory: Path
    anna: Account
    bert: Account
    fetched: list[str] = field(default_factory=list)

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    @property
    def cache(self) -> Path:
        return self.yard / "cache" / "conda"

    def stackyard(self, *words: str | Path, expect: int | None = 0) -> Done:
        """``stackyard`` as anna."""
        site = ("--site", self.directory / "site.yaml", "--yard", self.yard)
        return self.anna.stackyard(*site, *words, expect=expect, SCRATCH=str(self.directory))

    def conda(self, account: Account) -> Conda:
        """An account's conda with the variables of the base module; its scratch is beside the yard."""
        scratch = self.directory / account.name
        if not scratch.exists():
            scratch.mkdir()
            os.chown(scratch, account.uid, account.gid)
        words = ("--yard", self.yard, "run", "conda", "--", "python", "-c")
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        environ = account.stackyard(*words, code, SCRATCH=str(scratch)).value
        names = ("CONDA_ENVS_PATH", "CONDA_PKGS_DIRS", "CONDARC")
        return Conda(self.accounts, account, CONDA_OVERRIDE_CUDA="10.2", **{name: environ[name] for name in names})

    def own(self, account: Account, name: str = "") -> Path:
        """Where an account's environments are, or one of them."""
        return self.directory / account.name / "conda_local" / "envs" / name


@pytest.fixture(scope="module")
def place(accounts: Accounts) -> Iterator[Place]:
    """Longhorn's conda and its newest PowerAI, published by anna."""
    channels = longhorn_channels()
    with common_directory() as directory:
        made = Place(accounts, directory, accounts.user("anna"), accounts.user("bert"))

        def asked(path: str) -> None:
            if path.endswith(PACKAGES):
                made.fetched.append(path.rpartition("/")[2])

        with served(next(iter(channels.values())).parent, asked) as url:
            shutil.copytree(EXAMPLE, directory, dirs_exist_ok=True)
            yaml = YAML()
            site = yaml.load(directory / "site.yaml")
            site["yard"] = str(made.yard)
            site["platforms"] = [host_subdir()]
            site["channels"]["mirrors"] = {name: f"{url}/{channel.name}" for name, channel in channels.items()}
            yaml.dump(site, directory / "site.yaml")
            stack = yaml.load(directory / "powerai.yaml")
            stack["versions"], stack["matrix"], stack["checks"] = ["1.7.0"], {"python": ["3"]}, []
            yaml.dump(stack, directory / "powerai.yaml")
            give(directory, made.anna)
            accept = ("--accept-licence", "IBM WML CE")
            made.stackyard("deploy", directory / "powerai.yaml", directory / "conda.yaml", *accept)
            yield made


def test_conda_lists_what_the_site_has_published(place: Place) -> None:
    listed = place.conda(place.bert).run("env", "list", "--json").value["envs"]
    assert {str(place.yard / "envs" / name) for name in (STACK, "conda-4.8.3-base-1")} <= set(listed)


@pytest.fixture(scope="module")
def clones(place: Place) -> dict[Account, Path]:
    """A clone of the same revision by the yard's owner, and by another account."""
    place.fetched.clear()
    for account in (place.anna, place.bert):
        place.conda(account).run("create", "--yes", "--name", "mine", "--clone", STACK)
    assert place.fetched == [], "downloaded"
    return {account: place.own(account, "mine") for account in (place.anna, place.bert)}


def test_a_user_clones_a_revision_without_a_download(place: Place, clones: dict[Account, Path]) -> None:
    code = "import sys, tensorflow; print(sys.prefix, tensorflow.__version__)"
    for account, mine in clones.items():
        assert account.run(mine / "bin/python", "-c", code).out.split() == [str(mine), "2.1.0"]


def test_files_are_hard_links_where_the_kernel_allows_them(place: Place, clones: dict[Account, Path]) -> None:
    """Those of another account need ``fs.protected_hardlinks = 0``, else conda copies; the owner can always link."""
    denied = Path("/proc/sys/fs/protected_hardlinks").read_text().strip() == "1"
    (source,) = place.cache.glob("python-of-this-machine-*/lib/libpython3*.so.*")
    for account, is_link in ((place.anna, True), (place.bert, not denied)):
        status = (clones[account] / "lib" / source.name).stat()
        assert (status.st_ino == source.stat().st_ino) is is_link
        assert status.st_uid == (place.anna if is_link else account).uid


def test_what_is_cached_is_not_downloaded_and_the_rest_is(place: Place) -> None:
    place.fetched.clear()
    place.conda(place.bert).run("create", "--yes", "--name", "some", "horovod=0.19", "six")
    assert {name.rpartition("-")[0] for name in place.fetched} == {"six-1.15.0"}
    records = place.own(place.bert, "some") / "conda-meta"
    (horovod,) = records.glob("horovod-0.19.0-*.json")
    source = json.loads(horovod.read_text())["link"]["source"]
    assert Path(source) == place.cache / horovod.stem


def test_without_condas_records_everything_is_downloaded(place: Place) -> None:
    """What the records are for: the same cache without them saves nothing."""
    place.fetched.clear()
    bare = place.directory / "bare"
    shutil.copytree(place.cache, bare, symlinks=True, ignore=shutil.ignore_patterns("repodata_record.json"))
    conda = place.conda(place.bert)
    pkgs = conda.variables["CONDA_PKGS_DIRS"].replace(str(place.cache), str(bare))
    conda.run("create", "--yes", "--name", "bare", "--download-only", "horovod=0.19", CONDA_PKGS_DIRS=pkgs)
    assert any(name.startswith("horovod-0.19.0-") for name in place.fetched)


def test_conda_of_the_owner_changes_no_content_of_the_cache(place: Place, clones: dict[Account, Path]) -> None:
    """What it does change: it makes its own files writable before it removes a name of them, which `fsck` reports.

    Files of a clone stay, also where the cache that they were linked from is not there any more.
    """
    before = sorted(path.name for path in place.cache.iterdir())
    conda = place.conda(place.anna)
    assert str(place.cache) in conda.run("info").out
    conda.run("create", "--yes", "--name", "short", "--clone", STACK)
    conda.run("remove", "--yes", "--name", "short", "--all")
    conda.run("clean", "--all", "--yes")
    assert sorted(path.name for path in place.cache.iterdir()) == before
    faults = place.stackyard("fsck", "--deep", "--json", expect=None).value["faults"]
    assert {fault["what"] for fault in faults} <= {"permissions"}
    aside = place.cache.rename(place.cache.with_name("aside"))
    try:
        place.anna.run(clones[place.anna] / "bin/python", "-c", "import tensorflow")
    finally:
        aside.rename(place.cache)


def test_other_accounts_can_write_neither_packages_nor_names(place: Place) -> None:
    for path in (place.cache, place.cache / "urls.txt", place.yard / "envs", next(place.cache.glob("horovod-*/info"))):
        assert place.bert.run("test", "-w", path, expect=None).code == 1
        assert place.bert.run("test", "-r", path).code == 0


def test_a_withdrawn_revision_is_no_longer_listed(place: Place) -> None:
    place.stackyard("withdraw", "powerai/1.7.0-py3-1")
    conda = place.conda(place.bert)
    assert STACK not in conda.run("env", "list").out
    place.stackyard("withdraw", "powerai/1.7.0-py3-1", "--undo")
    assert STACK in conda.run("env", "list").out


def test_gc_keeps_the_packages_that_environments_link(place: Place, clones: dict[Account, Path]) -> None:
    """The last one here: it removes the revision. What only that used goes, what anna's clone links stays."""
    place.stackyard("remove", "powerai/1.7.0-py3-1")
    place.stackyard("gc", "--now", "--keep", "0")
    left = {path.name.rsplit("-", 2)[0] for path in place.cache.iterdir() if path.is_dir()}
    assert "tensorflow" in left and "powerai" not in left, "a package without files has nothing to link"
    place.anna.run(clones[place.anna] / "bin/python", "-c", "import tensorflow")
    assert STACK not in place.conda(place.bert).run("env", "list").out
