"""Repeats a recorded run: its request, its revision, and the environment variables of its shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.launch.records.find import handle
from stackyard.launch.records.origin import code_state
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, read_run
from stackyard.launch.request.intent import Intent, made, recorded_intent, with_variables

NOT_RESTORED = ("SLURM_CONF",)
CODE = {"program_sha256": "the program", "commit": "the commit", "changes_sha256": "the local changes"}


@dataclass(frozen=True)
class Repeat:
    """A run to repeat.

    Attributes:
        intent: the recorded request; `with_changes` adds to it.
        revision: the directory of the exact revision that it used, or empty.
        environ: the recorded environment variables, to be set before the job is made.
        notices: sentences about differences from the recorded run.
    """

    run: RunPaths
    intent: Intent
    revision: str
    environ: dict[str, str]
    notices: tuple[str, ...]


def repeat(paths: RunPaths, environ: Mapping[str, str]) -> Repeat:
    """The data needed to repeat a run.

    Only environment variables that a job needs were recorded: PATH, LD_LIBRARY_PATH, NCCL_... and the like.

    Args:
        environ: the environment variables of your shell now.

    Raises:
        InputError: the run was a deploy, or a job of a study.
    """
    record = read_run(paths)
    if record.how == "deploy":
        raise InputError(f"run {paths.name} was a deploy", hint="use `stackyard deploy --on` again")
    if record.how == "bench":
        raise InputError(f"run {paths.name} is a job of a study", hint="use `stackyard bench --continue DIRECTORY`")
    intent = recorded_intent(record.intent, paths.record)
    if not intent.cwd:
        intent = intent.model_copy(update={"cwd": record.code.get("folder", "")})
    shell = {k: v for k, v in record.environment.get("shell", {}).items() if k not in NOT_RESTORED}
    return Repeat(paths, intent, record.stack.get("folder", ""), shell, tuple(_notices(paths, record, shell, environ)))


def with_changes(again: Repeat, changes: Intent) -> Repeat:
    """The run with the fields in `changes` replaced; a stack named there is resolved again."""
    changed = changes.model_dump(exclude_unset=True)
    batch = {**again.intent.batch.model_dump(), **changed.pop("batch", {})}
    changed |= with_variables(again.intent, changed.get("variables", {}), changed.get("passed", ()))
    merged = {**again.intent.model_dump(), **changed, "batch": batch}
    revision = "" if changed.get("stack") else again.revision
    return replace(again, intent=made(Intent, merged), revision=revision)


def _notices(paths: RunPaths, record: RunRecord, shell: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Sentences about differences between the recorded run and now."""
    different = sorted(name for name, value in shell.items() if environ.get(name) != value)
    said = [f"restored from run {paths.name}, different in this shell: {', '.join(different)}"] if different else []
    code = code_state(Path(record.code.get("folder", ".")), record.program)
    for key, what in CODE.items():
        if record.code.get(key) != code.get(key):
            command = f"`stackyard runs diff {handle(paths)} last`"
            said.append(f"{what} changed since run {paths.name}: {command} shows it afterwards")
    return said
