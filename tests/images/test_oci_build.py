"""A revision as an OCI image: at a neutral path, in layers that revisions share, the same every time, or not at all."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import oci_bed as bed
import pytest

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.tools import zstd
from stackyard.images.oci import check, layers
from stackyard.images.oci.layers import Entry
from stackyard.images.oci.layout import Reference, blob, image
from stackyard.images.relocation import prefix as relocate
from stackyard.images.relocation.prefix import Relocation
from support import programs

pytestmark = pytest.mark.real
PYTHON = {"source": "conda", "path": "", "version": "3.11"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return bed.base(tmp_path_factory.mktemp("base"))


# --------------------------------------------------------------------------- what is in it


def test_nothing_names_the_former_path(tmp_path: Path) -> None:
    made = bed.revision(tmp_path)
    bed.oci(made, tmp_path / "out", None)
    root = bed.unpacked(Reference(tmp_path / "out"), tmp_path / "root")
    place = root / bed.PLACE.lstrip("/")
    names = {str(path.relative_to(place)) for path in place.rglob("*")}
    assert {"bin/own", "var/empty", "share/big", ".stackyard/stack.lock", ".stackyard/recipe/stack.yaml"} <= names
    assert f"{bed.SITE}/wheel_of_mine-3.0.dist-info/direct_url.json" not in names
    assert f"{bed.SITE}/mine/__pycache__/__init__.cpython-311.pyc" not in names, "its source has changed"
    assert f"{bed.SITE}/mine/__pycache__/same.cpython-311.pyc" in names
    left = [path for path in place.rglob("*") if path.is_file() and str(tmp_path).encode() in path.read_bytes()]
    assert [path.name for path in left] == ["beside"], "directories that only begin alike are others"
    assert (place / "share/beside").read_text() == f"{made.prefix}-2/x {made.prefix}.old\n"
    assert (place / "bin/link").readlink() == Path(f"{bed.PLACE}/bin/own")
    assert (place / "bin/long").read_text() == f"#!{bed.PLACE}/bin/python\nprint(1)\n"
    own, roomy = (place / "bin/own").read_bytes(), (place / "bin/roomy").read_bytes()
    assert len(own) == len((Path(made.prefix) / "bin/own").read_bytes())
    assert f"{bed.PLACE}/share/data".encode() + b"\0" * (len(bed.ROOM) - len(bed.PLACE) + 1) in roomy


def test_files_are_looked_through_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bed.revision(tmp_path)
    for number in range(70):
        for kind, name in (("moves", made.prefix), ("longer", f"{made.prefix}-2"), ("dotted", f"{made.prefix}.old")):
            (Path(made.prefix) / "share" / f"{kind}-{number}").write_text("." * number + name)
    monkeypatch.setattr(relocate, "_PIECE", 64)
    moved = []
    monkeypatch.setattr(Relocation, "_move", lambda self, name, *_: moved.append(Path(name).name))
    bed.oci(made, tmp_path / "pieces", None)
    assert {name for name in moved if name.startswith(("moves", "longer", "dotted"))} == {
        f"moves-{number}" for number in range(70)
    }


def test_a_library_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    """One that names the prefix, which is changed, and one that names the yard: in less memory than either has."""
    made, size = bed.revision(tmp_path), 192 << 20
    for name, text in (("moves", f"{made.prefix}/share"), ("names", f"{tmp_path}/yard/cache")):
        with (Path(made.prefix) / "share" / name).open("wb") as stream:
            stream.write(b"\0" + text.encode() + b"\0")
            stream.truncate(size)
    code = (
        "import resource, sys; from pathlib import Path; from stackyard.images.relocation.paths import Moves\n"
        "from stackyard.images.relocation.prefix import Relocation\n"
        "tree, work, yard, size = *map(Path, sys.argv[1:4]), int(sys.argv[4])\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (size, size))\n"
        "found = Relocation(tree, '/opt/x', Moves.of([(str(tree), '/opt/x')]), work, yard).relocate(None)\n"
        "print(found.traces, Path(found.entries['share/moves'].source).open('rb').read(20))"
    )
    (tmp_path / "work").mkdir()
    words = [sys.executable, "-c", code, made.prefix, tmp_path / "work", tmp_path / "yard", str(size)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "share/names" in done.stdout and r"b'\x00/opt/x/" in done.stdout


def test_its_programs_run_where_a_container_puts_them(tmp_path: Path, base: Reference) -> None:
    programs.need("ch-run")
    made = bed.revision(tmp_path)
    bed.oci(made, tmp_path / "out", base)
    root = bed.unpacked(Reference(tmp_path / "out"), tmp_path / "root")
    for program in ("own", "roomy", "say", "link"):
        done = subprocess.run(["ch-run", root, "--", f"{bed.PLACE}/bin/{program}"], capture_output=True, text=True,
                              check=False, env={**os.environ, "USER": "root"})  # fmt: skip
        assert done.returncode == 0 and done.stdout.endswith("data\n"), (program, done)


def test_the_hashes_of_record_files_are_those_of_the_image(tmp_path: Path) -> None:
    bed.oci(bed.revision(tmp_path), tmp_path / "out", None)
    site = bed.unpacked(Reference(tmp_path / "out"), tmp_path / "root") / bed.PLACE.lstrip("/") / bed.SITE
    rows = list(csv.reader((site / "wheel_of_mine-3.0.dist-info/RECORD").open()))
    assert len(rows) == 7
    for name, digest, size in rows[:-1]:
        data = (site / name).read_bytes()
        wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={wanted}", len(data)), name


def test_everybody_may_read_it(tmp_path: Path) -> None:
    bed.oci(bed.revision(tmp_path), tmp_path / "out", None)
    found = bed.entries(Reference(tmp_path / "out"))
    assert {(each.uid, each.gid, each.uname, each.mtime) for each in found} == {(0, 0, "", 0)}
    modes = {each.name: stat.S_IMODE(each.mode) for each in found if not each.issym()}
    place = bed.PLACE.lstrip("/")
    assert (modes[f"{place}/bin/own"], modes[f"{place}/share/data"], modes[f"{place}/bin"]) == (0o755, 0o644, 0o755)
    assert "opt" not in modes, "the rights of the base's own directories are its own"


def test_its_environment_and_labels(tmp_path: Path, base: Reference) -> None:
    built = bed.oci(bed.revision(tmp_path), tmp_path / "out", base)
    found = image(Reference(tmp_path / "out"))
    assert found.settings["config"]["Env"] == [
        f"DEMO_HOME={bed.PLACE}/share", "LANG=C.UTF-8", f"PATH={bed.PLACE}/bin:/usr/bin:/bin",
    ]  # fmt: skip
    assert found.labels["io.stackyard.lock-sha256"] == hashlib.sha256(b"format = 1\n").hexdigest()
    assert found.labels["org.opencontainers.image.title"] == "demo/1-py3-1"
    assert "zlib" in found.annotations["io.stackyard.compressor"]
    assert any("CACHE (user path)" in notice for notice in built.notices)
    assert any("CONDARC (it names a file of the yard)" in notice for notice in built.notices)
    assert found.layers[0].digest == image(base).layers[0].digest


def test_changed_sources_are_compiled_again(tmp_path: Path) -> None:
    made = bed.revision(tmp_path)
    (Path(made.prefix) / "bin" / "python").symlink_to(sys.executable)
    bed.oci(made, tmp_path / "out", None)
    root = bed.unpacked(Reference(tmp_path / "out"), tmp_path / "root")
    pyc = root / bed.PLACE.lstrip("/") / bed.SITE / "mine/__pycache__/__init__.cpython-311.pyc"
    data = pyc.read_bytes()
    assert bed.PLACE.encode() in data and str(tmp_path).encode() not in data
    assert data[4] == 1, "with a hash of the source that is never compared"


# --------------------------------------------------------------------------- layers


def test_the_same_files_give_the_same_image_wherever_they_were_built(tmp_path: Path, base: Reference) -> None:
    """Another yard: only what is compiled for one prefix, or names another directory, may differ."""
    first = bed.oci(bed.revision(tmp_path), tmp_path / "a", base)
    assert bed.oci(bed.revision(tmp_path), tmp_path / "again", base).digest == first.digest
    elsewhere = tmp_path / "a-much-longer-name-for-a-directory"
    elsewhere.mkdir()
    bed.oci(bed.revision(elsewhere), tmp_path / "b", base)
    one, other = bed.titled(Reference(tmp_path / "a")), bed.titled(Reference(tmp_path / "b"))
    own = layers._bucket("wheel-of-mine", layers.BUCKETS).lstrip("~")
    assert {title for title in one if one[title] != other[title]} == {own, "files of no package"}


def test_a_changed_package_is_a_changed_layer(tmp_path: Path) -> None:
    first = bed.oci(bed.revision(tmp_path), tmp_path / "out", None, "one")
    second = bed.oci(bed.revision(tmp_path, 2, texts="other\n"), tmp_path / "out", None, "two")
    one, two = (bed.titled(Reference(tmp_path / "out", name)) for name in ("one", "two"))
    assert set(one) == set(two) and one["native"] == two["native"]
    changed = {title for title in one if one[title] != two[title]}
    assert "native" not in changed and len(changed) < len(one)
    assert first.bytes_new == first.bytes and 0 < second.bytes_new < second.bytes


def test_a_layer_that_the_layout_has_is_not_packed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bed.oci(bed.revision(tmp_path), tmp_path / "out", None, "one")
    with monkeypatch.context() as patched:
        patched.setattr(layers, "write", lambda *_: pytest.fail("packed again"))
        assert bed.oci(bed.revision(tmp_path), tmp_path / "out", None, "two").digest == first.digest
    monkeypatch.setattr(layers, "LEVEL", 1)
    other = bed.oci(bed.revision(tmp_path), tmp_path / "out", None, "three")
    assert other.digest != first.digest, "another compressor gives other bytes, which are not mixed"


def test_layers_of_zstd(tmp_path: Path, base: Reference) -> None:
    """The same files, fewer bytes, the same twice; a base with such layers is read, and damage is found."""
    programs.need("zstd")
    made = bed.revision(tmp_path)
    plain, packed = bed.oci(made, tmp_path / "gzip", None), bed.oci(made, tmp_path / "zstd", None, compression="zstd")
    assert bed.oci(made, tmp_path / "again", None, compression="zstd").digest == packed.digest != plain.digest
    one, other = image(Reference(tmp_path / "gzip")), image(Reference(tmp_path / "zstd"))
    assert {layer.kind for layer in other.layers} == {"application/vnd.oci.image.layer.v1.tar+zstd"}
    assert one.diff_ids == other.diff_ids and not check.problems(tmp_path / "zstd", other)
    assert bed.oci(made, tmp_path / "zstd", None, "gzip").bytes_new > 0, "layers of one kind are not the other's"
    assert bed.oci(made, tmp_path / "zstd", None, "second", compression="zstd").bytes_new == 0
    below = bed.oci(made, tmp_path / "below", base, compression="zstd")
    on_top = bed.oci(bed.revision(tmp_path, 2), tmp_path / "top", below.reference, prefix="/opt/other")
    assert on_top.layers == 2 * below.layers - 1
    damaged = blob(tmp_path / "zstd", other.layers[0].digest)
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"x" * 9)
    wrong = check.problems(tmp_path / "zstd", other)
    assert wrong == [f"{damaged.name} has changed: its bytes do not have its digest"]


def test_without_zstd_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bed.revision(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    zstd.version.cache_clear()
    with pytest.raises(MissingError, match="zstd not found on PATH") as caught:
        bed.oci(made, tmp_path / "out", None, compression="zstd")
    assert caught.value.hint == "install zstd, or use gzip"


def test_at_most_a_hundred_layers() -> None:
    owned = {f"p{number}": [Entry(f"x/{number}", size=(20 << 20) + number)] for number in range(300)}
    owned[""] = [Entry("x/rest", size=1)]
    made = layers.grouped(owned, {}, layers.MOST - 3)
    assert len(made) <= layers.MOST - 3
    assert sum(len(layer.entries) for layer in made) == 301
    fewer = layers.grouped({name: owned[name] for name in ("p1", "p2", "")}, {}, 97)
    assert [layer.title for layer in fewer] == ["files of no package", "p1", "p2"]


def test_whether_a_package_has_its_own_layer_depends_on_its_bytes_alone() -> None:
    owned = {"large": [Entry("x/l", size=2 << 20)], "small": [Entry("x/s", size=9)]}
    titles = {layer.title for layer in layers.grouped(owned, {}, 90)}
    owned["huge"] = [Entry("x/h", size=1 << 40)]
    assert titles < {layer.title for layer in layers.grouped(owned, {}, 90)}


# --------------------------------------------------------------------------- refused before anything is written


def refused(tmp_path: Path, said: str, *words: object, **options: str) -> StackyardError:
    with pytest.raises(StackyardError, match=said) as caught:
        bed.oci(*words, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
    return caught.value


def test_a_path_that_is_too_long_for_a_program(tmp_path: Path) -> None:
    made = bed.revision(tmp_path)
    place = "/opt/" + "x" * len(made.prefix)
    error = refused(tmp_path, "is longer than .* bin/own", made, tmp_path / "out", None, prefix=place)
    assert f"at most {len(made.prefix)} characters" in str(error.hint)


@pytest.mark.parametrize("place", ["opt/x", "/opt/../x", "/opt:/x"])
def test_a_path_that_is_none(tmp_path: Path, place: str) -> None:
    refused(tmp_path, "not an absolute path", bed.revision(tmp_path), tmp_path / "out", None, prefix=place)


def test_an_interpreter_that_the_base_does_not_have(tmp_path: Path, base: Reference) -> None:
    host = {"source": "host", "path": sys.executable, "version": "3.11"}
    made = bed.revision(tmp_path, interpreter=host)
    refused(tmp_path, f"not in its prefix but the host's {sys.executable}", made, tmp_path / "out", base)
    refused(tmp_path, "which the base does not have", made, tmp_path / "out", None)
    real = os.path.realpath(sys.executable)
    both = {path.lstrip("/").replace("/", "__"): b"" for path in {sys.executable, real}}
    fits = bed.base(tmp_path, name="fits", **both)
    assert f"its Python is {sys.executable} of the base" in bed.oci(made, tmp_path / "out", fits).notices


def test_an_interpreter_of_uv_goes_with_it(tmp_path: Path) -> None:
    tree = tmp_path / "python" / "cpython-3.11.9-linux"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "python3.11").write_text(f"#!/bin/sh\n# {tree}\n")
    uv = {"source": "uv", "path": str(tree / "bin" / "python3.11"), "version": "3.11.9"}
    made = bed.revision(tmp_path, interpreter=uv)
    (Path(made.prefix) / "pyvenv.cfg").write_text(f"home = {tree}/bin\n")
    (Path(made.prefix) / "bin" / "python3").symlink_to(tree / "bin" / "python3.11")
    built = bed.oci(made, tmp_path / "out", None)
    root = bed.unpacked(Reference(tmp_path / "out"), tmp_path / "root")
    place = "/opt/stackyard/python/cpython-3.11.9-linux"
    assert any(f"is included at {place}" in notice for notice in built.notices)
    assert (root / bed.PLACE.lstrip("/") / "pyvenv.cfg").read_text() == f"home = {place}/bin\n"
    assert (root / bed.PLACE.lstrip("/") / "bin/python3").readlink() == Path(f"{place}/bin/python3.11")
    assert (root / place.lstrip("/") / "bin/python3.11").read_text() == f"#!/bin/sh\n# {place}\n"


def test_a_base_with_an_older_c_library(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("GLIBC_2.2.5 { global: x; local: *; };\n")
    old = bed.compiled(tmp_path, "libc.so.6", "int x;\n", "-shared", "-nostdlib",
                       f"-Wl,--version-script={tmp_path}/map", "-Wl,-soname,libc.so.6")  # fmt: skip
    older = bed.base(tmp_path, (), "older", **{"usr__lib__libc.so.6": old})
    error = refused(tmp_path, r"needs glibc 2\.\d+ .*, and oci:.* \(/usr/lib/libc.so.6\) has glibc 2.2.5",
                    bed.revision(tmp_path), tmp_path / "out", older)  # fmt: skip
    assert isinstance(error, InputError)
    none = bed.base(tmp_path, (), "none")
    refused(tmp_path, r"and oci:\S+ has no glibc", bed.revision(tmp_path, 2), tmp_path / "out", none)


def test_libraries_that_nothing_has_are_named(tmp_path: Path, base: Reference) -> None:
    made = bed.revision(tmp_path)
    program = bed.compiled(tmp_path, "linked", "int main(void) { return 0; }", "-Wl,--no-as-needed", "-lz")
    (Path(made.prefix) / "bin" / "linked").write_bytes(program)
    built = bed.oci(made, tmp_path / "out", base)
    assert "1 libraries that neither the base nor the stack has: libz.so.1 (for linked)" in built.notices


def test_a_base_for_another_machine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    other = bed.layout(tmp_path / "empty", tmp_path / "arm", "arm64")
    refused(tmp_path, "is for arm64, and the stack for amd64", bed.revision(tmp_path), tmp_path / "out", other)


def test_a_damaged_base(tmp_path: Path) -> None:
    tiny = bed.base(tmp_path)
    layer = blob(tiny.directory, image(tiny).layers[0].digest)
    layer.write_bytes(layer.read_bytes()[:-1])
    refused(tmp_path, "is damaged: .* is truncated", bed.revision(tmp_path), tmp_path / "out", tiny)


def test_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"not an OCI image layout, and not empty: it has thesis\.tex"):
        bed.oci(bed.revision(tmp_path), tmp_path / "out", None)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]
