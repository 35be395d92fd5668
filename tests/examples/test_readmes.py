"""Every command of every README in examples/ is typed as it is written, or listed here with the reason why not.

The examples are copied, as a site copies them. Channels and programs that cannot be reached from here are stand-ins;
the directories of a site (/scratch, /sw, /appl) are below the test's own.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from readmes import READMES, Copy, lines
from ruamel.yaml import YAML
from sitebed import EXAMPLES, pinned, powerai_channel

from stackyard.core.errors import MissingError
from support import modules, torchstack
from support.channel import Package, make_channel
from support.cli import STACKYARD
from support.desk import unexpected
from support.pluginvenv import venv_with_stackyard
from support.pythonpkg import python_package
from support.sitechannels import DEFAULTS, longhorn_channels, mirrors, open_ce_channels
from support.tinywheel import wheel
from support.wheelpkg import host_subdir

SLURM = "needs an allocation of several nodes: typed by "
OF_LUMI = f"{SLURM}tests/examples/test_example_lumi_recipes.py"
OF_HOROVOD = f"{SLURM}tests/horovod/test_horovod_long.py"
OF_EXTENSIONS = (
    "the stand-in of Python 3.8 is a newer Python, which does not search the lib/python3.8 of an extension: extensions "
    "are made and loaded by tests/upkeep/test_extending_conda.py"
)
OF_WRAPPED = "LUMI's images cannot be had: a Python in an image is wrapped by tests/images/test_wrap_python.py"
OF_JUPYTERLAB = "typed by tests/examples/test_example_jupyterlab.py"
OF_RESNET = f"{SLURM}tests/launch/test_proof_losses.py"
OF_STUDY = f"{SLURM}tests/study/test_examples.py"
OF_POWERAI = "typed on four nodes, with a stand-in of IBM's image: tests/examples/test_example_powerai.py"

TORCH = "class version:\n    hip = '6.0'\n"
ROOT_MAY_RUN_MPI = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


@dataclass(frozen=True)
class Page:
    """How one README is typed here.

    Args:
        prepare: what the copy needs first: stand-ins of channels, and files that a line which is not typed would make.
        not_typed: lines, or their first words, with the reason.
        ends: the exit status of lines that do not end with 0.
        places: directories of the site.
        typed_anyway: lines that are typed although a shorter one, which they begin with, is not.
    """

    prepare: Callable[[Copy], None] = lambda copy: None
    not_typed: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    typed_anyway: tuple[str, ...] = ()

    def reason(self, line: str) -> str:
        """Why a line is not typed; empty where it is."""
        if line in self.typed_anyway:
            return ""
        return next((reason for start, reason in self.not_typed.items() if line.startswith(start)), "")


def change(copy: Copy, edit: Callable[[Any], None]) -> None:
    """Change the site file of the copy."""
    path = copy.here / "site.yaml"
    site = YAML().load(path)
    edit(site)
    with path.open("w") as stream:
        YAML().dump(site, stream)


def channels(of: Callable[[], Mapping[str, Path]]) -> Callable[[Copy], None]:
    """The site's channels are stand-ins, and this machine stands in for its nodes."""

    def edit(site: Any) -> None:
        site["channels"]["mirrors"] = {**site["channels"].get("mirrors", {}), **mirrors(of())}
        site["platforms"] = [*dict.fromkeys((*site["platforms"], host_subdir()))]

    return lambda copy: change(copy, edit)


def plugins(copy: Copy) -> None:
    """Stackyard in an environment of its own, where the README's `pip install` goes."""
    (copy.directory / "bin/uv").symlink_to(STACKYARD.with_name("uv"))
    python = venv_with_stackyard(copy.directory) / "bin/python"
    for name, module in (("stackyard", "stackyard.cli.main"), ("pip", "pip")):
        program = copy.directory / "bin" / name
        program.unlink(missing_ok=True)
        program.write_text(f'#!/bin/sh\nexec {python} -m {module} "$@"\n')
        program.chmod(0o755)


def with_yard(of: Callable[[], Path], example: str, lock: Callable[[], Path]) -> Callable[[Copy], None]:
    """The home has the yard in which other tests have deployed this example, with the inputs that it was made of."""

    def prepare(copy: Copy) -> None:
        try:
            yard = of()
        except MissingError as error:
            pytest.skip(f"{error}; {error.detail}")
        place = copy.directory / "home/.local/share/stackyard"
        place.parent.mkdir(parents=True)
        place.symlink_to(yard)
        shutil.copytree(lock(), copy.directory / "examples" / example, dirs_exist_ok=True)
        copy.environ |= dict.fromkeys(ROOT_MAY_RUN_MPI, "1") | {"OMP_NUM_THREADS": "1"}

    return prepare


