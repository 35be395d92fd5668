"""Runs trials, one after the other, in one slot of an allocation: a rank of a launch, with its cores and its GPUs.

It asks nothing and decides nothing: the search tells it what to start and when to stop, and is told each line that may
have a report, and each end. A trial has a process group of its own. All that it has started ends with it: what leaves
its group becomes a child of this process (PR_SET_CHILD_SUBREAPER, prctl(2)), and is killed too. Without the search
everything ends here.

Any Python from 3.6 on, standard library alone; `stackyard.launch.api.workers` makes one file of it and its imports.
"""
# ruff: noqa: PLW1509, PTH103, PTH118, PTH123, SIM115, TID251, UP031

import contextlib
import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import time

from stackyard.launch.node.handshake import introduce
from stackyard.launch.node.messages import Connection
from stackyard.launch.node.processes import children, send_signal
from stackyard.launch.node.sockets import connect, hold_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONNECT_S, SECRET, SEARCH = 120.0, "STACKYARD_SEARCH_SECRET", "STACKYARD_SEARCH"
LONGEST, TAIL, BLOCK = 1 << 16, 2000, 1 << 18
DRAIN_S, TOGETHER_S = 1.0, 0.3
_IDENTITY = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_\w+|MASTER_(ADDR|PORT)|CROSS_(RANK|SIZE)|"
    r"SLURM_(?!JOB_?ID$|JOB_NAME$|CONF$|CPUS_PER_TASK$|CLUSTER_NAME$|SUBMIT_\w+$)\w*|PMI\w*|OMPI_(COMM|MCA_(orte|ess|prte))\w*|"
    r"PRTE\w*|PALS_\w+|MPI_LOCAL\w+|JSM_\w+|FLUX_(TASK|JOB)\w+|HYDI?_\w+|MV2_COMM\w+|PALS\w*|"
    r"STACKYARD_(TASKS?|LOCAL_TASKS?|NODES?|STEP|MASTER|WIRED?\w*|SEARCH\w*|ATTEMPT|RUN|LACKS))"
)
"""Variables by which a program would take itself for a rank of the step that this worker is in."""
_libc = ctypes.CDLL(None)


