"""rank.sh, really run: by hand, and by the launchers that are here."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core import posix
from stackyard.core.change import Default, EnvironmentChange, Flags, Prepend, SaveValue, Set, SetRestorable, UserPath
from stackyard.launch.node.step import PlannedSlot
from stackyard.launch.plan.model import Wrapper
from stackyard.launch.shim import rank_sh, shell
from support import programs
from support.processes import wait_for
from support.shimstep import SHOW, Step, error_of, standing_in, text_of


@pytest.fixture
def step(tmp_path: Path) -> Iterator[Step]:
    with standing_in(tmp_path / "a step's folder") as made:
        yield made


def test_a_rank_finds_its_place(step: Step) -> None:
    value = "/x/{user}/{run}-{node}-{local_rank}-{other}"
    step.write(SHOW, tasks=4, nodes=1, variables={"CACHE": value}, private={"MY_KEY": value})
    for process in [step.start(task, USER="ann") for task in range(4)]:
        assert error_of(process) == ""
        assert process.returncode == 0
    for task in range(4):
        _, environ, _ = step.shown(task)
        wanted = {
            "RANK": str(task), "WORLD_SIZE": "4", "LOCAL_RANK": str(task), "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "0",
            "GROUP_RANK": "0", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4242", "STACKYARD_PORT_1": "4243",
            "STACKYARD_RUN": "2026-11-21-001", "STACKYARD_STEP": str(step.root), "OMP_NUM_THREADS": "3",
            "CACHE": f"/x/ann/2026-11-21-001-0-{task}-{{other}}", "MY_KEY": f"/x/ann/2026-11-21-001-0-{task}-{{other}}",
        }  # fmt: skip
        assert {name: environ.get(name) for name in wanted} == wanted
        assert not [name for name in environ if name.startswith("sy_")]
    lines = step.lines()
    assert len([line for line in lines if line.startswith("start ")]) == 4
    assert sorted(line for line in lines if line.startswith("exit")) == [f"exit {n} 0" for n in range(4)]
    pid, cpus, gpus = next(line for line in lines if line.startswith("start 2 2")).split()[3:]
    assert int(pid) == step.started[2].pid
    assert cpus[0].isdigit()
    assert gpus == "-"


HARD = ("it's", 'a "word"', "two\nlines", "$HOME `id` \\ ${HOME}", "*", "", "é", "rank ${RANK} of ${WORLD_SIZE}")


def test_the_interface_is_that_of_the_route(step: Step) -> None:
    ip = programs.need("ip")
    for number, address in enumerate(("127.0.0.1", "10.0.0.7", "head.example")):
        made = Step(step.root / str(number)).write(SHOW, answer={"go": {"MASTER_ADDR": address, "MASTER_PORT": "1"}})
        assert made.run(GLOO_SOCKET_IFNAME="mine" if number == 1 else "").returncode == 0
        environ = made.shown()[1]
        found = subprocess.run(
            [ip, "route", "get", address], check=False, stdout=subprocess.PIPE, text=True
        ).stdout.split()
        wanted = found[found.index("dev") + 1] if "dev" in found else ""
        assert environ["STACKYARD_INTERFACE"] == wanted
        assert environ.get("GLOO_SOCKET_IFNAME") == ("mine" if number == 1 else wanted)


def test_words_and_values_arrive_as_they_are(step: Step) -> None:
    wrapper = Wrapper((*SHOW, "${STACKYARD_RUN}'s"), variables={"W": "${RANK}$RANK"})
    step.write(HARD, wrappers=(wrapper,), variables={"A": HARD[1], "B": HARD[2]}, program={"variables": {"C": HARD[3]}})
    assert step.run().returncode == 0
    words, environ, _ = step.shown()
    assert words == ["2026-11-21-001's", *HARD[:-1], "rank 0 of 1"]
    assert (environ["A"], environ["B"], environ["C"], environ["W"]) == (HARD[1], HARD[2], HARD[3], "0$RANK")


CHANGE = EnvironmentChange(
    (
        Prepend("PATH", "/opt/it's/bin"), Prepend("MANPATH", "/m", keep_system=True), Prepend("NEWPATH", "/n"),
        Set("S", 'x"$HOME"\ny'), SetRestorable("GONE", None), SetRestorable("MINE", "2"), Default("KEPT", "new"),
        Default("EMPTY", "n"),
        Default("FRESH", "a b"), SaveValue("OLD", "MINE"), SaveValue("NONE", "NOWHERE"), Flags("CFLAGS", "-g 'x'"),
        Flags("LDFLAGS", "-L/x"), UserPath("ENVS", ("NOSUCH", "SCRATCH"), "a b/envs", "f", ("/site/envs",)),
        UserPath("PKGS", ("NOSUCH",), "s", "fall back"), UserPath("OWN", ("SCRATCH",), "s", "f"),
    )
)  # fmt: skip
BEFORE = {
    "PATH": "/usr/bin:/bin", "GONE": "1", "MINE": "1", "KEPT": "old", "EMPTY": "", "CFLAGS": "-O2", "SCRATCH": "/s $x",
    "HOME": "/home/it's", "OWN": "",
}  # fmt: skip


@pytest.mark.parametrize("before", [BEFORE, {**BEFORE, "MANPATH": "/a:/b", "SCRATCH": "", "CFLAGS": ""}])
def test_the_shell_does_what_apply_does(before: dict[str, str]) -> None:
    script = posix.change_text(CHANGE) + shell.array("words", SHOW) + '"${words[@]}"'
    done = subprocess.run(["/bin/bash", "-c", script], env=before, capture_output=True, text=True, check=True)
    after = json.loads(done.stdout)[1]
    for name in ("_", "PWD", "SHLVL", "OLDPWD", "LC_CTYPE"):
        after.pop(name, None)
    assert after == CHANGE.apply(before)


def test_the_stack_comes_before_variables(step: Step) -> None:
    step.write(SHOW, change=EnvironmentChange((Set("X", "stack"), Set("Y", "stack"))), variables={"X": "site"})
    step.run()
    environ = step.shown()[1]
    assert (environ["X"], environ["Y"]) == ("site", "stack")


def test_nothing_of_the_shell_starts(step: Step, tmp_path: Path) -> None:
    """BASH_ENV, functions, HOSTNAME and variables called like the shim's own words do not matter."""
    startup = tmp_path / "bashenv"
    startup.write_text(f"touch {tmp_path}/seen\n")
    step.write(SHOW)
    mine = {"task": "mine", "node": "mine", "BASH_ENV": str(startup), "HOSTNAME": "login1", "CDPATH": "/tmp"}
    assert step.run(**mine).returncode == 0
    environ = step.shown()[1]
    assert (environ["task"], environ["node"], environ["BASH_ENV"]) == ("mine", "mine", str(startup))
    assert not (tmp_path / "seen").exists()


