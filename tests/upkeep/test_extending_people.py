"""Extensions of a base that belongs to somebody else, by real accounts: at once, with any umask, on bad days."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from extendbed import Bed
from extendbed import bed as new_bed

from stackyard.host.run.command import which
from stackyard.make import layer
from stackyard.make.job import Job
from stackyard.yard import disk
from stackyard.yard.kinds.extension import BaseRevision
from support import modules, programs, testbed
from support.accounts import Account, Accounts, common_directory
from support.bindfs import UNCACHED, bindfs
from support.cli import inside

pytestmark = [pytest.mark.real, pytest.mark.slow]


@dataclass(frozen=True)
class Site:
    """A yard of root's with one revision, which everybody may read."""

    bed: Bed
    accounts: Accounts

    def extend(self, account: Account, *words: str, expect: int = 0, **variables: str) -> str:
        """Run ``stackyard WORDS...`` as an account; both of its streams."""
        given = {"STACKYARD_SITE": str(self.bed.site), "PIP_NO_INDEX": "1", **variables}
        done = account.stackyard(*words, expect=expect, **given)
        return done.out + done.err


@pytest.fixture(scope="module")
def site(accounts: Accounts) -> Iterator[Site]:
    with common_directory() as directory:
        wheels = accounts.readable(testbed.wheels(testbed.HERE / "wheels.txt"))
        made = new_bed(directory, directory)
        made.wheels = wheels
        made.site.write_text(f"yard: {made.site_yard}\npip: {{find_links: [{wheels}]}}\n")
        made.publish_text(
            f"name: sci\nversion: '1.0'\ninterpreter: {{source: host, path: {accounts.bin}/python}}\n"
            "environment:\n  dependencies: [{pip: [pygments, idna]}]\n"
        )
        yield Site(made, accounts)


def _own(account: Account) -> Path:
    return account.home / ".local/share/stackyard"


def _seen(yard: Path) -> dict[str, int]:
    """All files but the notes that users may leave there: of their yards, and of what they run."""
    notes = ("children", "uses")
    return {str(p): p.lstat().st_mtime_ns for p in yard.rglob("*") if p.relative_to(yard).parts[0] not in notes}


