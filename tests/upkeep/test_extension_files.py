"""The files of an extension on bad days: a full disk while they change, a kill while what drifted is removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.make.layer import pth_of_drift
from stackyard.upkeep.extensions import drift
from stackyard.upkeep.extensions import file as extending
from stackyard.upkeep.extensions.file import ExtensionRequest, Files
from stackyard.yard.kinds.extension import BaseRevision, Layer
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic
from support import stackrecords


@pytest.mark.parametrize("number", [1, 2])
def test_a_full_disk_leaves_the_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    made = extending.made("mine", "sci", ExtensionRequest(pip=("six",)))
    made.write(tmp_path)
    atomic._hits.clear()
    monkeypatch.setenv("STACKYARD_FAULT", f"write:{number}:enospc")
    more = ExtensionRequest(pip=("idna",), conda=("zlib",))
    with pytest.raises(OSError, match="No space"), extending.changed(tmp_path, lambda f: extending.with_more(f, more)):
        pytest.fail("nothing is deployed")
    assert Files.read(tmp_path) == made


def test_what_drifted_is_removed_around_what_its_python_needs(tmp_path: Path) -> None:
    """The file by which it finds the layer is there at every moment, so a kill at none of them loses it."""
    record = stackrecords.record(Yard(tmp_path), "mine", "1.0", 1)
    record = replace(
        record, base=BaseRevision("/sw", "sci/1.0", "0", "/sw/x"), interpreter={"version": "3.11.7", "source": "host"}
    )
    layer = record.payload
    assert isinstance(layer, Layer)
    packages = layer.drift.site_packages("3.11.7")
    (packages / "six-1.17.0.dist-info").mkdir(parents=True)
    (packages.parents[1] / "other").mkdir()
    kept = packages / "_stackyard_layer.pth"
    kept.write_text(pth_of_drift(layer.site_packages("3.11.7")))
    (layer.drift.root / "pyvenv.cfg").write_text("")
    before = kept.stat()
    assert [one.name for one in drift.reset(record)] == ["six"]
    assert [path.name for path in layer.drift.root.rglob("*") if path.is_file()] == ["pyvenv.cfg", kept.name]
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (packages.parents[1] / "other").exists()
    text = kept.read_text()
    kept.unlink()  # a reset that was killed, by a former version
    drift.reset(record)
    assert kept.read_text() == text
