"""One holder per lease at a time, on whatever hosts, and no lease outlives its holder."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.host.files import at
from stackyard.host.run.identity import this_process
from stackyard.yard.write import lease as lease_module
from stackyard.yard.write import within
from stackyard.yard.write.claim import claim
from stackyard.yard.write.lease import Claim, Lease, Pace, is_occupied, latest, lease, occupy, others, take
from support import programs
from support.accounts import Accounts
from support.failing import stale

QUICK = Pace(beat_s=0.05, stale_s=0.4)
PATIENT = Pace(beat_s=0.05, stale_s=1.5)
"""Where a holder is heard, which gets the processor late on a busy machine."""
HOLD = """
import sys, time
from pathlib import Path
from stackyard.yard.write.lease import Pace, lease
said = lambda text: print(text, flush=True)
with lease(Path(sys.argv[1]), "the stack demo", on_wait=said, pace=Pace(0.05, 1.5)) as held:
    print("held", flush=True)
    sys.stdin.readline()
    held.check()
    print("committed", flush=True)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "leases" / "demo"


@contextmanager
def holder(directory: Path, *before: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease, run by the words `before`; it commits at a line on its standard input."""
    words = [*before, sys.executable, "-c", HOLD, str(directory)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline() == "held\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def other_namespace() -> tuple[str, ...]:
    """Words that run a program in a PID namespace of its own, as a container of another host does."""
    words = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    programs.need("unshare")
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare cannot make a PID namespace here")
    return words


def waits(directory: Path, wait_s: float = 2.0) -> str:
    """The sentence about the holder, for which this process waits the whole time."""
    told: list[str] = []
    with (
        pytest.raises(StackyardError, match="timed out after"),
        lease(directory, "the stack demo", wait_s=wait_s, on_wait=told.append, pace=PATIENT),
    ):
        pass
    assert len(told) == 1
    return told[0]


def test_it_names_its_holder_while_it_is_held_and_is_free_afterwards(directory: Path) -> None:
    with lease(directory, "the stack demo") as held:
        owner = json.loads((directory / "1/owner.json").read_text())
        assert (owner["pid"], held.number) == (os.getpid(), 1)
        held.check()
    assert latest(directory).is_free
    with lease(directory, "the stack demo") as held:
        assert held.number == 2
    assert [path.name for path in directory.iterdir()] == ["2"], "earlier claims are removed"


def test_threads_never_hold_it_together(directory: Path) -> None:
    inside, most, numbers = [0], [0], []

    def work() -> None:
        for _ in range(3):
            with lease(directory, "it", pace=QUICK) as held:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                numbers.append(held.number)
                time.sleep(0.005)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and numbers == list(range(1, 13))


def test_a_killed_holder_does_not_block(directory: Path) -> None:
    with holder(directory) as process:
        process.kill()
        process.wait()
    with lease(directory, "it", wait_s=0) as held:
        assert held.number == 2


def test_a_killed_holder_that_nobody_reaped_does_not_block(directory: Path) -> None:
    with holder(directory) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with lease(directory, "it", wait_s=0):
            pass


def test_a_living_holder_blocks_and_is_named_even_if_it_is_stopped(directory: Path) -> None:
    with holder(directory) as process:
        process.send_signal(signal.SIGSTOP)
        said = waits(directory, 0.5)
    me = this_process()
    assert f"the stack demo: held by {me.user} on {me.host}, process {process.pid}, since 20" in said


def test_a_holder_of_another_pid_namespace_is_alive_as_long_as_it_is_heard(directory: Path) -> None:
    with holder(directory, *other_namespace()) as process:
        assert "process 1, since" in waits(directory)
        assert process.communicate("\n")[0] == "committed\n"
    with lease(directory, "it", wait_s=0):
        pass


def test_a_holder_that_proc_hides_is_alive_as_long_as_it_is_heard(common: Path, accounts: Accounts) -> None:
    programs.need("unshare", "mount")
    bert, directory = accounts.user("bert"), common / "lease"
    directory.mkdir()
    directory.chmod(0o777)
    hidden = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    as_bert = ("setpriv", f"--reuid={bert.uid}", f"--regid={bert.gid}", "--clear-groups")
    words = ["unshare", "--mount", "sh", "-c", hidden, "sh", *as_bert]
    sees = "import os; print(os.path.exists('/proc/1/stat'))"
    seen = subprocess.run([*words, bert.bin / "python", "-c", sees], capture_output=True, text=True, check=False)
    if seen.stdout != "False\n":
        pytest.skip(f"/proc cannot hide processes here: {seen.stdout}{seen.stderr}")
    with lease(directory, "it", pace=QUICK):
        other = [*words, bert.bin / "python", "-c", HOLD, directory]
        with subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline().startswith(f"waiting for the stack demo: held by {this_process().user}")
            time.sleep(PATIENT.stale_s + 0.5)
            assert latest(directory).number == 1
            process.kill()


def test_an_equal_host_name_does_not_make_it_the_same_machine(directory: Path) -> None:
    """Two containers of one image: the same host name and process number, in namespaces of their own."""
    alike = (*other_namespace(), "--uts", "sh", "-c", 'hostname node && exec "$@"', "sh")
    with holder(directory, *alike) as one:
        words = [*alike, sys.executable, "-c", HOLD, str(directory)]
        two = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(PATIENT.stale_s + 0.5)  # more than the silence that is allowed
            assert latest(directory).number == 1
            assert one.communicate("\n")[0] == "committed\n"
            said = two.communicate("\n", timeout=240)[0]
            assert said.startswith("waiting for") and said.endswith("\nheld\ncommitted\n")
        finally:
            two.kill()


def silent(directory: Path, process: subprocess.Popen[str]) -> int:
    """The number of the namespace's first process, which is stopped from now on."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGSTOP)
    return int(children[0])


@pytest.mark.parametrize("mtime", [0.0, 400.0, 4e9])
def test_a_silent_holder_is_taken_over_and_cannot_commit_whatever_the_clocks_say(directory: Path, mtime: float) -> None:
    with holder(directory, *other_namespace()) as process:
        stopped = silent(directory, process)
        for path in directory.rglob("*"):
            os.utime(path, (mtime, mtime))  # the times that another host, or the file server, would write
        told: list[str] = []
        began = time.monotonic()
        with lease(directory, "it", wait_s=120, on_wait=told.append, pace=QUICK) as held:
            assert held.number == 2 and time.monotonic() - began >= QUICK.stale_s and len(told) == 1
            assert others(directory, held) == ([latest_but_one(directory)] if mtime == 4e9 else [])
            os.kill(stopped, signal.SIGCONT)
            out, err = process.communicate("\n")
        assert out == "" and "lost the lease of the stack demo to" in err and f"process {os.getpid()}" in err
    with lease(directory, "it", wait_s=0) as held:
        assert held.number == 3 and others(directory, held) == []


def latest_but_one(directory: Path) -> lease_module.Claim:
    return lease_module.claims(directory)[-2]


@pytest.mark.parametrize("ahead_s", [-400, 400])
def test_clocks_that_differ_do_not_matter(directory: Path, ahead_s: int) -> None:
    """A holder that is heard, and whose files have the times of a clock that differs by 400 s."""
    with holder(directory, *other_namespace()):
        stop = threading.Event()

        def rewrite() -> None:
            while not stop.wait(0.02):
                then = time.time() + ahead_s
                os.utime(directory / "1/beat", (then, then))

        thread = threading.Thread(target=rewrite)
        thread.start()
        try:
            waits(directory)
        finally:
            stop.set()
            thread.join()


def test_time_in_which_nothing_could_be_observed_is_not_silence(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    """The watcher itself was stopped, or its file system did not answer, for an hour."""
    with holder(directory, *other_namespace()) as process:
        silent(directory, process)
        clock = [0.0]
        monkeypatch.setattr(lease_module.time, "monotonic", lambda: clock[0])
        watch, claim = lease_module._Watch(0.1), latest(directory)
        seen = []
        for step in (0, 3600, 0.1, 3600):
            clock[0] += step
            seen.append(watch.silence_s(claim))
        assert seen == pytest.approx([0, 0.2, 0.3, 0.5])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"pid": "x"}', '{"user": "ann", "host": "n1", "pid": 0}', "\x00" * 99]
)
def test_a_damaged_claim_is_named_at_once_and_taken_over_after_the_same_silence(directory: Path, text: str) -> None:
    take(directory, "it", latest(directory))
    (directory / "1/owner.json").write_text(text)
    said = waits(directory, wait_s=0.2)
    assert f"held by a process of {this_process().user}: {directory}/1/owner.json is damaged" in said
    with lease(directory, "it", wait_s=120, pace=QUICK) as held:
        assert held.number == 2


