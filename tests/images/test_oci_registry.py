"""Images to and from a registry by skopeo, and what goes wrong on the way."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import oci_bed as bed
import pytest
from registry_bed import Registry, registry

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import Result
from stackyard.images.oci import transfer
from stackyard.images.oci.layout import Reference, image
from support import programs
from support.cli import Done
from support.cli import inside as stackyard

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    programs.need("skopeo")
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def image_of(directory: Path, number: int = 1, texts: str = "data\n") -> Reference:
    made = bed.revision(directory, number, texts=texts)
    (Path(made.prefix) / "share" / "noise").write_bytes(b"".join(bytes([n % 251]) * 7 for n in range(90_000)))
    bed.oci(made, directory / "out", None, f"r{number}")
    return Reference(directory / "out", f"r{number}")


def push(source: Reference, target: str, *words: str, expect: int = 0) -> Done:
    return stackyard("image", "push", str(source), target, "--plain-http", *words, expect=expect)


def test_what_is_pushed_is_pulled_and_a_second_revision_sends_what_changed(tmp_path: Path, here: Registry) -> None:
    first, second = image_of(tmp_path), image_of(tmp_path, 2, "other\n")
    digest = image(first).manifest.digest
    assert digest in push(first, f"docker://{here.place}/demo:1").out
    before = here.bytes
    push(second, f"docker://{here.place}/demo:2")
    layers = sum({each.digest: each.size for each in image(second).layers}.values())
    shared = {each.digest: each.size for each in image(first).layers}
    new = sum(each.size for each in image(second).layers if each.digest not in shared)
    assert 0 < new < layers and here.bytes - before < new + 20_000, "layers that it has are not sent again"
    for tag in ("demo:1", f"demo@{digest}"):
        target = tmp_path / tag[:6]
        done = stackyard("image", "pull", f"docker://{here.place}/{tag}", "-o", target, "--plain-http")
        assert digest in done.out and image(Reference(target)).manifest.digest == digest
        assert [path.name for path in target.glob(".writing-*")] == []
    assert "all " in stackyard("image", "check", f"oci:{tmp_path}/demo:1:1").out


def test_layers_of_zstd_are_kept_on_the_way(tmp_path: Path, here: Registry) -> None:
    programs.need("zstd")
    bed.oci(bed.revision(tmp_path), tmp_path / "out", None, "z", compression="zstd")
    sent = image(Reference(tmp_path / "out", "z"))
    push(Reference(tmp_path / "out", "z"), f"docker://{here.place}/demo:z")
    stackyard("image", "pull", f"docker://{here.place}/demo:z", "-o", tmp_path / "got", "--plain-http")
    assert image(Reference(tmp_path / "got")).manifest.digest == sent.manifest.digest
    assert "all " in stackyard("image", "check", f"oci:{tmp_path}/got").out


def test_a_damaged_blob_of_a_registry_is_refused(tmp_path: Path) -> None:
    programs.need("skopeo")
    with registry(tmp_path / "registry") as own:
        push(image_of(tmp_path), f"docker://{own.place}/demo:1")
        largest = max(own.blobs, key=lambda path: path.stat().st_size)
        data = largest.read_bytes()
        largest.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        done = stackyard(
            "image", "pull", f"docker://{own.place}/demo:1", "-o", tmp_path / "copy", "--plain-http", expect=1
        )
        assert "damaged" in done.err, done.err
        with pytest.raises(Exception, match="does not have an image"):
            image(Reference(tmp_path / "copy"))


def test_a_digest_is_not_taken_for_a_status() -> None:
    """Of 64 hexadecimal digits one in seventy has 404 somewhere."""
    said = f"writing blob: Digest did not match, expected sha256:{'ab404c' * 10}, got sha256:{'404d' * 16}"
    done = Result(("skopeo",), 1, "", said, 0.1)
    assert "what here sent is damaged" in str(transfer.failure("pull x", "here", done))
    done = Result(("skopeo",), 1, "", "reading manifest: unexpected status: 404 Not Found", 0.1)
    assert "here does not have it" in str(transfer.failure("pull x", "here", done))


def test_an_image_that_is_not_there_is_missing_whatever_its_name_is(here: Registry) -> None:
    plain = transfer.Registry(plain_http=True)
    for name in ("geofem", "denied", "certificate-tools"):
        with pytest.raises(StackyardError, match="does not have it"):
            transfer.pull(f"docker://{here.place}/{name}:1", Path("unused"), registry=plain)


def test_what_a_registry_does_not_have(tmp_path: Path, here: Registry) -> None:
    done = stackyard("image", "pull", f"docker://{here.place}/none:1", "-o", tmp_path / "x", "--plain-http", expect=1)
    assert f"{here.place} does not have it" in done.err
    assert not (tmp_path / "x").exists()


def test_a_registry_without_tls(tmp_path: Path, here: Registry) -> None:
    done = stackyard("image", "push", str(image_of(tmp_path)), f"docker://{here.place}/demo:1", expect=1)
    assert f"{here.place} does not speak TLS" in done.err and "--plain-http" in done.err


def test_a_registry_that_cannot_be_reached(tmp_path: Path) -> None:
    programs.need("skopeo")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{closed.getsockname()[1]}"
        done = push(image_of(tmp_path), f"docker://{place}/demo:1", expect=1)
    assert f"{place} cannot be reached" in done.err and "connection refused" in done.err


def test_a_registry_that_does_not_answer(tmp_path: Path) -> None:
    programs.need("skopeo")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        done = push(image_of(tmp_path), f"docker://{place}/demo:1", "--time-limit", "1", expect=1)
        assert f"{place} timed out after 1 s" in done.err
        done = stackyard("image", "pull", f"docker://{place}/demo:1", "-o", tmp_path / "x", "--plain-http",
                         "--time-limit", "1", expect=1)  # fmt: skip
        assert f"{place} timed out after 1 s" in done.err and not (tmp_path / "x").exists()


@pytest.mark.parametrize("password", ["right", "wrong", ""])
def test_logins(tmp_path: Path, password: str) -> None:
    programs.need("skopeo")
    with registry(tmp_path / "registry", logins=True) as guarded:
        login = base64.b64encode(f"researcher:{password}".encode()).decode()
        auths = {guarded.place: {"auth": login}} if password else {}
        (tmp_path / "logins.json").write_text(json.dumps({"auths": auths}))
        right = password == "right"
        done = push(image_of(tmp_path), f"docker://{guarded.place}/demo:1", "--authfile", str(tmp_path / "logins.json"),
                    expect=int(not right))  # fmt: skip
        assert right or f"{guarded.place} refuses the login" in done.err
        assert login not in done.err + done.out
        assert bool(guarded.blobs) == right


def test_a_target_that_is_none(tmp_path: Path) -> None:
    for target in ("registry/demo:1", "docker://", "docker://UPPER", "https://registry/x"):
        assert "not an image" in push(image_of(tmp_path), target, expect=2).err


def test_without_skopeo(tmp_path: Path) -> None:
    made = image_of(tmp_path)
    done = stackyard("image", "push", str(made), "docker://localhost/x:1", expect=4, PATH=str(tmp_path))
    assert "skopeo not found" in done.err
