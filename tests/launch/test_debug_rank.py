"""``--debug-rank``: a terminal for one rank, driven like a person does, through a real pseudo-terminal; ``--stdin``."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.launch.plan.terminals import PROGRAM
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.terminal import for_rank
from support.cli import STACKYARD, stackyard
from support.slurmcli import SHAPE, Work

TRAIN = """\
import os, sys
rank = os.environ["RANK"]
value = 40
if rank == "1":
    breakpoint()
columns = os.get_terminal_size(0).columns if rank == "1" else 0
print("rank", rank, "has", value, "and", sys.stdin.isatty(), columns, flush=True)
"""


class Person:
    """Somebody at a terminal: what is on the screen, and what is typed."""

    def __init__(self, argv: list[str], cwd: Path, environ: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(self.master, (30, 77))
        self.before = termios.tcgetattr(slave)
        self.slave, self.screen = slave, ""
        self.started = subprocess.Popen(
            ["setsid", "--ctty", *argv], cwd=cwd, env={**os.environ, **environ}, stdin=slave, stdout=slave, stderr=slave
        )

    def sees(self, pattern: str, within_s: float = 120) -> None:
        until = time.monotonic() + within_s
        while not re.search(pattern, self.screen):
            assert time.monotonic() < until, f"{pattern} not in {self.screen}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.screen += os.read(self.master, 65536).decode()

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def ends(self, code: int) -> None:
        """It ends with this status, and leaves the terminal as it was."""
        until = time.monotonic() + 120
        while self.started.poll() is None and time.monotonic() < until:
            if select.select([self.master], [], [], 0.1)[0]:
                self.screen += os.read(self.master, 65536).decode()
        assert self.started.poll() == code, self.screen
        assert termios.tcgetattr(self.slave) == self.before


@pytest.fixture
def sit(tmp_path: Path) -> Iterator[list[Person]]:
    there: list[Person] = []
    yield there
    for one in there:
        if one.started.poll() is None:
            os.killpg(one.started.pid, signal.SIGTERM)
            one.started.wait(120)
        os.close(one.master)
        os.close(one.slave)


def debugging(person: Person) -> None:
    """Through pdb: see a value, change it, go on."""
    person.sees(r"rank 1 has this terminal")
    person.sees(r"\(Pdb\) $")
    person.types("p value + 2\r")
    person.sees(r"\n42\r\n\(Pdb\) $")
    person.types("value = 7\r")
    person.sees(r"value = 7\r\n\(Pdb\) $")
    person.types("c\r")


def test_pdb_in_one_rank_while_the_others_run(tmp_path: Path, sit: list[Person]) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    person = Person([str(STACKYARD), "launch", "-r", "2", "--debug-rank", "1", "train.py"], tmp_path, {})
    sit.append(person)
    debugging(person)
    person.ends(0)
    assert "rank 0 has 40 and False 0" in person.screen
    assert person.screen.count("rank 1 has 7 and True 77") == 1
    (log,) = tmp_path.glob("runs/*/logs/rank-00001.log")
    assert "(Pdb) " in log.read_text()
    assert log.read_text().endswith("rank 1 has 7 and True 77\n")
    assert not list(tmp_path.glob("runs/*/terminal.json"))


def test_interrupt_goes_to_the_rank_and_quit_ends_the_job(tmp_path: Path, sit: list[Person]) -> None:
    (tmp_path / "train.py").write_text(
        "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(100)\n"
        "except KeyboardInterrupt:\n    print('caught', flush=True)\ntime.sleep(100)\n"
    )
    person = Person([str(STACKYARD), "launch", "-r", "1", "--debug-rank", "0", "train.py"], tmp_path, {})
    sit.append(person)
    person.sees("ready")
    person.types("\x03")
    person.sees("caught")
    assert person.started.poll() is None
    person.types("\x1c")
    person.sees("cancelled: all ranks terminated")
    person.ends(130)


def test_the_window_may_change_its_size(tmp_path: Path, sit: list[Person]) -> None:
    (tmp_path / "train.py").write_text(
        "import os, signal, time\nseen = []\n"
        "signal.signal(signal.SIGWINCH, lambda *_: seen.append(os.get_terminal_size(0)))\n"
        "print('ready', *os.get_terminal_size(0), flush=True)\n"
        "while not seen:\n    time.sleep(0.02)\n"
        "print('now', *seen[-1], flush=True)\nprint('typed', input(), flush=True)\n"
    )
    person = Person([str(STACKYARD), "launch", "-r", "1", "--debug-rank", "0", "train.py"], tmp_path, {})
    sit.append(person)
    person.sees("ready 77 30")
    termios.tcsetwinsize(person.master, (41, 99))
    person.sees("now 99 41")
    person.types("grüße\r")
    person.sees("typed grüße")
    person.ends(0)


def test_the_exit_status_is_the_programs(tmp_path: Path, sit: list[Person]) -> None:
    (tmp_path / "train.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    person = Person([str(STACKYARD), "launch", "-r", "1", "--debug-rank", "0", "train.py"], tmp_path, {})
    sit.append(person)
    person.sees("was killed by signal 11")
    person.ends(139)


def test_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = stackyard("launch", "-r", "1", "--debug-rank", "0", "train.py", cwd=tmp_path, expect=2, timeout_s=240)
    assert "standard input and output are not a terminal" in done.err
    assert "--stdin 0" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--debug-rank", "2"), "valid ranks are 0 to 1"),
        (("--stdin", "2"), "valid ranks are 0 to 1"),
        (("--stdin", "0", "--debug-rank", "0"), "contradict each other"),
        (("--debug-rank", "0", "--torchrun"), "needs a task for each rank"),
    ],
)
def test_what_cannot_be(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "train.py").touch()
    done = stackyard("launch", "-r", "2", *words, "--dry-run", "train.py", cwd=tmp_path, expect=2, timeout_s=240)
    assert said in " ".join(done.err.split())


ROLES = """\
format: 1
oversubscribe: true
launcher: local
roles:
  first: {program: [other.py], ranks_per_node: 1, cores_per_rank: 1, gpus_per_rank: 0}
  second: {program: [train.py], beside: first, ranks_per_node: 2, cores_per_rank: 1}
