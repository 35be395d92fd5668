"""Small parts: sharing and measuring, host tools and their versions, the hash of the inputs, pylock, pyc names."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from buildbed import locked

from stackyard.core import toml
from stackyard.core.errors import InputError, MissingError, StackyardError, Where
from stackyard.core.names import brings_conda
from stackyard.host.files import at
from stackyard.host.net import http
from stackyard.inputs.models import (
    BuildSpec,
    Check,
    CheckExceptions,
    Environment,
    HostTool,
    Licence,
    ModuleSettings,
    NodeNeed,
    PackageBuild,
    Site,
    Variant,
)
from stackyard.inputs.sites.sitemodels import ChannelPolicy, CondaRc, ModulePolicy, Permissions, UserPaths
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, LockedVariant, PipPackage
from stackyard.make import builder, fetch, programs, seal, tools
from stackyard.make.bytecode import bytecode_worker
from stackyard.make.bytecode.cache import pyc
from stackyard.make.bytecode.pyfiles import source_of
from stackyard.make.conda import unpack
from stackyard.make.hashes.inputs import described, file_inputs, input_hash, is_build_of
from stackyard.make.hashes.tree import tree_hash
from stackyard.make.wheels import install as pip
from stackyard.make.wheels import uvcache
from stackyard.yard import disk
from stackyard.yard.revision import contents
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

PLAIN = Variant(stack="demo", version="1.0", name="py311")
CONDA = CondaPackage("six", "1.17", "py_0", 0, "noarch", "https://c", "https://c/noarch/six.conda", "ab" * 32)
PIP = PipPackage("idna", "3.1", "wheel", "https://i/idna-3.1-py3-none-any.whl", "cd" * 32)


def test_hard_links_are_shared_and_copies_are_not(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 10_000)
    (tmp_path / "tree").mkdir()
    assert disk.link_or_copy(source, tmp_path / "tree/linked") == disk.HARDLINK
    mode = disk.link_or_copy(source, tmp_path / "tree/own", link=False)
    assert mode in (disk.COPY, disk.REFLINK) and (tmp_path / "tree/own").read_bytes() == source.read_bytes()
    use = disk.measure(contents.scan(tmp_path, ["tree/"]).values(), disk.MIXED)
    assert use.inodes_shared == 1 and use.inodes_new == 2, "the folder and the copy"
    assert use.bytes_shared == source.stat().st_blocks * 512
    assert disk.mode_of([tmp_path / "tree/linked", tmp_path / "tree/own"], tmp_path) == disk.MIXED
    assert disk.mode_of([tmp_path / "tree/linked"], tmp_path) == disk.HARDLINK
    assert disk.mode_of([], tmp_path) == disk.COPY


def test_links_within_one_tree_are_its_own(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"x" * 10_000)
    os.link(tree / "a", tree / "b")
    use = disk.measure(contents.scan(tmp_path, ["tree/"]).values())
    assert (use.inodes_shared, use.inodes_new) == (0, 2)


def test_a_file_that_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system at /dev/shm")
    target = shm / f"stackyard-test-{os.getpid()}"
    try:
        assert disk.link_or_copy(source, target) == disk.COPY
        assert target.read_text() == "x"
    finally:
        target.unlink(missing_ok=True)


def test_removing_a_tree_frees_its_name(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    disk.remove_tree(tree)
    disk.remove_tree(tree)
    tree.write_text("a temporary file that a killed program left")
    disk.remove_tree(tree)
    tree.symlink_to("/nowhere")
    disk.remove_tree(tree)
    assert list(tmp_path.iterdir()) == []


def test_a_build_removes_what_a_killed_one_was_removing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = RevisionPaths(tmp_path)
    job: Any = SimpleNamespace(paths=paths, prefix=paths.prefix, work=paths.work)
    (paths.prefix / "bin").mkdir(parents=True)
    paths.lock.parent.mkdir()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(at, "remove_tree", lambda *_: signal.raise_signal(signal.SIGINT))
        builder._clear(job)
    assert [path.name.partition("-")[0] for path in disk.leftovers(tmp_path)] == [".prefix.removed"]
    builder._clear(job)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def program(directory: Path, name: str, body: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("name", "body", "version"),
    [
        ("nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.131'", "12.4.131"),
        ("mpicc", 'test "$1" = -showme:version && echo "mpicc: Open MPI 4.1.4 (Language: C)"', "4.1.4"),
        ("mpicc", 'test "$1" = -v && echo "mpicc for MPICH version 4.0.2" ', "4.0.2"),
        ("gcc", 'test "$1" = -dumpfullversion && echo 12.2.0', "12.2.0"),
        ("cmake", "echo cmake version 3.25.1", "3.25.1"),
        ("odd", "exit 3", ""),
    ],
)
def test_versions_of_tools(tmp_path: Path, name: str, body: str, version: str) -> None:
    found = tools.find(name, program(tmp_path / "bin", name, body))
    assert found == tools.Tool(name, str(tmp_path / "bin" / name), version)


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [("12.4.131", ">=11.0,<13", True), ("12.4.131", "12", True), ("12.4.131", "12.5", False), ("", ">=1", False)],
)
def test_ranges(version: str, wanted: str, holds: bool) -> None:
    assert tools.satisfies(version, wanted) is holds


def test_an_unreadable_range_is_said() -> None:
    with pytest.raises(StackyardError, match="newest"):
        tools.satisfies("1.0", ">=newest")


def test_all_missing_tools_are_named_at_once(tmp_path: Path) -> None:
    environ = program(tmp_path / "bin", "cmake", "echo cmake version 3.25.1")
    wanted = (HostTool(name="nvcc-x"), HostTool(name="cmake", version=">=4"), HostTool(name="brought"))
    with pytest.raises(MissingError) as caught:
        tools.require(wanted, environ, "demo/1", frozenset({"brought"}))
    text = str(caught.value)
    assert "nvcc-x" in text and "cmake 3.25.1" in text and ">=4" in text and "brought" not in text


VARIANTS = {
    "summary": PLAIN.model_copy(update={"summary": "x"}),
    "axes": PLAIN.model_copy(update={"axes": {"python": "3.11"}}),
    "run variables": PLAIN.model_copy(update={"run_variables": {"A": "1"}}),
    "file's variables": PLAIN.model_copy(update={"environment": Environment(variables={"A": "1"})}),
    "build variables": PLAIN.model_copy(update={"build": BuildSpec(variables={"A": "1"})}),
    "package build": PLAIN.model_copy(update={"build": BuildSpec(packages={"a": PackageBuild(isolation=True)})}),
    "keep": PLAIN.model_copy(update={"build": BuildSpec(keep=("CC",))}),
    "licence": PLAIN.model_copy(update={"licences": (Licence(name="l"),)}),
    "module settings": PLAIN.model_copy(update={"modules": ModuleSettings(notice="n")}),
}
LOCKS = {
    "another conda package": replace(locked([CONDA], [PIP]), conda=(replace(CONDA, sha256="ef" * 32),)),
    "another wheel": replace(locked([CONDA], [PIP]), pip=(replace(PIP, sha256="ef" * 32),)),
    "build inputs": replace(locked([CONDA], [PIP]), pip=(replace(PIP, build_inputs={"a": "b"}),)),
    "platform": replace(locked([CONDA], [PIP]), platform="linux-aarch64"),
}


def test_every_input_counts() -> None:
    base = locked([CONDA], [PIP])
    first = input_hash(PLAIN, base, Site())
    hashes = {name: input_hash(variant, base, Site()) for name, variant in VARIANTS.items()}
    hashes |= {name: input_hash(PLAIN, lock, Site()) for name, lock in LOCKS.items()}
    same = [name for name, value in hashes.items() if value == first]
    assert same == [] and len(set(hashes.values())) == len(hashes)


def test_commands_count_and_their_lack_keeps_the_hash_of_earlier_revisions() -> None:
    base = locked([CONDA], [PIP])
    offering = PLAIN.model_copy(update={"modules": ModuleSettings(commands=("six",))})
    assert "modules" not in described(PLAIN, base, Site())["variant"]
    assert input_hash(offering, base, Site()) != input_hash(PLAIN, base, Site())


POLICIES = {
    "run variables": Site(run_variables={"A": "1"}),
    "umask": Site(permissions=Permissions(umask="0077")),
    "user paths": Site(user_paths=UserPaths(suffix="other")),
    "naming": Site(modules=ModulePolicy(naming="{version}-{variant}-r{revision}")),
    "family": Site(modules=ModulePolicy(family="stack")),
    "host modules": Site(modules=ModulePolicy(depends_on=("cuda",))),
}


def test_what_the_site_freezes_in_a_revision_counts() -> None:
    hashes = {name: input_hash(PLAIN, locked(), site) for name, site in POLICIES.items()}
    assert len({*hashes.values(), input_hash(PLAIN, locked(), Site())}) == len(hashes) + 1
    elsewhere = Site(name="x", file="/etc/other/site.yaml", modules=ModulePolicy(first_revision=0, formats=("tcl",)))
    assert input_hash(PLAIN, locked(), elsewhere) == input_hash(PLAIN, locked(), Site())


def test_a_file_that_may_not_be_read_is_an_error_of_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise StackyardError(f"cannot read {path}: Permission denied")

    (tmp_path / "a.patch").write_text("x")
    monkeypatch.setattr("stackyard.host.files.hashing.sha256_file", refuse)
    with pytest.raises(InputError, match=r"cannot read .*a\.patch: Permission denied"):
        file_inputs(str(tmp_path / "a.patch"))


def test_a_refused_package_is_not_asked_for_again() -> None:
    package = replace(CONDA, url="https://c/noarch/six.conda")
    for text, login in (("(401 Unauthorized)", True), ("(404 Not Found)", False)):
        with pytest.raises(StackyardError) as caught:
            unpack._require_another_try(package, OSError(f"HTTP status client error {text} for url (x)"), True)
        assert (caught.value.hint == http.LOGIN_HINT) is login
    unpack._require_another_try(package, OSError("an io error occurred: error decoding response body"), True)


def with_files(directory: Path, **texts: str) -> Variant:
    """A variant that names a file of every kind in `directory`; `texts` replaces the content of some."""
    directory.mkdir(parents=True)
    names = {name: str(directory / name) for name in ("post", "patch", "probe", "licence")}
    for name, path in names.items():
        Path(path).write_text(texts.get(name, name))
    return PLAIN.model_copy(
        update={
            "post": names["post"],
            "build": BuildSpec(packages={"a": PackageBuild(patches=(names["patch"],))}),
            "checks": (Check(name="c", script=names["probe"]), Check(name="c", run=("true",))),
            "licences": (Licence(name="l", text=names["licence"]),),
            "files": (str(directory / "stack.yaml"),),
            "place": Where(file=str(directory / "stack.yaml"), line=3),
            "notices": (f"{directory} was read",),
        }
    )


def test_where_files_lie_does_not_count_and_what_they_hold_does(tmp_path: Path) -> None:
    first = input_hash(with_files(tmp_path / "here"), locked(), Site())
    assert input_hash(with_files(tmp_path / "over" / "there"), locked(), Site()) == first
    changed = {
        name: input_hash(with_files(tmp_path / name, **{name: "new"}), locked(), Site())
        for name in ("post", "patch", "licence")
    }
    assert len({first, *changed.values()}) == 4
    assert input_hash(with_files(tmp_path / "probe", probe="new"), locked(), Site()) == first


def test_what_does_not_count(tmp_path: Path) -> None:
    base = locked([CONDA], [PIP])
    first = input_hash(PLAIN, base, Site())
    mirrored = replace(base, conda=(replace(CONDA, url="https://mirror/six.conda"),))
    assert input_hash(PLAIN, mirrored, Site()) == first
    assert input_hash(PLAIN, LockedVariant(**{**base.__dict__, "notices": ("x",)}), Site(name="other")) == first
    assert input_hash(PLAIN.model_copy(update={"files": ("x",), "notices": ("y",)}), base, Site()) == first


@pytest.mark.parametrize(
    "site",
    [
        Site(pins=("numpy <2",)),
        Site(condarc=CondaRc(threads=9)),
        Site(channels=ChannelPolicy(mirrors={"conda-forge": "https://mirror.example"}, priority="flexible")),
    ],
)
def test_checks_and_the_policy_for_users_do_not_count(site: Site) -> None:
    base = locked([CONDA], [PIP])
    checks = {"checks": (Check(name="c", run=("true",)),), "exceptions": CheckExceptions(imports=("a",))}
    assert input_hash(PLAIN.model_copy(update=checks), base, site) == input_hash(PLAIN, base, Site())


def test_pins_count_where_they_are_a_file_of_the_prefix() -> None:
    base = locked([replace(CONDA, name="conda")])
    assert input_hash(PLAIN, base, Site(pins=("numpy <2",))) != input_hash(PLAIN, base, Site())


def test_a_revision_of_an_earlier_version_is_recognised_whatever_its_checks_are(tmp_path: Path) -> None:
    """The hash in the record is what the version before computed for these inputs."""
    made = _of_former_version(tmp_path)
    assert is_build_of(
        made.record, made.variant, made.locked, made.site, input_hash(made.variant, made.locked, made.site)
    )
    other = made.variant.model_copy(update={"checks": (), "exceptions": CheckExceptions(libraries=("x",))})
    assert is_build_of(made.record, other, made.locked, made.site, "")
    more = made.variant.model_copy(update={"run_variables": {"A": "2"}})
    assert not is_build_of(made.record, more, made.locked, made.site, "")
    offering = made.variant.model_copy(update={"modules": ModuleSettings(notice="n", commands=("six",))})
    assert not is_build_of(made.record, offering, made.locked, made.site, "")
    now = replace(made.record, hash_format=2)
    assert not is_build_of(now, made.variant, made.locked, made.site, "")
    assert is_build_of(now, other, made.locked, made.site, now.input_hash)


class _Former(NamedTuple):
    record: BuildRecord
    variant: Variant
    locked: LockedVariant
    site: Site


def _of_former_version(directory: Path) -> _Former:
    (directory / "recipe").mkdir()
    for name in ("post", "patch", "licence", "recipe/probe.py"):
        (directory / name).write_text(Path(name).name)
    build = BuildSpec(
        variables={"C": "3"}, tools=(HostTool(name="cmake", version=">=3"),), keep=("CC",),
        packages={"a": PackageBuild(patches=(str(directory / "patch"),), variables={"D": "4"})},
    )  # fmt: skip
    checks = (
        Check(name="c", script="probe.py"), Check(name="d", run=("true",), expect="x", needs=NodeNeed(gpu=True)),
    )  # fmt: skip
    variant = Variant(
        stack="demo", version="1.0", name="py311", axes={"python": "3.11"}, summary="x", run_variables={"A": "1"},
        post=str(directory / "post"), environment=Environment(variables={"B": "2"}), build=build,
        exceptions=CheckExceptions(imports=("a",)), licences=(Licence(name="l", text=str(directory / "licence")),),
        modules=ModuleSettings(notice="n"), checks=checks,
    )  # fmt: skip
    site = Site(
        pins=("numpy <2",), permissions=Permissions(group="staff", umask="0027"), condarc=CondaRc(threads=9),
        channels=ChannelPolicy(mirrors={"conda-forge": "https://m"}), run_variables={"E": "5"},
        modules=ModulePolicy(depends_on=("cuda",)),
    )  # fmt: skip
    lock = LockedVariant(
        "demo", "1.0", "py311", "linux-64", "", LockedInterpreter("conda", "3.11.9"), conda=(CONDA,), pip=(PIP,)
    )
    record = BuildRecord(
        "demo", "1.0", "py311", 1, "demo/1.0-py311-1",
        "b98099c4d6e0cb98e4e900c8ef072e45cf7ed4bcf58084f7b22a82da7fa1b65d",
        "linux-64", str(directory), str(directory / "prefix"), "2026-01-01T00:00:00+00:00", hash_format=1,
        checks=tuple(c.model_dump(mode="json") for c in checks), exceptions=variant.exceptions.model_dump(mode="json"),
    )  # fmt: skip
    return _Former(record, variant, lock, site)


def test_a_variable_counts_where_its_selector_holds() -> None:
    chosen = Environment(variables={"A": "1"}, variable_selectors={"A": "aarch64"})
    variant = PLAIN.model_copy(update={"environment": chosen})
    counts = {
        platform: input_hash(variant, replace(locked(), platform=platform), Site())
        != input_hash(PLAIN, replace(locked(), platform=platform), Site())
        for platform in ("linux-64", "linux-aarch64")
    }
    assert counts == {"linux-64": False, "linux-aarch64": True}


def test_the_content_of_named_files_counts(tmp_path: Path) -> None:
    script = tmp_path / "post"
    variant = PLAIN.model_copy(update={"post": str(script)})
    with pytest.raises(InputError, match="post"):
        input_hash(variant, locked(), Site())
    script.write_text("one")
    first = input_hash(variant, locked(), Site())
    script.write_text("two")
    assert input_hash(variant, locked(), Site()) != first


def test_pylock_is_what_the_standard_says() -> None:
    wheel = pip.Wheel("idna", "3.1", "/a dir/idna-3.1-py3-none-any.whl", "cd" * 32)
    value = toml.loads(pip.pylock([wheel, pip.Wheel.of(PIP)]))
    assert value["lock-version"] == "1.0"
    assert value["packages"][0] == {
        "name": "idna", "version": "3.1",
        "wheels": [{"url": "file:///a%20dir/idna-3.1-py3-none-any.whl", "hashes": {"sha256": "cd" * 32}}],
    }  # fmt: skip


def test_names_of_bytecode() -> None:
    assert pyc("lib/a/b.py", "cpython-311") == "lib/a/__pycache__/b.cpython-311.pyc"
    for name in ("lib/a/__pycache__/b.cpython-311.pyc", "lib/a/__pycache__/b.cpython-311.opt-1.pyc"):
        assert source_of(name) == "lib/a/b.py"
    assert source_of("lib/a/b.pyc") == source_of("lib/a/b.py") == ""


def compilation(errors: int) -> str:
    """The output of a parallel compilation that went on after its errors."""
    lines = [f"[{n}/900] c++ -c file{n}.cc" for n in range(900)]
    for n in range(errors):
        lines[100 + 20 * n] = f"file{n}.cc:7:1: fatal error: part{n}.h: No such file or directory"
    return "\n".join([*lines, "subprocess.CalledProcessError: make returned 2"])


def test_the_cause_in_a_long_output_is_shown_with_its_end() -> None:
    text = programs.telling(compilation(errors=1)).splitlines()
    assert text[:4] == [
        "... 99 lines ...",
        "[99/900] c++ -c file99.cc",
        "file0.cc:7:1: fatal error: part0.h: No such file or directory",
        "[101/900] c++ -c file101.cc",
    ]
    assert text[-1].endswith("make returned 2") and len(text) == 4 + 1 + 25
    many = programs.telling(compilation(errors=30)).splitlines()
    assert sum("fatal error" in line for line in many) == 5 and len(many) == 15 + 25 + 6
    assert programs.telling("one\nerror: two") == "one\nerror: two"
    assert programs.telling("") == ""


def test_a_full_disk_is_said_in_one_sentence(tmp_path: Path) -> None:
    words = "for n in $(seq 99); do echo line $n; done; echo 'cannot write: No space left on device' >&2; exit 2"
    with pytest.raises(StackyardError, match="no space left while unpacking x") as caught:
        programs.run(["sh", "-c", words], what="unpacking x", log=tmp_path / "log", check=False)
    assert "free some space" in (caught.value.hint or "") and caught.value.detail is None
    assert caught.value.exit_code == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_download_to_a_full_disk_is_not_taken_for_a_bad_source(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * 100_000)
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):
        fetch.copy_from((tmp_path / "source").as_uri(), full)
    with pytest.raises(StackyardError, match="cannot read"):
        fetch.copy_from((tmp_path / "nothing").as_uri(), io.BytesIO())


def test_uvs_note_of_the_time_is_removed(tmp_path: Path) -> None:
    info = tmp_path / "site-packages/a-1.dist-info"
    info.mkdir(parents=True)
    (info / "uv_cache.json").write_text('{"timestamp": 1}')
    lines = ["a.py,sha256=x,1\n", "a-1.dist-info/uv_cache.json,sha256=y,2\n", "a-1.dist-info/RECORD,,\n"]
    (tmp_path / "cached").write_text("".join(lines))
    (info / "RECORD").hardlink_to(tmp_path / "cached")
    pip.forget_times(tmp_path / "site-packages")
    assert [p.name for p in info.iterdir()] == ["RECORD"]
    assert (info / "RECORD").read_text() == lines[0] + lines[2]
    assert "uv_cache" in (tmp_path / "cached").read_text(), "a file of the cache is not written into"


@pytest.mark.parametrize(
    ("declared", "packages", "brings"),
    [(None, ["python", "mamba"], True), (None, ["python"], False), (True, [], True), (False, ["conda"], False)],
)
def test_a_stack_that_brings_conda(declared: bool | None, packages: list[str], brings: bool) -> None:
    assert brings_conda(declared, packages) is brings


@pytest.mark.parametrize("source", ["print 1", "def f():\n return await x\n", "\0", None])
def test_a_file_that_cannot_be_compiled_stops_nothing(tmp_path: Path, source: str | None) -> None:
    """Python 2, syntax of another version, no text at all, and a link to nothing."""
    path = tmp_path / "a.py"
    path.symlink_to("nowhere") if source is None else path.write_text(source)
    assert bytecode_worker.compile_one((str(tmp_path / "a.pyc"), str(path), "a.py")) == "a.py"
    assert not (tmp_path / "a.pyc").exists()


def test_the_message_of_a_sealed_prefix() -> None:
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(seal.externally_managed(["This never changes.", "Use . DIR/bin/activate"]))
    assert parser["externally-managed"]["Error"].splitlines() == ["This never changes.", "Use . DIR/bin/activate"]


def test_glob_characters_in_versions() -> None:
    assert uvcache._escaped("1.0+[x]*") == "1.0+[[]x][*]"


def test_the_tree_hash_sees_content_modes_links_and_names(tmp_path: Path) -> None:
    tree = tmp_path / "prefix"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/tool").write_text("x")
    (tree / "link").symlink_to("bin/tool")
    seen = [tree_hash(tree)]
    (tree / "lib/__pycache__").mkdir(parents=True)
    seen.append(tree_hash(tree))
    (tree / "lib/__pycache__/a.pyc").write_text("volatile")
    assert tree_hash(tree) == seen[-1]
    (tree / "bin/tool").write_text("y")
    seen.append(tree_hash(tree))
    (tree / "bin/tool").chmod(0o700)
    seen.append(tree_hash(tree))
    (tree / "link").unlink()
    (tree / "link").symlink_to("bin")
    seen.append(tree_hash(tree))
    (tree / "bin/tool").rename(tree / "bin/other")
    seen.append(tree_hash(tree))
    assert len(set(seen)) == len(seen)


def test_the_sites_part_of_a_module_is_kept_with_the_revision() -> None:
    from stackyard.inputs.models import CondaRequirement, Environment, MaxNodes, ModuleSettings, Site, Variant
    from stackyard.inputs.sites.sitemodels import ModulePolicy
    from stackyard.make.builder import module_settings

    site = Site(modules=ModulePolicy(family="python3", depends_on=("slurm",)))
    some = Variant(
        stack="s",
        version="1",
        name="",
        environment=Environment(conda=(CondaRequirement(text="python", spec="python"),)),
    )
    plain = module_settings(some, site)
    assert (plain["family"], plain["depends_on"]) == ("python3", ["slurm"])
    own = ModuleSettings(family="", depends_on=("cuda", "slurm"))
    said = module_settings(some.model_copy(update={"modules": own}), site)
    assert (said["family"], said["depends_on"]) == ("", ["slurm", "cuda"])
    few = module_settings(some.model_copy(update={"max_nodes": MaxNodes(count=4, reason="why")}), site)
    assert few.pop("max_nodes") == {"count": 4, "reason": "why"} and few == plain
    variables = module_settings(Variant(stack="s", version="1", name=""), site)
    assert (variables["family"], variables["depends_on"]) == ("", []), "without packages it is loaded beside others"
