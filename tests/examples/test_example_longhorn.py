"""The example of a POWER site with a vendor's channel: its policy, its matrix, its licence, its modules by framework.

Locked for POWER as it is, and built, published and loaded for this machine from stand-ins of the same channels.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from sitebed import POWER, Example, versions

from support import modules
from support.cli import Done
from support.sitechannels import IBM_AI, longhorn_channels
from support.wheelpkg import host_subdir

pytestmark = pytest.mark.real
ACCEPT = ("--accept-licence", "IBM WML CE")
RELEASES = {"1.6.0-py2": "1.13.1", "1.6.0-py3": "1.13.1", "1.6.1-py2": "1.14.0", "1.6.1-py3": "1.14.0",
            "1.6.2-py3": "1.15.2", "1.7.0-py3": "2.1.0"}  # fmt: skip
"""The variants, oldest first, and the TensorFlow of each."""
LOADED = 'echo "loaded=[$LOADEDMODULES]"'


@dataclass(frozen=True)
class Base:
    """The site with its base module in both formats, and what the deploy printed."""

    site: Example
    published: Done


@dataclass(frozen=True)
class Deployed:
    """The site with everything published, and what its three deploys printed."""

    site: Example
    refused: Done
    unverified: Done
    published: Done


@pytest.fixture(scope="module")
def longhorn(tmp_path_factory: pytest.TempPathFactory) -> Example:
    directory = tmp_path_factory.mktemp("longhorn")
    return Example("longhorn", directory, longhorn_channels(), directory / "config")  # which has what was accepted


@pytest.fixture(scope="module")
def deployed(longhorn: Example) -> Deployed:
    refused = longhorn.run("deploy", "powerai.yaml", expect=4)
    words = ("deploy", "powerai.yaml", "conda.yaml", *ACCEPT)
    return Deployed(longhorn, refused, longhorn.run(*words, expect=3), longhorn.run(*words, "--allow-unverified"))


# --------------------------------------------------------------------------- the lock


def test_it_locks_for_power_from_a_machine_of_another_kind(tmp_path: Path) -> None:
    site = Example("longhorn", tmp_path, longhorn_channels())
    site.run("lock", "powerai.yaml", "conda.yaml", site="site.yaml")
    found = {f"{v.version}-{v.variant}": v for v in site.locked("powerai.yaml")}
    assert {name: versions(v)["tensorflow"] for name, v in found.items()} == RELEASES
    assert {p.subdir for v in found.values() for p in v.conda} == {POWER}
    assert {name: versions(v)["python"] for name, v in found.items()} == {
        name: "2.7.18" if "py2" in name else "3.6.13" if name < "1.6.2" else "3.7.10" for name in RELEASES
    }
    assert {name for name, v in found.items() if "powerai-rapids" in versions(v)} == {"1.6.2-py3", "1.7.0-py3"}
    assert versions(site.locked("conda.yaml")[0])["conda"] == "4.8.3"
    assert "fresh" in site.run("lock", "powerai.yaml", site="site.yaml").out


@pytest.mark.parametrize(("pins", "toolkit"), [(["cudatoolkit <10.3"], "10.2.89"), ([], "10.3.3")])
def test_the_pin_holds_when_the_driver_would_allow_more(tmp_path: Path, pins: list[str], toolkit: str) -> None:
    site = Example("longhorn", tmp_path, longhorn_channels())
    newer = site.site("site.yaml")
    newer["nodes"]["ac922"]["gpu"]["cuda"] = "11.0"
    site.write("site.yaml", {**newer, "pins": pins})
    site.write("mine.yaml", {"name": "mine", "version": "1", "environment": {"dependencies": ["cudatoolkit"]}})
    site.run("lock", "mine.yaml", site="site.yaml")
    assert versions(site.locked("mine.yaml")[0])["cudatoolkit"] == toolkit


def test_the_vendors_channel_wins_although_another_has_a_newer_build(tmp_path: Path) -> None:
    site = Example("longhorn", tmp_path, longhorn_channels())
    site.write("any.yaml", {"name": "any", "version": "1", "environment": {"dependencies": ["tensorflow-gpu"]}})
    newer = {"name": "newer", "version": "1", "environment": {"dependencies": ["tensorflow-gpu>=2.4"]}}
    site.write("newer.yaml", newer)
    site.run("lock", "any.yaml", site="site.yaml")
    (package,) = (p for p in site.locked("any.yaml")[0].conda if p.name == "tensorflow-gpu")
    assert package.version == "2.1.0" and package.channel.rstrip("/").endswith("/ibm-ai")
    refused = site.run("lock", "newer.yaml", site="site.yaml", expect=2)
    assert "tensorflow-gpu >=2.4" in refused.err and "strict" in refused.err
    document = site.site("site.yaml")
    document["channels"]["priority"] = "flexible"
    site.write("site.yaml", document)
    site.run("lock", "newer.yaml", site="site.yaml")
    assert versions(site.locked("newer.yaml")[0])["tensorflow-gpu"] == "2.4.1"


def test_a_python_2_variant_with_a_pip_part_is_refused_at_its_line(tmp_path: Path) -> None:
    site = Example("longhorn", tmp_path, longhorn_channels())
    text = (site.directory / "powerai.yaml").read_text()
    line = "    - python={python}\n"
    assert line in text
    (site.directory / "powerai.yaml").write_text(text.replace(line, f"{line}    - pip: [six]\n"))
    refused = site.run("lock", "powerai.yaml", expect=2)
    assert re.search(r"powerai\.yaml:\d+:\d+: .*Python 2 and has pip packages", refused.err)
    assert "conda channel" in refused.err


# --------------------------------------------------------------------------- the licence


def test_nobody_gets_it_before_a_person_accepts_the_licence(deployed: Deployed) -> None:
    text = deployed.site.directory / "licences" / "wmlce.txt"
    refused = f"licence not accepted by {Path('/proc/self').owner()} in {deployed.site.yard}: IBM WML CE"
    assert deployed.refused.err.count(refused) == 1
    assert f'read {text}, then deploy again with --accept-licence "IBM WML CE"' in deployed.refused.err
    (entry,) = json.loads((deployed.site.yard / "licences.json").read_text())["acceptances"]
    assert entry["sha256"] == hashlib.sha256(text.read_bytes()).hexdigest()
    assert entry["who"] and entry["when"]


def test_without_a_gpu_it_is_unverified_and_published_only_if_asked_for(deployed: Deployed) -> None:
    assert "TensorFlow sees the GPUs: requires a GPU" in deployed.unverified.out
    assert "--allow-unverified" in deployed.unverified.out
    states = {module: entry["state"] for module, entry in deployed.site.published().items()}
    assert states == {"conda/4.8.3-base-1": "published", **{f"powerai/{name}-1": "unverified" for name in RELEASES}}


# --------------------------------------------------------------------------- the modules


def test_the_newest_release_is_what_the_bare_name_means(deployed: Deployed) -> None:
    entries = deployed.site.published()
    assert {module for module, entry in entries.items() if entry["default"]} == {
        "powerai/1.7.0-py3-1", "conda/4.8.3-base-1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "module", "tensorflow", "python"),
    [
        ("powerai", "powerai/1.7.0-py3-1", "2.1.0", "3"),
        ("powerai/1.6.1", "powerai/1.6.1-py3-1", "1.14.0", "3"),
        ("powerai/1.6.1-py2", "powerai/1.6.1-py2-1", "1.14.0", "2"),
        ("tensorflow-py3", "powerai/1.7.0-py3-1", "2.1.0", "3"),
        ("tensorflow-py3/1.15.2", "powerai/1.6.2-py3-1", "1.15.2", "3"),
        ("tensorflow-py2", "powerai/1.6.1-py2-1", "1.14.0", "2"),
        ("pytorch-py3/1.3.1", "powerai/1.7.0-py3-1", "2.1.0", "3"),
        ("pytorch-py2/1.0.1", "powerai/1.6.0-py2-1", "1.13.1", "2"),
    ],
)
def test_names_by_release_and_by_framework(
    deployed: Deployed, tmp_path: Path, name: str, module: str, tensorflow: str, python: str
) -> None:
    code = "import sys, tensorflow, torch; print('%s %s' % (tensorflow.__version__, sys.version_info[0]))"
    lines = [f"module load {name}", LOADED, f'python -c "{code}"', "echo accepted=$IBM_POWERAI_LICENSE_ACCEPT"]
    after = ["module unload powerai", LOADED, 'echo "accepted=$IBM_POWERAI_LICENSE_ACCEPT"']
    out = deployed.site.typed("lmod", tmp_path, [*lines, *after]).splitlines()
    assert out == [f"loaded=[{module}]", f"{tensorflow} {python}", "accepted=yes", "loaded=[]", "accepted="]


def test_no_alias_is_loaded_without_its_stack(deployed: Deployed, tmp_path: Path) -> None:
    steps = ["load tensorflow-py3/1.14.0", "load pytorch-py3", "swap powerai tensorflow-py2", "load conda",
             "load pytorch-py2/1.0.1", "unload powerai", "load tensorflow-py3", "purge"]  # fmt: skip
    lines = [line for step in steps for line in (f"module {step} >/dev/null 2>&1", LOADED)]
    found = re.findall(r"loaded=\[(.*?)\]", deployed.site.typed("lmod", tmp_path, lines))
    assert found == ["powerai/1.6.1-py3-1", "powerai/1.7.0-py3-1", "powerai/1.6.1-py2-1", "conda/4.8.3-base-1",
                     "powerai/1.6.0-py2-1", "", "powerai/1.7.0-py3-1", ""]  # fmt: skip


def test_spider_finds_the_framework_and_how_to_load_it(deployed: Deployed, tmp_path: Path) -> None:
    lines = ["module spider tensorflow 2>&1", "module spider tensorflow/1.15.2 2>&1"]
    out = deployed.site.typed("lmod", tmp_path, lines)
    assert all(f"tensorflow/{version}" in out for version in set(RELEASES.values()))
    assert "powerai/1.6.2-py3-1" in out.partition("tensorflow/1.15.2")[2]


@pytest.mark.parametrize("scratch", ["set", "unset"])
@pytest.mark.parametrize("module", ["powerai", "conda"])
def test_users_environments_go_to_their_scratch(deployed: Deployed, tmp_path: Path, scratch: str, module: str) -> None:
    directory = tmp_path / ("scratch" if scratch == "set" else "")
    variables = {"SCRATCH": str(directory)} if scratch == "set" else {}
    show = 'echo "$CONDA_ENVS_PATH|$CONDA_PKGS_DIRS|$CONDARC"'
    lines = [f"module load {module}", show, f"module unload {module}", show]
    loaded, unloaded = deployed.site.typed("lmod", tmp_path, lines, **variables).splitlines()
    envs, pkgs, condarc = loaded.split("|")
    yard, base = deployed.site.yard, module == "conda"
    assert envs == f"{directory}/conda_local/envs" + (f":{yard}/envs" if base else "")
    assert pkgs == f"{directory}/conda_local/pkgs" + (f",{yard}/cache/conda" if base else "")
    assert Path(condarc).is_file()
    assert unloaded == "||"


def test_the_help_names_what_works_in_the_module(deployed: Deployed, tmp_path: Path) -> None:
    """powerai has no conda, and its family unloads the module that has: the help loads that first."""
    shown = deployed.site.typed("lmod", tmp_path, ["module help powerai 2>&1"])
    lines = re.findall(r"^ {4,}((?:module load|conda) \S.*?)(?: {3,}.*)?$", shown, re.MULTILINE)
    assert lines == ["module load conda", "conda create -n my_env python"], shown
    steps = [f'{line} >/dev/null && echo "done: {line}"' for line in lines]
    out = deployed.site.typed("lmod", tmp_path, ["module load powerai", *steps, LOADED], SCRATCH=str(tmp_path))
    assert [line for line in out.splitlines() if line.startswith("done: ")] == [f"done: {line}" for line in lines]
    assert "loaded=[conda/4.8.3-base-1]" in out and (tmp_path / "conda_local/envs/my_env").is_dir()


def test_the_policy_for_what_users_solve(deployed: Deployed) -> None:
    path = Path(deployed.site.published()["conda/4.8.3-base-1"]["path"])
    lines = (path / "condarc").read_text().splitlines()
    vendor, main = (longhorn_channels()[url].as_uri() for url in (IBM_AI, "https://repo.anaconda.com/pkgs/main"))
    assert f'channels: ["{vendor}", "defaults"]' in lines
    assert f'default_channels: ["{main}"]' in lines
    assert {'channel_priority: "strict"', "default_threads: 4", "auto_update_conda: false"} <= set(lines)
    assert 'pinned_packages: ["cudatoolkit <10.3"]' in lines
    assert (path / "prefix/conda-meta/pinned").read_text() == "cudatoolkit <10.3\n"


# --------------------------------------------------------------------------- the base module


@pytest.fixture(scope="module")
def base(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The base module in both formats, for Environment Modules too, in a yard that starts with a warm cache."""
    own = Example("longhorn", tmp_path_factory.mktemp("base"), longhorn_channels())
    site = own.site("here.yaml")
    site["modules"]["formats"] = ["lua", "tcl"]
    own.write("here.yaml", site)
    shutil.copytree(deployed.site.yard / "cache", own.yard / "cache", symlinks=True, copy_function=os.link)
    return Base(own, own.run("deploy", "conda.yaml"))


