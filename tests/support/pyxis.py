"""A Slurm whose srun has the options of Pyxis: `pyxis.c`, built and put into a cluster's plugstack.conf.

with pyxis.cluster(tmp_path / "images") as cluster:      # images/busybox is a root: busybox and its links alone
    cluster.run("srun", "--container-image=busybox", "hostname")
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from support import programs
from support.slurm import SlurmCluster
from support.testbed import kept

SOURCES = {"pyxis": "pyxis.c", "edf": "pyxis.c", "uenv": "uenv.c"}
"""The plug-ins; that of environment definition files is the first one with a reader of its file."""


def plugin(name: str = "pyxis") -> Path:
    """The compiled plug-in."""
    source = Path(__file__).with_name(SOURCES[name])

    def make(directory: Path) -> None:
        words = ["gcc", "-O1", "-shared", "-fPIC", f"-D{name.upper()}"]
        subprocess.run([*words, "-o", directory / f"{name}.so", source], check=True)

    return kept(name, [source], make) / f"{name}.so"


@contextlib.contextmanager
def cluster(images: Path, name: str = "pyxis", nodes: int = 4) -> Iterator[SlurmCluster]:
    """A cluster with a plug-in, which takes images of registries from a directory; `images` gets busybox."""
    programs.need("libslurm", "gcc", "busybox", "srun")
    busybox(images / "busybox")
    file = plugin(name)

    def change(files: dict[str, str]) -> None:
        plugstack = images / "plugstack.conf"
        plugstack.write_text(f"required {file} images={images}\n")
        files["slurm.conf"] += f"PlugStackConfig={plugstack}\n"

    with SlurmCluster.own(nodes=nodes, changes=change) as made:
        yield made


def busybox(root: Path, environment: Mapping[str, str] | None = None) -> Path:
    """A root with busybox and its links alone: neither bash nor Python, nor a directory that is not listed here."""
    for name in ("bin", "etc", "dev", "proc", "sys", "tmp", "root"):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin/busybox")
    listed = subprocess.run([root / "bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    lines = {"PATH": "/bin", **(environment or {})}
    (root / "etc/environment").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    (root / "marker").write_text(f"{root.name}\n")
    return root
