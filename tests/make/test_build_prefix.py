"""Whole builds: with a conda Python and on the host's, what they leave behind, what they share, what they refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from buildbed import build, conda_packages, locked, sdist, sha256, wheel

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.progress import SilentProgress
from stackyard.host.run import layer
from stackyard.inputs.models import Check, Environment, Site, Variant
from stackyard.inputs.sites.sitemodels import Permissions
from stackyard.lock.lockfile.model import LockedInterpreter, LockedVariant, PipPackage
from stackyard.make import builder
from stackyard.make.hashes.tree import tree_hash
from stackyard.yard.cache.audit import audit
from stackyard.yard.cache.caches import KINDS
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record
from support.channel import Link, Package, make_channel

VARIANT = Variant(stack="demo", version="1.0", name="py311")
SMALL = ("python", "pip", "six", "click")


def python(record_prefix: str, code: str) -> str:
    done = subprocess.run(
        [f"{record_prefix}/bin/python", "-c", code], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout.strip()


def compiled_bytecode(paths: RevisionPaths) -> bool:
    return "bytecode_worker.py" in paths.log.read_text()


@dataclass(frozen=True)
class Warm:
    """A yard in which a conda stack was built; others build beside it, or in a child of it."""

    yard: Yard
    lock: LockedVariant
    record: BuildRecord


@pytest.fixture(scope="module")
def warm(channel: Path, wheelhouse: dict[str, PipPackage], tmp_path_factory: pytest.TempPathFactory) -> Warm:
    yard = Yard(tmp_path_factory.mktemp("warm") / "yard")
    lock = locked(conda_packages(channel, SMALL), [wheelhouse["idna"], wheelhouse["zipp"]])
    variant = VARIANT.model_copy(update={"run_variables": {"DATA": "{prefix}/share"}})
    return Warm(yard, lock, build(yard, lock, variant, directory="first"))


def test_a_conda_stack_runs_is_sealed_and_recorded(warm: Warm) -> None:
    record, prefix = warm.record, Path(warm.record.prefix)
    paths = RevisionPaths.of(record.path)
    assert compiled_bytecode(paths)
    assert python(record.prefix, "import sys, six, idna, zipp; print(sys.prefix)") == record.prefix
    assert "stackyard deploy" in json.loads((prefix / "conda-meta/frozen").read_text())["message"]
    refused = subprocess.run(
        [prefix / "bin/python", "-m", "pip", "install", "--no-index", "idna"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "externally-managed" in refused.stderr and "stackyard deploy" in refused.stderr
    assert read_record(paths.record) == record
    assert not paths.building.exists() and not (paths.root / ".work").exists()
    assert {(p.kind, p.name) for p in record.packages} == {
        *(("conda", p.name) for p in warm.lock.conda),
        *(("pip", p.name) for p in warm.lock.pip),
    }
    licences = {p.name: p.licence for p in record.packages}
    assert licences["idna"] == "BSD-3-Clause" and licences["zipp"] == "MIT"  # as their installed metadata says
    assert record.interpreter["source"] == "conda"
    assert record.activation.change.apply({})["DATA"] == f"{prefix}/share"
    assert not (prefix / "CACHEDIR.TAG").exists()
    assert {"conda", "pip", "bytecode", "seal"} <= set(record.timings_s)
    assert audit(warm.yard) == []
    assert {path.name for path in warm.yard.cache.iterdir()} <= {kind.name for kind in KINDS}


def test_a_second_prefix_shares_files_and_compiles_nothing(warm: Warm) -> None:
    second = build(warm.yard, warm.lock, directory="second")
    sources = [p for p in Path(second.prefix).rglob("*.py") if p.is_file()]
    pycs = list(Path(second.prefix).rglob("*.pyc"))
    assert len(pycs) > 500
    assert {p.read_bytes()[4] for p in pycs} == {0b01}, "an unchecked source hash"
    assert sum(p.stat().st_nlink >= 3 for p in pycs) > 0.95 * len(pycs)
    assert sum(p.stat().st_nlink >= 3 for p in sources) > 0.95 * len(sources)
    assert second.disk.link_mode == "hardlink"
    assert second.disk.bytes_new < 0.15 * (second.disk.bytes_new + second.disk.bytes_shared)
    log = RevisionPaths.of(second.path).log.read_text()
    assert log.count("bytecode_worker.py") <= 1, "only files that hold the prefix are compiled again"
    traced = python(second.prefix, "import click.core; print(click.core.Context.__init__.__code__.co_filename)")
    assert traced.startswith(second.prefix)
    code = "import sysconfig; print(sysconfig.get_config_var('prefix'))"
    assert [python(r.prefix, code) for r in (warm.record, second)] == [warm.record.prefix, second.prefix]


def test_a_stack_on_the_hosts_python(yard: Yard, wheelhouse: dict[str, PipPackage]) -> None:
    pip = [wheelhouse[name] for name in ("idna", "six", "rich", "pygments", "markdown-it-py", "mdurl")]
    lock = locked(pip=pip)
    record = build(yard, lock)
    prefix = Path(record.prefix)
    assert python(record.prefix, "import rich, sys; print(sys.prefix)") == record.prefix
    assert sorted(p.name for p in (prefix / "bin").iterdir() if p.name[:3] not in ("pyt", "pip")) == [
        "markdown-it", "pygmentize",
    ]  # fmt: skip
    assert record.interpreter == {
        "source": "host", "path": lock.interpreter.path, "version": lock.interpreter.version,
        "sha256": lock.interpreter.sha256,
    }  # fmt: skip
    site = next(prefix.glob("lib/python3*/site-packages"))
    assert not [*site.glob("*/direct_url.json"), *site.glob("*/uv_cache.json")]
    assert "uv_cache.json" not in next(site.glob("idna-*/RECORD")).read_text()
    assert (site / "__pycache__").is_dir() and (site / "idna/__pycache__").is_dir()
    assert (site / "six.py").stat().st_nlink >= 2
    again = build(yard, lock, directory="again")
    assert tree_hash(Path(again.prefix)) != tree_hash(prefix), "scripts name their prefix"
    assert not compiled_bytecode(RevisionPaths.of(again.path))
    assert audit(yard) == []


@pytest.mark.parametrize("private", [False, True], ids=["linked", "files of its own"])
def test_links_of_packages_stay_links(
    yard: Yard, tmp_path: Path, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a package, to a directory, into another package, and to nothing at all."""
    monkeypatch.setattr(layer, "works", lambda _: False)
    links = {
        "lib/libx.so": "libx.so.1",
        "share/alias": "data",
        "share/others": "../../usr",
        "share/theirs": "../bin/tool",
    }
    files = {"lib/libx.so.1": "x" * 5000, "share/data/a": "a" * 5000}
    made = [
        Package("lib", "1.0", files={**files, **{name: Link(target) for name, target in links.items()}}),
        Package("tool", "1.0", files={"bin/tool": ("#!/bin/sh\n", 0o755)}),
    ]
    lock = locked(conda_packages(make_channel(tmp_path / "ch", made)), interpreter=LockedInterpreter("none"))
    post = tmp_path / "post"
    post.write_text(":\n")
    record = build(yard, lock, VARIANT.model_copy(update={"post": str(post)}) if private else None)
    assert {name: os.readlink(Path(record.prefix, name)) for name in links} == links
    assert Path(record.prefix, "lib/libx.so.1").stat().st_nlink == (1 if private else 2)
    assert record.disk.link_mode in (("copy", "reflink") if private else ("hardlink",))
    assert audit(yard) == []


