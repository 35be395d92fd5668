"""Programs that start ranks themselves: torchrun and accelerate once per node, others refused with the line to type.

Each task of a step would start all ranks again, and each set of them would train alone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from stackyard.core.errors import InputError, cause
from stackyard.core.findings import Finding, counted
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends.base import of_torch
from stackyard.launch.plan.model import RankProgram, Reason
from stackyard.launch.request import starters
from stackyard.launch.request.intent import Intent
from stackyard.launch.request.options import Option
from stackyard.launch.request.starters import Starter

PER_NODE = {"torchrun": ("nnodes", "nproc_per_node"), "accelerate": ("num_machines", "num_processes")}
"""Starters that run once per node, and their options for the nodes and for the ranks: of a node, or of all nodes."""
_OURS = {
    "torchrun": "nnodes nproc_per_node node_rank rdzv_id rdzv_backend rdzv_endpoint rdzv_conf master_addr master_port "
    "standalone local_addr",
    "accelerate": "num_machines num_processes machine_rank main_process_ip main_process_port same_network rdzv_backend "
    "rdzv_conf deepspeed_multinode_launcher deepspeed_hostfile",
}
"""Options for which the values of the job replace what was typed."""
_BACKENDS = {"deepspeed": "deepspeed", "horovodrun": "horovod", "mpirun": "mpi", "ray": "ray"}
_KINDS = {"multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm"}
"""Options of accelerate, each for ranks that torch's agent starts on every node; without one it may start one rank."""
_CONFIGURED = re.compile(r"""distributed_type["']?:\s*["']?(MULTI_(?!CPU)\w+|DEEPSPEED|FSDP|MEGATRON_LM)""")
_LARGEST = 1_000_000
_SCHEDULERS = ("srun", "jsrun", "aprun", "flux")
_SHELL = re.compile(r"(?:ba|da|z|k)?sh")


def per_node(intent: Intent) -> Starter | None:
    """The program's starter, if it is to run once per node: the backend was not named, or names torchrun."""
    found = starters.find(intent.program) if intent.backend in ("auto", "torchrun") else None
    return found if found and found.kind in PER_NODE else None


def settled(intent: Intent) -> Intent:
    """The intent with the ranks per node that the program's own options name, unless it has a number itself."""
    found = None if intent.ranks_per_node else per_node(intent)
    ranks = _ranks(found, intent.nodes) if found else None
    return intent.model_copy(update={"ranks_per_node": ranks}) if ranks else intent


def program(intent: Intent, layout: Layout, found: Starter) -> RankProgram:
    """One task per node: the starter with its own options, and size and rendezvous of the job.

    The rendezvous is static, with the node rank and the reserved port, as of ``--torchrun`` (`torchrun --help`;
    accelerate/utils/launch.py, 1.15: ``--same_network`` makes it static).

    Raises:
        InputError: the options contradict the job, or accelerate would start one rank on each node.
    """
    _check(intent, layout, found)
    options = found.reading.options
    kept = [option for option in options if option.name not in _OURS[found.kind].split()]
    ours = _accelerate(intent, layout, found, kept) if found.kind == "accelerate" else agent_options(layout)
    if found.kind == "torchrun" and not any(option.name == "max_restarts" for option in kept):
        ours = (*ours, "--max-restarts=0")
    own = tuple(word for option in kept for word in found.typed(option))
    typed = tuple(word for option in options if option not in kept for word in found.typed(option))
    head = ("python", *found.head) if found.head[0] == "-m" else found.head
    reasons = [
        Reason(head, f"starts the {counted(layout.ranks_per_node, 'rank')} of its node"),
        Reason(ours, "size, node rank, address and reserved port of the job"),
        Reason(own, "as typed"),
        Reason(typed, "typed, and replaced by those of the job"),
    ]
    return RankProgram(
        layout.per_node(), (*head, *own, *ours, *found.reading.rest), of_torch(layout),
        ranks_per_task=layout.ranks_per_node, reasons=tuple(reason for reason in reasons if reason.words),
    )  # fmt: skip


def _check(intent: Intent, layout: Layout, found: Starter) -> None:
    """Raise InputError where the starter's program is unknown, or its own sizes are not those of the job."""
    if found.reading.doubtful or not found.reading.rest:
        unknown = next((option.written for option in found.reading.options if not option.name), "")
        why, hint = "no program given", "name it after the options"
        if unknown:
            why, hint = f"--{unknown} is not a known option", f"write it as --{unknown}=VALUE"
        raise InputError(f"cannot tell what {found.name} starts: {why}", hint=hint)
    nodes, ranks = PER_NODE[found.kind]
    typed, number = found.reading.get(nodes), _ranks(found, layout.nodes)
    if typed not in (None, str(layout.nodes), f"{layout.nodes}:{layout.nodes}") and not intent.least_nodes:
        hint = f"leave out --{nodes}: stackyard launch -N NODES, or -N MIN:MAX, says it"
        raise InputError(f"{found.name} is to start on {typed} nodes, but the job has {layout.nodes}", hint=hint)
    if number not in (None, layout.ranks_per_node):
        raise InputError(
            f"{found.name} is to start {number} ranks per node, but the job has {layout.ranks_per_node}",
            hint=f"use -r {number}, or leave out --{ranks}",
        )


