"""The fixtures ``slurm`` and ``slurm_exclusive``: a real cluster, and its logs with every test that failed on it."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from support.slurm import SlurmCluster, unavailable

FIXTURES = ("slurm", "slurm_exclusive")


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A Slurm of four nodes that all tests share: a test takes none down, and counts on none to be idle."""
    _skip_without()
    cluster = SlurmCluster.shared()
    yield cluster
    cluster.stop()


@pytest.fixture
def slurm_exclusive() -> Iterator[SlurmCluster]:
    """A Slurm of three nodes for one test alone, which may take nodes down and preempt jobs."""
    _skip_without()
    with SlurmCluster.own() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _slurm_conf(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a test that has a cluster, programs talk to it; in any other to none, whatever the caller's shell says."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    for name in FIXTURES:
        if name in request.fixturenames:
            monkeypatch.setenv("SLURM_CONF", request.getfixturevalue(name).env["SLURM_CONF"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the daemons said last with a test that failed."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, SlurmCluster):
                report.sections.append((f"logs of {name}", value.logs()))
    return report


def _skip_without() -> None:
    why = unavailable()
    if why:
        pytest.skip(why)
