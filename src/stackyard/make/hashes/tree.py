"""One hash for a whole prefix. It reads every byte, so it is computed only on demand.

`tree_hash` is the same for two undisturbed builds of one lock at one path. It covers relative paths, kinds, permission
bits, link targets and contents, except for what is derived from the rest or records times and origins:

- bytecode (``__pycache__``): derived from the sources; the marshalled form of equal code is not always equal;
- ``conda-meta/history`` (times), and of ``conda-meta/*.json`` the fields that name the package cache and the link mode;
- of every ``.dist-info``: ``RECORD`` (lists the others), ``INSTALLER``, ``REQUESTED`` and ``direct_url.json``.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.make.job import cores

_DIST_INFO = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
CONDA_ORIGINS = ("extracted_package_dir", "package_tarball_full_path", "link", "requested_spec", "requested_specs")
"""Fields of conda's notes on a package that say from where and by what command it was installed."""


def tree_hash(prefix: Path) -> str:
    """sha256 over a prefix's tree, as hexadecimal digits."""
    names = sorted(_names(os.fspath(prefix), ""))
    with ThreadPoolExecutor(cores()) as pool:
        lines = pool.map(lambda name: _line(prefix, name), names, chunksize=64)
        digest = hashlib.sha256()
        for line in lines:
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _names(root: str, below: str) -> Iterator[str]:
    with os.scandir(f"{root}/{below}") as entries:
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.name == "__pycache__" or name == "conda-meta/history" or _in_dist_info(below, entry.name):
                continue
            yield name
            if entry.is_dir(follow_symlinks=False):
                yield from _names(root, f"{name}/")


def _in_dist_info(directory: str, name: str) -> bool:
    return directory.endswith(".dist-info/") and name in _DIST_INFO


def _line(prefix: Path, name: str) -> str:
    path = prefix / name
    status = path.lstat()
    mode = f"{stat.S_IMODE(status.st_mode):o}"
    if stat.S_ISLNK(status.st_mode):
        return f"link {path.readlink()} {name}\0"
    if stat.S_ISDIR(status.st_mode):
        return f"dir {mode} {name}\0"
    return f"file {mode} {_content(path, name)} {name}\0"


def _content(path: Path, name: str) -> str:
    if name.startswith("conda-meta/") and name.endswith(".json"):
        value = json.loads(path.read_text(encoding="utf-8"))
        fields = {k: v for k, v in value.items() if k not in CONDA_ORIGINS}
        return sha256_text(json.dumps(fields, sort_keys=True))
    return sha256_file(path)
