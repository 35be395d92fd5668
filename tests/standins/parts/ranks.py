"""Start one process per rank on one machine, each as if it were on a node of its own.

Where the kernel allows it (root) a rank has a host name of its own and finds the other nodes' names in /etc/hosts, each
with its own loopback address. STANDIN_PLACEMENT names a file that is told who was placed where, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from .grammar import Refused

_UTS, _MOUNTS = 0x04000000, 0x00020000
_DEATH_SIGNAL = 1
_BIND, _PRIVATE_ALL = 0x1000, 0x4000 | 0x40000


@dataclass(frozen=True)
class Rank:
    """One rank: `cpus` are hardware threads and `gpus` devices as the operating system and the driver number them."""

    rank: int
    local_rank: int
    node: int
    host: str
    cpus: tuple[int, ...]
    gpus: tuple[int, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


def placement(program: str, ranks: Sequence[Rank]) -> None:
    """Write who was placed where, if somebody asked."""
    name = os.environ.get("STANDIN_PLACEMENT")
    if name:
        value = {"program": program, "ranks": [asdict(rank) for rank in sorted(ranks, key=lambda r: r.rank)]}
        path = Path(name)
        part = path.with_name(path.name + f".{os.getpid()}")
        part.write_text(json.dumps(value, indent=1), encoding="utf-8")
        os.replace(part, path)


def run(
    ranks: Sequence[Rank],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    cwd: str | None = None,
    end_after_s: float | None = None,
    end_on_error: bool = False,
    label: bool = False,
    output: str = "",
    error: str = "",
) -> int:
    """Run all ranks to their end; 0, or the highest exit code, 128 + signal for a signal.

    Args:
        end_after_s: so long after the first rank has ended the others are ended.
        end_on_error: end the others as soon as one has ended with a code other than 0.
        output, error: file names; ``{rank}`` is replaced by the rank's number.
    """
    ordered = sorted(ranks, key=lambda r: r.rank)
    hosts = _hosts_file(ordered)
    opened: dict[str, TextIO] = {}
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for rank in ordered:
            running[rank.rank] = _start(rank, argv, environ, hosts, cwd, _streams(rank, output, error, opened), label)
        return _wait(running, end_after_s, end_on_error)
    finally:
        _end(running.values())
        for stream in opened.values():
            stream.close()


def _streams(rank: Rank, output: str, error: str, opened: dict[str, TextIO]) -> tuple[TextIO | None, TextIO | None]:
    streams: list[TextIO | None] = []
    for name in (output, error):
        path = name.replace("{rank}", str(rank.rank))
        if path and path not in opened:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            opened[path] = Path(path).open("w", encoding="utf-8")  # noqa: SIM115
        streams.append(opened[path] if path else None)
    return streams[0], streams[1]


def _start(
    rank: Rank,
    argv: Sequence[str],
    environ: Mapping[str, str],
    hosts: Path | None,
    cwd: str | None,
    streams: tuple[TextIO | None, TextIO | None],
    label: bool,
) -> subprocess.Popen[bytes]:
    variables = {**environ, **rank.variables, "HOSTNAME": rank.host}
    words = list(argv)
    if label:
        words = ["sh", "-c", f'"$0" "$@" 2>&1 | sed -u "s/^/{rank.rank}: /"', *argv]
    out, err = streams
    try:
        return subprocess.Popen(
            words, env=variables, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err or out,
            start_new_session=True, preexec_fn=lambda: _become(rank.host, hosts),  # noqa: PLW1509
        )  # fmt: skip
    except FileNotFoundError as missing:
        raise Refused(f"{argv[0]}: No such file or directory", 127) from missing
    except PermissionError as denied:
        raise Refused(f"{argv[0]}: Permission denied", 126) from denied


def _become(host: str, hosts: Path | None) -> None:
    """In the child, before the program: it ends with its launcher; its own host name and /etc/hosts, where allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.geteuid() != 0 or libc.unshare(_UTS | _MOUNTS) != 0:
        return
    libc.sethostname(host.encode(), len(host))
    if hosts is not None and libc.mount(None, b"/", None, _PRIVATE_ALL, None) == 0:
        libc.mount(os.fspath(hosts).encode(), b"/etc/hosts", None, _BIND, None)


def _hosts_file(ranks: Sequence[Rank]) -> Path | None:
    state = os.environ.get("STANDIN_STATE")
    if state is None:
        return None
    names = {rank.node: rank.host for rank in ranks}
    lines = ["127.0.0.1 localhost", *(f"127.0.{1 + n // 250}.{1 + n % 250} {name}" for n, name in names.items())]
    path = Path(state) / f"hosts.{os.getpid()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _wait(running: Mapping[int, subprocess.Popen[bytes]], end_after_s: float | None, end_on_error: bool) -> int:
    def forward(number: int, _frame: Any) -> None:
        for process in running.values():
            _signal(process, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    first: float | None = None
    worst = 0
    pending = dict(running)
    while pending:
        for rank, process in list(pending.items()):
            code = process.poll()
            if code is not None:
                del pending[rank]
                worst = max(worst, 128 - code if code < 0 else code)
                first = first or time.monotonic()
        late = first is not None and end_after_s is not None and time.monotonic() - first > end_after_s
        if pending and (late or (end_on_error and worst)):
            print(f"a rank ended with {worst}; ending the others", file=sys.stderr)
            _end(pending.values())
            return worst or 137
        time.sleep(0.01)
    return worst


def _end(processes: Any) -> None:
    alive = [process for process in processes if process.poll() is None]
    for number, patience_s in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 15.0)):
        for process in alive:
            _signal(process, number)
        until = time.monotonic() + patience_s
        while any(process.poll() is None for process in alive) and time.monotonic() < until:
            time.sleep(0.01)
        alive = [process for process in alive if process.poll() is None]


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
