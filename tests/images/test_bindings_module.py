"""The bindings as a published module: deployed like a stack, and what a shell has while it is loaded and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.host.run.command import clean_environment
from support import modules
from support.cli import stackyard

pytestmark = pytest.mark.real

FILE = """format: 1
name: mpich 5.0.2
summary: MPICH 5.0.2 of this machine
libraries: [{path: /etc/hostname}, {path: "/etc/host*"}]
binds: [{path: /etc/openmpi, to: /etc/mpi}]
preload: [{path: /etc/hosts}]
variables: [{name: MPIR_CVAR_CH4_CMA_ENABLE, value: "0"}]
options: [{option: --sharens}]
"""
LIBRARIES = "/etc/host.conf,/etc/hostname,/etc/hosts"
SET = {
    "APPTAINER_BIND": "/etc/openmpi:/etc/mpi",
    "APPTAINERENV_LD_LIBRARY_PATH": "/.singularity.d/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}",
    "APPTAINERENV_LD_PRELOAD": "/.singularity.d/libs/hosts",
    "APPTAINERENV_MPIR_CVAR_CH4_CMA_ENABLE": "0",
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules of a yard in which they are deployed."""
    directory = tmp_path_factory.mktemp("bindings")
    (directory / "bindings.yaml").write_text(FILE)
    shown = stackyard("bindings", "show", "--as", "stack", cwd=directory, expect=None)
    assert "give them to each command: --sharens" in shown.err
    (directory / "stack.yaml").write_text(shown.out)
    done = stackyard("--yard", directory / "yard", "deploy", "stack.yaml", cwd=directory)
    assert "stackyard-bindings/mpich-5.0.2-py3-1  published" in done.out, done.out
    assert "run stackyard-bindings -- bash" in done.out, done.out
    return directory / "yard/modules"


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_it_is_loaded_and_unloaded(published: Path, tmp_path: Path, system: str) -> None:
    """It sets the runtime's variables and nothing else; a variable of the user's comes back."""
    if why := modules.missing(system, "bash"):
        pytest.skip(why)
    shots = [tmp_path / name for name in ("before", "loaded", "after")]
    before, loaded, after = (modules.snapshot("bash", shot) for shot in shots)
    lines = [
        modules.initialise(system, "bash"), f"module use {published}", "export APPTAINER_BIND=/mine", before,
        "module load stackyard-bindings", loaded, "module unload stackyard-bindings", after,
    ]  # fmt: skip
    out = modules.run("bash", "\n".join(lines), clean_environment(), tmp_path)
    taken = [modules.take(shot) for shot in shots]
    assert all(taken), out
    then, now, at_last = ({k: v for k, v in shot.environ.items() if not _is_own(k)} for shot in taken if shot)
    new = {name: value for name, value in now.items() if then.get(name) != value}
    given = new.pop("APPTAINER_CONTAINLIBS").split(",")
    assert {*LIBRARIES.split(",")} <= {*given} and new == SET, out
    assert at_last == then


def _is_own(name: str) -> bool:
    """Whether a variable is the module system's, or holds what it gives back."""
    return name in ("_LMFILES_", "LOADEDMODULES", "_") or name.startswith(
        ("_ModuleTable", "__LMOD", "__MODULES", "__STACKYARD_KEPT_")
    )


def test_it_is_run_without_a_module_system(published: Path) -> None:
    yard = published.parent
    words = ("run", "stackyard-bindings", "--", "sh", "-c", 'echo "$APPTAINER_BIND"; command -v python')
    done = stackyard("--yard", yard, *words, cwd=yard, expect=None, PATH="/usr/bin:/bin")
    assert done.out.splitlines()[0] == SET["APPTAINER_BIND"] and str(yard) not in done.out
    assert stackyard("--yard", yard, "show", "stackyard-bindings", "--json", cwd=yard).value["packages"] == []


def test_its_help_does_not_offer_a_python(published: Path) -> None:
    text = next(published.glob("stackyard-bindings/mpich*.lua")).read_text()
    assert "Unload it before you build an image" in text and "venv" not in text and "family(" not in text
