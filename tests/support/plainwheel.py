"""Makes wheels of one package with one module, whose RECORD has the hashes of all files."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def write_wheel(directory: Path, name: str, source: str, script: str = "") -> Path:
    """A wheel of version 1.0. `script`: a line of its console scripts."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{script}\n" if script else "",
    }
    rows = [f"{file},sha256={_digest(text)},{len(text)}\n" for file, text in files.items()]
    path = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as bundle:
        for file, text in {**files, f"{info}/RECORD": "".join([*rows, f"{info}/RECORD,,\n"])}.items():
            bundle.writestr(file, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
