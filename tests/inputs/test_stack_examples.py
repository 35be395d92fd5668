"""The examples: every file loads, and means what the sites' own pages say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stackyard.inputs.load import load_stack
from stackyard.inputs.models import Site, Stack
from stackyard.inputs.sites.site import load_site
from stackyard.inputs.stacks.naming import module_version
from support import programs

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(
    file for file in [*EXAMPLES.glob("*/*.yaml"), *EXAMPLES.glob("*/*.yml"), *EXAMPLES.glob("*/requirements*.txt")]
    if file.name not in ("site.yaml", "bindings.yaml", "grid-engine.yaml", "study.yaml", "space.yaml")
)  # fmt: skip


def example(path: str) -> tuple[Stack, Site]:
    file = EXAMPLES / path
    site = file.parent / "site.yaml"
    loaded = load_site(site) if site.exists() else Site()
    return load_stack(file, loaded), loaded


def modules(path: str) -> list[str]:
    stack, site = example(path)
    first = site.modules.first_revision
    return [f"{stack.name}/{module_version(site, v.version, v.name, first)}" for v in stack.variants]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_loads(file: Path) -> None:
    stack, _ = example(str(file.relative_to(EXAMPLES)))
    assert all(variant.environment.conda or variant.environment.pip for variant in stack.variants)


@pytest.mark.parametrize("name", ["longhorn", "summit-open-ce", "kaust-horovod", "lumi", "summit-containers"])
def test_says_what_it_shows(name) -> None:
    directory = EXAMPLES / name
    text = (directory / "README.md").read_text()
    stacks = [file.name for file in directory.glob("*.yaml") if file.name not in ("site.yaml", "bindings.yaml")]
    assert stacks
    assert not [file for file in stacks if file not in text]


def test_longhorn() -> None:
    assert modules("longhorn/powerai.yaml") == [
        "powerai/1.6.0-py2-1", "powerai/1.6.0-py3-1", "powerai/1.6.1-py2-1", "powerai/1.6.1-py3-1",
        "powerai/1.6.2-py3-1", "powerai/1.7.0-py3-1",
    ]  # fmt: skip
    stack, site = example("longhorn/powerai.yaml")
    rapids = {(v.version, v.name): any(c.name == "powerai-rapids" for c in v.environment.conda) for v in stack.variants}
    assert [key for key, there in rapids.items() if there] == [("1.6.2", "py3"), ("1.7.0", "py3")]
    assert site.pins == ("cudatoolkit <10.3",)
    assert (site.condarc.threads, site.condarc.auto_update, site.channels.priority) == (4, False, "strict")
    assert (site.nodes["ac922"].gpu.count, site.nodes["ac922"].gpu.cuda) == (4, "10.2")
    assert modules("longhorn/conda.yaml") == ["conda/4.8.3-base-1"]


def test_summit() -> None:
    assert modules("summit-open-ce/open-ce.yaml") == [
        "open-ce/0.1-0", "open-ce/1.1.3-py36-0", "open-ce/1.1.3-py37-0", "open-ce/1.1.3-py38-0",
    ]  # fmt: skip
    assert modules("summit-open-ce/ibm-wml-ce.yaml") == ["ibm-wml-ce/1.6.1-0", "ibm-wml-ce/1.7.0-0"]
    stack, site = example("summit-open-ce/open-ce.yaml")
    assert [c.spec for c in stack.variants[0].environment.conda if c.name == "pytorch"] == ["pytorch 1.6.0.*"]
    assert [c.spec for c in stack.variants[3].environment.conda if c.name == "pytorch"] == ["pytorch 1.7.1.*"]
    assert (site.nodes["batch"].cores, site.nodes["batch"].sockets, site.nodes["batch"].gpu.count) == (42, 2, 6)


def test_kaust_horovod() -> None:
    (variant,) = example("kaust-horovod/stack.yaml")[0].variants
    horovod = variant.build.packages["horovod"]
    assert (horovod.no_binary, horovod.isolation) == (True, False)
    assert "setuptools<80" in horovod.requires
    assert horovod.variables["HOROVOD_WITH_MPI"] == "1"
    assert variant.checks[0].table == ("PyTorch", "MPI", "Gloo")
    assert {p.line for p in variant.environment.pip} >= {"torch==2.13.0", "horovod==0.28.1"}
    (gpu,) = example("kaust-horovod/stack-gpu.yaml")[0].variants
    assert gpu.name == "py37-cuda"
    assert gpu.build.packages["horovod"].variables == {
        "HOROVOD_CUDA_HOME": "{env:CUDA_HOME}",
        "HOROVOD_NCCL_HOME": "{prefix}",
        "HOROVOD_GPU_OPERATIONS": "NCCL",
    }
    assert Path(gpu.post).name == "postBuild"


def test_the_patch_fits_the_lines_that_it_names(tmp_path: Path) -> None:
    """`patch -p1` accepts it on files that have those lines where Horovod 0.28.1 has them."""
    patch = programs.need("patch")
    text = (EXAMPLES / "kaust-horovod/patches/horovod-cxx17.patch").read_text()
    for name, line, content in (
        ("CMakeLists.txt", 19, "set(CMAKE_CXX_STANDARD 14)"),
        ("horovod/torch/CMakeLists.txt", 67, "    set(CMAKE_CXX_STANDARD 14)"),
    ):
        hunk = text.split(f"--- a/{name}")[1].split("--- a/")[0]
        start = int(hunk.split("@@ -")[1].split(",")[0])
        before = [row[1:] for row in hunk.split("@@\n")[1].splitlines() if row[:1] in (" ", "-")]
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([*["filler"] * (start - 1), *before]) + "\n")
        assert file.read_text().splitlines()[line - 1] == content
    done = subprocess.run([patch, "-p1"], input=text, text=True, capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    assert "set(CMAKE_CXX_STANDARD 17)" in (tmp_path / "CMakeLists.txt").read_text()
    assert "    set(CMAKE_CXX_STANDARD 17)" in (tmp_path / "horovod/torch/CMakeLists.txt").read_text()


def test_lumi() -> None:
    (variant,) = example("lumi/stack.yaml")[0].variants
    assert variant.name == "py311"
    assert {p.name: p.index for p in variant.environment.pip}["torch"].endswith("/rocm6.0")
    assert variant.checks[1].needs.node_kind in example("lumi/stack.yaml")[1].nodes
