"""Several programs in one job: what is refused, who sits where, what each rank finds, and how the job ends."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launcherbed import CPU, PERLMUTTER, SUMMIT

from stackyard.core.errors import InputError
from stackyard.host.run.command import run
from stackyard.inputs.models import Site
from stackyard.launch.api import runs
from stackyard.launch.layout.roles import place_roles, rank_in_role, together, whole_nodes
from stackyard.launch.node.step import PlannedBlock, PlannedRole, PlannedSlot, StepFile
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.request.intent import Intent, made
from stackyard.launch.request.job_file import job_text, load_job
from stackyard.launch.run.start import _roles
from stackyard.launch.run.usage import ranks_usage
from support import programs
from support.cli import stackyard

SHOW = """\
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "TOKEN",
         "STACKYARD_TASK", "STACKYARD_TASKS", "STACKYARD_NODES", "OMP_NUM_THREADS", "OWN", "BOTH")
found = {name: os.environ.get(name) for name in names}
print(json.dumps({**found, **{k: v for k, v in os.environ.items() if "_ROLE" in k or k.startswith(
    ("STACKYARD_ADDR_", "STACKYARD_PORT_", "STACKYARD_SIZE_"))}}), flush=True)
"""
SERVE = SHOW + "import pathlib, time\npathlib.Path('up').touch()\ntime.sleep(300)\n"
AFTER = """\
import pathlib, time
while not pathlib.Path("up").exists():
    time.sleep(0.02)
