"""Stackyard in a virtual environment of its own, with the distribution of examples/plugins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def venv_with_plugins(folder: Path) -> Path:
    """The environment, below `folder`; its Stackyard is that of the tests."""
    made = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    packages = next(made.glob("lib/python*/site-packages"))
    inner = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (packages / "stackyard-of-the-tests.pth").write_text(f"import site; site.addsitedir({str(inner)!r})\n")
    copy = folder / "plugins"  # the build writes beside its sources
    left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "examples/plugins", copy, ignore=left)
    words = ["pip", "--python", made / "bin/python", "install", "-q", "--no-deps", copy]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made