def lumi(copy: Copy) -> None:
    """conda-forge with what environment.yml names, PyTorch's index with its wheels, and the SIF of the lines before."""
    names = pinned(copy.here / "environment.yml")
    pairs = [tuple(each.split("=")) for each in names if each.count("=") == 1]
    with tempfile.TemporaryDirectory() as work:
        real = replace(python_package(Path(work)), version="3.11.7")
        others = [Package(*pair, files={f"share/{pair[0]}": f"{pair[1]}\n"}) for pair in pairs if pair[0] != "python"]
        channel = make_channel(copy.directory / "channel", [real, *others])
    index = copy.directory / "whl"
    for line in (each for each in names if "==" in each):
        name, version = line.split("==")
        for place in (index, index / "rocm6.0"):
            built = wheel(place / name, name, version, code=TORCH if name == "torch" else "")
            link = f'<a href="{built.name}">{built.name}</a>'
            (place / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")

    def edit(site: Any) -> None:
        site["channels"]["mirrors"] = {"conda-forge": channel.as_uri()}
        site["pip"] = {"mirrors": {"https://download.pytorch.org/whl": index.as_uri()}}

    change(copy, edit)
    (copy.here / "pytorch.sif").touch()


def powerai(copy: Copy) -> None:
    """The three packages that IBM's channel has for stack.yaml, and the files that the image's lines would make."""
    channel = powerai_channel(copy.directory / "channel")
    names = dict.fromkeys(("ibm-powerai", *DEFAULTS), channel.as_uri())
    change(copy, lambda site: site["channels"].update(mirrors=names))
    for name in ("powerai.sif", "tf_cnn_benchmarks.py"):
        (copy.here / name).touch()


PAGES: dict[str, Page] = {
    "frontier": Page(),
    "perlmutter": Page(),
    "polaris": Page(),
    "slurm-cluster": Page(),
    "summit-containers": Page(
        powerai,
        {
            "docker save": "Docker and IBM's image cannot be had: tests/examples/poweraibed.py writes such an archive",
            "stackyard --site site.yaml image": OF_POWERAI,
            "stackyard --site site.yaml bindings check": OF_POWERAI,
            "stackyard --site site.yaml launch": OF_POWERAI,
            "stackyard --site site.yaml deploy stack.yaml": "builds on a POWER9 node with CUDA's compiler only",
        },
    ),
    "pytorch": Page(
        not_typed={
            "stackyard --site site.yaml lock stack.yaml": "PyTorch's own index cannot be reached from the tests",
            "stackyard --site site.yaml --yard /apps/stackyard deploy": "builds on nodes with GPUs",
            "module use": "what was built there",
        },
        typed_anyway=("stackyard --site site.yaml lock stack.yaml --variant cuda12",),
    ),
    "plugins": Page(plugins),
}
LONG: dict[str, Page] = {
    "longhorn": Page(channels(longhorn_channels), places=("/scratch", "/tmp")),
    "lumi": Page(
        lumi,
        {
            "stackyard --site site.yaml deploy --image squashfs": OF_LUMI,
            "stackyard --site site.yaml image from docker://": "Docker Hub cannot be reached from the tests: the base "
            "is made of a directory by tests/examples/test_example_lumi_recipes.py",
            "stackyard --site site.yaml image build": OF_LUMI,
            "stackyard --site site.yaml --yard /appl/local/stackyard wrap": OF_WRAPPED,
            "module use /appl/local/stackyard/modules && module load lumi-pytorch": OF_WRAPPED,
            "salloc": OF_LUMI,
            "stackyard --site site.yaml launch": OF_LUMI,
        },
        places=("/appl",),
    ),
    "summit-open-ce": Page(
        channels(open_ce_channels),
        {
            "stackyard --site site.yaml extend": OF_EXTENSIONS,
            "module use ~/.local/share/stackyard/modules && module load mine": OF_EXTENSIONS,
        },
        ends={"stackyard --site site.yaml lint scripts/ddlrun.bash": 3},
        places=("/sw",),
    ),
    "jupyterlab": Page(
        not_typed={
            "stackyard --yard /apps/stackyard deploy": OF_JUPYTERLAB,
            "module use": OF_JUPYTERLAB,
            "jupyter lab": f"runs until it is stopped; {OF_JUPYTERLAB}",
        }
    ),
    "kaust-horovod": Page(
        with_yard(torchstack.horovod_yard, "kaust-horovod", torchstack.horovod_example),
        {"salloc": OF_HOROVOD, "stackyard launch": OF_HOROVOD, "stackyard submit": OF_HOROVOD},
    ),
    "resnet": Page(
        with_yard(torchstack.torch_yard, "resnet", torchstack.torch_example),
        {
            "stackyard deploy ../kaust-horovod": "typed from kaust-horovod's own README",
            "stackyard launch -r 2 --with horovod": OF_HOROVOD,
            "salloc": OF_RESNET,
            "stackyard launch -N 2": OF_RESNET,
            "stackyard deploy stack.yaml --image": OF_STUDY,
            "stackyard bench study.yaml": OF_STUDY,
            "stackyard report studies/resnet": OF_STUDY,
            "stackyard tune space.yaml -N 2": f"{SLURM}tests/study/test_tune_slurm.py",
        },
    ),
    "workstation": Page(with_yard(torchstack.torch_yard, "resnet", torchstack.torch_example)),
}


def typed(example: str, page: Page, directory: Path) -> None:
    """Type the lines of a README."""
    if why := modules.missing("lmod", "bash"):
        pytest.skip(why)
    copy = Copy(directory, page.places, name=example)
    page.prepare(copy)
    before = {path.name for path in copy.here.iterdir()}
    chosen = tuple(line for line in lines(example) if not page.reason(line))
    ended = copy.typed(chosen)
    assert not (wrong := unexpected(ended, page.ends)), wrong
    for each in ended:
        if " submit " in each.line and " > " not in each.line:
            assert "--dry-run" in each.line and each.printed.lstrip().startswith("#!/bin/bash\n#"), each.printed
        if " explain " in each.line:
            assert "ranks on" in each.printed.partition("\n")[0], each.printed
    if all(" explain " in line or " submit " in line for line in chosen):
        assert {path.name for path in copy.here.iterdir()} == before


@pytest.mark.real
@pytest.mark.parametrize("example", PAGES)
def test_the_lines_of_a_readme(example: str, tmp_path: Path) -> None:
    typed(example, PAGES[example], tmp_path)


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("example", LONG)
def test_the_lines_of_a_readme_that_deploys(example: str, tmp_path: Path) -> None:
    typed(example, LONG[example], tmp_path)


@pytest.mark.parametrize("example", READMES)
def test_a_line_that_is_not_typed_has_its_reason(example: str) -> None:
    """Each README is in a table, and what the table leaves out is in the README."""
    page = (PAGES | LONG)[example]
    assert lines(example)
    for start, reason in page.not_typed.items():
        assert [line for line in lines(example) if line.startswith(start)] and reason
        for file in re.findall(r"tests/[\w/]+\.py", reason):
            assert (READMES[example].parents[2] / file).is_file()


ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<where>[^|]+) \| (?P<checked>[^|]+) \|$", re.MULTILINE)
SECTION = re.compile(r"^### .*\(\[([\w-]+)\].*\)\n((?:.*\n)*?)(?=### |\Z)", re.MULTILINE)


def test_each_paragraph_of_the_five_documents_has_a_line_that_is_checked() -> None:
    sections = dict(SECTION.findall((EXAMPLES / "README.md").read_text()))
    assert list(sections) == ["longhorn", "lumi", "kaust-horovod", "summit-containers", "summit-open-ce"]
    for example, text in sections.items():
        rows = [row for row in ROW.finditer(text) if row["what"] not in ("paragraph", "---")]
        assert len(rows) >= 8
        for row in rows:
            if row["checked"] == "typed":
                written = [each for each in re.findall(r"`([^`]+)`", row["where"]) if each.startswith("stackyard ")]
                assert all(any(line.startswith(each) for line in lines(example)) for each in written), row["where"]
            else:
                files = re.findall(r"tests/[\w/]+\.py", row["checked"])
                assert files or row["checked"].startswith("no "), row["checked"]
                assert all((EXAMPLES.parent / file).is_file() for file in files), row["checked"]
