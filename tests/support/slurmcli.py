"""The command line on a test cluster: a working directory, programs of ranks, a process to interrupt, what is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from support.cli import STACKYARD, Done, stackyard
from support.slurm import SlurmCluster
from support.watched import mentions

SITE = """\
name: test
nodes:
  gpu:
    cores: 32
    sockets: 2
    gpu: {count: 4, vendor: nvidia}
    local_disk: %s
scheduler: {kind: slurm, exclusive: false}
"""
SHAPE = ("-N", "2", "-r", "1", "-c", "1", "-g", "0")

EXIT = """\
import os, sys, time, signal
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.uname().nodename, flush=True)
if os.environ["RANK"] == "1":
    code = int(sys.argv[1])
    sys.exit(code) if code >= 0 else os.kill(os.getpid(), -code)
if sys.argv[2:] == ["block"]:
    time.sleep(300)
"""
BLOCK = """\
import os, sys, time
print("up", os.environ["RANK"], os.getpid(), flush=True)
time.sleep(300)
"""
CHECKPOINT = """\
import os, signal, sys, time
from pathlib import Path
state = Path(f"state-{os.environ['RANK']}")
step = first = int(state.read_text()) if state.exists() else 0
print("begins at", first, flush=True)
def save(number, frame):
    state.write_text(str(step))
    print("saved", step, flush=True)
    sys.exit(75)
signal.signal(signal.SIGUSR1, save)
while not first or step < first + 5:
    step += 1
    time.sleep(0.1)
print("went on from", first, flush=True)
"""


@dataclass
class Work:
    """A directory that somebody works in, on a cluster."""

    cluster: SlurmCluster
    directory: Path
    mark: str

    def run(self, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
        """``stackyard WORDS...`` there."""
        return stackyard(*words, expect=expect, timeout_s=300, cwd=self.directory, **self.cluster.environ(**variables))

    def allocated(self, *words: str, expect: int | None = 0, salloc: tuple[str, ...] = ("-N2",)) -> Done:
        """``stackyard WORDS...`` in an allocation of its own."""
        argv = ["salloc", "-Q", "--partition=debug", *salloc, str(STACKYARD), *words]
        done = subprocess.run(argv, cwd=self.directory, env=self.cluster.environ(), capture_output=True, text=True,
                              timeout=300, check=False)  # fmt: skip
        assert expect is None or done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, salloc: tuple[str, ...] | None = None) -> subprocess.Popen[str]:
        """The same in the background. In an allocation it is found by `watcher`."""
        before = [] if salloc is None else ["salloc", "-Q", "--partition=debug", *salloc]
        return subprocess.Popen([*before, str(STACKYARD), *words], cwd=self.directory, env=self.cluster.environ(),
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def watcher(self) -> int:
        """The process that watches the last run, where that is on this machine."""
        return int(self.status()["pid"])

    @property
    def last(self) -> Path:
        """The directory of the last run."""
        return sorted((self.directory / "runs").iterdir())[-1]

    def status(self, run: Path | None = None) -> dict[str, Any]:
        """What status.json of a run says; of the last one where none is named."""
        found: dict[str, Any] = json.loads(((run or self.last) / "status.json").read_text())
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of the last run."""
        lines = map(json.loads, (self.last / "events.jsonl").read_text().splitlines())
        return [line for line in lines if line["event"] == kind]

    def until(self, good: Callable[[], bool], timeout_s: float = 120) -> None:
        """Wait for something that may not even be there yet."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
                if good():
                    return
            time.sleep(0.05)
        raise AssertionError(f"waited {timeout_s} s in vain; {self.said()}")

    def up(self, ranks: int = 2, text: str = "up") -> None:
        """Wait until so many ranks have printed something."""
        self.until(lambda: sum(text in log.read_text() for log in self.last.glob("logs/rank-*.log")) >= ranks)
        assert mentions(self.mark)  # or `nothing_left` would prove nothing

    def said(self) -> str:
        """What the last run says of itself."""
        with contextlib.suppress(OSError, IndexError):
            return (self.last / "status.json").read_text() + (self.last / "events.jsonl").read_text()
        return "there is no run"

    def nothing_left(self, timeout_s: float = 60) -> None:
        """Hold that no process of the programs of this directory is left on any node."""
        end = time.monotonic() + timeout_s
        while (left := mentions(self.mark)) and time.monotonic() < end:
            time.sleep(0.1)
        assert not left, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]


@contextlib.contextmanager
def working(cluster: SlurmCluster, directory: Path, **programs: str) -> Iterator[Work]:
    """A directory with a site and programs; what runs there afterwards is ended."""
    mark = f"mark-{uuid4().hex[:12]}"
    work = Work(cluster, directory / mark, mark)
    (work.directory / "disk").mkdir(parents=True)
    (directory / "site.yaml").write_text(SITE % (work.directory / "disk"))
    for name, text in {"exit": EXIT, "block": BLOCK, "checkpoint": CHECKPOINT, **programs}.items():
        (work.directory / f"{name}.py").write_text(text)
    before = os.environ.get("STACKYARD_SITE")
    os.environ["STACKYARD_SITE"] = str(directory / "site.yaml")
    try:
        yield work
    finally:
        os.environ.pop("STACKYARD_SITE", None) if before is None else os.environ.update(STACKYARD_SITE=before)
        for pid in mentions(mark):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
