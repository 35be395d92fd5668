"""Packages that install the same path: one lock is one tree, the stack's file chooses, and all lists are true."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from buildbed import build, conda_packages, locked, sdist, wheel

from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.core.progress import SilentProgress
from stackyard.inputs.models import BuildSpec, PackageBuild, Site, Variant
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant
from stackyard.make.hashes.inputs import input_hash
from stackyard.make.hashes.tree import tree_hash
from stackyard.verify.checks.collided import check_collisions
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord, read_record
from support.channel import Link, Package, make_channel

SITE = "lib/python3.11/site-packages"
BACKEND = """
import zipfile
import shared

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/mm-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("shared.py", "who = 'mm'\\n")
        archive.writestr("mm_saw.py", f"saw = {shared.who!r}\\n")
        archive.writestr("mm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: mm\\nVersion: 1.0\\n")
        archive.writestr("mm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("mm-1.0.dist-info/RECORD", "")
    return "mm-1.0-py3-none-any.whl"
"""
"""A project that is compiled in the stack, and notes what it sees there."""
EXTEND = b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"


def script(name: str, command: str = "cmd") -> dict[str, bytes]:
    return {f"{name}-1.0.dist-info/entry_points.txt": f"[console_scripts]\n{command} = {name}:main\n".encode()}


def conda(
    directory: Path, files: Mapping[str, Mapping[str, Any]], depends: Mapping[str, str] | None = None
) -> tuple[CondaPackage, ...]:
    needs = depends or {}
    packages = [Package(n, "1.0", files=f, depends=tuple(needs.get(n, "").split())) for n, f in files.items()]
    return conda_packages(make_channel(directory / "channel", packages))


def chosen(*pairs: tuple[str, str]) -> Variant:
    return Variant(
        stack="demo", version="1.0", name="py311", collisions=dict(pairs),
        collision_places={path: Where("/s/stack.yaml", 9, 3) for path, _ in pairs},
    )  # fmt: skip


def said(record: BuildRecord) -> dict[str, tuple[str, str]]:
    """Of each path in the record: its kind and its winner."""
    return {path: (each.kind, each.winner) for each in record.collisions for path in each.files}


def listed(record: BuildRecord, name: str) -> set[str]:
    """The files in the list of a package, relative to the prefix, as they are really there: each hash is compared."""
    prefix = Path(record.prefix)
    meta = prefix / "conda-meta" / f"{name}-1.0-0.json"
    if meta.is_file():
        value = json.loads(meta.read_text())
        rows = {e["_path"]: e.get("sha256_in_prefix") or e["sha256"] for e in value["paths_data"]["paths"]}
        assert set(rows) == set(value["files"])
        assert all((prefix / path).is_symlink() or digest(prefix / path) == found for path, found in rows.items())
        return set(rows)
    found: set[str] = set()
    for line in (prefix / SITE / f"{name}-1.0.dist-info" / "RECORD").read_text().splitlines():
        path, hashed, _ = line.rsplit(",", 2)
        place = (prefix / SITE / path).resolve()
        assert place.is_file()
        if hashed:
            import base64

            text = base64.urlsafe_b64encode(hashlib.sha256(place.read_bytes()).digest()).rstrip(b"=").decode()
            assert hashed == f"sha256={text}", (name, path)
        found.add(place.relative_to(prefix.resolve()).as_posix())
    return {path for path in found if ".dist-info/" not in path}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def records_hash(record: BuildRecord) -> str:
    """The lists of all wheels, which the hash of a tree leaves out."""
    texts = [path.read_bytes() for path in sorted(Path(record.prefix).glob(f"{SITE}/*.dist-info/RECORD"))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


# --------------------------------------------------------------------------- one lock is one tree


def many(directory: Path) -> LockedVariant:
    """Wheels that share modules, commands, tests and data, and three conda packages that share files, one with them."""
    wheels = [
        wheel(directory / "wheels", name, {
            f"{name}.py": name.encode(), "cvx/__init__.py": f"who = {name!r}\n".encode(), "same.py": b"x = 1\n",
            f"{name}-1.0.data/scripts/tool": f"#!python\nprint({name!r})\n".encode(),
            f"{name}-1.0.data/data/share/d.txt": name.encode(), "tests/__init__.py": name.encode(), **script(name),
        })
        for name in ("sa", "sb", "sc", "sd")
    ]  # fmt: skip
    wheels += [
        wheel(directory / "wheels", name, {"ocv/__init__.py": name.encode()}) for name in ("ocv_full", "ocv_headless")
    ]
    wheels += [
        wheel(directory / "wheels", name, {f"{name}.py": b"", **script(name, "shared-cmd")})
        for name in ("ep_a", "ep_b")
    ]
    wheels += [
        wheel(directory / "wheels", f"top_{n}", {"tests/test_it.py": n.encode(), "README.md": b"r"}) for n in "ab"
    ]
    files = {n: {"share/one": n, "share/d.txt": f"conda {n}", "lib/same": "s"} for n in ("aa", "bb", "cc")}
    return locked(conda(directory, files, {"aa": "bb cc"}), wheels)


def trees(lock: LockedVariant, directory: Path, number: int) -> set[tuple[str, str]]:
    """The hashes of a lock's trees in fresh yards at one path."""
    found = set()
    for _ in range(number):
        record = build(Yard(directory / "yard"), lock)
        found.add((tree_hash(Path(record.prefix)), records_hash(record)))
        last = record
        disk.remove_tree(directory / "yard")
    assert said(last)["share/one"] == ("warning", "aa")
    return found


@pytest.mark.slow
def test_one_lock_is_one_tree_and_each_path_has_the_file_of_the_last_package(tmp_path: Path) -> None:
    lock, progress = many(tmp_path), SilentProgress()
    record = build(Yard(tmp_path / "yard"), lock, progress=progress)
    prefix = Path(record.prefix)
    assert (prefix / "share/one").read_text() == "aa"  # after bb and cc, on which it depends
    assert (prefix / "share/d.txt").read_text() == "sd"
    assert (prefix / SITE / "cvx/__init__.py").read_text() == "who = 'sd'\n"
    assert "from sd import main" in (prefix / "bin/cmd").read_text()
    tool = (prefix / "bin/tool").read_text()
    assert tool == f"#!{prefix}/bin/python\nprint('sd')\n" and (prefix / "bin/tool").stat().st_mode & 0o111
    last = ("warning", "sd")
    assert said(record) == {
        "share/one": ("warning", "aa"), "share/d.txt": last, "bin/cmd": last, "bin/tool": last,
        f"{SITE}/cvx/__init__.py": last, f"{SITE}/tests/__init__.py": ("note", "sd"),
        f"{SITE}/ocv/__init__.py": ("warning", "ocv_headless"), "bin/shared-cmd": ("warning", "ep_b"),
        f"{SITE}/tests/test_it.py": ("note", "top_b"),
    }  # fmt: skip
    assert all(digest(prefix / path) == text for each in record.collisions for path, text in each.files.items())
    assert not (prefix / "__clobbers__").exists() and read_record(Path(record.path) / "record.json") == record
    assert listed(record, "sa") == {f"{SITE}/sa.py", f"{SITE}/same.py"}
    assert {"bin/cmd", "bin/tool", "share/d.txt", f"{SITE}/cvx/__init__.py"} < listed(record, "sd")
    assert (listed(record, "aa"), listed(record, "bb")) == ({"share/one", "lib/same"}, {"lib/same"})
    warnings = [text for text in progress.notices if text.startswith("path collision")]
    assert sum("licences, documentation or tests" in text for text in warnings) == 1 and len(warnings) == 6
    tree = (tree_hash(prefix), records_hash(record))
    disk.remove_tree(tmp_path / "yard")
    assert trees(lock, tmp_path, 1) == {tree}


@pytest.mark.long
def test_one_lock_is_one_tree_in_twenty_fresh_yards(tmp_path: Path) -> None:
    assert len(trees(many(tmp_path), tmp_path, 20)) == 1


def test_console_scripts_of_conda_packages_are_those_of_the_last_one(channel: Path, tmp_path: Path) -> None:
    packages = [
        Package(
            name, "1.0", subdir="noarch", noarch_python=True, depends=("python",), entry_points=(f"cmd = {name}:main",),
            files={"site-packages/shared.py": f"who = '{name}'\n", f"site-packages/{name}.py": "def main(): pass\n"},
        )
        for name in ("na", "nb", "nc")
    ]  # fmt: skip
    own = conda_packages(make_channel(tmp_path / "channel", packages))
    record = build(Yard(tmp_path / "yard"), locked([*conda_packages(channel, ["python"]), *own]))
    prefix = Path(record.prefix)
    assert "from nc import main" in (prefix / "bin/cmd").read_text()
    assert (prefix / "bin/cmd").read_text().startswith(f"#!{prefix}/bin/python")
    assert (prefix / SITE / "shared.py").read_text() == "who = 'nc'\n"
    assert said(record) == dict.fromkeys(("bin/cmd", f"{SITE}/shared.py"), ("warning", "nc"))
    assert listed(record, "na") == {f"{SITE}/na.py"}
    assert listed(record, "nc") == {"bin/cmd", f"{SITE}/shared.py", f"{SITE}/nc.py"}


def test_a_compiled_wheel_takes_its_place_in_the_order(tmp_path: Path) -> None:
    """It is installed after the others, and compiled in the stack: with the file of the winner, as it is then."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n',
        "own.py": BACKEND,
    }
    source = sdist(tmp_path / "s", files, "mm")
    wheels = [wheel(tmp_path / "w", name, {"shared.py": f"who = {name!r}\n".encode()}) for name in ("ab", "nn", "aa")]
    variant = Variant(
        stack="demo", version="1.0", name="py311", build=BuildSpec(packages={"mm": PackageBuild(incomplete=True)})
    )
    record = build(Yard(tmp_path / "yard"), locked(pip=[source, *wheels]), variant)
    prefix = Path(record.prefix)
    assert (prefix / SITE / "shared.py").read_text() == "who = 'nn'\n"
    assert (prefix / SITE / "mm_saw.py").read_text() == "saw = 'nn'\n"
    assert said(record) == {f"{SITE}/shared.py": ("warning", "nn")}


# --------------------------------------------------------------------------- what is silent


def test_equal_bytes_and_namespaces_are_silent(tmp_path: Path) -> None:
    other = b"from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)  # ns\n"
    wheels = [
        wheel(tmp_path, "a", {"ns/__init__.py": EXTEND, "ns/a.py": b"", "e/__init__.py": b"", "s.py": b"s"}),
        wheel(tmp_path, "b", {"ns/__init__.py": other, "ns/b.py": b"", "e/__init__.py": b"# e\n", "s.py": b"s"}),
    ]
    progress = SilentProgress()
    record = build(Yard(tmp_path / "yard"), locked(pip=wheels), progress=progress, site=Site(collisions="refuse"))
    assert record.collisions == () and not [text for text in progress.notices if "collision" in text]
    assert (Path(record.prefix) / SITE / "ns/__init__.py").read_bytes() == other
    assert f"{SITE}/s.py" in listed(record, "a") and f"{SITE}/ns/__init__.py" not in listed(record, "a")
    assert check_collisions(record) == []


def test_a_wheel_with_a_wrong_hash_in_its_list_does_not_change_the_tree(tmp_path: Path) -> None:
    """Its list says that its file is that of the other; whichever was faster, the last one's is there."""
    one = wheel(tmp_path, "a", {"s.py": b"one\n"})
    lies = wheel(tmp_path, "b", {"s.py": b"two\n"}, hashed={"s.py": b"one\n"})
    record = build(Yard(tmp_path / "yard"), locked(pip=[one, lies]))
    assert (Path(record.prefix) / SITE / "s.py").read_bytes() == b"two\n"


def test_a_layout_with_lists_that_lie_stays_inside(tmp_path: Path) -> None:
    evil = wheel(tmp_path, "e", {"e.py": b"e"}, more="/etc/hosts,,\n../../../../../../../etc/passwd,,\nbbb.py,,\n")
    good = wheel(tmp_path, "g", {"bbb.py": b"b"})
    record = build(Yard(tmp_path / "yard"), locked(pip=[evil, good]))
    assert record.collisions == () and (Path(record.prefix) / SITE / "bbb.py").read_bytes() == b"b"


# --------------------------------------------------------------------------- choosing


def test_the_stacks_file_chooses_among_wheels_each_path_for_itself(tmp_path: Path) -> None:
    files = ("cvx/a.py", "cvx/b.py", "x.py")
    wheels = [wheel(tmp_path, n, {f: n.encode() for f in files} | script(n)) for n in ("aa", "b_b", "cc")]
    variant, progress = chosen(("cvx/a.py", "aa"), (f"{SITE}/cvx/*", "B.b"), ("bin/cmd", "aa")), SilentProgress()
    record = build(Yard(tmp_path / "yard"), locked(pip=wheels), variant, progress=progress)
    prefix = Path(record.prefix)
    assert [(prefix / SITE / file).read_text() for file in files] == ["aa", "b_b", "cc"]
    assert "from aa import main" in (prefix / "bin/cmd").read_text()
    assert said(record) == {
        f"{SITE}/cvx/a.py": ("chosen", "aa"), f"{SITE}/cvx/b.py": ("chosen", "b_b"), "bin/cmd": ("chosen", "aa"),
        f"{SITE}/x.py": ("warning", "cc"),
    }  # fmt: skip
    assert sum("path collision" in text for text in progress.notices) == 1
    assert listed(record, "aa") == {f"{SITE}/cvx/a.py", "bin/cmd"} and listed(record, "cc") == {f"{SITE}/x.py"}


def test_the_stacks_file_chooses_among_conda_packages(tmp_path: Path) -> None:
    packages = conda(tmp_path, {n: {"share/x": n, "share/l": Link(n), f"share/{n}": n} for n in ("aa", "bb", "cc")})
    variant = chosen(("share/x", "bb"), ("share/l", "aa"))
    record = build(Yard(tmp_path / "yard"), locked(packages), variant)
    prefix = Path(record.prefix)
    assert ((prefix / "share/x").read_text(), (prefix / "share/l").readlink()) == ("bb", Path("aa"))
    assert said(record) == {"share/x": ("chosen", "bb"), "share/l": ("chosen", "aa")}
    assert listed(record, "bb") == {"share/x", "share/bb"} and listed(record, "aa") == {"share/l", "share/aa"}
    assert listed(record, "cc") == {"share/cc"}


@pytest.mark.parametrize("winner", ["tool", "w"])
def test_a_wheel_is_over_the_files_of_conda_unless_those_are_chosen(tmp_path: Path, winner: str) -> None:
    from support.channel import PLACEHOLDER

    packages = conda(tmp_path, {"tool": {"bin/cmd": (f"#!{PLACEHOLDER}/bin/x\n", 0o755), "share/d": "conda"}})
    one = wheel(tmp_path, "w", {"w-1.0.data/data/share/d": b"wheel", **script("w")})
    variant = chosen(("bin/cmd", "tool"), ("share/d", "tool")) if winner == "tool" else None
    record = build(Yard(tmp_path / "yard"), locked(packages, [one]), variant)
    prefix = Path(record.prefix)
    expected = f"#!{prefix}/bin/x\n" if winner == "tool" else f"#!{prefix}/bin/python\n"
    assert (prefix / "bin/cmd").read_text().startswith(expected) and (prefix / "bin/cmd").stat().st_mode & 0o111
    assert (prefix / "share/d").read_text() == ("conda" if winner == "tool" else "wheel")
    kind = "chosen" if winner == "tool" else "warning"
    assert said(record) == dict.fromkeys(("bin/cmd", "share/d"), (kind, winner))
    assert {"bin/cmd", "share/d"} <= listed(record, winner)
    assert not {"bin/cmd", "share/d"} & listed(record, "w" if winner == "tool" else "tool")


def test_a_choice_is_part_of_the_inputs_of_a_build(tmp_path: Path) -> None:
    lock, plain = locked(pip=[wheel(tmp_path, "a", {})]), Variant(stack="demo", version="1.0", name="py311")
    one, other = chosen(("x", "a")), chosen(("x", "b"))
    hashes = {input_hash(variant, lock, Site()) for variant in (plain, one, other)}
    assert len(hashes) == 3
    assert input_hash(one.model_copy(update={"collision_places": {}}), lock, Site()) in hashes
    assert input_hash(plain, lock, Site(collisions="refuse")) in hashes


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("cvx/b.py", "aa"), "collisions: aa does not install 'cvx/b.py'"),
        (("only.py", "aa"), "collisions: aa does not install 'only.py', but bb does"),
    ],
)
def test_a_choice_about_nothing_is_an_error(tmp_path: Path, choice: tuple[str, str], message: str) -> None:
    wheels = [wheel(tmp_path, "aa", {"cvx/a.py": b"1"}), wheel(tmp_path, "bb", {"cvx/a.py": b"2", "only.py": b""})]
    with pytest.raises(InputError) as caught:
        build(Yard(tmp_path / "yard"), locked(pip=wheels), chosen(choice))
    assert (caught.value.message, caught.value.where) == (message, Where("/s/stack.yaml", 9, 3))


