"""An extension of a base whose files are in an image: solved, built, loaded and verified where that is mounted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from extendbed import Bed
from extendbed import bed as new_bed

from stackyard.yard.revision.record import read_record
from support import programs

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Iterator[Bed]:
    for name in ("mksquashfs", "squashfuse", "unshare", "lmod"):
        programs.need(name)
    made = new_bed(tmp_path_factory.mktemp("extend-image"), real_channel)
    made.publish_text(
        "name: sci\nversion: '1.0'\nimage: squashfs\ninterpreter: {source: host}\nenvironment:\n"
        "  dependencies: [{pip: [pygments, idna, pytest]}]\n"
    )
    yield made


@pytest.mark.long
def test_a_base_in_an_image_is_extended_like_any_other(published: Bed) -> None:
    done = published.user("extend", "--base", "sci", "--name", "mine", "--pip", "rich")
    assert "failed" not in done.out
    record = read_record(Path(published.user("show", "mine", "--json").value["path"]) / "record.json")
    assert record.base is not None and record.base.form == "squashfs"
    assert {p.name for p in record.own_packages} == {"rich", "markdown-it-py", "mdurl"}
    (published.directory / "test_layer.py").write_text("import rich, idna\n\n\ndef test_it(): assert rich and idna\n")
    shown = published.loaded(
        "mine", "python -c 'import rich, idna; print(idna.__file__)'", "pytest -q -p no:cacheprovider test_layer.py",
        "pip install -q six && python -c 'import six, idna; print(six.__file__)'", "stackyard status",
    )  # fmt: skip
    assert f"{published.site_yard}/stacks/sci/" in shown and "1 passed" in shown
    assert "/drift/lib/" in shown and "+ six 1.17.0" in shown
    assert "rich" in published.user("run", "mine", "--", "python", "-c", "import rich, idna; print(rich)").out
    assert published.user("verify", "mine").code == 0
    assert "nothing is wrong" in published.user("fsck", "--deep").out
    assert "nothing is wrong" in published.staff("fsck", "--deep").out
