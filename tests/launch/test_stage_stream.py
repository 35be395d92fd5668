"""What is staged as a stream: every byte arrives and is checked, and nothing is written elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from stackyard.launch.node.staging import stagedir
from stackyard.launch.node.staging.pack import SMALL, Packer, StagingError, line_of, mac_of
from stackyard.launch.node.staging.stagedir import StageDirectory
from stackyard.launch.node.staging.unpack import LINE_LIMIT, Unpacker

SECRET = "s" * 64
FILE = {"kind": "file", "mode": 0o644, "mtime_ns": 0}
DIRECTORY = {"name": "data", "kind": "folder", "mode": 0o755, "mtime_ns": 0}
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def packed(*paths: Path) -> list[bytes]:
    packer = Packer([(os.fsencode(path.name), os.fsencode(path)) for path in paths], SECRET)
    packer.survey()
    return list(packer.chunks())


def unpacked(chunks: Iterable[bytes], directory: Path, *names: str) -> Unpacker:
    made = Unpacker(str(directory), [name.encode() for name in names], SECRET)
    for chunk in chunks:
        made.feed(chunk)
    return made


def stream(*records: dict[str, object] | bytes, total: int = 0, secret: str = SECRET) -> bytes:
    """A stream as another node might send it, with its proof."""
    mac, out = mac_of(secret), b""
    for record in ({"total": total, "files": 1}, *records):
        line = record if isinstance(record, bytes) else line_of(record)
        if not isinstance(record, bytes):
            mac.update(line)
        out += line
    return out + line_of({"end": mac.hexdigest()})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "from" / "data"
    (made / "deep" / "empty").mkdir(parents=True)
    (made / "big").write_bytes(os.urandom(3_300_000))
    (made / "none").touch()
    (made / "deep" / "program").write_text("#!/bin/sh\n")
    (made / "deep" / "program").chmod(0o4755)
    (made / "deep" / "up").symlink_to("../big")
    Path(os.fsdecode(os.fsencode(made) + b"/caf\xe9\n")).write_text("not UTF-8")
    (tmp_path / "elsewhere").write_text("from elsewhere")
    (made / "out").symlink_to(tmp_path / "elsewhere")
    os.utime(made / "deep", ns=(10**18, 10**18 + 7))
    (made / "deep").chmod(0o550)
    return made


@pytest.mark.parametrize("step", [1 << 30, 1 << 20, 7919])
def test_a_tree_arrives_as_it_was(data: Path, tmp_path: Path, step: int) -> None:
    whole = b"".join(packed(data, tmp_path / "elsewhere"))
    to = tmp_path / "to"
    made = unpacked((whole[at : at + step] for at in range(0, len(whole), step)), to, "data", "elsewhere")
    assert made.done
    files = [path for path in data.rglob("*") if path.is_file() and path.name != "up"]
    assert made.written == made.total == sum(path.stat().st_size for path in [*files, to / "elsewhere"])
    for path in data.rglob("*"):
        copy = to / path.relative_to(data.parent)
        if path.is_dir():
            assert stat.S_IMODE(copy.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) | 0o700
        else:
            assert copy.read_bytes() == path.read_bytes()
            assert stat.S_IMODE(copy.stat().st_mode) == path.stat().st_mode & 0o777
        assert copy.stat().st_mtime_ns == path.stat().st_mtime_ns
    assert os.readlink(to / "data/deep/up") == "../big"
    assert not (to / "data/out").is_symlink()


def test_many_small_files_are_read_ahead_and_arrive_each_in_its_place(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(500):
        (data / f"{number}").write_text(f"content of {number}" * (number % 7))
    (data / "large").write_bytes(os.urandom(SMALL + 1))
    assert unpacked(packed(data), tmp_path / "to", "data").done
    for path in data.iterdir():
        assert (tmp_path / "to/data" / path.name).read_bytes() == path.read_bytes()
    packer = Packer([(b"data", os.fsencode(data))], SECRET)
    packer.survey()
    (data / "321").unlink()
    with pytest.raises(StagingError, match=r"cannot read .*/data/321: No such file"):
        list(packer.chunks())


OUTSIDE = ("../x", "/etc/x", "data/../../x", "other", "data/no/x", "data/link/x", "", "data/", ".")


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    link = {"name": "data/link", "kind": "link", "target": "sub", "mode": 0, "mtime_ns": 0}
    sub = {**DIRECTORY, "name": "data/sub"}
    text = stream(DIRECTORY, sub, link, {**FILE, "name": name, "size": 0}, {"sha256": EMPTY})
    with pytest.raises(StagingError, match="is not below what is staged"):
        unpacked([text], tmp_path / "to", "data")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["data", "link", "sub", "to"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../other", "sub/../../../x"])
def test_no_link_leads_out(tmp_path: Path, target: str) -> None:
    link = {"name": "data/link", "kind": "link", "target": target, "mode": 0, "mtime_ns": 0}
    with pytest.raises(StagingError, match="leads out of what is staged"):
        unpacked([stream(DIRECTORY, link)], tmp_path / "to", "data")


@pytest.mark.parametrize(("text", "why"), [
    (stream({**FILE, "name": "data", "size": 3}, b"abc", {"sha256": EMPTY}), "checksum mismatch: data"),
    (stream({**FILE, "name": "data", "size": 0}, {"sha256": EMPTY}, secret="another"), "does not prove"),
    (stream(DIRECTORY, {**FILE, "name": "data", "size": 0}), "File exists"),
    (stream({"total": 1, "files": 1}), "out of order"),
    (line_of(DIRECTORY), "out of order"),
    (stream() + line_of(DIRECTORY), "out of order"),
    (stream({**FILE, "name": "data", "size": -1}), "is not a count"),
    (stream({**FILE, "name": "data", "size": "1"}), "is not a count"),
    (stream({"name": "data", "kind": "device", "mode": 0, "mtime_ns": 0}), "unknown kind"),
    (b"x" * (LINE_LIMIT + 2), "longer than"),
    (b"[" * 60_000 + b"\n", "invalid data"),
    (b"\xff\n", "invalid data"),
    (b"{}\n", "out of order"),
    (stream({"name": 3, "kind": "file"}), "invalid data"),
])  # fmt: skip
def test_what_is_not_a_stream_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    with pytest.raises(StagingError, match=why):
        unpacked([text], tmp_path / "to", "data")


def test_a_changed_byte_is_found(data: Path, tmp_path: Path) -> None:
    whole = bytearray(b"".join(packed(data)))
    whole[len(whole) // 2] ^= 1
    with pytest.raises(StagingError, match="checksum mismatch: data/big"):
        unpacked([bytes(whole)], tmp_path / "to", "data")


def test_what_does_not_fit_is_said_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match=r"TiB \(\d+ bytes\) needed in .*, .* free") as error:
        unpacked([stream(total=1 << 60)], tmp_path / "to")
    assert error.value.of_node


def change_size(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"x")


def change_content(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(b"x")


@pytest.mark.parametrize("change", [change_size, change_content, lambda file: os.truncate(file, 5_000_000)])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(9_000_000))
    packer = Packer([(b"data", os.fsencode(file))], SECRET)
    packer.survey()
    chunks = packer.chunks()
    next(chunks)
    change(file)
    with pytest.raises(StagingError, match="data was changed while it was read"):
        list(chunks)


def test_what_cannot_be_staged_is_named(data: Path, tmp_path: Path) -> None:
    os.mkfifo(data / "pipe")
    with pytest.raises(StagingError, match="data/pipe is neither a file nor a directory"):
        packed(data)
    (data / "pipe").unlink()
    (data / "away").symlink_to("/etc")
    with pytest.raises(StagingError, match="data/away is a link to the directory /etc: stage that as well"):
        packed(data)
    (data / "away").unlink()
    (data / "gone").symlink_to("/not/there")
    with pytest.raises(StagingError, match=r"cannot read .*: No such file"):
        packed(data)


def test_a_name_of_another_user_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    taken = tmp_path / f"stackyard-stage-{os.getuid()}-key-host"
    taken.mkdir(mode=0o755)
    (tmp_path / (taken.name + ".1")).symlink_to("/tmp")
    made = StageDirectory("", "key", "host")
    made.claim()
    assert made.path == f"{taken}.2"
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o700
    made.release(False)
    assert not Path(made.path).exists()


def test_only_what_a_killed_agent_has_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    (tmp_path / f"stackyard-stage-{os.getuid()}-left-host").symlink_to("/tmp")  # so another name is taken
    left, used, fresh, own = (StageDirectory("", key, "host") for key in ("left", "used", "fresh", "own"))
    for one in (left, used, fresh, own):
        one.claim()
    (Path(left.path) / "folder").mkdir(mode=0o500)
    for one in (left, fresh):
        os.close(one._lock)
    for one in (left, used):
        os.utime(one.path, (0, 0))
    own.sweep()
    assert left.path.endswith(".1")
    assert not Path(left.path).exists()
    assert all(Path(one.path).exists() for one in (used, fresh, own))


def test_where_a_node_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STACKYARD_TMP", "SLURM_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    assert stagedir.place_of("") == "/tmp"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not-there"))
    assert stagedir.place_of("") == "/tmp"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert stagedir.place_of("") == str(tmp_path)
    monkeypatch.setattr(stagedir, "NETWORK", {stagedir.file_system(str(tmp_path))})
    assert stagedir.place_of("") == "/tmp"
    monkeypatch.setenv("WHERE", str(tmp_path))
    assert stagedir.place_of("$WHERE") == str(tmp_path)
    with pytest.raises(
        StagingError, match=r"/nvme not found, which local_disk of this kind of node in site\.yaml names"
    ):
        stagedir.place_of("/nvme")
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    assert stagedir.place_of("/nvme") == str(tmp_path)


def test_the_file_system_of_a_path() -> None:
    mounts = (
        "1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /scratch rw shared:1 - lustre x rw\n3 1 0:3 / /a\\040b rw - nfs4 x rw\n"
        "4 1 0:4 / /caf\u00e9\\134 rw - beegfs x rw\n5 1 0:5 / /\udce9 rw - gpfs x rw\n"
    )
    found = [stagedir.file_system(path, mounts) for path in ("/tmp", "/scratch/x", "/scratchy", "/a b/c",
                                                                   "/caf\u00e9\\", "/\udce9")]  # fmt: skip
    assert found == ["ext4", "lustre", "ext4", "nfs4", "beegfs", "gpfs"]
    assert stagedir.file_system("/proc") == "proc"
