"""Conda packages in an extension, and full revisions made of a base."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from extendbed import Bed
from extendbed import bed as new_bed

from stackyard.yard.revision.record import BuildRecord, read_record
from support.channel import PLACEHOLDER, Package, make_channel
from support.pythonpkg import VERSION

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOOL = {"bin/tool": ("#!/bin/sh\ncat ${0%/bin/tool}/lib/libx.so.1\n", 0o755)}
SPAWNING = f"""#!{PLACEHOLDER}/bin/python
import multiprocessing

def double(number):
    import six  # of the layer
    return 2 * number

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map_async(double, [21]).get(60))
"""
SPAWNER = {"bin/spawner": (SPAWNING, 0o755)}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Iterator[Bed]:
    directory = tmp_path_factory.mktemp("extend-conda")
    packages = [
        Package("libx", "1.0", files={"lib/libx.so.1": "library 1\n"}),
        Package("libx", "2.0", files={"lib/libx.so.1": "library 2\n"}),
        Package("liby", "1.0", files={"lib/liby.so.1": "another\n"}),
        Package("spawner", "1.0", files=SPAWNER),
        Package("tool", "1.0", files=TOOL, depends=("libx",)),
        Package("older", "1.0", files={"share/older": "x"}, depends=("libx <2",)),
    ]
    own = make_channel(directory / "own", packages)
    made = new_bed(directory, real_channel)
    site = f"channels: {{default: ['{own.as_uri()}', '{real_channel.as_uri()}']}}\n"
    made.site.write_text(made.site.read_text() + site)
    made.publish(conda="libx, liby, spawner", more=f"'{own.as_uri()}', ")
    yield made


def _record(bed: Bed, name: str) -> BuildRecord:
    return read_record(Path(bed.user("show", name, "--json").value["path"]) / "record.json")


def test_conda_packages_of_a_layer_are_the_new_ones(published: Bed) -> None:
    published.user("extend", "--base", "sci", "--name", "mine", "--conda", "tool", "--conda", "six", "--pip", "mdurl")
    record = _record(published, "mine")
    assert [(p.name, p.kind) for p in record.own_packages] == [("six", "conda"), ("tool", "conda"), ("mdurl", "pip")]
    prefix = Path(record.prefix)
    assert sorted(p.name for p in (prefix / "conda-meta").glob("*.json")) == [
        "six-1.17.0-pyhd_0.json",
        "tool-1.0-0.json",
    ]
    link = prefix / "lib" / "libx.so.1"  # what the tool needs of the base is found beside it
    assert link.is_symlink() and str(link.readlink()).startswith(str(published.site_yard))
    assert not (prefix / "lib" / "liby.so.1").is_symlink()
    assert published.user("run", "mine", "--", "tool").out == "library 2\n"
    published.user("run", "mine", "--", "python", "-c", "import six, mdurl, idna")
    assert published.user("verify", "mine").code == 0


def test_commands_of_the_base_start_processes_and_pip_is_that_of_its_python(published: Bed) -> None:
    published.user("extend", "--base", "sci", "--name", "more", "--conda", "six")
    done = published.user("run", "more", "--", "timeout", "60", "spawner")
    assert (done.out, done.err) == ("[42]\n", "")
    bundled = f"lib/python{VERSION}/ensurepip/_bundled"
    has_own = any((Path(sys.base_prefix) / bundled).glob("pip-*.whl"))
    expected = f"/sci/1.0-py311-1/prefix/{bundled}/pip-" if has_own else "/usr/share/python-wheels/pip-"
    assert expected in published.user("run", "more", "--", "pip", "--version").out


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("older", "the base sci/1.0-py311-1 has libx 2.0"),
        ("python=3.12", "has the Python of its base"),
        ("pygments", "the base sci/1.0-py311-1 has pygments 2.19.1 by pip"),
    ],
)
def test_what_contradicts_the_base_is_refused_with_both_sides(published: Bed, spec: str, said: str) -> None:
    refused = published.user("extend", "--base", "sci", "--name", "other", "--conda", spec, expect=2)
    assert said in refused.err
    assert not (published.yard / "extensions/other").exists()


def test_a_full_revision_changes_what_it_must_and_no_more(published: Bed) -> None:
    words = ("extend", "--base", "sci", "--name", "complete", "--conda", "older", "--full")
    assert "would build complete/1.0-py311-1" in published.user(*words, "--dry-run").out
    published.user(*words)
    record = _record(published, "complete")
    assert record.base is None
    changed = published.user("diff", "sci", "complete").out.splitlines()
    assert sorted(changed) == ["+ older 1.0 0 (conda)", "~ libx 2.0 0 -> 1.0 0 (conda)"]
    assert record.disk.inodes_shared > 10 * record.disk.inodes_new or record.disk.link_mode == "copy"
