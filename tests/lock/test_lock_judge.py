"""Whether locked values still hold, judged without a solver: dates, pip settings, values of an edited lock."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_lock import pip, variant

from stackyard.core.errors import InputError
from stackyard.host.machine.platforms import this_platform
from stackyard.inputs.models import Environment, Site
from stackyard.inputs.sites.sitemodels import ChannelPolicy, PipPolicy
from stackyard.inputs.stacks.newest import end_of
from stackyard.lock import renewal as prefer
from stackyard.lock.conda import solve as conda
from stackyard.lock.lockfile import export, grammar
from stackyard.lock.lockfile.fingerprint import fingerprint
from stackyard.lock.lockfile.freshness import judge
from stackyard.lock.lockfile.model import CondaPackage, Lock, LockedInterpreter, LockedVariant, PipPackage
from stackyard.lock.satisfied import conda_satisfies

HERE = this_platform()


def package(version: str = "1.5", build: str = "0") -> CondaPackage:
    return CondaPackage("lib", version, build, 0, HERE, "https://x", f"https://x/{HERE}/lib-1-0.conda", "0" * 64)


def reasons(before: Site, now: Site, *policy: str) -> tuple[str, ...]:
    """What makes a lock of one wheel stale that was made under one site; `policy`: further lines of the lock."""
    asked = variant(Environment(pip=pip("app")))
    lines = fingerprint(asked, before, HERE)
    wheel = PipPackage("app", "1", "wheel", "https://x/app-1-py3-none-any.whl", "0" * 64)
    locked = LockedVariant("demo", "1", "base", HERE, lines.digest, LockedInterpreter("none"),
                           requested=lines.requested, policy=(*lines.policy, *policy), pip=(wheel,))  # fmt: skip
    return judge(locked, fingerprint(asked, now, HERE), asked, now).reasons


@pytest.mark.parametrize("version", ["1..2", "1!!2", ".1", "+"])
def test_a_version_that_is_none_satisfies_nothing(version: str) -> None:
    assert conda_satisfies(package(), "lib >=1") and not conda_satisfies(package(version), "lib >=1")
    assert not conda_satisfies(package(build="a!b"), "lib >=1")


def test_a_date_of_the_lock_that_is_none_is_before_no_other() -> None:
    day = Site(channels=ChannelPolicy(exclude_newer="2025-06-30"))
    assert reasons(Site(), day, "pip-exclude-newer 2025-01-01") == ()
    assert reasons(Site(), day, "pip-exclude-newer garbage") == ("+ pip-exclude-newer 2025-06-30",)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2025-06-30", "2025-06-30T23:59:59+00:00"),
        ("2025-06-30T12:00:00", "2025-06-30T12:00:00+00:00"),
        ("2025-06-30T12:00:00Z", "2025-06-30T12:00:00+00:00"),
        ("2025-06-30T12:00:00+02:00", "2025-06-30T10:00:00+00:00"),
    ],
)
def test_the_end_of_a_day_is_one_for_conda_and_uv(date: str, expected: str) -> None:
    assert end_of(date).isoformat() == expected


@pytest.mark.parametrize(
    "date", ["30.6.2025", "2025-06-31", "20250630", "2025-W27-1", "0001-01-01T00:00+01:00", "2025-06-30T12"]
)
def test_a_date_that_is_none_is_refused(date: str) -> None:
    """Not what only some versions of Python read, nor what they read as the beginning of a day."""
    with pytest.raises(InputError, match=f"'{re.escape(date)}' is not a date"):
        end_of(date)


def test_pip_conf_is_not_forgotten_beside_another_change() -> None:
    before, now = PipPolicy(read_pip_conf=False), PipPolicy(extra_index_urls=("https://x/simple",))
    assert "- site-pip read-pip-conf no" in reasons(Site(pip=before), Site(pip=now))


@pytest.mark.parametrize("version", ["3.x", "3", "3.1x", "3.99999999", "x"])
def test_a_python_whose_version_is_none_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="invalid version"):
        grammar.check(LockedInterpreter("host", version))
    for good in ("", "3.11", "3.14.0rc1", "2.7.18.8"):
        grammar.check(LockedInterpreter("host", good))


def test_a_url_may_have_a_variable_in_any_part() -> None:
    wheel = PipPackage("app", "1", "wheel", "http://${NAME}:${DEVPI_PORT}/a/app-1-py3-none-any.whl", "0" * 64)
    grammar.check(wheel)
    with pytest.raises(ValueError, match="invalid url"):
        grammar.check(replace(wheel, url="http://host:port/app-1-py3-none-any.whl"))


def test_a_new_version_prefers_what_the_newest_one_has() -> None:
    old = LockedVariant("demo", "1", "base", HERE, "", LockedInterpreter("none"))
    lock = Lock("demo", (old, replace(old, version="2")))
    found = prefer.former(lock, "3", "base", HERE)
    assert found is not None and found.version == "2"


@pytest.mark.parametrize("error", [OSError("disk full"), ImportError("no rattler")])
def test_an_export_blames_the_lock_for_wrong_values_only(error: Exception) -> None:
    with pytest.raises(type(error)), export._accepted("demo 1"):
        raise error
    with pytest.raises(InputError, match="invalid values of demo 1 in the lock: x"), export._accepted("demo 1"):
        raise RuntimeError("x")


def test_what_cannot_be_read_in_the_cache_of_channels_stops_no_solve(tmp_path: Path) -> None:
    (tmp_path / "a.info.json").mkdir()
    note = tmp_path / "b.info.json"
    note.write_text('{"url": "https://u:secret@host/conda"}')
    conda._forget_tokens(tmp_path)
    assert not note.exists()
