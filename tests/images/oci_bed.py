"""Small revisions and bases for OCI images: a prefix of two conda packages and a wheel, and a base with a shell."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from stackyard.core.change import EnvironmentChange, Prepend, SetRestorable, UserPath
from stackyard.images.oci import layers
from stackyard.images.oci.build import BuiltImage, OciRequest, build
from stackyard.images.oci.layout import CONFIG, LAYER, MANIFEST, Descriptor, Reference, blob, image
from stackyard.images.oci.writer import writer
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, PackageRecord
from support import programs
from support.stackrecords import record

PLACE = "/opt/stackyard/demo"
SITE = "lib/python3.11/site-packages"
PROGRAM = r"""
#include <stdio.h>
static const char place[] = "PREFIX/share/data";
int main(void) { char line[80] = ""; FILE *f = fopen(place, "r");
  if (!f || !fgets(line, sizeof line, f)) return 7;
  printf("%s:%s", place, line); return 0; }
"""
ROOM = "/placeholder" * 18
PACKAGES = (PackageRecord("native", "1.0", "conda"), PackageRecord("texts", "2.0", "conda"),
            PackageRecord("wheel-of-mine", "3.0", "pip"))  # fmt: skip


def compiled(directory: Path, name: str, text: str, *options: str) -> bytes:
    programs.need("gcc")
    (directory / f"{name}.c").write_text(text)
    subprocess.run(["gcc", *options, "-o", directory / name, directory / f"{name}.c"], check=True)
    return (directory / name).read_bytes()


@cache
def _programs(directory: Path) -> bytes:
    """A program with room for a long prefix, as a conda package has it."""
    return compiled(directory, "roomy", PROGRAM.replace("PREFIX", ROOM))


def revision(
    directory: Path, number: int = 1, *, texts: str = "data\n", interpreter: dict[str, str] | None = None
) -> BuildRecord:
    """A built revision: files that name its prefix in each way that occurs."""
    yard = Yard(directory / "yard")
    made = record(yard, "demo", "1", number, variant="py3", packages=PACKAGES, interpreter=interpreter or {})
    paths = RevisionPaths.of(made.path)
    prefix = made.prefix.encode()
    roomy = re.sub(re.escape(ROOM.encode()) + rb"([^\0]*)\0",
                   lambda m: prefix + m[1] + b"\0" * (len(ROOM) - len(prefix) + 1), _programs(directory))  # fmt: skip
    long_line = f"#!/bin/sh\n'''exec' \"{made.prefix}/bin/python\" \"$0\" \"$@\"\n' '''\nprint(1)\n"
    own = compiled(directory, "own", PROGRAM.replace("PREFIX", made.prefix))
    files = {
        "bin/roomy": roomy, "share/data": texts.encode(),
        "bin/own": own, "bin/say": f'#!/bin/sh\ncat {made.prefix}/share/data\n'.encode(),
        "bin/long": long_line.encode(), "share/beside": f"{made.prefix}-2/x {made.prefix}.old\n".encode(),
        f"{SITE}/mine/__init__.py": f"WHERE = {made.prefix!r}\n".encode(), f"{SITE}/mine/same.py": b"X = 1\n",
        f"{SITE}/mine/__pycache__/__init__.cpython-311.pyc": b"pyc\0" + prefix,
        f"{SITE}/mine/__pycache__/same.cpython-311.pyc": b"pyc\0",
        "share/big": bytes(range(256)) * (layers.OWN_LAYER // 256),
        f"{SITE}/wheel_of_mine-3.0.dist-info/direct_url.json": f'{{"url": "file://{directory}/w.whl"}}'.encode(),
        f"{SITE}/wheel_of_mine-3.0.dist-info/METADATA": b"Name: wheel-of-mine\n",
    }  # fmt: skip
    for name, data in files.items():
        _write(paths.prefix / name, data, 0o700 if name.startswith("bin/") else 0o600)
    _notes(paths.prefix, files, made, number)
    (paths.prefix / "bin" / "link").unlink(missing_ok=True)
    (paths.prefix / "bin" / "link").symlink_to(paths.prefix / "bin" / "own")
    (paths.prefix / "var" / "empty").mkdir(parents=True, exist_ok=True)
    _write(paths.lock, b"format = 1\n", 0o644)
    _write(paths.recipe / "stack.yaml", b"name: demo\n", 0o644)
    return made


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def _notes(prefix: Path, files: dict[str, bytes], made: BuildRecord, number: int) -> None:
    """What conda and pip write about their files; times and origins differ from one revision to the next."""
    for name, owned in {"native": ["bin/roomy", "share/big"], "texts": ["share/data"]}.items():
        rows: list[dict[str, Any]] = [{"_path": file, "path_type": "hardlink", "sha256": "0"} for file in owned]
        if name == "native":
            digest = hashlib.sha256(files["bin/roomy"]).hexdigest()
            rows[0] |= {"prefix_placeholder": ROOM, "file_mode": "binary", "sha256_in_prefix": digest}
        value = {"name": name, "version": "1.0", "files": owned, "extracted_package_dir": f"{made.path}/../{number}",
                 "paths_data": {"paths": rows, "paths_version": 1}, "requested_spec": f"{name} {number}"}  # fmt: skip
        _write(prefix / "conda-meta" / f"{name}-1.0-0.json", json.dumps(value).encode(), 0o644)
    _write(prefix / "conda-meta" / "history", f"==> 2026-01-0{number} <==\n".encode(), 0o644)
    lines = []
    for file in ("bin/own", "bin/say", "bin/long", *(name for name in files if name.startswith(SITE))):
        if not file.endswith(".pyc"):
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[file]).digest()).rstrip(b"=").decode()
            lines.append(f"{os.path.relpath(file, SITE)},sha256={digest},{len(files[file])}\n")
    lines.append("wheel_of_mine-3.0.dist-info/RECORD,,\n")
    _write(prefix / SITE / "wheel_of_mine-3.0.dist-info" / "RECORD", "".join(lines).encode(), 0o644)


def change(made: BuildRecord) -> EnvironmentChange:
    """What its module does."""
    return EnvironmentChange((
        Prepend("PATH", f"{made.prefix}/bin"), SetRestorable("DEMO_HOME", f"{made.prefix}/share"),
        SetRestorable("CONDARC", f"{made.path}/condarc"), UserPath("CACHE", ("SCRATCH",), "c", ".c"),
    ))  # fmt: skip


def oci(made: BuildRecord, target: Path, base: Reference | None, name: str = "x", prefix: str = "",
        compression: layers.Compression = "gzip") -> BuiltImage:  # fmt: skip
    return build(OciRequest(made, change(made), base, Reference(target, name), prefix, compression=compression))


# --------------------------------------------------------------------------- bases


def base(directory: Path, programs_of: Sequence[str] = ("sh", "cat"), name: str = "tiny",
         mounts: Sequence[Path] = (), **files: bytes) -> Reference:  # fmt: skip
    """A layout with one image: programs of this machine, and the libraries that they link to.

    Args:
        mounts: places of this machine that a container gets, for runtimes that cannot make a place for them.
    """
    root = directory / f"{name}-root"
    for path in ("usr/bin", "usr/lib", "tmp", "dev", "proc", "sys", "etc", "usr/lib64"):
        (root / path).mkdir(parents=True)
    for file in ("passwd", "group", "hosts", "resolv.conf"):  # what runtimes mount over
        (root / "etc" / file).touch()
    for link in ("bin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    for program in programs_of:
        copy_program(Path(shutil.which(program) or program), root)
    for place in mounts:
        inside = root / str(place).lstrip("/")
        inside.mkdir(parents=True, exist_ok=True) if place.is_dir() else _write(inside, b"", 0o644)
    for path, data in files.items():
        _write(root / path.replace("__", "/"), data, 0o755)
    return layout(root, directory / name)


def copy_program(program: Path, root: Path) -> None:
    """Copy a program and the libraries that it is linked to into the tree of a system."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    own = [] if program.suffix == ".so" else [str(program)]  # of a module only what it is linked to
    for path in (*own, *re.findall(r"(/\S+) \(0x", said)):
        target = root / str(Path(path).parent.resolve()).lstrip("/") / Path(path).name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(path).resolve(), target)


