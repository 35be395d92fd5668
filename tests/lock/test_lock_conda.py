"""The conda half against real channels on disk and over http."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from helpers_lock import conda, stack, variant

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.progress import SilentProgress
from stackyard.inputs.models import Environment, Site
from stackyard.inputs.sites.sitemodels import ChannelPolicy, Gpu, NodeKind
from stackyard.lock import solve
from stackyard.lock.lockfile.model import Lock, LockedVariant
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel, set_record
from support.webserver import served

PLATFORMS = ("linux-64", "linux-aarch64", "linux-ppc64le")
JUNE_2023_MS = 1_685_577_600_000


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packages = []
    for subdir in PLATFORMS:
        packages += [
            Package("python", "3.11.9", subdir=subdir, depends=("__glibc >=2.17",)),
            Package("python", "3.10.14", subdir=subdir, depends=("__glibc >=2.17",)),
            Package("numpy", "1.26.4", subdir=subdir, depends=("python 3.11.*",)),
            Package("numpy", "2.1.0", subdir=subdir, depends=("python 3.11.*", "__glibc >=2.28")),
            Package("numpy", "1.25.0", subdir=subdir, depends=("python 3.11.*",), timestamp_ms=JUNE_2023_MS),
            Package("faketorch", "2.4", "cuda12_0", subdir, ("__cuda >=12.4", "numpy"), build_number=200),
            Package("faketorch", "2.4", "cpu_0", subdir, ("numpy",)),
        ]
    packages.append(Package("six", "1.16", subdir="noarch", depends=("python",), noarch_python=True))
    return make_channel(tmp_path_factory.mktemp("channels") / "main", packages)


def site(channel: Path | str, cuda: str = "12.6", glibc: str = "2.28", **more: Any) -> Site:
    nodes = {p: NodeKind(platform=p, glibc=glibc, kernel="5.14", gpu=Gpu(count=4, cuda=cuda)) for p in PLATFORMS}
    url = channel.as_uri() if isinstance(channel, Path) else channel
    policy = ChannelPolicy(default=(url,), **more.pop("channels", {}))
    return Site(nodes=nodes, platforms=more.pop("platforms", ("linux-64",)), channels=policy, **more)


def lock(site: Site, yard: Path, *specs: str, **more: Any) -> Lock:
    made = variant(Environment(conda=conda(*specs), **more))
    return solve.lock_stack(stack(made), site, Yard(yard), (), None, SilentProgress())


def versions(locked: LockedVariant) -> dict[str, str]:
    return {p.name: f"{p.version} {p.build}" for p in locked.conda}


def test_every_platform_from_here_with_gpu_builds(channel: Path, tmp_path: Path) -> None:
    found = lock(site(channel, platforms=PLATFORMS), tmp_path, "faketorch", "six")
    assert [v.platform for v in found.variants] == list(PLATFORMS)
    for v in found.variants:
        assert versions(v)["faketorch"] == "2.4 cuda12_0"
        assert {p.subdir for p in v.conda} == {v.platform, "noarch"}
        assert all(len(p.sha256) == 64 and p.size for p in v.conda)
        assert v.interpreter.source == "conda" and v.interpreter.version == "3.11.9"
        assert "__cuda=12.6=0" in v.virtual


@pytest.mark.parametrize(
    ("cuda", "glibc", "torch", "numpy"),
    [
        ("12.6", "2.28", "2.4 cuda12_0", "2.1.0 0"),
        ("12.2", "2.28", "2.4 cpu_0", "2.1.0 0"),
        ("", "2.17", "2.4 cpu_0", "1.26.4 0"),
    ],
)
def test_virtual_packages_decide(channel: Path, tmp_path: Path, cuda: str, glibc: str, torch: str, numpy: str) -> None:
    found = versions(lock(site(channel, cuda, glibc), tmp_path, "faketorch").variants[0])
    assert (found["faketorch"], found["numpy"]) == (torch, numpy)


def test_pins_hold_and_install_nothing(channel: Path, tmp_path: Path) -> None:
    found = versions(lock(site(channel, pins=("numpy <2", "six <1.0")), tmp_path, "faketorch").variants[0])
    assert found["numpy"] == "1.26.4 0" and "six" not in found


def test_exclude_newer(channel: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        lock(site(channel, channels={"exclude_newer": "2023-12-31"}), tmp_path, "numpy")
    assert versions(lock(site(channel, channels={"exclude_newer": "2024-01-01"}), tmp_path, "numpy").variants[0])[
        "numpy"
    ]


def test_strict_flexible_disabled(channel: Path, tmp_path: Path) -> None:
    first = make_channel(tmp_path / "first", [Package("six", "1.0", subdir="noarch")])
    channels = (first.as_uri(), channel.as_uri())
    made = site(channel)
    assert versions(lock(made, tmp_path / "y", "six", channels=channels).variants[0])["six"] == "1.0 0"
    with pytest.raises(InputError) as caught:
        lock(made, tmp_path / "y", "six >1.10", channels=channels)
    assert "six" in str(caught.value.detail)
    for priority in ("flexible", "disabled"):
        relaxed = site(channel, channels={"priority": priority})
        assert versions(lock(relaxed, tmp_path / "y", "six >1.10", channels=channels).variants[0])["six"] == "1.16 0"
    named = f"{channel.as_uri()}::six"
    assert versions(lock(made, tmp_path / "y", named, channels=(first.as_uri(),)).variants[0])["six"] == "1.16 0"


def test_over_http_and_by_url(channel: Path, tmp_path: Path) -> None:
    with served(channel.parent) as base:
        url = f"{base}/main"
        by_name = lock(site(url), tmp_path / "a", "numpy").variants[0]
        by_url = lock(site(url), tmp_path / "b", f"{url}/linux-64/numpy-1.26.4-0.tar.bz2").variants[0]
        assert by_name.conda[0].url.startswith(url)
        taken = next(p for p in by_url.conda if p.name == "numpy")
        local = lock(site(channel), tmp_path / "c", "numpy 1.26.4").variants[0]
        assert taken.sha256 == next(p for p in local.conda if p.name == "numpy").sha256


def test_what_a_former_version_kept_of_secret_urls_is_removed(channel: Path, tmp_path: Path) -> None:
    kept = Yard(tmp_path / "yard").repodata
    kept.mkdir(parents=True)
    old = {
        "1.info.json": '{"url": "https://h/t/abcd/c/noarch/repodata.json"}', "1.json": "{}",
        "2.shards-cache-v1": "\x00\xffMhttps://me:pw@h/c/noarch/repodata_shards.msgpack.zst\x00",
        "3.info.json": '{"url": "https://h/c/noarch/repodata.json"}', "3.json": "{}",
    }  # fmt: skip
    for name, text in old.items():
        (kept / name).write_bytes(text.encode("latin-1"))
    lock(site(channel), tmp_path / "yard", "numpy")
    assert {name for name in old if (kept / name).exists()} == {"3.info.json", "3.json"}


def test_hash_is_computed_where_the_index_has_none_and_checked_where_it_has(tmp_path: Path) -> None:
    made = make_channel(tmp_path / "ch", [Package("a", "1"), Package("b", "1")])
    good = lock(site(made), tmp_path / "y0", "a", "b").variants[0]
    index = made / "linux-64/repodata.json"
    data = json.loads(index.read_text())
    del data["packages"]["a-1-0.tar.bz2"]["sha256"]
    index.write_text(json.dumps(data))
    assert lock(site(made), tmp_path / "y1", "a", "b").variants[0].conda == good.conda
    set_record(made, "linux-64", "b-1-0.tar.bz2", sha256="0" * 64)
    with pytest.raises(StackyardError, match=r"hash mismatch for .*b-1-0.tar.bz2"):
        lock(site(made), tmp_path / "y2", "b")


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:9/conda", "connection refused"),
        ("https://no-such-host.invalid/c", "cannot resolve the hostname"),
        ("file:///no/such/channel", "no such file or directory: /no"), ("{http}/missing", "404"),
        ("{https}/main", "TLS error"), ("http://10.255.255.1/c", ""),
    ],
)  # fmt: skip
def test_unreachable_channels_are_named_in_seconds(channel: Path, tmp_path: Path, url: str, cause: str) -> None:
    with served(channel.parent) as base:
        url = url.format(http=base, https=base.replace("http:", "https:"))
        start = time.monotonic()
        with pytest.raises(StackyardError) as caught:
            lock(site(channel), tmp_path, "numpy", channels=(channel.as_uri(), url))
        assert time.monotonic() - start < 60
    assert url in caught.value.message and cause in caught.value.message
    assert channel.as_uri() not in caught.value.message


@pytest.mark.parametrize(
    ("specs", "more", "reason", "hint"),
    [
        (("numpy >=2", "python 3.10.*"), {}, "numpy", "without `numpy >=2` or `python 3.10.*`"),
        (("nosuchthing", "six"), {}, "nosuchthing", "no channel has a matching nosuchthing for linux-64"),
        (("faketorch * cuda*",), {"cuda": "11.0"}, "__cuda", "__cuda=11.0=0"),
        (("six ==1.16 h1_0", "vc ==14.2 h2_1"), {}, "six", "without the builds and without vc, which no channel has"),
    ],
)
def test_unsolvable_says_why_for_what_and_what_to_relax(
    channel: Path, tmp_path: Path, specs: tuple[str, ...], more: dict[str, Any], reason: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        lock(site(channel, **more), tmp_path, *specs)
    assert "demo 1-base for linux-64" in caught.value.message
    assert reason in str(caught.value.detail) and hint in str(caught.value.hint)


def test_a_pattern_of_builds_is_no_exported_build(channel: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        lock(site(channel), tmp_path, "six * cuda*")
    assert "without the builds" not in str(caught.value.hint)


def test_a_wrong_spec_is_named(channel: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a conda requirement"):
        lock(site(channel), tmp_path, "numpy >=1,,<<2")