class Trial:
    """A running trial: its processes, its log, and the lines of its first rank."""

    def __init__(self, order: "dict[str, Any]") -> "None":
        self.id, self.order = order["id"], order
        self.started, self.code, self.stopping = time.monotonic(), None, 0.0  # type: float, int | None, float
        self.timed_out, self.rest, self.tail = False, b"", b""
        self.needle = re.compile(order["needle"].encode())
        os.makedirs(order["directory"], exist_ok=True)
        self.log = open(os.path.join(order["directory"], "log"), "ab", 0)
        port, self.held = hold_port()
        self.ranks = []  # type: list[subprocess.Popen[bytes]]
        try:
            for rank in range(order["ranks"]):
                self.ranks.append(self._start(rank, port))
        except BaseException:
            self.kill()
            self.close()
            raise
        self.pipe = self.ranks[0].stdout

    def _start(self, rank: "int", port: "int") -> "subprocess.Popen[bytes]":
        count, own = self.order["ranks"], {}
        for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", count), ("LOCAL_WORLD_SIZE", count),
                            ("GROUP_RANK", 0), ("NODE_RANK", 0)):  # fmt: skip
            own[name] = str(value)
        kept = {name: value for name, value in os.environ.items() if not _IDENTITY.fullmatch(name)}
        own.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONUNBUFFERED": "1"})
        search = [self.order["helper"], kept.get("PYTHONPATH", "")]
        own["PYTHONPATH"] = os.pathsep.join(path for path in search if path)
        group = self.ranks[0].pid if rank else 0

        def prepare() -> "None":
            os.setpgid(0, group)
            _libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG

        return subprocess.Popen(
            self.order["words"], env=dict(kept, **dict(own, **self.order["env"])), cwd=self.order["cwd"] or None,
            stdin=subprocess.DEVNULL, stdout=self.log if rank else subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=prepare,
        )  # fmt: skip

    def read(self) -> "list[str] | None":
        """What it has printed since: into the log; the lines that may have a report. None: its output has ended."""
        assert self.pipe is not None
        data = os.read(self.pipe.fileno(), BLOCK)
        if not data:
            return None
        with contextlib.suppress(OSError):  # a full disk: the reports are worth more than the log
            self.log.write(data)
        self.tail = (self.tail + data)[-TAIL:]
        lines = re.split(rb"[\r\n]+", self.rest + data)
        self.rest = lines.pop()[-LONGEST:]
        return [line.decode("utf-8", "replace") for line in lines if len(line) < LONGEST and self.needle.search(line)]

    def look(self) -> "bool":
        """Whether it has ended: one rank that fails ends the others, and the time limits end all."""
        codes = [rank.poll() for rank in self.ranks]
        failed = next((code for code in codes if code), None)
        if None not in codes:
            self.code = failed or 0
            return True
        limit, now = self.order["limit_s"], time.monotonic()
        if limit and now > self.started + limit and not self.stopping:
            self.timed_out = True
            self.stop()
        elif failed is not None and not self.stopping:
            self.stop()
        if self.stopping and now > self.stopping + self.order["grace_s"]:
            self.kill()
        return False

    def tell(self) -> "None":
        """Let it know that it may stop: the file that the helper looks for."""
        with contextlib.suppress(OSError):
            open(self.order["env"]["STACKYARD_STOP"], "a").close()

    def stop(self) -> "None":
        """SIGTERM now, SIGKILL after the grace."""
        self.stopping = self.stopping or time.monotonic()
        self._signal(signal.SIGTERM)

    def kill(self) -> "None":
        """SIGKILL to its group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: "int") -> "None":
        if self.ranks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.ranks[0].pid, number)

    def finish(self) -> "list[str]":
        """End whatever it has left, and read the rest of its output."""
        self.kill()
        end_children()
        assert self.pipe is not None
        os.set_blocking(self.pipe.fileno(), False)
        lines, until = [], time.monotonic() + DRAIN_S  # type: list[str], float
        with contextlib.suppress(BlockingIOError):
            while time.monotonic() < until:
                more = self.read()
                if more is None:
                    break
                lines += more
        if self.rest and self.needle.search(self.rest) and not self.stopping:
            lines.append(self.rest.decode("utf-8", "replace"))
        self.close()
        return lines

    def close(self) -> "None":
        """Close what is open."""
        self.log.close()
        for one in self.held:
            one.close()
        for rank in self.ranks:
            if rank.stdout:
                rank.stdout.close()


def end_children() -> "None":
    """Kill all descendants: those that have left the group of their trial are children of this process by now."""
    for _ in range(100):
        left = children(os.getpid())
        if not left:
            return
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


class Worker:
    """One slot."""

    def __init__(self, connection: "Connection") -> "None":
        self.connection, self.trial = connection, None  # type: Connection, Trial | None
        self.ends = self.said = False
        self.selector = selectors.DefaultSelector()
        self.selector.register(connection.socket, selectors.EVENT_READ, "search")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.leave)

    def leave(self, *_: "object") -> "None":
        """The step ends: so does the trial, as at the end of its time."""
        self.ends = True
        if self.trial:
            self.trial.stop()

    def _say_leaving(self) -> "None":
        """Say once that this slot is going: what ends here from now on has not ended by itself."""
        if self.ends and not self.said:
            self.said = True
            self.send({"leaving": True})

    def run(self) -> "int":
        """Until the search says so, or is gone."""
        while not (self.ends and self.trial is None):
            for key, _ in self.selector.select(0.05 if self.trial else 1.0):
                if key.data == "trial" and self.trial:
                    lines = self.trial.read()
                    if lines is None:
                        self.selector.unregister(key.fileobj)
                    self.send_lines(lines or [])
                elif key.data == "search" and not self.listen():
                    return self.abandon()
            if self.trial and self.trial.look():
                if self.trial.code and not self.trial.stopping:
                    time.sleep(TOGETHER_S)  # a scheduler that ends a step signals trial and worker at the same time
                self._say_leaving()
                self.ended(self.trial)
            self._say_leaving()
        self.connection.finish(5)
        return 0

    def send_lines(self, lines: "list[str]") -> "None":
        """Pass lines on."""
        assert self.trial is not None
        for line in lines:
            self.send({"line": line, "id": self.trial.id})

    def send(self, message: "dict[str, Any]") -> "None":
        """Send, and wait as long as the search needs to read it."""
        self.connection.socket.settimeout(60)
        self.connection.send(message)
        self.connection.socket.setblocking(False)

    def listen(self) -> "bool":
        """Do what the search says; False once it is gone."""
        messages = self.connection.receive()
        for message in messages or ():
            if "run" in message and self.trial is None and not self.ends:
                self.begin(message["run"])
            elif message.get("tell") and self.trial:
                self.trial.tell()
            elif message.get("stop") and self.trial:
                self.trial.stop()
            elif message.get("end"):
                self.leave()
        return messages is not None

    def begin(self, order: "dict[str, Any]") -> "None":
        """Start a trial; one that cannot be started has failed."""
        try:
            self.trial = Trial(order)
        except (OSError, subprocess.SubprocessError) as error:
            why = getattr(error, "strerror", None) or str(error)
            message = "%s: %s" % (order["words"][0], why)
            self.send({"ended": {"code": 127, "seconds": 0, "message": message}, "id": order["id"]})
            return
        assert self.trial.pipe is not None
        self.selector.register(self.trial.pipe, selectors.EVENT_READ, "trial")

    def ended(self, trial: "Trial") -> "None":
        """Tell the end of a trial, with the last that it printed if it failed."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(trial.pipe)  # type: ignore[arg-type]
        for line in trial.finish():
            self.send({"line": line, "id": trial.id})
        last = trial.tail.decode("utf-8", "replace").strip().rpartition("\n")[2] if trial.code else ""
        self.trial = None
        self.send({"ended": {"code": trial.code, "seconds": round(time.monotonic() - trial.started, 3), "last": last,
                             "timed_out": trial.timed_out}, "id": trial.id})  # fmt: skip

    def abandon(self) -> "int":
        """The search is gone: nothing that belongs to it goes on."""
        if self.trial:
            self.trial.kill()
            self.trial.finish()
        print("stackyard: lost the search: %s" % self.connection.why, file=sys.stderr)
        return 1


def main() -> "int":
    """Connect, and work."""
    _libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    targets = os.environ[SEARCH].split(",")
    found = connect(targets, time.monotonic() + CONNECT_S, lambda: True)
    if found is None:
        print("stackyard: cannot reach the search at %s" % ", ".join(targets), file=sys.stderr)
        return 1
    connection = Connection(found[0])
    found[0].setblocking(True)
    why = introduce(connection, os.environ[SECRET], 30)
    if why:
        print("stackyard: the search at %s is another one: %s" % (found[1], why), file=sys.stderr)
        return 1
    connection.socket.setblocking(False)
    worker = Worker(connection)
    worker.send({"hello": {"rank": int(os.environ.get("RANK", "0")), "host": os.uname().nodename,
                           "local": int(os.environ.get("LOCAL_RANK", "0"))}})  # fmt: skip
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