def test_a_replaced_package_of_a_local_channel_is_refused(yard: Yard, channel: Path, tmp_path: Path) -> None:
    own = tmp_path / "channel"
    shutil.copytree(channel, own)
    conda = conda_packages(own, SMALL)
    victim = next(p for p in conda if p.name == "six")
    path = Path(victim.url.removeprefix("file://"))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(StackyardError) as caught:
        build(yard, locked(conda))
    text = str(caught.value)
    assert path.name in text and victim.sha256 in text and sha256(path) in text
    assert not list(yard.cache.glob("conda/six-*"))
    assert not list(yard.root.rglob("record.json"))


def test_a_replaced_wheel_is_refused(yard: Yard, wheelhouse: dict[str, PipPackage]) -> None:
    wrong = replace(wheelhouse["idna"], sha256="0" * 64)
    with pytest.raises(StackyardError) as caught:
        build(yard, locked(pip=[wheelhouse["six"], wrong]))
    assert "idna" in (caught.value.detail or "") and wheelhouse["idna"].sha256 in (caught.value.detail or "")
    assert "build.log" in (caught.value.hint or "")


def test_the_rest_of_a_killed_build_is_replaced(yard: Yard, wheelhouse: dict[str, PipPackage]) -> None:
    lock = locked(pip=[wheelhouse["six"]])
    before = tree_hash(Path(build(yard, lock).prefix))
    paths = RevisionPaths(yard.root / "stacks/demo/1.0-py311-1")
    paths.record.unlink()
    (paths.prefix / "lib/half-written.so").write_bytes(b"\x7fELF")
    assert tree_hash(Path(build(yard, lock).prefix)) == before


