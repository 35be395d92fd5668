"""The door: what is reused, what makes a lock stale, which platforms, which interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers_lock import conda, pip, stack, variant, wheel

from stackyard.core.errors import InputError, MissingError, Where
from stackyard.core.progress import SilentProgress
from stackyard.host.files.hashing import sha256_file
from stackyard.host.machine.platforms import this_platform
from stackyard.inputs.models import BuildSpec, Environment, Interpreter, PackageBuild, PipOptions, Site, Stack
from stackyard.inputs.sites.sitemodels import ChannelPolicy, NodeKind, PipPolicy
from stackyard.lock import interpreter, solve
from stackyard.lock.lockfile import text
from stackyard.lock.lockfile.fingerprint import fingerprint
from stackyard.lock.lockfile.model import Lock
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel

HERE = this_platform()


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packages = [
        Package("python", "3.11.9", subdir=HERE), Package("python", "3.10.4", subdir=HERE),
        Package("six", "1.16", subdir="noarch", depends=("python",), noarch_python=True,
                files={"site-packages/six-1.16.dist-info/METADATA": "Name: six"}), Package("lib", "1", subdir=HERE),
        Package("python", "3.11.9", subdir="linux-ppc64le"), Package("lib", "1", subdir="linux-ppc64le"),
    ]  # fmt: skip
    return make_channel(tmp_path_factory.mktemp("channel"), packages)


@pytest.fixture
def links(tmp_path: Path) -> Path:
    wheel(tmp_path / "links", "app", "1.0", ["six>=1.10"])
    wheel(tmp_path / "links", "six", "1.17")
    return tmp_path / "links"


def a_site(channel: Path, links: Path | None = None, **more: object) -> Site:
    policy = ChannelPolicy(default=(channel.as_uri(),))
    index = PipPolicy(read_pip_conf=False, find_links=(str(links),) if links else ())
    values = {"channels": policy, "pip": index, "platforms": (HERE,), **more}
    return Site(**values)  # type: ignore[arg-type]


def local(*lines: str, **more: object) -> Environment:
    return Environment(pip=pip(*lines), pip_options=PipOptions(no_index=True), **more)  # type: ignore[arg-type]


def lock(made: Stack, site: Site, yard: Yard, previous: Lock | None = None, platforms: Sequence[str] = ()) -> Lock:
    return solve.lock_stack(made, site, yard, platforms, previous, SilentProgress())


def test_pip_goes_on_top_of_conda(channel: Path, links: Path, tmp_path: Path) -> None:
    site = a_site(channel, links)
    found = lock(
        stack(variant(local("app", conda=conda("six", "python 3.11.*")))), site, Yard(tmp_path / "y")
    ).variants[0]
    assert [p.name for p in found.pip] == ["app"] and {p.name for p in found.conda} == {"python", "six"}
    assert found.interpreter.version == "3.11.9"
    without = lock(stack(variant(local("app", conda=conda("lib")))), site, Yard(tmp_path / "y")).variants[0]
    assert [p.name for p in without.pip] == ["app", "six"] and "python" in {p.name for p in without.conda}


def test_what_was_solved_is_not_solved_again(channel: Path, links: Path, tmp_path: Path) -> None:
    site, made = a_site(channel, links), stack(variant(local("app")))
    parent = Yard(tmp_path / "site")
    first = lock(made, site, parent)
    kept = parent.kept_lock(first.variants[0].spec_hash)
    assert text.read(kept).variants == first.variants
    for file in links.iterdir():
        file.unlink()
    child = Yard(tmp_path / "user", parent)
    renamed = stack(variant(local("app"), stack="other", version="9", name="x"))
    taken = solve.lock_stack(renamed, site, child, (), None, SilentProgress(), kept_by=child.above())
    assert taken.variants[0].pip == first.variants[0].pip
    assert not (child.root / "locks").exists()
    alone = Yard(tmp_path / "alone")
    assert lock(made, site, alone, previous=first) == first
    for yard in (alone, parent):  # what a yard keeps itself is for the yards below it
        with pytest.raises(InputError):
            lock(made, site, yard)


def test_platforms(channel: Path, tmp_path: Path) -> None:
    base = variant(Environment(conda=conda("lib")))
    both = a_site(channel, platforms=(HERE, "linux-ppc64le"))
    assert [v.platform for v in lock(stack(base), both, Yard(tmp_path)).variants] == [HERE, "linux-ppc64le"]
    limited = base.model_copy(update={"environment": Environment(conda=conda("lib"), platforms=("linux-ppc64le",))})
    assert [v.platform for v in lock(stack(limited), both, Yard(tmp_path)).variants] == ["linux-ppc64le"]
    kinds = a_site(channel, platforms=(), nodes={"p9": NodeKind(platform="linux-ppc64le", glibc="2.17")})
    assert [v.platform for v in lock(stack(base), kinds, Yard(tmp_path)).variants] == ["linux-ppc64le"]
    assert solve.site_platforms(Site()) == (HERE,)
    with pytest.raises(InputError, match="does not support linux-aarch64"):
        lock(stack(limited), both, Yard(tmp_path), platforms=("linux-aarch64",))


def test_a_note_about_a_platform_is_the_same_for_all_variants(channel: Path, tmp_path: Path) -> None:
    made = [variant(Environment(conda=conda("lib")), name=name) for name in ("one", "two")]
    site = a_site(channel, platforms=(), nodes={"p9": NodeKind(platform="linux-ppc64le")})
    progress = SilentProgress()
    solve.lock_stack(stack(*made), site, Yard(tmp_path), (), None, progress)
    notes = [note for note in progress.notices if "no node kind has a `glibc:`" in note]
    assert len(notes) == 2 and set(notes) == {
        "linux-ppc64le: no node kind has a `glibc:`; locked for 2.17, the oldest in use"
    }


def test_selectors_choose_per_platform(channel: Path, tmp_path: Path) -> None:
    requirements = tuple(
        r.model_copy(update={"selector": s})
        for r, s in zip(conda("lib", "nosuch"), ("", "linux and not (x86_64 or ppc64le or aarch64)"), strict=True)
    )
    found = lock(stack(variant(Environment(conda=requirements))), a_site(channel), Yard(tmp_path)).variants[0]
    assert found.requested == ("lib",)


# --------------------------------------------------------------------------- stale


def changed(**update: object) -> Environment:
    return local("app").model_copy(update=update)


@pytest.mark.parametrize(
    ("environment", "site_update", "build", "says"),
    [
        (changed(pip=pip("app", "six")), {}, None, "+ pip: six"),
        (changed(pip=pip("app>=1")), {}, None, "- pip: app"),
        (changed(conda=conda("lib")), {}, None, "+ lib"),
        (changed(pip_options=PipOptions()), {}, None, "- pip-option no-index True"),
        (changed(constraints=pip("six<2")), {}, None, "+ constraint six<2"),
        (local("app"), {"interpreter": Interpreter(version="3.99")}, None, "+ interpreter auto 3.99"),
        (local("app"), {}, BuildSpec(variables={"A": "1"}), "+ build every package: variable A = 1"),
        (local("app"), {}, BuildSpec(packages={"app": PackageBuild()}), "+ build app: no-binary = true"),
    ],
)
def test_stale_says_what_changed(
    channel: Path, links: Path, tmp_path: Path, environment: Environment, site_update: dict[str, object],
    build: BuildSpec | None, says: str,
) -> None:  # fmt: skip
    site, made = a_site(channel, links), stack(variant(local("app")))
    locked = lock(made, site, Yard(tmp_path))
    assert solve.staleness(locked, made, site, ()).reasons == ()
    assert solve.staleness(text.parse(text.dump(locked), "x"), made, site, ()).reasons == ()
    after = stack(variant(environment, build=build or BuildSpec()))
    reasons = solve.staleness(locked, after, site.model_copy(update=site_update), ()).reasons
    assert any(says in reason for reason in reasons), reasons
    assert all(reason.startswith(f"demo 1-base for {HERE}: ") for reason in reasons)


def test_stale_variants(channel: Path, tmp_path: Path, links: Path) -> None:
    site, made = a_site(channel, links), stack(variant(Environment(conda=conda("lib"))))
    locked = lock(made, site, Yard(tmp_path))
    more = stack(*made.variants, variant(name="new"))
    assert solve.staleness(locked, more, site, ()).reasons == (f"demo 1-new for {HERE} is not locked",)
    other = stack(variant(Environment(conda=conda("lib")), name="renamed"))
    assert f"1-base for {HERE} is no longer in the file" in solve.staleness(locked, other, site, ()).reasons
    reordered = stack(variant(Environment(conda=conda("lib"))))
    assert solve.staleness(locked, reordered, site, ()).reasons == ()


def test_a_patch_or_project_that_changes_makes_it_stale_and_clones_agree(channel: Path, tmp_path: Path) -> None:
    hashes = []
    for clone in ("one", "two"):
        directory = tmp_path / clone
        (directory / "proj").mkdir(parents=True)
        (directory / "proj/pyproject.toml").write_text('[project]\nname = "proj"\nversion = "1"\n')
        (directory / "fix.patch").write_text("x")
        requirement = pip(str(directory / "proj"))[0].model_copy(
            update={"kind": "path", "path": str(directory / "proj")}
        )
        made = variant(
            Environment(pip=(requirement,)), place=Where(file=str(directory / "stack.yaml")),
            build=BuildSpec(packages={"proj": PackageBuild(patches=(str(directory / "fix.patch"),))}),
        )  # fmt: skip
        hashes.append(fingerprint(made, Site(), HERE).digest)
    assert hashes[0] == hashes[1]
    (directory / "fix.patch").write_text("other")
    patched = fingerprint(made, Site(), HERE).digest
    (directory / "proj/pyproject.toml").write_text('[project]\nname = "proj"\nversion = "2"\n')
    assert len({hashes[0], patched, fingerprint(made, Site(), HERE).digest}) == 3


# --------------------------------------------------------------------------- interpreter


def test_the_hosts_python_is_the_real_file() -> None:
    found = interpreter.from_host(Interpreter(), HERE)
    path = Path(found.path)
    assert path.is_absolute() and path == path.resolve() and found.sha256 == sha256_file(path)
    assert found.version.startswith("3.") and interpreter.unchanged(found)


def test_a_shim_or_link_is_followed(tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    found = interpreter.from_host(Interpreter(path=str(shim)), HERE)
    assert found.path == os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert interpreter.from_host(Interpreter(version=here), HERE).version.startswith(here)
    assert interpreter.from_host(Interpreter(version=">=3.8,<4"), HERE)
    with pytest.raises(MissingError, match=r"Python 3\.99 not found"):
        interpreter.from_host(Interpreter(version="3.99"), HERE)
    with pytest.raises(InputError, match="invalid interpreter version"):
        interpreter.from_host(Interpreter(version="three"), HERE)
    other = "linux-aarch64" if HERE != "linux-aarch64" else "linux-64"
    with pytest.raises(InputError, match="cannot inspect the Python"):
        interpreter.from_host(Interpreter(), other)


def test_uv_without_a_network_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "http://127.0.0.1:9/pythons")
    with pytest.raises(MissingError, match=r"uv's Python 3\.13 is not installed") as caught:
        interpreter.from_uv(Interpreter(source="uv", version="3.13"), HERE, tmp_path)
    assert "UV_PYTHON_INSTALL_MIRROR" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("stack_word", "site_word", "conda_part", "expected"),
    [
        (Interpreter(), Interpreter(), True, "conda"), (Interpreter(), Interpreter(), False, "host"),
        (Interpreter(), Interpreter(source="uv"), False, "uv"),
        (Interpreter(source="host"), Interpreter(source="uv"), True, "host"),
        (Interpreter(source="conda"), Interpreter(), False, "conda"),
    ],
)  # fmt: skip
def test_where_python_comes_from(
    stack_word: Interpreter, site_word: Interpreter, conda_part: bool, expected: str
) -> None:
    asked = variant(interpreter=stack_word).interpreter.completed(site_word)
    assert interpreter.source_of(asked, conda=conda_part) == expected


def test_conda_python_of_the_version_that_is_asked_for(channel: Path, links: Path, tmp_path: Path) -> None:
    asked = variant(local("app"), interpreter=Interpreter(source="conda", version="3.10"))
    found = lock(stack(asked), a_site(channel, links), Yard(tmp_path)).variants[0]
    assert found.interpreter == interpreter.from_conda(found.conda) and found.interpreter.version == "3.10.4"


def test_two_pythons_are_an_error(channel: Path, links: Path, tmp_path: Path) -> None:
    both = variant(local("app", conda=conda("six")), interpreter=Interpreter(source="host"))
    with pytest.raises(InputError, match=r"two interpreters: .* python 3\.11\.9 of conda"):
        lock(stack(both), a_site(channel, links), Yard(tmp_path))


def test_a_host_python_that_changed_is_stale(channel: Path, links: Path, tmp_path: Path) -> None:
    fake = tmp_path / "bin/python3"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho 3.11.1\necho "$0"\n')
    fake.chmod(0o755)
    made = stack(variant(local("app"), interpreter=Interpreter(source="host", path=str(fake))))
    site = a_site(channel, links)
    locked = lock(made, site, Yard(tmp_path / "y"))
    assert locked.variants[0].interpreter.path == str(fake) and solve.staleness(locked, made, site, ()).reasons == ()
    fake.write_text('#!/bin/sh\n# updated\necho 3.11.1\necho "$0"\n')
    assert "is no longer the locked Python" in solve.staleness(locked, made, site, ()).reasons[0]
    again = lock(made, site, Yard(tmp_path / "y"), previous=locked)
    assert (
        again.variants[0].interpreter.sha256 == sha256_file(fake)
        and solve.staleness(again, made, site, ()).reasons == ()
    )
