"""A real Slurm on one machine: every node a slurmd with a network, a host name and mounts of its own.

    cluster = SlurmCluster.shared()              # one for all test processes of a checkout; the last one stops it
    cluster.run("srun", "-N2", "hostname")
    with SlurmCluster.own(nodes=3) as cluster:   # for a test that takes nodes down
        cluster.lose_node("n2", "cut")

Nodes are called n1, n2 ... and share the machine's file system, /tmp included. As far as Slurm knows each has 32 CPUs
and four GPUs; nothing binds a task to them. A partition's jobs run side by side (``debug``, ``short`` with one minute);
those of ``urgent`` preempt both, which sends SIGTERM, or the signal of ``--signal``, and requeues after a few seconds.

Clusters never meet: one claims a number, and names, addresses and ports follow from it. A claim is a `flock` on a file,
which the kernel releases when its holder dies, however that happens; whoever comes next removes what was left running.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.run.command import CommandError, Result, run
from support import programs
from support.processes import command_line, kill_all, kill_daemon, pids
from support.slurmconf import GPUS, address, configuration, port

ROOT = Path("/run/stackyard-slurm")
PROGRAMS = ("slurmctld", "slurmd", "srun", "munged", "ip", "nsenter", "unshare")
NUMBERS = range(1, 200)
START_S = 30
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Loss = Literal["cut", "kill", "power"]
"""How a node is lost: its network alone; all its processes; first the network and then the processes, silently."""


def unavailable() -> str | None:
    """Why no cluster can be started here, or None."""
    missing = programs.missing(*PROGRAMS)
    return missing or (None if os.geteuid() == 0 else "needs root, to give every node a network of its own")


@dataclass
class SlurmCluster:
    """A running cluster; made by `shared` or `own`, ended by `stop` or by leaving the ``with``.

    Args:
        number: what its names, addresses (10.197.<number>.0/24) and ports follow from.
        nodes: how many.
        claim: the open lock file that says the number is in use.
    """

    number: int
    nodes: int
    claim: int
    lost: set[str] = field(default_factory=set)
    changes: Callable[[dict[str, str]], None] = lambda _: None
    """Changes the files of the configuration, by name, before they are written."""

    @classmethod
    def shared(cls, nodes: int = 4) -> SlurmCluster:
        """Join the cluster that all test processes of this checkout use, or start it.

        Raises:
            MissingError: none can be started here.
        """
        _check()
        pointer = ROOT / f"shared-{hashlib.sha256(str(Path(__file__).resolve()).encode()).hexdigest()[:12]}"
        with _locked():
            if pointer.exists() and (joined := cls._join(int(pointer.read_text()), nodes)):
                return joined
            cluster = cls._claimed(nodes)
            try:
                cluster._start()
            except BaseException:
                cluster._give_up()
                raise
            pointer.write_text(str(cluster.number))
            fcntl.flock(cluster.claim, fcntl.LOCK_SH)
            return cluster

    @classmethod
    @contextlib.contextmanager
    def own(cls, nodes: int = 3, changes: Callable[[dict[str, str]], None] = lambda _: None) -> Iterator[SlurmCluster]:
        """A cluster for one test alone, stopped at the end.

        Args:
            changes: changes the files of its configuration, by name.

        Raises:
            MissingError: none can be started here.
        """
        _check()
        with _locked():
            cluster = cls._claimed(nodes)
        try:
            cluster.changes = changes
            cluster._start()
            yield cluster
        finally:
            cluster.stop()

    @classmethod
    def _join(cls, number: int, nodes: int) -> SlurmCluster | None:
        claim = os.open(_lock_file(number), os.O_RDWR | os.O_CREAT)
        if not _try_lock(claim, fcntl.LOCK_EX) and _try_lock(claim, fcntl.LOCK_SH):
            return cls(number, nodes, claim)
        os.close(claim)  # nobody uses it: left by processes that were killed
        return None

    @classmethod
    def _claimed(cls, nodes: int) -> SlurmCluster:
        for left in sorted(ROOT.glob("*.lock")):
            if left.stem.isdigit() and (ROOT / left.stem).exists():
                _remove_if_left(int(left.stem))
        for number in NUMBERS:
            claim = os.open(_lock_file(number), os.O_RDWR | os.O_CREAT)
            if _try_lock(claim, fcntl.LOCK_EX) and _is_free(number):
                return cls(number, nodes, claim)
            os.close(claim)
        raise MissingError("all addresses for a test cluster are in use", hint=f"see {ROOT} and `ip netns list`")

    def stop(self) -> None:
        """Leave the cluster; the last one to leave ends every process of it and removes it."""
        with _locked():
            self._give_up()

    def _give_up(self) -> None:
        if _try_lock(self.claim, fcntl.LOCK_EX):
            _remove(self.number)
        os.close(self.claim)

    @property
    def directory(self) -> Path:
        """Configuration, logs and state."""
        return ROOT / str(self.number)

    @property
    def hosts(self) -> list[str]:
        """The names of the nodes."""
        return [f"n{i}" for i in range(1, self.nodes + 1)]

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to talk to this cluster and to no other."""
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    @property
    def address(self) -> str:
        """This machine's address as the nodes see it."""
        return address(self.number)

    def environ(self, **extra: str) -> dict[str, str]:
        """This process's environment, for this cluster, as outside any job."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PMI"))}
        return {**outside, **self.env, **extra}

    def run(self, *argv: str | Path, timeout_s: float = 60, check: bool = True, **extra: str) -> Result:
        """Run a program of Slurm's, or any other, on this machine as on a login node.

        Args:
            extra: environment variables.

        Raises:
            CommandError: it failed (with `check`) or took too long.
        """
        try:
            return run(argv, env=self.environ(**extra), timeout_s=timeout_s, check=check)
        except CommandError as error:  # `support.foreign` knows a crash of others' programs by what it printed
            raise CommandError(f"{error}\n{error.result.output}", error.result) from error

    def on(self, node: str, *argv: str | Path, timeout_s: float = 60, check: bool = True) -> Result:
        """Run a program on a node without asking Slurm, as over ssh."""
        pid = self._slurmd_pid(node)
        return run(["nsenter", f"--target={pid}", "--net", "--uts", "--mount", *argv],
                   env=self.environ(), timeout_s=timeout_s, check=check)  # fmt: skip

    def submit(self, *words: str | Path, **extra: str) -> str:
        """``sbatch --parsable WORDS...``: the job's number."""
        return self.run("sbatch", "--parsable", *words, **extra).stdout.strip().partition(";")[0]

    def job(self, job: str) -> dict[str, str]:
        """What ``scontrol show job`` says of a job, as names and values."""
        text = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_job(self, job: str, *states: str, timeout_s: float = 60) -> dict[str, str]:
        """Wait until a job is in one of the states (default: those of a job that is over), and what is known of it."""
        wanted = states or ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
        _wait(lambda: self.job(job)["JobState"] in wanted, timeout_s, f"job {job} to be {' or '.join(wanted)}", self)
        return self.job(job)

    def states(self) -> dict[str, str]:
        """The state of every node, as ``sinfo`` names it; ``*`` at the end means it does not answer."""
        lines = self.run("sinfo", "--noheader", "--Node", "--partition=debug", "--format=%N %T").stdout.splitlines()
        return dict(line.split(None, 1) for line in lines)

    def wait_idle(self, timeout_s: float = START_S) -> None:
        """Wait until every node that is not lost is idle."""
        kept = [host for host in self.hosts if host not in self.lost]
        _wait(lambda: {self.states().get(host) for host in kept} == {"idle"}, timeout_s, "all nodes to be idle", self)

    def processes(self, node: str | None = None) -> dict[int, str]:
        """What runs on a node, or on all: command lines by process number, Slurm's own daemons apart."""
        found = [pid for host in ([node] if node else self.hosts) for pid in pids(self._namespace(host))]
        lines = {pid: command_line(pid) for pid in found}
        own = ("slurmd", "slurmstepd", str(shutil.which("slurmd", path=SYSTEM_PATH)))
        return {pid: line for pid, line in lines.items() if line and not line.startswith(own)}

    def lose_node(self, node: str, how: Loss = "cut") -> None:
        """Take a node away; see `Loss`. What had been sent by then arrives; nobody is told."""
        self.lost.add(node)
        if how in ("cut", "power"):
            run(["ip", "link", "set", self._link(node), "down"])
        if how in ("kill", "power"):
            kill_all(self._namespace(node))

    def restore_node(self, node: str) -> None:
        """Bring a lost node back and wait until Slurm gives it jobs again."""
        run(["ip", "link", "set", self._link(node), "up"])
        if not pids(self._namespace(node), "slurmd"):
            self._start_node(node)
        _wait(lambda: self._resumed(node), START_S, f"{node} to come back", self)
        self.lost.discard(node)

    def logs(self, lines: int = 30) -> str:
        """The ends of the daemons' logs, for a failed test."""
        found = sorted((self.directory / "log").glob("slurm*.log"))
        return "\n".join(f"== {path.name}\n" + "\n".join(_last_lines(path, lines)) for path in found)

    def _resumed(self, node: str) -> bool:
        state = self.states().get(node, "")
        if state.startswith("down") and not state.endswith("*"):
            self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        return state in ("idle", "mixed", "allocated", "completing")

    def _namespace(self, node: str) -> str:
        return f"sy{self.number}-{node}"

    def _link(self, node: str) -> str:
        return f"sy{self.number}v{node[1:]}"

    def _slurmd_pid(self, node: str) -> int:
        return int((self.directory / "run" / f"slurmd.{node}.pid").read_text())

    def _start(self) -> None:
        for name in ("state", "log", "run", "munge", "dev", "spmix", *(f"spool/{host}" for host in self.hosts)):
            (self.directory / name).mkdir(parents=True)
        (self.directory / "munge").chmod(0o755)
        self._write_configuration()
        munge = self.directory / "munge"
        run(["munged", f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/munged.pid",
             f"--log-file={munge}/munged.log", f"--seed-file={munge}/seed", "--force"],
            env=_system(), leaves_others=True)  # fmt: skip
        self._wire()
        run(["slurmctld", "-c"], env=_system() | self.env, leaves_others=True)
        for node in self.hosts:
            self._start_node(node)
        self.wait_idle()

    def _write_configuration(self) -> None:
        key = self.directory / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for gpu in range(GPUS):
            os.mknod(self.directory / "dev" / f"gpu{gpu}", 0o20666, os.makedev(1, 3))
        files = configuration(self.directory, self.number, self.nodes)
        self.changes(files)
        for name, text in files.items():
            (self.directory / name).write_text(text)

    def _wire(self) -> None:
        """A bridge, and for every node a network namespace with one cable to it."""
        bridge = f"sy{self.number}"
        lines = [f"link add {bridge} type bridge", f"addr add {self.address}/24 dev {bridge}", f"link set {bridge} up"]
        for i, node in enumerate(self.hosts, start=1):
            namespace, link = self._namespace(node), self._link(node)
            run(["ip", "netns", "add", namespace])
            lines += [f"link add {link} type veth peer name eth0 netns {namespace}"]
            lines += [f"link set {link} master {bridge} up"]
            inside = [f"addr add {address(self.number, i)}/24 dev eth0", "link set eth0 up", "link set lo up"]
            run(["ip", "-batch", "-"], stdin="\n".join([*lines, ""]))
            run(["ip", "-n", namespace, "-batch", "-"], stdin="\n".join([*inside, ""]))
            lines = []

    def _start_node(self, node: str) -> None:
        script = 'hostname "$1"; mount -t tmpfs tmpfs "$2/spmix"; mount --bind "$2/hosts" /etc/hosts; exec slurmd'
        run(["nsenter", f"--net=/run/netns/{self._namespace(node)}", "unshare", "--mount", "--uts",
             "sh", "-ec", script, "sh", node, self.directory],
            env=_system() | self.env, leaves_others=True)  # fmt: skip