"""


def intent(**roles: dict[str, Any]) -> Intent:
    return Intent.model_validate({"roles": {name: {"program": ["a"], **role} for name, role in roles.items()}})


@pytest.mark.parametrize(("values", "said"), [
    ({"roles": {"a": {"program": ["x"], "beside": "b"}}}, "a.beside: b is not a role with nodes of its own"),
    ({"roles": {"a": {"program": ["x"], "serves": True}}}, "every role serves"),
    ({"roles": {"a": {"program": ["x"]}, "b": {"program": ["x"], "beside": "a", "nodes": 2}}}, "but a has 1"),
    ({"roles": {"a": {"program": ["x"]}}, "program": ["y"]}, "program belongs into a role"),
    ({"roles": {"a": {"program": ["x"], "nodes": 2}}, "nodes": 3}, "nodes is 3, but the roles have 2"),
    ({"roles": {"a": {"program": ["x"]}}, "distribution": "cyclic"}, "block distribution"),
    ({"roles": {"a": {"program": ["x"], "nodes": 3}}, "least_nodes": 2}, "needs all of its nodes"),
    ({"roles": {"A-1": {"program": ["x"]}}}, "is not a name of a role"),
])  # fmt: skip
def test_what_contradicts_itself_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(Intent, values)


def test_a_job_file_is_written_as_it_was_read(tmp_path: Path) -> None:
    asked = intent(server={"serves": True, "cores_per_rank": 2}, workers={"nodes": 3, "variables": {"A": "b"}})
    (tmp_path / "job.yaml").write_text(job_text(asked))
    assert load_job(tmp_path / "job.yaml") == asked
    assert "\nnodes:" not in job_text(asked)
    assert asked.nodes == 4


def test_roles_that_share_nodes_share_no_core_and_no_gpu() -> None:
    asked = intent(server={"beside": "workers", "nodes": 1, "ranks_per_node": 2, "cores_per_rank": 2,
                           "gpus_per_rank": 0},
                   workers={"nodes": 2, "ranks_per_node": 6}, viewer={"nodes": 1, "ranks_per_node": 1})  # fmt: skip
    placed = {role.name: role for role in place_roles(asked, SUMMIT)}
    layout = together(tuple(placed.values()))
    for block in layout.blocks:
        cores = [core for slot in block.slots for core in slot.cores]
        assert len(cores) == len(set(cores))
    assert [(block.first, block.count, block.roles) for block in layout.blocks] == [
        (0, 1, (0, 0, 1, 1, 1, 1, 1, 1)), (1, 1, (1,) * 6), (2, 1, (2,)),
    ]  # fmt: skip
    assert [layout.rank(host, 0) for host in range(3)] == [0, 8, 14]
    assert sorted(rank for rank, _, _ in layout.places()) == list(range(15))
    assert placed["workers"].layout.cores_per_rank == 6  # 42 cores less those of the server, by socket
    assert {gpu for slot in placed["workers"].layout.slots for gpu in slot.gpus} == set(range(6))
    whole = whole_nodes(layout)
    assert (whole.nodes, whole.ranks_per_node, len(whole.slots[0].cores)) == (3, 1, 42)


def test_it_must_be_said_whose_the_cores_are() -> None:
    with pytest.raises(InputError, match="a and b share nodes") as caught:
        place_roles(intent(a={}, b={"beside": "a"}), PERLMUTTER)
    assert "cores_per_rank and gpus_per_rank" in str(caught.value.hint)
    with pytest.raises(InputError, match="no core is left for b"):
        place_roles(intent(a={"ranks_per_node": 2, "cores_per_rank": 24}, b={"beside": "a"}), CPU)


def test_findings_name_the_role_and_its_keys() -> None:
    server, _ = place_roles(intent(server={"ranks_per_node": 1, "cores_per_rank": 1}, workers={}), CPU)
    idle = next(finding for finding in server.layout.findings if finding.rule == "idle-cores")
    assert idle.message.startswith("server: 47 of 48 cores")
    assert idle.remedy.startswith("cores_per_rank: ")


def planned(asked: Intent) -> Plan:
    return make_plan(
        asked.model_copy(update={"oversubscribe": True, "launcher": "local"}), Site(name="s"), PlanContext()
    )


def test_mpi_and_other_programs_cannot_share_a_launch_line() -> None:
    roles = {"a": {"backend": "mpi"}, "b": {"backend": "any", "beside": "a", "cores_per_rank": 1}}
    with pytest.raises(InputError, match="a would wait for ever in MPI_Init: b is not an MPI program"):
        planned(intent(**roles))
    roles["b"] |= {"backend": "mpi", "serves": True}
    with pytest.raises(InputError, match="b is an MPI program and cannot serve"):
        planned(intent(**roles))


def test_the_rendezvous_server_of_gloo_is_for_a_job_with_one_program() -> None:
    roles = {"a": {"backend": "horovod"}, "b": {"backend": "any", "beside": "a", "cores_per_rank": 1}}
    with pytest.raises(InputError, match="cannot start a as a role: its backend needs a helper program") as caught:
        planned(intent(**roles))
    assert "use controller: mpi" in str(caught.value.hint)


def test_the_rank_of_a_role_that_has_the_terminal() -> None:
    asked = intent(server={"beside": "workers", "nodes": 1, "ranks_per_node": 2, "cores_per_rank": 2,
                           "gpus_per_rank": 0},
                   workers={"nodes": 2, "ranks_per_node": 6}, viewer={"nodes": 1, "ranks_per_node": 1})  # fmt: skip
    placed = place_roles(asked, SUMMIT)
    layout = together(placed)
    places = [rank_in_role(layout, placed, rank) for rank in range(layout.ranks)]
    workers = [("workers", rank) for rank in range(12)]
    assert places == [("server", 0), ("server", 1), *workers, ("viewer", 0)]
    with pytest.raises(IndexError):
        rank_in_role(layout, placed, 15)


def file() -> StepFile:
    slots = tuple(PlannedSlot((cpu,)) for cpu in range(3))
    return StepFile(
        "run", "", "id", (), "slurm", nodes=4, tasks_per_node=3, slots=slots, ports=2, more_ports=((3, 1),),
        blocks=(
            PlannedBlock(1, slots, (0, 1, 1)), PlannedBlock(2, slots[:2], (1, 1)), PlannedBlock(1, slots[:1], (2,)),
        ),
        roles=(
            PlannedRole("server", 0, 1, 1, serves=True), PlannedRole("workers", 0, 3, 2), PlannedRole("view", 3, 1, 1),
        ),
    )  # fmt: skip


def test_every_task_has_its_place_and_its_role() -> None:
    one = file()
    places = [one.place(task) for task in range(one.tasks)]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
    assert [task for node in range(4) for task in one.tasks_of(node)] == list(range(8))
    assert one.who(5) == "rank 4 of workers (task 5)"
    assert [one.task_of(one.roles[1], rank) for rank in range(6)] == [1, 2, 3, 4, 5, 6]
    assert one.for_agents()["counts"] == [[1, 3], [2, 2], [1, 1]]


def test_the_gpus_of_a_rank_are_those_of_its_own_node() -> None:
    slots = tuple(PlannedSlot((gpu,), (gpu,)) for gpu in range(2))
    blocks = (PlannedBlock(1, slots[:1], (0,)), PlannedBlock(1, slots, (1, 1)))
    own = (PlannedRole("a", 0, 1, 1), PlannedRole("b", 1, 1, 2))
    one = replace(file(), nodes=2, tasks_per_node=1, slots=slots[:1], blocks=blocks, roles=own, more_ports=())
    peaks = {task: ("n", {"gpus": {"0": [10, 100, 1], "1": [20, 100, 1]}}) for task in range(3)}
    assert [rank.gpu_peak_bytes for rank in ranks_usage(one, peaks)] == [10, 10, 20]


def test_plan_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(file().to_json()))
    assert StepFile.read(tmp_path / "plan.json") == file()


def test_plan_json_has_the_ports_of_every_role() -> None:
    asked = intent(a={"ranks_per_node": 1, "cores_per_rank": 1}, b={"beside": "a", "ranks_per_node": 1})
    made_of = _roles(planned(asked))
    assert (made_of["ports"], made_of["more_ports"], made_of["shown"]) == (2, (), (0, 1))


# on this machine, with real processes


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "work.py").write_text(AFTER + SHOW)
    (tmp_path / "serve.py").write_text(SERVE)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    return tmp_path


def job(workers: str, server: str = "[serve.py]", more: str = "") -> None:
    Path("job.yaml").write_text(f"""\
