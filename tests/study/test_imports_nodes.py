"""``bench imports`` on the nodes of an allocation, and with images."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import images
from support.cli import stackyard
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real
HERE = ("--module", "json", "--repeat", "1")


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path) as made:
        yield made


def test_more_nodes_and_more_ranks_on_each_are_measured_in_an_allocation(work: Work) -> None:
    words = ("bench", "imports", "--with", f"plain:{sys.prefix}", *HERE)
    refused = work.run(*words, expect=2)
    assert "no allocation: imports are measured on nodes that you have" in refused.err
    shown = work.allocated(*words, "-r", "1,2", "--cold", "touch forgotten-$(hostname)", salloc=("-N2", "--exclusive"))
    assert "no prediction above 4 ranks on 2 nodes" in shown.out
    table = shown.out.partition("nodes  ranks")[2].partition("\n\n")[0].splitlines()[1:]
    assert [tuple(line.split()[:2]) for line in table] == [
        ("1", "1"),
        ("1", "2"),
        ("2", "1".replace("1", "2")),
        ("2", "4"),
    ]
    assert len(list(work.directory.glob("forgotten-*"))) == 2, "each node has forgotten"
    work.nothing_left()


@pytest.mark.slow
def test_prefix_image_and_staged_image_are_shown_side_by_side(tmp_path: Path) -> None:
    """In Apptainer, where strace does not exist: names are those that Python tells of, and that is said."""
    try:
        image, environment = images.image_sif(), images.environ()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    (tmp_path / "site.yaml").write_text(
        "name: here\nscheduler: {kind: none}\n"
        f"launch: {{container: {{runtime: apptainer, binds: [{sys.base_prefix}], "
        f'variables: {{PATH: "{sys.base_prefix}/bin:/usr/bin:/bin"}}}}}}\n'
    )
    words = ("--with", f"prefix=plain:{sys.prefix},image={image}", "--staged", *HERE, "-r", "1", "--json")
    own = {"STACKYARD_HOME": str(tmp_path / "yard"), **{n: environment[n] for n in ("PATH", "APPTAINER_USERNS")}}
    done = stackyard("--site", tmp_path / "site.yaml", "bench", "imports", *words, cwd=tmp_path, **own)
    found = {storm["variant"]: storm for storm in done.value}
    assert list(found) == ["prefix", "image", "image-staged"]
    assert [storm["one"]["counted_by"] for storm in found.values()] == ["strace", "audit", "audit"]
    assert all("names are those that Python tells of" in "".join(found[name]["sentences"]) for name in list(found)[1:])
    staged = list((tmp_path / "runs").glob("*/stage.json"))
    assert len(staged) == 4, "the first, the next, the counted and the measured import of the staged image"
