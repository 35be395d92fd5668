"""A command of a wrapped image, beside the container runtimes that start the same program of the same image.

`true` of a small Debian: what is measured is the way into the container. The wrapped one joins the container that its
first command has made; the time of that first one is told. Apptainer and Charliecloud are called as they are, without
the shell scripts that sites write around them.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Figure, alternate, figure_of, seconds
from benchmarks.tools import environment, scratch, stackyard

MORE_MS, FACTOR = 5.0, 1.1
"""A wrapped command may take 1.1 times as long as a bare exec of the runtime and 5 ms more."""


def measure(pairs: int = 25) -> list[Figure]:
    """Starts of a wrapped command, over those of Charliecloud and of Apptainer."""
    from support import images

    sif, root = images.image_sif(), images.image_directory()
    with scratch("wrap") as directory:
        (directory / "wrap").mkdir()
        file = directory / "wrap" / "stack.yaml"
        file.write_text(f"name: wrapped\nversion: '1'\nwrap: {{image: 'sif:{sif}', commands: ['true', sleep]}}\n")
        stackyard(directory, "deploy", file)
        (command,) = (directory / "yard" / "stacks" / "wrapped").glob("*/prefix/bin/true")
        with _node(directory) as env:
            first = seconds([command], env=env)
            figures = []
            theirs = {"Apptainer": (["apptainer", "-s", "exec", sif, "true"], images.environ())}
            if found := shutil.which("ch-run"):
                theirs["Charliecloud"] = ([found, root, "--", "true"], env)
            for name, (words, environ) in theirs.items():
                rows = alternate(
                    lambda: seconds([command], env=env), lambda w=words, e=environ: seconds(w, env=e), pairs
                )
                more = tuple((ours - FACTOR * runtime) * 1000 for ours, runtime in rows)
                told = figure_of("", "", rows, None).absolute
                note = f"the first command, which makes the container: {first * 1000:.0f} ms"
                against = f"1.1 times a bare exec of {name}"
                figures.append(Figure("a wrapped command: ms more", against, more, MORE_MS, False, told, note))
            plain = statistics.median(seconds(["true"], env=env) for _ in range(pairs))
            ours = statistics.median(seconds([command], env=env) for _ in range(pairs))
            figures.append(Figure("the same", "the host's own", ((ours - plain) * 1000,), None))
        return figures


@contextmanager
def _node(directory: Path) -> Iterator[dict[str, str]]:
    """The environment of the commands; what they leave is ended."""
    node = directory / "node"
    node.mkdir()
    yield {"USER": "root", **environment(directory), "STACKYARD_TMP": str(node), "STACKYARD_IMAGE_IDLE_S": "60"}
    for note in (node / f".stackyard-images-{os.geteuid()}").glob("*[0-9a-f]"):
        for line in note.read_text().splitlines():
            os.kill(int(line.split()[0]), signal.SIGTERM)
