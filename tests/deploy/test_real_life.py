"""The life of revisions that were really deployed: default, remove, deploy again, collect, verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.write import trash
from support.channel import Package, make_channel
from support.cli import inside

STACK = """name: demo
version: '{version}'
environment: {{channels: ['{channel}'], dependencies: [tool={version}]}}
"""


def write(directory: Path, channel: Path, version: str) -> Path:
    file = directory / f"demo-{version}.yaml"
    file.write_text(STACK.format(version=version, channel=channel.as_uri()))
    return file


@pytest.mark.long
def test_from_deploy_to_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = ("1.0", "2.0", "3.0")
    tools = [Package("tool", v, files={"bin/tool": (f"#!/bin/sh\necho tool {v}\n", 0o755)}) for v in versions]
    channel = make_channel(tmp_path / "channel", tools)
    site = tmp_path / "site.yaml"
    site.write_text("modules: {formats: [tcl]}\nremoval: {grace_days: 0, keep: 0}\ncache: {max_age_days: 0}\n")
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    monkeypatch.setenv("STACKYARD_SITE", str(site))
    yard = Yard(tmp_path / "yard")
    one, two, three = (write(tmp_path, channel, version) for version in versions)
    inside("deploy", one)
    inside("deploy", two)
    inside("default", "demo/1.0")
    told = inside("deploy", three)
    assert "demo loads demo/1.0-default-1, which `stackyard default` set" in told.out + told.err
    assert inside("remove", "demo/2.0").out.startswith("removed demo/2.0-default-1  ")
    assert "was removed" in (yard.modules / "demo/2.0-default-1").read_text()
    inside("verify", "demo/3.0-default-1")
    inside("gc")  # deletes what was removed; no revision shares its package any more
    gone = {Path(g["path"]).name for g in inside("gc", "--dry-run", "--json").value["garbage"]}
    assert "tool-2.0-0" in gone and not gone & {"tool-1.0-0", "tool-3.0-0"}
    inside("gc")
    inside("gc")
    assert not yard.package("tool-2.0-0").exists() and yard.package("tool-1.0-0").exists()
    assert {e.version: e.state for e in generations.entries(yard)}["2.0"] in ("removed", "missing")
    inside("deploy", two)
    rows = {row["module"]: row for row in inside("list", "--json").value}
    assert (
        rows.keys() == {"demo/1.0-default-1", "demo/2.0-default-1", "demo/3.0-default-1"}
        and rows["demo/1.0-default-1"]["default"]
    )
    for version in versions:
        inside("verify", f"demo/{version}-default-1", "--deep")
    inside("withdraw", "demo/3.0-default-1")
    inside("remove", "demo/3.0-default-1")
    inside("deploy", three)  # while it is in the trash, from which it comes back
    assert {row["module"] for row in inside("list", "--json").value} == set(rows)
    assert not [item for item in trash.items(yard) if item.what.module]
    inside("gc")
    inside("verify", "demo/3.0-default-1", "--deep")
