"""`deploy --fetch-only`: the caches have what a build takes, nothing is built, and a later deploy needs no server."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from stackyard.yard.cache.audit import audit
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel
from support.cli import Done, inside
from support.tinywheel import project, wheel
from support.webserver import served


class Bed:
    """A stack with a conda package, a wheel and a source archive, which a web server has."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.yard, self.file = directory, directory / "yard", directory / "stack.yaml"
        packages = [Package("tool", "1.0", subdir="noarch", files={"share/tool": "x"})]
        make_channel(directory / "web" / "channel", packages)
        files = directory / "web" / "files"
        wheel(files, "plain", "1.0")
        (project(directory / "made-1.0", "made") / "PKG-INFO").write_text(
            "Metadata-Version: 2.2\nName: made\nVersion: 1.0\n"
        )
        with tarfile.open(files / "made-1.0.tar.gz", "w:gz") as archive:
            archive.add(directory / "made-1.0", "made-1.0")

    def deploy(self, *words: str, expect: int = 0) -> Done:
        return inside("--yard", self.yard, "deploy", self.file, *words, expect=expect)

    def fetch(self, *words: str, pip: Sequence[str] = ("plain",)) -> Done:
        with served(self.directory / "web") as url:
            self.write(url, pip)
            return self.deploy("--fetch-only", *words)

    def write(self, url: str, names: Sequence[str] = ("plain",)) -> None:
        """The stack, with its packages at this server."""
        pip = [f"--no-index --find-links={url}/files/", *names]
        environment = {"channels": [f"{url}/channel"], "dependencies": ["tool", {"pip": pip}]}
        stack = {"name": "demo", "version": "1", "interpreter": {"source": "host", "path": sys.executable}}
        self.file.write_text(json.dumps({**stack, "environment": environment}))


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_the_caches_are_filled_and_nothing_is_built(bed: Bed) -> None:
    done = bed.fetch("--json", pip=["plain", "made"]).value
    assert [(row["conda"], row["pip"], row["is_built"]) for row in done["fetched"]] == [(1, 2, False)]
    assert not list(bed.yard.glob("stacks/*/*")) and not (bed.yard / "modules").exists()
    record = bed.yard / "cache/conda/tool-1.0-0/info/repodata_record.json"
    assert json.loads(record.read_text())["name"] == "tool"
    assert [path.name for path in bed.yard.glob("cache/sources/*/*")] == ["made-1.0.tar.gz"]
    assert list(bed.yard.glob("cache/uv/archive-v*/*/plain/__init__.py"))
    assert audit(Yard(bed.yard)) == []


def test_a_later_deploy_needs_no_server(bed: Bed) -> None:
    bed.fetch()
    bed.deploy("--locked")  # the server is not there any more
    (prefix,) = bed.yard.glob("stacks/demo/*/prefix")
    assert (prefix / "share/tool").read_text() == "x"
    assert list(prefix.glob("lib/python3*/site-packages/plain/__init__.py"))


def test_what_is_built_is_not_fetched_again(bed: Bed) -> None:
    bed.fetch()
    bed.deploy("--locked")
    assert "is already built" in bed.deploy("--fetch-only", "--locked").out


@pytest.mark.parametrize("option", ["--dry-run", "--rebuild"])
def test_options_that_mean_a_build_are_refused(bed: Bed, option: str) -> None:
    bed.write("http://127.0.0.1:9")
    assert "--fetch-only excludes" in bed.deploy("--fetch-only", option, expect=2).err
