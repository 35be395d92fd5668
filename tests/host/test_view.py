"""Programs in a view cannot write where it is read-only, whoever runs them; where there can be none, it says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.host.run import command
from stackyard.host.run.view import PLAIN, view_of
from support.accounts import Accounts
from support.confined import confined

TRY = """
import sys
from pathlib import Path
from stackyard.host.run import command
from stackyard.host.run.view import view_of
top = Path(sys.argv[1])
view, reason = view_of([top], [top / "work"])
print("reason:", reason)
for target in (top / "file", top / "a dir/file", top / "work/file"):
    done = command.run(["sh", "-c", 'chmod u+w "$0"; echo more >> "$0"', target], view=view, check=False)
    print(target.relative_to(top), done.returncode)
done = command.run(["sh", "-c", "id -u; echo > file"], view=view, check=False, cwd=top / "a dir")
print(done.stdout.strip(), done.returncode)
"""
SAFE = "file 2\na dir/file 2\nwork/file 0\n"


@pytest.fixture
def top(common: Path) -> Path:
    top = common / "yard"
    for name in ("file", "a dir/file", "work/file"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("one\n")
    return top


def code(of_sh: str) -> str:
    """The exit status of a redirection that fails differs between shells."""
    return of_sh.replace(" 1\n", " 2\n").replace("] 1 [", "] 2 [")


def test_root_and_an_account_cannot_write(top: Path, accounts: Accounts) -> None:
    anna = accounts.user("anna")
    subprocess.run(["chown", "-R", str(anna.uid), top], check=True)
    mine = subprocess.run([sys.executable, "-c", TRY, top], capture_output=True, text=True, check=True)
    hers = anna.python(TRY, top)
    assert code(mine.stdout) == f"reason: \n{SAFE}0 2\n", mine.stderr
    assert code(hers.out) == f"reason: \n{SAFE}{anna.uid} 2\n", hers.err
    assert (top / "file").read_text() == "one\n" and (top / "work/file").read_text() == "one\nmore\nmore\n"


NAMED = """
import sys
from pathlib import Path
from stackyard.host.run import command
from stackyard.host.run.view import view_of
top = Path(sys.argv[1])
name = top / "work/second name"
name.mkdir(exist_ok=True)
view, reason = view_of([top], [top / "work"], [(name, top / "a dir")])
done = command.run(["sh", "-c", 'cat "$0/file"; realpath "$0"; echo > "$0/file"', name], view=view, check=False)
print(reason, done.stdout.split("\\n"), done.returncode, list(name.iterdir()))
"""


def test_a_directory_has_a_second_name_in_the_view_alone(top: Path, accounts: Accounts) -> None:
    """Nothing tells it from the first one, and it is as read-only."""
    anna = accounts.user("anna")
    subprocess.run(["chown", "-R", str(anna.uid), top], check=True)
    mine = subprocess.run([sys.executable, "-c", NAMED, top], capture_output=True, text=True, check=True)
    hers = anna.python(NAMED, top)
    expected = f" ['one', '{top}/work/second name', ''] 2 []\n"
    assert (code(mine.stdout), code(hers.out)) == (expected, expected), mine.stderr + hers.err


@pytest.mark.parametrize("who", ["root", "account"])
def test_without_the_privilege_the_reason_is_known(top: Path, common: Path, accounts: Accounts, who: str) -> None:
    account = accounts.user("anna") if who == "account" else None
    python = accounts.bin / "python"
    done = subprocess.run(
        confined(common / "root", [python, "-c", TRY, top], account), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("reason: user namespaces: Operation not permitted\nfile "), done.stderr
    assert (top / "file").read_text() == ("one\nmore\n" if who == "root" else "one\n")


def test_other_mounts_below_are_read_only_too(top: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    script = 'mount -t tmpfs none "$1/a dir" && exec "$0" -c "$2" "$1"'
    argv = ["unshare", "--mount", "sh", "-c", script, sys.executable, top, TRY]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "\na dir/file 2\n" in code(done.stdout), done.stderr


def test_a_program_that_does_not_exist_is_named(top: Path) -> None:
    view, reason = view_of([top])
    if reason:
        pytest.skip(reason)
    with pytest.raises(MissingError, match=r"^no-such-program not found on PATH"):
        command.run(["no-such-program"], view=view)
    assert command.run(["true"], view=view).argv == ("true",)
    assert view_of([top / "missing"]) == (PLAIN, "")
