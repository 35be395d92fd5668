"""The rules of the loader: the same files as this machine's own loader takes, and the same in another root."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from images.elfbed import build, loaded_by_system, names
from stackyard.images.bindings.elf.versions import read_versions, text_of
from stackyard.images.bindings.ldcache import CachedLibrary, read_cache
from stackyard.images.bindings.loader import Loader, is_c_library
from stackyard.images.bindings.tree import Tree
from support import programs

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _gcc() -> None:
    programs.need("gcc")


def ours(program: Path, *library_path: str, tree: Tree | None = None) -> dict[str, str]:
    found = Loader(tree or Tree(), library_path).closure([str(program)])
    return names({item.name: item.inside for item in found.loaded if item.by is not None})


@pytest.mark.parametrize(
    "kind", ["none", "rpath", "runpath", "rpath-of-program", "runpath-of-program", "runpath-below-rpath", "origin"]
)
@pytest.mark.parametrize("given", [True, False])
def test_as_this_machine_does(tmp_path: Path, kind: str, given: bool) -> None:
    """The same two libraries in two directories: which is loaded depends on RPATH, RUNPATH and LD_LIBRARY_PATH."""
    inner, outer = tmp_path / "image", tmp_path / "host"
    for directory in (inner, outer):
        build(directory / "libdeep.so.1")
    options = {"rpath": {"rpath": str(inner)}, "runpath": {"runpath": str(inner)}, "origin": {"runpath": "$ORIGIN"}}
    options["runpath-below-rpath"] = {"runpath": "/none"}
    for directory in (inner, outer):
        build(directory / "libtop.so.1", needs=(directory / "libdeep.so.1",), **options.get(kind, {}))  # type: ignore[arg-type]
    own = {"rpath-of-program": {"rpath": str(inner)}, "runpath-of-program": {"runpath": str(inner)}}
    own["runpath-below-rpath"] = own["rpath-of-program"]
    app = build(tmp_path / "app", needs=(inner / "libtop.so.1",), program=True, **own.get(kind, {}))  # type: ignore[arg-type]
    environ = {"LD_LIBRARY_PATH": str(outer)} if given else {}
    expected = {k: v for k, v in loaded_by_system(app, **environ).items() if v != "not found"}
    assert ours(app, *environ.values()) == names(expected)


def with_hwcaps(directory: Path) -> Path:
    """A library, with builds for some processors, of which this one runs one or several or none."""
    for name in ("", "glibc-hwcaps/x86-64-v2/", "glibc-hwcaps/x86-64-v3/", "glibc-hwcaps/power9/"):
        build(directory / f"{name}libdeep.so.1")
    return directory / "libdeep.so.1"


@pytest.mark.parametrize("kind", ["rpath", "runpath", "LD_LIBRARY_PATH", "preload"])
def test_a_build_for_this_processor_comes_first(tmp_path: Path, kind: str) -> None:
    library = with_hwcaps(tmp_path / "lib")
    options = {kind: str(library.parent)} if kind.endswith("path") else {}
    app = build(tmp_path / "app", needs=(library,), program=True, **options)  # type: ignore[arg-type]
    given = () if options else (str(library.parent),)
    environ = {"LD_LIBRARY_PATH": given[0]} if given else {}
    if kind == "preload":
        preloaded = Loader(Tree(), given).closure([str(app)], preload=["libdeep.so.1"]).loaded[0]
        system = loaded_by_system(app, LD_PRELOAD="libdeep.so.1", **environ)
        assert preloaded.inside == system["libdeep.so.1"]
    else:
        assert ours(app, *given) == names(loaded_by_system(app, **environ))


def test_another_roots_cache_and_default_directories_have_builds_for_processors(tmp_path: Path) -> None:
    """As the root's own loader says, in it: of the cache, and without one."""
    root = tmp_path / "root"
    app = build(tmp_path / "app", needs=(with_hwcaps(root / "usr/lib"),), program=True)
    shutil.copy(app, root / "app")
    for path in {"/lib64/ld-linux-x86-64.so.2", *loaded_by_system(app).values()}:
        if path.startswith("/"):
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.lstrip("/"))
    (root / "etc").mkdir()
    (root / "etc/ld.so.conf").write_text("/usr/lib\n/lib/x86_64-linux-gnu\n")
    for cached in (False, True):
        if cached:
            subprocess.run(["/sbin/ldconfig", "-r", root], check=True)
        words = ["unshare", "-r", "chroot", root, "/lib64/ld-linux-x86-64.so.2", "--list", "/app"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        [theirs] = [line.split()[2] for line in said.splitlines() if "libdeep" in line]
        assert ours(Path("/app"), tree=Tree((root,)))["libdeep.so.1"] == theirs
    for libc in root.rglob("libc.so.6"):
        build(libc, version="GLIBC_2.2.5")
    read_versions.cache_clear()
    assert ours(Path("/app"), tree=Tree((root,)))["libdeep.so.1"] == "/usr/lib/libdeep.so.1"  # before glibc 2.33


def test_files_of_another_architecture_are_passed_over(tmp_path: Path) -> None:
    good = build(tmp_path / "good/libx.so.1")
    data = bytearray(good.read_bytes())
    data[18:20] = (0xF3).to_bytes(2, "little")  # e_machine: RISC-V
    (tmp_path / "other").mkdir()
    (tmp_path / "other/libx.so.1").write_bytes(data)
    app = build(tmp_path / "app", needs=(good,), program=True)
    directories = (str(tmp_path / "other"), str(tmp_path / "good"))
    assert ours(app, *directories) == names(loaded_by_system(app, LD_LIBRARY_PATH=":".join(directories)))


def test_the_programs_of_this_machine() -> None:
    for name in ("bash", "gcc", "ip"):
        path = shutil.which(name)
        if path:
            assert ours(Path(path)) == names(loaded_by_system(Path(path)))


def test_the_cache_is_what_ldconfig_prints() -> None:
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(" => ") for line in listing.splitlines() if " => " in line and "hwcap" not in line]
    cache = read_cache(Path("/etc/ld.so.cache"))
    assert len(lines) > 20
    for name, path in lines:
        assert CachedLibrary(path) in cache[name.split()[0]]


