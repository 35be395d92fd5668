"""What messages, remedies and pages tell people to type exists: parsed by the commands' own parsers."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from stackyard.cli.main import cli
from stackyard.cli.study import bench
from stackyard.launch.run.causes.table import rules

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "stackyard").rglob("*.py"))
PAGES = sorted(
    {*(ROOT / "docs").glob("*/*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")}
    - {*ROOT.glob("docs/design/*")}
)
"""All but those about plans."""
COMMAND = re.compile(r"stackyard(?= )((?: (?:[^\s`|;&()\"#]|\"[^\"]*\")+)+)")
FOREIGN = {
    "--project": "julia",
    "--mem": "srun",
    "--latency-wait": "snakemake",
    "--mpi": "srun", "--overlap": "srun", "--nodelist": "srun", "--smpiargs": "jsrun", "--binding-args": "horovodrun",
    "--shm-size": "podman", "--offload-arch": "hipcc", "--host": "mpirun", "--hostfile": "mpirun",
    "--all": "conda", "--cgroups": "podman", "--clear-execstack": "patchelf", "--cpus-per-task": "srun",
    "--export": "srun", "--force-reinstall": "pip", "--no-cache-dir": "pip", "--verbose": "pip", "--help": "sbatch",
    "--ipc": "docker", "--kokkos-num-devices": "a program with Kokkos", "--map-by": "mpirun", "--num-gpus": "ray",
    "--nv": "apptainer", "--version": "mpirun",
}  # fmt: skip
"""Options in remedies that are other programs'."""


def texts(file: Path) -> Iterator[str]:
    """The strings of a source file, docstrings included; what is filled in stands as X."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def named(text: str) -> Iterator[str]:
    """The commands in a text: in backquotes (also over a line's end), and on lines to copy."""
    for part in re.findall(r"`([^`]+)`", re.sub(r"(?ms)^\s*```.*?^\s*```", "", text)):
        joined = " ".join(part.split())
        if joined.startswith("stackyard "):
            yield joined
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(r"\s*(?:\$ |hint: |launch: )?stackyard ", line):
            yield from (f"stackyard{found}" for found in COMMAND.findall(line)[:1])


def problem(command: str) -> str:
    """Why a command cannot be typed like this, values aside; empty where it can."""
    try:
        words = shlex.split(command.partition(" #")[0].partition(" | ")[0].partition(" > ")[0].replace("...", "X"))[1:]
    except ValueError as error:
        return str(error)
    made: click.Command = cli
    if words[:1] == ["bench"] and words[1:2] and words[1] in bench.PARTS:
        made, words = import_module(f"stackyard.cli.study.{words[1]}").command, words[2:]
    while True:
        ctx = click.Context(made, **made.context_settings)
        if isinstance(made, click.Group):
            ctx.allow_interspersed_args = False
        try:
            _, words, _ = made.make_parser(ctx).parse_args(list(words))
        except click.BadOptionUsage as error:
            return "" if "requires an argument" in error.message else error.message
        except click.UsageError as error:
            return error.message
        if not isinstance(made, click.Group) or not words or not re.fullmatch(r"[a-z]+", words[0]):
            return ""
        below = made.get_command(ctx, words[0])
        if below is None:
            return "" if made is not cli else f"no such verb: {words[0]}"
        made, words = below, words[1:]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_commands_of_a_page_parse(file: Path) -> None:
    found = {command: problem(command) for command in named(file.read_text(encoding="utf-8"))}
    assert {command: why for command, why in found.items() if why} == {}


def test_the_commands_of_messages_parse() -> None:
    commands = {command for file in SOURCES for text in texts(file) for command in named(text)}
    assert len(commands) > 20
    assert {command: why for command in commands if (why := problem(command))} == {}


def test_the_options_of_remedies_are_options() -> None:
    """Of `launch` or `submit`, or of another program that the remedy is about."""
    verbs = [cli.get_command(click.Context(cli), verb) for verb in ("launch", "submit")]
    ours = {word for verb in verbs if verb for param in verb.params for word in (*param.opts, *param.secondary_opts)}
    named_options = {
        (rule.name, word) for rule in rules() for word in re.findall(r"(?<![\w=-])(--[a-z][\w-]*)", rule.remedy)
    }
    assert {(rule, word) for rule, word in named_options if word not in ours | FOREIGN.keys()} == set()
    told = {
        (rule.name, command): problem(f"stackyard{command}")
        for rule in rules()
        for command in COMMAND.findall(rule.remedy)
    }
    assert {key: why for key, why in told.items() if why} == {}
