"""Every export is read back by the tool that it is for, where that tool can be had."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_lock import conda, pip, sdist, stack, variant, wheel
from packaging.pylock import Pylock
from rattler import LockFile
from rattler.lock import PypiLockedPackage

from stackyard.core import toml
from stackyard.core.progress import SilentProgress
from stackyard.host.machine.platforms import this_platform
from stackyard.host.run.command import which
from stackyard.host.tools import uv
from stackyard.inputs.load import load_environment
from stackyard.inputs.models import Environment, Interpreter, PipOptions, Site
from stackyard.inputs.sites.sitemodels import ChannelPolicy, PipPolicy
from stackyard.lock import solve
from stackyard.lock.lockfile.export import EXPORTS, in_order
from stackyard.lock.lockfile.model import LockedInterpreter, LockedVariant, PipPackage
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel

HERE = this_platform()
# what conda accepts as a line of an explicit list: a URL of a package, with md5 or sha256 after #
CONDA_LINE = re.compile(
    r"(?P<url>.+[/\\])(?P<fn>[^/\\#]+(\.tar\.bz2|\.conda))(#([0-9a-f]{32}|(sha256:)?[0-9a-f]{64}))?$"
)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> LockedVariant:
    work = tmp_path_factory.mktemp("export")
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    channel = make_channel(work / "channel", [
        Package("python", f"{minor}.0", subdir=HERE, depends=("zlib",)), Package("zlib", "1.3", subdir=HERE),
        Package("aaa", "1.0", "h0_0", "noarch", ("python",), noarch_python=True),
    ])  # fmt: skip
    wheel(work / "links", "app", "1.0", ["tool-x>=1"])
    wheel(work / "links", "tool-x", "2.0")
    sdist(work / "links", "srconly", "1.0")
    made = variant(Environment(conda=conda("aaa"), pip=pip("app", "srconly"), pip_options=PipOptions(no_index=True)))
    policy = ChannelPolicy(default=(channel.as_uri(),))
    site = Site(channels=policy, pip=PipPolicy(read_pip_conf=False, find_links=(str(work / "links"),)))
    return solve.lock_stack(stack(made), site, Yard(work / "y"), (), None, SilentProgress()).variants[0]


def test_explicit_is_read_by_rattler_and_fits_condas_grammar(locked: LockedVariant) -> None:
    from rattler.explicit_environment import ExplicitEnvironmentSpec

    text = EXPORTS["explicit"](locked)
    read = ExplicitEnvironmentSpec.from_str(text)
    assert str(read.platform) == HERE
    assert [p.url.split("#")[0] for p in read.packages] == [p.url for p in in_order(locked.conda)]
    lines = text.split("@EXPLICIT\n")[1].splitlines()
    assert lines and all(CONDA_LINE.match(line) for line in lines)
    names = [p.name for p in in_order(locked.conda)]
    assert names.index("zlib") < names.index("python") < names.index("aaa")


def test_pixi_lock_is_read_by_rattler_with_every_hash(locked: LockedVariant, tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    path.write_text(EXPORTS["pixi"](locked))
    environment = LockFile.from_path(path).default_environment()
    assert environment is not None
    [platform] = environment.platforms()
    records = environment.conda_repodata_records_for_platform(platform) or []
    assert {(r.name.normalized, r.sha256.hex()) for r in records if r.sha256} == {
        (p.name, p.sha256) for p in locked.conda
    }
    pypi = [p for p in environment.packages(platform) or [] if isinstance(p, PypiLockedPackage)]
    found = {p.name: (p.version, p.hashes.sha256.hex(), list(p.requires_dist)) for p in pypi}
    assert found == {p.name: (p.version, p.sha256, list(p.requires)) for p in locked.pip}


def test_pylock_is_valid_and_installed_by_uv(locked: LockedVariant, tmp_path: Path) -> None:
    text = EXPORTS["pylock"](locked)
    read = Pylock.from_dict(toml.loads(text))
    assert [str(p.name) for p in read.packages] == ["app", "srconly", "tool-x"]
    path = tmp_path / "pylock.toml"
    path.write_text(text)
    subprocess.run([uv.program(), "venv", "-q", "--python", sys.executable, tmp_path / "env"], check=True)
    argv = [
        uv.program(),
        "pip",
        "install",
        "--python",
        tmp_path / "env",
        "-r",
        path,
        "--offline",
        "--cache-dir",
        tmp_path / "c",
    ]
    shown = subprocess.run([*argv, "--dry-run"], capture_output=True, text=True, check=True)
    assert all(f"{p.name}==" in shown.stderr for p in locked.pip)
    wheels = replace(locked, pip=tuple(p for p in locked.pip if p.kind == "wheel"))
    path.write_text(EXPORTS["pylock"](wheels))
    subprocess.run(argv, capture_output=True, text=True, check=True)
    subprocess.run([tmp_path / "env/bin/python", "-c", "import app, tool_x"], check=True)
    path.write_text(EXPORTS["pylock"](wheels).replace(wheels.pip[0].sha256, "0" * 64))
    refused = subprocess.run([*argv, "--reinstall"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "ash mismatch" in refused.stderr


def test_pylock_of_every_kind_of_source_is_valid() -> None:
    base = LockedVariant("s", "1", "v", "linux-64", "h", LockedInterpreter("host", "3.11.7"))
    pips = (
        PipPackage("a", "1", "vcs", "git+https://h/a.git", "", commit="c" * 40, subdirectory="py"),
        PipPackage("b", "1", "path", "file:///p/b", "aa" * 32),
        PipPackage("c", "1", "sdist", "https://h/c-1.tar.gz", "bb" * 32, size=7),
        PipPackage("d", "1", "sdist", "https://i/d-1.tar.gz", "cc" * 32, "https://i/simple", requires=("c>=1", "zz")),
    )
    read = Pylock.from_dict(toml.loads(EXPORTS["pylock"](replace(base, pip=pips))))
    by_name = {str(p.name): p for p in read.packages}
    assert by_name["a"].vcs and by_name["b"].directory and by_name["c"].archive and by_name["d"].sdist
    Pylock.from_dict(toml.loads(EXPORTS["pylock"](base)))


def test_environment_is_read_by_this_program(locked: LockedVariant, tmp_path: Path) -> None:
    load = pytest.importorskip("stackyard.inputs.load")
    path = tmp_path / "environment.yml"
    path.write_text(EXPORTS["environment"](locked))
    read = load.load_environment(path)
    assert read.channels == locked.channels and read.nodefaults and read.platforms == (HERE,)
    assert {(r.name, r.version.lstrip("=")) for r in read.conda} == {(p.name, p.version) for p in locked.conda}
    assert {r.line for r in read.pip} == {f"{p.name}=={p.version}" for p in locked.pip}
    assert read.pip_options.no_binary == ("srconly",)


@pytest.fixture(scope="module")
def pip_only(tmp_path_factory: pytest.TempPathFactory) -> LockedVariant:
    work = tmp_path_factory.mktemp("pip")
    wheel(work / "links", "app", "1.0", ["tool-x>=1"])
    wheel(work / "links", "tool-x", "2.0")
    made = variant(Environment(pip=pip("app"), pip_options=PipOptions(no_index=True)))
    site = Site(
        pip=PipPolicy(read_pip_conf=False, find_links=(str(work / "links"),)), interpreter=Interpreter(source="host")
    )
    found = solve.lock_stack(stack(made), site, Yard(work / "y"), (), None, SilentProgress()).variants[0]
    assert found.interpreter.source == "host" and not found.conda
    return found


def test_exports_of_a_stack_without_conda_name_their_python(pip_only: LockedVariant, tmp_path: Path) -> None:
    version = pip_only.interpreter.version
    minor = ".".join(version.split(".")[:2])
    texts = {name: write(pip_only) for name, write in EXPORTS.items()}
    for name, text in texts.items():
        assert f"# made for Python {version}, of the machine" in text, name
    path = tmp_path / "environment.yml"
    path.write_text(texts["environment"])
    read = load_environment(path)
    assert [(r.name, r.version.strip("=*")) for r in read.conda] == [("python", version)]
    assert read.channels == ("conda-forge",) and {r.name for r in read.pip} == {"app", "tool-x"}
    pylock = Pylock.from_dict(toml.loads(texts["pylock"]))
    assert str(pylock.requires_python) == f"=={minor}.*"
    path = tmp_path / "pixi.lock"
    path.write_text(texts["pixi"])
    environment = LockFile.from_path(path).default_environment()
    assert environment is not None
    [platform] = environment.platforms()
    found = [p for p in environment.packages(platform) or [] if isinstance(p, PypiLockedPackage)]
    assert {(p.name, str(p.requires_python), p.hashes.sha256 is not None) for p in found} == {
        ("app", f"=={minor}.*", True), ("tool-x", f"=={minor}.*", True),
    }  # fmt: skip


def test_a_python_of_conda_is_among_the_packages(locked: LockedVariant) -> None:
    assert not any("made for Python" in write(locked) for write in EXPORTS.values())


@pytest.mark.real
@pytest.mark.parametrize("program", ["conda", "mamba", "micromamba"])
def test_explicit_is_read_by_conda_itself(locked: LockedVariant, tmp_path: Path, program: str) -> None:
    found = which(program)
    if found is None:
        pytest.skip(f"{program} is not on this machine, and PyPI does not have it")
    (tmp_path / "explicit.txt").write_text(EXPORTS["explicit"](locked))
    argv = [found, "create", "--yes", "--prefix", tmp_path / "env", "--file", tmp_path / "explicit.txt"]
    subprocess.run(argv, check=True, capture_output=True)
    assert len(list((tmp_path / "env/conda-meta").glob("*.json"))) == len(locked.conda)
