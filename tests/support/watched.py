"""Plans written by hand and a listener that remembers, for tests of what watches a launch."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.model import LaunchLine, Plan, RankProgram
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.step import WatchOptions, run_step

LOCAL = """
import os, subprocess, sys
nodes, per_node, shim = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
started = []
for task in range(nodes * per_node):
    who = {"TASK": task, "TASKS": nodes * per_node, "LOCAL_TASK": task % per_node, "LOCAL_TASKS": per_node,
           "NODE": task // per_node}
    environ = dict(os.environ, **{"STACKYARD_" + name: str(value) for name, value in who.items()})
    if nodes > 1:
        environ["STACKYARD_TMP"] = os.environ["STACKYARD_TMP"] + "/" + str(task // per_node)
        os.makedirs(environ["STACKYARD_TMP"], exist_ok=True)
    started.append(subprocess.Popen([shim], env=environ))
sys.exit(max(process.wait() for process in started))
"""
"""A launcher for one machine that starts tasks as the `stackyard` family expects. With several "nodes", each has a
directory of its own."""


def layout(nodes: int, per_node: int, cores: int = 1) -> Layout:
    """Nodes of one socket, `cores` cores for each task."""
    domain = NodeDomain(0, tuple(range(per_node * cores)))
    slots = tuple(Slot(i, tuple(range(i * cores, (i + 1) * cores))) for i in range(per_node))
    node = Node("test", (domain,), per_node * cores)
    return Layout(node, (Block(0, nodes, slots),))


def local_line(nodes: int, per_node: int) -> LaunchLine:
    """The launcher above as a line."""
    return LaunchLine((sys.executable, "-c", LOCAL, str(nodes), str(per_node)), "stackyard")


def srun_line(nodes: int, per_node: int, *more: str) -> LaunchLine:
    """A real srun."""
    words = ("srun", f"--nodes={nodes}", f"--ntasks={nodes * per_node}", f"--ntasks-per-node={per_node}",
             "--mpi=none", "--kill-on-bad-exit=0", *more)  # fmt: skip
    return LaunchLine(words, "slurm")


def make_plan(line: LaunchLine, nodes: int, per_node: int, *argv: str, cwd: str = "/", **program: Any) -> Plan:
    """A plan of `argv` as every task."""
    made = layout(nodes, per_node)
    return Plan(made, RankProgram(made, argv, **program), line, cwd=cwd)


@dataclass
class Heard:
    """A listener that keeps everything; `at` are seconds since it was made."""

    began: float = field(default_factory=time.monotonic)
    said: list[tuple[float, str, Any]] = field(default_factory=list)
    text: dict[int, str] = field(default_factory=dict)

    def _keep(self, kind: str, value: Any) -> None:
        self.said.append((time.monotonic() - self.began, kind, value))

    def phase(self, name: str, detail: str = "") -> None:
        self._keep("phase", name)

    def nodes(self, there: int, expected: int) -> None:
        self._keep("nodes", (there, expected))

    def output(self, task: int, text: str) -> None:
        self.text[task] = self.text.get(task, "") + text

    def event(self, kind: str, data: dict[str, Any]) -> None:
        self._keep(kind, data)

    def notice(self, text: str) -> None:
        self._keep("notice", text)

    def stack(self, file: Path, text: str) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def flush(self) -> None:
        pass

    def all(self, kind: str) -> list[Any]:
        return [value for _, what, value in self.said if what == kind]


class Running:
    """A step in a thread of this process, so that a test can do harm meanwhile."""

    def __init__(self, root: Path, plan: Plan, *, heard: Heard | None = None, **options: Any) -> None:
        self.step, self.heard = StepPaths(root), heard or Heard()
        self.result: StepResult | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(plan, WatchOptions(**options)))
        self._thread.start()

    def _run(self, plan: Plan, options: WatchOptions) -> None:
        try:
            self.result = run_step(self.step, plan, self.heard, run="test-001", options=options)
        except BaseException as error:
            self.error = error

    def until(self, text: str, tasks: int, timeout_s: float = 120) -> None:
        """Wait until the logs of so many ranks hold a text."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self._thread.is_alive():
            logs = self.step.logs.glob("rank-*.log") if self.step.logs.exists() else ()
            if sum(text in log.read_text() for log in logs) >= tasks:
                return
            time.sleep(0.02)
        raise AssertionError(f"{tasks} ranks did not print {text!r}: {self.error or self.result}; {self.heard.said}")

    def end(self, timeout_s: float = 120) -> StepResult:
        """Its result."""
        self._thread.join(timeout_s)
        if self.error:
            raise self.error
        assert self.result is not None, f"still running after {timeout_s} s: {self.heard.said}"
        return self.result


def mentions(text: str) -> list[int]:
    """Processes whose command line or environment holds a text: what a launch left behind."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            data = b"".join(Path(f"/proc/{name}/{file}").read_bytes() for file in ("cmdline", "environ"))
            state = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in data and state not in "ZX":
            found.append(int(name))
    return found


def nothing_left(text: str, timeout_s: float = 30) -> list[int]:
    """What `mentions` still finds after a moment."""
    end = time.monotonic() + timeout_s
    while mentions(text) and time.monotonic() < end:
        time.sleep(0.05)
    return mentions(text)
