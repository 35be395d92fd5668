"""A function of a Python program as the program of a job: pickled into the run directory, validated before submission.

`stackyard.launch.node.call` describes the files, and is the program of the ranks.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import InputError, MissingError
from stackyard.core.secrets import is_secret
from stackyard.host.run.command import run as run_command
from stackyard.inputs.stacks.naming import safe
from stackyard.launch.jobs.batch import batch_script
from stackyard.launch.jobs.job import Job
from stackyard.launch.jobs.recording import Run, record_run
from stackyard.launch.node import call as rank_call
from stackyard.launch.records.naming import new_run, next_run
from stackyard.launch.records.paths import RunPaths

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""
PROBE = """
import sys
print(*sys.version_info[:2], sys.executable)
import cloudpickle
"""
PROBE_S = 120.0
SHORTEST_SECRET = 8
"""A shorter value is not searched for, since it would match unrelated bytes."""


@dataclass(frozen=True)
class Call:
    """A pickled function, and the pickled calls of each task. `name` is safe in file names."""

    name: str
    function: bytes
    arguments: tuple[bytes, ...]
    path: tuple[str, ...]


def pickled(function: Callable[..., Any], tasks: Sequence[Sequence[Arguments]], environ: Mapping[str, str]) -> Call:
    """A function and the calls of each task, pickled for the job.

    Args:
        environ: the environment variables of your shell; none of their secret values may be sent.

    Raises:
        MissingError: cloudpickle is not installed.
        InputError: something cannot be pickled, or contains the value of a secret variable.
    """
    dumps = _dumps()
    call = Call(
        safe(getattr(function, "__name__", type(function).__name__).strip("<>")) or "call",
        _one(dumps, function, "the function"),
        tuple(_one(dumps, list(calls), "the arguments") for calls in tasks),
        tuple(_own_path()),
    )
    for content in (call.function, *call.arguments):
        _refuse_secrets(content, environ)
    return call


def _dumps() -> Callable[[Any], bytes]:
    try:
        from cloudpickle import dumps
    except ImportError as error:
        raise MissingError(
            "cloudpickle not found: functions are sent with it", hint='pip install "stackyard[python-api]"'
        ) from error
    pickler: Callable[[Any], bytes] = dumps
    return pickler


def _one(dumps: Callable[[Any], bytes], value: Any, what: str) -> bytes:
    try:
        return dumps(value)
    except Exception as error:
        hint = "make what cannot be pickled (locks, open files, connections) within the function"
        raise InputError(f"cannot pickle {what}: {type(error).__name__}: {error}", hint=hint) from error


def _refuse_secrets(content: bytes, environ: Mapping[str, str]) -> None:
    for name, value in environ.items():
        if len(value) >= SHORTEST_SECRET and is_secret(name, value) and value.encode("utf-8", "replace") in content:
            raise InputError(
                f"the function or its arguments contain the value of {name}, which would be written to a file",
                hint=f'read it in the function, os.environ["{name}"], and pass it on with passed=("{name}",)',
            )


def _own_path() -> list[str]:
    """The directories of `sys.path` outside of the installation, absolute."""
    roots = {Path(root).resolve() for root in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    paths = [Path(entry or ".").absolute() for entry in sys.path]
    return [str(path) for path in paths if path.is_dir() and not any(map(path.resolve().is_relative_to, roots))]


def check_python(job: Job, python: str) -> None:
    """Raise an error if the Python of the ranks cannot run a function of this one; containers are not checked.

    Raises:
        MissingError: no such Python there, or it lacks cloudpickle.
        InputError: its version differs.
    """
    if job.intent.container or (python == sys.executable and not job.intent.stack):
        return
    environ = job.context.stack.change.apply(job.workspace.environ)
    where = f"stack {job.intent.stack}" if job.intent.stack else python
    done = run_command([python, "-c", PROBE], env=environ, timeout_s=PROBE_S, check=False)
    version, own = done.stdout.split()[:2], [str(number) for number in sys.version_info[:2]]
    if len(version) < 2:
        raise MissingError(f"the Python of {where} does not start", detail=done.output)
    if version != own:
        raise InputError(
            f"the Python of {where} is {'.'.join(version)}, this one is {'.'.join(own)}: functions are pickled as byte "
            "code of one version",
            hint=f"use Python {'.'.join(version)} here, or launch a script instead of a function",
        )
    if done.returncode:
        hint = "add cloudpickle to the stack" if job.intent.stack else f"{python} -m pip install cloudpickle"
        raise MissingError(f"cloudpickle not found in the Python of {where}", hint=hint, detail=done.output)


def call_program(paths: RunPaths, call: Call, python: str) -> tuple[str, ...]:
    """The program of each rank."""
    return (python, str(directory_of(paths) / f"call-{call.name}.py"))


def directory_of(paths: RunPaths) -> Path:
    """The directory of the function, its arguments and its results."""
    return paths.root / "call"


def results_of(paths: RunPaths, index: str) -> Path:
    """The directory of the results of a run, or of a task of an array."""
    return directory_of(paths) / (f"results-{index}" if index else "results")


def record_call(job: Job, call: Call, how: Literal["launch", "submit"], *, python: str) -> Run:
    """Record a job whose ranks call a function: its run directory with the function, its arguments, its record.

    Raises:
        InputError, MissingError: the job cannot be planned; nothing is written then.
        StackyardError: the run directory cannot be created.
    """
    _for(job, next_run(job.workspace.runs), call, python).plan(head=how == "submit")
    paths = new_run(job.workspace.runs)
    _write(paths, call, is_array=bool(job.intent.batch.array))
    job = _for(job, paths, call, python)
    plan = job.plan(head=how == "submit")
    return record_run(Run(job, paths, plan, batch_script(job, plan, paths) if how == "submit" else ""), how)


def _for(job: Job, paths: RunPaths, call: Call, python: str) -> Job:
    return replace(job, intent=job.intent.model_copy(update={"program": call_program(paths, call, python)}))


def _write(paths: RunPaths, call: Call, *, is_array: bool) -> None:
    """Write the files of the function; only their owner may read them."""
    directory = directory_of(paths)
    directory.mkdir(mode=0o700)
    shutil.copyfile(rank_call.__file__, directory / f"call-{call.name}.py")
    about = json.dumps({"python": list(sys.version_info[:2]), "path": list(call.path)})
    _keep(directory / "call.json", about.encode())
    _keep(directory / "function.pkl", call.function)
    for number, content in enumerate(call.arguments, 1):
        _keep(directory / (f"arguments-{number}.pkl" if is_array else "arguments.pkl"), content)


def _keep(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
