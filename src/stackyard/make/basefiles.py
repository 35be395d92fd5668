"""Finds files of a layer that hide files of its base: Python finds modules, and users commands, in the layer first.

The Python of the base does the search, since the base may be an image that is not mounted. It reads the base's package
lists only if a path exists there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.run.command import run
from stackyard.lock.base import interpreter as asking
from stackyard.make import layer
from stackyard.make.collisions.claims import Claim, Owner
from stackyard.make.job import Job
from stackyard.yard.kinds.extension import BaseRevision

_QUESTION = r"""
import csv, json, os, sys
asked = json.loads(sys.stdin.read())
found, left = [], {}
for prefix, site, bin in asked["bases"]:
    for key in asked["paths"]:
        kind, _, name = key.partition("/")
        path = os.path.join(site if kind == "site" else bin, name)
        if os.path.lexists(path) and not os.path.realpath(path).endswith("/libexec/of-base"):
            left.setdefault(key, []).append((prefix, site, path))

def owners(prefix, site):
    made, by_conda = {}, set()
    folder = os.path.join(prefix, "conda-meta")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                value = json.load(stream)
            for each in value["paths_data"]["paths"]:
                path = os.path.join(prefix, each["_path"])
                by_conda.add(path)
                made[path] = value["name"], each.get("sha256_in_prefix") or each.get("sha256") or ""
    for info in sorted(os.listdir(site)) if os.path.isdir(site) else ():
        record = os.path.join(site, info, "RECORD")
        if info.endswith(".dist-info") and os.path.isfile(record) and record not in by_conda:
            with open(record, encoding="utf-8", newline="") as stream:
                for row in csv.reader(stream):
                    if row:
                        path = os.path.normpath(os.path.join(site, row[0]))
                        made[path] = info[:-10].rpartition("-")[0], row[1] if len(row) > 1 else ""
    return made

lists = {}
for key, places in left.items():
    prefix, site, path = places[0]
    if (prefix, site) not in lists:
        lists[prefix, site] = owners(prefix, site)
    name, digest = lists[prefix, site].get(path, ("", ""))
    text = None
    if os.path.basename(path) == "__init__.py" and os.path.isfile(path) and os.path.getsize(path) <= 65536:
        with open(path, "rb") as stream:
            text = stream.read().hex()
    found.append([key, name, digest, text])
sys.stdout.write("\0" + json.dumps(found))
"""
_NOWHERE = Path(os.devnull)


@dataclass(frozen=True)
class BaseFile:
    """A file of the base: its claim, and its content if it is an ``__init__.py``."""

    claim: Claim
    source: bytes | None


class Bases:
    """The files of a layer's base, and of that one's own base, that a layer may have too."""

    def __init__(self, job: Job, base: BaseRevision) -> None:
        self._job, self._base = job, base
        self._owners: dict[str, Owner] = {}

    def of(self, paths: Iterable[str], site: str) -> dict[str, BaseFile]:
        """The base's files at these paths of the layer.

        Args:
            paths: relative to the prefix of the layer.
            site: the relative path of its site-packages.

        Raises:
            StackyardError: the Python of the base does not run, or its lists cannot be read.
        """
        keys = {key: path for path in paths if (key := _key(path, site))}
        if not keys:
            return {}
        files: dict[str, BaseFile] = {}
        for key, name, digest, text in self._ask(list(keys)):
            owner = self._owners.setdefault(name, Owner("base", name or self._base.id, -1, _NOWHERE))
            files[keys[key]] = BaseFile(Claim(owner, key, digest), None if text is None else bytes.fromhex(text))
        return files

    def _ask(self, keys: Sequence[str]) -> list[tuple[str, str, str, str | None]]:
        version = self._job.locked.interpreter.version
        bases = [
            (
                revision.prefix,
                os.fspath(layer.packages(revision, version)),
                os.fspath(revision.payload.program_directories[0]),
            )
            for revision in self._base.lineage()
        ]
        words = [os.fspath(self._base.payload.python), "-I", "-S", "-c", _QUESTION]
        argv, environ = self._base.payload.command(words, dict(os.environ))
        question = json.dumps({"bases": bases, "paths": keys})
        done = run(argv, env=environ, stdin=question, timeout_s=asking.ANSWER_S, leaves_others=True)
        try:
            answer: list[tuple[str, str, str, str | None]] = json.loads(done.stdout.partition("\0")[2])
        except ValueError as error:
            raise StackyardError(f"cannot ask {self._base.id} for its files", detail=done.output) from error
        return answer


def _key(path: str, site: str) -> str:
    """The lookup key of a path: the base's modules and commands are found only if the layer lacks them."""
    if path.startswith(f"{site}/"):
        return f"site/{path[len(site) + 1 :]}"
    return path if path.startswith("bin/") and path.count("/") == 1 else ""
