"""Channel names by policy, and virtual packages by node kinds."""

from __future__ import annotations

import pytest

from stackyard.core.errors import InputError, Where
from stackyard.host.machine.platforms import this_platform
from stackyard.inputs.models import CondaRequirement, Environment, Site
from stackyard.inputs.sites.sitemodels import ChannelPolicy, Gpu, NodeKind
from stackyard.lock.conda.channels import Resolver
from stackyard.lock.conda.virtual import cuda_of, declared, for_platform

WHERE = Where("/stacks/env.yml", 3)


def urls(environment: Environment, environ: dict[str, str] | None = None, **policy: object) -> list[str]:
    resolver = Resolver(ChannelPolicy(**policy), WHERE, environ or {})  # type: ignore[arg-type]
    return [c.url for c in resolver.search_list(environment)]


def env(*channels: str, **more: object) -> Environment:
    return Environment(channels=channels, **more)  # type: ignore[arg-type]


ANACONDA = "https://conda.anaconda.org"


@pytest.mark.parametrize(
    ("environment", "policy", "expected"),
    [
        (env("pytorch", "conda-forge"), {}, [f"{ANACONDA}/pytorch", f"{ANACONDA}/conda-forge"]),
        (env(), {}, [f"{ANACONDA}/conda-forge"]),
        (env("defaults"), {}, ["https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r"]),
        (env("defaults"), {"alias": "https://own.site/conda/"}, ["https://own.site/conda/main", "https://own.site/conda/r"]),
        (env("defaults"), {"mirrors": {"defaults": "https://m/d"}}, ["https://m/d"]),
        (env("pytorch"), {"mirrors": {"pytorch": "file:///mirror/pt"}}, ["file:///mirror/pt"]),
        (env("pytorch"), {"mirrors": {f"{ANACONDA}/pytorch": "file:///m/pt/"}}, ["file:///m/pt"]),
        (env("a", "b"), {"mirrors": {ANACONDA: "https://m/all"}}, ["https://m/all/a", "https://m/all/b"]),
        (env("b"), {"prepend": ("site", "b")}, [f"{ANACONDA}/site", f"{ANACONDA}/b"]),
        (env("a", "https://conda.anaconda.org/a/", "nodefaults"), {}, [f"{ANACONDA}/a"]),
        (env("https://x/c/linux-64"), {}, ["https://x/c"]),
        (env(nodefaults=True), {"default": ("defaults", "conda-forge")}, [f"{ANACONDA}/conda-forge"]),
        (env("conda-forge/label/dev"), {}, [f"{ANACONDA}/conda-forge/label/dev"]),
        (env("./local"), {}, ["file:///stacks/local"]),
        (env("/abs/ch"), {}, ["file:///abs/ch"]),
    ],
)  # fmt: skip
def test_names_become_urls(environment: Environment, policy: dict[str, object], expected: list[str]) -> None:
    assert urls(environment, **policy) == expected


def test_variables_are_put_in_or_named() -> None:
    values = {"TOKEN": "abc", "ROOT": "https://r", "HOME": "/me"}
    assert urls(env("https://h/t/$TOKEN/c", "${ROOT}/x", "$HOME/mine"), values) == [
        "https://h/t/${TOKEN}/c", "${ROOT}/x", "file:///me/mine"]  # fmt: skip
    with pytest.raises(InputError, match=r"needs the variable TOKEN, which is not set") as caught:
        urls(env("https://h/$TOKEN/c"))
    assert caught.value.where == WHERE


@pytest.mark.parametrize(
    ("channels", "policy"),
    [
        (("defaults",), {"denied": ("defaults",)}),
        (("defaults",), {"denied": ("https://repo.anaconda.com",)}),
        (("main",), {"denied": ("*repo.anaconda.com*",)}),
        (("conda-forge", "bioconda"), {"allowed": ("conda-forge",)}),
    ],
)
def test_denied_channels_are_refused_with_their_place(channels: tuple[str, ...], policy: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        urls(env(*channels), **policy)
    assert channels[-1] in caught.value.message and caught.value.where == WHERE and caught.value.hint


def test_allowed_globs() -> None:
    assert urls(env("conda-forge", "https://own/x"), allowed=("conda-*", "https://own/*"))


def test_a_requirements_channel_is_searched_last_and_its_spec_names_the_url() -> None:
    requirement = CondaRequirement(text="", spec="nvidia::cuda 12.*", name="cuda", channel="nvidia")
    assert urls(env("conda-forge", conda=(requirement,)))[-1] == f"{ANACONDA}/nvidia"
    resolver = Resolver(ChannelPolicy(mirrors={"nvidia": "file:///m"}), WHERE, {})
    assert resolver.spec(requirement) == "file:///m::cuda 12.*"
    with_subdir = requirement.model_copy(update={"subdir": "noarch"})
    assert resolver.spec(with_subdir) == "file:///m/noarch::cuda 12.*"


@pytest.mark.parametrize(
    ("gpu", "cuda"),
    [
        (Gpu(count=4, driver="550.54.15"), "12.4"), (Gpu(count=4, driver="418.87"), "10.1"),
        (Gpu(count=1, driver="440.31"), "10.1"), (Gpu(count=1, driver="440.33.01"), "10.2"),
        (Gpu(count=4, cuda="12.6", driver="550.54"), "12.6"), (Gpu(), ""), (Gpu(count=1), ""),
        (Gpu(count=8, vendor="amd", driver="6.3"), ""), (Gpu(count=1, driver="700.1"), "13.1"),
    ],
)  # fmt: skip
def test_cuda_from_the_driver(gpu: Gpu, cuda: str) -> None:
    assert cuda_of(gpu) == cuda


def test_node_kinds_say_it_not_the_login_node() -> None:
    site = Site(nodes={
        "v100": NodeKind(platform="linux-ppc64le", glibc="2.17", kernel="4.14.0-115.el7a", microarchitecture="power9",
                         gpu=Gpu(count=4, driver="418.87")),
        "cpu": NodeKind(platform="linux-64", glibc="2.28", microarchitecture="x86_64_v3"),
        "a100": NodeKind(platform="linux-64", glibc="2.34", microarchitecture="x86_64_v4",
                         gpu=Gpu(count=4, cuda="12.4")),
    })  # fmt: skip
    power = declared(site, "linux-ppc64le", {})
    assert power is not None
    assert power.packages == (
        "__archspec=1=power9",
        "__cuda=10.1=0",
        "__glibc=2.17=0",
        "__linux=4.14.0=0",
        "__unix=0=0",
    )
    mixed = declared(site, "linux-64", {})
    assert mixed is not None
    assert mixed.version("__cuda") == "12.4" and mixed.version("__glibc") == "2.28"
    assert mixed.packages[0] == "__archspec=1=x86_64_v3"
    without = declared(site, "linux-64", {"accelerator": "cpu"})
    assert without is not None and without.version("__cuda") == ""
    assert declared(site, "linux-aarch64", {}) is None


def test_without_node_kinds() -> None:
    here = for_platform(Site(), this_platform(), {})
    assert here.version("__glibc") and not here.notices
    other = next(p for p in ("linux-aarch64", "linux-ppc64le") if p != this_platform())
    careful = for_platform(Site(), other, {})
    assert careful.version("__glibc") == "2.17" and careful.notices


def test_what_a_lock_says_of_a_channel_with_a_variable() -> None:
    [channel] = Resolver(ChannelPolicy(), WHERE, {"TOKEN": "secret"}).resolve("https://h/t/$TOKEN/c")
    assert channel.url == "https://h/t/${TOKEN}/c" and channel.shown == "https://h/t/$TOKEN/c"
