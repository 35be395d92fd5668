"""A change of the site's policy makes only those locks stale that no longer satisfy it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers_lock import conda, pip, stack, variant, wheel

from stackyard.core.progress import SilentProgress
from stackyard.host.machine.platforms import this_platform
from stackyard.inputs.models import Environment, Interpreter, PipOptions, Site, Stack
from stackyard.inputs.sites.sitemodels import ChannelPolicy, NodeKind, PipPolicy
from stackyard.lock import solve
from stackyard.lock.lockfile.fingerprint import fingerprint
from stackyard.lock.lockfile.freshness import Verdict
from stackyard.lock.lockfile.model import Lock
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel

HERE = this_platform()
DAY_MS = 24 * 3600 * 1000
CHANNEL = [
    Package("python", "3.11.9", subdir=HERE, timestamp_ms=19_000 * DAY_MS),  # 2022-01-08
    Package("lib", "1.5", subdir=HERE, depends=("__glibc >=2.17",), timestamp_ms=19_000 * DAY_MS),
]


class Bed:
    """A lock of `lib` and a wheel, and the site under which it was made."""

    def __init__(self, directory: Path) -> None:
        self.channel = make_channel(directory / "channel", CHANNEL).as_uri()
        self.other = make_channel(directory / "other", []).as_uri()
        self.directory, self.links = directory, directory / "links"
        wheel(self.links, "app", "1.0", tag="py3-none-manylinux_2_28_x86_64")
        self.stack = self.of()
        self.base: dict[str, Any] = {
            "channels": {"default": (self.channel,)}, "platforms": (HERE,), "pins": ("lib <2",),
            "pip": {"read_pip_conf": False, "find_links": (str(self.links),)},
            "nodes": {"a": NodeKind(platform=HERE, glibc="2.34")},
        }  # fmt: skip
        self.lock = solve.lock_stack(self.stack, self.site(), Yard(directory / "yard"), (), None, SilentProgress())

    def of(self, *specs: str, channels: tuple[str, ...] = ()) -> Stack:
        asked = conda("lib", "python", *specs)
        pips = Environment(conda=asked, channels=channels, pip=pip("app"), pip_options=PipOptions(no_index=True))
        return stack(variant(pips))

    def site(self, **change: Any) -> Site:
        values = {**self.base, **change}
        for key in ("channels", "pip"):
            values[key] = {**self.base[key], **values[key]}
        policy, index = ChannelPolicy(**values.pop("channels")), PipPolicy(**values.pop("pip"))
        return Site(channels=policy, pip=index, **values)

    def staleness(self, lock: Lock | None = None, **change: Any) -> Verdict:
        return solve.staleness(lock or self.lock, self.stack, self.site(**change), ())


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    return Bed(tmp_path_factory.mktemp("bed"))


FRESH: dict[str, dict[str, Any]] = {
    "a pin on what is not locked": {"pins": ("lib <2", "numpy <2")},
    "a pin that is satisfied": {"pins": ("lib <2", "lib 1.*")},
    "no pin any more": {"pins": ()},
    "a mirror of a channel that is not used": {"channels": {"mirrors": {"conda-forge": "https://mirror/forge"}}},
    "a channel that is denied and not used": {"channels": {"denied": ("defaults",)}},
    "a date after which nothing was locked": {"channels": {"exclude_newer": "2022-06-30"}, "pip": {}},
    "an older glibc that is new enough": {"nodes": {"a": NodeKind(platform=HERE, glibc="2.28")}},
    "a Python that it is": {"interpreter": Interpreter(version="3.11")},
    "one more place for wheels": {"pip": {"extra_index_urls": ("https://index/simple",)}},
    "another name of the site": {"name": "other"},
}


@pytest.mark.parametrize("change", FRESH.values(), ids=FRESH)
def test_a_policy_that_is_satisfied_leaves_the_lock_fresh(bed: Bed, change: dict[str, Any]) -> None:
    if "exclude_newer" in change.get("channels", {}):
        stack_of_conda = stack(variant(Environment(conda=conda("lib"))))
        lock = solve.lock_stack(stack_of_conda, bed.site(), Yard(bed.directory / "yard"), (), None, SilentProgress())
        assert solve.staleness(lock, stack_of_conda, bed.site(**change), ()).reasons == ()
        return
    found = bed.staleness(**change)
    assert found.reasons == ()
    assert bool(found.harmless) == (fingerprint(bed.stack.variants[0], bed.site(**change), HERE).digest != _hash(bed))


def _hash(bed: Bed) -> str:
    return bed.lock.variants[0].spec_hash


STALE: dict[str, tuple[dict[str, Any], str]] = {
    "a pin that is violated": ({"pins": ("lib <2", "lib 1.4.*")}, "+ pin lib 1.4.* (locked: lib 1.5)"),
    "a date before a package": ({"channels": {"exclude_newer": "2021-06-30"}}, "+ exclude-newer 2021-06-30 (locked: "),
    "nodes that cannot run a package": (
        {"nodes": {"a": NodeKind(platform=HERE, glibc="2.12")}}, "(locked: lib 1.5 needs __glibc >=2.17)"),
    "nodes that cannot run a wheel": (
        {"nodes": {"a": NodeKind(platform=HERE, glibc="2.17")}}, "(locked: app-1.0-py3-none-manylinux_2_28_x86_64"),
    "another Python": ({"interpreter": Interpreter(version="3.12")}, "+ interpreter auto 3.12"),
    "the place of a wheel is gone": ({"pip": {"find_links": ()}}, "(locked: app)"),
    "pip.conf is read": ({"pip": {"read_pip_conf": True}}, "- site-pip read-pip-conf no"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "says"), STALE.values(), ids=STALE)
def test_a_policy_that_is_not_satisfied_makes_it_stale(bed: Bed, change: dict[str, Any], says: str) -> None:
    reasons = bed.staleness(**change).reasons
    assert any(says in reason for reason in reasons), reasons
    assert all(reason.startswith(f"demo 1-base for {HERE}: ") for reason in reasons)


def test_channels(bed: Bed) -> None:
    prepended = bed.staleness(channels={"prepend": (bed.other,)})
    assert prepended.reasons == () and f"+ channels {bed.other} {bed.channel}" in prepended.harmless
    moved = bed.staleness(channels={"mirrors": {bed.channel: bed.other}})
    assert any(f"- channel {bed.channel} (locked: lib)" in reason for reason in moved.reasons)
    own = bed.of(channels=(bed.other, bed.channel))  # the file's own channel is a wish
    assert any(f"+ channel {bed.other}" in reason for reason in solve.staleness(bed.lock, own, bed.site(), ()).reasons)


def test_only_the_variant_that_is_affected_is_solved_again(bed: Bed, tmp_path: Path) -> None:
    two = stack(
        variant(Environment(conda=conda("lib")), name="a"), variant(Environment(conda=conda("python")), name="b")
    )
    yard = Yard(tmp_path / "yard")
    before = solve.lock_stack(two, bed.site(), yard, (), None, SilentProgress())
    make_channel(tmp_path / "new", [*CHANNEL, Package("lib", "1.4", subdir=HERE)])
    site = bed.site(pins=("lib <1.5",), channels={"default": ((tmp_path / "new").as_uri(), bed.channel)})
    after = solve.lock_stack(two, site, yard, (), before, SilentProgress())
    assert after.find("1", "a", HERE) != before.find("1", "a", HERE)
    assert after.find("1", "b", HERE) == before.find("1", "b", HERE)
