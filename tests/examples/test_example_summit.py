"""The example of the site whose modules count revisions from 0 and carry the Python in their names.

Locked for POWER as it is, and built, published and loaded for this machine from stand-ins of the same channels, with
Lmod and with Environment Modules.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sitebed import POWER, Example, versions

from support import modules
from support.sitechannels import open_ce_channels

pytestmark = [pytest.mark.real, pytest.mark.long]
MODULES = ("open-ce/0.1-0", "open-ce/1.1.3-py36-0", "open-ce/1.1.3-py37-0", "open-ce/1.1.3-py38-0")
DEFAULT = MODULES[-1]
SWAP = {"lmod": "swap", "em": "switch"}
LOADED = 'echo "loaded=[$LOADEDMODULES]"'


@pytest.fixture(scope="module")
def summit(tmp_path_factory: pytest.TempPathFactory) -> Example:
    site = Example("summit-open-ce", tmp_path_factory.mktemp("summit"), open_ce_channels())
    site.run("deploy", "open-ce.yaml", "ibm-wml-ce.yaml")
    return site


def loaded(summit: Example, system: str, place: Path, *steps: str) -> list[str]:
    """What is loaded after each of these words to ``module``."""
    lines = [line for step in steps for line in (f"module {step} >/dev/null 2>&1", LOADED)]
    return re.findall(r"loaded=\[(.*?)\]", summit.typed(system, place, lines))


def test_it_locks_for_power_with_a_build_for_each_python(tmp_path: Path) -> None:
    site = Example("summit-open-ce", tmp_path, open_ce_channels())
    site.run("lock", "open-ce.yaml", "ibm-wml-ce.yaml", site="site.yaml")
    found = {f"{v.version}-{v.variant}".rstrip("-"): v for v in site.locked("open-ce.yaml")}
    pythons = {name: versions(v)["python"] for name, v in found.items()}
    assert pythons == {"0.1": "3.6.13", "1.1.3-py36": "3.6.13", "1.1.3-py37": "3.7.10", "1.1.3-py38": "3.8.8"}
    assert {p.subdir for v in found.values() for p in v.conda} == {POWER}
    builds = {name: p.build for name, v in found.items() for p in v.conda if p.name == "horovod"}
    assert builds == {"0.1": "py36_0", "1.1.3-py36": "py36_0", "1.1.3-py37": "py37_0", "1.1.3-py38": "py38_0"}
    assert {versions(v)["horovod"] for name, v in found.items() if name != "0.1"} == {"0.21.0"}
    assert {v.version: versions(v)["ddl"] for v in site.locked("ibm-wml-ce.yaml")} == {
        "1.6.1": "1.5.0",
        "1.7.0": "1.5.1",
    }


def test_a_channel_that_the_site_does_not_allow_is_refused(tmp_path: Path) -> None:
    site = Example("summit-open-ce", tmp_path, open_ce_channels())
    (site.directory / "environment.yml").write_text("channels: [conda-forge]\ndependencies: [python]\n")
    refused = site.run("lock", "environment.yml", site="site.yaml", expect=2)
    assert "conda-forge is not allowed by the site" in refused.err
    assert "use one of open-ce, ibm-wml-ce, defaults" in refused.err


def test_the_modules_are_named_as_at_the_site(summit: Example) -> None:
    entries = summit.published()
    assert sorted(entries) == ["ibm-wml-ce/1.6.1-0", "ibm-wml-ce/1.7.0-0", *MODULES]
    assert {m for m, e in entries.items() if e["default"]} == {DEFAULT, "ibm-wml-ce/1.7.0-0"}
    found = {m: tuple(e[k] for k in ("stack", "version", "variant", "revision")) for m, e in entries.items()}
    assert found["open-ce/0.1-0"] == ("open-ce", "0.1", "", 0)
    assert found[DEFAULT] == ("open-ce", "1.1.3", "py38", 0)


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_avail_shows_them_with_the_default(summit: Example, tmp_path: Path, system: str) -> None:
    out = summit.typed(system, tmp_path, ["module avail open-ce 2>&1"])
    assert all(module in out for module in MODULES)
    assert re.search(r"open-ce/1\.1\.3-py38-0 *\((?:.*\b)?(?:D|default)\b", out.replace("\n", " "))


@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize(
    ("name", "module", "tensorflow", "python"),
    [
        ("open-ce", DEFAULT, "2.4.1", "3.8"),
        ("open-ce/1.1.3", DEFAULT, "2.4.1", "3.8"),
        ("open-ce/1.1.3-py36", "open-ce/1.1.3-py36-0", "2.4.1", "3.6"),
        ("open-ce/0.1-0", "open-ce/0.1-0", "2.3.0", ""),
        ("horovod/0.21.0", DEFAULT, "2.4.1", "3.8"),
        ("pytorch/1.6.0", "open-ce/0.1-0", "2.3.0", ""),
    ],
)
def test_users_load_the_names_they_know(
    summit: Example, tmp_path: Path, system: str, name: str, module: str, tensorflow: str, python: str
) -> None:
    code = "import horovod, sys, tensorflow; print(tensorflow.__version__, '%d.%d' % sys.version_info[:2])"
    lines = [f"module load {name}", LOADED, f'python -c "{code}"', "horovodrun", "module unload open-ce", LOADED]
    out = summit.typed(system, tmp_path, lines).splitlines()
    assert (out[0], out[3]) == (f"loaded=[{module}]", "loaded=[]")
    assert out[1].startswith(f"{tensorflow} {python}")
    assert out[2] == f"horovod {'0.19.5' if tensorflow == '2.3.0' else '0.21.0'}"


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_no_alias_is_loaded_without_its_stack(summit: Example, tmp_path: Path, system: str) -> None:
    swap = SWAP[system]
    steps = ("load pytorch", f"{swap} open-ce tensorflow/2.3.0", "unload open-ce", "load horovod/0.19.5",
             f"{swap} open-ce ibm-wml-ce", f"{swap} ibm-wml-ce open-ce/1.1.3-py37", "purge")  # fmt: skip
    assert loaded(summit, system, tmp_path, *steps) == [
        DEFAULT, "open-ce/0.1-0", "", "open-ce/0.1-0", "ibm-wml-ce/1.7.0-0", "open-ce/1.1.3-py37-0", "",
    ]  # fmt: skip


def test_lmod_changes_over_between_stacks_by_itself(summit: Example, tmp_path: Path) -> None:
    steps = ("load tensorflow/2.3.0", "load ibm-wml-ce", "load horovod")
    assert loaded(summit, "lmod", tmp_path, *steps) == ["open-ce/0.1-0", "ibm-wml-ce/1.7.0-0", DEFAULT]


@pytest.mark.parametrize("first", ["open-ce", "tensorflow/2.3.0"])
def test_environment_modules_shows_the_line_that_changes_over(summit: Example, tmp_path: Path, first: str) -> None:
    out = summit.typed("em", tmp_path, [f"module load {first}", "module load ibm-wml-ce", "echo rc=$?", LOADED])
    line = next(text.strip() for text in out.splitlines() if "module switch" in text)
    module = DEFAULT if first == "open-ce" else "open-ce/0.1-0"
    assert line == f"module switch {module} ibm-wml-ce/1.7.0-0"
    assert "rc=1" in out and f"loaded=[{module}]" in out
    again = summit.typed("em", tmp_path, [f"module load {first}", line, "echo rc=$?", LOADED])
    assert "rc=0" in again and "loaded=[ibm-wml-ce/1.7.0-0]" in again


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_the_predecessor_says_what_to_use_instead(summit: Example, tmp_path: Path, system: str) -> None:
    said = summit.typed(system, tmp_path, ["module load ibm-wml-ce 2>&1"])
    assert "ibm-wml-ce/1.7.0-0 is deprecated: 2021-06-30 use the module open-ce instead" in " ".join(said.split())


def test_spider_finds_the_frameworks(summit: Example, tmp_path: Path) -> None:
    out = summit.typed("lmod", tmp_path, ["module spider tensorflow 2>&1", "module spider horovod/0.19.5 2>&1"])
    assert "tensorflow/2.4.1" in out and "tensorflow/2.3.0" in out
    assert "open-ce/0.1-0" in out.partition("horovod/0.19.5")[2]


def test_the_same_inputs_publish_nothing(summit: Example) -> None:
    before = (summit.yard / "modules").readlink()
    again = summit.run("deploy", "open-ce.yaml", "ibm-wml-ce.yaml")
    assert "nothing changed" in again.out
    assert (summit.yard / "modules").readlink() == before
