"""The examples of two POWER sites: locked for POWER as they are, and built, published and loaded for this machine.

Only what the sites' own machines have and this one lacks is changed: where channels are, the platform and, where a
stack names the minor versions of Python, those.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stackyard.host import modules
from support.pythonpkg import FULL_VERSION, VERSION
from support.sitechannels import longhorn_channels, mirrors, open_ce_channels
from support.wheelpkg import host_subdir

EXAMPLES = Path(__file__).parents[2] / "examples"
STACKYARD = Path(sys.executable).with_name("stackyard")

pytestmark = pytest.mark.slow


class Site:
    """One example in a folder of its own, with its channels on this machine and a yard beside it."""

    def __init__(self, example: str, folder: Path, channels: Mapping[str, Path]) -> None:
        self.folder = Path(shutil.copytree(EXAMPLES / example, folder / example))
        self.yard = folder / "yard"
        site = YAML().load(self.folder / "site.yaml")
        site["channels"]["mirrors"] = mirrors(channels)
        site["yard"] = str(self.yard)
        site.pop("user_yard", None)
        self._write("site.yaml", site)
        site["platforms"] = [host_subdir()]
        for node in site["nodes"].values():
            node["platform"] = host_subdir()
            node.pop("microarchitecture", None)
        self._write("site-here.yaml", site)

    def _write(self, name: str, document: Any) -> None:
        with (self.folder / name).open("w") as stream:
            YAML().dump(document, stream)

    def change(self, file: str, old: str, new: str) -> None:
        """Replace text of the example's file; the test fails where it is not there any more."""
        text = (self.folder / file).read_text()
        assert old in text
        (self.folder / file).write_text(text.replace(old, new))

    def drop(self, file: str, first: str, after: str) -> None:
        """Leave out the lines from `first` up to `after`."""
        text = (self.folder / file).read_text()
        self.change(file, text[text.index(first) : text.index(after)], "\n")

    def stackyard(self, site: str, *words: str, code: int = 0) -> str:
        argv: list[str | Path] = [STACKYARD, "--yard", self.yard, "--site", site, *words]
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def modules(self) -> dict[str, dict[str, Any]]:
        argv: list[str | Path] = [STACKYARD, "--yard", self.yard, "list", "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        return {entry["module"]: entry for entry in json.loads(done.stdout)}

    def packages(self, lock: str) -> set[str]:
        """Names and versions in a lock, whatever the variant."""
        return {line.strip().strip('",') for line in (self.folder / lock).read_text().splitlines()}


@pytest.fixture(scope="module")
def longhorn(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site("longhorn", tmp_path_factory.mktemp("longhorn"), longhorn_channels())


@pytest.fixture(scope="module")
def summit(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site("summit-open-ce", tmp_path_factory.mktemp("summit"), open_ce_channels())


@pytest.fixture(scope="module")
def longhorn_deployed(longhorn: Site) -> Site:
    """PowerAI and conda, for the real Python of this machine; the releases for Python 2 stay with POWER."""
    longhorn.change("powerai.yaml", 'python: ["2", "3"]', 'python: ["3"]')
    longhorn.drop("powerai.yaml", "  exclude:", "environment:")
    words = ("deploy", "powerai.yaml", "conda.yaml", "--accept-licence", "IBM WML CE", "--allow-unverified")
    longhorn.stackyard("site-here.yaml", *words)
    return longhorn


@pytest.fixture(scope="module")
def summit_deployed(summit: Site) -> Site:
    summit.change("open-ce.yaml", "[3.6, 3.7, 3.8]", f'["{VERSION}"]')
    summit.stackyard("site-here.yaml", "deploy", "open-ce.yaml")
    return summit


def test_longhorn_locks_for_power_under_its_pin(tmp_path: Path) -> None:
    site = Site("longhorn", tmp_path, longhorn_channels())
    site.stackyard("site.yaml", "lock", "powerai.yaml", "conda.yaml")
    packages = site.packages("powerai.yaml.lock")
    assert {"python 2.7.18 0 linux-ppc64le", "python 3.7.10 0 linux-ppc64le"} <= packages
    assert "powerai 1.7.0 py37_0 linux-ppc64le" in packages
    assert not any(name.startswith("cudatoolkit 10.3") for name in packages)
    assert "conda 4.8.3 py38_0 linux-ppc64le" in site.packages("conda.yaml.lock")


def test_summit_locks_for_power_with_a_build_per_python(tmp_path: Path) -> None:
    site = Site("summit-open-ce", tmp_path, open_ce_channels())
    site.stackyard("site.yaml", "lock", "open-ce.yaml", "ibm-wml-ce.yaml")
    packages = site.packages("open-ce.yaml.lock")
    assert {f"horovod 0.21.0 py{python}_0 linux-ppc64le" for python in (36, 37, 38)} <= packages
    assert "ddl 1.5.1 py37_0 linux-ppc64le" in site.packages("ibm-wml-ce.yaml.lock")


def test_longhorn_publishes_its_releases_and_the_base_module(longhorn_deployed: Site) -> None:
    found = longhorn_deployed.modules()
    releases = [f"powerai/{release}-py3-1" for release in ("1.6.0", "1.6.1", "1.6.2", "1.7.0")]
    assert sorted(found) == ["conda/4.8.3-base-1", *releases]
    assert [name for name in releases if found[name]["default"]] == ["powerai/1.7.0-py3-1"]


def test_summit_counts_revisions_from_zero(summit_deployed: Site) -> None:
    assert sorted(summit_deployed.modules()) == ["open-ce/0.1-0", f"open-ce/1.1.3-py{VERSION.replace('.', '')}-0"]


@pytest.mark.real
@pytest.mark.parametrize("module,code,expected", [
    ("powerai", "import tensorflow; print(tensorflow.__version__)", "2.1.0"),
    ("powerai/1.6.2", "import torch; print(torch.__version__)", "1.2.0"),
    ("tensorflow-py3/1.14.0", "import tensorflow; print(tensorflow.__version__)", "1.14.0"),
    ("pytorch-py3", "import platform; print(platform.python_version())", FULL_VERSION),
    ("powerai", "import os; print(os.environ['IBM_POWERAI_LICENSE_ACCEPT'])", "yes"),
])  # fmt: skip
def test_users_of_longhorn_load_them(longhorn_deployed: Site, module: str, code: str, expected: str) -> None:
    lmod = modules.find_lmod()
    if lmod is None:
        pytest.skip("lmod is not on this machine")
    done = modules.run_with(lmod, [longhorn_deployed.yard / "modules"], [module], ["python", "-c", code])
    assert done.stdout.strip() == expected


@pytest.mark.real
def test_conda_of_the_base_module_activates_what_a_user_made(longhorn_deployed: Site, tmp_path: Path) -> None:
    lmod = modules.find_lmod()
    if lmod is None:
        pytest.skip("lmod is not on this machine")
    script = f"""{lmod.init("bash")}
    module use {longhorn_deployed.yard}/modules; module load conda
    conda create -p {tmp_path}/mine >/dev/null; conda activate {tmp_path}/mine; echo "$CONDA_SHLVL $CONDA_PREFIX"
    module unload conda; echo "[$CONDA_SHLVL] [$CONDA_PREFIX] $PATH"; type conda 2>/dev/null"""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"1 {tmp_path}/mine", "[] [] /usr/bin:/bin"], done.stderr


@pytest.mark.real
@pytest.mark.parametrize(
    "module,version", [("open-ce", "2.4.1"), ("open-ce/0.1-0", "2.3.0"), ("tensorflow/2.3.0", "2.3.0")]
)
def test_users_of_summit_load_them_by_the_names_they_know(summit_deployed: Site, module: str, version: str) -> None:
    lmod = modules.find_lmod()
    if lmod is None:
        pytest.skip("lmod is not on this machine")
    code = "import horovod, tensorflow; print(tensorflow.__version__)"
    done = modules.run_with(lmod, [summit_deployed.yard / "modules"], [module], ["python", "-c", code])
    assert done.stdout.strip() == version