def _ranks(found: Starter, nodes: int) -> int | None:
    """The ranks per node by the starter's own options; None without a number (torchrun: also auto, gpu, cpu)."""
    number = found.count(PER_NODE[found.kind][1])
    if number is None or found.kind == "torchrun":
        return number
    if number % nodes:
        hint = "leave out --num_processes, and use -r for the ranks per node"
        raise InputError(f"accelerate launch cannot start {number} ranks evenly on {nodes} nodes", hint=hint)
    return number // nodes


def agent_options(layout: Layout) -> tuple[str, ...]:
    """Size and static rendezvous of the job, for torchrun on each node."""
    return (
        f"--nnodes={layout.nodes}", f"--nproc-per-node={layout.ranks_per_node}", "--node-rank=${NODE_RANK}",
        "--master-addr=${MASTER_ADDR}", "--master-port=${MASTER_PORT}",
    )  # fmt: skip


def _accelerate(intent: Intent, layout: Layout, found: Starter, kept: Sequence[Option]) -> tuple[str, ...]:
    given = {option.name for option in kept}
    if alone := given & {"cpu", "tpu"}:
        size = f"{'--env ACCELERATE_USE_CPU=true ' * ('cpu' in alone)}-N {layout.nodes} -r {layout.ranks_per_node}"
        raise InputError(
            f"accelerate launch --{alone.pop()} starts one rank per node, each of which would train alone",
            hint=f"type: stackyard launch {size} {_shown(found)}",
        )
    kind = _configured(Path(intent.cwd or "."), [option.value for option in kept if option.name == "config_file"])
    return (
        *(() if given & _KINDS or kind or layout.ranks == 1 else ("--multi_gpu",)),
        f"--num_machines={layout.nodes}", f"--num_processes={layout.ranks}", "--machine_rank=${NODE_RANK}",
        "--main_process_ip=${MASTER_ADDR}", "--main_process_port=${MASTER_PORT}", "--same_network",
        *(("--deepspeed_multinode_launcher=standard",) if "use_deepspeed" in given or kind == "DEEPSPEED" else ()),
    )  # fmt: skip


def _configured(cwd: Path, named: Sequence[str]) -> str:
    """The kind of ranks in a configuration of accelerate, if it is one that torch's agent starts; else empty.

    Without a file named, accelerate reads its default one (accelerate/commands/config/config_args.py).
    """
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    file = cwd / named[-1] if named else home / "accelerate" / "default_config.yaml"
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            match = _CONFIGURED.search(text.read(_LARGEST))
    except FileNotFoundError:
        return ""  # accelerate reports it, if it was named
    except OSError as error:
        raise InputError(f"cannot read {file}: {cause(error)}", hint="it configures accelerate launch") from error
    return match[1] if match else ""


def nested(intent: Intent, layout: Layout) -> tuple[Finding, ...]:
    """A refusal if the program itself is a launcher: every rank would start all ranks, in a world of its own.

    Only a warning if the backend was named, then it may be intended, or for a scheduler's launcher with one rank.
    """
    words = intent.program
    first, found, remedy = Path(words[0]).name if words else "", starters.find(words), ""
    if found:
        remedy = f"type: stackyard launch --backend {_BACKENDS.get(found.kind, 'torchrun')} {_line(found, layout)}"
    elif _SHELL.fullmatch(first) and re.fullmatch(r"-\w*c", "".join(words[1:2])):
        found = next(filter(None, map(starters.find, _commands("".join(words[2:3])))), None)
        remedy = "pass it without the shell" if found else ""
    elif first in _SCHEDULERS:
        remedy = "pass only the program that it starts"
    if not remedy:
        return ()
    refused = intent.backend == "auto" and (found is not None or layout.ranks > 1)
    return (
        Finding(
            "launcher-in-launch", "refused" if refused else "warning",
            f"the program is {found.name if found else first}, which starts ranks itself",
            "each task would start all ranks again", f"{remedy}; or name the backend yourself: --backend any",
        ),
    )  # fmt: skip


def _commands(text: str) -> list[tuple[str, ...]]:
    """The simple commands of a shell's text, as far as words and separators tell."""
    return [tuple(part.split()) for part in re.split(r"[;|&\n]+", text)]


def _line(found: Starter, layout: Layout) -> str:
    """Nodes, ranks, variables and program by a starter's own options; its other options are named."""
    options = found.reading.options
    if found.reading.doubtful or not found.reading.rest or ":" in found.reading.rest:
        return "-N NODES -r RANKS-PER-NODE PROGRAM"
    nodes, total = found.count("num_nodes") or layout.nodes, found.count("np")
    each = found.count("ppn") or found.count("num_gpus") or (total // nodes if total and total % nodes == 0 else None)
    values = [f"--env {shlex.quote(option.value)}" for option in options if option.name in ("x", "env")]
    used = ("np", "ppn", "num_nodes", "num_gpus", "x", "env", "module", "allow-run-as-root", "oversubscribe")
    left = [word for option in options if option.name not in used for word in found.typed(option)]
    without = [f"(without {shlex.join(left)})"] if left else []
    return " ".join((f"-N {nodes} -r {each or layout.ranks_per_node}", *values, _shown(found), *without))


def _shown(found: Starter) -> str:
    """The program of a starter as a launch takes it."""
    module = any(option.name == "module" for option in found.reading.options)
    return "-m " * module + shlex.join(found.reading.rest)