def _check() -> None:
    why = unavailable()
    if why:
        raise MissingError(why, hint="scripts/test-programs.sh installs what the tests need, as root")
    ROOT.mkdir(mode=0o755, exist_ok=True)


def _system() -> dict[str, str]:
    """What a daemon sees: nothing of the tests' own environment."""
    return {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}


def _lock_file(number: int) -> Path:
    return ROOT / f"{number}.lock"


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Only one process at a time claims, joins or leaves a cluster."""
    descriptor = os.open(ROOT / "claims.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_free(number: int) -> bool:
    if f" {address(number)}/" in run(["ip", "-oneline", "address"]).stdout:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port(number)))
        except OSError:
            return False
    return True


def _remove_if_left(number: int) -> None:
    claim = os.open(_lock_file(number), os.O_RDWR | os.O_CREAT)
    try:
        if _try_lock(claim, fcntl.LOCK_EX):
            _remove(number)
    finally:
        os.close(claim)


def _remove(number: int) -> None:
    """End every process of a cluster, also of one that a killed test left, and remove its names and files."""
    directory = ROOT / str(number)
    for file in (directory / "run" / "slurmctld.pid", directory / "munge" / "munged.pid"):
        kill_daemon(file, directory)
    spaces = [line.split()[0] for line in run(["ip", "netns", "list"]).stdout.splitlines()]
    for namespace in spaces:
        if namespace.startswith(f"sy{number}-"):
            kill_all(namespace)
            # with the namespace the kernel removes the cable too, but later
            run(["ip", "link", "delete", f"sy{number}v{namespace.rpartition('-n')[2]}"], check=False)
            run(["ip", "netns", "delete", namespace])
    run(["ip", "link", "delete", f"sy{number}"], check=False)
    shutil.rmtree(directory, ignore_errors=True)


def _last_lines(path: Path, lines: int) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-lines:]


def _wait(done: Callable[[], bool], timeout_s: float, what: str, cluster: SlurmCluster) -> None:
    until = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > until:
            raise StackyardError(f"waited {timeout_s:g} s in vain for {what}", detail=cluster.logs())
        time.sleep(0.05)
