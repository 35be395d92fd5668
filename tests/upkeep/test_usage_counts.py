"""Uses are counted by the commands and by the hooks of real module systems; `usage`, `list` and `gc` go by them."""

from __future__ import annotations

import os
import subprocess
from datetime import date, timedelta
from pathlib import Path

import pytest

from stackyard.yard.layout import Yard
from stackyard.yard.others import usage
from support import modules, programs, smallyard
from support.accounts import Accounts
from support.cli import STACKYARD, Done, inside, stackyard

OPENED = """
import sys
from pathlib import Path
from stackyard.yard.others import uses
from stackyard.yard.layout import Yard
from stackyard.yard.write.permissions import Policy

def pause(event, args):
    if event == "os.rename" and sys.argv[2:]:
        print("about to write", flush=True)
        sys.stdin.read()

sys.addaudithook(pause)
uses.open_to_users(Yard(Path(sys.argv[1])), Policy(0o002), count=True)
"""
OLD = "tool/1.0-py311-1"
COUNT = "usage: {count: true}"


def made(directory: Path, text: str = COUNT) -> tuple[Yard, dict[str, str]]:
    yard = smallyard.make(directory / "yard", "1.0", "2.0", "3.0")
    words = {"STACKYARD_SITE": str(smallyard.give_site(directory, yard.root, text)), "STACKYARD_HOME": str(yard.root)}
    inside("default", "tool/3.0", **words)
    inside("default", "tool", "--undo", **words)
    return yard, words


def log(yard: Yard, day: date, *lines: str) -> None:
    file = yard.usage_log("n1", os.getuid(), day.isoformat()[:7])
    with file.open("a") as stream:
        stream.writelines(f"{day.isoformat()} {line}\n" for line in lines)


def test_a_run_is_counted_where_the_site_asks_for_it(tmp_path: Path) -> None:
    yard, words = made(tmp_path)
    began = date.today().isoformat()
    for _ in range(3):
        stackyard("run", OLD, "--", "hello", **words)
    found = usage.read(yard)
    assert (found[OLD].total, dict(found[OLD].kinds)) == (3, {"run": 3})
    assert began <= found[OLD].last <= date.today().isoformat()
    (row,) = inside("usage", OLD, "--json", **words).value
    assert (row["uses"], row["users"], row["by"]) == (3, 1, {"root": 3}) or os.geteuid()
    listed = {row["module"]: row["usage"]["uses"] for row in inside("list", "--usage", "--json", **words).value}
    assert listed == {OLD: 3, "tool/2.0-py311-1": 0, "tool/3.0-py311-1": 0}
    smallyard.give_site(tmp_path, yard.root, "usage: {count: true, anonymous: true}")
    assert inside("usage", OLD, "--json", **words).value[0]["by"] == {}


def test_nothing_is_counted_unasked(tmp_path: Path) -> None:
    yard, words = made(tmp_path, "")
    stackyard("run", OLD, "--", "hello", **words)
    assert not yard.usage.exists()
    assert "uses are not counted" in inside("usage", **words).out


def test_two_staff_who_switch_counting_on_at_once_do_not_fail(accounts: Accounts, common: Path) -> None:
    anna, bert = (accounts.user(name, "staff", umask=0o002) for name in ("anna", "bert"))
    yard, began = Yard(common / "yard"), date.today().isoformat()
    yard.root.mkdir()
    os.chown(yard.root, anna.uid, anna.groups[0])
    yard.root.chmod(0o2775)
    anna.python(OPENED, yard.root)
    yard.usage_since.unlink()  # as if hers had not come to it when his looks
    both = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with bert.popen(bert.bin / "python", "-c", OPENED, yard.root, "pausing", **both) as his:
        assert his.stdout
        his.stdout.readline()
        anna.python(OPENED, yard.root)
        _, errors = his.communicate(timeout=240)
    assert his.returncode == 0, errors
    assert began <= usage.since(yard) <= date.today().isoformat()


