"""TensorFlow and Keras 3 on two nodes of a real Slurm: one cluster, and the losses of one process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from stackyard.host.run.command import run
from support import venvs
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real

HEAD = """
import json, os, sys
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import numpy as np
x = np.random.RandomState(0).rand(32, 4).astype("float32")
y = x.sum(1, keepdims=True)
"""
MIRRORED = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    w = tf.Variable(tf.zeros([4, 1]))
n, i = strategy.num_replicas_in_sync, strategy.cluster_resolver.task_id or 0
part = slice(i * 32 // n, (i + 1) * 32 // n)

@tf.function
def step(a, b):
    def one(a, b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((a @ w - b) ** 2) / 32.0
        context = tf.distribute.get_replica_context()
        w.assign_sub(0.5 * context.all_reduce("sum", tape.gradient(loss, w)))
        return context.all_reduce("sum", loss)
    return strategy.run(one, args=(a, b))

steps = [step(tf.constant(x[part]), tf.constant(y[part])) for _ in range(4)]
losses = [float(strategy.reduce("mean", loss, axis=None)) for loss in steps]
print(json.dumps({"n": n, "losses": losses, "config": json.loads(os.environ.get("TF_CONFIG", "{}"))}), flush=True)
"""
SERVERS = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
print(json.dumps(json.loads(os.environ["TF_CONFIG"])), flush=True)
if resolver.task_type == "evaluator":
    sys.exit()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                                  protocol="grpc", start=True)
    server.join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    w = tf.Variable(tf.zeros([4, 1]))

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((tf.constant(x) @ w - tf.constant(y)) ** 2) / 32.0
    w.assign_sub(0.5 * tape.gradient(loss, w))
    return loss

losses = []
for _ in range(4):
    losses.append(float(coordinator.schedule(step).fetch()))
