"""A full revision made of one variant of a stack with a matrix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import testbed
from support.cli import stackyard

pytestmark = pytest.mark.real


@pytest.mark.parametrize("variant", ["", "none"])
def test_a_full_revision_of_a_variant(tmp_path: Path, variant: str) -> None:
    try:
        wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    except MissingError as error:
        pytest.skip(str(error))
    environ = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    mpi = ["openmpi"] if variant else ["openmpi", "mpich"]
    value = {"name": "demo", "version": "1", "matrix": {"accelerator": ["cpu"], "mpi": mpi}, "interpreter": "host",
             "environment": {"dependencies": [{"pip": ["idna"]}]}}  # fmt: skip
    (tmp_path / "site.yaml").write_text("modules: {formats: [tcl]}\n")
    (tmp_path / "demo.yaml").write_text(json.dumps({**value, **({"variant": variant} if variant else {})}))
    words = ("--site", tmp_path / "site.yaml", "--yard", tmp_path / "yard")
    stackyard(*words, "deploy", tmp_path / "demo.yaml", **environ)
    name = "demo" if variant else "demo/1-cpu-openmpi"
    stackyard(*words, "extend", "--full", "--base", name, "--name", "mine", "--pip", "six", **environ)
    shown = stackyard(*words, "show", "mine", "--json").value
    assert shown["variant"] == ("" if variant else "cpu-openmpi") and shown["base"] is None
    assert {package["name"] for package in shown["packages"]} == {"idna", "six"}