@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_conda_activates_what_a_user_made_and_leaves_no_trace(
    base: Base, tmp_path: Path, system: str, shell: str
) -> None:
    """The first load and unload bring what the module system itself keeps; between the second pair nothing differs."""
    shots = {name: modules.snapshot(shell, tmp_path / name) for name in ("before", "loaded", "active", "after")}
    first = ["module load conda", "module unload conda", shots["before"], "module load conda", shots["loaded"]]
    mine = ["conda create -n mine", "conda activate mine", shots["active"]]
    out = base.site.typed(system, tmp_path, [*first, *mine, "module unload conda", shots["after"]], shell,
                     SCRATCH=str(tmp_path))  # fmt: skip
    before, loaded, active, after = (modules.take(tmp_path / name) for name in shots)
    assert before and loaded and active and after, out
    assert not {"CONDA_SHLVL", "CONDA_PREFIX"} & set(loaded.environ)
    assert active.environ["CONDA_PREFIX"] == f"{tmp_path}/conda_local/envs/mine"
    assert active.environ["PATH"].startswith(f"{tmp_path}/conda_local/envs/mine/bin:")
    odd = {k for k in before.environ.keys() | after.environ.keys() if before.environ.get(k) != after.environ.get(k)}
    assert not {
        k for k in odd if not k.startswith(("_ModuleTable", "__LMOD", "LOADEDMODULES", "_LMFILES_")) and k != "_"
    }, out
    assert not [name for name in after.functions if "conda" in name]


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_child_shells_have_conda_too(base: Base, tmp_path: Path, system: str) -> None:
    child = "conda create -n mine >/dev/null; conda activate mine && echo in $CONDA_DEFAULT_ENV"
    lines = ["module load conda", "type -t conda", f"bash -c '{child}'", 'echo "here [$CONDA_DEFAULT_ENV]"']
    out = base.site.typed(system, tmp_path, [*lines, "module unload conda", "bash -c 'type -t conda || echo gone'"])
    assert out.splitlines() == ["function", "in mine", "here []", "gone"]


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_csh_gets_an_alias(base: Base, tmp_path: Path, system: str) -> None:
    lines = ["module load conda", "alias conda", "conda create -n mine >/dev/null", "conda activate mine",
             "echo in $CONDA_DEFAULT_ENV", "conda deactivate", "module unload conda", "alias conda"]  # fmt: skip
    out = base.site.typed(system, tmp_path, lines, "tcsh").splitlines()
    assert len(out) == 2 and "etc/profile.d/conda.csh" in out[0] and out[1] == "in mine"


@pytest.mark.parametrize(
    "sentence",
    [
        "conda is an alias in tcsh: not defined in scripts",
        "nothing is done before an unload in tcsh",
        "conda is not defined in child shells of zsh",
        "conda is not defined in child shells of fish",
    ],
)
def test_a_deploy_says_what_other_shells_lack(base: Base, sentence: str) -> None:
    assert base.published.out.count(sentence) == 1
    assert sentence in base.site.run("show", "conda").out


def test_both_platforms_are_locked_together(deployed: Deployed) -> None:
    assert {v.platform for v in deployed.site.locked("powerai.yaml")} == {POWER, host_subdir()}