def layout(root: Path, directory: Path, architecture: str = "amd64") -> Reference:
    """A directory as an image of one layer."""
    with writer(directory) as into:
        tar = into.work / "tar"
        with tarfile.open(tar, "w:gz") as out:
            out.add(root, ".")
        packed = hashlib.sha256(tar.read_bytes()).hexdigest()
        diff = subprocess.run(["gzip", "-dc", tar], capture_output=True, check=True).stdout
        layer = Descriptor(LAYER, f"sha256:{packed}", tar.stat().st_size)
        into.add_file(tar, layer.digest)
        roots = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(diff).hexdigest()}"]}
        environ = {"Env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8"]}
        settings = {"architecture": architecture, "os": "linux", "config": environ, "rootfs": roots}
        config = into.add_json(CONFIG, settings)
        value = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.to_json(), "layers": [layer.to_json()]}
        into.publish("base", into.add_json(MANIFEST, value))
    return Reference(directory, "base")


# --------------------------------------------------------------------------- looking into images


def unpacked(wanted: Reference, target: Path, *, below: int = 0) -> Path:
    """The files of an image, layer by layer; `below` leaves out as many of the first."""
    for layer in image(wanted).layers[below:]:
        subprocess.run(["tar", "-xzpf", blob(wanted.directory, layer.digest), "-C", _made(target)], check=True)
    return target


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def entries(wanted: Reference) -> list[tarfile.TarInfo]:
    """Every entry of the layers, from below."""
    found = []
    for layer in image(wanted).layers:
        with tarfile.open(blob(wanted.directory, layer.digest)) as tar:
            found += tar.getmembers()
    return found


def titled(wanted: Reference) -> dict[str, str]:
    """The digest of each layer by its title."""
    return {
        each.annotations.get("org.opencontainers.image.title", "base"): each.digest for each in image(wanted).layers
    }
