"""Importing images of others: every source gives the same files, nothing harmful gets in, a half one is never seen."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import signal
import stat
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.basebed import config, digest, docker_archive, layer, oci, of_directory, system
from stackyard.core.errors import InputError, StackyardError
from stackyard.images.bases import store
from stackyard.images.bases.model import Base, Layer
from stackyard.images.bases.sources import source_of
from stackyard.images.bases.unpack import UnpackedTree
from stackyard.images.oci import base, gzipped
from stackyard.images.oci.layout import Reference
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.yard.layout import Yard
from support import programs
from support.accounts import Accounts

pytestmark = pytest.mark.real


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    programs.need("mksquashfs")
    (tmp_path / "yard").mkdir()
    return Yard(tmp_path / "yard")


IMPORT = """
from pathlib import Path
from stackyard.images.bases import store
from stackyard.images.bases.sources import source_of
from stackyard.yard.layout import Yard
wanted = store.BaseImport(source_of("docker-archive:{archive}"), "base")
print(store.add(Yard(Path("{yard}")), wanted).base.when)
"""


def add(yard: Yard, source: str, name: str = "base", **more: Any) -> store.StoredBase:
    return store.add(yard, store.BaseImport(source_of(source), name, **more))


def listed(kept: store.StoredBase) -> dict[str, str]:
    """The modes of a base's files, by path."""
    words = ["unsquashfs", "-lln", kept.paths.image]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=5) for line in out.splitlines()]
    return {row[5].split(" -> ")[0].removeprefix("squashfs-root").lstrip("/"): row[0] for row in rows if len(row) == 6}


def read(kept: store.StoredBase, path: str) -> str:
    words = ["unsquashfs", "-cat", kept.paths.image, path]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def import_layers(yard: Yard, *layers: bytes, **more: Any) -> store.StoredBase:
    """A base of these layers, from an archive."""
    file = docker_archive(yard.root.parent / f"{digest(b''.join(layers))[7:19]}.tar", layers)
    return add(yard, f"docker-archive:{file}", **more)


def test_every_source_gives_the_same_files(yard: Yard, tmp_path: Path) -> None:
    root = system(tmp_path / "root")
    tar = of_directory(root)
    made = [
        add(yard, f"folder:{root}", "a"),
        add(yard, f"docker-archive:{docker_archive(tmp_path / 'b.tar', [tar])}", "b"),
        add(yard, f"docker-archive:{docker_archive(tmp_path / 'c.tar', [tar])}:powerai:1", "c"),
        add(yard, f"oci:{oci(tmp_path / 'd', [tar])}", "d"),
        add(yard, f"oci:{oci(tmp_path / 'e', [tar], packed=False)}:1", "e"),
    ]
    assert len({kept.base.root.sha256 for kept in made}) == 1
    modes = listed(made[0])
    assert (modes["tmp"], modes["bin/su"], modes["bin/sh"][0]) == ("drwxrwxrwt", "-rwxr-xr-x", "l")
    for kept in made:
        assert kept.base.platform == "linux-64" and kept.base.without_rights == ("bin/su",)
        assert store.find(Workspace(Site(), yard), kept.base.name) == kept
        store.check(kept)
        assert not kept.paths.image.stat().st_mode & 0o222
        assert [path.name for path in yard.bases.iterdir() if path.name.startswith(".")] == []
    assert made[3].base.layers[0].digest == digest(gzip.compress(tar, mtime=0)), "as it came"
    assert [base.name for base, _ in store.everything(yard)] == list("abcde")