def test_a_choice_of_the_site_or_of_another_variants_package_is_not(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, "aa", {"cvx/a.py": b"1"}), wheel(tmp_path, "bb", {"cvx/a.py": b"2"})]
    site = Site(file="/s/stack.yaml")
    variant = chosen(("cvx/a.py", "aa"), ("cvx/b.py", "aa"), ("cvx/c.py", "elsewhere"))
    record = build(Yard(tmp_path / "yard"), locked(pip=wheels), variant, site=site)
    assert said(record) == {f"{SITE}/cvx/a.py": ("chosen", "aa")}


def test_a_site_may_refuse_what_is_not_harmless_and_not_chosen(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, n, {"cvx/a.py": n.encode(), "tests/a.py": n.encode()}) for n in ("aa", "bb")]
    lock, site = locked(pip=wheels), Site(collisions="refuse", file="/s/site.yaml")
    with pytest.raises(InputError, match=f"which the site refuses: {SITE}/cvx/a.py of aa, bb") as caught:
        build(Yard(tmp_path / "yard"), lock, site=site)
    assert "collisions: {" in (caught.value.hint or "") and "tests" not in (caught.value.detail or "")
    record = build(Yard(tmp_path / "yard"), lock, chosen(("cvx/a.py", "aa")), site=site)
    assert said(record) == {f"{SITE}/cvx/a.py": ("chosen", "aa"), f"{SITE}/tests/a.py": ("note", "bb")}


