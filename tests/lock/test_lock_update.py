"""A lock is renewed on request only, and adding or removing a requirement moves nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from helpers_lock import conda, pip, stack, variant, wheel

from stackyard.core.errors import InputError
from stackyard.core.progress import SilentProgress
from stackyard.host.machine.platforms import this_platform
from stackyard.inputs.models import Environment, PipOptions, Site, Stack
from stackyard.inputs.sites.sitemodels import ChannelPolicy, PipPolicy
from stackyard.lock import solve
from stackyard.lock.explain.changes import moves
from stackyard.lock.lockfile.model import Lock, LockedVariant
from stackyard.lock.renewal import Update, require_known
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel

HERE = this_platform()
OLD = (
    Package("python", "3.10.1", subdir=HERE), Package("python", "3.11.1", subdir=HERE),
    Package("blas", "1.0", subdir=HERE), Package("zlib", "1.0", subdir=HERE),
    Package("numpy", "1.0", build="py310", subdir=HERE, depends=("python 3.10.*", "blas", "zlib")),
)  # fmt: skip
NEW = (
    Package("python", "3.10.2", subdir=HERE), Package("blas", "2.0", subdir=HERE), Package("zlib", "2.0", subdir=HERE),
    Package("numpy", "2.0", build="py310", subdir=HERE, depends=("python 3.10.*", "blas >=2", "zlib")),
    Package("numpy", "2.0", build="py311", subdir=HERE, depends=("python 3.11.*", "blas >=2", "zlib")),
    Package("scipy", "1.0", subdir=HERE, depends=("numpy", "zlib")),
)  # fmt: skip


class Bed:
    """A channel and a directory of wheels that get newer, and a lock that was made before."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.yard = directory, Yard(directory / "yard")
        self.links = directory / "links"

    def channel(self, *packages: Package, name: str = "channel") -> str:
        """A channel that has these packages from now on."""
        shutil.rmtree(self.directory / name, ignore_errors=True)
        return make_channel(self.directory / name, packages).as_uri()

    def site(self, *channels: str, **policy: object) -> Site:
        index = PipPolicy(read_pip_conf=False, find_links=(str(self.links),))
        return Site(channels=ChannelPolicy(default=channels, **policy), pip=index, platforms=(HERE,))  # type: ignore[arg-type]

    def lock(self, made: Stack, site: Site, previous: Lock | None = None, update: Update | None = None) -> Lock:
        return solve.lock_stack(made, site, self.yard, (), previous, SilentProgress(), update=update or Update())


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def versions(lock: Lock) -> dict[str, str]:
    return {p.name: p.version for p in lock.variants[0].packages}


def of(*specs: str) -> Stack:
    return stack(variant(Environment(conda=conda(*specs))))


def wheels(*lines: str) -> Stack:
    return stack(variant(Environment(pip=pip(*lines), pip_options=PipOptions(no_index=True))))


# --------------------------------------------------------------------------- conda


@pytest.fixture
def before(bed: Bed) -> Lock:
    return bed.lock(of("numpy"), bed.site(bed.channel(*OLD)))


def test_a_new_requirement_moves_nothing_else(bed: Bed, before: Lock) -> None:
    site = bed.site(bed.channel(*OLD, *NEW))
    assert versions(bed.lock(of("numpy", "scipy"), site)) == {
        "python": "3.11.1", "blas": "2.0", "zlib": "2.0", "numpy": "2.0", "scipy": "1.0",
    }  # fmt: skip
    after = bed.lock(of("numpy", "scipy"), site, before)
    assert versions(after) == {**versions(before), "scipy": "1.0"}
    assert moves(before.variants[0], after.variants[0]) == ["+ scipy 1.0 0 (conda): requested scipy"]
    again = bed.lock(of("numpy"), site, after)
    assert versions(again) == versions(before)
    assert moves(after.variants[0], again.variants[0]) == ["- scipy 1.0 0 (conda): no longer needed"]


def test_a_requirement_moves_what_it_must_with_the_reason(bed: Bed, before: Lock) -> None:
    after = bed.lock(of("numpy >=2"), bed.site(bed.channel(*OLD, *NEW)), before)
    assert versions(after) == {"python": "3.10.1", "blas": "2.0", "zlib": "1.0", "numpy": "2.0"}
    assert moves(before.variants[0], after.variants[0]) == [
        "~ blas 1.0 0 -> 2.0 0 (conda): numpy 2.0 needs blas >=2",
        "~ numpy 1.0 py310 -> 2.0 py310 (conda): requested numpy >=2",
    ]


def test_update_renews_all_or_the_named_package_with_what_it_needs(bed: Bed, before: Lock) -> None:
    site = bed.site(bed.channel(*OLD, *NEW))
    assert versions(bed.lock(of("numpy"), site, before, Update(everything=True)))["python"] == "3.11.1"
    named = bed.lock(of("numpy"), site, before, Update(names=("Numpy",)))
    assert versions(named) == {"python": "3.10.1", "blas": "2.0", "zlib": "1.0", "numpy": "2.0"}
    other = bed.lock(of("numpy"), site, before, Update(names=("zlib",)))
    assert versions(other) == {**versions(before), "zlib": "2.0"}
    python = bed.lock(of("numpy"), site, named, Update(names=("python",)))
    assert versions(python) == {**versions(named), "python": "3.10.2"}  # 3.11 would move numpy, which needs it


def test_a_misspelt_package_to_update_is_an_error(before: Lock) -> None:
    with pytest.raises(InputError, match="cannot update nunpy: not in the lock") as caught:
        require_known(Update(names=("nunpy",)), [before])
    assert caught.value.hint == "did you mean numpy?"


