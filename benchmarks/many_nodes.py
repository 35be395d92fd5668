"""The hub of a launch with simulated agents: 10,000 nodes beside 100, and what they cost its process and its files.

The agents are one process with a connection for each node, which says what 8 ranks of a normal run say. Both processes
share this machine. CPU seconds and calls are those of the hub's process alone, the calls counted by strace in a run of
their own.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.tools import scratch

FEW, MANY, RANKS = 100, 10_000, 8
GO_S = 5.0
RUN = "run-of-the-hub"
AGENTS_READ = f'/{RUN}/agent.py", O_RDONLY'
AGENTS = r"""
import json, os, resource, selectors, socket, sys, time
from stackyard.launch.node.handshake import Guest
from stackyard.launch.run.agentfile import plan_of
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
plan = plan_of(open(sys.argv[1] + "/agent.py").read())
nodes, ranks = plan["nodes"], plan["tasks_per_node"]
address, _, port = plan["hubs"][0].rpartition(":")
waiting, links, began = selectors.DefaultSelector(), [], time.monotonic()
def say(link, *messages):
    link.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
def hello(node):
    facts = {"interfaces": {"hsn0": ["10.%d.%d.1" % (node // 250, node % 250)]}, "cpu": "some CPU", "threads": 128,
             "memory_gib": 512.0, "kernel": "6.4.0", "libc": "glibc 2.38", "gpus": [{"uuid": str(i)} for i in range(8)],
             "time": time.time()}
    yield {"hello": {"host": "n%05d" % node, "addresses": ["10.%d.%d.1" % (node // 250, node % 250)], "node": node,
                     "pid": 1, "facts": facts}}
    if node == 0:
        yield {"ports": [1234]}
    for local in range(ranks):
        yield {"start": {"task": node * ranks + local, "local": local, "pid": 1, "cpus": "0-7", "gpus": "0"}}
class Link:
    def __init__(self, node):
        self.node, self.guest, self.text, self.went = node, Guest(plan["secret"]), b"", False
        self.socket = socket.create_connection((address, int(port)))
        waiting.register(self.socket, selectors.EVENT_READ, self)
    def read(self):
        self.text += self.socket.recv(65536)
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            message = json.loads(line)
            answer = self.guest.answer(message)
            if answer:
                say(self.socket, answer)
            elif self.guest.accepts(message):
                say(self.socket, *hello(self.node))
            elif "go" in message:
                self.went = True
def turn(limit=0):
    for key, _ in waiting.select(limit):
        key.data.read()
for node in range(nodes):
    links.append(Link(node))
    if node % 50 == 0:
        turn()
while not all(link.went for link in links):
    turn(0.5)
went = time.monotonic() - began
for second in range(3):
    for link in links:
        say(link.socket, {"beat": {}})
    time.sleep(1)
for link in links:
    say(link.socket, *({"exit": {"task": link.node * ranks + local, "code": 0, "tail": []}} for local in range(ranks)),
        {"bye": {}})
print(json.dumps({"go_s": went}))
"""
HUB = r"""
import json, resource, sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/tests"]
from stackyard.launch.jobs.recorder import Recorder
from stackyard.launch.plan.model import LaunchLine
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunStatus
from stackyard.launch.run.step import WatchOptions, run_step
from support.watched import make_plan
paths, nodes, ranks = RunPaths(Path(sys.argv[1])), int(sys.argv[3]), int(sys.argv[4])
line = LaunchLine((sys.executable, "-c", sys.argv[5], str(paths.root)), "stackyard")
recorder = Recorder(paths, RunStatus(state="running"))
plan, options = make_plan(line, nodes, ranks, "true"), WatchOptions(start_s=300)
result = run_step(paths.main, plan, recorder, run="x", options=options)
recorder.close()
used = resource.getrusage(resource.RUSAGE_SELF)
assert result.state == "done", result.first
own = {"cpu_s": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024}
print(json.dumps({**own, **json.loads(result.launcher_output.splitlines()[-1])}))
"""


def measure(pairs: int = 1) -> list[Figure]:
    """Seconds until all of 10,000 nodes have go, CPU of the hub, and the hub's file operations at 10,000 and 100."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    many = min(MANY, hard - 300)
    runs = [run(many) for _ in range(pairs)]
    calls = [(file_calls(many), file_calls(FEW)) for _ in range(pairs)]
    last, (at_many, at_few) = runs[-1], calls[-1]
    shown = f"{last['go_s']:.1f} s; hub: {last['cpu_s']:.1f} s of CPU, {last['mb']:.0f} MB"
    where = f"{many:,} simulated agents x {RANKS} ranks"
    return [
        Figure(f"{where}: seconds until all have go", "-", tuple(one["go_s"] for one in runs), GO_S, absolute=shown),
        Figure(f"{where}: CPU seconds of the hub in all", "-", tuple(one["cpu_s"] for one in runs), None,
               absolute=shown),
        Figure(f"file operations of the hub at {many:,} nodes", f"at {FEW} nodes",
               tuple(a / b for a, b in calls), 2.0, absolute=f"{at_many} : {at_few} calls"),
    ]  # fmt: skip


def run(nodes: int, *before: str) -> dict[str, float]:
    """One launch; what its hub and its agents say of it."""
    with scratch("nodes") as directory:
        words = [
            sys.executable,
            "-c",
            HUB,
            str(directory / RUN),
            str(Path(__file__).parents[1]),
            str(nodes),
            str(RANKS),
        ]
        (directory / RUN).mkdir()
        done = subprocess.run([*before, *words, AGENTS], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def file_calls(nodes: int) -> int:
    """The hub's calls that open, rename or write files below its run directory, by strace without the agents."""
    with scratch("trace") as directory:
        trace = directory / "trace"
        run(nodes, "strace", "-ff", "-qq", "-y", "-e", "trace=openat,write,rename,fsync,chmod", "-o", str(trace))
        found = 0
        for file in directory.glob("trace.*"):
            text = file.read_text(errors="replace")
            if AGENTS_READ not in text:  # else it is the simulated agents' process, not a thread of the hub
                found += sum(bool(re.search(rf"/{RUN}[\"/]", line)) for line in text.splitlines())
        return found
