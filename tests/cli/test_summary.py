"""What a deploy prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stackyard.cli.publish.summary import show_deploy
from stackyard.deploy.api import Outcome, Result
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import Manifest
from support.stackrecords import entry, record


@pytest.mark.parametrize("labels", [{"deprecated": "2021-06-30 use new"}, {"hidden": True}, {"retired": "2027-01-01"}])
def test_the_module_to_load_is_one_that_users_are_offered(
    labels: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, old = record(Yard(tmp_path), "new", "1"), record(Yard(tmp_path), "old", "1")
    outcomes = [Outcome(made.module, "published", made.path, record=made) for made in (new, old)]
    for manifest, name in (
        (Manifest(1, "", "", (entry(new), entry(old, **labels))), "new"),
        (Manifest(1, "", "", (entry(new), entry(old))), "old"),
        (Manifest(1, "", "", (entry(new, **labels), entry(old, **labels))), "old"),
    ):
        show_deploy(Result(outcomes, 1, manifest), [tmp_path / "modules"], "stackyard")
        out = capsys.readouterr().out
        assert f"module load {name}\n" in out and f"stackyard run {name} -- " in out
