"""Every kind of file that the program reads: good examples of it, and the command lines that read it."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.command import stackyard
from image import basebed

if TYPE_CHECKING:
    from stackyard.lock.model import Lock

Read = Callable[[Path], None]
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    Attributes:
        file: the name of the damaged file, with which `read` finds it.
        seeds: good files.
        read: reads the file in the given directory, as the commands do; raises what they do not expect.
    """

    file: str
    seeds: Sequence[bytes]
    read: Read


def commands(*lines: str) -> Read:
    """A reader that runs command lines; ``{}`` stands for the damaged file."""

    def read(path: Path) -> None:
        for line in lines:
            code, output = stackyard(*(word.replace("{}", str(path)) for word in line.split()))
            assert code in (0, 1, 2, 3, 4) and (code == 0 or output), f"exit status {code} of {line}: {output!r}"

    return read


def _lock(path: Path) -> None:
    """The commands that read a lock. Its exports write the fields of packages in the syntax of other tools."""
    from stackyard.errors import StackyardError
    from stackyard.lock import export, text

    commands("why {} six", f"diff {{}} {DATA}/formats/stack-1.lock", f"diff {DATA}/formats/stack-1.lock {{}}")(path)
    try:
        lock = text.read(path)
    except StackyardError:
        return
    text.dump(lock)
    _judge(lock)
    for variant in lock.variants:
        for form in (export.explicit, export.environment, export.pylock, export.pixi):
            try:
                form(variant)
            except StackyardError as error:
                assert error.message


def _judge(lock: Lock) -> None:
    """Compare a lock with a file and a site that touch every rule of what makes it stale."""
    from stackyard.lock import solve
    from stackyard.spec.models import Environment, Gpu, NodeKind, PipRequirement, Site, Stack, Variant

    asked = Environment(pip=(PipRequirement(text="torch", line="torch", name="torch"),))
    variants = tuple(
        Variant(stack=v.stack, version=v.version, name=v.variant, environment=asked, axes={"accelerator": "cuda"})
        for v in lock.variants
    )
    site = Site.model_validate({
        "pins": ("python <3", *(f"{p.name} <1" for v in lock.variants for p in v.conda)), "platforms": ["linux-64"],
        "channels": {"exclude_newer": "2020-01-01", "priority": "flexible"}, "interpreter": {"version": "3.11"},
        "pip": {"index_url": "https://index/simple"},
    })  # fmt: skip
    kinds = {"a": NodeKind(platform="linux-64", glibc="2.17", gpu=Gpu(count=1, cuda="12.0"))}
    verdict = solve.staleness(lock, Stack(name="s", variants=variants), site.model_copy(update={"nodes": kinds}), ())
    assert all(isinstance(line, str) for line in (*verdict.reasons, *verdict.harmless))


def _hosts(path: Path) -> None:
    """Host lists of schedulers and core lists of sites: text from outside that is expanded."""
    from stackyard.errors import StackyardError
    from stackyard.launch.layout.nodes import core_list
    from stackyard.launch.plan.schedulers.hostlist import expand

    text = path.read_bytes().decode(errors="replace")
    for line in text.splitlines():
        for reader, expected in ((expand, StackyardError), (core_list, ValueError)):
            try:
                reader(line)
            except expected as error:
                assert str(error)


def _pip_config(path: Path) -> None:
    from stackyard.errors import StackyardError
    from stackyard.host.pipconf import read_config

    try:
        read_config({"PIP_CONFIG_FILE": str(path), "HOME": str(path.parent)})
    except StackyardError as error:
        assert error.message


def _archive(path: Path) -> None:
    """An image as docker saves it: copied into a layout, and its layers unpacked."""
    from stackyard.errors import StackyardError
    from stackyard.image.bases import software
    from stackyard.image.bases.blobs import Layout
    from stackyard.image.bases.sources import fetch, source_of
    from stackyard.image.bases.unpack import Unpacked

    with tempfile.TemporaryDirectory() as folder:
        layout, root = Layout(Path(folder, "oci")), Path(folder, "root")
        root.mkdir()
        try:
            fetched = fetch(source_of(f"docker-archive:{path}"), layout, "linux-64")
            for layer in fetched.layers:
                Unpacked(root, most_bytes=1 << 20).apply(layer, layout.path(layer.digest))
            software.platform_of(root)
            software.software_of(root, ())
        except StackyardError as error:
            assert error.message


def _layer(path: Path) -> None:
    """A layer whose digest is right, whatever it holds."""
    from stackyard.errors import StackyardError
    from stackyard.image.bases.model import Layer
    from stackyard.image.bases.unpack import Unpacked

    data = path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        try:
            Unpacked(Path(folder), most_bytes=1 << 20).apply(Layer("", 0, "", basebed.digest(data)), path)
        except StackyardError as error:
            assert error.message


