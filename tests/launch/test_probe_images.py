"""The probe in an image: Apptainer binds its directory, Charliecloud shows the node's /tmp."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import images, programs

pytestmark = pytest.mark.real
STACKYARD = Path(sys.executable).with_name("stackyard")


@pytest.mark.parametrize("runtime", ["apptainer", "charliecloud"])
def test_the_program_in_an_image_has_it(tmp_path: Path, runtime: str) -> None:
    try:
        image = images.image_sif() if runtime == "apptainer" else images.image_directory()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    if runtime == "charliecloud":
        programs.need("ch-run")
    site = tmp_path / "site.yaml"
    site.write_text(f"name: a\nlaunch: {{container: {{runtime: {runtime}}}}}\n")
    program = "import json, sys; print(json.dumps([type(one).__name__ for one in sys.meta_path]))"
    argv = [STACKYARD, "--site", site, "launch", "--launcher", "local", "-r", "1", "--container", image, "--",
            f"{sys.base_prefix}/bin/python3", "-c", program]  # fmt: skip
    done = subprocess.run(argv, cwd=tmp_path, env=images.environ(USER="root", HOME=str(tmp_path)), text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = tmp_path.glob("runs/*/logs/rank-00000.log")
    assert "AfterImport" in json.loads(log.read_text().splitlines()[-1])
