"""Snapshots of projects, digests, and what an extracted conda package says about its distributions."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.files.hashing import digest_url
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.explain import reachability as reach
from stackyard.lock.lockfile.model import CondaPackage, PipPackage
from stackyard.lock.pip import pylock
from stackyard.lock.pip import resolve as pip
from stackyard.lock.pip.provided import ProvidedDistribution, given, write_constraints
from stackyard.lock.pip.snapshot import sha256_tree, tree_files
from stackyard.lock.pip.tags import best_wheel, uv_platform, wheel_tags
from support.webserver import served


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def test_a_snapshot_is_names_modes_links_and_contents(tmp_path: Path) -> None:
    seen = set()
    project = write(tmp_path / "p", setup="a", src__code="b")
    seen.add(sha256_tree(project))
    (project / "src/code").write_text("c")
    seen.add(sha256_tree(project))
    (project / "src/code").chmod(0o755)
    seen.add(sha256_tree(project))
    (project / "src/code").rename(project / "src/other")
    seen.add(sha256_tree(project))
    (project / "link").symlink_to("setup")
    seen.add(sha256_tree(project))
    assert len(seen) == 5
    write(project, __pycache__x="", build__x="")
    (project / "src/__pycache__").mkdir()
    (project / "src/__pycache__/x.pyc").write_text("")
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").write_text("")
    assert [str(f) for f in tree_files(project) if f.parts[0] in ("build", ".venv")] == []


def test_in_git_the_ignored_files_are_left_out_and_new_ones_count(tmp_path: Path) -> None:
    project = write(tmp_path / "p", kept="a", data__big="b")
    (project / ".gitignore").write_text("data/\n")
    subprocess.run(["git", "-C", project, "init", "-q"], check=True)
    assert [str(f) for f in tree_files(project)] == [".gitignore", "kept"]
    assert sha256_tree(project) == sha256_tree(write(tmp_path / "q", kept="a", **{".gitignore": "data/\n"}))


def test_digests_of_files_and_downloads(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_bytes(b"x" * 3_000_000)
    expected = hashlib.sha256(file.read_bytes()).hexdigest(), 3_000_000
    assert digest_url(file.as_uri()) == digest_url(str(file)) == expected
    with served(tmp_path) as base:
        assert digest_url(f"{base}/a%20file") == expected
        assert digest_url(f"{base}/a%20file", "sha512")[0] == hashlib.sha512(file.read_bytes()).hexdigest()
        with pytest.raises(StackyardError, match="404"):
            digest_url(f"{base}/none")


def test_an_index_and_its_files_are_reached_as_pip_is_told_to(tmp_path: Path) -> None:
    file = write(tmp_path, **{"http:__index.invalid__demo-1.0.tar.gz": "demo"}) / "http:/index.invalid/demo-1.0.tar.gz"
    with served(tmp_path) as proxy:
        settings = PipSettings(("http://index.invalid/simple",), trusted_hosts=("invalid",), proxy=proxy)
        targets = pip._places(pip.PipRequest("demo", "linux-64", "3.11.2", "2.28", (), settings, tmp_path))
        reach.check(targets)
        made = PipPackage("demo", "1.0", "sdist", "http://index.invalid/demo-1.0.tar.gz", "")
        assert pylock._hashed(made, settings).sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert not targets[0].trust.insecure, "of this host a part is trusted only"


def conda(
    name: str, version: str, *, purls: tuple[str, ...] = (), depends: tuple[str, ...] = ("python",)
) -> CondaPackage:
    url = f"https://c/{name}.conda"
    return CondaPackage(name, version, "0", 0, "noarch", "https://c", url, "00" * 32, depends=depends, purls=purls)


def test_given_names_and_versions() -> None:
    packages = [
        conda("pytorch", "2.1.0", purls=("pkg:pypi/torch",)), conda("zlib", "1", depends=("libgcc",)),
        conda("bundle", "3", purls=("pkg:pypi/other@1.0%2Bcpu", "pkg:pypi/Real_Name@2.5")),
        conda("odd", "1.0", purls=("pkg:pypi/odd@2023a_1x",)), conda("six", "1.0"),
    ]  # fmt: skip
    found, notices = given(packages)
    assert found == (
        ProvidedDistribution("other", "1.0+cpu", "bundle 3"), ProvidedDistribution("real-name", "2.5", "bundle 3"),
        ProvidedDistribution("torch", "2.1.0", "pytorch 2.1.0"),
    )  # fmt: skip
    assert len(notices) == 1 and "odd 1.0" in notices[0]


def test_metadata_wheels_are_wheels(tmp_path: Path) -> None:
    [line] = write_constraints([ProvidedDistribution("my-name", "1.0", "x")], tmp_path)
    assert line == f"my-name @ file://{tmp_path}/my_name-1.0-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / "my_name-1.0-py3-none-any.whl") as archive:
        assert "my_name-1.0.dist-info/METADATA" in archive.namelist()


@pytest.mark.parametrize(
    ("platform", "glibc", "word"),
    [("linux-64", "2.17", "x86_64-manylinux_2_17"), ("linux-64", "2.30", "x86_64-manylinux_2_28"),
     ("linux-64", "2.99", "x86_64-manylinux_2_40"), ("linux-aarch64", "2.34", "aarch64-manylinux_2_34"),
     ("linux-64", "", "x86_64-manylinux_2_17"), ("linux-ppc64le", "2.28", "powerpc64le-unknown-linux-gnu")],
)  # fmt: skip
def test_uvs_words_for_platforms(platform: str, glibc: str, word: str) -> None:
    assert uv_platform(platform, glibc) == word


def test_the_best_wheel_is_the_most_specific_that_fits() -> None:
    names = [
        "n-1-py3-none-any.whl", "n-1-cp311-abi3-manylinux_2_28_x86_64.whl", "n-1-cp38-abi3-manylinux2014_x86_64.whl",
        "n-1-cp311-cp311-manylinux_2_34_x86_64.whl", "n-1-1-py3-none-any.whl", "n-1-cp312-cp312-linux_x86_64.whl",
        "bad",
    ]  # fmt: skip
    assert best_wheel(names, wheel_tags("linux-64", "2.34", "3.11.7")) == names[3]
    assert best_wheel(names, wheel_tags("linux-64", "2.28", "3.11.7")) == names[1]
    assert best_wheel(names, wheel_tags("linux-64", "2.17", "3.11.7")) == names[2]
    assert best_wheel(names, wheel_tags("linux-aarch64", "2.17", "3.11.7")) == names[4]
    assert best_wheel(["n-1-cp312-cp312-linux_x86_64.whl"], wheel_tags("linux-64", "2.17", "3.11.7")) is None


def git(directory: Path, *words: str) -> None:
    own = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *own, "-C", directory, *words], check=True, capture_output=True)


def test_submodules_belong_to_the_snapshot_and_must_be_checked_out(tmp_path: Path) -> None:
    inner, middle, project = (write(tmp_path / name, code=name) for name in ("inner", "middle", "project"))
    for directory, part in ((inner, None), (middle, inner), (project, middle)):
        git(directory, "init", "-q")
        if part:
            git(directory, "submodule", "add", "-q", str(part), f"third party/{part.name}")
        git(directory, "add", ".")
        git(directory, "commit", "-q", "-m", "x")
    with pytest.raises(InputError, match=r"the submodule third party/inner of .* is not checked out") as caught:
        tree_files(project)
    assert "submodule update --init" in (caught.value.hint or "")
    git(project, "submodule", "update", "-q", "--init", "--recursive")
    deep = "third party/middle/third party/inner/code"
    assert {"code", "third party/middle/code", deep} <= {str(name) for name in tree_files(project)}
    before = sha256_tree(project)
    (project / deep).write_text("changed")
    assert sha256_tree(project) != before


def test_a_repository_inside_that_is_not_a_submodule_belongs_to_it_too(tmp_path: Path) -> None:
    project = write(tmp_path / "p", own="a", clone__code="b")
    for directory in (project, project / "clone"):
        git(directory, "init", "-q")
    assert [str(name) for name in tree_files(project)] == ["clone/code", "own"]