def _sif() -> bytes:
    from stackyard.image import sif

    labels = b'{"data": {"attributes": {"labels": {"io.stackyard.base-sha256": "0"}}}}'
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.sif")
        sif.write(file, "amd64", [
            sif.Given(sif.JSON, sif.INSPECT, labels), sif.Given(sif.PARTITION, "base", b"x" * 100, sif.SYSTEM),
            sif.Given(sif.PARTITION, "prefix", b"y" * 100, sif.OVERLAY),
        ])  # fmt: skip
        return file.read_bytes()


def _saved() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return basebed.docker_archive(Path(folder, "x.tar"), [LAYER], Env=["A=b"]).read_bytes()


LAYER = basebed.layer([("a", None), ("a/b", "text"), ("l", "-> a"), ("l/c", "x" * 600), ("a/.wh.b", ""),
                       ("h", {"type": b"1", "linkname": "a/c"})])  # fmt: skip


def _files(*patterns: str, where: Path = EXAMPLES) -> list[bytes]:
    found = [path.read_bytes() for pattern in patterns for path in sorted(where.glob(pattern)) if path.is_file()]
    assert found, patterns
    return found


JOB = b"""format: 1
program: [train.py, --epochs, "3"]
nodes: 2
ranks_per_node: 4
cores_per_rank: 4
gpus_per_rank: 1
oversubscribe: true
env: {NCCL_DEBUG: INFO}
batch:
  time_min: 60
  account: PROJ
  queue: batch
  array: 1-4
"""
BINDINGS = b"""format: 1
name: mpich-5.0.2
mpi: {family: mpich, version: "5.0.2", library: /opt/mpich/lib/libmpi.so.12, pmi: [pmi2]}
libraries:
  - {path: "/usr/lib64/libucp.so*", why: required by libmpi.so.12}
binds:
  - {path: /opt/mpich, to: /host/mpich, why: MPICH}
preload:
  - {path: /opt/mpich/lib/libhook.so, why: GPU buffers}
variables:
  - {name: UCX_POSIX_USE_PROC_LINK, value: n, why: "a: b"}
options:
  - {option: --sharens, why: shared memory}
tested: {host: n1, time: "2026-11-22T22:27Z", glibc: "2.36"}
"""
HOSTS = b"n[1-4,7]\nr[0-1]n[01-12]\nbatch5 h41n08 h41n08\n0-7,16-23\n0-63:2\ngpu-[001-003]-ib,login1\n"
PIP_CONFIG = b"""[global]
index-url = https://u:p@pypi.example/simple
extra-index-url =
    https://a/
    https://b/
[install]
no-binary = :all:
"""
RUN = DATA / "formats" / "run-1"
_STACK_FILE = ("show --parsed {}", "deploy --dry-run --locked {}")
_SITE_FILE = ("--site {} list", "--site {} explain --nodes 2 train.py")
_JOB_FILE = ("explain --job {}", f"--site {EXAMPLES}/frontier/site.yaml explain --picture --job {{}}")

READERS = {
    "environment": Reader(
        "environment.yml",
        [*_files("*/environment.yml", "*/conda.yaml"), *_files("env/*.yml", where=DATA)],
        commands(*_STACK_FILE),
    ),
    "requirements": Reader("requirements.txt", _files("*/requirements*.txt"), commands(*_STACK_FILE)),
    "stack": Reader("stack.yaml", _files("*/stack*.yaml", "*/*ce.yaml"), commands(*_STACK_FILE)),
    "site": Reader("site.yaml", _files("*/site.yaml"), commands(*_SITE_FILE)),
    "job": Reader("train.job.yaml", [JOB], commands(*_JOB_FILE)),
    "script": Reader(
        "job.sbatch",
        _files("lint/bad/*.*", "lint/good/*.*", where=DATA),
        commands("lint {}", "lint --json --fix {}"),
    ),
    "lock": Reader("stack.yaml.lock", _files("formats/*.lock", where=DATA), _lock),
    "bindings": Reader(
        "bindings.yaml",
        [BINDINGS],
        commands("bindings show {}", "bindings show --as site {}", "bindings show --as lua {}"),
    ),
    "sif": Reader("x.sif", [_sif()], commands("image inspect {}", "image inspect --json {}", "image check {}")),
    "saved image": Reader("saved.tar", [_saved()], _archive),
    "layer": Reader("layer.tar", [LAYER, gzip.compress(LAYER, mtime=0)], _layer),
    "hosts": Reader("hosts", [HOSTS], _hosts),
    "pip.conf": Reader("pip.conf", [PIP_CONFIG], _pip_config),
    "run record": Reader(
        "record.json", [RUN.joinpath("record.json").read_bytes()], commands("runs show {}/..", "runs diff {}/.. {}/..")
    ),
    "run status": Reader(
        "status.json", [RUN.joinpath("status.json").read_bytes()], commands("runs show {}/..", "runs show --json {}/..")
    ),
}