"""


def test_a_rank_of_a_role(tmp_path: Path, sit: list[Person]) -> None:
    """Its number is the one among all roles."""
    (tmp_path / "job.yaml").write_text(ROLES)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "other.py").write_text("import sys\nprint('other', sys.stdin.isatty(), len(sys.stdin.read()))\n")
    person = Person([str(STACKYARD), "launch", "--job", "job.yaml", "--debug-rank", "2"], tmp_path, {})
    sit.append(person)
    person.sees("rank 2 has this terminal")
    person.sees(r"\(Pdb\) $")
    person.types("c\r")
    person.ends(0)
    assert person.screen.count("rank 1 has 40 and True 77") == 1
    assert "rank 0 has 40 and False 0" in person.screen
    argv = [str(STACKYARD), "launch", "--job", "job.yaml", "--stdin", "0", "--env", "PYTHONBREAKPOINT=0"]
    given = subprocess.run(argv, cwd=tmp_path, input=b"seven..", capture_output=True, timeout=240, check=False)
    assert b"other False 7" in given.stdout, given.stderr
    done = stackyard(*argv[1:4], "--stdin", "3", "--dry-run", cwd=tmp_path, expect=2, timeout_s=240)
    assert "--stdin 3 is out of range: valid ranks are 0 to 2" in done.err


READS = """\
import hashlib, os, sys
data = sys.stdin.buffer.read()
print(os.environ["RANK"], len(data), hashlib.md5(data).hexdigest(), flush=True)
sys.exit(int(os.environ["RANK"] == "1" and not data))
"""


def piped(argv: list[str], directory: Path, environ: dict[str, str]) -> None:
    """A megabyte for rank 1; nothing for the others."""
    import hashlib

    (directory / "reads.py").write_text(READS)
    data = os.urandom(1 << 20)
    done = subprocess.run(
        argv, input=data, cwd=directory, env={**os.environ, **environ}, capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    logs = sorted(directory.glob("runs/*/logs/rank-*.log"))
    assert logs[1].read_text() == f"1 {len(data)} {hashlib.md5(data).hexdigest()}\n"
    assert logs[0].read_text().startswith("0 0 ")


def test_standard_input_for_one_rank(tmp_path: Path) -> None:
    piped([str(STACKYARD), "launch", "-r", "2", "--stdin", "1", "reads.py"], tmp_path, {})


def test_a_program_that_does_not_read_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('done')\n")
    argv = [str(STACKYARD), "launch", "-r", "1", "--stdin", "0", "train.py"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as started:
        assert started.stdout is not None
        assert started.stdout.read() == b"done\n"
        assert started.wait(120) == 0


def test_strangers_do_not_stop_it(tmp_path: Path) -> None:
    step = StepPaths(tmp_path)
    with for_rank(step, 0, "pipe", interface="", alone=True, limit_s=120):
        told = json.loads(step.terminal.read_text())
        assert step.terminal.stat().st_mode & 0o777 == 0o600
        host, port = told["hubs"][0].rsplit(":", 1)
        idle = [socket.create_connection((host, int(port))) for _ in range(5)]
        argv = [sys.executable, "-I", "-S", str(PROGRAM), str(step.terminal), "pipe", "--", "true"]
        assert subprocess.run(argv, timeout=240, check=False).returncode == 0
        false = tmp_path / "false.json"
        false.write_text(json.dumps({**told, "secret": "0" * 64, "limit_s": 1}))
        done = subprocess.run(
            [*argv[:4], str(false), *argv[5:]], timeout=240, check=False, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert "cannot connect to the terminal at" in done.stderr
        for one in idle:
            one.close()
    assert not step.terminal.exists()


@pytest.mark.real
def test_a_rank_on_another_node(work: Work, sit: list[Person]) -> None:
    (work.directory / "train.py").write_text(TRAIN)
    argv = [
        "salloc",
        "-Q",
        "--partition=debug",
        "-N2",
        str(STACKYARD),
        "launch",
        *SHAPE,
        "--debug-rank",
        "1",
        "train.py",
    ]
    person = Person(argv, work.directory, work.cluster.environ())
    sit.append(person)
    debugging(person)
    person.ends(0)
    assert "rank 1 has 7 and True 77" in person.screen
    (work.directory / "other").mkdir()
    piped(["salloc", "-Q", "--partition=debug", "-N2", str(STACKYARD), "launch", *SHAPE, "--stdin", "1", "reads.py"],
          work.directory / "other", work.cluster.environ())  # fmt: skip
    work.nothing_left()
