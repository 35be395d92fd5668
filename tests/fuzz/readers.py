"""Every kind of file that the program reads: good examples of it, and the command lines that read it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.command import stackyard
from images import basebed

if TYPE_CHECKING:
    from stackyard.lock.lockfile.model import CondaPackage, Lock

Read = Callable[[Path], None]
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
EXAMPLES = ROOT / "examples"
SOURCES = ROOT / "src" / "stackyard"


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


TRACE = json.dumps({
    "schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2}, "host_name": "n1",
    "traceEvents": [
        {"ph": "X", "cat": category, "name": name.format(step), "pid": 1, "tid": tid, "ts": 100 * step + at, "dur": us,
         "args": {"Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float"}}
        for category, name, tid, at, us in (
            ("user_annotation", "ProfilerStep#{}", 1, 0, 100), ("cpu_op", "aten::to", 1, 1, 20),
            ("cpu_op", "aten::copy_", 1, 2, 18), ("user_annotation", "gloo:all_reduce", 2, 20, 70),
            ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 30, 40),
            ("cuda_runtime", "cudaStreamSynchronize", 1, 80, 9), ("kernel", "gemm", 7, 5, 30),
            ("kernel", "ncclDevKernel_AllReduce", 7, 40, 30), ("gpu_memcpy", "Memcpy HtoD", 7, 70, 20),
        )
        for step in range(3)
    ] + [{"ph": "i", "name": "[memory]", "args": {"Total Allocated": 9, "Device Type": 1, "Device Id": 0}}],
}).encode()  # fmt: skip
SITE_CHECKS = b"""
- echo fine
- {name: gpu works, python: import torch, expect: "cuda:\\\\d", needs: {gpu: true, arch: ppc64le}, required: false}
- {run: [horovodrun, --check-build], table: [MPI, Gloo], timeout_min: 2.5}
"""
USE = (
    b'{"revision": "/sw/yard/stacks/a/1-1", "what": "job", "scheduler": "slurm", "job": "77", "user": "anna", '
    b'"host": "n1", "pid": 7, "started": "1", "place": "x", "since": "now", "token": "0"}'
)


_LOG = """\
{"step": 0, "loss": 1.5, "seconds": 0.5, "images_per_s": 256.0}
{"step": 20, "loss": NaN, "seconds": 0.5, "images_per_s": 1e3, "ranks": [{"task": 0, "peak_bytes": 5}]}
\x1b[32mtotal images/sec: 204.75\x1b[0m
Img/sec per GPU: 108.2 +-1.2
Total img/sec on 4 GPU(s): 4,328.0 +-4.9
{'train_runtime': 60.2, 'train_samples_per_second': 57.063}
  train_runtime            = 0:01:13.52
 iteration        2/      24 | elapsed time per iteration (ms): 271607.0 | global batch size:  1024 |
 iteration       12/      24 | elapsed time per iteration (ms): 271607.0 | global batch size:  1024 |
\rEpoch 0: 100%|##########| 311/311 [00:13<00:00, 23.54it/s, v_num=4]
\rEpoch 1: 100%|##########| 311/311 [01:00:13<00:00,  4.5s/it]
Epoch 0/23 \u2501\u2501\u2501 98/98 0:00:22 \u2022 0:00:00 4.44it/s v_num: 0
""".encode()


def commands(*lines: str) -> Read:
    """A reader that runs command lines; ``{}`` stands for the damaged file."""

    def read(path: Path) -> None:
        for line in lines:
            code, output = stackyard(*(word.replace("{}", str(path)) for word in line.split()))
            assert code in (0, 1, 2, 3, 4) and (code == 0 or output), f"exit status {code} of {line}: {output!r}"

    return read


def _lock(path: Path) -> None:
    """The commands that read a lock. Its exports write the fields of packages in the syntax of other tools."""
    from stackyard.core.errors import StackyardError
    from stackyard.lock.lockfile import export, text

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
    from stackyard.inputs.models import Environment, PipRequirement, Site, Stack, Variant
    from stackyard.inputs.sites.sitemodels import Gpu, NodeKind
    from stackyard.lock import solve

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


def _site_checks(path: Path) -> None:
    """A file of checks that a site.yaml names."""
    from stackyard.core.errors import InputError
    from stackyard.inputs.sites.sitefiles import load_checks

    try:
        assert all(check.name for check in load_checks(path))
    except InputError as error:
        assert error.message


def _site_causes(path: Path) -> None:
    """A file of known causes that a site.yaml names; the rules in it are tried."""
    from stackyard.core.errors import InputError
    from stackyard.launch.run.causes.table import explain, site_rules

    try:
        found = site_rules([str(path)])
    except InputError as error:
        assert error.message
        return
    explain(tail=["MemoryError"], code=1, launcher_output="", facts={"nodes": 2}, first=found)


def _failures(path: Path) -> None:
    """A log of unknown origin, searched for the first cause of a failure."""
    from stackyard.core.errors import InputError
    from stackyard.doctor.logs.diagnose import diagnose
    from stackyard.doctor.logs.sources import log_sources

    try:
        found = diagnose(log_sources([str(path)]))
    except InputError as error:
        assert error.message
        return
    assert not found.failed or found.cause


def _metrics(path: Path) -> None:
    """A log, read for metrics by all known formats and by declared ones."""
    from stackyard.launch.records.paths import RunPaths
    from stackyard.launch.records.record import RunRecord, RunStatus, write_record, write_status
    from stackyard.study.metrics.model import Metric
    from stackyard.study.metrics.read import read_run

    paths = RunPaths(path.parent / "run")
    if not paths.record.exists():
        paths.main.logs.mkdir(parents=True)
        write_record(paths, RunRecord("run", "", "launch", (), {}))
        write_status(paths, RunStatus("done"))
    paths.main.rank_log(0).write_bytes(path.read_bytes())
    paths.usage.write_bytes(path.read_bytes())
    declared = (Metric(name="a", key="seconds", kind="time"), Metric(name="b", pattern=r"(\S+)it/s", over_steps="last"))
    for metrics in ((), declared):
        json.dumps(read_run(paths, metrics, energy=False).to_json(), allow_nan=False)


def _hosts(path: Path) -> None:
    """Host lists of schedulers and core lists of sites: text from outside that is expanded."""
    from stackyard.core.errors import StackyardError
    from stackyard.core.hostlist import expand
    from stackyard.host.machine.ranges import core_list

    text = path.read_bytes().decode(errors="replace")
    for line in text.splitlines():
        for reader, expected in ((expand, StackyardError), (core_list, ValueError)):
            try:
                reader(line)
            except expected as error:
                assert str(error)


def _pip_config(path: Path) -> None:
    from stackyard.core.errors import StackyardError
    from stackyard.host.tools.pipconf import read_config

    try:
        read_config({"PIP_CONFIG_FILE": str(path), "HOME": str(path.parent)})
    except StackyardError as error:
        assert error.message


def _package(path: Path) -> None:
    """What a conda archive says that it installs, and what pip is told of that."""
    from stackyard.host.files.hashing import sha256_file
    from stackyard.lock.lockfile.model import CondaPackage

    _told(CondaPackage("x", "1", "0", 0, "linux-64", "c", path.as_uri(), sha256_file(path), depends=("python",)), path)


def _distributions(path: Path) -> None:
    """What a cache keeps of that."""
    from stackyard.lock.lockfile.model import CondaPackage
    from stackyard.yard.layout import Yard

    package = CondaPackage("x", "1", "0", 0, "linux-64", "c", path.as_uri(), "00" * 32, depends=("python",))
    note = Yard(path.parent / "yard").distributions_note(package.sha256)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(path.read_bytes())
    _told(package, path)


def _project_name(path: Path) -> None:
    """A local project's own files say its name."""
    from stackyard.lock.pip.projectname import project_name

    name = project_name(path.parent)
    assert re.fullmatch(r"[A-Za-z0-9._-]*", name)


def _told(package: CondaPackage, path: Path) -> None:
    from stackyard.lock.base import distributions as dists
    from stackyard.lock.pip.provided import given, write_constraints
    from stackyard.yard.layout import Yard

    made, unread = dists.described([package], Yard(path.parent / "yard"), dists.site_packages("3.11"))
    assert all(each.reason for each in unread)
    found, _ = given(made)
    with tempfile.TemporaryDirectory() as directory:
        write_constraints(found, Path(directory))
        assert len(list(Path(directory).iterdir())) == len(found)


def _trash(path: Path) -> None:
    """The note on something that was removed: whatever it says, it leads nowhere out of the yard."""
    from stackyard.core.errors import StackyardError
    from stackyard.yard import formats
    from stackyard.yard.layout import Yard
    from stackyard.yard.write import trash

    try:
        item = trash.Item(Yard(path.parent), path.parent, formats.load(path, trash.KIND))
    except StackyardError as error:
        assert error.message
        return
    assert ".." not in item.origin.parts and item.origin.is_relative_to(path.parent) and item.due(7)


def _uses(path: Path) -> None:
    """What any user may write beside the notes on uses."""
    from stackyard.upkeep.gc.inuse import standing
    from stackyard.yard.others import uses

    for use in uses.found(path.parent):
        standing(use, lambda *_: None, 30)


def _usage(path: Path) -> None:
    from stackyard.yard.layout import Yard
    from stackyard.yard.others import usage

    directory = path.parent / "usage"
    directory.mkdir(exist_ok=True)
    (directory / path.name).write_bytes(path.read_bytes())
    assert all(each.total for each in usage.read(Yard(path.parent)).values())


def _child(path: Path) -> None:
    """What any user may register as a yard."""
    from stackyard.yard.layout import Yard
    from stackyard.yard.others import children

    directory = path.parent / "children"
    directory.mkdir(exist_ok=True)
    for name in (f"{os.getuid()}.{0:032}.json", f"{0:032}.json"):
        (directory / name).write_bytes(path.read_bytes())
    found = children.known(Yard(path.parent), "/nowhere/x")
    assert all(note.root.is_absolute() for note in found.notes)


def _bases_in_use(path: Path) -> None:
    from stackyard.yard.layout import Yard
    from stackyard.yard.others import basesinuse

    problems: list[str] = []
    found = basesinuse.read(Yard(path.parent), 1e6, problems)
    assert found is None or (found.when and found.day)


def _others_record(path: Path) -> None:
    """The record of an extension in the yard of any user."""
    from stackyard.host.account.reading import read_yard
    from stackyard.inputs.models import Site
    from stackyard.upkeep.gc.inuse import Watch
    from stackyard.yard.layout import Yard

    own = path.parent / "own"
    directory = own / "stacks" / "mine" / "1"
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("generations", "leases"):
        (own / name).mkdir(exist_ok=True)
    (directory / path.name).write_bytes(path.read_bytes())
    assert all(isinstance(text, str) for item in read_yard(own).items for text in item)
    (path.parent / "children").mkdir(exist_ok=True)
    (path.parent / "children" / f"{0:032}.json").write_text(json.dumps({"yard": str(own)}))
    Watch(Site(), Yard(path.parent)).look()


def _archive(path: Path) -> None:
    """An image as docker saves it: copied into a layout, and its layers unpacked."""
    from stackyard.core.errors import StackyardError
    from stackyard.images.bases import software
    from stackyard.images.bases.blobs import Layout
    from stackyard.images.bases.sources import fetch, source_of
    from stackyard.images.bases.unpack import UnpackedTree

    with tempfile.TemporaryDirectory() as directory:
        layout, root = Layout(Path(directory, "oci")), Path(directory, "root")
        root.mkdir()
        try:
            fetched = fetch(source_of(f"docker-archive:{path}"), layout, "linux-64")
            for layer in fetched.layers:
                UnpackedTree(root, most_bytes=1 << 20).apply(layer, layout.path(layer.digest))
            software.platform_of(root)
            software.software_of(root, ())
        except StackyardError as error:
            assert error.message


def _layer(path: Path) -> None:
    """A layer whose digest is right, whatever it holds."""
    from stackyard.core.errors import StackyardError
    from stackyard.images.bases.model import Layer
    from stackyard.images.bases.unpack import UnpackedTree

    data = path.read_bytes()
    with tempfile.TemporaryDirectory() as directory:
        try:
            UnpackedTree(Path(directory), most_bytes=1 << 20).apply(Layer("", 0, "", basebed.digest(data)), path)
        except StackyardError as error:
            assert error.message


def _pushed(path: Path) -> None:
    """The configuration of a pushed revision, whose digest is right, whatever it holds."""
    from stackyard.core.errors import StackyardError
    from stackyard.images.oci import artefact
    from stackyard.images.oci.layout import MANIFEST, Reference
    from stackyard.images.oci.writer import writer

    with tempfile.TemporaryDirectory() as directory:
        with writer(Path(directory)) as into:
            config = into.add_bytes(artefact.KIND, path.read_bytes())
            notes = artefact.Fit("demo/1-py311-0", "/yard/stacks/demo/1-py311-0", "linux-64").notes()
            value = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.to_json(), "layers": [],
                     "annotations": {**notes, artefact.ABOUT: "1"}}  # fmt: skip
            into.publish("x", into.add_json(MANIFEST, value))
        try:
            artefact.read(Reference(Path(directory), "x"))
        except StackyardError as error:
            assert error.message


def _installed(inside: str) -> Read:
    """What is installed in a prefix, one file of which is damaged."""

    def read(path: Path) -> None:
        from stackyard.core.errors import StackyardError
        from stackyard.lock.base.installed import installed
        from stackyard.lock.lockfile import text
        from stackyard.lock.lockfile.model import Lock, LockedVariant
        from stackyard.make.collisions.observed import observed

        with tempfile.TemporaryDirectory() as directory:
            for name, content in (*PREFIX.items(), ("a", b"x"), ("bin/b", b"y"), (inside, path.read_bytes())):
                Path(directory, name).parent.mkdir(parents=True, exist_ok=True)
                Path(directory, name).write_bytes(content)
            try:
                found = installed(Path(directory))
                collisions = observed(Path(directory))
            except StackyardError as error:
                assert error.message and error.hint
                return
            variant = LockedVariant("a", "1", "", "linux-64", "0", found.interpreter, requested=found.requested,
                                    conda=found.conda, pip=found.pip)  # fmt: skip
            assert text.parse(text.dump(Lock("a", (variant,))), "x").variants[0].pip == found.pip
            json.dumps([asdict(each) for each in collisions])

    return read


_INFO = "lib/python3.11/site-packages/a-1.dist-info"
PREFIX = {
    "pyvenv.cfg": b"home = /usr/bin\nversion = 3.11.7\n",
    "conda-meta/six-1-0.json": b'{"name": "six", "version": "1", "build": "0", "build_number": 0, "subdir": "noarch", '
    b'"channel": "https://c/x", "url": "https://c/x/noarch/six-1-0.conda", "md5": null, "size": 7, "timestamp": 9, '
    b'"depends": ["python >=3"], "files": ["a", "b"], "requested_specs": ["six"], "paths_data": {"paths": [{"_path": '
    b'"a", "path_type": "hardlink", "sha256": "ab"}, {"_path": "bin/b", "path_type": "unix_python_entry_point"}]}}',
    f"{_INFO}/METADATA": b"Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: six (>1); extra == 'x'\n\nText\n",
    f"{_INFO}/RECORD": b'../../../a,sha256=x,1\na.py,,\n"../../../bin/b",sha256=eA,1\n',
    f"{_INFO}/direct_url.json": b'{"url": "https://u:p@h/a.whl", "archive_info": {"hash": "sha256=00", "hashes": {}}, '
    b'"dir_info": {"editable": true}, "vcs_info": {"commit_id": "ab", "vcs": "git"}}',
}
"""Files of a prefix that others made."""


def _configuration() -> bytes:
    record = json.loads((DATA / "formats" / "record-5.json").read_bytes())
    manifest = json.loads((DATA / "formats" / "manifest-3.json").read_bytes())
    value = {"format": 1, "record": record, "entry": manifest["entries"][0], "rootfs": {"diff_ids": []}}
    return json.dumps(value).encode()


def _sif() -> bytes:
    from stackyard.images.sif import file as sif

    labels = b'{"data": {"attributes": {"labels": {"io.stackyard.base-sha256": "0"}}}}'
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "x.sif")
        sif.write(file, "amd64", [
            sif.PartSource(sif.JSON, sif.INSPECT, labels),
            sif.PartSource(sif.PARTITION, "base", b"x" * 100, sif.SYSTEM),
            sif.PartSource(sif.PARTITION, "prefix", b"y" * 100, sif.OVERLAY),
        ])  # fmt: skip
        return file.read_bytes()