def test_builds_for_some_processors_do_not_come_first(tmp_path: Path) -> None:
    texts = b"libx.so.1\0/lib/glibc-hwcaps/x86-64-v3/libx.so.1\0/lib/libx.so.1\0"
    at, most, plain = 48 + 2 * 24, texts.index(b"/lib/g"), texts.index(b"/lib/libx")
    entries = [
        struct.pack("<iIIIQ", 0x303, at, at + most, 0, 1 << 62),
        struct.pack("<iIIIQ", 0x303, at, at + plain, 0, 0),
    ]
    head = struct.pack("<20sII", b"glibc-ld.so.cache1.1", 2, len(texts)).ljust(48, b"\0")
    (tmp_path / "cache").write_bytes(head + b"".join(entries) + texts)
    assert read_cache(tmp_path / "cache") == {
        "libx.so.1": (CachedLibrary("/lib/libx.so.1"),)
    }  # a number without a name


def test_a_damaged_cache_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "cache"
    whole = Path("/etc/ld.so.cache").read_bytes()
    for data in (b"", b"x" * 100, whole[:40]):
        file.write_bytes(data)
        assert read_cache(file) == {}
    file.write_bytes(b"glibc-ld.so.cache1.1" + b"\xff" * 200)  # more entries, and texts further on, than there are
    assert {*read_cache(file)} <= {""}
    file.write_bytes(whole[:-400])  # the last texts are cut off
    names = read_cache(file).keys()
    assert len(names) > 10 and names <= {*read_cache(Path("/etc/ld.so.cache")), ""}
    assert read_cache(tmp_path / "none") == {}