def test_layers_of_zstd_are_unpacked(yard: Yard, tmp_path: Path) -> None:
    programs.need("zstd")
    tar = layer([("etc/os-release", "ID=z\n"), ("big", "0" * (1 << 20))])
    packed = subprocess.run(["zstd", "-c"], input=tar, capture_output=True, check=True).stdout
    assert packed[:4] == b"\x28\xb5\x2f\xfd"
    file = tmp_path / "layer"
    for data, problem in ((packed, ""), (packed[:-9], "is damaged"), (packed[:40] + b"x" * 40, "is damaged")):
        file.write_bytes(data)
        root = tmp_path / f"root-{len(data)}"
        root.mkdir()
        about = Layer(digest(data), len(data), "application/vnd.oci.image.layer.v1.tar+zstd", digest(tar))
        if problem:
            with pytest.raises(StackyardError, match=problem):
                UnpackedTree(root).apply(about, file)
        else:
            UnpackedTree(root).apply(about, file)
            assert (root / "etc/os-release").read_text() == "ID=z\n" and (root / "big").stat().st_size == 1 << 20
    (tmp_path / "root-bomb").mkdir()
    with pytest.raises(StackyardError, match="more than"):
        file.write_bytes(packed)
        UnpackedTree(tmp_path / "root-bomb", most_bytes=1000).apply(about, file)


def test_another_program_reads_what_is_kept(yard: Yard, tmp_path: Path) -> None:
    """skopeo copies the layout that a base is kept in, and what it writes is the same base."""
    programs.need("skopeo")
    kept = add(yard, f"folder:{system(tmp_path / 'root')}")
    copy = f"docker-archive:{tmp_path / 'copy.tar'}:x/y:1"
    subprocess.run(["skopeo", "copy", "--insecure-policy", "-q", f"oci:{kept.paths.layout}:base", copy], check=True)
    again = add(yard, copy, "again")
    assert again.base.root == kept.base.root
    assert again.base.manifest in kept.base.digests[1:], "docker has layers as they are"
    assert add(yard, f"folder:{tmp_path / 'root'}", "again") == again, "as an earlier version imported it"
    assert add(yard, f"folder:{tmp_path / 'root'}", "third", digest=again.base.manifest).base.root == kept.base.root


