"""TensorFlow: `tf.distribute` strategies over several processes, which read the whole cluster from TF_CONFIG.

https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable; the rules for its
tasks are those of `tensorflow/python/distribute/multi_worker_util.py` (2.21).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from stackyard.core.errors import InputError, Where
from stackyard.core.findings import Finding
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends import source
from stackyard.launch.plan.backends.base import UNBUFFERED, BackendContext, command, direct_grpc
from stackyard.launch.plan.backends.simple import KERAS
from stackyard.launch.plan.backends.started import nested
from stackyard.launch.plan.model import RankProgram, Reason
from stackyard.launch.plan.peers import check_size
from stackyard.launch.request.intent import Intent

TYPES = ("chief", "worker", "ps", "evaluator")
"""The types of tasks that TensorFlow accepts; a role with such a name has tasks of this type."""
SHORTEST = len('"1.1.1.1:10000",')
"""A task in TF_CONFIG, at least."""


class TensorFlow:
    """``tf.distribute.MultiWorkerMirroredStrategy()`` and ``ParameterServerStrategy`` over TF_CONFIG.

    Without roles all ranks are workers, and worker 0 is the chief. In a job with roles, those named chief, worker, ps
    and evaluator are one cluster; a role with another name is a cluster of workers. Each rank has a port on its own
    node. KERAS_DISTRIBUTION_* is set for a program that uses Keras' JAX backend.
    """

    name = "tensorflow"

    def program(self, intent: Intent, layout: Layout, context: BackendContext) -> RankProgram:
        """One task per rank. Raises InputError: roles that TensorFlow rejects, or too many ranks for a variable."""
        roles = {name: ranks for name, ranks in context.roles.items() if name in TYPES} if context.role in TYPES else {}
        _check(roles)
        ranks = sum(roles.values()) or layout.ranks
        check_size(ranks, ranks * SHORTEST)
        variables = {**UNBUFFERED, "TF_CONFIG": tf_config(context.role, roles), **KERAS, **direct_grpc(intent)}
        whose = f"task {context.role}" if roles else "one worker per rank, worker 0 is the chief"
        reasons = [Reason(("TF_CONFIG",), f"the addresses of all tasks, for tf.distribute: {whose}")]
        if layout.gpus_per_rank and layout.ranks_per_node > 1 and layout.gpu_visibility == "own":
            reasons.append(Reason(("gpu_visibility",), "TensorFlow takes all GPUs that it sees"))
        return RankProgram(
            layout, command(intent), variables, mpi=source.uses_mpi(intent)[0] is True, task_ports=True,
            reasons=tuple(reasons),
            findings=(*nested(intent, layout), *_of_source(intent, roles), *_endless(context, roles)),
        )  # fmt: skip


def tf_config(role: str = "", roles: Mapping[str, int] | None = None) -> str:
    """The JSON of TF_CONFIG; addresses and index are filled in on the node.

    The evaluator is not part of the cluster of the others, and is in its own one: TensorFlow looks its type up there.

    Args:
        role: the role whose tasks get it; empty: a job with one program.
        roles: the roles of the job that are one cluster; empty: the ranks of `role` are all workers.
    """
    own = role if roles else "worker"
    peers = [(name, f"STACKYARD_PEERS_{name.upper()}") for name in TYPES if name in (roles or ())]
    if not roles:
        peers = [("worker", f"STACKYARD_PEERS_{role.upper()}" if role else "STACKYARD_PEERS")]
    cluster = ",".join(f'"{name}":${{{variable}}}' for name, variable in peers if name != "evaluator" or own == name)
    return f'{{"cluster":{{{cluster}}},"task":{{"type":"{own}","index":${{RANK}}}}}}'


def _check(roles: Mapping[str, int]) -> None:
    """Raise InputError for a cluster that TensorFlow rejects, or waits for without end."""
    for name in ("chief", "evaluator"):
        if roles.get(name, 1) > 1:
            raise InputError(
                f"the role {name} has {roles[name]} ranks, and TensorFlow accepts one {name}",
                hint=f"give {name} nodes: 1 and ranks_per_node: 1",
            )
    lacks = [name for name in ("chief", "worker") if name not in roles]
    if "ps" in roles and lacks:
        raise InputError(
            f"the role ps has no role {' or '.join(lacks)}: ParameterServerStrategy needs a chief, which coordinates, "
            "and workers",
            hint="name the roles chief, worker and ps, each with a TensorFlow program (or backend: tensorflow)",
        )
    if set(roles) == {"evaluator"}:
        raise InputError(
            "the role evaluator is alone: TensorFlow's roles are chief, worker, ps and evaluator",
            hint="name the role that trains worker, with a TensorFlow program (or backend: tensorflow)",
        )


def _of_source(intent: Intent, roles: Mapping[str, int]) -> tuple[Finding, ...]:
    """Notes on what a program does with its cluster: its own resolver, and shards by task_id beside a chief."""
    findings: dict[str, Finding] = {}
    for file, tree in source.read(intent).trees.items():
        for node in ast.walk(tree):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            where = Where(file, getattr(node, "lineno", 0))
            if name == "SlurmClusterResolver":
                findings.setdefault(name, _slurm_resolver(where))
            if name == "task_id" and "chief" in roles and "worker" in roles:
                findings.setdefault(name, _twice(where))
    return tuple(findings.values())


def _slurm_resolver(where: Where) -> Finding:
    return Finding(
        "tensorflow-slurm-resolver", "note", "SlurmClusterResolver ignores TF_CONFIG",
        "it takes the ports from 8888 on, which other programs of the node may have, and nodes by their hostnames",
        "leave it out: MultiWorkerMirroredStrategy() reads TF_CONFIG, as does TFConfigClusterResolver()", where,
    )  # fmt: skip


def _twice(where: Where) -> Finding:
    return Finding(
        "tensorflow-task-id", "note", "task_id is 0 twice: of the chief and of worker 0",
        "two tasks that take their part of the data by task_id take the same one",
        "leave out the role chief (worker 0 is the chief then), or count the chief: task_id + (task_type == 'worker')",
        where,
    )  # fmt: skip


def _endless(context: BackendContext, roles: Mapping[str, int]) -> tuple[Finding, ...]:
    if context.serves or "ps" not in roles or context.role not in ("ps", "worker"):
        return ()
    return (
        Finding(
            "tensorflow-endless", "note", f"{context.role} may never end: ParameterServerStrategy leaves it waiting",
            "tf.distribute.Server.join() has no end, and the job goes on until its time limit",
            f"roles: {context.role}: serves: true, which ends it when the chief has ended",
        ),
    )  # fmt: skip