# --------------------------------------------------------------------------- what no order helps


def test_a_file_in_the_place_of_a_directory_names_both_packages(tmp_path: Path) -> None:
    text = "cannot install aa and bb: .*share/x is a file of the one, and a directory of the other"
    with pytest.raises(StackyardError, match=text):
        build(Yard(tmp_path / "1"), locked(conda(tmp_path / "c", {"aa": {"share/x": "a"}, "bb": {"share/x/y": "b"}})))
    one = wheel(tmp_path, "aa", {"aa-1.0.data/data/share/x": b"a"})
    two = wheel(tmp_path, "bb", {"bb-1.0.data/data/share/x/y": b"b"})
    with pytest.raises(StackyardError, match=text):
        build(Yard(tmp_path / "2"), locked(pip=[one, two]))
    with pytest.raises(StackyardError, match=text):
        build(Yard(tmp_path / "3"), locked(conda(tmp_path / "d", {"aa": {"share/x": "a"}}), [two]))


def test_a_link_of_a_package_out_of_the_prefix_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    packages = conda(tmp_path, {"aa": {"share/x": Link(str(tmp_path / "out"))}})
    with pytest.raises(StackyardError, match=r"bb installs into .*share/x, which a symbolic link leads out"):
        build(Yard(tmp_path / "y"), locked(packages, [wheel(tmp_path, "bb", {"bb-1.0.data/data/share/x/y": b"b"})]))