def _saved() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        return basebed.docker_archive(Path(directory, "x.tar"), [LAYER], Env=["A=b"]).read_bytes()


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
COLLECTIVES = (
    b'{"format": 1, "sizes": [8, 16], "factor": 2, "warmup": 5, "iterations": 2, "start_time": "2026-11-28 12:00:00", '
    b'"environment": ["NCCL_DEBUG=INFO"], "nccl_version": 0, "devices": [{"rank": 0, "hostname": "n1", "free": 7}]}\n'
    b'{"operation": "all_reduce", "size": 8, "count": 2, "wrong": 0, "times_us": [[10.5, 11], [9.5, 12]]}\n'
    b'{"operation": "all_to_all", "skipped": "not supported"}\n{"end_time": "2026-11-28 12:00:09"}\n'
)


def _collectives(path: Path) -> None:
    for name in ("record.json", "status.json"):
        path.with_name(name).write_bytes(RUN.joinpath(name).read_bytes())
    commands("bench collectives --json --of {}/..")(path)


POINT = "points/n0001-native-a01-r01.json"


CATALOGUE = json.dumps({
    "format": 1, "keys": {"s/1-1.html": ["ab", 9]}, "packages": [["numpy", "2.1", "h0", "conda", "BSD-3-Clause"]],
    "facts": {"s/1-1": {
        "stamp": "1-2-3 -", "summary": "x", "platform": "linux-64", "python": "3.12", "axes": {"cuda": "12"},
        "asked": ["numpy"], "bytes": 10**10, "files": 9, "entries": 9, "checks": {"import": [61, 0, 0, 1]},
        "checked": "2026-11-28T00:00:00+00:00", "verdict": "passed", "command": "python", "base": "",
        "identities": {"lock sha256": "ab"}, "packages": [0],
    }},
}).encode()  # fmt: skip


