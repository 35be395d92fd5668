"""A SIF of a stack on a base, beside `apptainer build` of the same files with the same compression.

The base is a small Debian with Open MPI and an interpreter; the stack has numpy, scipy and pandas. Apptainer gets one
directory with the base's files and the prefix at its path. The base is imported before, as a site does once; the time
of that is told, and counts in a figure. Where other work shares the cores, the processor time of both says more than
how long they took. The last figure is `apptainer build` as it is called, which packs with gzip.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import inputs
from benchmarks.images import CONDA, PIP
from benchmarks.measure import Figure, alternate, figure_of
from benchmarks.tools import scratch, stackyard

TARGET = 2.0
PACKING = "-comp zstd -Xcompression-level 3 -b 131072"


def measure(pairs: int = 3) -> list[Figure]:
    """How much faster a SIF is made from a prefix, and from a revision that is an image."""
    from support import images
    from support.testbed import real_channel

    with scratch("sif") as directory:
        file = directory / "sif" / "environment.yml"
        file.parent.mkdir()
        inputs.environment_file(file, real_channel(), conda=CONDA, pip=PIP)
        for form in ("prefix", "squashfs"):
            stackyard(directory, "deploy", file, "--version", form, "--image", form)
        started = time.perf_counter()
        stackyard(directory, "image", "from-folder", images.image_directory(), "--name", "base")
        imported = time.perf_counter() - started
        theirs = _directory(directory, images.image_directory())
        same = _same(directory)
        note = f"the base was imported before, once, in {imported:.1f} s; every file of ours was the same: {same}"
        made = []
        for form in ("prefix", "squashfs"):
            rows = alternate(lambda form=form: _ours(directory, form), lambda: _apptainer(directory, theirs), pairs)
            name = {"prefix": "SIF of a prefix: how much faster", "squashfs": "SIF of an image: how much faster"}[form]
            times = [(ours.seconds, apptainer.seconds) for ours, apptainer in rows]
            work = [(ours.processor_s, apptainer.processor_s) for ours, apptainer in rows]
            made.append(figure_of(name, "apptainer build", times, TARGET, at_least=True, unit="s", note=note))
            made.append(figure_of("the same: processor time", "apptainer build", work, None, at_least=True, unit="s"))
            note = ""
        with_import = [(ours + imported, apptainer) for ours, apptainer in times]
        made.append(figure_of("the same with the import of its base", "apptainer build", with_import, None,
                              at_least=True, unit="s"))  # fmt: skip
        default = [(_ours(directory, "prefix").seconds, _apptainer(directory, theirs, ()).seconds)]
        made.append(figure_of("SIF of a prefix: how much faster", "apptainer build without options", default, None,
                              at_least=True, unit="s"))  # fmt: skip
        return made


@dataclass(frozen=True)
class Took:
    """How long a program took, and the processor time of it and its children."""

    seconds: float
    processor_s: float


@contextmanager
def _timed() -> Iterator[list[Took]]:
    took: list[Took] = []
    started, before = time.perf_counter(), _processor_s()
    yield took
    took.append(Took(time.perf_counter() - started, _processor_s() - before))


def _processor_s() -> float:
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def _ours(directory: Path, form: str) -> Took:
    words = (
        "image",
        "build",
        f"sif/{form}",
        "--base",
        "base",
        "--format",
        "sif",
        "-o",
        directory / "ours.sif",
        "--json",
    )
    with _timed() as took:
        stackyard(directory, *words)
    return took[0]


def _apptainer(directory: Path, root: Path, options: Sequence[str] = ("--mksquashfs-args", PACKING)) -> Took:
    from support import images

    (directory / "theirs.sif").unlink(missing_ok=True)
    words = ["apptainer", "--quiet", "build", *options, directory / "theirs.sif", root]
    environ = images.environ(TMPDIR=str(directory))
    with _timed() as took:
        subprocess.run(words, env=environ, check=True, capture_output=True)
    return took[0]


def _directory(directory: Path, base: Path) -> Path:
    """The files of the base and of the revision, as a container has them."""
    root = directory / "root"
    shutil.copytree(base, root, symlinks=True)
    (revision,) = (directory / "yard" / "stacks" / "sif").glob("prefix-*")
    prefix = Path(json.loads((revision / "record.json").read_text())["prefix"])
    shutil.copytree(prefix, root / str(prefix).lstrip("/"), symlinks=True)
    subprocess.run(["chmod", "-R", "u+w", root], check=True)
    return root


def _same(directory: Path) -> str:
    """Whether two builds of each form gave the same bytes."""
    answers = []
    for form in ("prefix", "squashfs"):
        files = []
        for _ in range(2):
            _ours(directory, form)
            files.append((directory / "ours.sif").read_bytes())
        answers.append(files[0] == files[1])
    return "yes" if all(answers) else "no"
