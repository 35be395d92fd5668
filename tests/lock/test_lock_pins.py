"""The site's pins for pip packages, and that a pin which cannot be held is named with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers_lock import conda, pip, stack, variant, wheel

from stackyard.core.errors import InputError
from stackyard.core.progress import SilentProgress
from stackyard.host.machine.platforms import this_platform
from stackyard.inputs.models import Environment, PipOptions, PipRequirement, Site
from stackyard.inputs.sites.site import load_site
from stackyard.lock import solve
from stackyard.lock.explain import changes as moved
from stackyard.lock.lockfile.model import Lock, LockedVariant
from stackyard.lock.pip import pins
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel

HERE = this_platform()


@pytest.mark.parametrize(
    ("pin", "name", "specifier"),
    [
        ("numpy <2.3", "numpy", "<2.3"), ("numpy=1.26", "numpy", "==1.26.*"), ("numpy 1.26.*", "numpy", "==1.26.*"),
        ("numpy ==1.26.4", "numpy", "==1.26.4"), ("numpy 1.26.4", "numpy", "==1.26.4"),
        ("conda-forge::numpy >=1.2,<2", "numpy", "<2,>=1.2"), ("numpy=1.26.4=py311*", "numpy", "==1.26.4"),
        ("numpy[version='>=1.2']", "numpy", ">=1.2"), ("numpy ~=1.4", "numpy", "~=1.4"),
        ("numpy !=1.5.*", "numpy", "!=1.5.*"), ("numpy >=1.2.*", "numpy", ">=1.2"), ("numpy", "numpy", ""),
        ("numpy *", "numpy", ""), ("numpy * *mkl*", "numpy", ""), ("numpy <1.5|>2", "numpy", ""),
        ("pytz ==2023x", "pytz", ""), ("pytorch <2.5", "torch", "<2.5"),
        ("Typing_Extensions <5", "typing-extensions", "<5"), ("python-xxhash <4", "xxhash", "<4"),
    ],
)  # fmt: skip
def test_a_pin_as_pip_has_it(pin: str, name: str, specifier: str) -> None:
    (found,) = pins.for_pip([pin])
    assert (found.name, found.specifier) == (name, specifier)


@pytest.mark.parametrize("pin", ["python 3.11.*", "graphviz >=9", "https://h/c/noarch/numpy-1-0.conda"])
def test_what_is_another_thing_on_pypi(pin: str) -> None:
    assert pins.for_pip([pin]) == []


@pytest.mark.parametrize(
    ("pin", "version", "holds"),
    [
        ("torch <2.5", "2.4.1+cu121", True), ("torch ==2.4.1", "2.4.1+cu121", True), ("torch <2.5", "2.5.0+cpu", False),
        ("x <1.5|>2", "1.7", False), ("x <1.5|>2", "2.1", True), ("x >=1.0", "1.0.post1", True),
        ("x * py*", "9", True), ("x 1.2.*", "1.2rc1", True),
    ],
)  # fmt: skip
def test_what_was_solved_is_compared_by_condas_rules(pin: str, version: str, holds: bool) -> None:
    assert pins.for_pip([pin])[0].accepts(version) is holds


class Bed:
    """A site in a file, with wheels of two packages in several versions, and a channel."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.links, self.yard = directory, directory / "links", Yard(directory / "yard")
        for version in ("1.26.4", "2.2.0", "2.4.6"):
            wheel(self.links, "numpy", version)
        wheel(self.links, "app", "1.0", ["numpy>=1"])
        wheel(self.links, "new", "1.0", ["numpy>=2.4"])
        self.channel = make_channel(directory / "c", [Package("python", "3.11.9", subdir=HERE), *numpys()]).as_uri()
        self.file = directory / "site.yaml"

    def site(self, *texts: str) -> Site:
        lines = "".join(f'  - "{text}"\n' for text in texts)
        self.file.write_text(
            f"name: s\nplatforms: [{HERE}]\nchannels: {{default: ['{self.channel}']}}\n"
            f"pip: {{read_pip_conf: false, find_links: ['{self.links}']}}\npins:\n  # of the driver\n{lines}"
        )
        return load_site(self.file)

    def lock(self, site: Site, *lines: str, previous: Lock | None = None, **more: Any) -> LockedVariant:
        return solve.lock_stack(self.stack(*lines, **more), site, self.yard, (), previous, SilentProgress()).variants[0]

    def stack(self, *lines: str, requirements: tuple[PipRequirement, ...] = (), **more: Any) -> Any:
        values = {"conda": conda("python"), **more}
        return stack(
            variant(Environment(pip=(*pip(*lines), *requirements), pip_options=PipOptions(no_index=True), **values))
        )