# --------------------------------------------------------------------------- bytecode


def test_bytecode_is_that_of_the_file_that_is_there_also_where_one_package_alone_is_built_later(tmp_path: Path) -> None:
    wheels = {n: wheel(tmp_path, n, {"x.py": f"who = {n!r}\n".encode()}) for n in ("aa", "bb")}
    packages = conda(
        tmp_path, {"cc": {f"{SITE}/x.py": "who = 'cc'\n", f"{SITE}/__pycache__/x.cpython-311.opt-1.pyc": "old"}}
    )
    yard = Yard(tmp_path / "yard")

    def imported(record: BuildRecord) -> str:
        found = sorted(Path(record.prefix).glob(f"{SITE}/__pycache__/x.*"))
        assert [path.name for path in found] == ["x.cpython-311.pyc"]
        code = found[0].read_bytes()
        return next(name for name in ("aa", "bb", "cc") if name.encode() in code)

    assert imported(build(yard, locked(packages, wheels.values()), chosen(("x.py", "aa")))) == "aa"
    assert imported(build(yard, locked(pip=wheels.values()), directory="2")) == "bb"
    assert imported(build(yard, locked(pip=[wheels["aa"]]), directory="3")) == "aa"
    assert imported(build(yard, locked(pip=[wheels["bb"]]), directory="4")) == "bb"
    assert imported(build(yard, locked(packages, wheels.values()), chosen(("x.py", "cc")), directory="5")) == "cc"


# --------------------------------------------------------------------------- verification


def test_verification_compares_the_file_of_the_winner(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, n, {"cvx/a.py": n.encode(), "tests/a.py": n.encode()}) for n in ("aa", "bb")]
    record = build(Yard(tmp_path / "yard"), locked(pip=wheels))
    (check,) = check_collisions(record)
    assert (check.status, check.kind, check.required) == ("warned", "content", False)
    assert check.detail == f"{SITE}/cvx/a.py of aa, bb: bb wins" and "collisions:" in check.remedy
    place = Path(record.prefix) / SITE / "cvx/a.py"
    place.parent.chmod(0o755)
    place.unlink()
    place.write_bytes(b"aa")
    (check,) = check_collisions(record)
    assert (check.status, check.detail) == ("failed", f"{SITE}/cvx/a.py is not that of bb")
    place.unlink()
    assert check_collisions(record)[0].status == "failed"
    place.symlink_to("/dev/zero")
    assert check_collisions(record)[0].status == "failed"
    place.unlink()
    os.mkfifo(place)
    assert check_collisions(record)[0].status == "failed"
    quiet = replace(record, collisions=tuple(each for each in record.collisions if each.kind == "note"))
    assert check_collisions(quiet)[0].status == "passed"