def test_an_answer_that_was_lost_does_not_make_it_wait_for_itself(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def lossy(source: Path, target: Path) -> None:
        """NFS: the server did it, its answer was lost, and the client asked again."""
        rename(source, target)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))

    monkeypatch.setattr(os, "rename", lossy)
    with lease(directory, "it", wait_s=0) as held:
        held.check()


def test_who_slept_before_the_claim_does_not_get_a_number_of_the_past(directory: Path) -> None:
    for _ in range(3):
        with lease(directory, "it"):
            pass
    assert take(directory, "it", Claim(directory / "1")) is None, "2 was held and removed long ago"
    assert [path.name for path in directory.iterdir()] == ["3"]


def test_a_claim_is_not_replaced_and_an_error_is_not_a_defeat(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert claim(tmp_path / "one", tmp_path / "name")
    assert not claim(tmp_path / "two", tmp_path / "name")
    assert (tmp_path / "name/file").read_text() == "one" and (tmp_path / "two/file").exists()
    with pytest.raises(FileNotFoundError):
        claim(tmp_path / "two", tmp_path / "absent" / "name")


def test_who_waits_ends_with_an_error_that_says_for_whom(directory: Path) -> None:
    with (
        holder(directory),
        pytest.raises(StackyardError, match=r"timed out after 0\.2 s waiting for it: held by") as caught,
        lease(directory, "it", wait_s=0.2, pace=QUICK),
    ):
        pass
    assert caught.value.hint and f"remove {directory}/1/owner.json" in caught.value.hint


def test_a_lease_that_cannot_be_read_is_not_a_lost_one(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease(directory, "the stack demo") as held:
        with monkeypatch.context() as patched:
            patched.setattr(at, "read_regular", stale)
            with pytest.raises(StackyardError, match=r"cannot check the lease of the stack demo: .* Stale file handle"):
                held.check()
        held.check()


def test_giving_a_lease_back_does_not_hide_why_the_work_failed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyError), lease(directory, "the stack demo"):
        monkeypatch.setattr(within, "unlink", stale)
        raise KeyError


def test_who_never_wins_a_free_lease_waits_and_gives_up(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "take", lambda *_: None)
    with (
        pytest.raises(StackyardError, match=r"timed out after 0 s .* held by another process"),
        lease(directory, "the stack demo", wait_s=0),
    ):
        pass


def test_a_directory_is_left_to_a_builder_that_may_write_again(directory: Path) -> None:
    assert not is_occupied(directory)
    first = occupy(directory, "it", {"module": "demo/1-1"})
    assert first is not None and json.loads((directory / "1/owner.json").read_text())["module"] == "demo/1-1"
    assert not is_occupied(directory), "by this process"
    first.release()
    with holder(directory, *other_namespace()) as process:
        stopped = silent(directory, process)
        for path in directory.rglob("*"):
            os.utime(path, (0, 0))
        assert is_occupied(directory) and occupy(directory, "it") is None
        os.kill(stopped, signal.SIGKILL)
    assert is_occupied(directory), "killed, but nobody here can know"
    shutil.rmtree(directory)
    with holder(directory) as process:
        assert is_occupied(directory)
    assert not is_occupied(directory), "it was killed on this machine"


def test_a_file_system_without_hard_links(directory: Path) -> None:
    without = (programs.need("strace"), "-f", "-qq", "-o", "/dev/null", "-e", "inject=link,linkat:error=EPERM")
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([*without, "ln", __file__, directory.parent.parent], check=True, capture_output=True)
    with holder(directory, *without) as one:
        assert "held by" in waits(directory)
        assert one.communicate("\n")[0] == "committed\n"
    assert latest(directory).is_free


def held_by(directory: Path) -> Lease:
    held = take(directory, "it", latest(directory))
    assert held is not None
    return held


def test_a_heartbeat_never_makes_a_claim_again(directory: Path) -> None:
    held = held_by(directory)
    before = latest(directory).beat
    held.beat()
    assert latest(directory).beat != before
    shutil.rmtree(directory)
    held.beat()
    held.release()
    assert not directory.exists()
