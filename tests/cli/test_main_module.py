"""``python -m stackyard`` is ``stackyard``, and what it imports to list revisions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import smallyard


def test_the_package_is_a_program(tmp_path: Path) -> None:
    smallyard.make(tmp_path / "yard", "1.0")
    argv = [sys.executable, "-X", "importtime", "-m", "stackyard", "--yard", tmp_path / "yard", "list"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "1.0" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "stackyard.yard.catalogue" in imported
    assert not imported & {"importlib.metadata", "pydantic", "rattler", "ruamel.yaml", "ssl"}