def test_a_build_leaves_the_marker_to_its_caller(yard: Yard, wheelhouse: dict[str, PipPackage]) -> None:
    paths = yard.revision("demo", "1.0-py311-1")
    variant = Variant(stack="demo", version="1.0", name="py311")
    lock = locked(pip=[wheelhouse["six"]])
    record = builder.build(variant, lock, Site(), yard, paths, "demo/1.0-py311-1", 1, SilentProgress())
    assert record.payload.python.exists() and paths.building.exists()
    assert not paths.record.exists() and revisions.built(yard) == []
    revisions.mark(record)
    assert revisions.built(yard) == [record] and not paths.building.exists()


def test_a_finished_revision_is_not_built_again_nor_from_other_inputs(
    yard: Yard, wheelhouse: dict[str, PipPackage]
) -> None:
    lock = locked(pip=[wheelhouse["six"]])
    first = build(yard, lock)
    assert build(yard, lock) == first
    with pytest.raises(StackyardError, match="never changes"):
        build(yard, locked(pip=[wheelhouse["idna"]]))


def test_the_hosts_python_must_be_the_locked_one(yard: Yard) -> None:
    lock = locked()
    other = replace(lock, interpreter=replace(lock.interpreter, sha256="0" * 64))
    with pytest.raises(StackyardError, match="hash mismatch"):
        build(yard, other)
    gone = replace(lock, interpreter=LockedInterpreter("host", "3.11.0", "/nowhere/python3", ""))
    with pytest.raises(MissingError, match="/nowhere/python3"):
        build(yard, gone)


def test_a_childs_build_reads_its_parents_caches_and_writes_to_itself(warm: Warm, tmp_path: Path) -> None:
    held = sorted(warm.yard.root.rglob("*"))
    child = Yard(tmp_path / "child", warm.yard)
    record = build(child, warm.lock)
    assert sorted(warm.yard.root.rglob("*")) == held
    assert next(child.cache.glob("conda/six-*-pyhd_0")).is_symlink(), "unpacked packages are used where they are"
    assert not list(child.cache.glob("bytecode/*/??/*"))
    assert list(child.cache.glob("uv/archive-v*/*/idna"))
    assert Path(record.prefix, "bin").is_dir() and record.disk.link_mode == warm.record.disk.link_mode


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to a group")
def test_group_and_umask_of_the_site(yard: Yard, wheelhouse: dict[str, PipPackage]) -> None:
    site = Site(yard=str(yard.root), permissions=Permissions(group="users", umask="0027"))
    before = os.umask(0o022)
    os.umask(before)
    record = build(yard, locked(pip=[wheelhouse["six"]]), site=site)
    assert os.umask(before) == before
    prefix = Path(record.prefix)
    import grp

    users = grp.getgrnam("users").gr_gid
    assert {p.lstat().st_gid for p in (prefix, *prefix.rglob("*")) if not p.is_symlink()} == {users}
    assert not any(p.lstat().st_mode & 0o007 for p in prefix.rglob("*") if p.is_dir() and not p.is_symlink())
    with pytest.raises(StackyardError, match="no-such-group"):
        unknown = Site(yard=str(yard.root), permissions=Permissions(group="no-such-group"))
        build(yard, locked(), site=unknown, directory="other")


