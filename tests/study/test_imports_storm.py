"""``bench imports`` on a late file system: one mount per "node", whose server serves one operation at a time.

All "nodes" are ranks of this machine, each with names of its own; before each measurement they forget them.
"""

from __future__ import annotations

import compileall
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.study.imports.model import Cores, Point, fitted
from support.cli import Done, stackyard
from support.programs import need

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import slow

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK), reason="needs root, to mount FUSE"),
]
NODES, MODULES, SERVER_US, FAR_US = 24, 12, 10_000, 20_000
LAST, FITTED = 24, (1, 4, 12)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Path]:
    """A directory with a Python for each rank's own mount, one without, and a site."""
    need("gcc", "pkg-config", "libfuse3")
    package = tmp_path / "tree" / "storm"
    package.mkdir(parents=True)
    for number in range(MODULES):
        (package / f"m{number}.py").write_text("")
    (package / "__init__.py").write_text("".join(f"from storm import m{number}\n" for number in range(MODULES)))
    compileall.compile_dir(package, quiet=1)
    interpreter = Path(sys.executable).resolve()
    for name, path in (("far", f"{tmp_path}/node-$RANK"), ("near", package.parent)):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {interpreter} "$@"\n')
        python.chmod(0o755)
    (tmp_path / "site.yaml").write_text(
        "name: here\nnodes: {cpu: {platform: linux-64, cores: 2}}\nscheduler: {kind: none}\n"
    )
    slow.build(tmp_path / "slow_fs")
    places = [tmp_path / f"node-{number}" for number in range(NODES)]
    with slow.nodes(tmp_path / "slow_fs", tmp_path / "tree", places, SERVER_US, FAR_US):
        yield tmp_path


def imports(bed: Path, *words: str | Path, expect: int = 0) -> Done:
    return stackyard("--site", bed / "site.yaml", "bench", "imports", "--repeat", "1", *words, cwd=bed, expect=expect,
                     STACKYARD_HOME=str(bed / "yard"))  # fmt: skip


@pytest.mark.long
def test_the_model_fitted_to_fewer_predicts_more_on_a_late_file_system(bed: Path) -> None:
    forget = f"for node in {bed}/node-*; do [ ! -d $node ] || mount -i -o remount $node; done"
    sizes = ",".join(map(str, (*FITTED, LAST)))
    done = imports(bed, "--with", f"far=plain:{bed}/far", "--module", "storm", "-r", sizes, "--cold", forget, "--json")
    (storm,) = done.value
    one: dict[str, Any] = storm["one"]
    assert one["counted_by"] == "strace" and one["calls"] > one["names"] > MODULES
    assert one["file_systems"]["fuse.slow_fs"] >= 2 * MODULES, "each module has two names that are looked up"
    assert one["read_bytes"] > 0 and one["mapped_bytes"] > 0 and 0 < one["cpu_s"] < storm["first_s"]
    points = [replace(Point(**point), waited_s=0) for point in storm["points"]]  # other tests run on these cores too
    assert [point.per_node for point in points] == [*FITTED, LAST]
    cores = Cores(one["cpu_s"], 2)
    fit = fitted(points[:-1], cores)
    assert fit is not None and fit.who == "ranks" and fit.most == FITTED[-1]
    assert fit.seconds(1, LAST, cores) == pytest.approx(points[-1].seconds, rel=0.25)
    words = "\n".join(storm["sentences"])
    if storm["fit"] is None:
        assert "ranks waited for cores in" in words and "100,000 ranks" not in words
    else:
        assert [line["ranks"] for line in storm["predicted"]] == [1000, 100_000]
        assert "each rank asks" in words and "\n100,000 ranks: " in words and "one server" in words


def test_nothing_is_predicted_where_the_server_is_not_loaded(bed: Path) -> None:
    shown = imports(bed, "--with", f"near=plain:{bed}/near", "--module", "storm", "-r", "1,2")
    assert "the server was not loaded: no prediction above 2 ranks on 1 node" in shown.out
    assert "names by file system:" in shown.out and "100,000" not in shown.out
    failed = imports(bed, "--with", f"near=plain:{bed}/near", "--module", "tempest", "-r", "1", expect=1)
    assert "cannot measure near" in failed.err and "stackyard runs show" in failed.err
    planned = imports(bed, "--with", f"near=plain:{bed}/near", "-r", "1,2", "--dry-run", "--json").value
    assert [(row["nodes"], row["ranks_per_node"], row["repeat"]) for row in planned] == [(1, 1, 1), (1, 2, 1)]
    unknown = imports(bed, "--with", f"plain:{bed}/nowhere", expect=2)
    assert "nowhere has no bin/python" in unknown.err
