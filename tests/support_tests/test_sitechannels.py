"""The sites' stand-in channels: they solve as the real ones did, they run here, and conda works in real shells."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
import rattler

from support import programs
from support.pythonpkg import FULL_VERSION
from support.sitechannels import DEFAULTS, IBM_AI, OPEN_CE, longhorn_channels, mirrors, open_ce_channels
from support.wheelpkg import host_subdir


@pytest.fixture(scope="module")
def longhorn() -> list[Path]:
    channels = longhorn_channels()
    return [channels[IBM_AI], channels[DEFAULTS[0]]]


def solve(channels: list[Path], specs: list[str], platform: str, repodata: Path, *virtual: str) -> dict[str, Any]:
    packages = [
        rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), rattler.BuildString("0"))
        for name, version in (item.split("=") for item in virtual)
    ]
    records = asyncio.run(
        rattler.solve(
            [channel.as_uri() for channel in channels], specs, platforms=[platform, "noarch"],
            virtual_packages=packages, gateway=rattler.Gateway(cache_dir=repodata, show_progress=False),
        )
    )  # fmt: skip
    return {record.name.normalized: record for record in records}


@pytest.mark.parametrize("release,python,expected", [
    ("1.7.0", "3", {"python": "3.7.10", "tensorflow": "2.1.0", "pytorch": "1.3.1", "cudatoolkit": "10.2.89"}),
    ("1.6.1", "2", {"python": "2.7.18", "tensorflow": "1.14.0", "pytorch": "1.1.0", "cudatoolkit": "10.1.243"}),
])  # fmt: skip
def test_the_releases_of_powerai_solve_for_their_pythons(
    longhorn: list[Path], release: str, python: str, expected: dict[str, str], tmp_path: Path
) -> None:
    platform = "linux-ppc64le"
    found = solve(longhorn, [f"python={python}", f"powerai={release}"], platform, tmp_path)
    assert {name: str(found[name].version) for name in expected} == expected
    assert {record.subdir for record in found.values()} == {platform}


def test_here_the_same_release_comes_with_the_real_python(longhorn: list[Path], tmp_path: Path) -> None:
    found = solve(longhorn, ["python=3", "powerai=1.7.0"], host_subdir(), tmp_path)
    assert str(found["python"].version) == FULL_VERSION
    assert str(found["tensorflow"].version) == "2.1.0"


def test_strict_priority_keeps_the_newer_tensorflow_of_the_defaults_out(longhorn: list[Path], tmp_path: Path) -> None:
    assert str(solve(longhorn, ["tensorflow-gpu"], "linux-ppc64le", tmp_path)["tensorflow-gpu"].version) == "2.1.0"
    assert str(solve(longhorn[1:], ["tensorflow-gpu"], "linux-ppc64le", tmp_path)["tensorflow-gpu"].version) == "2.4.1"


@pytest.mark.parametrize("driver,toolkit", [("10.1", "10.1.243"), ("11.0", "10.3.3")])
def test_the_toolkit_follows_the_driver(longhorn: list[Path], driver: str, toolkit: str, tmp_path: Path) -> None:
    found = solve(longhorn, ["cudatoolkit"], "linux-ppc64le", tmp_path, f"__cuda={driver}")
    assert str(found["cudatoolkit"].version) == toolkit


@pytest.mark.parametrize("python", ["3.6", "3.7", "3.8"])
def test_open_ce_has_a_build_for_each_python(python: str, tmp_path: Path) -> None:
    channels = open_ce_channels()
    order = [channels[OPEN_CE], channels[DEFAULTS[0]]]
    found = solve(order, ["open-ce=1.1.3", f"python={python}"], "linux-ppc64le", tmp_path)
    assert (str(found["horovod"].version), str(found["python"].version)[:3]) == ("0.21.0", python)


def test_both_names_of_a_channel_mean_one_place() -> None:
    urls = mirrors(open_ce_channels())
    assert urls["ibm-wml-ce"] == urls[IBM_AI]
    assert urls["open-ce"].startswith("file:///")


def test_ibm_wml_ce_is_named_by_its_parts(tmp_path: Path) -> None:
    channels = open_ce_channels()
    order = [channels["ibm-wml-ce"], channels[DEFAULTS[0]]]
    specs = ["python=3", "tensorflow=1.15", "pytorch=1.2.0", "horovod=0.18.2", "ddl=1.5.0"]
    assert str(solve(order, specs, "linux-ppc64le", tmp_path)["python"].version) == "3.7.10"


@pytest.fixture(scope="module")
def prefix(longhorn: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("longhorn")
    records = solve(longhorn, ["python=3", "powerai=1.7.0", "conda=4.8.3"], host_subdir(), directory / "repodata")
    where = directory / "prefix"
    asyncio.run(rattler.install(list(records.values()), where, cache_dir=directory / "pkgs", show_progress=False))
    return where


def shell(name: str, script: str, environ: dict[str, str]) -> list[str]:
    programs.need(name)
    argv = [name, "-f", "-c", script] if name in ("tcsh", "zsh") else [name, "-c", script]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_frameworks_import_and_their_programs_run(prefix: Path, tmp_path: Path) -> None:
    environ = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    code = "import tensorflow, torch, horovod; print(tensorflow.__version__, torch.__version__)"
    assert shell("bash", f"python -c '{code}'; horovodrun; conda --version", environ) == [
        "2.1.0 1.3.1",
        "horovod 0.19.0",
        "conda 4.8.3",
    ]


SOURCE = {
    "bash": "profile.d/conda.sh",
    "zsh": "profile.d/conda.sh",
    "tcsh": "profile.d/conda.csh",
    "fish": "../etc/fish/conf.d/conda.fish",
}


@pytest.mark.parametrize("name", ["bash", "zsh", "tcsh", "fish"])
def test_conda_activates_nests_and_gives_back_in_every_shell(name: str, prefix: Path, tmp_path: Path) -> None:
    own = tmp_path / "own env"
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CONDA_ENVS_PATH": f"{tmp_path}/envs"}
    quoted = f'"{own}"'
    state = "echo $CONDA_SHLVL $CONDA_PREFIX"
    commands = [
        *(f"source {prefix}/etc/{SOURCE[name]}", f"conda create -p {quoted} > /dev/null"),
        *("conda activate base", state, f"conda activate {quoted}", state, "conda deactivate", state),
        *("conda deactivate", "echo $CONDA_SHLVL", "echo $PATH"),
    ]
    script = "\n".join(commands)
    lines = shell(name, script, environ)
    assert lines[:4] == [f"1 {prefix}", f"2 {own}", f"1 {prefix}", "0"]
    assert lines[4].replace(" ", ":") == f"{prefix}/condabin:/usr/bin:/bin"


def test_activation_scripts_run_and_are_undone(prefix: Path, tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MYPS1": "> "}
    script = f"""PS1="$MYPS1"; source {prefix}/etc/profile.d/conda.sh
    conda activate; echo "$CUDATOOLKIT_HOME|$PS1"; conda deactivate; echo "${{CUDATOOLKIT_HOME-gone}}|$PS1"
    conda activate nowhere || echo refused"""
    programs.need("bash")
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.splitlines() == [f"{prefix}|(base) > ", "gone|> ", "refused"]
    assert "EnvironmentNameNotFound" in done.stderr