def test_users_count_in_files_of_their_own(accounts: Accounts, common: Path) -> None:
    user, other = accounts.user("bert"), accounts.user("carl")
    yard, words = made(common)
    for account in (user, user, other):
        account.stackyard("--site", words["STACKYARD_SITE"], "run", OLD, "--", "hello")
    other.run(
        "sh", "-c", f"echo nonsense > {yard.usage}/x.log; ln -s /etc/passwd {yard.usage}/y.log; mkfifo {yard.usage}/z"
    )
    forge = yard.usage_log(os.uname().nodename, user.uid, date.today().isoformat()[:7])
    assert other.run("sh", "-c", f"echo x >> {forge}", expect=None).code
    assert usage.read(yard)[OLD].users == {user.name: 2, other.name: 1}
    seen = user.stackyard("--site", words["STACKYARD_SITE"], "list", "--usage")
    assert "permission denied" in seen.err and OLD in seen.out


def test_old_counts_are_collected_also_those_of_others(accounts: Accounts, common: Path) -> None:
    """The yard belongs to an account that is not root; a user's file is deleted after the grace time all the same."""
    staff, user = accounts.user("hilda"), accounts.user("bert")
    text = "usage: {count: true, keep_days: 40}\nremoval: {grace_days: 0}"
    yard, words = made(common, text)
    stackyard("run", OLD, "--", "hello", **words)
    for path in (common, *common.rglob("*")):
        os.chown(path, staff.uid, staff.gid, follow_symlinks=False)
    old, month = date.today() - timedelta(days=100), (date.today() - timedelta(days=100)).isoformat()[:7]
    theirs, foreign = yard.usage_log("n1", user.uid, month), yard.usage / f"notes.{month}.log"
    for file, line in ((theirs, f"{old.isoformat()} run {OLD}\n"), (foreign, "what somebody else put here\n")):
        file.write_text(line)
        os.chown(file, user.uid, user.gid)
    recent = {file.name for file in yard.usage.iterdir()} - {theirs.name}
    words = {name: str(value) for name, value in words.items()}
    assert f"the uses of {month}, which are kept for 40 days" in staff.stackyard("gc", "--dry-run", **words).out
    assert theirs.exists()
    staff.stackyard("gc", **words)
    assert {file.name for file in yard.usage.iterdir()} == recent
    staff.stackyard("gc", **words)
    assert not list(yard.trash.glob("*/content")) and usage.read(yard)[OLD].total == 1


def test_what_users_put_in_the_place_of_counts_is_named_and_left(accounts: Accounts, common: Path) -> None:
    """Directories and pipes, also where one is exchanged for a count meanwhile: nothing is moved, or followed."""
    user = accounts.user("bert")
    text = "usage: {count: true, keep_days: 40}\nremoval: {grace_days: 0}"
    yard, words = made(common, text)
    day = date.today() - timedelta(days=100)
    month = day.isoformat()[:7]
    due, directory, pipe, link = (yard.usage_log(f"n{n}", user.uid, month) for n in range(4))
    user.run("sh", "-c", f"echo x > {due}; mkdir {directory}; mkfifo {pipe}; ln -s {due} {link}; mkfifo {yard.usage}/z")
    user.run("sh", "-c", f"mkdir {directory}/inside; echo junk > {yard.usage}/junk")
    planned = inside("gc", "--dry-run", "--json", **words).value
    assert [count["path"] for count in planned["counts"]] == [str(due)] and due.exists()
    strange = [text for text in planned["unseen"] if text.startswith("usage/")]
    assert len(strange) == 4 and strange[3] == "usage/: 2 more that stackyard does not write; left"
    assert all(text.endswith("not a file that stackyard writes; left") for text in strange[:3])
    traced = stackyard_traced(common, words)
    assert "removed 1 old count of uses: " in traced.out and not due.exists()
    calls = [line for line in (common / "trace").read_text().splitlines() if f"{yard.usage}/" in line]
    assert not calls, "nothing by its path"
    left = {directory, pipe, link, yard.usage / "z", yard.usage / "junk", yard.usage_since}
    assert set(yard.usage.iterdir()) >= left and (directory / "inside").is_dir()
    assert not [item for item in yard.trash.glob("*/content") if item.name == due.name]