def _catalogue(name: str) -> Read:
    """A reader of a file that a catalogue keeps; what it says of a revision is in each format."""

    def read(path: Path) -> None:
        from stackyard.catalogue import kept
        from stackyard.catalogue.forms import FORMS, files
        from stackyard.catalogue.model import Catalogue, Revision, Stack
        from stackyard.core.errors import StackyardError
        from stackyard.yard.revision.manifest import Entry

        directory = path.with_name("catalogue")
        (directory / kept.OWN).mkdir(parents=True, exist_ok=True)
        (directory / kept.OWN / name).write_bytes(path.read_bytes())
        with suppress(StackyardError):
            kept.look(directory, "/sw/yard", "site")
        for module, facts in kept.read(directory).facts.items():
            entry = Entry("s", "1", "", 1, module, "/sw/yard/stacks/s/1-1", "2026-01-01T00:00:00+00:00")
            stack = Stack("s", (Revision(entry, facts),))
            for form in FORMS:
                files(Catalogue("n", "", "/m", "", 1, entry.created, "/sw/yard", (stack,)), form, lambda *_: False)

    return read


def _in_study(place: str, of: str = "formats/study-1") -> Read:
    """A reader of one file of a study, or of a search."""

    def read(path: Path) -> None:
        study = path.with_name("study")
        shutil.copytree(DATA / of, study, dirs_exist_ok=True)
        study.joinpath(place).write_bytes(path.read_bytes())
        commands(f"report {study}", f"report {study} -o {study}.html")(path)

    return read