def test_two_users_extend_one_base_at_once(site: Site) -> None:
    anna, bert = site.accounts.user("anna", umask=0o077), site.accounts.user("bert", umask=0o002)
    before = _seen(site.bed.site_yard)
    words = (site.accounts.bin / "stackyard", "extend", "--base", "sci", "--name", "mine", "--pip", "rich")
    both = [
        (user, user.popen(*words, env=user.environment(STACKYARD_SITE=str(site.bed.site), PIP_NO_INDEX="1"),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        for user in (anna, bert)
    ]  # fmt: skip
    for user, process in both:
        out, _ = process.communicate(timeout=240)
        assert process.returncode == 0, out
        shown = site.extend(user, "run", "mine", "--", "python", "-c", "import rich, idna; print(rich.__file__)")
        assert str(_own(user)) in shown
    assert _seen(site.bed.site_yard) == before, "nothing of the site's yard was touched"
    made = (p for part in ("stacks", "extensions") for p in _own(anna).joinpath(part).rglob("*"))
    modes = {p: stat.S_IMODE(p.lstat().st_mode) for p in made if not p.is_symlink()}
    assert not [path for path, mode in modes.items() if mode & 0o077]
    assert site.extend(anna, "status") == site.extend(bert, "status")


def test_a_child_is_noted_where_it_may_be(site: Site) -> None:
    carl, children = site.accounts.user("carl"), site.bed.site_yard / "children"
    children.mkdir(exist_ok=True)
    words = ("extend", "--base", "sci", "--name")
    children.chmod(0o755)
    site.extend(carl, *words, "mine", "--pip", "mdurl")
    assert not [note for note in children.iterdir() if str(_own(carl)) in note.read_text()]
    children.chmod(0o1777)
    site.extend(carl, *words, "other", "--pip", "six")
    (note,) = (note for note in children.iterdir() if str(_own(carl)) in note.read_text())
    assert json.loads(note.read_text())["bases"] == ["sci/1.0-py3-1"] and note.stat().st_uid == carl.uid


def test_without_a_home_and_on_another_file_system(site: Site) -> None:
    dora = site.accounts.user("dora", umask=0o077)
    yard = Path(f"/dev/shm/{dora.name}")
    if not yard.parent.is_dir() or os.statvfs(yard.parent).f_flag & os.ST_NOEXEC:
        pytest.skip("/dev/shm not found, or mounted noexec")
    try:
        given = ("env", "-u", "HOME", f"STACKYARD_HOME={yard}", f"STACKYARD_SITE={site.bed.site}", "PIP_NO_INDEX=1")
        program = site.accounts.bin / "stackyard"
        dora.run(*given, program, "extend", "--base", "sci", "--name", "mine", "--pip", "mdurl")
        dora.run(*given, program, "run", "mine", "--", "python", "-c", "import mdurl, idna")
    finally:
        disk.remove_tree(yard)


def test_a_base_that_is_gone_or_closed_is_named(site: Site) -> None:
    emil = site.accounts.user("emil")
    site.extend(emil, "extend", "--base", "sci", "--name", "mine", "--pip", "mdurl")
    revision = site.bed.site_yard / "stacks/sci/1.0-py3-1"
    aside = site.bed.directory / "aside"
    revision.rename(aside)
    try:
        assert "its base sci/1.0-py3-1 was removed" in site.extend(emil, "status")
        assert "was removed" in site.extend(emil, "list")
        shown = site.extend(emil, "run", "mine", "--", "python", "-V", expect=4)
        assert "the base of this extension was removed" in shown and "rebase --on" in shown
        assert "not found" in site.extend(emil, "extend", "--name", "mine", "--pip", "six", expect=4)
    finally:
        aside.rename(revision)
    site.bed.site_yard.chmod(0o700)
    try:
        shown = site.extend(emil, "extend", "--name", "mine", "--pip", "six", expect=2)
        assert "permission denied" in shown and "Traceback" not in shown
        assert "permission denied" in site.extend(emil, "status").lower()
    finally:
        site.bed.site_yard.chmod(0o755)
    assert "six" not in site.extend(emil, "status")


def test_a_base_that_is_removed_while_the_extension_is_built(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    revision, aside = site.bed.site_yard / "stacks/sci/1.0-py3-1", site.bed.directory / "aside"
    finish = layer.finish

    def finish_and_lose(job: Job, base: BaseRevision) -> None:
        finish(job, base)
        revision.rename(aside)

    monkeypatch.setattr(layer, "finish", finish_and_lose)
    given = ("--site", site.bed.site, "--yard", site.bed.yard)
    words = (*given, "extend", "--base", "sci", "--name", "mine", "--pip", "six")
    try:
        done = inside(*words, expect=1, PIP_NO_INDEX="1")
    finally:
        aside.rename(revision)
    assert "the base sci/1.0-py3-1 was removed" in done.err
    assert (
        not list(site.bed.yard.glob("stacks/mine/*/record.json")) and not (site.bed.yard / "extensions/mine").exists()
    )
    monkeypatch.undo()
    inside(*words, PIP_NO_INDEX="1")


def test_a_group_loads_what_is_shared_with_it_and_nothing_else(site: Site) -> None:
    programs.need("lmod")
    anna, gerd = site.accounts.user("anna", "astro"), site.accounts.user("gerd", "astro")
    hans, group = site.accounts.user("hans"), site.accounts.group("astro")
    place = site.bed.directory / "theirs"
    place.mkdir()
    place.chmod(0o1777)
    given = ("--yard", str(place / "anna"))
    for name, package in (("mine", "rich"), ("secret", "six")):
        site.extend(anna, *given, "extend", "--base", "sci", "--name", name, "--pip", package)
    with_group = ("share", "mine", "--with", f"group:{group}")
    assert "would share" in site.extend(anna, *given, *with_group, "--dry-run")
    gerd.run("ls", place / "anna", expect=2)
    shown = site.extend(anna, *given, *with_group)
    (line,) = (line.strip() for line in shown.splitlines() if "module use" in line)
    load = f"{modules.initialise('lmod', 'bash')}\n{line} && python -c 'import rich, idna; print(rich.__file__)'"
    assert str(place / "anna/stacks/mine") in gerd.run("bash", "-c", load).out
    hans.run("bash", "-c", load, expect=1)
    gerd.run("ls", place / "anna/stacks", expect=2)  # entered, not listed
    gerd.run("cat", place / "anna/stacks/secret/1.0-py3-1/record.json", expect=1)
    assert not gerd.python("import os, sys; print(*(p for p, _, _ in os.walk(sys.argv[1]) if os.access(p, os.W_OK)))",
                           place / "anna/stacks/mine").out.strip()  # fmt: skip
    assert "you are not a member" in site.extend(anna, *given, "share", "mine", "--with", "group:root", expect=2)
    assert "no such group" in site.extend(anna, *given, "share", "mine", "--with", "group:nobody-at-all", expect=2)
    site.extend(gerd, "extend", "--base", "sci", "--name", "mine", "--pip", "mdurl")
    assert "chmod o+x" in site.extend(gerd, *with_group, expect=1)  # a home that others cannot enter


def test_a_parent_that_hangs_is_an_error_within_seconds(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if which("bindfs") is None:
        pytest.skip("bindfs not found")
    monkeypatch.setattr(disk, "ANSWER_S", 1.0)
    monkeypatch.setattr(disk.look_into, "__defaults__", (1.0,))
    with bindfs(site.bed.site_yard, tmp_path / "seen", *UNCACHED) as server:
        file = tmp_path / "site.yaml"
        file.write_text(f"yard: {tmp_path}/seen\n")
        inside("--site", file, "--yard", tmp_path / "mine", "list")
        server.send_signal(signal.SIGSTOP)
        try:
            done = inside("--site", file, "--yard", tmp_path / "mine", "extend", "--name", "x", "--base", "y", expect=1)
        finally:
            server.send_signal(signal.SIGCONT)
    assert "seen does not answer: timed out after 1 s" in done.err
