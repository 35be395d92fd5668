"""A year in the life of a site's yard, run as docs/howto/operate.md says, with real accounts (`year`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest

from support import programs
from support.accounts import Account, Accounts

STAFF, USERS = 3, 20
SEED = 7
"""Of what happens on which day, and who does it; $STACKYARD_YEAR is another one."""
UMASKS = (0o022, 0o077, 0o002)
LIMIT_S = 1500
SHOWN_LINES, SHOWN = 300, 12_000
"""So many lines, and characters, of the end of what a year prints are in the message of the failure."""
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.parametrize("deploys", [
    pytest.param(28, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.rare),
])  # fmt: skip
def test_a_year(accounts: Accounts, common: Path, deploys: int) -> None:
    for program in ("unshare", "mount"):
        programs.need(program)
    letters = "abcdefghijklmnopqrstuvwxyz"
    staff = [accounts.user(f"staff{letters[n]}", "staff", umask=UMASKS[n]) for n in range(STAFF)]
    users = [accounts.user(f"user{letters[n]}", umask=UMASKS[n % 3]) for n in range(USERS)]
    given = {
        "place": str(common), "seed": int(os.environ.get("STACKYARD_YEAR") or SEED),
        "staff": [_person(each) for each in staff], "users": [_person(each) for each in users],
        "group": accounts.group("staff"), "deploys": deploys,
    }  # fmt: skip
    tests = accounts.readable(Path(__file__).parents[1])
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": f"{tests}:{tests / 'publish'}"}
    year = tests / "upkeep" / "year.py"
    code, last = _shown([*APART, accounts.bin / "python", year, json.dumps(given)], environ)
    told = f"exit {code} (-{signal.SIGKILL:d}: timed out after {LIMIT_S} s); STACKYARD_YEAR={given['seed']} repeats it"
    assert code == 0, f"{told}; the end of what it printed:\n{last}"


def test_the_end_of_what_a_program_prints_is_kept_for_the_failure(capfd: pytest.CaptureFixture[str]) -> None:
    raised = "import sys; print('first', flush=True); print('x' * 20_000, file=sys.stderr); raise OSError('why')"
    code, last = _shown([sys.executable, "-c", raised], dict(os.environ))
    assert (code, len(last)) == (1, SHOWN)
    assert last.endswith("OSError: why\n")
    assert capfd.readouterr().out.startswith("first\nxxx")


def _shown(words: list[str | Path], environ: dict[str, str]) -> tuple[int, str]:
    """Run a program and print what it prints at once; its exit code, and the end of all that."""
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(words, env=environ, stdout=pipe, stderr=both, text=True, errors="replace") as running:
        limit = threading.Timer(LIMIT_S, running.kill)
        limit.start()
        try:
            assert running.stdout is not None
            for line in running.stdout:
                print(line, end="", flush=True)
                last.append(line)
        except BaseException:
            running.kill()
            raise
        finally:
            limit.cancel()
    return running.returncode, "".join(last)[-SHOWN:]


def _person(account: Account) -> dict[str, object]:
    wanted = ("name", "uid", "gid", "groups", "umask")
    return {**{key: getattr(account, key) for key in wanted}, "home": str(account.home)}