def stackyard_traced(directory: Path, words: dict[str, str]) -> Done:
    """A collection, with what it did to names in ``trace``."""
    programs.need("strace")
    wanted = "trace=rename,renameat,renameat2,chmod,fchmodat,unlink,unlinkat,open,openat,rmdir"
    argv = ["strace", "-f", "-qq", "-e", wanted, "-o", directory / "trace", STACKYARD, "gc"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, **words})
    return Done(0, done.stdout, done.stderr)


def test_a_pipe_in_the_place_of_a_count_keeps_nobody_waiting(accounts: Accounts, common: Path) -> None:
    """Nor is another file of one's own written to, to which somebody has given the name of the count."""
    user, other = accounts.user("bert"), accounts.user("carl")
    yard, words = made(common)
    month = date.today().isoformat()[:7]
    mine = yard.usage_log(os.uname().nodename, user.uid, month)
    other.run("mkfifo", mine)
    run = ("--site", words["STACKYARD_SITE"], "run", OLD, "--", "hello")
    assert "hello tool 1.0" in user.stackyard(*run, timeout_s=60).out
    mine.unlink()
    secret = common / "secret"
    secret.write_text("")
    os.chown(secret, user.uid, user.gid)
    os.link(secret, mine)
    user.stackyard(*run)
    assert secret.read_text() == ""
    mine.unlink()
    accounts.user("bert", umask=0o077).stackyard(*run)
    assert mine.stat().st_mode & 0o777 == 0o644, "the owner of the yard counts, whatever the umask is"


def test_counts_that_cannot_be_read_may_be_of_anything(accounts: Accounts, common: Path) -> None:
    staff, user = accounts.user("hilda"), accounts.user("bert")
    yard, words = made(common, f"{COUNT}\nuser_yard: {common}/users/$USER/yard")
    yard.usage_since.write_text(f"{date.today() - timedelta(days=400)}\n")
    log(yard, date.today() - timedelta(days=20), "load tool/2.0-py311-1")
    for path in (common, *common.rglob("*")):
        os.chown(path, staff.uid, staff.gid, follow_symlinks=False)
    given = {name: str(value) for name, value in words.items()}
    unused = ("gc", "--dry-run", "--unused-for", "180d", "--json")
    assert staff.stackyard(*unused, **given).value["revisions"]
    for days, code in ((300, 0), (100, 1)):
        closed = yard.usage_log("n1", user.uid, (date.today() - timedelta(days=days)).isoformat()[:7])
        user.run("sh", "-c", f"umask 077; echo x > {closed}")
        done = staff.stackyard(*unused, expect=code, **given)
    assert f"cannot read {closed}: Permission denied" in done.err
    user.run("truncate", "-s", "20M", closed)
    user.run("chmod", "644", closed)
    assert f"cannot read {closed}: larger than" in staff.stackyard(*unused, expect=1, **given).err
    assert f"cannot read {closed}: larger than" in staff.stackyard("usage", **given).err


def test_what_nobody_has_used_is_collected_where_loads_are_counted(tmp_path: Path) -> None:
    yard, words = made(tmp_path)
    long_ago, lately = date.today() - timedelta(days=400), date.today() - timedelta(days=20)
    assert "counted since" in inside("gc", "--dry-run", "--unused-for", "180d", expect=2, **words).err
    yard.usage_since.write_text(f"{long_ago}\n")
    log(yard, long_ago, f"run {OLD}")
    assert "loads of modules are not counted" in inside("gc", "--unused-for", "180d", expect=2, **words).err
    log(yard, lately, "load tool/2.0-py311-1")
    assert "counted since" in inside("gc", "--unused-for", "999d", expect=2, **words).err
    gone = inside("gc", "--dry-run", "--json", "--unused-for", "26w", **words).value["revisions"]
    assert [(row["entry"], row["why"]) for row in gone] == [(OLD, f"not used since {long_ago}")]
    smallyard.give_site(tmp_path, yard.root, "usage: {count: true, keep_days: 90}")
    assert "not for 180 days" in inside("gc", "--dry-run", "--unused-for", "180d", expect=2, **words).err
    for text in ("not", "1000000000d", "99999w"):
        assert "days" in inside("gc", "--unused-for", text, expect=2, **words).err


