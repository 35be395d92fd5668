"""Every block of commands in docs/tutorial and docs/howto is typed as it is written, or has a reason why not.

A block is in a scene of `scenes`, which types it; or in `COVERED`, where another test types its lines; or in
docs/not-run.txt. Directories of a page are below the test's own; names of channels and registries are stand-ins.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from covered import COVERED
from scene import NOT_RUN, PAGES, Scene, every_block
from scenes import SCENES

from stackyard.core.errors import MissingError
from support import fences, modules
from support.desk import Desk, Ended, differs
from support.fences import Command

ROOT = NOT_RUN.parents[1]


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
    expected = scene.ends.get(command.line, (done.status if done.status and fails else int(fails)))
    fits = done.status in (expected if isinstance(expected, tuple) else (expected,))
    why = "" if fits else f"status {done.status}"
    if missed := differs(done.printed, shown):
        why += f" lacks {missed!r}"
    return f"$ {done.line}\n{done.printed}\n-> {why}" if why else ""


# --------------------------------------------------------------------------- each block is somewhere

LISTED = re.compile(r"(\S+#\d+): (\S.*)")
MOST_LISTED = 40
GROUPS = ("image", "bindings", "runs", "kernel", "bench imports", "bench collectives")
TOOLS = ("cp", "srun", "salloc")


def not_run() -> dict[str, str]:
    """The blocks of docs/not-run.txt, with their reasons."""
    lines = [line for line in NOT_RUN.read_text().splitlines() if line and not line.startswith("#")]
    found = [LISTED.fullmatch(line) for line in lines]
    assert all(found), f"a line of {NOT_RUN.name} is not `page.md#number: reason`"
    return {match[1]: match[2] for match in found if match}


def test_each_block_is_typed_or_has_a_reason() -> None:
    typed = [name for scene in SCENES for name in scene.names]
    listed = [*typed, *COVERED, *not_run()]
    names = [block.name for block in every_block()]
    missing = [name for name in names if name not in listed]
    assert not missing, f"type them in a scene of tests/pages, or give a reason in docs/{NOT_RUN.name}: {missing}"
    twice = {name for name in listed if listed.count(name) > 1}
    gone = [name for name in listed if name not in names]
    assert not twice and not gone
    assert len(not_run()) <= MOST_LISTED


def test_each_block_says_what_language_it_is_in() -> None:
    """Or commands in it would not be typed."""
    assert [page for page, path in PAGES.items() if "" in fences.languages(path)] == []


@pytest.mark.parametrize("name", COVERED)
def test_another_test_types_the_lines_of_a_block(name: str) -> None:
    texts = []
    for place in COVERED[name]:
        path, _, test = place.partition("::")
        text = (ROOT / path).read_text()
        assert not test or f"def {test}(" in text, place
        texts.append(text)
    (block,) = (each for each in every_block() if each.name == name)
    words = {word for command in block.commands for word in essential(command.line)}
    assert words
    assert not (lost := {word for word in words if not any(word in text for text in texts)}), lost


def essential(line: str) -> set[str]:
    """What makes a command line what it is: its verbs and programs, and its options."""
    found: set[str] = set()
    for part in line.split(" && "):
        words = part[max(part.find("stackyard "), 0) :].split()
        verbs = words[1:] if words[0] == "stackyard" else words
        grouped = verbs[0] in GROUPS or " ".join(verbs[:2]) in GROUPS
        found |= {Path(word).name for word in verbs[: 2 if grouped else 1] if not word.startswith("-")}
        found |= {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
    return found - {*TOOLS}
