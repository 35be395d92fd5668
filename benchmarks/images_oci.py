"""What a registry grows by for a second revision of a stack, nine tenths of whose bytes are the first one's.

Both revisions are built as OCI images and pushed to a registry on this machine (Debian's docker-registry). A second
revision in a single layer would be sent whole: that is the other side, the gzipped tar of its prefix.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from benchmarks import inputs
from benchmarks.measure import Figure, figure_of
from benchmarks.tools import scratch, stackyard

TARGET = 0.2
COMMON = ("python=3.11", "numpy", "requests", "pyyaml")
FIRST, SECOND = ("pip", "pytest", "idna=3.9"), ("setuptools", "jinja2", "idna=3.10", "importlib-metadata")


def measure(pairs: int = 1) -> list[Figure]:
    """Bytes of the second revision in the registry, against one layer; and the time to build and push each."""
    from images.registry_bed import registry
    from support.testbed import real_channel

    with scratch("oci") as directory, registry(directory / "registry") as running:
        grown, took = [], []
        for version, own in (("1", FIRST), ("2", SECOND)):
            file = directory / "oci" / "environment.yml"
            file.parent.mkdir(exist_ok=True)
            inputs.environment_file(file, real_channel(), conda=(*COMMON, *own), pip=())
            stackyard(directory, "deploy", file, "--version", version)
            started, before = time.perf_counter(), running.bytes
            rev, layout = f"oci/{version}", directory / "layout"
            words = ("image", "build", rev, "--format", "oci", "--base", "scratch", "-o", layout, "--json")
            reference = stackyard(directory, *words)["reference"]
            stackyard(directory, "image", "push", reference, f"docker://{running.place}/oci:{version}", "--plain-http")
            took.append(time.perf_counter() - started)
            grown.append(running.bytes - before)
        one_layer = _one_layer(directory)
        note = f"{_equal(directory):.0%} of the second revision's bytes are in files that the first one has"
        size = f"{grown[1] / 2**20:.1f} MiB : {one_layer / 2**20:.1f} MiB"
        return [
            Figure("second revision in a registry, as OCI: bytes", "one layer", (grown[1] / one_layer,), TARGET,
                   absolute=size, note=note),
            figure_of("the same: time to build and push", "the first revision", [(took[1], took[0])], None, unit="s"),
        ]  # fmt: skip


def _prefix(directory: Path, version: str) -> Path:
    (found,) = (directory / "yard" / "stacks" / "oci").glob(f"{version}-*")
    return found


def _one_layer(directory: Path) -> int:
    """The bytes of the second prefix as one gzipped tar file."""
    command = 'tar -C "$1" -c prefix | gzip -6 | wc -c'
    argv = ["sh", "-c", command, "sh", str(_prefix(directory, "2"))]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def _equal(directory: Path) -> float:
    """The share of the second prefix's bytes that are in files of the same path and size in the first one."""
    one, two = (_files(_prefix(directory, version) / "files.json") for version in ("1", "2"))
    return sum(size for name, size in two.items() if one.get(name) == size) / sum(two.values())


def _files(listing: Path) -> dict[str, int]:
    value = json.loads(listing.read_text())["files"]
    return {f"{directory}/{name}": item[1] for directory, row in value.items() for name, item in row.items()
            if isinstance(item, list)}  # fmt: skip
