"""The keyword arguments of the Python API, which are the keys of a job file and of its ``batch:``, as an `Intent`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

from stackyard.core.hints import did_you_mean
from stackyard.launch.request.intent import BatchOptions, Intent, made

__all__ = ["OptionFields", "Path", "Word", "as_call", "intent_of"]

Word = str | os.PathLike[str] | int | float
"""A word of a program's command line."""
Path = str | os.PathLike[str]


class OptionFields(TypedDict, total=False):
    """The fields of `Intent` but the program, and those of `BatchOptions`; docs/reference/jobfile.md explains them."""

    roles: Mapping[str, Mapping[str, Any]]
    nodes: int
    least_nodes: int
    hosts: Sequence[str]
    ranks_per_node: int | None
    cores_per_rank: int | None
    threads_per_rank: int | None
    gpus_per_rank: int | None
    smt: int
    gpu_visibility: Literal["auto", "all", "own"]
    distribution: Literal["block", "cyclic"]
    straddle: bool
    oversubscribe: bool
    node_kind: str
    backend: str
    direct: bool
    mpi_abort: bool
    controller: Literal["auto", "mpi", "gloo"]
    start_method: Literal["", "fork", "forkserver", "spawn"]
    launcher: str
    launcher_args: Sequence[str]
    stack: str
    container: Path | str
    runtime: str
    mounts: Sequence[str]
    workdir: Path | str
    container_options: Sequence[str]
    stage: Sequence[Path]
    profile: Sequence[str]
    check: bool
    spare: int
    restarts: int
    world_check: bool | None
    hang_min: float
    logs: Literal["auto", "all", "node", "first"]
    start_s: float | None
    lost_s: float | None
    grace_s: float | None
    variables: Mapping[str, str]
    passed: Sequence[str]
    prologue: Sequence[str]
    cwd: Path
    time_min: float
    account: str
    queue: str
    qos: str
    constraint: str
    reservation: str
    dependency: str
    mail: str
    mail_events: Sequence[Literal["begin", "end", "fail"]]
    name: str
    output: Path
    array: str
    requeue: bool
    signal_s: int
    memory_gib: float
    exclusive: bool | None
    local_disk: bool
    pack: Literal["", "racks"]
    scheduler_args: Sequence[str]


def intent_of(program: Sequence[Word], options: OptionFields, **defaults: Any) -> Intent:
    """The request of a call.

    Args:
        defaults: fields that count where `options` have none.

    Raises:
        TypeError: a name is unknown.
        InputError: a value is wrong.
    """
    for name in options:
        if name not in OptionFields.__annotations__:
            question = did_you_mean(name, OptionFields.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}{'; ' if question else ''}{question}")
    if options.get("roles"):  # they have the nodes
        defaults.pop("nodes", None)
    values = {**defaults, **{name: _plain(value) for name, value in cast(dict[str, Any], options).items()}}
    batch = {name: values.pop(name) for name in list(values) if name in BatchOptions.model_fields}
    words = {"program": tuple(map(str, map(_plain, program)))} if program else {}
    return made(Intent, {**values, **words, "batch": batch}, lambda key: key.removeprefix("batch."))


def as_call(how: str, intent: Intent) -> tuple[str, ...]:
    """A call of the Python API as a command line, which records and scripts have; without values that may be secret."""
    plain = intent.recorded().model_dump(exclude_defaults=True)
    options = {**plain, **plain.pop("batch", {})}
    words = [*map(repr, options.pop("program", ())), *(f"{k}={v!r}" for k, v in options.items() if k != "batch")]
    return ("python", "-c", f"import stackyard; stackyard.{how}({', '.join(words)})")


def _plain(value: Any) -> Any:
    """Paths as text, in lists too."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else value
