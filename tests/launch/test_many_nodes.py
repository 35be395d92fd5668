"""What a launch costs a shared file system: one file for the agents, few logs, few events, no list of hosts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.launch.api.runs import rank_log
from stackyard.launch.node.step import PlannedSlot, StepFile
from stackyard.launch.plan.model import Wrapper
from stackyard.launch.records.follow import follow
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunStatus, add_event, write_status
from stackyard.launch.run.agentfile import agent_text, plan_of
from stackyard.launch.run.reports import Reports
from stackyard.launch.shim.programs import wrapped
from support import programs
from support.watched import Heard, Running, local_line, make_plan

MOST_CALLS = 10
"""File calls of an agent below the run directory and the installation, until its ranks may start."""


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    return tmp_path


def test_what_agents_read_does_not_grow_with_the_cluster() -> None:
    def text(nodes: int) -> str:
        hosts, slots = tuple(f"n{i:05d}" for i in range(nodes)), (PlannedSlot((0,)),)
        return agent_text(StepFile("r", "secret", "id", ("h:1",), "slurm", nodes, 8, hosts=hosts, slots=slots))

    small, large = text(2), text(10_000)
    assert "n00001" not in small
    assert len(large) - len(small) < 10


@pytest.mark.real
def test_an_agent_makes_few_calls_on_the_shared_file_system(own_tmp: Path) -> None:
    strace = programs.need("strace")
    trace = own_tmp / "trace"
    line = local_line(1, 1)
    line = replace(line, words=(strace, "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", str(trace), *line.words))
    run = Running(own_tmp / "step", make_plan(line, 1, 1, "echo", "here"), start_s=60)
    assert run.end().state == "done"
    agent = re.search(r"^(\d+) +execve\([^\n]*agent\.py", trace.read_text(), re.MULTILINE)
    assert agent is not None
    shared = (str(run.step.root), str(Path(sys.prefix).resolve()), str(Path(sys.base_prefix).resolve()))
    local = Path(re.search(r'execve\("([^"]+)"', agent[0])[1]).resolve()  # type: ignore[index]
    own = [line for line in trace.read_text().splitlines() if line.startswith(f"{agent[1]} ")]
    calls = [line for line in own if any(f'"{place}' in line for place in shared) and f'"{local}' not in line]
    print(f"{len(calls)} calls on the shared file system")
    if not str(local).startswith(str(Path(sys.base_prefix).resolve())):
        assert len(calls) <= MOST_CALLS, "\n".join(calls)


def test_an_agent_runs_by_the_next_interpreter_where_the_first_is_no_use(own_tmp: Path) -> None:
    """An old Python, or a minimal one without all of the standard library, is not the end."""
    file = StepFile("r", "secret", "id", ("127.0.0.1:1",), "slurm", 1, 1, start_s=0.5)
    place = own_tmp / "agent.py"
    place.write_text(agent_text(file).replace("sys.version_info < (3, 6)", "sys.argv[1:]"))
    node = own_tmp / "node/private"
    node.mkdir(mode=0o700)
    subprocess.run(["mkfifo", str(node / "pipe")], check=True)
    (own_tmp / "logs").mkdir()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(place), sys.executable], check=False, timeout=240,
        env={"STACKYARD_DIR": str(node), "STACKYARD_NODE": "0"},
    )  # fmt: skip
    assert done.returncode == 1, "it ran, and found no hub"
    assert plan_of(place.read_text())["secret"] == "secret"


def test_an_agent_has_its_bytecode_with_it_and_its_text_for_another_python() -> None:
    file = StepFile("r", "secret", "id", ("127.0.0.1:1",), "slurm", 1, 1)
    parts: dict[bool, Any] = {}
    for same in (True, False):
        space: dict[str, Any] = {}
        exec(compile(agent_text(file), "agent.py", "exec", dont_inherit=True), space)
        if not same:
            space["COMPILED"] = ("00", "no code of this Python")
        parts[same] = [
            (name, code.co_filename, code.co_code)
            for (name, _), code in zip(space["PARTS"], space["codes"](), strict=True)
        ]
    assert [(name, code) for name, _, code in parts[True]] == [(name, code) for name, _, code in parts[False]]
    assert all(Path(file).is_file() for _, file, _ in parts[True]), "as it was compiled for the installation"
    assert not any(Path(file).is_absolute() for _, file, _ in parts[False]), "compiled from the text"


@pytest.mark.parametrize(
    ("logs", "files"),
    [("all", ["rank-00000.log", "rank-00001.log", "rank-00002.log", "rank-00003.log"]),
     ("node", ["node-00000.log", "node-00001.log", "rank-00000.log"]), ("first", ["rank-00000.log"])],
)  # fmt: skip
def test_logs(own_tmp: Path, logs: str, files: list[str]) -> None:
    """And the last lines of the rank that failed are there in each case."""
    others = " && ".join(f"[ -e {own_tmp}/up{rank} ]" for rank in range(3))
    fails = f"until {others}; do sleep 0.05; done; echo last words; exit 3"
    code = f"echo rank $RANK; touch {own_tmp}/up$RANK; if [ $RANK = 3 ]; then {fails}; fi; exec sleep 60"
    run = Running(own_tmp / "step", make_plan(local_line(2, 2), 2, 2, "sh", "-c", code), logs=logs, grace_s=1)
    result = run.end()
    assert (result.state, result.code) == ("failed", 3)
    assert result.first is not None
    assert result.first.tail[-1] == "last words"
    assert sorted(path.name for path in run.step.logs.iterdir() if path.name != "launcher.log") == files
    assert run.heard.text == {0: "rank 0\n"}


def test_a_profiler_of_many_ranks_is_one_condition(tmp_path: Path) -> None:
    assert wrapped(Wrapper(("nsys",), tuple(range(10_000)))).count("\n") < 6
    text = wrapped(Wrapper(("nsys",), (0, 1, 2, 7)))
    for task, within in ((0, True), (2, True), (3, False), (7, True), (8, False)):
        script = f"sy_rank={task}\nsy_words=(program)\n{text}\necho ${{sy_words[0]}}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ("nsys" if within else "program")


def test_a_file_is_not_written_once_for_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(Heard):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    heard = Counting()
    reports = Reports(heard)
    began = time.monotonic()
    for node in range(5000):
        reports.event("node", {"node": node})
    reports.close()
    assert len(heard.all("node")) == 5000
    assert heard.flushed <= 3 + (time.monotonic() - began) / 1.0


@pytest.mark.real
def test_who_follows_a_run_opens_few_files(tmp_path: Path) -> None:
    """While nothing happens: the status once a second, and no file ten times a second."""
    strace = programs.need("strace")
    run = tmp_path / "2026-11-22-001"
    run.mkdir()
    shutil.copy(Path(__file__).parents[1] / "data/formats/run-3/record.json", run)
    write_status(RunPaths(run), RunStatus(state="running", started=time.time()))
    (run / "logs").mkdir()
    (run / "logs/rank-00000.log").write_text("here\n")
    add_event(RunPaths(run), "phase", {"phase": "running", "detail": ""})
    code = (
        "import sys\nfrom pathlib import Path\nfrom stackyard.launch.records.follow import follow\n"
        "from stackyard.launch.records.paths import RunPaths\nfrom support.watched import Heard\n"
        f"print('begun', flush=True)\nfollow(RunPaths(Path({str(run)!r})), Heard())"
    )
    words = [strace, "-f", "-qq", "-e", "trace=openat,stat,newfstatat", "-o", str(tmp_path / "trace"), sys.executable]
    here, path = Path(__file__).parents[1], {"PYTHONPATH": "."}
    with subprocess.Popen([*words, "-c", code], cwd=here, env=path, stdout=subprocess.PIPE) as made:
        assert made.stdout
        made.stdout.readline()
        time.sleep(6)
        write_status(RunPaths(run), RunStatus(state="done", code=0))
        made.wait(60)
    opened = [line for line in (tmp_path / "trace").read_text().splitlines() if "openat" in line and str(run) in line]
    assert 3 < len(opened) < 25, opened


def test_follow_still_sees_everything(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "2026-11-22-001")
    paths.main.logs.mkdir(parents=True)
    write_status(paths, RunStatus(state="done", code=0))
    paths.main.rank_log(0).write_text("some output\n")
    add_event(paths, "notice", {"text": "something"})
    (paths.root / "record.json").write_text((Path(__file__).parents[1] / "data/formats/run-3/record.json").read_text())
    heard = Heard()
    assert json.loads(paths.status.read_text())["state"] == "done"
    assert follow(paths, heard).state == "done"
    assert heard.text == {0: "some output\n"}
    assert heard.all("notice") == ["something"]


def test_the_logs_of_a_run_of_a_former_version_are_found(tmp_path: Path) -> None:
    """Its plan.json has a token, and neither an id nor a word about logs."""
    paths = RunPaths(tmp_path / "2026-11-21-001")
    paths.root.mkdir()
    plan = {"run": "x", "token": "t", "hubs": ["h:1"], "family": "slurm", "nodes": 2, "tasks_per_node": 2, "format": 1}
    paths.main.plan.write_text(json.dumps(plan))
    assert rank_log(paths, 3) == paths.main.rank_log(3)
