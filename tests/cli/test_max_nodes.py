"""A stack that may run on a few nodes only, as by its licence: every verb that asks for nodes refuses more of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import testbed
from support.cli import Done, stackyard

pytestmark = pytest.mark.real

REASON = "DDL of PowerAI is licensed for four nodes; beyond them PowerAI Enterprise is needed"
SITE = """\
yard: {yard}
modules: {{formats: [tcl]}}
nodes: {{n: {{cores: 4}}}}
scheduler: {{kind: slurm}}
"""


class Bed:
    """A yard with the stack, and an extension of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.site = directory / "site.yaml"
        self.site.write_text(SITE.format(yard=directory / "yard"))
        pip = ["--no-index", f"--find-links={testbed.wheels(testbed.HERE / 'wheels.txt')}", "idna"]
        value = {"name": "powerai", "version": "1", "max_nodes": {"count": 4, "reason": REASON},
                 "interpreter": "host", "environment": {"dependencies": [{"pip": pip}]}}  # fmt: skip
        (directory / "stack.yaml").write_text(json.dumps(value))
        (directory / "more.txt").write_text("\n".join([*pip[:2], "six"]))
        (directory / "train.py").write_text("print('hello')\n")
        self.run("deploy", directory / "stack.yaml")
        self.run("extend", "--name", "mine", "--base", "powerai", "-r", directory / "more.txt")

    def run(self, *words: str | Path, expect: int = 0, **variables: str) -> Done:
        own = ("--site", self.site, "--yard", self.directory / "yard")
        return stackyard(*own, *words, expect=expect, cwd=self.directory, **variables)

    def loaded(self, name: str) -> dict[str, str]:
        """The variables of the module system in a shell that has loaded this."""
        (module,) = (row["module"] for row in self.run("list", "--json").value if row["stack"] == name)
        return {"LOADEDMODULES": f"gcc/12:{module}",
                "_LMFILES_": f"/opt/modules/gcc/12:{self.directory}/yard/modules/{module}"}  # fmt: skip


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    try:
        return Bed(tmp_path_factory.mktemp("nodes"))
    except MissingError as error:
        pytest.skip(str(error))


VERBS = {"launch": ("launch", "--dry-run"), "submit": ("submit", "--dry-run"), "explain": ("explain",)}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("stack", ["powerai", "mine"])
def test_more_nodes_are_refused_with_the_reason_of_the_file(bed: Bed, verb: str, stack: str) -> None:
    refused = bed.run(*VERBS[verb], "-N", "8", "-r", "1", "--with", stack, "train.py", expect=2)
    assert f" runs on 4 nodes at most, 8 are requested: {REASON}" in refused.err and f"{stack}/1-" in refused.err
    assert "hint: request -N 4, or fewer" in refused.err
    bed.run(*VERBS[verb], "-N", "4", "-r", "1", "--with", stack, "train.py")


@pytest.mark.parametrize("verb", ["submit", "explain"])
def test_a_range_is_judged_by_its_largest_number(bed: Bed, verb: str) -> None:
    refused = bed.run(*VERBS[verb], "-N", "2:8", "-r", "1", "--with", "powerai", "train.py", expect=2)
    assert "8 are requested" in refused.err and "request -N 2:4" in refused.err
    bed.run(*VERBS[verb], "-N", "2:4", "-r", "1", "--with", "powerai", "train.py")


@pytest.mark.parametrize("verb", VERBS)
def test_a_loaded_module_counts_as_well(bed: Bed, verb: str) -> None:
    words = (*VERBS[verb], "-N", "8", "-r", "1", "train.py")
    assert REASON in bed.run(*words, expect=2, **bed.loaded("powerai")).err
    assert REASON in bed.run(*words, expect=2, **bed.loaded("mine")).err
    bed.run(*words)


def test_show_has_it(bed: Bed) -> None:
    assert f"at most 4: {REASON}" in " ".join(bed.run("show", "mine").out.split())
    assert bed.run("show", "powerai", "--json").value["max_nodes"] == {"count": 4, "reason": REASON}


@pytest.mark.parametrize("text", ["{count: 0}", "{reason: why}", "{count: 4, most: 5}", "{count: four}"])
def test_a_wrong_value_is_named_with_its_line(bed: Bed, tmp_path: Path, text: str) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(f"name: x\nversion: 1\nmax_nodes: {text}\nenvironment: {{dependencies: [python=3.11]}}\n")
    refused = bed.run("lock", file, expect=2)
    assert f"{file}:3:" in refused.err and "max_nodes" in refused.err