format: 1
oversubscribe: true
variables: {{BOTH: both}}
roles:
  server:
    program: {server}
    serves: true
    ranks_per_node: 1
    cores_per_rank: 1
    gpus_per_rank: 0
    variables: {{OWN: its own, TOKEN: hidden-9}}
  workers:
    program: {workers}
    beside: server
    ranks_per_node: 2
    cores_per_rank: 1
    threads_per_rank: 3
{more}""")


def last() -> RunPaths:
    return RunPaths(sorted(Path("runs").iterdir())[-1].absolute())


def told(rank: int) -> dict[str, str]:
    found: dict[str, str] = json.loads(last().main.rank_log(rank).read_text().splitlines()[0])
    return found


def test_each_rank_finds_its_place_and_the_others(directory: Path) -> None:
    job("[work.py]")
    done = stackyard("launch", "--job", "job.yaml", "--launcher", "local")
    server, first, second = (told(rank) for rank in range(3))
    assert [rank["STACKYARD_TASK"] for rank in (server, first, second)] == ["0", "1", "2"]
    assert (server["RANK"], server["WORLD_SIZE"], server["LOCAL_WORLD_SIZE"]) == ("0", "1", "1")
    assert (second["RANK"], second["WORLD_SIZE"], second["LOCAL_RANK"], second["LOCAL_WORLD_SIZE"]) == (*"1212",)
    assert (second["STACKYARD_ROLE"], second["STACKYARD_ROLE_RANK"], second["STACKYARD_ROLE_INDEX"]) == (
        "workers", "1", "1",
    )  # fmt: skip
    assert (server["OWN"], server["BOTH"], first["OWN"], first["BOTH"]) == ("its own", "both", None, "both")
    assert (server["TOKEN"], first["TOKEN"]) == ("hidden-9", None)
    assert (server["OMP_NUM_THREADS"], first["OMP_NUM_THREADS"]) == ("1", "3")
    assert first["MASTER_PORT"] == first["STACKYARD_PORT_WORKERS"] == server["STACKYARD_PORT_WORKERS"]
    assert first["STACKYARD_PORT_SERVER"] == server["MASTER_PORT"] != first["MASTER_PORT"]
    assert first["STACKYARD_SIZE_WORKERS"] == "2"
    assert first["MASTER_ADDR"] == first["STACKYARD_ADDR_WORKERS"] == server["STACKYARD_ADDR_WORKERS"]
    assert "[server 0]" in done.out
    assert "[workers 0]" in done.out
    written = [path for path in last().root.rglob("*") if path.is_file() and path.name != "rank-00000.log"]
    assert not [path for path in written if b"hidden-9" in path.read_bytes()]


def test_a_role_that_serves_is_ended_when_the_others_have_ended(directory: Path) -> None:
    job("[work.py]")
    stackyard("launch", "--job", "job.yaml", "--launcher", "local")
    status = runs.read_status(last())
    assert (status.state, status.code) == ("done", 0)
    assert (status.seconds or {})["total"] < 100


def test_what_a_served_role_does_when_it_is_ended_is_no_failure(directory: Path) -> None:
    trap = "[bash, -c, 'trap \"echo saved; exit 9\" TERM; touch up; sleep 300 & wait']"
    job("[bash, -c, 'until [ -e up ]; do sleep 0.05; done']", trap)
    stackyard("launch", "--job", "job.yaml", "--launcher", "local")
    assert "saved" in last().main.rank_log(0).read_text()


def test_the_first_failure_names_the_role(directory: Path) -> None:
    job("[bash, -c, 'sleep 0.3; [ $RANK = 0 ] || exit 5; sleep 300']")
    done = stackyard("launch", "--job", "job.yaml", "--launcher", "local", expect=5)
    assert "error: rank 1 of workers (task 2) on" in done.err
    assert "rank 1 of workers (task 2)" in stackyard("runs", "show").err


def test_a_server_that_fails_fails_the_job(directory: Path) -> None:
    job("[sleep, '300']", "[bash, -c, 'exit 4']")
    done = stackyard("launch", "--job", "job.yaml", "--launcher", "local", expect=4)
    assert "error: rank 0 of server (task 0) on" in done.err


def test_all_roles_start_again_after_a_failure(directory: Path) -> None:
    first = "if [ $STACKYARD_ATTEMPT = 1 ]; then [ $RANK = 1 ] || sleep 300; exit 3; fi"
    job(f"[bash, -c, '{first}; echo went on $RANK']", more="restarts: 1\n")
    stackyard("launch", "--job", "job.yaml", "--launcher", "local")
    assert [last().main.rank_log(rank).read_text() for rank in (1, 2)] == ["went on 0\n", "went on 1\n"]


def test_a_run_with_roles_is_listed_and_repeated(directory: Path) -> None:
    job("[bash, -c, 'echo I am $RANK']", server="[./serve.sh]")
    serve = directory / "serve.sh"
    serve.write_text("#!/bin/sh\nexec sleep 300\n")
    serve.chmod(0o755)
    stackyard("launch", "--job", "job.yaml", "--launcher", "local")
    assert "./serve.sh : bash -c echo I am $RANK" in stackyard("runs", "--json").out
    assert "the program changed" not in stackyard("launch", "--again", "last", TOKEN="hidden-9").err
    serve.write_text("#!/bin/sh\nexec sleep 301\n")
    assert "the program changed since run" in stackyard("launch", "--again", "last", TOKEN="hidden-9").err


def test_logs_are_found_by_role(directory: Path) -> None:
    job("[bash, -c, 'echo I am $RANK']")
    stackyard("launch", "--job", "job.yaml", "--launcher", "local")
    assert stackyard("runs", "logs", "--role", "workers", "-r", "1").out == "I am 1\n"
    assert "its ranks are 0 to 1" in stackyard("runs", "logs", "--role", "workers", "-r", "2", expect=2).err
    assert "use one of server, workers" in stackyard("runs", "logs", "--role", "nobody", expect=2).err
    assert "[workers 0] I am 0" in stackyard("runs", "attach").out


def test_explain_draws_who_sits_where(directory: Path) -> None:
    job("[work.py]")
    shown = stackyard("explain", "--job", "job.yaml", "--picture", "--as", "local").out
    assert "local rank 0: server, 1 core, 1 thread" in shown
    assert "local ranks 1 to 2: workers, 1 core, 3 threads each" in shown
    assert "STACKYARD_ADDR_WORKERS" in shown


@pytest.mark.real
def test_mpi_roles_share_one_world(directory: Path) -> None:
    programs.need("mpicc.openmpi")
    (directory / "add.c").write_text(ADD)
    run(["mpicc.openmpi", "-o", "add", "add.c"])
    Path("job.yaml").write_text("""\