def numpys() -> list[Package]:
    site = "lib/python3.11/site-packages"
    return [
        Package("numpy", v, subdir=HERE, depends=("python",), files={f"{site}/numpy-{v}.dist-info/METADATA": ""})
        for v in ("1.26.4", "2.4.6")
    ]


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def numpy(locked: LockedVariant) -> str:
    return next(p.version for p in locked.packages if p.name == "numpy")


def test_pins_hold_for_pip_packages(bed: Bed) -> None:
    assert numpy(bed.lock(bed.site("six <1"), "app")) == "2.4.6"
    assert numpy(bed.lock(bed.site("six <1", "numpy <2.3"), "app")) == "2.2.0"
    assert numpy(bed.lock(bed.site("numpy <2"), "app", conda=())) == "1.26.4"  # without any conda package


def test_a_build_and_a_channel_mean_nothing_to_pip(bed: Bed) -> None:
    found = bed.lock(bed.site("numpy <2 py311*", "conda-forge::app"), "app")
    assert numpy(found) == "1.26.4"
    assert [n for n in found.notices if "pin" in n] == [
        "the build of the site's pin `numpy <2 py311*` cannot be applied to pip's numpy, only its version",
        "the channel of the site's pin `conda-forge::app` cannot be applied to pip's app",
    ]


def test_what_pip_cannot_say_is_refused_where_it_does_not_hold(bed: Bed) -> None:
    assert numpy(bed.lock(bed.site("numpy <1|>2.3"), "app")) == "2.4.6"
    with pytest.raises(
        InputError, match=r"numpy 2\.4\.6 of pip conflicts with the site's pin `numpy <1\|2\.2\.\*`"
    ) as e:
        bed.lock(bed.site("numpy <1|2.2.*"), "app")
    assert f"({bed.file}:7)" in e.value.message and "one range" in str(e.value.hint)


def test_a_pin_that_pip_cannot_hold_is_named_with_its_line(bed: Bed) -> None:
    site = bed.site("six <99", "numpy <2.3")
    with pytest.raises(InputError, match="cannot solve the pip packages of demo 1-base") as caught:
        bed.lock(site, "new")
    assert f"with the site's pin `numpy <2.3` ({bed.file}:8)" in caught.value.message
    assert "have it changed" in str(caught.value.hint) and "numpy" in str(caught.value.detail)
    with pytest.raises(InputError) as other:  # not because of a pin
        bed.lock(site, "nosuch")
    assert "pin" not in other.value.message


def test_a_pin_that_conda_cannot_hold_is_named_with_its_line(bed: Bed) -> None:
    with pytest.raises(InputError, match="cannot solve the conda packages of demo 1-base") as caught:
        bed.lock(bed.site("six <99", "numpy <2"), conda=conda("numpy >=2"))
    assert f"with the site's pin `numpy <2` ({bed.file}:8)" in caught.value.message
    with pytest.raises(InputError) as both:
        bed.lock(bed.site("numpy <1", "numpy >=3"), conda=conda("numpy"))
    assert f"`numpy <1` ({bed.file}:7) or `numpy >=3` ({bed.file}:8)" in both.value.message


def test_what_conda_provides_is_left_to_its_own_solve(bed: Bed) -> None:
    found = bed.lock(bed.site("numpy <2.3"), "app", conda=conda("python", "numpy"))
    assert numpy(found) == "1.26.4" and [p.name for p in found.pip] == ["app"]


def test_a_lock_that_a_pin_no_longer_allows_is_stale(bed: Bed) -> None:
    before = bed.lock(bed.site(), "app")
    lock, made = Lock("demo", (before,)), bed.stack("app")
    verdict = solve.staleness(lock, made, bed.site("numpy <2.3"), ())
    assert [line.partition(": ")[2] for line in verdict.reasons] == ["+ pip-pin numpy <2.3 (locked: numpy 2.4.6)"]
    assert solve.staleness(lock, made, bed.site("numpy <3"), ()).reasons == ()
    after = bed.lock(bed.site("numpy <2.3"), "app", previous=lock)
    assert moved.moves(before, after) == ["~ numpy 2.4.6 -> 2.2.0 (pip): the site's pin numpy <2.3"]