def test_nobody_can_write_down_that_uses_were_counted_for_long(accounts: Accounts, common: Path) -> None:
    """One line of any account, or of a node whose clock is wrong, would make everything seem unused."""
    user = accounts.user("bert")
    yard, words = made(common)
    day = date.today().isoformat()
    for name, lines in {
        f"n1.{user.uid}.2001-01.log": [f"2001-01-01 run {OLD}", "2001-01-02 load x/1"],
        f"n1.{user.uid}.{day[:7]}.log": [f"0000-00-00 run {OLD}", f"2001-01-01 run {OLD}", f"{day} run {OLD}"],
        f"n1.{user.uid}.0000-00.log": [f"0000-00-00 run {OLD}"],
    }.items():
        user.run("sh", "-c", f"printf '%s\\n' {' '.join(map(repr, lines))} > {yard.usage}/{name}")
    assert user.run("sh", "-c", f"echo 2001-01-01 > {yard.usage_since}", expect=None).code
    assert f"counted since {day}" in inside("gc", "--unused-for", "180d", expect=2, **words).err
    assert dict(usage.read(yard)[OLD].days) == {"2001-01-01": 1, day: 1}
    yard.usage_since.unlink()
    user.run("sh", "-c", f"echo 2001-01-01 > {yard.usage_since}")
    assert usage.since(yard) == ""


@pytest.mark.real
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_the_hook_of_a_module_system_counts_loads(system: str, tmp_path: Path) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    yard, words = made(tmp_path)
    name, variable = {"lmod": ("SitePackage.lua", "LMOD_PACKAGE_PATH"), "em": ("siteconfig.tcl", "MODULES_SITECONFIG")}[
        system
    ]
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / name
    file.write_text(inside("usage", "--hook", "lmod" if system == "lmod" else "modules", **words).out)
    (tmp_path / "other/x").mkdir(parents=True)
    (tmp_path / "other/x/1").write_text("#%Module\nsetenv X 1\n")
    environ = {
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8",
        variable: str(file.parent if system == "lmod" else file),
    }  # fmt: skip
    lines = (
        modules.initialise(system, "bash"), f"umask 077; module use {yard.modules} {tmp_path}/other",
        "module load tool/1.0", "module unload tool", "module load tool x", "module avail", "module show tool/2.0",
        "hello", f"chmod 0 {yard.usage}/*" if os.geteuid() else "true", "module load nothing",
    )  # fmt: skip
    said = modules.run("bash", "\n".join(lines) + "\n", environ, tmp_path)
    assert "hello tool 3.0" in said, said
    found = usage.read(yard)
    assert {name: dict(each.kinds) for name, each in found.items()} == {
        OLD: {"load": 1},
        "tool/3.0-py311-1": {"load": 1},
    }
    (count,) = (path for path in yard.usage.iterdir() if path.suffix == ".log")
    assert count.stat().st_mode & 0o777 == 0o644
    for make in ("mkfifo {}", "mkfifo {}.x; ln -s {}.x {}", "mkdir {}"):  # as any account may, before it is counted
        subprocess.run(["rm", "-rf", count, f"{count}.x"], check=True)
        subprocess.run(["sh", "-c", make.replace("{}", str(count))], check=True)
        loading = (*lines[:2], "module load tool/1.0", "hello")
        said = modules.run("bash", "umask 077\n" + "\n".join(loading) + "\n", environ, tmp_path)
        assert "hello tool 1.0" in said, (make, said)
