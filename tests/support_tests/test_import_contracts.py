"""The contracts on imports hold for the sources as they are, and a single import in the wrong direction breaks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKWARD = {
    "a room to the right": ("inputs/stacks/naming.py", "from stackyard.lock.lockfile.model import Lock", "rooms"),
    "the ground floor upward": ("core/names.py", "import stackyard.yard.layout", "rooms"),
    "layout plans": ("launch/layout/placing.py", "from stackyard.launch.plan.model import Plan", "rooms-of-launch"),
    "records watch": ("launch/records/follow.py", "from stackyard.launch.run.hub import Hub", "rooms-of-launch"),
    "a command behind a door": ("cli/jobs/launch.py", "from stackyard.launch.records.record import RunRecord", "doors"),
    "a command behind a door for its types": (
        "cli/look/list.py", "if TYPE_CHECKING:\n    from stackyard.yard import catalogue", "doors"
    ),
    "a command that imports a room": ("cli/jobs/lint.py", "def f():\n    from stackyard import lint", "doors"),
    "a door with what another room has": (
        "make/api.py", "if TYPE_CHECKING:\n    from stackyard.yard.layout import Yard as Yard", "doors"
    ),
    "another room behind the door of launch": (
        "upkeep/sign.py", "from stackyard.launch.api import jobs", "door-of-launch"
    ),
    "lint plans": ("lint/report.py", "from stackyard.launch.plan.model import Plan", "lint-alone"),
    "an agent with a library": ("launch/node/agent.py", "import packaging", "nodes"),
    "an agent with our errors": ("launch/node/processes.py", "from stackyard.core import errors", "nodes"),
    "preflight with a library": ("launch/preflight/node/rank.py", "import packaging", "nodes-of-preflight"),
    "a program of another interpreter": ("verify/checks/worker.py", "import packaging", "programs"),
    "a program with our names": ("make/bytecode/bytecode_worker.py", "from stackyard.core import names", "programs"),
    "a helper of a backend": (
        "launch/plan/backends/helpers/ray_node.py", "from stackyard.core import names", "programs-elsewhere"
    ),
    "a slow read command": ("yard/catalogue.py", "import pydantic", "read-commands"),
    "a slow read command through a door": (
        "cli/look/list.py", "from stackyard.inputs.api import load_bindings", "read-commands"
    ),
}  # fmt: skip


def check(sources: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """import-linter, run on a copy of the sources."""
    program = Path(sys.executable).with_name("lint-imports")
    chosen = [word for name in contracts for word in ("--contract", name)]
    environ = {**os.environ, "PYTHONPATH": str(sources / "src"), "COLUMNS": "200"}
    argv = [program, "--no-cache", "--no-logo", *chosen]
    return subprocess.run(argv, cwd=sources, env=environ, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what import-linter reads."""
    copy = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    (copy / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "import_contracts.py", copy / "scripts")
    return copy


def test_all_contracts_hold(sources: Path) -> None:
    done = check(sources)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("case", BACKWARD)
def test_a_backward_import_breaks_its_contract(sources: Path, case: str) -> None:
    name, line, contract = BACKWARD[case]
    file = sources / "src" / "stackyard" / name
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\n{line}\n", encoding="utf-8")
    try:
        done = check(sources, contract)
    finally:
        file.write_text(text, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 broken" in done.stdout
