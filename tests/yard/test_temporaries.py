"""What a killed process did not rename goes with the next collection; what a living one is writing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stackyard.host.run.identity import MARK, fate_of, mark
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic, temporaries
from support import smallyard
from support.accounts import Accounts
from support.cli import STACKYARD, inside, stackyard

WRITE = (
    "import sys, pathlib; from stackyard.yard.write import atomic; atomic.write_text(pathlib.Path(sys.argv[1]), 'x')"
)
HOLD = (
    "import sys, pathlib; from stackyard.yard.write import atomic\n"
    "made = atomic.temporary(pathlib.Path(sys.argv[1])); made.touch(); print(made, flush=True); sys.stdin.read()"
)
ELSEWHERE = ".report.json.0a0a0a-4d2-1e240-0b0b0b.tmp"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return smallyard.make(tmp_path / "yard", "1.0", "2.0")


def killed(path: Path) -> Path:
    """What a process leaves that is killed while it writes a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = set(path.parent.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", WRITE, path], env={**os.environ, "STACKYARD_FAULT": "write"}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    (left,) = set(path.parent.iterdir()) - before
    return left


def make_old(path: Path, days: float = 2) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then), follow_symlinks=False)


def test_the_report_that_a_killed_verification_was_writing(yard: Yard) -> None:
    paths = smallyard.revision(yard, "1.0")
    stackyard("verify", "tool/1.0")
    for count in range(1, 6):
        stackyard("verify", "tool/1.0", expect=None, STACKYARD_FAULT=f"write:{count}")
        if left := list(paths.root.glob(".report.json.*.tmp")):
            break
    assert len(left) == 1, "one that is killed at each of its writes is killed at its report too"
    before = smallyard.files(yard.root)
    assert "temporary file of killed processes: `stackyard gc` removes them" in inside("fsck").err
    assert "of killed processes" in inside("gc", "--dry-run").out and left[0].exists()
    assert str(left[0]) in inside("gc", "--dry-run", "--json").value["temporaries"]
    assert "of killed processes" in inside("gc").out and not left[0].exists()
    assert temporaries.found(yard) == [] and "killed" not in inside("fsck").err
    kept = {name for name in before if ".tmp" not in name}
    assert kept <= set(smallyard.files(yard.root)), "and nothing else"


def test_everywhere_in_a_yard(yard: Yard) -> None:
    paths = smallyard.revision(yard, "1.0")
    (yard.extensions / "mine").mkdir(parents=True)
    places = [
        paths.record, paths.signatures / "a.sig", paths.check_scripts / "a", yard.generation(1).manifest,
        yard.root / "licences.json", yard.kept_lock("0" * 64), yard.extensions / "mine" / "stack.yaml",
        yard.uses / "tool~1.0@host.1.2.json", yard.trash / "x" / "what.json", yard.notes / "conda" / "a.json",
    ]  # fmt: skip
    left = [killed(place) for place in places]
    assert temporaries.found(yard) == sorted(left)
    inside("gc")
    assert not any(path.exists() for path in left)


def test_what_a_living_process_writes_stays_however_old_it_is(yard: Yard) -> None:
    words = [sys.executable, "-c", HOLD, smallyard.revision(yard, "1.0").report]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        made = Path(process.stdout.readline().strip())
        make_old(made)
        assert temporaries.found(yard) == [] and not temporaries.remove(yard, made)
        process.kill()
        process.wait()
    assert temporaries.found(yard) == [made] and temporaries.remove(yard, made) and not temporaries.remove(yard, made)


@pytest.mark.parametrize(
    "name", [ELSEWHERE, ".report.json.0a0a0a0a0a0a.tmp", ".report.json.ab_12cde.tmp", ".launch.0a0a0a0a0a0a"]
)
def test_of_another_host_and_of_an_earlier_version_only_what_is_old_goes(yard: Yard, name: str) -> None:
    path = smallyard.revision(yard, "1.0").root / name
    path.touch()
    assert temporaries.found(yard) == []
    make_old(path, 0.9)
    assert temporaries.found(yard) == []
    make_old(path)
    assert temporaries.found(yard) == [path]


def test_what_only_looks_alike_stays(yard: Yard, tmp_path: Path) -> None:
    root = smallyard.revision(yard, "1.0").root
    for name in (".keep", ".a.tmp", "report.json.0a0a0a0a0a0a.tmp", ".bashrc.orig"):
        (root / name).touch()
        make_old(root / name)
    os.mkfifo(root / ELSEWHERE)
    make_old(root / ELSEWHERE)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / ELSEWHERE).touch()
    make_old(tmp_path / "outside" / ELSEWHERE)
    (root / "signatures").symlink_to(tmp_path / "outside")
    assert temporaries.found(yard) == []


def test_of_a_file_that_an_account_was_leaving_in_a_drop(accounts: Accounts, common: Path) -> None:
    yard = smallyard.make(common / "yard", "1.0")
    site = smallyard.give_site(common, yard.root)
    anna = accounts.user("anna")
    yard.uses.mkdir(exist_ok=True)
    yard.uses.chmod(0o1733)
    done = anna.python(WRITE, yard.uses / "tool~1.0@h.1.2.json", expect=-signal.SIGKILL, STACKYARD_FAULT="write")
    assert done.code == -signal.SIGKILL
    (left,) = yard.uses.iterdir()
    subprocess.run([STACKYARD, "--site", site, "--yard", yard.root, "gc"], check=True, capture_output=True)
    assert not left.exists()


def test_a_mark_tells_what_became_of_its_process() -> None:
    import re

    assert re.fullmatch(MARK, mark()) and mark() != mark() and fate_of(mark()) == "running"
    done = subprocess.run([sys.executable, "-c", "from stackyard.host.run.identity import mark; print(mark())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert fate_of(done.stdout.strip()) == "dead"
    for word in ("", "x", "0a0a0a-4d2-1e240-0b0b0b", f"{mark()[:7]}0-0-0b0b0b", f"{mark()[:7]}ffffffff-1-0b0b0b"):
        assert fate_of(word) == "unknown"
    made = atomic.temporary(Path("/x/y")).name
    assert made == atomic.temporary(Path("/x/y")).name and fate_of(made.removeprefix(".y.")) == "running"
