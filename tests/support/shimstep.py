"""rank.sh in a directory of its own, started as a launcher would start it, with a small stand-in for the agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stackyard.core.change import EnvironmentChange
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import LaunchLine, Plan, RankProgram, Wrapper
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.shim import rank_sh
from support.processes import command_line

STANDIN = Path(__file__).with_name("standinagent.py")
SHOW = (sys.executable, "-c", "import json,os,sys;print(json.dumps([sys.argv[1:],dict(os.environ),os.getcwd()]))")


def layout(tasks: int, nodes: int = 1) -> Layout:
    slots = tuple(Slot(n, (n,)) for n in range(tasks))
    return Layout(Node("test", (NodeDomain(0, tuple(range(tasks))),), tasks), (Block(0, nodes, slots),), threads=3)


@contextmanager
def standing_in(root: Path) -> Iterator[Step]:
    """A step whose agent is a stand-in; its shims and agents are ended with it."""
    made = Step(root)
    try:
        yield made
    finally:
        for process in made.started:
            if process.poll() is None:
                process.kill()
        for name in os.listdir("/proc"):
            if name.isdigit() and f"{root}/agent.py" in command_line(int(name)):
                with suppress(ProcessLookupError):
                    os.kill(int(name), signal.SIGKILL)


class Step:
    """A step's directory with its shim, and shims started as a launcher would start them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = StepPaths(root)
        self.paths.logs.mkdir(parents=True)
        self.started: list[subprocess.Popen[str]] = []

    def write(
        self,
        argv: tuple[str, ...] = ("true",),
        *,
        tasks: int = 1,
        nodes: int = 1,
        family: str = "stackyard",
        answer: dict[str, object] | None = None,
        program: dict[str, object] | None = None,
        change: EnvironmentChange | None = None,
        variables: dict[str, str] | None = None,
        private: dict[str, str] | None = None,
        wrappers: tuple[Wrapper, ...] = (),
        cwd: str = "",
        **file: object,
    ) -> Step:
        made = layout(tasks, nodes)
        plan = Plan(
            made,
            RankProgram(made, argv, **(program or {})),  # type: ignore[arg-type]
            LaunchLine(("launcher",), family),  # type: ignore[arg-type]
            wrappers=wrappers, change=change or EnvironmentChange(), variables=variables or {},
            private=private or {}, cwd=cwd,
        )  # fmt: skip
        values: dict[str, object] = {"start_s": 5, **file}
        step = StepFile(
            "2026-11-21-001", "secret", f"{os.getpid()}{time.monotonic_ns()}"[::-1], (), family, nodes, tasks, **values  # type: ignore[arg-type]
        )  # fmt: skip
        answer = answer or {"go": {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4242", "STACKYARD_PORT_1": "4243"}}
        (self.root / "answer.json").write_text(json.dumps({"tasks": tasks, **answer}))
        self.paths.shim.write_text(rank_sh.shim_text(self.paths, step, plan, python=sys.executable))
        self.paths.shim.chmod(0o755)
        self.paths.agent.write_text(STANDIN.read_text())
        self.paths.private.write_text(rank_sh.private_text(step, plan))
        self.file, self.plan = step, plan
        return self

    def start(self, number: int, on_node: int | None = None, **environ: str) -> subprocess.Popen[str]:
        own = {
            "STACKYARD_TASK": str(number), "STACKYARD_TASKS": str(self.file.tasks),
            "STACKYARD_LOCAL_TASK": str(number if on_node is None else on_node), "STACKYARD_TMP": str(self.root),
        }  # fmt: skip
        base = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "STACKYARD"))}
        process = subprocess.Popen(
            [self.paths.shim], env={**base, **own, **environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, **environ: str) -> subprocess.Popen[str]:
        """One task to its end."""
        process = self.start(0, **environ)
        process.wait(30)
        return process

    def shown(self, task: int = 0) -> tuple[list[str], dict[str, str], str]:
        words, environ, cwd = json.loads(self.paths.rank_log(task).read_text())
        return words, environ, cwd

    def lines(self) -> list[str]:
        return [line for path in sorted(self.root.glob("lines-*")) for line in path.read_text().splitlines()]


def error_of(process: subprocess.Popen[str]) -> str:
    process.wait(30)
    assert process.stderr is not None
    return process.stderr.read()


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""
