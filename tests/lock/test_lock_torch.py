"""The build of torch is that for the accelerator: of the variant, else of the site's nodes, else of this machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from helpers_lock import pip, stack, variant, wheel

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.progress import SilentProgress
from stackyard.inputs.models import Environment, Interpreter, PipOptions, Site, Variant
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, PipPolicy
from stackyard.lock import solve
from stackyard.lock.accelerator import HOME, accelerator, for_variant
from stackyard.lock.conda.virtual import VirtualPackages
from stackyard.lock.lockfile.fingerprint import fingerprint
from stackyard.lock.lockfile.freshness import judge
from stackyard.lock.lockfile.model import Lock, LockedInterpreter, LockedVariant, PipPackage
from stackyard.yard.layout import Yard
from support.webserver import served

LINUX = "linux-64"
CUDA12 = ("nvidia-cublas-cu12", "triton")
PYPI = {
    "torch": [("2.8.0", CUDA12), ("2.9.0", CUDA12), ("2.11.0", ("nvidia-cublas", "triton"))],
    "nvidia-cublas-cu12": [("12.8", ())], "nvidia-cublas": [("13.0", ())], "triton": [("3.5", ())],
    "numpy": [("2.3", ())], "lightning": [("2.6", ("torch>=2", "numpy"))], "torchmetrics": [("1.8", ("torch",))],
    "torchvision": [("0.26", ("torch==2.11.0",)), ("0.24", ("torch==2.9.0",))],
}  # fmt: skip
TORCH = {
    "cpu": {"torch": [("2.8.0+cpu", ("numpy",)), ("2.9.0+cpu", ("numpy",))],
            "torchvision": [("0.24+cpu", ("torch==2.9.0",))], "numpy": [("1.0", ())]},
    "cu129": {"torch": [("2.9.0+cu129", CUDA12)], "triton": [("3.5", ())], "nvidia-cublas-cu12": [("12.9", ())]},
    "cu128": {"torch": [("2.8.0+cu128", CUDA12), ("2.9.0+cu128", CUDA12)], "triton": [("3.5", ())]},
    "rocm6.4": {"torch": [("2.9.0+rocm6.4", ("pytorch-triton-rocm==3.5",))], "pytorch-triton-rocm": [("3.5", ())]},
}  # fmt: skip
Releases = dict[str, list[tuple[str, Sequence[str]]]]


def index(directory: Path, releases: Releases) -> None:
    """A PEP 503 index with tiny wheels, to be served."""
    for name, versions in releases.items():
        page = directory / name
        for version, requires in versions:
            wheel(page, name, version, requires)
        digests = {w.name: hashlib.sha256(w.read_bytes()).hexdigest() for w in page.glob("*.whl")}
        links = (f'<a href="{quote(file)}#sha256={digest}">{file}</a>' for file, digest in sorted(digests.items()))
        (page / "index.html").write_text("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("web")
    index(directory / "simple", PYPI)
    index(directory / "newer", {**PYPI, "torch": [("2.8.0", ("nvidia-cudnn-cu13",))], "nvidia-cudnn-cu13": [("9", ())]})
    for backend, releases in TORCH.items():
        index(directory / "whl" / backend, releases)
    with served(directory) as url:
        yield url


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


def site(web: str, *kinds: NodeKind, **policy: Any) -> Site:
    mirrors = {"https://download.pytorch.org": web}
    values = {"read_pip_conf": False, "index_url": f"{web}/simple", "mirrors": mirrors, **policy}
    nodes = kinds or (NodeKind(platform=LINUX, glibc="2.28"),)
    return Site(pip=PipPolicy(**values), platforms=(LINUX,), nodes={f"kind{n}": kind for n, kind in enumerate(nodes)})


def gpus(**gpu: Any) -> NodeKind:
    return NodeKind(platform=LINUX, glibc="2.28", gpu=Gpu(count=4, **gpu))


def lock(
    yard: Yard, where: Site, *lines: str, options: PipOptions | None = None, previous: Lock | None = None,
    backend: str = "", **axes: str,
) -> Lock:  # fmt: skip
    asked = Environment(pip=pip(*lines), pip_options=options or PipOptions())
    made = stack(variant(asked, axes=axes, interpreter=Interpreter(source="host"), torch_backend=backend))
    return solve.lock_stack(made, where, yard, (), previous, SilentProgress())


def versions(made: Lock) -> dict[str, str]:
    return {p.name: p.version for p in made.variants[0].pip}


def test_a_site_without_gpus_gets_the_build_for_cpus(web: str, yard: Yard) -> None:
    made = lock(yard, site(web), "torch")
    assert versions(made) == {"torch": "2.9.0+cpu", "numpy": "2.3"}  # numpy is not taken from PyTorch's index
    (torch,) = (p for p in made.variants[0].pip if p.name == "torch")
    assert (torch.index, torch.url.startswith(f"{web}/whl/cpu/torch/")) == (f"{web}/whl/cpu", True)
    notice = f"torch: accelerator cpu (no GPU in any node kind of the site): index {web}/whl/cpu"
    assert notice in made.variants[0].notices


def test_torch_that_others_require(web: str, yard: Yard) -> None:
    made = lock(yard, site(web), "lightning", "torchvision")
    assert versions(made) == {"lightning": "2.6", "torch": "2.9.0+cpu", "torchvision": "0.24+cpu", "numpy": "2.3"}
    more = lock(yard, site(web), "lightning", "torchvision", "torchmetrics", previous=made)
    assert versions(more) == {**versions(made), "torchmetrics": "1.8"}


@pytest.mark.parametrize(
    ("kind", "lines", "expected"),
    [
        (gpus(cuda="12.4"), ["torch"], {"torch": "2.9.0+cu129", "nvidia-cublas-cu12": "12.8", "triton": "3.5"}),
        (gpus(cuda="12.4"), ["torch==2.8.0"], {"torch": "2.8.0", "nvidia-cublas-cu12": "12.8", "triton": "3.5"}),
        (gpus(cuda="13.0"), ["torch"], {"torch": "2.11.0", "nvidia-cublas": "13.0", "triton": "3.5"}),
    ],
)
def test_nvidias_gpus_get_what_their_driver_runs(
    web: str, yard: Yard, kind: NodeKind, lines: list[str], expected: dict[str, str]
) -> None:
    assert versions(lock(yard, site(web, kind), *lines)) == expected


def test_an_older_index_where_the_newest_does_not_have_the_version(web: str, yard: Yard) -> None:
    where = site(web, gpus(cuda="12.4"), index_url=f"{web}/newer")
    assert versions(lock(yard, where, "torch<2.9"))["torch"] == "2.8.0+cu128"


def test_amds_gpus(web: str, yard: Yard) -> None:
    made = lock(yard, site(web, gpus(vendor="amd")), "torch")
    assert versions(made) == {"torch": "2.9.0+rocm6.4", "pytorch-triton-rocm": "3.5"}


@pytest.mark.parametrize(
    ("axes", "lines", "torch"),
    [
        ({"accelerator": "cpu"}, ["torch"], "2.9.0+cpu"),
        ({"accelerator": "none"}, ["torch"], "2.9.0+cpu"),
        ({"accelerator": "cu128"}, ["torch"], "2.9.0+cu128"),
        ({"accelerator": "cuda-12.8"}, ["torch"], "2.9.0+cu128"),
        ({"cuda": "12.8"}, ["torch==2.8"], "2.8.0+cu128"),
        ({"accelerator": "rocm6.4"}, ["torch"], "2.9.0+rocm6.4"),
        ({"accelerator": "cuda"}, ["torch"], "2.11.0"),
        ({}, ["torch==2.9.0+cu128"], "2.9.0+cu128"),
    ],
)
def test_the_variant_and_the_requirement_come_first(
    web: str, yard: Yard, axes: dict[str, str], lines: list[str], torch: str
) -> None:
    assert versions(lock(yard, site(web, gpus(cuda="13.0")), *lines, **axes))["torch"] == torch


def test_what_the_file_or_the_site_names_wins(web: str, yard: Yard) -> None:
    own = PipOptions(extra_index_urls=(f"{web}/whl/cu128",))
    assert versions(lock(yard, site(web), "torch==2.9.0", options=own))["torch"] == "2.9.0+cu128"
    assert versions(lock(yard, site(web, torch_backend="off"), "torch"))["torch"] == "2.11.0"
    assert versions(lock(yard, site(web, torch_backend="cu128"), "torch"))["torch"] == "2.9.0+cu128"


def test_variants_that_differ_by_the_accelerator_alone_get_a_build_each(web: str, yard: Yard) -> None:
    asked = Environment(pip=pip("torch"))
    host = Interpreter(source="host")
    two = stack(*(variant(asked, name=a, axes={"accelerator": a}, interpreter=host) for a in ("cpu", "cu128")))
    made = solve.lock_stack(two, site(web), yard, (), None, SilentProgress())
    assert [p.version for v in made.variants for p in v.pip if p.name == "torch"] == ["2.9.0+cpu", "2.9.0+cu128"]
    edited = stack(*(v.model_copy(update={"axes": {"accelerator": "cu128"}}) for v in two.variants))
    reasons = solve.staleness(made, edited, site(web), ()).reasons
    says = f"demo 1-cpu for {LINUX}: + torch-axis accelerator cu128 (locked: torch 2.9.0+cpu, not for cu128)"
    assert reasons == (says,)


def locked(where: Site, torch: str, *requires: str, options: PipOptions | None = None, **axes: str) -> LockedVariant:
    """A lock of one wheel of torch, as it is for a site."""
    made = of(options, **axes)
    lines = fingerprint(made, where, LINUX)
    package = PipPackage("torch", torch, "wheel", "https://x/torch-1-py3-none-any.whl", "0" * 64, requires=requires)
    python = LockedInterpreter("host", "3.11.1")
    return LockedVariant("demo", "1", "base", LINUX, lines.digest, python, requested=lines.requested,
                         policy=lines.policy, pip=(package,))  # fmt: skip


def of(options: PipOptions | None = None, **axes: str) -> Variant:
    asked = Environment(pip=pip("torch"), pip_options=options or PipOptions())
    return variant(asked, axes=axes, interpreter=Interpreter(source="host"))


def test_a_change_of_the_gpus_is_harmless_for_a_build_that_runs_on_them() -> None:
    def reasons(before: LockedVariant, made: Variant, *kinds: NodeKind) -> tuple[str, ...]:
        where = site("https://x", *kinds)
        return judge(before, fingerprint(made, where, LINUX), made, where).reasons

    new, old = site("https://x", gpus(cuda="13.0")), gpus(cuda="12.4")
    assert "(locked: torch 2.9.0+cu130, not for CUDA 12.4)" in reasons(locked(new, "2.9.0+cu130"), of(), old)[0]
    assert reasons(locked(new, "2.9.0+cu126"), of(), old) == ()
    assert "(locked: torch 2.9.0, not for CUDA 12.4)" in reasons(locked(new, "2.9.0", "nvidia-nccl-cu13"), of(), old)[0]
    own = PipOptions(extra_index_urls=("https://own/simple",))
    assert reasons(locked(new, "2.9.0+cu130", options=own), of(own), old) == ()
    assert reasons(locked(new, "2.9.0+cu130", cuda="13.0"), of(cuda="13.0"), old) == ()


def test_a_lock_without_torch_does_not_mind_the_accelerator() -> None:
    where = site("https://x")
    before = replace(locked(where, "1", accelerator="cpu"), pip=())
    made = of(accelerator="cuda12.7")
    verdict = judge(before, fingerprint(made, where, LINUX), made, where)
    assert verdict.reasons == () and "+ torch-axis accelerator cuda12.7" in verdict.harmless


def test_a_variant_for_cpus_shares_no_solution_of_this_machine_with_one_for_gpus() -> None:
    prints = [fingerprint(variant(axes={"accelerator": a}), Site(), LINUX).digest for a in ("cpu", "cuda", "gpu")]
    assert prints[0] != prints[1] == prints[2]


def test_a_build_for_the_accelerator_that_is_at_hand_is_taken(web: str, yard: Yard, tmp_path: Path) -> None:
    wheel(tmp_path / "links", "torch", "2.12.0+cpu")
    unreachable = site(web, find_links=(str(tmp_path / "links"),), mirrors={HOME: "http://127.0.0.1:9"})
    assert versions(lock(yard, unreachable, "torch")) == {"torch": "2.12.0+cpu"}


def test_without_the_internet_the_error_says_what_to_do(web: str, yard: Yard) -> None:
    with pytest.raises(StackyardError) as caught:
        lock(yard, site(web, mirrors={HOME: "http://127.0.0.1:9"}), "torch")
    assert caught.value.message.startswith(
        "PyTorch's index for accelerator cpu (http://127.0.0.1:9/cpu) cannot be reached"
    )
    assert "no GPU in any node kind of the site" in str(caught.value.hint)
    assert "`pip: mirrors:`" in str(caught.value.hint) and "torch_backend: off" in str(caught.value.hint)


def test_without_the_internet_the_error_names_what_requires_torch(web: str, yard: Yard) -> None:
    unreachable = site(web, mirrors={HOME: "http://127.0.0.1:9"})
    for lines, named in (
        (("numpy", "lightning>=2"), "(torch is required by lightning>=2)"),
        (("numpy", "torch>=2.8", "lightning"), "(torch>=2.8)"),
        (("torch==2.9.0+cpu",), "(torch==2.9.0+cpu)"),
    ):
        with pytest.raises(StackyardError) as caught:
            lock(yard, unreachable, *lines)
        assert caught.value.message.endswith(named)


def test_the_build_that_the_stack_or_the_command_names_comes_first(web: str, yard: Yard) -> None:
    assert versions(lock(yard, site(web), "torch", backend="cu128", accelerator="cpu"))["torch"] == "2.9.0+cu128"
    assert versions(lock(yard, site(web, torch_backend="cu128"), "torch", backend="cpu"))["torch"] == "2.9.0+cpu"
    assert versions(lock(yard, site(web, torch_backend="cpu"), "torch", backend="off"))["torch"] == "2.11.0"
    with pytest.raises(InputError, match=r"torch has no builds for cu999 \(torch_backend is cu999\)"):
        lock(yard, site(web), "torch", backend="cu999")


def test_another_build_named_makes_a_lock_with_torch_stale(web: str, yard: Yard) -> None:
    for line, expected in (("torch", ("+ torch-backend cpu",)), ("numpy", ())):
        before = lock(yard, site(web), line, backend="off").variants[0]
        now = variant(Environment(pip=pip(line)), interpreter=Interpreter(source="host"), torch_backend="cpu")
        verdict = judge(before, fingerprint(now, site(web), LINUX), now, site(web))
        assert set(expected) <= set(verdict.reasons) and bool(verdict.reasons) == bool(expected)


def test_no_solution_names_the_index(web: str, yard: Yard) -> None:
    with pytest.raises(InputError, match="cannot solve the pip packages") as caught:
        lock(yard, site(web), "torch==2.11.0")
    assert f"torch is taken from {web}/whl/cpu: accelerator cpu" in str(caught.value.detail)


def test_a_change_of_the_rule_concerns_locks_with_torch_only(web: str, yard: Yard) -> None:
    def stale(line: str, where: Site) -> list[str]:
        made = stack(variant(Environment(pip=pip(line)), interpreter=Interpreter(source="host")))
        return list(
            solve.staleness(
                solve.lock_stack(made, site(web), yard, (), None, SilentProgress()), made, where, ()
            ).reasons
        )

    assert stale("numpy", site(web, torch_backend="off")) == []
    assert any("torch-backend off" in reason for reason in stale("torch", site(web, torch_backend="off")))
    moved = site(web, mirrors={"https://download.pytorch.org": "http://127.0.0.1:9"})
    assert stale("numpy", moved) == []
    assert any("(locked: torch)" in reason for reason in stale("torch", moved))


@pytest.mark.parametrize(
    ("axes", "virtual", "name"),
    [
        ({}, VirtualPackages(("__cuda=12.4=0",)), "CUDA 12.4"),
        ({}, VirtualPackages(()), "cpu"),
        ({"accelerator": "cuda"}, VirtualPackages(()), None),
        ({"accelerator": "CPU"}, VirtualPackages(("__cuda=12.4=0",)), "cpu"),
        ({"accelerator": "cuda12.6"}, VirtualPackages(()), "cu126"),
        ({"accelerator": "cuda 12"}, VirtualPackages(()), "CUDA 12"),
        ({"accelerator": "rocm"}, VirtualPackages(()), "ROCm"),
        ({"rocm": "6.4"}, VirtualPackages(()), "rocm6.4"),
        ({"accelerator": "xpu"}, VirtualPackages(()), "xpu"),
        ({"accelerator": "tpu"}, VirtualPackages(()), None),
        ({"cuda": "118"}, VirtualPackages(()), "cu118"),
        ({"accelerator": "cuda128"}, VirtualPackages(()), "cu128"),
        ({"accelerator": "cu12"}, VirtualPackages(()), "CUDA 12"),
        ({"cuda": "none", "rocm": "6.2"}, VirtualPackages(()), "rocm6.2"),
        ({"accelerator": "rocm", "rocm": "6.2"}, VirtualPackages(()), "rocm6.2"),
        ({"accelerator": "gpu", "rocm": "none"}, VirtualPackages(("__cuda=12.4=0",)), "CUDA 12.4"),
        ({"accelerator": "none", "cuda": "12.8"}, VirtualPackages(()), "cpu"),
        ({"cuda": "none", "rocm": "none"}, VirtualPackages(("__cuda=12.4=0",)), "cpu"),
    ],
)
def test_names_of_accelerators(axes: dict[str, str], virtual: VirtualPackages, name: str | None) -> None:
    found = accelerator(axes, Site(), LINUX, virtual)
    assert (found.name if found else None) == name
    assert for_variant(variant(axes=axes), (), Site(), "linux-ppc64le", virtual) is None


@pytest.mark.parametrize(
    ("axes", "cuda", "says"),
    [
        ({"accelerator": "cuda12.7"}, "", "no builds for cu127 (the axis accelerator is cuda12.7)"),
        ({"cuda": "8"}, "", "no builds for CUDA 8 (the axis cuda is 8)"),
        ({}, "8.0", "no builds for CUDA 8.0 (of this machine)"),
    ],
)
def test_an_accelerator_without_builds_is_refused_where_torch_is_needed(
    axes: dict[str, str], cuda: str, says: str
) -> None:
    found = accelerator(axes, Site(), LINUX, VirtualPackages((f"__cuda={cuda}=0",) if cuda else ()))
    assert found is not None
    with pytest.raises(InputError, match=re.escape(says)):
        found.indexes(HOME)


def test_a_stack_without_torch_may_name_any_cuda(web: str, yard: Yard) -> None:
    assert versions(lock(yard, site(web), "numpy", cuda="12.2")) == {"numpy": "2.3"}
    with pytest.raises(InputError, match="no builds for cu122"):
        lock(yard, site(web), "torch", cuda="12.2")