format: 1
oversubscribe: true
variables: {OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1"}
roles:
  simulation: {program: [./add], backend: mpi, ranks_per_node: 2, cores_per_rank: 1, gpus_per_rank: 0}
  analysis: {program: [./add], backend: mpi, ranks_per_node: 1, cores_per_rank: 1, beside: simulation}
""")
    more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    stackyard("launch", "--job", "job.yaml", "--launcher", "mpirun", **more)
    logs = [last().main.rank_log(rank).read_text() for rank in range(3)]
    assert logs == ["0 of 3, role 0 has 2\n", "1 of 3, role 0 has 2\n", "2 of 3, role 1 has 1\n"]


ADD = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, own, role = atoi(getenv("STACKYARD_ROLE_INDEX"));
    MPI_Comm mine;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, role, rank, &mine);
    MPI_Comm_size(mine, &own);
    printf("%d of %d, role %d has %d\n", rank, size, role, own);
    MPI_Finalize();
    return 0;
}
"""


def test_roles_from_python(directory: Path) -> None:
    import stackyard as api

    shown = {"program": ["sh", "-c", "echo $STACKYARD_ROLE $RANK"], "ranks_per_node": 1, "cores_per_rank": 1}
    done = api.launch(
        roles={"a": {**shown, "gpus_per_rank": 0}, "b": {**shown, "beside": "a"}}, launcher="local", oversubscribe=True
    )
    assert (done.log(rank=0), done.log(rank=1)) == ("a 0\n", "b 0\n")
