"""A remembered deploy is believed only while nothing it saw has changed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.deploy import memo
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import Entry, Manifest
from support.accounts import Accounts


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    directory = tmp_path / "stacks" / "s" / "1-1"
    directory.mkdir(parents=True)
    for name in ("record.json", "module.json", "condarc"):
        (directory / name).write_text("{}")
    return Entry("s", "1", "", 1, "s/1-1", str(directory), "now")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stack.yaml"
    path.write_text("name: s\n")
    return path


def test_it_holds_until_a_file_changes(tmp_path: Path, file: Path, entry: Entry) -> None:
    kept, manifest = tmp_path / "memo.json", Manifest(1, "now", "deploy", (entry,))
    assert memo.recall(kept, manifest) is None
    memo.remember(kept, memo.digests([str(file), str(tmp_path / "pip.conf")]), ["s/1-1"], manifest)
    assert memo.recall(kept, manifest) == ["s/1-1"]
    (tmp_path / "pip.conf").write_text("")
    assert memo.recall(kept, manifest) is None
    below = str(file / "pip.conf")
    assert memo.digests([below]) == {below: ""}, "a file where its directory could be"


@pytest.mark.parametrize("change", [{"state": "withdrawn"}, {"superseded": True}, {"deprecated": "2027-01-31 use 2"}])
def test_it_does_not_hold_after_another_deploy_changed_the_entry(
    tmp_path: Path, file: Path, entry: Entry, change: dict[str, Any]
) -> None:
    kept, manifest = tmp_path / "memo.json", Manifest(1, "now", "deploy", (entry,))
    memo.remember(kept, memo.digests([str(file)]), ["s/1-1"], manifest)
    assert memo.recall(kept, Manifest(2, "later", "deploy t", (entry, replace(entry, stack="t", module="t/1-1"))))
    assert memo.recall(kept, Manifest(2, "later", "deploy", (replace(entry, **change),))) is None
    assert memo.recall(kept, Manifest(2, "later", "deploy s", (entry, replace(entry, module="s/1-2")))) is None
    assert memo.recall(kept, None) is None
    Path(entry.folder, "record.json").unlink()
    assert memo.recall(kept, manifest) is None


@pytest.mark.parametrize("name", ["module.json", "condarc"])
def test_it_does_not_hold_where_a_deploy_would_write_something(
    tmp_path: Path, file: Path, entry: Entry, name: str
) -> None:
    kept, manifest = tmp_path / "memo.json", Manifest(1, "now", "deploy", (entry,))
    memo.remember(kept, memo.digests([str(file)]), ["s/1-1"], manifest)
    Path(entry.folder, name).unlink()
    assert memo.recall(kept, manifest) is None


def test_a_damaged_memo_is_ignored(tmp_path: Path, entry: Entry) -> None:
    (tmp_path / "memo.json").write_text("{")
    assert memo.recall(tmp_path / "memo.json", Manifest(1, "now", "deploy", (entry,))) is None


def test_other_options_and_other_pip_variables_are_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    one = memo.memo_path(yard, {"files": ["a"], "version": None})
    assert memo.memo_path(yard, {"files": ["a"], "version": None}) == one
    assert memo.memo_path(yard, {"files": ["a"], "version": "2"}) != one
    with monkeypatch.context() as patched:
        patched.setattr("platform.machine", lambda: "ppc64le")
        assert memo.memo_path(yard, {"files": ["a"], "version": None}) != one
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1/simple")
    assert memo.memo_path(yard, {"files": ["a"], "version": None}) != one


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"modules": 3}', "[" * 100_000, '{"modules": ["s/1-1"], "files": []}']
)
def test_a_damaged_memo_does_not_hold(tmp_path: Path, file: Path, entry: Entry, text: str) -> None:
    kept, manifest = tmp_path / "memo.json", Manifest(1, "now", "deploy", (entry,))
    memo.remember(kept, memo.digests([str(file)]), ["s/1-1"], manifest)
    kept.write_text(text)
    assert memo.recall(kept, manifest) is None


def test_a_configuration_of_pips_that_you_may_not_read_is_passed_over(accounts: Accounts, common: Path) -> None:
    """As pip does; one that does not exist is looked for at the next deploy."""
    closed, absent = common / "closed.conf", common / "absent.conf"
    closed.touch(0o600)
    code = (
        "import sys\nfrom stackyard.deploy import inputs\n"
        "inputs.PIP_CONFIGS = tuple(sys.argv[1:])\nprint(*inputs.as_read([], inputs.Site()))"
    )
    assert accounts.user("anna").python(code, closed, absent).out.split() == [str(absent)]