def test_a_directory_is_compressed_alike_on_any_number_of_cores(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks, which are one member of gzip: other programs read it, and it is as small as theirs."""
    root = system(tmp_path / "root")
    (root / "text").write_text("".join(f"{number} lines of text\n" for number in range(300_000)))
    (root / "noise").write_bytes(os.urandom(3 << 20))
    made = []
    for count in (1, 2, 7):
        monkeypatch.setattr(gzipped, "cores", lambda count=count: count)
        made.append(add(yard, f"folder:{root}", f"cores-{count}"))
    assert len({kept.base.manifest for kept in made}) == 1
    (only,) = made[0].base.layers
    assert only.media_type == "application/vnd.oci.image.layer.v1.tar+gzip"
    packed = made[0].layout.path(only.digest).read_bytes()
    tar = subprocess.run(["gzip", "-dc"], input=packed, capture_output=True, check=True).stdout
    assert digest(tar) == only.diff_id and gzip.decompress(packed) == tar
    whole = zlib.decompressobj(31)
    assert whole.decompress(packed) == tar and whole.eof and not whole.unused_data
    assert len(packed) < 1.01 * len(gzip.compress(tar, 6))


@pytest.mark.parametrize("size", [0, 1, gzipped.BLOCK - 1, gzipped.BLOCK, gzipped.BLOCK + 1, 3 * gzipped.BLOCK])
def test_a_stream_of_any_length_is_compressed(size: int) -> None:
    data = os.urandom(size // 2) + b"x" * (size - size // 2)
    reader = gzipped.GzipReader(io.BytesIO(data))
    assert gzip.decompress(b"".join(iter(reader.read, b""))) == data
    assert (reader.size, reader.digest) == (size, digest(data))


def test_an_ordinary_account_imports_what_only_root_may_read(accounts: Accounts, common: Path) -> None:
    """Files of root and of others, with mode 0000: they are there and readable."""
    programs.need("mksquashfs")
    odd = layer([("etc", {"type": tarfile.DIRTYPE, "mode": 0o500}), ("etc/shadow", {"mode": 0, "uid": 7}),
                 ("bin", None), ("bin/sh", "#!x\n")])  # fmt: skip
    archive = docker_archive(common / "odd.tar", [odd])
    anna = accounts.user("anna")
    yard = Yard(anna.home / "yard")
    anna.python(IMPORT.format(yard=str(yard.root), archive=archive))
    (kept,) = (store.StoredBase(*row) for row in store.everything(yard))
    assert kept.base.who == anna.name
    modes = listed(kept)
    assert modes["etc"][7:] == "r-x" and modes["etc/shadow"] == "-rw-r--r--"


def test_a_directory_leaves_out_what_the_host_gives(yard: Yard, tmp_path: Path) -> None:
    """debootstrap makes device nodes in /dev. Elsewhere one is refused."""
    if os.geteuid():
        pytest.skip("device nodes need root")
    for name in ("dev", "opt/dev", "proc"):
        (tmp_path / "root" / name).mkdir(parents=True)
    os.mknod(tmp_path / "root/dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (tmp_path / "root/proc/left").touch()
    assert listed(add(yard, f"folder:{tmp_path / 'root'}")) == {
        "": "drwxr-xr-x", "dev": "drwxr-xr-x", "opt": "drwxr-xr-x", "opt/dev": "drwxr-xr-x", "proc": "drwxr-xr-x",
    }  # fmt: skip
    os.mknod(tmp_path / "root/opt/dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pytest.raises(StackyardError, match="cannot unpack a device node: 'opt/dev/null'"):
        add(yard, f"folder:{tmp_path / 'root'}", "other")


def test_bytecode_stays_that_of_its_source(yard: Yard, tmp_path: Path) -> None:
    """Times of files are kept, in whole seconds: else Python would compile each module again at every start."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "m.py").write_text("x = 1\n")
    os.utime(root / "m.py", ns=(10**18 + 5, 10**18 + 999))
    os.symlink("m.py", root / "n.py")
    first = add(yard, f"folder:{root}")
    archive = docker_archive(tmp_path / "a.tar", [of_directory(root)])
    again = add(yard, f"docker-archive:{archive}", "again")
    assert first.base.root.sha256 == again.base.root.sha256
    words = ["unsquashfs", "-UTC", "-lln", first.paths.image]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "2001-09-09 01:46 squashfs-root/m.py" in out and "1970-01-01 00:00 squashfs-root\n" in out


@pytest.mark.parametrize("time", [-5, 1 << 40, float("nan"), float("inf")])
def test_an_impossible_time_is_none(yard: Yard, time: float) -> None:
    data = layer([("a", {"mtime": 0, "pax_headers": {"mtime": str(time)}})])
    assert "a" in listed(import_layers(yard, data))


def test_layers_replace_and_remove_what_lies_below(yard: Yard) -> None:
    below = layer([("usr", None), ("usr/lib", None), ("usr/lib/a", "1"), ("usr/lib/b", "1"), ("lib", "-> usr/lib"),
                   ("opt", None), ("opt/x", None), ("opt/x/old", "1"), ("d", None), ("d/in", "1"), ("f", "1"),
                   ("y", None), ("y/z", None), ("y/z/old", "1")])  # fmt: skip
    above = layer([("lib/c", "2"), ("usr/lib/.wh.a", ""), ("opt/x/new", "2"), ("opt/x/.wh..wh..opq", ""), ("d", "2"),
                   ("f", None), ("f/g", "2"), (".wh..wh.plnk", ""), ("y/.wh..wh..opq", ""), ("y/z", None),
                   ("y/z/new", "2")])  # fmt: skip
    kept = import_layers(yard, below, above)
    files = {path for path, mode in listed(kept).items() if mode[0] == "-"}
    assert files == {"usr/lib/b", "usr/lib/c", "opt/x/new", "d", "f/g", "y/z/new"}
    assert read(kept, "d") == "2"


TRAVERSAL = "a path of the image leads out of it"
HARMFUL = {
    "up": ([("../evil", "x")], TRAVERSAL),
    "up within": ([("a/../../evil", "x")], TRAVERSAL),
    "hard link up": ([("in", {"type": tarfile.LNKTYPE, "linkname": "../../../../etc/passwd"})], TRAVERSAL),
    "hard link out": (
        [("l", "-> /etc"), ("in", {"type": tarfile.LNKTYPE, "linkname": "l/passwd"})],
        "is not a file",
    ),
    "hard link to a directory": (
        [("d", None), ("in", {"type": tarfile.LNKTYPE, "linkname": "d"})],
        "is not a file",
    ),
    "character device": ([("dev/sda", {"type": tarfile.CHRTYPE, "devmajor": 8})], "cannot unpack a device node"),
    "block device": ([("dev/sda", {"type": tarfile.BLKTYPE, "devmajor": 8})], "cannot unpack a device node"),
    "pipe": ([("run/pipe", {"type": tarfile.FIFOTYPE})], "cannot unpack a named pipe"),
    "whiteout of the root": ([(".wh.", "")], "a layer removes the root directory"),
    "whiteout of ..": ([("a", None), ("a/.wh...", "")], "a layer removes the root directory"),
    "opaque root": ([(".wh..wh..opq", "")], "a layer removes the root directory"),
    "opaque root by a link": ([("l", "-> .."), ("l/.wh..wh..opq", "")], "a layer removes the root directory"),
    "root as a link": ([(".", "-> /etc")], "the image replaces its root directory"),
    "links in a circle": ([("a", "-> b"), ("b", "-> a"), ("a/x", "1")], "too many symbolic links"),
    "a file as a directory": ([("a", "1"), ("a/x", "1")], "not a directory in the image"),
    "a long header": ([("x", {"pax_headers": {"comment": "x" * (2 << 20)}})], "impossible size"),
}


@pytest.mark.parametrize("what", HARMFUL)
def test_a_harmful_archive_is_refused(yard: Yard, what: str) -> None:
    entries, said = HARMFUL[what]
    (yard.root.parent / "evil").unlink(missing_ok=True)
    with pytest.raises(StackyardError, match=said):
        import_layers(yard, layer(entries))
    assert not (yard.bases / "base").exists() and list(yard.bases.iterdir()) == []
    assert not list(yard.root.parent.rglob("evil"))


@pytest.mark.parametrize("target", ["/", "/etc", "../../../../../../..", "{out}"])
def test_links_lead_nowhere_but_within(yard: Yard, tmp_path: Path, target: str) -> None:
    """A link to the outside, and a file written through it: it is written within, as in a container."""
    (tmp_path / "out").mkdir()
    target = target.format(out=tmp_path / "out")
    kept = import_layers(yard, layer([("l", f"-> {target}"), ("l/written", "x"), ("l/sub/deep", "y")]))
    assert (
        list((tmp_path / "out").iterdir()) == [] and not Path("/written").exists() and not Path("/etc/written").exists()
    )
    inside = target.strip("/") if target.startswith("/") else ""
    assert read(kept, f"{inside}/written".lstrip("/")) == "x"


def test_a_directory_replaces_a_link_and_is_not_written_through(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    kept = import_layers(yard, layer([("l", f"-> {tmp_path}/out")]), layer([("l", None), ("l/x", "1")]))
    assert listed(kept)["l"][0] == "d" and read(kept, "l/x") == "1"


def test_a_bomb_of_zeros_ends_at_the_limit(yard: Yard, tmp_path: Path) -> None:
    zeros = layer([("big", b"\0" * (8 << 20))])
    directory = oci(tmp_path / "bomb", [zeros])
    for limit, said in ((1 << 20, r"more than 0.0009766 GiB when it is unpacked"), (16 << 20, "")):
        if said:
            with pytest.raises(StackyardError, match=said):
                add(yard, f"oci:{directory}", "bomb", most_bytes=limit)
        else:
            add(yard, f"oci:{directory}", "bomb", most_bytes=limit, platform="linux-64")


def test_a_wrong_digest_is_refused(yard: Yard, tmp_path: Path) -> None:
    tar = layer([("a", "1")])
    directory = oci(tmp_path / "o", [tar])
    right = add(yard, f"oci:{directory}").base.digests
    with pytest.raises(StackyardError, match=r"wrong digest: oci:.* expected sha256:0000"):
        add(yard, f"oci:{directory}", "other", digest=f"sha256:{'0' * 64}")
    for each in right:
        assert add(yard, f"oci:{directory}", digest=each).base.digests == right
    archive = docker_archive(tmp_path / "a.tar", [tar])
    for pinned in (digest(archive.read_bytes()), digest(config([tar]))):
        add(yard, f"docker-archive:{archive}", "archive", digest=pinned)
    with pytest.raises(InputError, match="exists and is another image"):
        add(yard, f"docker-archive:{docker_archive(tmp_path / 'b.tar', [layer([('b', '1')])])}")


def _zstd(data: bytes) -> bytes:
    programs.need("zstd")
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, _zstd])
@pytest.mark.parametrize("rest", [b"\xff" * 100, b""], ids=["changed", "cut"])
def test_a_layer_that_is_damaged_below_its_digest_is_named(
    yard: Yard, tmp_path: Path, compress: Callable[[bytes], bytes], rest: bytes
) -> None:
    """As its maker published it: all digests are right. `rest`: what follows after the first half."""
    data = compress(layer([("a", " ".join(map(str, range(100_000))))]))
    directory = oci(tmp_path / "o", [data[: len(data) // 2] + rest], packed=False)
    with pytest.raises(StackyardError, match=r"cannot read the layer [0-9a-f]{64}: "):
        base.read(Reference(directory), "linux-64")
    with pytest.raises(StackyardError, match=r"layer sha256:.* is damaged: "):
        add(yard, f"oci:{directory}")


@pytest.mark.parametrize("damage", ["layer", "config", "manifest", "diff", "truncated"])
def test_a_damaged_image_is_refused(yard: Yard, tmp_path: Path, damage: str) -> None:
    """Every byte is compared with a digest on the way from the index down."""
    tar = layer([("a", "x" * 5000)])
    other = layer([("a", "y" * 5000)])
    directory = oci(tmp_path / "o", [tar])
    blobs = directory / "blobs/sha256"
    packed = blobs / digest(gzip.compress(tar, mtime=0)).removeprefix("sha256:")
    if damage == "layer":
        packed.write_bytes(gzip.compress(other, mtime=0))
    elif damage == "truncated":
        packed.write_bytes(packed.read_bytes()[:-20])
    elif damage == "diff":
        archive = docker_archive(tmp_path / "a.tar", [tar])
        archive.write_bytes(archive.read_bytes().replace(b"x" * 5000, b"y" * 5000))
        with pytest.raises(StackyardError, match="is not the one that the image names"):
            add(yard, f"docker-archive:{archive}")
        return
    else:
        entry = json.loads((directory / "index.json").read_text())["manifests"][0]["digest"]
        name = entry if damage == "manifest" else json.loads((blobs / entry[7:]).read_text())["config"]["digest"]
        (blobs / name[7:]).write_bytes((blobs / name[7:]).read_bytes() + b" ")
    with pytest.raises(StackyardError, match=r"wrong (digest|size)|do not have its digest"):
        add(yard, f"oci:{directory}")
    assert list(yard.bases.iterdir()) == []


@pytest.mark.parametrize("what", [
    {"rootfs": []}, {"rootfs": None}, {"rootfs": {"diff_ids": 5}}, {"rootfs": {}}, {"config": "x"},
    {"config": {"Env": 5}},
    {"config": {"Labels": ["x"]}}, {"rootfs": {"diff_ids": [1, 2, 3]}}, {"architecture": 5},
])  # fmt: skip
def test_a_configuration_of_another_form(yard: Yard, tmp_path: Path, what: dict[str, object]) -> None:
    archive = docker_archive(tmp_path / "a.tar", [layer([("a", "1")])])
    with tarfile.open(archive) as tar:
        value = {**json.load(tar.extractfile("config.json")), **what}  # type: ignore[arg-type]
        names = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        data = tar.extractfile(names[0]["Layers"][0]).read()  # type: ignore[union-attr]
    entries = [("manifest.json", json.dumps(names)), ("config.json", json.dumps(value)), (names[0]["Layers"][0], data)]
    archive.write_bytes(layer(entries))
    with pytest.raises(InputError):
        add(yard, f"docker-archive:{archive}")
    assert list(yard.bases.iterdir()) == []


def test_limits(yard: Yard, tmp_path: Path) -> None:
    """Of entries, and of an archive that is compressed as a whole."""
    (tmp_path / "root").mkdir()
    (tmp_path / "l.tar").write_bytes(data := layer([(str(n), "") for n in range(5)]))
    with pytest.raises(StackyardError, match="more than 4 entries"):
        UnpackedTree(tmp_path / "root", most_entries=4).apply(Layer("", 0, "", digest(data)), tmp_path / "l.tar")
    archive = docker_archive(tmp_path / "a.tar", [layer([("big", b"\0" * (8 << 20))])])
    archive.write_bytes(gzip.compress(archive.read_bytes()))
    with pytest.raises(StackyardError, match=r"a\.tar has more than 0\.003906 GiB"):
        add(yard, f"docker-archive:{archive}", most_bytes=4 << 20)
    add(yard, f"docker-archive:{archive}")


def test_a_directory_that_cannot_be_read(accounts: Accounts, common: Path) -> None:
    """Nothing is left out in silence."""
    (common / "root").mkdir(mode=0o755)
    (common / "root/secret").write_text("x")
    (common / "root/secret").chmod(0)
    anna = accounts.user("anna")
    code = IMPORT.format(yard=str(anna.home / "yard"), archive="x").replace("docker-archive:x", f"folder:{common}/root")
    done = anna.python(code, expect=1)
    assert f"cannot read {common}/root/secret: Permission denied" in done.err


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_truncated_archive_is_refused(yard: Yard, tmp_path: Path, share: float) -> None:
    archive = docker_archive(tmp_path / "a.tar", [layer([("a", "x" * 50000)])])
    archive.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])
    with pytest.raises(StackyardError, match=r"damaged|is not an image|wrong size"):
        add(yard, f"docker-archive:{archive}")
    assert list(yard.bases.iterdir()) == []


def test_an_image_of_another_architecture(yard: Yard, tmp_path: Path) -> None:
    """What it says, and what its programs are, may differ: the programs count."""
    tar = of_directory(system(tmp_path / "root"))
    lying = docker_archive(tmp_path / "lie.tar", [tar], architecture="ppc64le")
    assert add(yard, f"docker-archive:{lying}", "lie").base.platform == "linux-64"
    with pytest.raises(InputError, match="is not for linux-ppc64le: its programs are for linux-64"):
        add(yard, f"docker-archive:{lying}", "lie2", platform="linux-ppc64le")
    foreign = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x15\x00" + bytes(40)
    other = docker_archive(tmp_path / "other.tar", [layer([("bin", None), ("bin/sh", foreign)])])
    with pytest.raises(InputError, match="is not for linux-64: its programs are for linux-ppc64le") as caught:
        add(yard, f"docker-archive:{other}", "other")
    assert caught.value.hint == "say so with --platform linux-ppc64le"
    assert add(yard, f"docker-archive:{other}", "other", platform="linux-ppc64le").base.architecture == "ppc64le"


def test_what_it_holds_is_recorded(yard: Yard, tmp_path: Path) -> None:
    conda = "opt/miniconda3/envs/pytorch"
    tar = layer([
        ("usr/local/cuda-12.4/lib/libcudart.so.12.4.127", "x"), (f"{conda}/conda-meta/history", ""),
        (f"{conda}/conda-meta/python-3.10.8-h7a1cb2a_1.json", "{}"), ("opt/venv/pyvenv.cfg", "version = 3.9.2\n"),
        ("opt/rocm-6.2.0/.info/version", "6.2.0-66\n"),
    ])  # fmt: skip
    env = ["WITH_CONDA=source /opt/miniconda3/bin/activate pytorch; conda activate /" + conda, "PATH=/usr/bin"]
    found = add(yard, f"docker-archive:{docker_archive(tmp_path / 'a.tar', [tar], Env=env, Cmd=['bash'])}").base
    assert [(each.kind, each.path, each.python) for each in found.software.environments] == [
        ("conda", f"/{conda}", "3.10.8"), ("venv", "/opt/venv", "3.9.2"),
    ]  # fmt: skip
    assert found.software.activate == env[0].partition("=")[2]
    assert {(each["vendor"], each["version"]) for each in found.software.toolkits} == {
        ("nvidia", "12.4"),
        ("amd", "6.2"),
    }
    assert (found.defaults.command, found.software.shell, found.software.libc) == (("bash",), False, "")
    assert isinstance(found, Base)


def test_two_imports_at_once_make_one_base(yard: Yard, tmp_path: Path) -> None:
    archive = docker_archive(tmp_path / "a.tar", [of_directory(system(tmp_path / "root"))])
    code = IMPORT.format(yard=str(yard.root), archive=archive)
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {each.communicate(timeout=240)[0] for each in both}
    assert [each.returncode for each in both] == [0, 0]
    assert len(said) == 1
    assert [path.name for path in yard.bases.iterdir()] == ["base"]


def test_an_import_that_is_killed_is_never_seen(yard: Yard, tmp_path: Path) -> None:
    archive = docker_archive(tmp_path / "a.tar", [layer([("a", "1")])])
    code = IMPORT.format(yard=str(yard.root), archive=archive)
    for point in ("write", "base"):
        environ = {**os.environ, "STACKYARD_FAULT": point}
        assert subprocess.run([sys.executable, "-c", code], env=environ, check=False).returncode == -signal.SIGKILL
        assert list(store.everything(yard)) == []
        with pytest.raises(InputError, match=r"no such base in .*: base"):
            store.find(Workspace(Site(), yard), "base")
        assert [path.name[:6] for path in yard.bases.iterdir()] == [".base~"]
    add(yard, f"docker-archive:{archive}")
    assert [path.name for path in yard.bases.iterdir()] == ["base"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    programs.need("mount")
    place = tmp_path / "small"
    place.mkdir()
    archive = docker_archive(tmp_path / "a.tar", [layer([("a", os.urandom(3 << 20))])])
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(StackyardError, match=r"[Nn]o space left on device"):
            add(Yard(place), f"docker-archive:{archive}")
        assert list((place / "bases").iterdir()) == []
    finally:
        subprocess.run(["umount", place], check=True)


def test_what_another_account_imported_is_not_trusted(yard: Yard, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("giving files away needs root")
    kept = import_layers(yard, layer([("a", "1")]))
    os.chown(kept.paths.record, 12345, -1)
    with pytest.raises(StackyardError, match="was imported by 12345"):
        store.find(Workspace(Site(), yard), "base")
    assert store.find(Workspace(Site(yard=str(yard.root)), yard), "base") == kept, "the site's yard is its staff's"


def test_a_site_pins_and_retires(yard: Yard) -> None:
    kept = import_layers(yard, layer([("a", "1")]))
    good = Site.model_validate({"bases": {"base": {"digest": kept.base.manifest}}})
    assert store.find(Workspace(good, yard), "base") == kept
    bad = Site.model_validate({"bases": {"base": {"digest": f"sha256:{'1' * 64}"}}, "file": "site.yaml"})
    with pytest.raises(InputError, match=r"wrong digest: the base base is sha256:.*, and site.yaml pins sha256:1111"):
        store.find(Workspace(bad, yard), "base")
    gone = Site.model_validate({"bases": {"base": {"successor": "newer"}}})
    with pytest.raises(InputError, match="the base base is retired") as caught:
        store.find(Workspace(gone, yard), "base")
    assert caught.value.hint == "use newer"


@pytest.mark.parametrize("what", ["image", "blob"])
def test_check_reads_every_byte(yard: Yard, what: str) -> None:
    kept = import_layers(yard, layer([("a", "1")]))
    path = kept.paths.image if what == "image" else kept.layout.path(kept.base.layers[0].digest)
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StackyardError, match="has changed: its hash"):
        store.check(kept)


@pytest.mark.parametrize("text", ["powerai.tar", "docker:x", "oci:", "", "http://x/y"])
def test_an_unknown_source(text: str) -> None:
    with pytest.raises(InputError, match="unknown source of an image"):
        source_of(text)


@pytest.mark.parametrize("text", [b"", b"hello", b"\x1f\x8bhello"])
def test_what_is_no_archive_is_named_in_one_line(yard: Yard, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(text)
    with pytest.raises(StackyardError, match=r"not a tar archive|is damaged: ") as raised:
        add(yard, f"docker-archive:{tmp_path}/x.tar")
    assert str(tmp_path / "x.tar") in raised.value.message and "\n" not in raised.value.message
