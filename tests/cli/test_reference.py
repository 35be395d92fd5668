"""The page about the command line is what the commands say of themselves."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_fresh() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "cli_reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