def test_directory_exit_code_and_streams(step: Step, tmp_path: Path) -> None:
    (tmp_path / "it's here").mkdir()
    step.write(
        ("bash", "-c", 'pwd; echo err >&2; read -r x || echo "no input"; exit 37'), cwd=str(tmp_path / "it's here")
    )
    process = step.run()
    assert process.returncode == 37
    assert step.paths.rank_log(0).read_text().splitlines() == [str(tmp_path / "it's here"), "err", "no input"]
    assert step.lines()[-1] == "exit 0 37"
    assert not list(step.root.glob("stackyard-*"))


def test_wrappers_of_some_tasks(step: Step) -> None:
    outer = Wrapper(("env", "OUTER=${RANK}"))
    inner = Wrapper(("env", "INNER=1"), tasks=(1, 3), variables={"ONLY": "here"})
    nobody = Wrapper(("false",), tasks=())
    step.write(SHOW, tasks=2, wrappers=(outer, inner, nobody))
    for process in [step.start(task) for task in range(2)]:
        assert process.wait(120) == 0
    first, second = step.shown(0)[1], step.shown(1)[1]
    assert (first["OUTER"], second["OUTER"]) == ("0", "1")
    assert ("INNER" in first, "ONLY" in first, second["INNER"], second["ONLY"]) == (False, False, "1", "here")


def test_no_such_program(step: Step) -> None:
    step.write(("no-such-program-here",))
    assert step.run().returncode == 127
    assert "no-such-program-here: command not found" in step.paths.rank_log(0).read_text()


