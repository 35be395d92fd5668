"""A compiled wheel in another prefix: relative search paths, other places that name the prefix, what has no room."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from buildbed import build, locked, sdist, wheel

from stackyard.core.progress import SilentProgress
from stackyard.host.files.elf import ElfFile, read_elf
from stackyard.host.run import command
from stackyard.host.run.view import view_of
from stackyard.inputs.models import BuildSpec, PackageBuild, Variant
from stackyard.lock.lockfile.model import PipPackage
from stackyard.make.wheels import relink, runpath
from stackyard.yard.cache.audit import audit
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

pytestmark = pytest.mark.skipif(command.which("cc") is None, reason="C compiler not found on PATH")

SETUP = """
import os, shared
from setuptools import Extension, setup
here = os.path.dirname(shared.__file__)
macros = [("PREFIX", '"%s"' % os.environ["EXT_PREFIX"])]
work = os.path.abspath("build")
setup(name="cext", version="1.0", packages=["inner"], ext_modules=[Extension("inner.cext", ["cext.c"],
      extra_compile_args=["-isystem", here], define_macros=macros,
      library_dirs=[here], libraries=["shared"], runtime_library_dirs=[work, here])])
"""
CODE = """
#include <Python.h>
#include <shared.h>
static PyObject *answer(PyObject *self, PyObject *args) { return PyLong_FromLong(shared_answer()); }
static PyObject *prefix(PyObject *self, PyObject *args) { return PyUnicode_FromString(PREFIX); }
static PyObject *header(PyObject *self, PyObject *args) { return PyUnicode_FromString(shared_header()); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {"prefix", prefix, METH_NOARGS, ""},
                                {"header", header, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "cext", 0, -1, methods};
PyMODINIT_FUNC PyInit_cext(void) { return PyModule_Create(&module); }
"""

HEADER = b"int shared_answer(void);\nstatic const char *shared_header(void) { return __FILE__; }\n"


@pytest.fixture
def yard(tmp_path: Path, site_yard: Yard) -> Yard:
    return Yard(tmp_path / "yard", site_yard)


@pytest.fixture
def packages(tmp_path: Path, wheelhouse: dict[str, PipPackage]) -> list[PipPackage]:
    """A package with a shared library, another one that is compiled against it, and what that needs."""
    shared = wheel(tmp_path / "shared", "shared", {
        "shared/__init__.py": b"", "shared/libshared.so": library(tmp_path, "int shared_answer(void) { return 42; }"),
        "shared/shared.h": HEADER,
    })  # fmt: skip
    cext = sdist(tmp_path / "src", {"setup.py": SETUP, "cext.c": CODE, "inner/__init__.py": ""})
    return [*(wheelhouse[name] for name in ("setuptools", "wheel", "packaging")), shared, cext]


def library(directory: Path, code: str, *options: str) -> bytes:
    """A shared library of this C code."""
    source, result = directory / "lib.c", directory / "lib.so"
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", result, source, *options], check=True)
    return result.read_bytes()


def variant(prefix: str = "") -> Variant:
    how = PackageBuild(variables={"EXT_PREFIX": prefix})
    return Variant(stack="demo", version="1.0", name="py311", build=BuildSpec(packages={"cext": how}))


def run(record: BuildRecord, code: str) -> str:
    return subprocess.check_output([f"{record.prefix}/bin/python", "-c", code], text=True).strip()


def compilations(record: BuildRecord) -> int:
    return RevisionPaths.of(record.path).log.read_text().count(" build --wheel ")


def own(elf: ElfFile) -> list[str]:
    """Its search path, without what its Python's own settings add."""
    return [path for path in elf.runpath or elf.rpath if not path.startswith(sys.base_prefix)]


def extension(record: BuildRecord) -> Path:
    (path,) = Path(record.prefix).glob("lib/python3*/site-packages/inner/cext*.so")
    return path


def test_a_search_path_into_the_prefix_is_relative_so_the_wheel_is_used_in_another(
    yard: Yard, packages: list[PipPackage], wheelhouse: dict[str, PipPackage]
) -> None:
    """The second revision has one more pure package; its prefix is longer, and the first one is moved away."""
    one = build(yard, locked(pip=packages), variant(), directory="1.0-1")
    two = build(yard, locked(pip=[*packages, wheelhouse["idna"]]), variant(), directory="1.0-second")
    assert [compilations(record) for record in (one, two)] == [1, 0]
    elf = read_elf(extension(one))
    assert elf is not None and own(elf) == ["$ORIGIN/../shared"]
    assert all(recorded_as_they_are(kept) for kept in yard.cache.glob("wheels/??/*/*.whl"))
    Path(one.path).rename(yard.root / "away")
    assert run(two, "from inner import cext; print(cext.answer())") == "42"


@pytest.mark.skipif(bool(view_of([Path("/usr")])[1]), reason="mount namespaces cannot be made")
def test_the_path_of_a_system_header_is_replaced(yard: Yard, packages: list[PipPackage]) -> None:
    """GCC writes the real path of such a header, as of torch's, which a link would not hide."""
    records = [build(yard, locked(pip=packages), variant(), directory=name) for name in ("one", "a-longer-one")]
    assert [compilations(record) for record in records] == [1, 0]
    for record in records:
        header = run(record, "from inner import cext; print(cext.header())")
        assert Path(header).is_file() and Path(header).is_relative_to(record.prefix)


def test_where_a_package_names_no_path_one_wheel_serves_all(
    yard: Yard, packages: list[PipPackage], tmp_path: Path
) -> None:
    code = CODE.replace("#include <shared.h>", "int shared_answer(void);").replace("shared_header()", '""')
    cext = sdist(tmp_path / "plain", {"setup.py": SETUP, "cext.c": code, "inner/__init__.py": ""})
    records = [build(yard, locked(pip=[*packages[:-1], cext]), variant(), directory=name) for name in ("one", "other")]
    assert [compilations(record) for record in records] == [1, 0]
    assert extension(records[0]).read_bytes() == extension(records[1]).read_bytes()
    (kept,) = yard.cache.glob("wheels/??/*/*.whl")
    assert not relink.names(kept, [record.prefix for record in records])


@pytest.mark.parametrize("other", ["two", "1", "a-longer-one"])
def test_a_text_with_the_prefix_is_replaced(yard: Yard, packages: list[PipPackage], other: str) -> None:
    one = build(yard, locked(pip=packages), variant("{prefix}/share"), directory="one")
    two = build(yard, locked(pip=packages), variant("{prefix}/share"), directory=other)
    assert [compilations(record) for record in (one, two)] == [1, 0]
    for record in (one, two):
        text, answer = run(record, "from inner import cext; print(cext.prefix(), cext.answer())").split()
        assert os.path.normpath(text) == f"{record.prefix}/share" and answer == "42"
    kept = [json.loads(path.read_text())["prefix"] for path in yard.cache.glob("wheels/??/*/meta.json")]
    assert len(kept) == 3 and {one.prefix, two.prefix} < set(kept) and audit(yard) == []
    for record in (one, two):
        made = next(Path(record.prefix).glob("lib/python3*/site-packages/cext-1.0.dist-info/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(made.read_text().splitlines())}
        name = f"inner/{extension(record).name}"
        assert rows[name] == described(extension(record).read_bytes())


def test_a_real_path_in_a_binary_file_leaves_no_room_for_a_longer_one(yard: Yard, packages: list[PipPackage]) -> None:
    """As that of the interpreter is."""
    notices: list[str] = []

    class Progress(SilentProgress):
        def notice(self, text: str) -> None:
            notices.append(text)

    spec = variant("{python}")
    records = [build(yard, locked(pip=packages), spec, directory=name, progress=Progress())
               for name in ("one", "two", "1", "longer")]  # fmt: skip
    assert [compilations(record) for record in records] == [1, 0, 0, 1]
    for record in records:
        text = run(record, "from inner import cext; print(cext.prefix())")
        assert os.path.normpath(text) == f"{record.prefix}/bin/python"
    (text,) = (notice for notice in notices if "compiled again" in notice)
    assert text.startswith(f"cext 1.0 is compiled again for {records[3].prefix}: inner/cext")


def test_a_yard_behind_a_link_is_the_same_prefix(tmp_path: Path, site_yard: Yard, packages: list[PipPackage]) -> None:
    """Programs name the prefix by either path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    yard = Yard(tmp_path / "link/yard", site_yard)
    for directory in ("one", "two"):
        record = build(yard, locked(pip=packages), variant("{prefix}/../prefix"), directory=directory)
        elf = read_elf(extension(record))
        assert elf is not None and own(elf) == ["$ORIGIN/../shared"]
        assert os.path.normpath(run(record, "from inner import cext; print(cext.prefix())")) == record.prefix
        assert compilations(record) == (directory == "one")


def target(prefix: Path) -> relink.Target:
    return relink.Target(prefix, prefix / "lib/python3.11/site-packages")


@pytest.mark.parametrize(("name", "expected"), [
    ("a/b.so", "$ORIGIN/../../../x"),
    ("b.so", "$ORIGIN/../../x"),
    ("a-1.0.data/platlib/a/b.so", "$ORIGIN/../../../x"),
    ("a-1.0.data/data/lib/b.so", "$ORIGIN/x"),
    ("a-1.0.data/data/share/b.so", "$ORIGIN/../lib/x"),
    ("a-1.0.data/data/b.so", "$ORIGIN/lib/x"),
    ("a-1.0.data/scripts/b", "$ORIGIN/../lib/x"),
])  # fmt: skip
def test_the_path_is_relative_to_where_the_file_is_installed(tmp_path: Path, name: str, expected: str) -> None:
    prefix = tmp_path / "a-prefix-with-a-name"
    placeholder, work = tmp_path / "work/prefix____", tmp_path / "work"
    paths = f"{prefix}/lib/x:{placeholder}/lib/x:/opt/mpi/lib:{work}/env/lib:{prefix}-2/lib:{prefix}/lib/x"
    changed = relinked(tmp_path, {name: library(tmp_path, "", f"-Wl,-rpath,{paths}")})
    (tmp_path / "out.so").write_bytes(changed[name])
    elf = read_elf(tmp_path / "out.so")
    assert elf is not None and (elf.runpath or elf.rpath) == (expected, "/opt/mpi/lib", f"{prefix}-2/lib")


def test_a_path_of_the_work_directory_alone_is_not_left_empty(tmp_path: Path) -> None:
    """An empty one is the current directory for old loaders."""
    changed = relinked(tmp_path, {"b.so": library(tmp_path, "", f"-Wl,-rpath,{tmp_path}/work/lib")})
    (tmp_path / "out.so").write_bytes(changed["b.so"])
    elf = read_elf(tmp_path / "out.so")
    assert elf is not None and (elf.runpath or elf.rpath) == ("$ORIGIN",)


def test_a_path_whose_end_is_a_symbols_name_stays(tmp_path: Path) -> None:
    """The linker stores `tail` once, as the end of the search path: writing over it would rename the symbol."""
    data = library(tmp_path, "int tail(void) { return 1; }", f"-Wl,-rpath,{tmp_path}/a-prefix-with-a-name/lib/tail")
    shares = data.count(b"tail\0") == 2  # .dynstr and .strtab
    assert runpath.rewritten(data, lambda _: "$ORIGIN") == data if shares else True
    assert shares, "this linker does not merge the ends of strings"


def test_a_file_that_is_damaged_is_left_as_it_is(tmp_path: Path) -> None:
    data = library(tmp_path, "int f(void) { return 1; }", "-Wl,-rpath,/a/long/prefix/lib")
    for start in range(16, 2400, 31):
        damaged = data[:start] + b"\xff" * 5 + data[start + 5 :]
        assert len(runpath.rewritten(damaged, lambda _: "$ORIGIN")) == len(damaged)
    for size in range(4, len(data), 997):
        assert len(runpath.rewritten(data[:size], lambda _: "$ORIGIN")) == size


def test_a_text_file_has_room_for_any_path(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "a-longer-one"
    source, result = plain_wheel(tmp_path, {"a.pc": f"prefix={old}\nlibs=-L{old}/lib\n".encode(), "b.py": b"B = 1\n"})
    assert relink.for_prefix(source, target(old), target(new), result)
    with zipfile.ZipFile(result) as bundle:
        assert bundle.read("a.pc").decode() == f"prefix={new}\nlibs=-L{new}/lib\n"
    assert recorded_as_they_are(result)
    assert not relink.for_prefix(result, target(old), target(new), tmp_path / "unwritten.whl")
    assert not (tmp_path / "unwritten.whl").exists()


def relinked(directory: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a wheel after its search paths were made relative."""
    source, result = plain_wheel(directory, files)
    placeholder = directory / "work/prefix____"
    assert relink.without_prefix(source, target(directory / "a-prefix-with-a-name"), placeholder, result)
    assert recorded_as_they_are(result)
    with zipfile.ZipFile(result) as bundle:
        return {name: bundle.read(name) for name in files}


def plain_wheel(directory: Path, files: dict[str, bytes]) -> tuple[Path, Path]:
    """A wheel with these files, and the path of the changed one."""
    package = wheel(directory / "in", "a", files)
    return Path(package.url.removeprefix("file://")), directory / "a-1.0-py3-none-any.whl"


def recorded_as_they_are(path: Path) -> bool:
    """Whether the RECORD of a wheel has the hash and the size of each file."""
    with zipfile.ZipFile(path) as bundle:
        (record,) = (name for name in bundle.namelist() if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(bundle.read(record).decode())))
        assert {row[0] for row in rows} == {name for name in bundle.namelist() if not name.endswith("/")}
        return all(row[1:] == described(bundle.read(row[0])) for row in rows if row[0] != record)


def described(data: bytes) -> list[str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return [f"sha256={digest}", str(len(data))]
