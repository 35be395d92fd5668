"""Images of others, made by hand: small systems with a shell, OCI layouts, archives as docker writes them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support import programs

DOCKER = "application/vnd.docker.distribution.manifest.v2+json"


def system(directory: Path) -> Path:
    """A directory with a shell that runs, and a file that sets the user."""
    busybox = programs.need("busybox")
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "usr/lib"):
        (directory / name).mkdir(parents=True)
    shutil.copy2(busybox, directory / "bin/busybox")
    for name in ("sh", "cat", "ls", "env", "id", "readlink"):
        (directory / "bin" / name).symlink_to("busybox")
    (directory / "bin/su").write_text("#!/bin/sh\n")
    (directory / "bin/su").chmod(0o4755)
    (directory / "etc/os-release").write_text("ID=small\n")
    (directory / "tmp").chmod(0o1777)
    return directory


Entry = tuple[str, Any]
"""A path, and what is there: text of a file, None for a directory, ``-> x`` for a link, or changes of its header."""


def layer(entries: Iterable[Entry]) -> bytes:
    """The tar of a layer."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, what in entries:
            member = tarfile.TarInfo(name)
            content = b""
            if what is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(what, str) and what.startswith("-> "):
                member.type, member.linkname = tarfile.SYMTYPE, what[3:]
            elif isinstance(what, Mapping):
                for key, value in what.items():
                    setattr(member, key, value)
            else:
                content = what.encode() if isinstance(what, str) else what
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content) if content else None)
    return data.getvalue()


def of_directory(root: Path) -> bytes:
    """A directory as the tar of a layer, as docker would write it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(root, arcname=".", recursive=True)
    return data.getvalue()


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def config(layers: Sequence[bytes], architecture: str = "amd64", **said: Any) -> bytes:
    diffs = [digest(each) for each in layers]
    value = {"architecture": architecture, "os": "linux", "config": said,
             "rootfs": {"type": "layers", "diff_ids": diffs}}  # fmt: skip
    return json.dumps(value).encode()


def docker_archive(file: Path, layers: Sequence[bytes], tag: str = "powerai:1", **said: Any) -> Path:
    """As `docker save` writes it."""
    about = config(layers, **said)
    names = [f"{digest(each).removeprefix('sha256:')}/layer.tar" for each in layers]
    listed = [{"Config": "config.json", "RepoTags": [tag], "Layers": names}]
    entries = [("manifest.json", json.dumps(listed)), ("config.json", about), *zip(names, layers, strict=True)]
    file.write_bytes(layer(entries))
    return file


def oci(directory: Path, layers: Sequence[bytes], *, packed: bool = True, tag: str = "1", **said: Any) -> Path:
    """An OCI layout; `packed`: its layers with gzip."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes, kind: str) -> dict[str, Any]:
        (blobs / digest(data).removeprefix("sha256:")).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data)}

    kind = "layer.v1.tar+gzip" if packed else "layer.v1.tar"
    rows = [add(gzip.compress(each, mtime=0) if packed else each, kind) for each in layers]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": add(config(layers, **said), "config.v1+json"), "layers": rows}  # fmt: skip
    entry = add(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory
