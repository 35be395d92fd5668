"""Every block of commands in docs/tutorial and docs/howto is typed as it is written, or has a reason why not.

A block is in a scene of `scenes`, which types it; or in `COVERED`, where another test types its lines; or in
docs/not-run.txt. Directories of a page are below the test's own; names of channels and registries are stand-ins.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from scene import Scene
from scenes import SCENES

from stackyard.core.errors import MissingError
from support import modules
from support.desk import Desk, Ended, differs
from support.fences import Command


@pytest.mark.real
@pytest.mark.parametrize(
    "scene", [pytest.param(each, id=each.name, marks=[pytest.mark.long] if each.long else []) for each in SCENES]
)
def test_what_a_page_types(scene: Scene, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if why := modules.missing("lmod", "bash"):
        pytest.skip(why)
    desk = Desk(request.getfixturevalue("common") if scene.shared else tmp_path, scene.places)
    if scene.nodes:
        desk.environ |= request.getfixturevalue("slurm").env
    commands = list(scene.commands())
    try:
        with scene.prepare(desk):
            ended = desk.typed([command.line for command in commands])
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail or error.hint}")
    wrong = [_wrong(scene, *pair) for pair in zip(commands, ended, strict=True)]
    assert not any(wrong), "\n\n".join(filter(None, wrong))


def _wrong(scene: Scene, command: Command, done: Ended) -> str:
    """What a page does not say of a line; empty where all is as it says. A shown error is a line that fails."""
    shown = [line for line in command.output if not line.startswith(tuple(scene.other))]
    fails = any(line.startswith("error:") for line in shown)
    expected = scene.ends.get(command.line)
    fits = done.status == expected if expected is not None else bool(done.status) == fails
    why = "" if fits else f"status {done.status}"
    if missed := differs(done.printed, shown):
        why += f" lacks {missed!r}"
    return f"$ {done.line}\n{done.printed}\n-> {why}" if why else ""