def test_no_such_directory(step: Step) -> None:
    step.write(cwd="/no/such/folder")
    process = step.run()
    assert (process.returncode, "cannot enter /no/such/folder" in error_of(process)) == (71, True)
    assert step.lines()[-1] == "exit 0 71"


def test_stop(step: Step) -> None:
    step.write(("touch", str(step.root / "ran")), answer={"stop": "a node is missing: d3's network"})
    process = step.run()
    assert process.returncode == 70
    assert error_of(process) == "stackyard: a node is missing: d3's network\n"
    assert not (step.root / "ran").exists()


def test_nobody_answers(step: Step) -> None:
    step.write(start_s=1)
    step.paths.agent.unlink()
    process = step.run()
    assert process.returncode == 71
    error = error_of(process)
    assert "timed out after 1 s waiting for all nodes: " in error
    assert "can't open file" in error


UNFIT: dict[str, tuple[dict[str, str], str]] = {
    "alone": ({"STACKYARD_TASKS": "1"}, "PMI mismatch: every task sees world size 1, expected 4. launcher provides"),
    "fewer": ({"STACKYARD_TASKS": "2"}, "world size mismatch: 2, expected 4"),
    "unset": ({"STACKYARD_LOCAL_TASK": ""}, "has not set the identity of this task: missing one of STACKYARD_TASK "),
    "words": ({"STACKYARD_TASK": "a[$(id)]"}, "are not numbers"),
    "place": ({"STACKYARD_TASK": "1", "STACKYARD_LOCAL_TASK": "0"}, "expected local rank 1 of node 0"),
    "node": ({"STACKYARD_NODE": "1"}, "started it as local rank 0 of node 1"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_task_that_does_not_fit(step: Step, case: str) -> None:
    environ, message = UNFIT[case]
    step.write(tasks=2, nodes=2)
    process = step.run(**environ)
    assert process.returncode == 71
    assert message in error_of(process)


def test_two_local_ranks_0(step: Step) -> None:
    end = step.root / "end"
    step.write(("sh", "-c", 'until [ -e "$0" ]; do sleep 0.01; done', str(end)), tasks=1, nodes=2)
    first = step.start(0, 0)
    while not list(step.root.glob("stackyard-*/pipe")):
        time.sleep(0.01)
    second = step.start(1, 0)
    assert "two tasks of this node have local rank 0" in error_of(second)
    assert second.returncode == 71
    end.touch()
    assert first.wait(120) == 0


@pytest.mark.parametrize("address", ["localhost", "127.0.1.1", "::1", ""])
def test_localhost_with_two_nodes(step: Step, address: str) -> None:
    step.write(tasks=1, nodes=2, answer={"go": {"MASTER_ADDR": address, "MASTER_PORT": "1"}})
    process = step.run()
    assert process.returncode == 71
    assert f"MASTER_ADDR is '{address}'" in error_of(process)


def test_localhost_with_one_node(step: Step) -> None:
    step.write(answer={"go": {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}})
    assert step.run().returncode == 0


def test_cyclic(step: Step) -> None:
    step.write(SHOW, tasks=2, nodes=2, distribution="cyclic")
    both = [step.start(task, task // 2) for task in (1, 3)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert [step.shown(task)[1]["NODE_RANK"] for task in (1, 3)] == ["1", "1"]
    assert [step.shown(task)[1]["LOCAL_RANK"] for task in (1, 3)] == ["0", "1"]


def test_a_task_that_stands_for_a_node(step: Step) -> None:
    step.write(SHOW, ranks_per_task=4)
    assert step.run(RANK="7").returncode == 0
    environ = step.shown()[1]
    assert environ["NODE_RANK"] == "0"
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & set(environ)


@pytest.mark.parametrize("name", ["TERM", "USR1", "INT"])
def test_signals_to_the_group_reach_the_program(step: Step, name: str) -> None:
    program = (
        "import signal,sys,time\n"
        f"signal.signal(signal.SIG{name}, lambda *_: (print('got it', flush=True), sys.exit(5)))\n"
        "print('ready', flush=True)\ntime.sleep(300)"
    )
    step.write((sys.executable, "-c", program))
    process = step.start(0)
    wait_for(lambda: "ready" in text_of(step.paths.rank_log(0)))
    os.killpg(process.pid, getattr(signal, f"SIG{name}"))
    assert process.wait(120) == 5
    assert "got it" in step.paths.rank_log(0).read_text()
    assert step.lines()[-1] == "exit 0 5"


def test_a_killed_program_has_its_code(step: Step) -> None:
    step.write(("bash", "-c", "kill -9 $$"))
    assert step.run().returncode == 137
    assert step.lines()[-1] == "exit 0 137"


def test_sidecar(step: Step) -> None:
    wrapper = Wrapper(("env", "BOXED=1"))
    step.write(
        ("sleep", "1"), program={"sidecar": (*SHOW, "${STACKYARD_PORT_1}")}, wrappers=(wrapper,),
        change=EnvironmentChange((Set("STACK", "1"),)),
    )  # fmt: skip
    process = step.start(0)
    wait_for(lambda: bool(list(step.root.glob("stackyard-*/go"))))
    words = rank_sh.sidecar_argv(step.paths, step.plan)
    (directory,) = step.root.glob("stackyard-*")
    environ = {**os.environ, "STACKYARD_DIR": str(directory)}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    argv, inside, _ = json.loads(done.stdout)
    assert argv == ["4243"]
    assert (inside["STACK"], inside["BOXED"], inside["MASTER_PORT"]) == ("1", "1", "4242")
    assert process.wait(120) == 0


def test_cheap(step: Step) -> None:
    """With an answer that is there, the shim starts no program but mkdir, mkfifo, the agent and its own."""
    strace = programs.need("strace")
    step.write(("/bin/true",))
    out = step.root / "trace"
    step.paths.shim.write_text(step.paths.shim.read_text())
    own = {"STACKYARD_TASK": "0", "STACKYARD_TASKS": "1", "STACKYARD_LOCAL_TASK": "0", "STACKYARD_TMP": str(step.root)}
    subprocess.run(
        [strace, "-f", "-qq", "-e", "trace=execve", "-e", "status=successful", "-o", out, step.paths.shim],
        env={**os.environ, **own}, check=True, timeout=240,
    )  # fmt: skip
    started = [line.split('"')[1].rsplit("/", 1)[-1] for line in out.read_text().splitlines() if "execve(" in line]
    python = Path(sys.executable).name
    assert sorted(started) == sorted(["rank.sh", "mkdir", "mkfifo", python, "true"])


def test_the_text_depends_on_the_plan_alone(step: Step) -> None:
    """Written twice, it is the same."""
    step.write(HARD, tasks=2)
    again = rank_sh.shim_text(step.paths, step.file, dataclasses.replace(step.plan), python=sys.executable)
    assert again == step.paths.shim.read_text()


STARTERS = {
    "openmpi": ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"),
    "hydra": ("mpiexec.mpich", "-n", "2"),
}


@pytest.mark.real
@pytest.mark.parametrize("family", STARTERS)
def test_started_by_mpirun(step: Step, family: str) -> None:
    """Each launcher's own names tell a rank who it is."""
    starter, *options = STARTERS[family]
    programs.need(starter)
    step.write(SHOW, tasks=2, family=family)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    subprocess.run(
        [starter, *options, step.paths.shim],
        env={**environ, "STACKYARD_TMP": str(step.root)}, check=True, timeout=240, capture_output=True,
    )  # fmt: skip
    assert [step.shown(task)[1]["RANK"] for task in range(2)] == ["0", "1"]
    assert step.shown(1)[1].get("PMI_RANK" if family == "hydra" else "OMPI_COMM_WORLD_RANK") == "1"


REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "launch-variables.md"


def test_the_reference_names_every_variable(step: Step) -> None:
    slots = (PlannedSlot((0,), (0,)),)
    step.write(SHOW, slots=slots, gpu_vendor="nvidia")
    before = {k for k in os.environ if not k.startswith("STACKYARD")}
    assert step.run().returncode == 0
    known = REFERENCE.read_text()
    added = [name for name in step.shown()[1] if name not in before and name not in ("_", "OLDPWD", "STACKYARD_TMP")]
    assert "STACKYARD_DEVICE" in added
    assert [name for name in added if f"`{name}`" not in known] == []
