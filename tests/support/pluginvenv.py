"""Stackyard in a virtual environment of its own, with the distribution of examples/plugins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def venv_with_stackyard(directory: Path) -> Path:
    """An environment below `directory`; its Stackyard is that of the tests."""
    made = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    packages = next(made.glob("lib/python*/site-packages"))
    inner = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (packages / "stackyard-of-the-tests.pth").write_text(f"import site; site.addsitedir({str(inner)!r})\n")
    return made


def venv_with_plugins(directory: Path) -> Path:
    """The same with the distribution of examples/plugins."""
    made = venv_with_stackyard(directory)
    copy = directory / "plugins"  # the build writes beside its sources
    left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "examples/plugins", copy, ignore=left)
    words = ["pip", "--python", made / "bin/python", "install", "-q", "--no-deps", copy]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


def install(
    site: Path, name: str, entries: str, code: str = "STACKYARD_PROTOCOL = 1\ndef text(_): return 'x'\n"
) -> None:
    """A distribution of one module, as an installer leaves it."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)
    (site / f"{name}.py").write_text(code)