def test_only_what_the_channels_still_offer_is_preferred(bed: Bed, before: Lock) -> None:
    without = [p for p in (*OLD, *NEW) if (p.name, p.version) != ("zlib", "1.0")]
    after = bed.lock(of("numpy", "scipy"), bed.site(bed.channel(*without)), before)
    assert versions(after) == {**versions(before), "scipy": "1.0", "zlib": "2.0"}
    own = bed.channel(Package("zlib", "0.5", subdir=HERE), name="own")
    first = bed.site(own, bed.channel(*OLD, *NEW))
    assert versions(bed.lock(of("numpy", "scipy"), first, before))["zlib"] == "0.5"  # strict: the first channel's
    last = bed.site(bed.channel(*OLD, *NEW), own)
    assert versions(bed.lock(of("numpy", "scipy"), last, before))["zlib"] == "1.0"


def test_a_mirror_moves_urls_only(bed: Bed, before: Lock) -> None:
    mirror = bed.channel(*OLD, *NEW, name="mirror")
    after = bed.lock(of("numpy"), bed.site(before.variants[0].channels[0], mirrors={"x": "y"}), before)
    assert after == before
    after = bed.lock(of("numpy"), bed.site(mirror), before)
    assert versions(after) == versions(before)
    assert {p.url.rsplit("/", 2)[0] for p in after.variants[0].conda} == {mirror}


def test_packages_newer_than_the_sites_date_are_not_preferred(bed: Bed) -> None:
    day = 24 * 3600 * 1000
    young, old = Package("lib", "2", timestamp_ms=20_000 * day), Package("lib", "1", timestamp_ms=19_000 * day)
    channel = bed.channel(young, old)
    before = bed.lock(of("lib"), bed.site(channel))
    assert versions(before) == {"lib": "2"}
    assert versions(bed.lock(of("lib"), bed.site(channel, exclude_newer="2023-01-01"), before)) == {"lib": "1"}


# --------------------------------------------------------------------------- pip


def test_wheels_stay_too(bed: Bed) -> None:
    wheel(bed.links, "lib", "1.0")
    wheel(bed.links, "app", "1.0", ["lib"])
    before = bed.lock(wheels("app"), bed.site())
    wheel(bed.links, "lib", "2.0")
    wheel(bed.links, "app", "2.0", ["lib"])
    wheel(bed.links, "more", "1.0", ["lib"])
    after = bed.lock(wheels("app", "more"), bed.site(), before)
    assert versions(after) == {"app": "1.0", "lib": "1.0", "more": "1.0"}
    assert versions(bed.lock(wheels("app"), bed.site(), after)) == versions(before)
    named = bed.lock(wheels("app"), bed.site(), before, Update(names=("lib",)))
    assert versions(named) == {"app": "1.0", "lib": "2.0"}
    assert moves(before.variants[0], named.variants[0]) == ["~ lib 1.0 -> 2.0 (pip)"]
    assert versions(bed.lock(wheels("app"), bed.site(), before, Update(everything=True))) == {
        "app": "2.0",
        "lib": "2.0",
    }
    must = bed.lock(wheels("app", "lib>1"), bed.site(), before)
    assert moves(before.variants[0], must.variants[0]) == ["~ lib 1.0 -> 2.0 (pip): requested lib>1"]


def test_a_better_file_of_the_same_version_is_taken_on_update_only(bed: Bed) -> None:
    wheel(bed.links, "lib", "1.0")
    before = bed.lock(wheels("lib"), bed.site())
    wheel(bed.links, "lib", "1.0", tag="py3-none-linux_x86_64")
    wheel(bed.links, "lib", "1.0", tag="py3-none-linux_aarch64")
    wheel(bed.links, "more", "1.0")
    after = bed.lock(wheels("lib", "more"), bed.site(), before)
    assert after.variants[0].pip[0] == before.variants[0].pip[0]
    renewed = bed.lock(wheels("lib"), bed.site(), before, Update(names=("lib",)))
    assert "linux" in renewed.variants[0].pip[0].url


@pytest.mark.parametrize("named", [True, False])
def test_a_branch_stays_at_its_commit(bed: Bed, named: bool) -> None:
    repository = bed.directory / "repository"
    repository.mkdir()
    (repository / "pyproject.toml").write_text(
        '[project]\nname = "proj"\nversion = "1"\n[build-system]\nrequires = []\nbuild-backend = "x"\n'
    )
    _git(repository, "init", "--quiet", "--initial-branch", "main")
    first = _commit(repository)
    url = f"git+file://{repository}@main"
    one = pip(f"proj @ {url}", kind="vcs", url=url) if named else pip(url, kind="vcs", url=url)
    made = stack(variant(Environment(pip=one, pip_options=PipOptions(no_index=True))))
    before = bed.lock(made, bed.site())
    (repository / "more.py").write_text("")
    second = _commit(repository)
    wheel(bed.links, "more", "1.0")
    more = stack(variant(Environment(pip=(*one, *pip("more")), pip_options=PipOptions(no_index=True))))
    assert _commit_of(bed.lock(more, bed.site(), before).variants[0]) == first
    assert _commit_of(bed.lock(made, bed.site(), before, Update(names=("proj",))).variants[0]) == second


def _git(directory: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *identity, *words], cwd=directory, check=True, text=True, stdout=subprocess.PIPE)
    return done.stdout.strip()


def _commit(directory: Path) -> str:
    _git(directory, "add", "--all")
    _git(directory, "commit", "--quiet", "--message", "x")
    return _git(directory, "rev-parse", "HEAD")


def _commit_of(locked: LockedVariant) -> str:
    return next(p.commit for p in locked.pip if p.name == "proj")
