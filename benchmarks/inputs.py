"""The stack of the build figures: thirty conda and forty pip packages, as a researcher's environment has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

CONDA = (
    "python=3.11", "attrs", "certifi", "cffi", "charset-normalizer", "click", "cloudpickle", "filelock", "fsspec",
    "idna", "importlib-metadata", "iniconfig", "jinja2", "markupsafe", "msgpack-python", "numpy", "packaging", "pip",
    "platformdirs", "pluggy", "psutil", "pycparser", "pygments", "pytest", "python-dateutil", "pytz", "pyyaml",
    "requests", "rich", "six",
)  # fmt: skip
PIP = (
    "absl-py", "asttokens", "contourpy", "cycler", "decorator", "einops", "executing", "flatbuffers", "fonttools",
    "greenlet", "h5py", "ipython", "ipython-pygments-lexers", "jedi", "joblib", "kiwisolver", "matplotlib",
    "matplotlib-inline", "networkx", "pandas", "parso", "pexpect", "pillow", "prompt-toolkit", "protobuf",
    "ptyprocess", "pure-eval", "pyparsing", "regex", "sqlalchemy", "stack-data", "tabulate", "termcolor",
    "threadpoolctl", "toolz", "tornado", "traitlets", "tzdata", "wcwidth", "websockets",
)  # fmt: skip


def environment_file(path: Path, channel: Path, conda: Sequence[str] = CONDA, pip: Sequence[str] = PIP) -> Path:
    """Write an environment.yml with these packages."""
    lines = [f"channels: [{channel.as_uri()}]", "dependencies:", *(f"  - {name}" for name in conda)]
    if pip:
        lines += ["  - pip:", *(f"    - {name}" for name in pip)]
    path.write_text("\n".join(lines) + "\n")
    return path


def bare_inputs(lock: Path, directory: Path) -> tuple[int, int]:
    """Write what the plain tools need of a lock: ``conda.json``, ``pylock.toml`` and ``requirements.txt``.

    Returns:
        How many conda and pip packages there are.
    """
    from stackyard.lock.lockfile import text
    from stackyard.make.wheels.install import Wheel, pylock

    directory.mkdir(exist_ok=True)
    (locked,) = text.read(lock).variants
    (directory / "conda.json").write_text(json.dumps([asdict(package) for package in locked.conda]))
    (directory / "pylock.toml").write_text(pylock([Wheel.of(package) for package in locked.pip]))
    (directory / "requirements.txt").write_text("".join(f"{p.name}=={p.version}\n" for p in locked.pip))
    return len(locked.conda), len(locked.pip)
