"""A real conda prefix, made by the real installer from the shared channel, passes; damaged, it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from verifykit import Stack, by_name

from stackyard.yard.layout import Yard
from support import stackrecords


@pytest.fixture
def conda_stack(tmp_path: Path, real_channel: Path) -> Stack:
    from rattler import Gateway, VirtualPackage, install, solve

    yard = Yard(tmp_path / "yard")
    made = stackrecords.record(yard, "demo", "1.0", packages=(), interpreter={"source": "conda"})

    async def fill() -> None:
        records = await solve(
            [real_channel.as_uri()],
            ["python", "numpy", "rich", "requests", "pytest"],
            platforms=["linux-64", "noarch"],
            virtual_packages=VirtualPackage.detect(),
            gateway=Gateway(cache_dir=tmp_path / "repodata", show_progress=False),
        )
        await install(records, made.prefix, cache_dir=tmp_path / "packages", show_progress=False)

    asyncio.run(fill())
    return Stack(yard, made)


def test_real_conda_prefix(conda_stack: Stack, systems: list[object]) -> None:
    stack = conda_stack
    report = stack.verify()
    assert report.state == "passed", [check.line() for check in report.problems()]
    imports, commands = by_name(report, "import"), by_name(report, "command")
    assert {imports[name].status for name in ("numpy", "rich", "requests", "pytest")} == {"passed"}
    assert commands["pytest"].status == "passed"
    assert by_name(report, "consistency")["conda"].status == "passed"

    (record,) = (stack.prefix / "conda-meta").glob("idna-*.json")
    record.unlink()
    (stack.site_packages / "idna" / "__init__.py").write_text("raise ImportError('half a package')\n")
    (stack.prefix / "bin" / "pytest").write_text("#!/gone/bin/python\n")
    report = stack.verify()
    assert report.state == "failed"
    assert "half a package" in by_name(report, "import")["requests"].detail
    assert "/gone/bin/python" in by_name(report, "command")["pytest"].detail
    assert "idna" in by_name(report, "consistency")["conda requests"].detail
