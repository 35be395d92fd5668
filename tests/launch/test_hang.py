"""Hangs: the stacks that processes write themselves, and the rank that is behind in a collective operation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from stackyard.launch.run.hang.behind import behind
from support import torchstack
from support.watched import Running, local_line, make_plan, nothing_left

PROGRAMS = Path(__file__).parent / "programs"
SIGNAL = 43
ON = {"probe": True, "probe_signal": SIGNAL, "grace_s": 2.0, "start_s": 120.0}
BUSY = '(until [ -e "$0.$RANK" ]; do echo begins; sleep 0.2; done) & exec "$@"'
"""Not silent until its program has made a file."""


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    for name in ("PYTHONPATH", "STACKYARD_PROBE"):
        monkeypatch.delenv(name, raising=False)


def hung(tmp_path: Path, ranks: int, *words: str, **options: Any) -> Running:
    """A step that has hung; each rank of the program made ``up.<rank>`` when it was ready to."""
    plan = make_plan(local_line(1, ranks), 1, ranks, "/bin/sh", "-c", BUSY, f"{tmp_path}/up", *words)
    run = Running(tmp_path / "step", plan, **{**ON, "hang_min": 0.02, **options})
    assert run.end(300).state == "hung"
    assert nothing_left(str(tmp_path)) == []
    return run


def stacks(run: Running, rank: int) -> str:
    return (run.step.stacks / f"rank-{rank:05d}.txt").read_text()


READY = "open(f'{sys.argv[1]}/up.' + os.environ['RANK'], 'w').close()"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_rank_and_worker_writes_its_stacks(tmp_path: Path, method: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(f"""
import multiprocessing, os, sys, time
def stuck_worker(ready):
    ready.set()
    time.sleep(300)
def stuck_rank():
    {READY}
    time.sleep(300)
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    ready = context.Event()
    context.Process(target=stuck_worker, args=(ready,), daemon=True).start()
    ready.wait()
    stuck_rank()
""")
    run = hung(tmp_path, 2, "bash", "-c", f"{sys.executable} {program} {tmp_path}; exit $?")
    for rank in (0, 1):
        text = stacks(run, rank)
        assert (text.count("in stuck_rank"), text.count("in stuck_worker")) == (1, 1), "each in its own part"
        assert "listen.py" not in text


def test_signals_of_the_program_are_left_to_it(tmp_path: Path) -> None:
    """One with a handler of its own for that signal, one that closed all its files, one whose Python has no probe."""
    wait = f"{READY}\ntime.sleep(300)"
    programs = {
        0: f"import os, signal, sys, time\nsignal.signal({SIGNAL}, lambda *_: print('got it', flush=True))\n{wait}",
        1: f"import os, sys, time\nos.closerange(3, 4096)\nkept = open(sys.argv[1] + '/kept', 'w')\n{wait}",
        2: f"import os, sys, time\n{wait}",
    }
    for rank, text in programs.items():
        (tmp_path / f"train{rank}.py").write_text(text)
    code = f'[ $RANK = 2 ] && more=-I; exec {sys.executable} $more {tmp_path}/train$RANK.py "$0"'
    run = hung(tmp_path, 3, "sh", "-c", code, str(tmp_path))
    for rank in (1, 2):
        assert "the process does not write its stacks itself" in stacks(run, rank)
    assert "it uses the signal itself (launch.probe_signal)" in stacks(run, 0)
    assert run.step.rank_log(0).read_text().count("got it") == 1, "which is seen only by sending it"
    assert (tmp_path / "kept").read_text() == ""


def test_many_ranks_of_a_node(tmp_path: Path) -> None:
    code = f"import os, sys, time\ndef stuck():\n  {READY}\n  time.sleep(300)\nstuck()"
    run = hung(tmp_path, 64, sys.executable, "-c", code, str(tmp_path))
    assert all("in stuck" in stacks(run, rank) for rank in range(64))


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_rank_that_did_not_join_is_named(tmp_path: Path, method: str) -> None:
    try:
        python = torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    run = hung(tmp_path, 3, str(python), str(PROGRAMS / "forgets_to_join.py"), method, str(tmp_path), hang_min=0.05)
    first = run.end().first
    assert first is not None and first.cause is not None and first.cause.rule == "rank-behind"
    assert first.cause.cause.startswith("rank 1 did not join all_reduce 17; ranks 0, 2 wait in it")
    assert run.heard.all("hang")[0]["behind"] == {"ranks": (1,), "operation": "all_reduce", "number": 17}
    assert "forgets_to_join" in stacks(run, 1) and "in all_reduce" in stacks(run, 0)
    assert all("worker_is_stuck_here" in stacks(run, rank) for rank in range(3))
    analysed = subprocess.run(
        [python.with_name("torchfrtrace"), run.step.stacks / "recorder"], check=False, capture_output=True, text=True
    )
    said = analysed.stdout + analysed.stderr
    assert "missing ranks: {1}" in said and "sequence number: 17" in said, "PyTorch's own reader names the same"


def group(last: int, *, waits: bool = False, ranks: str = "[0, 1, 2]", desc: str = "default_pg", **names: str) -> Any:
    known = {str(number): "all_reduce" for number in range(1, last + 1)} | {k[1:]: v for k, v in names.items()}
    return {"last": last, "waits": waits, "ranks": ranks, "desc": desc, "names": known}


@pytest.mark.parametrize(
    ("recorders", "said"),
    [
        ({}, None),
        ({0: {"0": group(5, waits=True)}}, None),
        ({0: {"0": group(5)}, 1: {"0": group(4)}}, None),  # nobody waits
        ({0: {"0": group(5, waits=True)}, 1: {"0": group(5, waits=True)}}, None),
        ({0: {"0": group(5, waits=True)}, 1: {"0": group(4)}}, "rank 1 did not join all_reduce 5; rank 0 waits in it"),
        ({0: {"0": group(1, waits=True)}, 1: {}}, "rank 1 did not join all_reduce 1; rank 0 waits in it"),
        (
            {0: {"0": group(5, waits=True)}, 1: {"0": group(3)}, 2: {"0": group(4)}},
            "rank 1 did not join all_reduce 4; rank 0 waits in it",
        ),
        (
            {0: {"0": group(5, waits=True)}, 1: {"0": group(5, waits=True)},
             2: {"0": group(5, waits=True, n5="barrier")}},
            "rank 2 joined barrier 5, where ranks 0, 1 joined all_reduce 5",
        ),
        (  # rank 0 is behind in its second group, since it waits for rank 2 in the first
            {0: {"0": group(5, waits=True), "tp": group(7, ranks="[0, 1]", desc="tp")},
             1: {"0": group(5, waits=True), "tp": group(8, waits=True, ranks="[0, 1]", desc="tp")},
             2: {"0": group(4)}},
            "rank 2 did not join all_reduce 5; ranks 0, 1 wait in it",
        ),
        (
            {0: {"0": group(5), "3": group(8, waits=True, ranks="[0, 1]", desc="tp")},
             1: {"0": group(5), "3": group(7, ranks="[0, 1]", desc="tp")}},
            "rank 1 did not join all_reduce 8 of the group 3 (tp); rank 0 waits in it",
        ),
        (
            {rank: {"0": group(5 - (rank > 2), waits=rank < 3, ranks="x")} for rank in range(20)},
            "ranks 3, 4, 5, 6, 7, 8, 9, 10 and 9 more did not join all_reduce 5; ranks 0, 1, 2 wait in it",
        ),
    ],
)  # fmt: skip
def test_behind(recorders: dict[int, Any], said: str | None) -> None:
    found = behind(recorders)
    assert (found and str(found)) == said
