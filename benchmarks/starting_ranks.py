"""How soon eight ranks on four nodes run: ``stackyard launch`` beside bare ``srun``, and beside ``srun torchrun``.

On a Slurm of its own, whose nodes are network namespaces of this machine, within one allocation. The time is that from
the command to the first line of rank 0.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Figure, alternate, figure_of
from benchmarks.tools import STACKYARD, scratch

if TYPE_CHECKING:
    from support.slurm import SlurmCluster

NODES, PER_NODE = 4, 2
MORE_S = 0.2
WAIT_S = 60
WORD = "rank 0 is there"
SITE = """\
name: bench
nodes: {cpu: {platform: linux-64, cores: 32}}
scheduler: {kind: slurm, launcher: srun}
"""
SHELL = f"""#!/bin/sh
[ "${{RANK:-$SLURM_PROCID}}" != 0 ] || echo "{WORD}"
"""
TORCH = f"""\
import torch.distributed as distributed
distributed.init_process_group("gloo")
if distributed.get_rank() == 0:
    print("{WORD}", flush=True)
distributed.barrier()
distributed.destroy_process_group()
"""

Command = Sequence[str | Path]


def measure(pairs: int = 9) -> list[Figure]:
    """Seconds more than ``srun`` of the same script, and the ratio to ``srun torchrun`` of the same program."""
    from support.slurm import SlurmCluster
    from support.torchstack import python, torch_yard

    yard = torch_yard()
    with scratch("ranks") as directory, SlurmCluster.own(NODES) as cluster, allocation(cluster, directory) as env:
        site, shell, torch = directory / "site.yaml", directory / "rank.sh", directory / "rank.py"
        for path, text in ((site, SITE), (shell, SHELL), (torch, TORCH)):
            path.write_text(text)
        shell.chmod(0o755)
        launch = [STACKYARD, "--yard", yard, "--site", site, "launch", "-N", str(NODES), "-r", str(PER_NODE), "-c", "1"]
        each = ["-N", str(NODES), "-n", str(NODES * PER_NODE), f"--ntasks-per-node={PER_NODE}"]
        bare = alternate(
            lambda: first_line([*launch, "--backend", "any", shell], env, directory),
            lambda: first_line(["srun", *each, shell], env, directory), pairs,
        )  # fmt: skip
        ports = itertools.count(20000)
        torchrun = python(yard).with_name("torchrun")
        ranks = alternate(
            lambda: first_line([*launch, "--with", "resnet", "--backend", "torchrun", torch], env, directory),
            lambda: first_line(
                ["srun", "-N", str(NODES), "-n", str(NODES), "--ntasks-per-node=1", torchrun, f"--nnodes={NODES}",
                 f"--nproc-per-node={PER_NODE}", "--rdzv-backend=c10d", f"--rdzv-endpoint=n1:{next(ports)}", torch],
                env, directory,
            ), max(3, pairs // 3),
        )  # fmt: skip
    return [_difference(bare), figure_of("8 torch ranks, first line", "srun torchrun", ranks, 1.0, unit="s")]


def _difference(pairs: Sequence[tuple[float, float]]) -> Figure:
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Figure(
        "8 ranks on 4 nodes, first line: seconds more", "srun of the same script", tuple(a - b for a, b in pairs),
        MORE_S, absolute=f"{ours * 1000:.0f} ms : {theirs * 1000:.0f} ms", note="a difference in seconds, not a ratio",
    )  # fmt: skip


@contextmanager
def allocation(cluster: SlurmCluster, directory: Path) -> Iterator[dict[str, str]]:
    """The environment of a shell in an allocation of all nodes, which is given back at the end."""
    seen = directory / "allocation"
    held = subprocess.Popen(
        ["salloc", "--quiet", f"-N{cluster.nodes}", f"--ntasks-per-node={PER_NODE}", "sh", "-c",
         f"env -0 > {seen}.new; mv {seen}.new {seen}; exec cat"],
        env=cluster.environ(HOME=str(directory)), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + WAIT_S
        while not seen.exists():
            if time.monotonic() > until:
                raise SystemExit("no allocation was given")
            time.sleep(0.05)
        yield dict(word.split("=", 1) for word in seen.read_text().split("\0") if word)
    finally:
        held.communicate(timeout=WAIT_S)  # cat reads the end of its input, and the allocation is given back


def first_line(argv: Command, env: Mapping[str, str], directory: Path) -> float:
    """Seconds until rank 0 has said its word; what comes after is waited for and not counted."""
    with (directory / "errors").open("w+") as errors:
        began = time.perf_counter()
        with subprocess.Popen(
            argv, env=env, cwd=directory, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            assert process.stdout
            limit = threading.Timer(WAIT_S, process.kill)
            limit.start()
            took = next((time.perf_counter() - began for line in process.stdout if WORD in line), None)
            rest = process.stdout.read()
            limit.cancel()
        if took is None or process.returncode:
            errors.seek(0)
            raise SystemExit(f"{argv} exited with status {process.returncode}\n{rest}\n{errors.read()}")
    return took
