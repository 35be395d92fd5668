"""The import storm's model: against a simulated server, and where it must keep silent."""

from __future__ import annotations

import heapq
import random
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.study.imports import probe
from stackyard.study.imports.measure import result_of
from stackyard.study.imports.model import NODES, RANKS, Cores, Fit, Point, fitted, predictions, queue
from stackyard.study.imports.probe import mounts, names_of, with_parents

IDLE = Cores(0.001, 64)
SIZES = (1, 2, 4, 8, 16, 32, 64)


def simulated(clients: int, requests: int, own_s: float, server_s: float, seed: int) -> float:
    """Seconds of the slowest of some clients at one server, request by request, with exponential times."""
    draw = random.Random(seed)
    events = [(draw.expovariate(1 / own_s), client, requests) for client in range(clients)]
    heapq.heapify(events)
    free = 0.0
    while events:
        arrival, client, left = heapq.heappop(events)
        free = max(free, arrival) + draw.expovariate(1 / server_s)
        if left > 1:
            heapq.heappush(events, (free + draw.expovariate(1 / own_s), client, left - 1))
    return free


def storm(who: str = RANKS) -> list[Point]:
    if who == NODES:
        times = {n: simulated(n, 300, 0.02, 0.002, n) for n in SIZES}
        return [Point(n, 1, times[n]) for n in SIZES] + [Point(1, k, times[1] * 1.02) for k in SIZES[1:]]
    return [Point(1, n, simulated(n, 300, 0.02, 0.002, n)) for n in SIZES]


def test_one_client_never_waits_and_many_take_the_servers_time() -> None:
    times = queue(2000, 10.0, 1.0)
    assert times[0] == 11.0
    assert times[-1] == pytest.approx(2000, rel=0.01) and times == sorted(times)
    assert queue(2, 1.0, 1.0)[1] == pytest.approx(1 + 1 * (1 + 0.5))  # by hand: the other one is there half of the time


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_queue_is_the_simulated_one(seed: int) -> None:
    for clients in (1, 8, 20, 64):
        assert queue(clients, 6.0, 0.6)[-1] == pytest.approx(simulated(clients, 300, 0.02, 0.002, seed), rel=0.15)


@pytest.mark.parametrize("who", [RANKS, NODES])
def test_fitted_up_to_64_it_predicts_128_and_knows_who_asks(who: str) -> None:
    fit = fitted(storm(who), IDLE)
    assert fit is not None and fit.who == who and fit.is_sure and fit.most == 64
    assert (fit.own_s, fit.server_s) == pytest.approx((6.0, 0.6), rel=0.25)
    assert fit.knee == pytest.approx(11, rel=0.3)
    nodes, per_node = (128, 1) if who == NODES else (1, 128)
    assert fit.seconds(nodes, per_node, IDLE) == pytest.approx(simulated(128, 300, 0.02, 0.002, 9), rel=0.1)
    if who == NODES:
        assert fit.seconds(16, 8, IDLE) < 1.5 * fit.seconds(1, 1, IDLE)  # names are kept: 16 clients


def test_nothing_is_said_where_the_server_was_not_loaded() -> None:
    assert fitted(storm()[:4], IDLE) is None  # up to 8, below the knee
    assert fitted([Point(1, 1, 3.0)], IDLE) is None and fitted([], IDLE) is None
    assert fitted([Point(1, 1, 1.0), Point(1, 64, 40.0)], IDLE) is None  # two times fit any two seconds


def test_a_time_of_busy_cores_is_not_one_of_the_server() -> None:
    times = {n: 0.1 * max(1, n / 2) for n in (1, 2, 4, 8, 16)}
    two = Cores(0.09, 2)
    assert fitted([Point(1, n, seconds, seconds - 0.1) for n, seconds in times.items()], two) is None
    assert fitted([Point(1, n, seconds, None) for n, seconds in times.items()], two) is None
    assert fitted([Point(1, n, seconds, 0.0) for n, seconds in times.items()], two) is not None  # the cores were idle


def test_predictions_name_what_they_assume() -> None:
    fit = Fit(NODES, 6.0, 0.6, 0.05, 64, is_sure=True)
    first, second = predictions(fit, IDLE, 4)
    assert (first["nodes"], first["clients"]) == (250, 250)
    assert first["seconds"] == pytest.approx(150, rel=0.01) and second["seconds"] == pytest.approx(15000, rel=0.01)
    assert "250 clients" in str(first["assuming"]) and "keeps names for its ranks" in str(first["assuming"])
    unsure = list(predictions(Fit(NODES, 6.0, 0.6, 0.05, 64, is_sure=False), IDLE, 4))
    assert [line["clients"] for line in unsure] == [250, 1000, 25_000, 100_000]


def test_the_cores_bound_a_prediction() -> None:
    fit = Fit(NODES, 6.0, 0.6, 0.05, 64, is_sure=True)
    assert fit.seconds(1, 128, Cores(2.0, 2)) == 128.0


def test_names_are_read_from_what_strace_prints() -> None:
    lines = [
        b'12 openat(AT_FDCWD</home>, "lib/a.py", O_RDONLY|O_CLOEXEC) = 3</home/lib/a.py>\n',
        b'newfstatat(AT_FDCWD</home>, "/opt/x", 0x7ffc, 0) = -1 ENOENT (No such file or directory)\n',
        b'12 newfstatat(3</home/lib/a.py>, "", {st_mode=S_IFREG|0644, st_size=1}, AT_EMPTY_PATH) = 0\n',
        b'readlink("/opt/x/../y", 0x7ffc, 1023) = -1 EINVAL (Invalid argument)\n',
        b"13 getdents64(4</home/lib>, 0x55 /* 2 entries */, 32768) = 48\n",
        b'13 execve("/bin/true", ["true"], 0x1 /* 3 vars */ <unfinished ...>\n',
        b"13 <... execve resumed>) = 0\n",
        b"+++ exited with 0 +++\n",
    ]
    names, calls = names_of(lines)
    assert calls == 5
    assert names == {"/home/lib/a.py", "/opt/x", "/opt/x/../y", "/home/lib/", "/bin/true"}
    assert with_parents(names) == {
        "/home", "/home/lib", "/home/lib/a.py", "/opt", "/opt/x", "/opt/y", "/bin", "/bin/true"
    }  # fmt: skip


def test_a_result_is_found_between_what_else_was_printed() -> None:
    assert result_of('welcome\nstackyard-imports {"seconds": 1.5}\nbye\n') == {"seconds": 1.5}
    for text in ("", "welcome", "stackyard-imports ", 'stackyard-imports {"seco', "stackyard-imports 3\n"):
        assert result_of(text) == {}


def test_without_strace_names_are_those_that_python_tells_of() -> None:
    words = [sys.executable, "-c", Path(probe.__file__).read_text(), "json", "trace"]
    done = subprocess.run(words, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=True)
    found = result_of(done.stdout)
    assert found["counted_by"] == "audit" and found["calls"] is None and found["modules"] == ["json"]
    assert found["names"] == sum(found["file_systems"].values()) > 10
    failed = subprocess.run([*words[:-2], "tempest", "time"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "No module named 'tempest'" in failed.stderr


def test_the_last_mount_of_a_place_counts() -> None:
    text = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /sw\\040new rw shared:1 - nfs4 server:/x rw\n"
        "31 30 0:41 / /sw\\040new rw - fuse.squashfuse y ro\n"
    )
    assert mounts(text) == {"/": "ext4", "/sw new": "fuse.squashfuse"}
