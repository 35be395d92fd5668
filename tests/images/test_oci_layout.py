"""Bad days of a layout: killed, full, written by two at once, damaged; and what is copied from one to another."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import oci_bed as bed
import pytest

from stackyard.core.errors import InputError, StackyardError
from stackyard.images import room
from stackyard.images.oci import check, transfer, writer
from stackyard.images.oci.build import OciRequest
from stackyard.images.oci.layout import INDEX, NAME, Reference, blob, image, index, reference
from support import programs
from support.cli import inside as stackyard

BUILD = """
import pickle, sys
from stackyard.core.errors import StackyardError
from stackyard.images.oci.build import build
try:
    print(build(pickle.load(open(sys.argv[1], "rb"))).digest)
except StackyardError as error:
    sys.exit(f"{error}; {error.hint}")
"""


def started(made: bed.BuildRecord, target: Reference, **variables: str) -> subprocess.Popen[str]:
    """A process that builds an image without a base."""
    file = target.directory.parent / f"{target.name}.wanted"
    file.write_bytes(pickle.dumps(OciRequest(made, bed.change(made), None, target)))
    return subprocess.Popen([sys.executable, "-c", BUILD, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, **variables})  # fmt: skip


def names(directory: Path) -> set[str]:
    return {each.annotations[NAME] for each in index(directory)}


@pytest.mark.parametrize("fault", ["blob:1", "blob:3", "index:1", "write:1"])
def test_a_kill_leaves_the_images_that_there_were(tmp_path: Path, fault: str) -> None:
    made, directory = bed.revision(tmp_path), tmp_path / "out"
    bed.oci(made, directory, None, "before")
    other = bed.revision(tmp_path, 2, texts="other\n")
    killed = started(other, Reference(directory, "new"), STACKYARD_FAULT=fault)
    killed.communicate()
    assert killed.returncode == -9
    assert names(directory) == {"before"} and not check.problems(directory, image(Reference(directory, "before")))
    finished = started(other, Reference(directory, "new"))
    digest = finished.communicate()[0].strip()
    assert image(Reference(directory, "new")).manifest.digest == digest
    assert names(directory) == {"before", "new"}
    assert not list(directory.glob(".writing-*")), "what the killed process left is removed"


@pytest.mark.real
@pytest.mark.parametrize("certain", [0.0, room.CERTAIN])
def test_a_full_disk_leaves_nothing_half_done(tmp_path: Path, certain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.need("mount")
    monkeypatch.setattr(room, "CERTAIN", certain)
    says = (
        "layers: no space left: about 2.9 MiB are needed, 2.0 MiB are free in " if certain else ".*: no space left on "
    )
    made = bed.revision(tmp_path)
    (Path(made.prefix) / "share" / "noise").write_bytes(os.urandom(3_000_000))
    (tmp_path / "small").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", tmp_path / "small"], check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(StackyardError, match=rf"cannot write (the )?{says}") as caught:
            bed.oci(made, tmp_path / "small" / "out", None)
        assert "free some space" in str(caught.value.hint)
        assert not list((tmp_path / "small" / "out").glob(".writing-*")) and not index(tmp_path / "small" / "out")
        (Path(made.prefix) / "share" / "noise").write_bytes(os.urandom(1_500_000))
        for name in ("a", "b"):
            bed.oci(made, tmp_path / "small" / "out", None, name)  # the second time the layout has all of it
    finally:
        subprocess.run(["umount", tmp_path / "small"], check=True)


def test_two_write_one_layout_at_once(tmp_path: Path) -> None:
    made = [bed.revision(tmp_path, number, texts=f"{number}\n") for number in (1, 2, 3)]
    running = [started(each, Reference(tmp_path / "out", f"r{number}")) for number, each in enumerate(made)]
    ends = [(each.communicate(timeout=240), each.returncode) for each in running]
    assert [code for _, code in ends] == [0, 0, 0], ends
    assert names(tmp_path / "out") == {"r0", "r1", "r2"}
    for name in ("r0", "r1", "r2"):
        assert not check.problems(tmp_path / "out", image(Reference(tmp_path / "out", name)))


def test_a_layout_that_another_process_writes_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bed.revision(tmp_path)
    bed.oci(made, tmp_path / "out", None, "first")
    monkeypatch.setattr(writer, "LOCK_LIMIT_S", 0.2)
    words = [
        sys.executable,
        "-c",
        "import fcntl,sys,time; f=open(sys.argv[1]); fcntl.flock(f, 2); print(1, flush=True); time.sleep(600)",
    ]
    with subprocess.Popen([*words, tmp_path / "out" / ".lock"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline()
        with pytest.raises(StackyardError, match=r"timed out after 0.2 s waiting for .*another process writes"):
            bed.oci(made, tmp_path / "out", None, "second")
        holder.kill()
    assert names(tmp_path / "out") == {"first"}


# --------------------------------------------------------------------------- damaged


def truncated(data: bytes) -> bytes:
    return data[:-5]


def changed(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


@pytest.mark.parametrize("which", ["layer", "config", "manifest"])
@pytest.mark.parametrize("how", [truncated, changed, None])
def test_damage_is_found_and_not_copied(tmp_path: Path, which: str, how: object) -> None:
    bed.oci(bed.revision(tmp_path), tmp_path / "out", None)
    found = image(Reference(tmp_path / "out"))
    damaged = blob(
        tmp_path / "out", {"layer": found.layers[1], "config": found.config, "manifest": found.manifest}[which].digest
    )
    if how is None:
        damaged.unlink()
    else:
        damaged.write_bytes(how(damaged.read_bytes()))  # type: ignore[operator]
    done = stackyard("image", "check", f"oci:{tmp_path}/out", expect=None)
    assert done.code == (3 if which == "layer" else 1), done.err
    assert damaged.name in done.err and ("damaged" in done.err or "cannot read" in done.err)
    with pytest.raises(StackyardError, match=damaged.name):
        transfer.pull(f"oci:{tmp_path}/out", tmp_path / "copy", "new")
    with pytest.raises(StackyardError, match=damaged.name):
        transfer.push(Reference(tmp_path / "out"), f"oci:{tmp_path}/copy:new")
    assert not (tmp_path / "copy").exists()


def test_a_layer_that_is_not_the_one_of_the_configuration_is_found(tmp_path: Path) -> None:
    """Every blob has its digest, and yet the files are others."""
    bed.oci(bed.revision(tmp_path), tmp_path / "out", None)
    found = image(Reference(tmp_path / "out"))
    manifest = json.loads(blob(tmp_path / "out", found.manifest.digest).read_bytes())
    manifest["layers"][0], manifest["layers"][1] = manifest["layers"][1], manifest["layers"][0]
    with writer.writer(tmp_path / "out") as into:
        into.publish("x", into.add_json(found.manifest.kind, manifest))
    (first, second) = check.problems(tmp_path / "out", image(Reference(tmp_path / "out")))
    assert "is not the layer sha256:" in first and first != second


@pytest.mark.parametrize(("text", "said"), [
    ("{", "cannot read .*index.json"),
    ('{"manifests": [{"digest": "sha256:../../etc/passwd", "size": 1}]}', "not a sha256"),
    ('{"manifests": []}', "does not have an image"), ("[]", "cannot read"),
])  # fmt: skip
def test_a_damaged_index(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(StackyardError, match=said):
        image(Reference(tmp_path))


@pytest.mark.parametrize("text", ["debian", "oci:", "oci:dir:a b", "oci:dir:-x"])
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(InputError):
        reference(text)


def test_references() -> None:
    assert reference("oci:a/b") == Reference(Path("a/b"))
    assert reference("oci:/a:x/b:1-py3") == Reference(Path("/a:x/b"), "1-py3")


def test_an_image_for_several_machines(tmp_path: Path) -> None:
    """A name that stands for several gives this machine's, or the one that is asked for."""
    built = bed.oci(bed.revision(tmp_path), tmp_path / "out", None)
    found = image(Reference(tmp_path / "out"))
    rows = [
        {**found.manifest.to_json(), "platform": {"os": "linux", "architecture": name}} for name in ("amd64", "s390x")
    ]
    with writer.writer(tmp_path / "out") as into:
        into.publish("all", into.add_json(INDEX, {"schemaVersion": 2, "manifests": rows}))
    assert image(Reference(tmp_path / "out", "all"), architecture="s390x").manifest.digest == built.digest
    with pytest.raises(InputError, match="is not for arm64: it is for amd64, s390x"):
        image(Reference(tmp_path / "out", "all"), architecture="arm64")
    if os.uname().machine == "x86_64":
        assert transfer.pull(f"oci:{tmp_path}/out:all", tmp_path / "copy").digest == built.digest


# --------------------------------------------------------------------------- the command line


def test_copied_from_one_layout_to_another(tmp_path: Path) -> None:
    built = bed.oci(bed.revision(tmp_path), tmp_path / "out", None)
    done = stackyard("image", "pull", f"oci:{tmp_path}/out:x", "-o", tmp_path / "copy", "--name", "y")
    assert built.digest in done.out
    assert image(Reference(tmp_path / "copy", "y")).manifest.digest == built.digest
    value = stackyard("image", "inspect", f"oci:{tmp_path}/copy", "--json").value
    assert value["digest"] == built.digest and value["labels"]["io.stackyard.prefix"] == bed.PLACE
    assert any("texts 2.0" in row["packages"] for row in value["layers"])
    assert "all " in stackyard("image", "check", f"oci:{tmp_path}/copy:y").out
    assert "does not have an image named z" in stackyard("image", "check", f"oci:{tmp_path}/copy:z", expect=2).err
    assert "it has: y" in stackyard("image", "check", f"oci:{tmp_path}/copy:z", expect=2).err
