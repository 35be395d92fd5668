"""Who may read and write in a yard: the site's in the site's own, the owner's in any other."""

from __future__ import annotations

import contextlib
import grp
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.sites.site import load_site
from stackyard.inputs.sites.sitemodels import Permissions, Site
from stackyard.inputs.sites.siteyard import expanded, is_sites, policy, unused
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
from stackyard.yard.write import permissions
from stackyard.yard.write.atomic import write_text
from stackyard.yard.write.permissions import Policy
from support.accounts import Accounts


@pytest.fixture(params=[0o002, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_sites_permissions_are_for_the_yard_that_it_names(tmp_path: Path, umask: int) -> None:
    site = Site(yard=str(tmp_path / "sw"), permissions=Permissions(group="root", umask="0002"))
    (tmp_path / "link").symlink_to("sw")
    assert policy(Workspace(site, Yard(tmp_path / "sw"))) == Policy(0o002, "root")
    assert is_sites(Workspace(site, Yard(tmp_path / "link")))
    assert not is_sites(Workspace(site, Yard(tmp_path / "mine"))) and not is_sites(
        Workspace(Site(), Yard(tmp_path / "sw"))
    )
    assert (
        policy(Workspace(site, Yard(tmp_path / "mine")))
        == policy(Workspace(Site(), Yard(tmp_path / "mine")))
        == Policy(umask | 0o027)
    )


def test_permissions_for_a_yard_that_is_not_named_are_said_to_be_unused(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    text = f"permissions: {{umask: '0027'}}\nmodules: {{root: {tmp_path}/m}}\n"
    file.write_text(text)
    assert [line.split(" is not used")[0] for line in unused(load_site(file))] == [
        f"{file}: `permissions`", f"{file}: `modules: root`",
    ]  # fmt: skip
    file.write_text(f"yard: {tmp_path}\n{text}")
    assert unused(load_site(file)) == [] == unused(Site())


@pytest.mark.parametrize(
    ("directory", "closed"),
    [(0o755, 0o022), (0o750, 0o027), (0o700, 0o077), (0o775, 0o022), (0o777, 0o022), (0o2775, 0o002), (0o2770, 0o007)],
)
def test_a_yards_own_directory_widens_it_and_writing_is_asked_for_with_setgid(
    directory: int, closed: int, tmp_path: Path, umask: int
) -> None:
    tmp_path.chmod(directory)
    own = umask & ~0o070 if directory & stat.S_ISGID else umask
    assert permissions.of_directory(tmp_path) == Policy(own | closed)


def test_a_group_writes_to_a_yard_whatever_the_umasks_of_its_members(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna", "staff", umask=0o022), accounts.user("bert", "staff", umask=0o077)
    yard = common / "yard"
    yard.mkdir()
    os.chown(yard, anna.uid, anna.groups[0])
    yard.chmod(0o2775)
    code = (
        "import sys; from pathlib import Path; from stackyard.deploy.writing import writing;"
        "from stackyard.inputs.workspace import Workspace;"
        "from stackyard.inputs.models import Site; from stackyard.yard.layout import Yard\n"
        "yard = Yard(Path(sys.argv[1]))\n"
        "with writing(Workspace(Site(), yard)): (yard.stacks / 'x').mkdir(parents=True, exist_ok=True);"
        "(yard.stacks / 'x' / sys.argv[2]).touch()"
    )
    for account, name in ((anna, "hers"), (bert, "his"), (anna, "later")):
        account.python(code, yard, name)
    made = {path.relative_to(yard).as_posix(): oct(mode(path)) for path in (yard, *yard.rglob("*"))}
    assert made == {
        ".": "0o2775", "stacks": "0o2775", "stacks/x": "0o2775",
        "stacks/x/hers": "0o664", "stacks/x/his": "0o660", "stacks/x/later": "0o664",
    }  # fmt: skip


def test_a_directory_with_the_sites_group_did_not_get_it_from_its_owner(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    site = Site(yard="/sw", permissions=Permissions(group=tmp_path.group()))
    assert policy(Workspace(site, Yard(tmp_path))).umask & 0o022 == 0o022


def test_the_umask_of_the_process_is_known_while_another_is_applied(umask: int) -> None:
    with permissions.applied(Policy(0o007)):
        assert permissions.own_umask() == umask and permissions.file_mode() == 0o660
    assert permissions.file_mode() == 0o666 & ~umask


def test_settling_spreads_the_owners_bits_and_takes_the_rest(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    modes = {"bin/run": 0o775, "private": 0o600, "wide": 0o666, "sealed": 0o444, "setuid": 0o4755, "other": 0o604}
    for name, given in modes.items():
        (tree / name).write_text("x")
        (tree / name).chmod(given)
    (tree / "bin").chmod(0o2700)
    (tree / "link").symlink_to("/etc/passwd")
    before = mode(Path("/etc/passwd"))
    permissions.settle(tree, Policy(0o022))
    assert {name: mode(tree / name) for name in modes} == {
        "bin/run": 0o755, "private": 0o644, "wide": 0o644, "sealed": 0o444, "setuid": 0o755, "other": 0o644,
    }  # fmt: skip
    assert (mode(tree / "bin"), mode(Path("/etc/passwd"))) == (0o2755, before)
    permissions.settle(tree, Policy(0o027))
    assert (mode(tree / "bin/run"), mode(tree / "sealed")) == (0o750, 0o440)


def test_settling_gives_the_group_and_leaves_what_others_own(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna", "staff")
    (common / "tree/sub").mkdir(parents=True)
    (common / "tree/theirs").write_text("root's\n")
    for path in (common / "tree", common / "tree/sub"):
        os.chown(path, anna.uid, anna.gid)
    anna.run("touch", common / "tree/sub/hers")
    code = (
        "import sys; from pathlib import Path; from stackyard.yard.write.permissions import Policy, settle;"
        "settle(Path(sys.argv[1]), Policy(0o002, sys.argv[2]))"
    )
    anna.python(code, common / "tree", accounts.group("staff"))
    assert {(p.name, oct(mode(p)), p.lstat().st_gid) for p in (common / "tree").rglob("*")} == {
        ("sub", "0o2775", anna.groups[0]), ("hers", "0o664", anna.groups[0]), ("theirs", "0o644", 0),
    }  # fmt: skip


def test_a_yard_that_a_former_version_opened_for_writing_is_settled_once(tmp_path: Path) -> None:
    yard = tmp_path / "yard"
    (yard / "stacks/x/1/prefix/bin").mkdir(parents=True)
    write_text(yard / "stacks/x/1/prefix/bin/run", "x", mode=0o775)
    for path in (yard, *yard.rglob("*")):
        path.chmod(0o775)
    permissions.narrow(yard, permissions.of_directory(yard))
    assert {oct(mode(path)) for path in (yard, *yard.rglob("*"))} == {"0o755"}
    (yard / "stacks").chmod(0o775)  # later ones are their owner's own doing
    permissions.narrow(yard, permissions.of_directory(yard))
    assert mode(yard / "stacks") == 0o775


def test_a_yard_that_was_settled_in_part_is_settled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = tmp_path / "yard"
    (yard / "stacks").mkdir(parents=True)
    for path in (yard, yard / "stacks"):
        path.chmod(0o775)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(permissions, "_settle_open", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        permissions.narrow(yard, Policy(0o022))
    permissions.narrow(yard, Policy(0o022))
    assert {oct(mode(path)) for path in (yard, yard / "stacks")} == {"0o755"}


def test_settling_changes_no_file_that_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "sub").mkdir(parents=True)
    for path in (outside, tree / "file", tree / "gone"):
        path.write_text("")
        path.chmod(0o600)
    look = permissions._Modes.wanted

    def swapped(*given: Any) -> int | None:
        wanted = look(*given)
        with contextlib.suppress(FileNotFoundError):
            (tree / "gone").unlink()
            (tree / "file").unlink()
            (tree / "file").symlink_to(outside)
        return wanted

    monkeypatch.setattr(permissions._Modes, "wanted", swapped)
    permissions.settle(tree, Policy(0o022, grp.getgrgid(1).gr_name))
    assert (mode(outside), outside.stat().st_gid, mode(tree / "sub")) == (0o600, os.getgid(), 0o2755)


def test_a_member_who_does_not_own_a_directory_is_told_who_can_give_it(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna", "staff")
    code = (
        "import sys; from pathlib import Path; from stackyard.core.errors import StackyardError;"
        "from stackyard.yard.write.permissions import give_to_group\n"
        "try: give_to_group(Path(sys.argv[1]), sys.argv[2])\nexcept StackyardError as error: print(error.hint)"
    )
    group = accounts.group("staff")
    hint = anna.python(code, common, group).out
    assert hint == f"its owner, root, must run `chgrp {group} {common} && chmod g+s {common}`\n"


def test_a_yard_in_the_home_of_no_account_is_an_error_of_the_site(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot resolve ~nosuchaccount/yard: no such account"):
        expanded("~nosuchaccount/yard")
