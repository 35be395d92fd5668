"""The lock of a file in a directory that is read-only for whoever deploys it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stackyard.yard import checksum
from stackyard.yard.layout import Yard
from support.accounts import Accounts
from support.tinywheel import wheel

pytestmark = pytest.mark.real


@pytest.mark.parametrize("former", [False, True], ids=["written now", "of a former version"])
def test_a_wheel_beside_the_file_is_found_by_the_lock_that_the_yard_keeps(
    accounts: Accounts, common: Path, former: bool
) -> None:
    user, directory = accounts.user("reader"), common / "src"
    made = wheel(directory / "wheels", "leaf", "1.0")
    python = {"source": "host", "path": os.path.realpath(accounts.bin / "python")}
    pip = ["--no-index", f"./wheels/{made.name}"]
    value = {"name": "demo", "version": "1", "interpreter": python, "environment": {"dependencies": [{"pip": pip}]}}
    (directory / "stack.yaml").write_text(json.dumps(value))
    (common / "site.yaml").write_text("modules: {formats: [tcl]}\n")
    yard = Yard(user.home / "yard")
    words = ("--site", str(common / "site.yaml"), "--yard", str(yard.root), "deploy", str(directory / "stack.yaml"))
    user.stackyard(*words)
    kept = yard.lock_of(directory / "stack.yaml.lock")
    text = checksum.read(kept)
    assert f'url = "{made.as_uri()}"' in text
    if former:
        kept.write_text(checksum.add(text.replace(made.as_uri(), f"file://./wheels/{made.name}")))
    again = user.stackyard(*words, "--rebuild")
    assert "demo/1-py3-2" in again.out
    user.stackyard(*words, "--locked")