@pytest.mark.parametrize("layered", [True, False])
def test_a_post_script_changes_the_prefix_and_not_the_cache(
    warm: Warm, tmp_path: Path, layered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if layered and not layer.works(tmp_path):
        pytest.skip("no layer over a directory can be mounted here: needs root and overlayfs")
    monkeypatch.setattr(layer, "works", lambda _: layered)
    script = tmp_path / "postBuild"
    script.write_text(
        'test "$PWD" = "$PREFIX"\necho "print(\'changed\')" >> "$(python -c \'import six; print(six.__file__)\')"\n'
        'echo "def f(): return 7" > "$PREFIX/lib/python3.11/site-packages/added.py"\n'
    )
    record = build(warm.yard, warm.lock, VARIANT.model_copy(update={"post": str(script)}), directory=f"post-{layered}")
    assert python(record.prefix, "import six, added; print(added.f())").split() == ["changed", "7"]
    assert list(Path(record.prefix).glob("lib/python3*/site-packages/__pycache__/added.*.pyc"))
    assert python(warm.record.prefix, "import six; print('as it was')") == "as it was"
    if layered:
        assert record.disk.link_mode in ("hardlink", "mixed")  # what was changed is its own, the rest is shared
        assert record.disk.inodes_shared > warm.record.disk.inodes_shared - 20
    else:
        assert record.disk.link_mode in ("copy", "reflink")
    assert audit(warm.yard) == []


def test_a_failing_post_script_says_where_its_output_is(yard: Yard, tmp_path: Path) -> None:
    script = tmp_path / "postBuild"
    script.write_text("echo about to fail\nfalse\necho not reached\n")
    with pytest.raises(StackyardError) as caught:
        build(yard, locked(), VARIANT.model_copy(update={"post": str(script)}))
    assert "about to fail" in (caught.value.detail or "") and "not reached" not in (caught.value.detail or "")
    assert "build.log" in (caught.value.hint or "")


def test_a_stack_without_python(yard: Yard, tmp_path: Path) -> None:
    tool = Package("tool", "2.0", files={"bin/tool": ("#!/bin/sh\necho works\n", 0o755)})
    channel = make_channel(tmp_path / "ch", [tool])
    lock = locked(conda_packages(channel), interpreter=LockedInterpreter("none"))
    record = build(yard, lock)
    assert subprocess.check_output([f"{record.prefix}/bin/tool"], text=True) == "works\n"
    assert record.interpreter == {}
    wheel = PipPackage("x", "1", "wheel", "https://localhost/x-1-py3-none-any.whl", "0" * 64)
    with pytest.raises(StackyardError, match="no Python"):
        build(yard, replace(lock, pip=(wheel,)), directory="other")


def test_link_scripts_of_packages_are_run(yard: Yard, tmp_path: Path) -> None:
    script = '#!/bin/sh\necho "$PREFIX" > "$PREFIX/share/linked"\n'
    files = {"share/data": "x", "bin/.tool-post-link.sh": (script, 0o755)}
    channel = make_channel(tmp_path / "ch", [Package("tool", "2.0", files=files)])
    record = build(yard, locked(conda_packages(channel), interpreter=LockedInterpreter("none")))
    assert Path(record.prefix, "share/linked").read_text().strip() == record.prefix


def test_a_stack_that_brings_conda_holds_the_sites_pins(yard: Yard, tmp_path: Path) -> None:
    site = Site(pins=("cudatoolkit <10.3", "numpy <2"))
    for name, pinned in (("conda", ["cudatoolkit <10.3", "numpy <2"]), ("tool", None)):
        made = make_channel(tmp_path / name, [Package(name, "2.0", files={"share/data": name})])
        lock = locked(conda_packages(made), interpreter=LockedInterpreter("none"))
        file = Path(build(yard, lock, site=site, directory=name).prefix, "conda-meta/pinned")
        assert (file.read_text().splitlines() if file.exists() else None) == pinned


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.parametrize("part", ["conda", "wheel", "source"])
def test_a_full_disk_is_named_whatever_met_it(yard: Yard, tmp_path: Path, part: str) -> None:
    """py-rattler, uv and a compilation: each says it in its own words, and a deploy in one sentence."""
    lock, step = {
        "conda": lambda: (_big_conda(tmp_path), "unpacking big-1.0-0"),
        "wheel": lambda: (locked(pip=[_big_wheel(tmp_path)]), "installing the pip packages of demo"),
        "source": lambda: (locked(pip=[_big_source(tmp_path)]), "compiling big 1.0"),
    }[part]()
    yard.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", yard.root]
    if (done := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode != 0:
        pytest.skip(f"a file system of its own cannot be mounted here: {done.stderr.strip()}")
    try:
        with pytest.raises(StackyardError, match=f"^no space left while {step}") as caught:
            build(yard, lock)
        assert not list(yard.root.glob("stacks/*/*/prefix")), "its space is given back"
    finally:
        subprocess.run(["umount", "-l", yard.root], check=True)
    assert "free some space" in (caught.value.hint or "") and not caught.value.detail


def _big_conda(directory: Path) -> LockedVariant:
    made = make_channel(directory / "ch", [Package("big", "1.0", files={"share/big": bytes(9 << 20)})])
    return locked(conda_packages(made), interpreter=LockedInterpreter("none"))


def _big_wheel(directory: Path) -> PipPackage:
    return wheel(directory, "big", {"big/data": bytes(9 << 20)})


def _big_source(directory: Path) -> PipPackage:
    backend = "def build_wheel(*given):\n    open('big', 'wb').write(bytes(9 << 20))\n"
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    return sdist(directory, {"pyproject.toml": project, "backend.py": backend}, "big")


def test_recipe_and_lock_are_kept(yard: Yard, tmp_path: Path) -> None:
    files = []
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        files.append(tmp_path / directory / "environment.yml")
        files[-1].write_text(directory)
    script = tmp_path / "probe"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    checks = (Check(name="c", script=str(script)), Check(name="d", run=("true",)))
    variant = VARIANT.model_copy(update={"files": tuple(map(str, files)), "checks": checks})
    record = build(yard, locked(), variant)
    paths = RevisionPaths.of(record.path)
    assert sorted(p.name for p in paths.recipe.iterdir()) == ["environment.yml", "environment.yml.2", "probe"]
    assert [check["script"] for check in record.checks] == ["probe", ""], "verification runs the copy"
    assert os.access(paths.recipe / "probe", os.X_OK)
    assert "demo" in paths.lock.read_text()


def test_run_variables_win_in_order(yard: Yard) -> None:
    environment = Environment(variables={"A": "file", "B": "file", "C": "file"})
    variant = Variant(stack="demo", version="1.0", name="py311", environment=environment, run_variables={"C": "stack"})
    record = build(yard, locked(), variant, site=Site(run_variables={"B": "site", "C": "site"}))
    applied = record.activation.change.apply({"A": "user"})
    assert (applied["A"], applied["B"], applied["C"]) == ("file", "site", "stack")


def test_progress_names_the_phases(yard: Yard, wheelhouse: dict[str, PipPackage]) -> None:
    class Kept(SilentProgress):
        phases: list[str] = []  # noqa: RUF012

        def phase(self, subject: str, phase: str, detail: str = "") -> None:
            assert subject == "demo/1.0-py311-1"
            self.phases.append(phase)

    build(yard, locked(pip=[wheelhouse["six"]]), progress=Kept())
    assert Kept.phases == ["tools", "interpreter", "pip", "activation", "bytecode", "seal"]


def test_builder_offers_the_input_hash() -> None:
    assert builder.input_hash(VARIANT, locked(), Site()) == builder.input_hash(VARIANT, locked(), Site())


def test_another_build_of_a_package_replaces_the_link_and_not_the_parents_files(yard: Yard, tmp_path: Path) -> None:
    locks = []
    for text in ("one", "two"):
        made = make_channel(tmp_path / text, [Package("tool", "2.0", files={"share/data": text})])
        locks.append(locked(conda_packages(made), interpreter=LockedInterpreter("none")))
    build(yard, locks[0])
    child = Yard(tmp_path / "child", yard)
    for directory, lock, text in (("a", locks[0], "one"), ("b", locks[1], "two"), ("c", locks[0], "one")):
        assert Path(build(child, lock, directory=directory).prefix, "share/data").read_text() == text
    assert (yard.cache / "conda/tool-2.0-0/share/data").read_text() == "one"
    assert audit(yard) == audit(child) == []
