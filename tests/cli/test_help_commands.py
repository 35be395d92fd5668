"""Every command that the help of a loaded module prints is typed in that shell, and does what it says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.yard.layout import Yard
from stackyard.yard.revision.revisions import mark
from support import modules, testbed
from support.cli import STACKYARD, stackyard
from support.sitechannels import longhorn_channels, mirrors
from support.wheelpkg import host_subdir

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[2] / "examples/longhorn"
COMMAND = re.compile(r"^ {4,}(\S.*?)(?: {3,}.*)?$", re.MULTILINE)
GIVEN = {"NAME": "six"}
"""What a user puts in the place of a word in capitals."""


class Bed:
    """A site's yard with a stack on the host's Python, one with conda, and a user's extension of the first."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.wheels = directory, testbed.wheels(testbed.HERE / "wheels.txt")
        self.environ = {
            "PATH": f"{STACKYARD.parent}:/usr/bin:/bin", "HOME": str(directory / "home"), "LANG": "C.UTF-8",
            "STACKYARD_HOME": str(directory / "mine"), "STACKYARD_SITE": str(directory / "site.yaml"),
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels),
        }  # fmt: skip
        (directory / "home").mkdir()
        channels = {"default": ["defaults"], "mirrors": mirrors(longhorn_channels())}
        site = {"yard": str(directory / "yard"), "modules": {"formats": ["lua", "tcl"]}, "channels": channels,
                "platforms": [host_subdir()]}  # fmt: skip
        (directory / "site.yaml").write_text(json.dumps(site))
        pip = ["--no-index", f"--find-links={self.wheels}", "idna"]
        own = {"help": "Its parts:\n    python -c 'import idna'\n"}
        value = {"name": "demo", "version": "1", "modules": own, "environment": {"dependencies": [{"pip": pip}]}}
        (directory / "demo.yaml").write_text(json.dumps({**value, "interpreter": "host"}))
        staff = ("--yard", directory / "yard", "deploy")
        self.run(*staff, directory / "demo.yaml")
        self.run(*staff, shutil.copy(EXAMPLE / "conda.yaml", directory))
        self.run("extend", "--name", "layer", "--base", "demo", "--pip", "six")

    def run(self, *words: str | Path) -> str:
        return stackyard("--site", self.directory / "site.yaml", *words, **self.environ).out

    def typed(self, system: str, lines: list[str], place: Path) -> str:
        """What a shell prints where the site's modules and the user's are found."""
        (yards,) = {row["yard"] for row in json.loads(self.run("list", "--json")) if row["stack"] == "layer"}
        start = [modules.initialise(system, "bash"), f"module use {yards}/modules {self.directory}/yard/modules"]
        own = {**self.environ, "HOME": str(place)}
        return modules.run("bash", "\n".join([*start, *lines]) + "\n", own, place, timeout_s=300)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    try:
        return Bed(tmp_path_factory.mktemp("help"))
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize(("name", "named"), [
    ("demo", ["stackyard show", "stackyard extend", "python -m venv", "pip install", "module unload", "python -c"]),
    ("layer", ["stackyard show", "pip install", "module unload"]),
    ("conda", ["stackyard show", "conda create", "conda activate", "module unload"]),
])  # fmt: skip
def test_every_command_works_in_the_loaded_module(
    bed: Bed, tmp_path: Path, system: str, name: str, named: list[str]
) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    lines = COMMAND.findall(bed.typed(system, [f"module help {name} 2>&1"], tmp_path))
    assert all(any(line.find(word) >= 0 for line in lines) for word in named), lines
    last = sorted(lines, key=lambda line: line.startswith("module unload"))  # it ends what the others need
    done = [f'eval {shlex.quote(as_typed(line))}\necho "$? of:" {shlex.quote(line)}' for line in last]
    out = bed.typed(system, [f"module load {name}", *done], tmp_path)
    status = dict(re.findall(r"^(\d+) of: (.*)$", out, re.MULTILINE)[number][::-1] for number in range(len(last)))
    assert status == dict.fromkeys(lines, "0"), out


def as_typed(line: str) -> str:
    for word, value in GIVEN.items():
        line = re.sub(rf"\b{word}\b", value, line)
    return line


def test_a_module_with_python_2_names_no_environment_of_python_3(tmp_path: Path) -> None:
    """It has no venv, and cannot be extended."""
    from stackyard.expose.modulefiles.lua import render
    from stackyard.inputs.models import Site
    from support import stackrecords

    texts = []
    for version in ("2.7.18", "3.11.4"):
        record = stackrecords.record(Yard(tmp_path), "old", "1", interpreter={"source": "conda", "version": version})
        mark(record)
        texts.append(render(record, Site()))
    assert [("-m venv" in text, "stackyard extend" in text) for text in texts] == [(False, False), (True, True)]
    assert all("stackyard show" in text for text in texts)
