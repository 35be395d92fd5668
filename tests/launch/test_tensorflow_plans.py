"""TF_CONFIG as it is planned and filled in: roles, ports, IPv6, what is refused, and what a program is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from launcherbed import PERLMUTTER

from stackyard.core.errors import InputError
from stackyard.inputs.models import Site
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.node.step import PlannedBlock, PlannedRole, PlannedSlot, StepFile
from stackyard.launch.plan.backends import settled
from stackyard.launch.plan.backends.tensorflow import tf_config
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan, program_of
from stackyard.launch.plan.model import Plan
from stackyard.launch.request.intent import Intent
from stackyard.launch.run.go import bound, go_variables
from stackyard.launch.run.link import Link


def planned(tmp_path: Path, source: str = "import tensorflow\n", **roles: dict[str, Any]) -> Plan:
    """The plan of a job with these roles, each with one core on this machine's only node."""
    (tmp_path / "train.py").write_text(source)
    first = next(iter(roles))
    own = {"program": ["train.py"], "cores_per_rank": 1, "gpus_per_rank": 0, "ranks_per_node": 1}
    made = {name: {**own, **({} if name == first else {"beside": first}), **role} for name, role in roles.items()}
    values = {"roles": made, "cwd": str(tmp_path), "oversubscribe": True, "launcher": "local"}
    return make_plan(Intent.model_validate(values), Site(name="s"), PlanContext())


def config(plan: Plan, name: str, **peers: list[str]) -> dict[str, Any]:
    """TF_CONFIG of rank 0 of a role, as a shim fills it in."""
    (role,) = [role for role in plan.roles if role.name == name]
    assert role.plan.program.task_ports
    text = role.plan.program.variables["TF_CONFIG"].replace("${RANK}", "0")
    for other, addresses in peers.items():
        text = text.replace(f"${{STACKYARD_PEERS_{other.upper()}}}", json.dumps(addresses))
    found: dict[str, Any] = json.loads(text)
    return found