def test_a_cache_that_is_cut_off_in_its_names_of_processors(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with_hwcaps(root / "usr/lib")
    (root / "etc").mkdir()
    (root / "etc/ld.so.conf").write_text("/usr/lib\n")
    subprocess.run(["/sbin/ldconfig", "-r", root], check=True)
    file = root / "etc/ld.so.cache"
    whole = file.read_bytes()
    every = read_cache(file)["libdeep.so.1"]
    assert [each.hwcaps for each in every][-1] == "" and len(every) == 4
    for cut in range(1, 120):
        file.write_bytes(whole[:-cut])
        found = read_cache(file)["libdeep.so.1"]
        assert CachedLibrary("/usr/lib/libdeep.so.1") in found and {*found} <= {*every}
    (sections,) = struct.unpack_from("<I", whole, 32)
    tags = range(sections + 8, len(whole) - 16, 16)
    at = next(at for at in tags if struct.unpack_from("<I", whole, at) == (1,))
    for place, size in ((1 << 31, 8), (0, 1 << 31)):  # beyond the end
        file.write_bytes(whole[: at + 8] + struct.pack("<II", place, size) + whole[at + 16 :])
        assert CachedLibrary("/usr/lib/libdeep.so.1") in read_cache(file)["libdeep.so.1"]


def test_another_root_has_its_own_links_and_cache(tmp_path: Path) -> None:
    """Absolute links lead into the image; the image's own cache counts; the machine's libraries are never seen."""
    root = tmp_path / "root"
    real = build(root / "opt/mpi/libmpi.so.12.3", soname="libmpi.so.12")
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64/libmpi.so.12").symlink_to("/opt/mpi/libmpi.so.12.3")
    (root / "lib64").symlink_to("usr/lib64")
    app = build(tmp_path / "app", needs=(real,), program=True)
    shutil.copy(app, root / "app")
    found = Loader(Tree((root,))).closure(["/app"])
    assert found.loaded[1].inside == "/lib64/libmpi.so.12" and found.loaded[1].elf.path == real
    assert [each.name for each in found.missing] == ["libc.so.6"]
    (root / "etc").mkdir()
    (root / "usr/lib64/libmpi.so.12").unlink()
    (root / "etc/ld.so.conf").write_text("/opt/mpi\n")
    subprocess.run(["/sbin/ldconfig", "-r", root], check=True)
    found = Loader(Tree((root,))).closure(["/app"])
    assert (found.loaded[1].inside, found.loaded[1].rule) == ("/opt/mpi/libmpi.so.12", "ld.so.cache")


def test_what_is_bound_hides_what_is_below(tmp_path: Path) -> None:
    root, host = tmp_path / "root", tmp_path / "host"
    build(root / "lib/libmpi.so.12")
    build(host / "libmpi.so.12")
    build(root / "app", needs=(root / "lib/libmpi.so.12",), program=True)
    tree = Tree((root,)).bound({"/.singularity.d/libs/libmpi.so.12": host / "libmpi.so.12"})
    assert ours(Path("/app"), tree=tree) == {"libmpi.so.12": "/lib/libmpi.so.12"}
    assert ours(Path("/app"), "/.singularity.d/libs", tree=tree) == {
        "libmpi.so.12": "/.singularity.d/libs/libmpi.so.12"
    }
    over = Loader(Tree((root,)).bound({"/lib": host})).closure(["/app"])
    assert over.loaded[1].elf.path == host / "libmpi.so.12"
    assert tree.names("/.singularity.d/libs") == ["libmpi.so.12"] and tree.names("/none") == []


def test_an_upper_layer_hides_a_lower_one(tmp_path: Path) -> None:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for layer, text in ((upper, "new"), (lower, "old")):
        (layer / "etc").mkdir(parents=True)
        (layer / "etc/x").write_text(text)
    (lower / "etc/y").write_text("old")
    tree = Tree((upper, lower))
    found = tree.find("/etc/x")
    assert found is not None and found.outside.read_text() == "new"
    assert tree.names("/etc") == ["x", "y"]
    if os.geteuid() == 0:
        os.mknod(upper / "etc/y", stat.S_IFCHR, 0)  # a whiteout of overlayfs
        assert Tree((upper, lower)).find("/etc/y") is None


def test_links_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert Tree((tmp_path,)).find("/a") is None
    (tmp_path / "up").symlink_to("../../../..")
    found = Tree((tmp_path,)).find("/up/a/..")
    assert found is None
    up = Tree((tmp_path,)).find("/up")
    assert up is not None and up.outside == tmp_path


def test_symbol_versions(tmp_path: Path) -> None:
    lib = build(tmp_path / "libucp.so.0", version="UCP_1.12")
    app = build(tmp_path / "app", needs=(lib,), program=True)
    assert "UCP_1.12" in read_versions(lib).defined
    needed = read_versions(app).needed
    assert needed["libucp.so.0"] == {"UCP_1.12"}
    assert any(version.startswith("GLIBC_") for version in needed["libc.so.6"])
    with app.open("r+b") as stream:
        section = next(each for each in ELFFile(stream).iter_sections() if each.name == ".gnu.version_r")
        for library, versions in section.iter_versions():
            at = section["sh_offset"] + library.entry.vn_aux if library.name == "libucp.so.0" else 0
            assert len(list(versions)) >= 1
            if at:
                stream.seek(at + 4)  # vna_flags
                stream.write(b"\x02\x00")
                break
    read_versions.cache_clear()
    assert not read_versions(app).needed["libucp.so.0"]  # a weak need: the loader only warns
    (tmp_path / "text").write_text("no ELF")
    assert not read_versions(tmp_path / "text").needed


def test_a_text_in_a_library(tmp_path: Path) -> None:
    text = 'const char ompi_version_string[] = "4.1.4"; int x(void) { return 0; }'
    lib = build(tmp_path / "libmpi.so.40", source=text)
    assert text_of(lib, "ompi_version_string") == "4.1.4"
    assert text_of(lib, "other") == ""


def test_the_c_library_is_known() -> None:
    own = [
        "libc.so.6",
        "ld-linux-x86-64.so.2",
        "ld64.so.2",
        "ld-linux-aarch64.so.1",
        "libm.so.6",
        "ld-musl-x86_64.so.1",
    ]
    assert all(map(is_c_library, own))
    assert not any(map(is_c_library, ["libmpi.so.12", "libcrypt.so.1", "libstdc++.so.6", "ld.py"]))