print(json.dumps({"losses": losses, "device": w.device}), flush=True)
"""
KERAS = """
os.environ["KERAS_BACKEND"] = "jax"
import keras
keras.distribution.initialize()
import jax
keras.utils.set_random_seed(0)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
model.compile(keras.optimizers.SGD(0.1), "mse")
n, i = jax.process_count(), jax.process_index()
part = slice(i * 32 // n, (i + 1) * 32 // n)
model.build((None, 4))
losses = model.fit(x[part], y[part], batch_size=32 // n, epochs=3, verbose=0, shuffle=False).history["loss"]
print(json.dumps({"n": n, "devices": jax.device_count(), "losses": losses}), flush=True)
"""
PORTS = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
host, _, port = config["cluster"]["worker"][config["task"]["index"]].rpartition(":")
with socket.socket() as plain:
    try:
        taken = plain.bind(("", int(port)))
    except OSError as error:
        taken = error.strerror
with socket.create_server(("", int(port))) as server, socket.create_connection((host, int(port))):
    print(json.dumps({"config": config, "gpus": os.environ["CUDA_VISIBLE_DEVICES"], "taken": taken}), flush=True)
"""
NODES = ("-N2", "--exclusive", "--gpus-per-node=4")
SHAPE = ("-r", "1", "-c", "1", "-g", "0", "--oversubscribe")


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # gRPC would connect to other ranks through it
    with working(
        slurm, tmp_path, mirrored=HEAD + MIRRORED, servers=HEAD + SERVERS, keras_jax=HEAD + KERAS, ports=PORTS
    ) as made:
        yield made


def python(*packages: str) -> str:
    try:
        return str(venvs.python(*packages))
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")


def printed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads([line for line in text.splitlines() if line.startswith("{")][-1])
    return found


def alone(work: Work, *words: str) -> dict[str, Any]:
    """What one process prints, without a launch."""
    done = subprocess.run(words, cwd=work.directory, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return printed(done.stdout)


def ranks(work: Work) -> list[dict[str, Any]]:
    return [printed(log.read_text()) for log in sorted((work.last / "logs").glob("rank-*.log"))]


def test_a_rank_per_gpu_has_a_port_of_its_own_and_sees_one_gpu(work: Work) -> None:
    work.allocated("launch", "--backend", "tensorflow", "-r", "4", "-c", "1", "ports.py", salloc=NODES)
    found = ranks(work)
    assert [rank["gpus"] for rank in found] == list("01230123")
    assert {rank["taken"] for rank in found} == {"Address already in use"}
    assert [rank["config"]["task"]["index"] for rank in found] == list(range(8))
    workers = found[0]["config"]["cluster"]["worker"]
    hosts = [worker.rpartition(":")[0] for worker in workers]
    assert (len(set(workers)), hosts) == (8, [hosts[0]] * 4 + [hosts[4]] * 4)


@pytest.mark.long
@pytest.mark.parametrize("each", [1, 2])
def test_workers_have_the_losses_of_one_process(work: Work, each: int) -> None:
    own = python("tensorflow-cpu")
    one = alone(work, own, "mirrored.py")
    done = work.allocated("launch", *SHAPE, "-r", str(each), own, "mirrored.py", salloc=NODES)
    several = ranks(work)
    assert [rank["n"] for rank in several] == [2 * each] * (2 * each), done.err
    for number, rank in enumerate(several):
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-6, abs=1e-6)
        config = rank["config"]
        assert config["task"] == {"type": "worker", "index": number}
        assert config == {**several[0]["config"], "task": config["task"]}
        assert len(set(config["cluster"]["worker"])) == 2 * each
    work.nothing_left()


JOB = """\
format: 1
cores_per_rank: 1
gpus_per_rank: 0
ranks_per_node: 1
oversubscribe: true
roles:
  chief: {{program: [{python}, servers.py]}}
  worker: {{program: [{python}, servers.py], serves: true}}
  ps: {{program: [{python}, servers.py], serves: true, beside: chief}}
  evaluator: {{program: [{python}, servers.py], beside: worker}}
"""


@pytest.mark.long
def test_a_parameter_server_serves_a_chief_and_its_worker(work: Work) -> None:
    own = python("tensorflow-cpu")
    one = alone(work, own, "mirrored.py")
    (work.directory / "job.yaml").write_text(JOB.format(python=own))
    done = work.allocated("launch", "--job", "job.yaml", salloc=NODES)
    logs = sorted((work.last / "logs").glob("rank-*.log"))
    configs = [json.loads(next(line for line in log.read_text().splitlines() if "cluster" in line)) for log in logs]
    by_type = {config["task"]["type"]: config for config in configs}
    assert set(by_type) == {"chief", "worker", "ps", "evaluator"}, done.err
    cluster = by_type["chief"]["cluster"]
    assert list(cluster) == ["chief", "worker", "ps"]
    assert by_type["worker"]["cluster"] == by_type["ps"]["cluster"] == cluster
    assert {**by_type["evaluator"]["cluster"], "evaluator": None} == {**cluster, "evaluator": None}
    (chief,) = [result for log in logs if "losses" in (result := printed(log.read_text()))]
    assert chief["losses"] == pytest.approx(one["losses"], rel=1e-6, abs=1e-6)
    assert "/job:ps/" in chief["device"]
    assert work.status()["state"] == "done"
    work.nothing_left()


@pytest.mark.long
def test_keras_with_jax_has_the_losses_of_one_process(work: Work) -> None:
    own = python("keras", "jax")
    work.allocated("launch", *SHAPE, own, "keras_jax.py", salloc=NODES)
    several = ranks(work)
    work.allocated("launch", "-N", "1", *SHAPE, own, "keras_jax.py", salloc=NODES)
    (one,) = ranks(work)
    assert [(rank["n"], rank["devices"]) for rank in (*several, one)] == [(2, 2), (2, 2), (1, 1)]
    for rank in several:
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-6, abs=1e-6)


@pytest.mark.long
def test_hosts_that_meet_over_ipv6_only(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    own, keras = python("tensorflow-cpu"), python("keras", "jax")
    spaces = [slurm_exclusive._namespace(node) for node in ("n1", "n2")]
    run(["ip", "link", "add", "ib0", "netns", spaces[0], "type", "veth", "peer", "name", "ib0", "netns", spaces[1]])
    for number, space in enumerate(spaces, start=1):
        run(["ip", "-n", space, "link", "set", "ib0", "up"])
        run(["ip", "-n", space, "addr", "add", f"fd00:77::{number}/64", "dev", "ib0", "nodad"])
    with working(slurm_exclusive, tmp_path, mirrored=HEAD + MIRRORED, keras_jax=HEAD + KERAS) as work:
        site = tmp_path / "site.yaml"
        site.write_text(site.read_text() + "launch: {interface: ib0}\n")
        work.allocated("launch", *SHAPE, own, "mirrored.py", salloc=(*NODES, "-w", "n1,n2"))
        several = ranks(work)
        assert [rank["n"] for rank in several] == [2, 2]
        addresses = several[0]["config"]["cluster"]["worker"]
        assert [address.rpartition(":")[0] for address in addresses] == ["[fd00:77::1]", "[fd00:77::2]"]
        work.allocated("launch", *SHAPE, keras, "keras_jax.py", salloc=(*NODES, "-w", "n1,n2"))
        assert [rank["n"] for rank in ranks(work)] == [2, 2]