SERVED = {"serves": True}
PEERS = {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"], "evaluator": ["e:5"]}


def test_every_role_gets_the_cluster_that_tensorflow_expects(tmp_path: Path) -> None:
    plan = planned(tmp_path, chief={}, worker={"ranks_per_node": 2, **SERVED}, ps=SERVED, evaluator={})
    cluster = {name: own for name, own in PEERS.items() if name != "evaluator"}
    for name in ("chief", "worker", "ps"):
        assert config(plan, name, **PEERS) == {"cluster": cluster, "task": {"type": name, "index": 0}}
    assert config(plan, "evaluator", **PEERS) == {"cluster": PEERS, "task": {"type": "evaluator", "index": 0}}
    assert not [f for f in plan.findings if f.rule.startswith("tensorflow")]


def test_roles_with_other_names_are_clusters_of_workers(tmp_path: Path) -> None:
    plan = planned(tmp_path, teacher={}, student={"ranks_per_node": 2}, viewer={"program": ["sleep", "1"]})
    assert config(plan, "student", student=["b:2", "c:3"]) == {
        "cluster": {"worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 0},
    }  # fmt: skip
    assert config(plan, "teacher", teacher=["a:1"])["cluster"] == {"worker": ["a:1"]}
    assert not plan.roles[2].plan.program.task_ports


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ({"chief": {"ranks_per_node": 2}, "worker": {}}, "chief has 2 ranks, and TensorFlow accepts one chief"),
        ({"worker": {}, "evaluator": {"ranks_per_node": 3}}, "evaluator has 3 ranks"),
        ({"worker": {}, "ps": SERVED}, "ps has no role chief"),
        ({"chief": {}, "ps": SERVED}, "ps has no role worker"),
        ({"chief": {}, "ps": SERVED, "worker": {"program": ["sleep", "1"]}}, "ps has no role worker"),
        ({"evaluator": {}, "trainer": {}}, "evaluator is alone"),
    ],
)
def test_roles_that_tensorflow_rejects(tmp_path: Path, roles: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        planned(tmp_path, **roles)


def test_what_a_program_is_told(tmp_path: Path) -> None:
    def rules(source: str, **roles: dict[str, Any]) -> list[str]:
        found = planned(tmp_path, f"import tensorflow as tf\n{source}", **roles).findings
        return sorted({f"{f.severity} {f.rule}" for f in found if f.rule.startswith("tensorflow")})

    shards = "n = tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id\n"
    assert rules(shards, chief={}, worker={}) == ["note tensorflow-task-id"]
    assert rules(shards, worker={}, evaluator={}) == []
    assert rules("", chief={}, worker={}, ps=SERVED) == ["note tensorflow-endless"]
    own = "from tensorflow.distribute.cluster_resolver import SlurmClusterResolver\nSlurmClusterResolver()\n"
    assert rules(own, worker={}, other={}) == ["note tensorflow-slurm-resolver"]


@pytest.mark.parametrize(("backend", "more", "warned"), [
    ("torch", "", True), ("torch", "torch.nn.parallel.DistributedDataParallel(m)", False), ("jax", "", False),
    ("numpy", "", True),
])  # fmt: skip
def test_a_keras_backend_without_a_multi_process_form(tmp_path: Path, backend: str, more: str, warned: bool) -> None:
    (tmp_path / "train.py").write_text(f"import os\nos.environ['KERAS_BACKEND'] = '{backend}'\nimport keras\n{more}\n")
    asked = Intent(program=("train.py",), cwd=str(tmp_path), nodes=2, gpus_per_rank=1)
    program = program_of(asked, plan_layout(asked, PERLMUTTER), "srun", None)
    assert ["keras-alone" in f.rule for f in program.findings if f.rule.startswith("keras")] == [True] * warned
    assert program_of(asked.model_copy(update={"variables": {"KERAS_BACKEND": "jax"}}),
                      plan_layout(asked, PERLMUTTER), "srun", None).findings == ()  # fmt: skip


def test_a_rank_sees_its_own_gpus_only(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tensorflow\n")
    asked = Intent(program=("train.py",), cwd=str(tmp_path), nodes=2)
    assert plan_layout(asked, PERLMUTTER).gpu_visibility == "all"
    assert plan_layout(settled(asked), PERLMUTTER).gpu_visibility == "own"
    explicit = asked.model_copy(update={"gpu_visibility": "all"})
    assert settled(explicit) == explicit
    assert settled(asked.model_copy(update={"backend": "torchrun"})).gpu_visibility == "auto"


def test_ten_thousand_ranks_are_refused_before_they_are_queued(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tensorflow\n")
    asked = Intent(program=("train.py",), cwd=str(tmp_path), nodes=2500)
    with pytest.raises(InputError, match="addresses of 10000 ranks take 157 KiB, and Linux passes at most 128") as said:
        program_of(asked, plan_layout(asked, PERLMUTTER), "srun", None)
    assert "one rank per node" in str(said.value.hint)
    one = asked.model_copy(update={"ranks_per_node": 1})
    assert program_of(one, plan_layout(one, PERLMUTTER), "srun", None).task_ports


# the hub's part


def links(*addresses: str) -> dict[int, Link]:
    """Agents, each with one address, that have connected to a hub elsewhere."""
    made = {}
    for node, address in enumerate(addresses):
        hello = {"facts": {"interfaces": {"lo": ["127.0.0.1"], "eth0": [address], "docker0": ["172.17.0.1"]}},
                 "addresses": ["127.0.0.1", address, "172.17.0.1"]}  # fmt: skip
        made[node] = SimpleNamespace(host=f"n{node}", hello=hello, peer=address, met="10.9.9.9")
    return cast("dict[int, Link]", made)


def file(**more: Any) -> StepFile:
    return StepFile("run", "", "id", (), "slurm", task_ports=True, **{"nodes": 2, "tasks_per_node": 2, **more})


@pytest.mark.parametrize(("distribution", "order"), [("block", (0, 1, 2, 3)), ("cyclic", (0, 2, 1, 3))])
def test_peers_are_in_the_order_of_ranks(distribution: str, order: tuple[int, ...]) -> None:
    ports = {0: (100, 101, 102), 1: (201, 202)}
    one = file(distribution=distribution)
    assert one.ports_of == {0: 3, 1: 2}
    assert bound(one, ports)
    assert not bound(one, {0: ports[0]})
    go = go_variables(one, ports, links("10.0.0.1", "10.0.0.2"), "")
    assert (go["MASTER_ADDR"], go["MASTER_PORT"]) == ("10.0.0.1", 100)
    block = ["10.0.0.1:101", "10.0.0.1:102", "10.0.0.2:201", "10.0.0.2:202"]
    assert json.loads(str(go["STACKYARD_PEERS"])) == [block[place] for place in order]


def test_ipv6_addresses_are_in_brackets() -> None:
    go = go_variables(file(), {0: (1, 2, 3), 1: (4, 5)}, links("fd00::1", "fd00::2"), "")
    assert json.loads(str(go["STACKYARD_PEERS"]))[1:3] == ["[fd00::1]:3", "[fd00::2]:4"]


def test_peers_of_roles_that_share_nodes() -> None:
    slots = tuple(PlannedSlot((cpu,)) for cpu in range(3))
    one = file(
        ports=2, more_ports=((1, 1),),
        blocks=(PlannedBlock(1, slots, (0, 1, 1)), PlannedBlock(1, slots, (1, 1, 2))),
        roles=(PlannedRole("chief", 0, 1, 1), PlannedRole("worker", 0, 2, 2), PlannedRole("ps", 1, 1, 1)),
    )  # fmt: skip
    assert one.ports_of == {0: 5, 1: 4}
    go = go_variables(one, {0: (1, 2, 3, 4, 5), 1: (6, 7, 8, 9)}, links("10.0.0.1", "10.0.0.2"), "")
    assert (go["STACKYARD_PORT_CHIEF"], go["STACKYARD_PORT_WORKER"], go["STACKYARD_PORT_PS"]) == (1, 2, 6)
    assert json.loads(str(go["STACKYARD_PEERS_CHIEF"])) == ["10.0.0.1:3"]
    assert json.loads(str(go["STACKYARD_PEERS_WORKER"])) == [
        "10.0.0.1:4", "10.0.0.1:5", "10.0.0.2:7", "10.0.0.2:8",
    ]  # fmt: skip
    assert json.loads(str(go["STACKYARD_PEERS_PS"])) == ["10.0.0.2:9"]


def test_many_nodes_take_no_quadratic_step_and_too_many_are_an_error() -> None:
    for nodes, fits in ((3000, True), (6000, False)):
        own = [f"10.100.{node // 250 + 100}.{node % 250 + 1}" for node in range(nodes)]
        ports = {node: (30000, *(40000,) * (node == 0)) for node in range(nodes)}
        one = file(nodes=nodes, tasks_per_node=1)
        if fits:
            go = go_variables(one, ports, links(*own), "")
            assert len(json.loads(str(go["STACKYARD_PEERS"]))) == nodes
        else:
            with pytest.raises(InputError, match="addresses of 6000 ranks"):
                go_variables(one, ports, links(*own), "")


def test_one_program_is_workers_only() -> None:
    text = tf_config().replace("${STACKYARD_PEERS}", '["a:1","b:2"]').replace("${RANK}", "1")
    assert json.loads(text) == {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
