"""The pip half: local indexes and directories for every edge, the real index for a few small packages."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers_lock import pip, sdist, simple_index, wheel

from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.host.run import command
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import BuildSpec, HostTool, PackageBuild, PipOptions, PipRequirement
from stackyard.inputs.pip.requirements import read_requirements
from stackyard.inputs.pip.settings import settings as pip_settings
from stackyard.inputs.sites.sitemodels import PipPolicy
from stackyard.lock.explain import reachability as reach
from stackyard.lock.pip.provided import ProvidedDistribution
from stackyard.lock.pip.resolve import PipRequest, PipSolution, solve_pip
from stackyard.lock.pip.uvcompile import Question, _flags
from support.guardedserver import guarded
from support.webserver import served


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture
def links(tmp_path: Path) -> Path:
    directory = tmp_path / "links"
    wheel(
        directory,
        "app",
        "1.0",
        ["numpy>=1.20", "tool-x ; sys_platform == 'linux'", "winonly ; sys_platform == 'win32'"],
    )
    wheel(directory, "tool-x", "2.0")
    for version in ("1.26.4", "2.1.0"):
        for machine in ("x86_64", "aarch64", "ppc64le"):
            wheel(directory, "numpy", version, tag=f"cp311-cp311-manylinux_2_17_{machine}")
    wheel(directory, "numpy", "2.1.0", tag="cp311-cp311-manylinux_2_34_x86_64")
    sdist(directory, "numpy", "2.1.0")
    sdist(directory, "srconly", "1.0", ["tool-x>=1"])
    wheel(directory, "pre", "1.0")
    wheel(directory, "pre", "2.0rc1")
    wheel(directory, "wants-pre", "1.0", ["pre>=1.0rc1"])
    for tag in ("cp38-cp38", "cp310-cp310"):
        wheel(directory, "old", "1.0", tag=f"{tag}-manylinux_2_17_x86_64")
    return directory


def solve(links: Path | None, cache: Path, *lines: str, **more: Any) -> PipSolution:
    requirements = more.pop("requirements", ()) + pip(*lines)
    places = (str(links),) if links else ()
    settings = PipSettings(**{"indexes": (), "no_index": True, "find_links": places, **more.pop("settings", {})})
    values: dict[str, Any] = {"platform": "linux-64", "python": "3.11.9", "glibc": "2.28", **more}
    return solve_pip(
        PipRequest("demo 1 for linux-64", requirements=requirements, settings=settings, cache=cache, **values)
    )


def files(solution: PipSolution) -> dict[str, str]:
    return {p.name: p.url.rsplit("/", 1)[-1] for p in solution.packages}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --------------------------------------------------------------------------- what is locked


def test_wheels_from_a_directory_with_hash_and_requirements(links: Path, cache: Path) -> None:
    found = {p.name: p for p in solve(links, cache, "app").packages}
    assert sorted(found) == ["app", "numpy", "tool-x"]
    assert found["app"].requires == ("numpy>=1.20", "tool-x ; sys_platform == 'linux'")
    for p in found.values():
        path = Path(p.url.removeprefix("file://"))
        assert p.kind == "wheel" and p.sha256 == sha256(path) and p.size == path.stat().st_size
        assert p.index == str(links)


@pytest.mark.parametrize(
    ("platform", "glibc", "expected"),
    [
        ("linux-64", "2.28", "numpy-2.1.0-cp311-cp311-manylinux_2_17_x86_64.whl"),
        ("linux-64", "2.36", "numpy-2.1.0-cp311-cp311-manylinux_2_34_x86_64.whl"),
        ("linux-aarch64", "2.17", "numpy-2.1.0-cp311-cp311-manylinux_2_17_aarch64.whl"),
        ("linux-ppc64le", "2.17", "numpy-2.1.0-cp311-cp311-manylinux_2_17_ppc64le.whl"),
    ],
)
def test_the_file_is_the_targets(links: Path, cache: Path, platform: str, glibc: str, expected: str) -> None:
    assert files(solve(links, cache, "numpy", platform=platform, glibc=glibc))["numpy"] == expected


def test_what_must_be_compiled_is_locked_as_source_with_its_inputs(links: Path, cache: Path, tmp_path: Path) -> None:
    patch = tmp_path / "c++17.patch"
    patch.write_text("--- a\n+++ b\n")
    build = BuildSpec(
        variables={"WITH_MPI": "1", "HOME_OF_NCCL": "{prefix}"}, modules=("gcc/12",),
        tools=(HostTool(name="mpicc", version=">=4"),),
        packages={"Numpy": PackageBuild(patches=(str(patch),), requires=("cython",), variables={"WITH_MPI": "0"})},
    )  # fmt: skip
    solution = solve(links, cache, "numpy", "srconly", build=build)
    found = {p.name: p for p in solution.packages}
    assert found["numpy"].kind == found["srconly"].kind == "sdist"
    assert found["numpy"].build_inputs == {
        "isolation": "false", "module gcc/12": "0", "patch 0 c++17.patch": sha256(patch), "requires": "cython",
        "tool mpicc": ">=4", "variable HOME_OF_NCCL": "{prefix}", "variable WITH_MPI": "0",
    }  # fmt: skip
    assert found["srconly"].build_inputs["isolation"] == "true"
    assert found["srconly"].build_inputs["variable WITH_MPI"] == "1"
    assert found["srconly"].requires == ("tool-x>=1",) and found["tool-x"].build_inputs == {}
    assert any("built from source: numpy, srconly" in n for n in solution.notices)


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"no_binary": ("numpy",)}, {"numpy": "sdist", "app": "wheel"}),
        ({"no_binary": (":all:",), "only_binary": ("app", "tool-x")}, {"numpy": "sdist", "app": "wheel"}),
        ({"only_binary": (":all:",)}, {"numpy": "wheel", "app": "wheel"}),
    ],
)
def test_binary_words(links: Path, cache: Path, settings: dict[str, Any], kinds: dict[str, str]) -> None:
    found = {p.name: p.kind for p in solve(links, cache, "app", settings=settings).packages}
    assert kinds.items() <= found.items()


def test_paths_archives_and_git(tmp_path: Path, links: Path, cache: Path) -> None:
    project = tmp_path / "proj"
    (project / "proj").mkdir(parents=True)
    (project / "proj/__init__.py").write_text('__version__ = "1.5"\n')
    (project / "pyproject.toml").write_text('[project]\nname = "proj"\nversion = "1.5"\ndependencies = ["tool-x"]\n')
    git = ["git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git[:3], "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    archive = next(links.glob("srconly*"))
    by_path = PipRequirement(text="-e ./proj", line=str(project), kind="path", path=str(project), editable=True)
    found = {p.name: p for p in solve(links, cache, f"srconly @ {archive.as_uri()}", requirements=(by_path,)).packages}
    assert found["proj"].kind == "path" and found["proj"].version == "1.5" and found["proj"].requires == ("tool-x",)
    assert found["srconly"].kind == "sdist" and found["srconly"].sha256 == sha256(archive)
    before = found["proj"].sha256
    (project / "proj/__pycache__").mkdir()
    (project / ".gitignore").write_text("__pycache__\n")
    again = {p.name: p for p in solve(links, cache, requirements=(by_path,)).packages}["proj"].sha256
    (project / "proj/__pycache__/x.pyc").write_text("ignored")
    assert {p.name: p for p in solve(links, cache, requirements=(by_path,)).packages}["proj"].sha256 == again != before
    vcs = PipRequirement(text="", line=f"proj @ git+{project.as_uri()}@master", kind="vcs", name="proj")
    subprocess.run([*git[:3], "branch", "-M", "master"], check=True)
    locked = {p.name: p for p in solve(links, cache, requirements=(vcs,)).packages}["proj"]
    assert (locked.kind, locked.commit, locked.url) == ("vcs", commit, f"git+{project.as_uri()}")


# --------------------------------------------------------------------------- what conda provides


def test_what_conda_provides_is_taken_as_given(links: Path, cache: Path) -> None:
    given = (
        ProvidedDistribution("numpy", "1.26.4", "numpy 1.26.4"),
        ProvidedDistribution("tool-x", "7.0", "tool-x 7.0"),
    )
    solution = solve(links, cache, "app", "numpy", given=given)
    assert sorted(files(solution)) == ["app"]
    assert solution.packages[0].requires == ("numpy>=1.20", "tool-x ; sys_platform == 'linux'")


@pytest.mark.parametrize("line", ["numpy>=2", "app2"])
def test_a_conflict_with_conda_names_both(links: Path, cache: Path, line: str) -> None:
    wheel(links, "app2", "1.0", ["numpy>=2"])
    with pytest.raises(InputError) as caught:
        solve(links, cache, line, "tool-x", given=(ProvidedDistribution("numpy", "1.26.4", "numpy 1.26.4"),))
    detail = str(caught.value.detail)
    assert "numpy>=2" in detail and "conda provides numpy 1.26.4 (package numpy 1.26.4)" in detail
    assert "numpy 1.26.4 comes from conda" in str(caught.value.hint)


# --------------------------------------------------------------------------- pip's meaning


def test_best_version_of_all_indexes_and_which_it_was(tmp_path: Path, cache: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    wheel(old, "thing", "1.0")
    wheel(new, "thing", "2.0")
    wheel(new, "both", "1.0")
    wheel(old, "both", "1.0")
    simple_index(tmp_path / "a/simple", old)
    simple_index(tmp_path / "b/simple", new)
    with served(tmp_path) as base:
        indexes = (f"{base}/a/simple", f"{base}/b/simple")
        solution = solve(None, cache, "thing", "both", settings={"indexes": indexes, "no_index": False})
        found = {p.name: p for p in solution.packages}
        assert (found["thing"].version, found["thing"].index) == ("2.0", indexes[1])
        assert found["both"].index == indexes[0], "of equal versions the first index has it"
        assert any("best version of all" in n for n in solution.notices)
        tied = pip("thing", index=indexes[0])
        held = solve(None, cache, "both", requirements=tied, settings={"indexes": (indexes[1],), "no_index": False})
        assert {p.name: p.version for p in held.packages} == {"both": "1.0", "thing": "1.0"}


@pytest.mark.parametrize(
    ("lines", "settings", "version"),
    [
        (("pre",), {}, "1.0"), (("pre==2.0rc1",), {}, "2.0rc1"), (("pre",), {"pre": True}, "2.0rc1"),
        (("pre>1.0",), {}, "2.0rc1"), (("wants-pre",), {}, "2.0rc1"), (("pre>=1.0rc1",), {}, "2.0rc1"),
    ],
)  # fmt: skip
def test_prereleases_as_pip_takes_them(
    links: Path, cache: Path, lines: tuple[str, ...], settings: dict[str, Any], version: str
) -> None:
    solution = solve(links, cache, *lines, settings=settings)
    assert {p.name: p.version for p in solution.packages}["pre"] == version
    said = any("pre-releases of pre" in n for n in solution.notices)
    assert said == ("rc1" in lines[0] or lines == ("wants-pre",))
    if importlib.util.find_spec("pip") is None or lines == ("pre>1.0",):  # pip took this up later than other cases
        return
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-index",
        "--find-links",
        links,
        "-d",
        links / "got",
        *lines,
    ]
    subprocess.run([*argv, *(["--pre"] if settings else [])], check=True, capture_output=True)
    assert [p.name for p in (links / "got").glob("pre-*")] == [f"pre-{version}-py3-none-any.whl"]


def test_hashes(links: Path, cache: Path) -> None:
    plain = next(links.glob("numpy-1.26.4*x86_64.whl"))
    good = PipRequirement(text="", line="numpy==1.26.4", name="numpy", hashes=(f"sha256:{sha256(plain)}",))
    assert files(solve(links, cache, requirements=(good,)))["numpy"] == plain.name
    sha512 = good.model_copy(update={"hashes": (f"sha512:{hashlib.sha512(plain.read_bytes()).hexdigest()}",)})
    assert files(solve(links, cache, requirements=(sha512,)))["numpy"] == plain.name
    wrong = good.model_copy(update={"hashes": ("sha256:" + "0" * 64,), "place": Where(file="r.txt", line=7)})
    with pytest.raises(InputError, match="hash mismatch for numpy") as caught:
        solve(links, cache, requirements=(wrong,))
    assert caught.value.where is not None and caught.value.where.line == 7
    for text in ("sha256:abc", "md5:" + "0" * 32, "nonsense"):
        with pytest.raises(InputError, match="not a hash that pip accepts") as caught:
            solve(links, cache, requirements=(wrong.model_copy(update={"hashes": (text,)}),))
        assert caught.value.where is not None and caught.value.where.line == 7
    with pytest.raises(InputError, match=r"tool-x==2\.0") as caught:
        solve(links, cache, "tool-x", requirements=(good,))
    assert f"tool-x==2.0 --hash=sha256:{sha256(next(links.glob('tool_x*')))}" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("settings", "version"),
    [
        ({"all_releases": ("pre",)}, "2.0rc1"),
        ({"pre": True, "only_final": ("pre",)}, "1.0"),
        ({"pre": True, "only_final": (":all:",)}, "1.0"),
        ({"all_releases": ("tool-x",)}, "1.0"),
    ],
)
def test_prereleases_by_name(links: Path, cache: Path, settings: dict[str, object], version: str) -> None:
    solution = solve(links, cache, "pre", settings=settings)
    assert {p.name: p.version for p in solution.packages}["pre"] == version
    assert not any("because a requirement names one" in notice for notice in solution.notices)


def test_what_was_uploaded_later_is_left_out() -> None:
    base = Question(("x",), (), PipSettings(), "3.11", "linux", Path("/c"))
    flags = _flags(replace(base, exclude_newer="2025-06-30"))
    assert flags[flags.index("--exclude-newer") + 1] == "2025-06-30T23:59:59Z"
    assert "--exclude-newer" not in _flags(base)


def test_variables_in_options_stay_as_they_are_written(tmp_path: Path) -> None:
    options = PipOptions(extra_index_urls=("https://h/${TOK}/simple",), find_links=("${WHEELS}",))
    environ = {"TOK": "t0ken", "WHEELS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    made, notices = pip_settings(PipPolicy(), options, environ)
    assert made.indexes[-1] == "https://h/${TOK}/simple" and made.find_links == (str(tmp_path),) and not notices
    place = {"${WHEELS}": Where("requirements.txt", 3, 1)}
    with pytest.raises(InputError, match="needs the variable WHEELS, which is not set") as caught:
        pip_settings(PipPolicy(), options, {"TOK": "t0ken"}, place)
    assert str(caught.value.where) == "requirements.txt:3:1"


# --------------------------------------------------------------------------- errors


def test_python_2_is_refused(links: Path, cache: Path) -> None:
    with pytest.raises(InputError, match=r"Python 2\.7\.18 and pip packages"):
        solve(links, cache, "app", python="2.7.18")


@pytest.mark.parametrize(
    ("lines", "reason", "hint"),
    [
        (("app", "numpy<1.20"), "numpy>=1.20", "without `numpy<1.20`"),
        (
            ("nothing-like-it", "tool-x"),
            "nothing-like-it was not found",
            "no package named nothing-like-it (searched: ",
        ),
        (("tool-x>9", "pre"), "tool-x", "without `tool-x>9`"),
        (("pkg_resources==0.0.0",), "pkg-resources was not found", "remove the line"),
        (("app", "python>=3.8"), "python was not found", "not a package of pip"),
        (("subprocess",), "subprocess was not found", "a part of Python"),
        (("numpy==2.1.0+site", "pre==1.0+site"), "+site", "no index here has builds labelled +site"),
        (("old", "tool-x>9"), "`cp310`", "old 1.0 has wheels for Python 3.8 and 3.10, not for 3.11: request such a"),
    ],
)
def test_unsolvable(links: Path, cache: Path, lines: tuple[str, ...], reason: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        solve(links, cache, *lines)
    assert "demo 1 for linux-64" in caught.value.message
    assert reason in str(caught.value.detail) and hint in str(caught.value.hint)
    assert not any(word in str(caught.value.detail) for word in ("DEBUG", "cause:", "error:"))


def test_a_place_that_pip_freeze_wrote_is_explained(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "requirements.txt").write_text("app @ file:///croot/app_1/work\n")
    frozen = read_requirements(tmp_path / "requirements.txt").pip
    with pytest.raises(InputError, match="no such file or directory: /croot/app_1/work") as caught:
        solve(None, cache, requirements=frozen)
    assert "write app==VERSION" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:9/simple", "connection refused"),
        ("https://no-such-host.invalid/simple", "cannot resolve the hostname"),
    ],
)
def test_unreachable_indexes_are_named_in_seconds(links: Path, cache: Path, url: str, cause: str) -> None:
    start = time.monotonic()
    with pytest.raises(StackyardError) as caught:
        solve(links, cache, "app", settings={"indexes": (url,), "no_index": False})
    assert time.monotonic() - start < 60
    assert url in caught.value.message and cause in caught.value.message


def test_an_index_that_answers_at_once_is_asked_by_uv_alone(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "PATIENCE_S", 60.0)
    wheel(tmp_path / "files", "thing", "1.0")
    simple_index(tmp_path / "simple", tmp_path / "files")
    with guarded(tmp_path) as server:
        solve(None, cache, "thing", settings={"indexes": (server.url("simple"),), "no_index": False})
        assert [path for path, _ in server.seen].count("/simple/thing/") == 1


def test_a_program_that_waits_for_a_dead_index_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = reach.Target("the index", "http://127.0.0.1:9/simple", ("http://127.0.0.1:9/simple/app/",))
    reach.Watch([dead])()  # not before it has waited
    monkeypatch.setattr(reach, "PATIENCE_S", 0.0)
    watch = reach.Watch([dead])
    with pytest.raises(StackyardError, match="cannot be reached: connection refused"):
        command.run(["sleep", "60"], timeout_s=120, watch=watch)
    with pytest.raises(StackyardError, match="cannot be reached: connection refused"):
        watch.require()
    with pytest.raises(StackyardError, match="no such file or directory: /nowhere"):
        reach.Watch([reach.Target("the find-links page", "/nowhere/x", ("/nowhere/x",))])


def test_passwords_are_not_shown(links: Path, cache: Path) -> None:
    with pytest.raises(StackyardError) as caught:
        solve(links, cache, "app", settings={"indexes": ("http://me:secret@127.0.0.1:9/simple",), "no_index": False})
    assert "secret" not in caught.value.message and "(http://127.0.0.1:9/simple)" in caught.value.message


def test_a_refused_login_is_reported_with_what_to_do(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "simple").mkdir()
    with guarded(tmp_path, {"/": "me:right"}) as server, pytest.raises(StackyardError) as caught:
        solve(None, cache, "thing", settings={"indexes": (server.url("simple", "me:wr0ng-word"),), "no_index": False})
    shown = f"{caught.value} {caught.value.detail} {caught.value.hint}"
    assert "netrc" in str(caught.value.hint) and "40" in shown and "wr0ng-word" not in shown


def test_logins_are_not_locked(tmp_path: Path, cache: Path) -> None:
    wheel(tmp_path / "files", "thing", "1.0")
    simple_index(tmp_path / "simple", tmp_path / "files")
    page = tmp_path / "simple/thing/index.html"
    page.write_text('<a href="../../files/thing-1.0-py3-none-any.whl">thing-1.0-py3-none-any.whl</a>')
    with served(tmp_path) as base:
        index = base.replace("//", "//me:secret@") + "/simple"
        [found] = solve(None, cache, "thing", settings={"indexes": (index,), "no_index": False}).packages
        assert (found.index, found.url) == (f"{base}/simple", f"{base}/files/thing-1.0-py3-none-any.whl")
        assert found.sha256 == sha256(next((tmp_path / "files").iterdir())), "computed where the index has none"


# --------------------------------------------------------------------------- the real index


@pytest.mark.real
@pytest.mark.parametrize("platform", ["linux-64", "linux-aarch64", "linux-ppc64le"])
def test_the_real_index(cache: Path, platform: str) -> None:
    try:
        solution = solve(None, cache, "flask==3.0.3", "markupsafe", platform=platform,
                         settings={"indexes": ("https://pypi.org/simple",), "no_index": False})  # fmt: skip
    except StackyardError as error:
        if "cannot be reached" in error.message:
            pytest.skip(f"no package index: {error.message}")
        raise
    found = {p.name: p for p in solution.packages}
    assert {"flask", "werkzeug", "jinja2", "markupsafe", "click", "blinker", "itsdangerous"} == set(found)
    assert "jinja2>=3.1.2" in found["flask"].requires
    assert all(len(p.sha256) == 64 and p.index == "https://pypi.org/simple" for p in solution.packages)
    machine = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-ppc64le": "ppc64le"}[platform]
    assert found["markupsafe"].kind == "sdist" or machine in found["markupsafe"].url


@pytest.mark.parametrize(
    ("logged", "written"),
    [
        ("mdurl>=0.1, <1.dev0", "mdurl>=0.1,<1"),
        ("a>=2.1, <2.2.dev0{python_full_version >= '3.8'}", "a>=2.1,<2.2 ; python_full_version >= '3.8'"),
        ("a>=2.0rc1", "a>=2.0rc1"),
        ("a*", "a"),
    ],
)
def test_a_compatible_release_in_the_log_asks_for_no_prerelease(logged: str, written: str) -> None:
    from stackyard.lock.pip.uvcompile import _plain

    assert _plain(logged) == written


def test_constraints_of_pips_own_settings(links: Path, cache: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits.txt"
    limits.write_text("numpy<2  # the oldest nodes\n-c more.txt\n")
    (tmp_path / "more.txt").write_text("tool-x==2.0\n")
    found = solve(links, cache, "app", settings={"constraints": (str(limits),)})
    assert [(p.name, p.version) for p in found.packages if p.name == "numpy"] == [("numpy", "1.26.4")]
    limits.write_text("app[fast]\n")
    with pytest.raises(InputError, match="constraints cannot have extras") as caught:
        solve(links, cache, "app", settings={"constraints": (str(limits),)})
    assert str(caught.value.where) == f"{limits}:1:1"
    with pytest.raises(InputError, match=r"constraints of pip's configuration: cannot read .*nowhere") as caught:
        solve(links, cache, "app", settings={"constraints": (str(tmp_path / "nowhere"),)})
    assert "PIP_CONSTRAINT" in str(caught.value.hint)
