"""`stackyard doctor` without an argument, as it is typed: text, JSON and exit statuses; what it reads and what not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from support import programs, shells, smallyard
from support.accounts import Accounts, give
from support.bindfs import UNCACHED, bindfs
from support.cli import STACKYARD, Done

WRITES = re.compile(
    r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)|\b(mkdir|mkdirat|rmdir|rename|renameat2?|unlink|unlinkat|link|linkat"
    r"|symlink|symlinkat|mknod|mknodat|chmod|fchmod|fchmodat|chown|fchown|lchown|fchownat|utimensat|utime|utimes"
    r"|futimesat|truncate|ftruncate|setxattr|lsetxattr|fsetxattr|sendto|sendmsg|connect|bind)\("
)
OF_HERE = {"clock-free"}
"""A note about the machines on which these tests run."""


def typed(*words: str | Path, hosts: Path, before: tuple[str | Path, ...] = (), **variables: str) -> Done:
    """The command line on this machine with another /etc/hosts, in a shell with these variables alone."""
    if os.geteuid() != 0:
        pytest.skip("mounts in a namespace need root")
    mounts_of_other_tests = "umount -a -l -t fuse,fuse.bindfs,fuse.squashfuse_ll,autofs || true"
    script = f'mount --bind {hosts} /etc/hosts; {mounts_of_other_tests}; exec "$@"'
    argv = ["unshare", "--mount", "sh", "-ec", script, "sh", *before, STACKYARD, *words]
    environ = {"PATH": shells.SYSTEM_PATH, "HOME": os.environ["HOME"], "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(argv, text=True, capture_output=True, check=False, env=environ, timeout=120)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    return shells.write(tmp_path / "hosts", f"127.0.0.1 localhost\n192.0.2.7 {os.uname().nodename}")


def test_healthy(tmp_path: Path, hosts: Path) -> None:
    yard = smallyard.make(tmp_path / "yard", "1")
    done = typed("--yard", yard.root, "doctor", "--json", hosts=hosts)
    assert done.code == 0 and {one["rule"] for one in done.value["findings"]} <= OF_HERE and not done.err
    assert done.value["checks"] > 20


def test_findings(tmp_path: Path, hosts: Path) -> None:
    done = typed("--yard", tmp_path / "none", "doctor", hosts=hosts, PYTHONHOME="", LD_PRELOAD="", WORLD_SIZE="4")
    assert done.code == 3 and done.out.startswith(
        "shell: 1 finding\n  warning: WORLD_SIZE is 4 outside of a job [rank-left]"
    )
    assert "hint: unset RANK" in done.out
    done = typed("--yard", tmp_path / "none", "doctor", "--json", hosts=hosts, CUDA_LAUNCH_BLOCKING="1")
    assert done.code == 0  # a note
    first = json.loads(done.out)["findings"][0]
    assert (first["about"], first["rule"], first["severity"]) == ("shell", "cuda-blocking", "note")


def test_second_account(accounts: Accounts, common: Path) -> None:
    """A yard of her own above the site's, which belongs to another account, and one that keeps her out."""
    anna, staff = accounts.user("anna"), accounts.user("siteadmin")
    site = smallyard.make(common / "site", "1")
    give(site.root, staff)
    file = smallyard.give_site(common, site.root)
    (site.trash / "unknown/content").mkdir(parents=True)  # the site's business
    words = ("doctor", "--json")
    done = anna.stackyard(*words, expect=None, STACKYARD_SITE=str(file), STACKYARD_HOME=str(anna.home / "own"))
    rules = {one["rule"] for one in done.value["findings"] if one["about"] == "yard"}
    assert rules == set()
    site.root.chmod(0o700)
    done = anna.stackyard(*words, expect=3, STACKYARD_HOME=str(site.root))
    assert "yard-unusable" in {one["rule"] for one in done.value["findings"]}


def test_nothing_is_written_and_no_network_used(tmp_path: Path, hosts: Path) -> None:
    programs.need("strace")
    yard, trace = smallyard.make(tmp_path / "yard", "1", "2"), tmp_path / "trace"
    site = smallyard.give_site(tmp_path)
    before = ("strace", "-f", "-o", trace, "-e", "trace=%file,%desc,%network")
    done = typed("--yard", yard.root, "--site", site, "doctor", hosts=hosts, before=before)
    assert done.code == 0, done
    lines = trace.read_text(errors="replace").splitlines()
    assert any("findings.yaml" in line for line in lines), "the trace has not the checks"
    wrong = [line for line in lines if WRITES.search(line) and not re.search(r'"/dev/(fuse|null|tty)"', line)]
    assert wrong == []
    assert not [line for line in lines if "AF_INET" in line]


@pytest.mark.parametrize("typed", [True, False])
def test_yard_that_does_not_answer(accounts: Accounts, common: Path, typed: bool) -> None:
    """The command line of an account ends by itself, and names what hangs."""
    programs.need("bindfs")
    anna = accounts.user("anna")
    smallyard.make(common / "below/yard", "1")
    with bindfs(common / "below", common / "late", *UNCACHED, "-o", "allow_other") as server:
        late = common / "late"
        os.kill(server.pid, signal.SIGSTOP)
        words = ("--yard", late / "yard") if typed else ()
        variables = {"PATH": f"{late}/bin:{shells.SYSTEM_PATH}", "STACKYARD_HOME": str(late / "yard")}
        done = anna.stackyard(*words, "doctor", "--json", expect=3, timeout_s=60, **variables)
        os.kill(server.pid, signal.SIGCONT)
    shown = [one["message"] for one in done.value["findings"] if one["rule"] == "no-answer"]
    assert f"{late}/bin did not answer within 1 s" in shown
    assert "the check rights (the yard) did not answer within 2 s" in shown