_DISTRIBUTIONS = (
    b"# checksum %s\nlib/python3.11/site-packages/annoy-1.17.2.dist-info\n"
    % hashlib.sha256(b"lib/python3.11/site-packages/annoy-1.17.2.dist-info\n").hexdigest().encode()
)


def _archive_of(suffix: str) -> bytes:
    """A conda archive with a distribution."""
    from support.channel import Package, write_package

    files = {"lib/python3.11/site-packages/annoy-1.17.2.dist-info/METADATA": "Name: annoy\n"}
    with tempfile.TemporaryDirectory() as directory:
        return write_package(Path(directory), Package("x", "1", files=files, suffix=suffix)).read_bytes()


_STACK_FILE = ("show --parsed {}", "deploy --dry-run --locked {}")
_SITE_FILE = ("--site {} list", "--site {} explain --nodes 2 train.py")
_JOB_FILE = ("explain --job {}", f"--site {EXAMPLES}/frontier/site.yaml explain --picture --job {{}}")

READERS = {
    **{f"installed {Path(name).name}": Reader("file", [content], _installed(name)) for name, content in PREFIX.items()},
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
    "checks of a site": Reader("checks.yaml", [SITE_CHECKS], _site_checks),
    "causes of a site": Reader(
        "causes.yaml", _files("launch/run/causes/rules/memory.yaml", where=SOURCES), _site_causes
    ),
    "sif": Reader("x.sif", [_sif()], commands("image inspect {}", "image inspect --json {}", "image check {}")),
    "saved image": Reader("saved.tar", [_saved()], _archive),
    "layer": Reader("layer.tar", [LAYER, gzip.compress(LAYER, mtime=0)], _layer),
    "pushed revision": Reader("config.json", [_configuration()], _pushed),
    "hosts": Reader("hosts", [HOSTS], _hosts),
    "pip.conf": Reader("pip.conf", [PIP_CONFIG], _pip_config),
    "trash": Reader("what.json", _files("formats/what-*.json", where=DATA), _trash),
    "package": Reader("x-1-0.conda", [_archive_of(".conda")], _package),
    "old package": Reader("x-1-0.tar.bz2", [_archive_of(".tar.bz2")], _package),
    "distributions": Reader("noted", [_DISTRIBUTIONS], _distributions),
    "pyproject.toml": Reader(
        "pyproject.toml", [b'[project]\nname = "mine"\n[build-system]\nrequires = []\n'], _project_name
    ),
    "setup.cfg": Reader("setup.cfg", [b"[metadata]\nname = mine\n[options]\npackages = find:\n"], _project_name),
    "setup.py": Reader("setup.py", [b"from setuptools import setup\nsetup(name='mine', version='1')\n"], _project_name),
    "use": Reader("a~1@n1.7.0.json", [USE], _uses),
    "usage": Reader("n1.0.2026-11.log", [b"2026-11-23 run a/1-1\n2026-11-23 load a/1-2\n"], _usage),
    "child": Reader("0.json", _files("formats/child-*.json", where=DATA), _child),
    "bases in use": Reader("bases-in-use.json", _files("formats/bases-in-use-*.json", where=DATA), _bases_in_use),
    "record of another account": Reader("record.json", _files("formats/record-6.json", where=DATA), _others_record),
    "run record": Reader(
        "record.json", [RUN.joinpath("record.json").read_bytes()], commands("runs show {}/..", "runs diff {}/.. {}/..")
    ),
    "log with failures": Reader("job.log", _files("data/doctor/failed/*.log", where=ROOT / "tests"), _failures),
    "log with metrics": Reader("rank.log", [_LOG], _metrics),
    "run status": Reader(
        "status.json", [RUN.joinpath("status.json").read_bytes()], commands("runs show {}/..", "runs show --json {}/..")
    ),
    "files of a catalogue": Reader("x.json", _files("formats/catalogue-*.json", where=DATA), _catalogue("made.json")),
    "cache of a catalogue": Reader("x.json", [CATALOGUE], _catalogue("read.json")),
    "study": Reader("study.json", _files("formats/study-*/study.json", where=DATA), _in_study("study.json")),
    "study.yaml": Reader("study.yaml", _files("formats/study-*/study.yaml", where=DATA), _in_study("study.yaml")),
    "job of a study": Reader(
        "n0001-a01.json", _files("formats/study-*/jobs/n0001-a01.json", where=DATA), _in_study("jobs/n0001-a01.json")
    ),
    "point of a study": Reader("point.json", _files(f"formats/study-*/{POINT}", where=DATA), _in_study(POINT)),
    **{
        f"{file} of a search": Reader(
            file, _files(f"formats/search-*/{file}", where=DATA), _in_study(file, "formats/search-1")
        )
        for file in ("search.json", "space.yaml", "journal.jsonl")
    },
    "collectives": Reader("collectives.jsonl", [COLLECTIVES], _collectives),
    "trace": Reader("rank-00000.pt.trace.json", [TRACE], commands("report {}", "report {} --json")),
    "packed trace": Reader("rank-00000.pt.trace.json.gz", [gzip.compress(TRACE, mtime=0)], commands("report {}")),
}
