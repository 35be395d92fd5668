"""The kinds of cache: the table covers every directory of a cache, audits find changes, leftovers are recognised."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.yard.cache import notes
from stackyard.yard.cache.audit import audit, unfinished
from stackyard.yard.cache.caches import CONDA, KINDS, content_hash, searched
from stackyard.yard.layout import Yard, is_yard, own_part
from stackyard.yard.revision import contents
from support.accounts import Account, Accounts


def put(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


def package(yard: Yard) -> Path:
    directory = yard.package("tool-1.0-0")
    digest = put(directory / "bin/tool", "one")
    put(directory / "info/paths.json", json.dumps({"paths": [{"_path": "bin/tool", "sha256": digest}]}))
    put(yard.package_note("tool-1.0-0"), "note")
    return directory / "bin/tool"


def source(yard: Yard) -> Path:
    path = yard.source(hashlib.sha256(b"one").hexdigest(), "tool-1.0.tar.gz")
    put(path, "one")
    return path


def wheel(yard: Yard) -> Path:
    directory = yard.wheel("abcdef", "0123")
    digest = put(directory / "tool.whl", "one")
    put(directory / "meta.json", json.dumps({"wheel": "tool.whl", "sha256": digest}))
    return directory / "tool.whl"


def bytecode(yard: Yard) -> Path:
    directory = yard.bytecode_of("cpython-311-a70d0d0a", "abcdef")
    put(directory / "lib/a.pyc", "one")
    put(
        directory / "files.json",
        json.dumps({"files": ["lib/a.pyc"], "content": content_hash(directory, ["lib/a.pyc"])}),
    )
    return directory / "lib/a.pyc"


def unpacked_wheel(yard: Yard) -> Path:
    directory = yard.uv / "archive-v0" / "xyz"
    put(directory / "tool.py", "one")
    put(directory / "tool-1.dist-info/RECORD", "tool.py,sha256=dpLDrTVAu4A8Ags67mbNiIcSMjTqDG5xQ8Ct1z_0Me0,3\n")
    return directory / "tool.py"


ENTRIES = [package, source, wheel, bytecode, unpacked_wheel]


def test_every_cache_of_the_layout_is_in_the_table(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    paths = {value for name in vars(Yard) if isinstance(value := getattr(yard, name), Path)}
    assert {kind.directory(yard) for kind in KINDS} == {path for path in paths if path.parent == yard.cache}
    assert [kind.directory(yard).name for kind in KINDS] == [kind.name for kind in KINDS]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_audit_finds_what_was_changed(tmp_path: Path, entry: Callable[[Yard], Path]) -> None:
    yard = Yard(tmp_path)
    file = entry(yard)
    assert audit(yard) == []
    file.write_text("two")
    (problem,) = audit(yard)
    assert problem.endswith(" has changed") and str(file).startswith(problem.removesuffix(" has changed"))


@pytest.mark.parametrize("entry", [package, wheel, bytecode])
def test_an_audit_names_an_entry_that_it_cannot_check(tmp_path: Path, entry: Callable[[Yard], Path]) -> None:
    yard = Yard(tmp_path)
    entry(yard)
    for name in ("meta.json", "files.json", "paths.json"):
        for listing in yard.cache.rglob(name):
            listing.write_text("{")
    (problem,) = audit(yard)
    assert "cannot be checked" in problem


def test_an_audit_goes_on_after_an_entry_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path)
    changed = bytecode(yard)
    notes.write(yard, CONDA, package(yard).parents[1])
    changed.write_text("two")

    def fails(root: Path) -> contents.Tree:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(root))

    monkeypatch.setattr(contents, "scan", fails)
    first, second = audit(yard)
    assert "tool-1.0-0 cannot be checked: [Errno 5]" in first and second.endswith("has changed")


def test_leftovers_are_told_from_entries(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    for entry in ENTRIES:
        entry(yard)
    put(yard.conda / ".cache.lock", "")
    put(yard.memo("0123"), "{}")
    assert unfinished(yard) == []
    halves = [
        yard.conda / ".tool",
        yard.source("abc", ".x.part"),
        yard.wheel("abcdef").with_name(".abcdef.12"),
        yard.wheel_work("abcdef"),
        yard.bytecode_of("cpython-311-a70d0d0a", "abcdef").with_name(".abcdef.12"),
        yard.uv / "archive-v0" / ".xyz.12",
        yard.memo("0123").with_name(".0123.json.tmp"),
    ]
    for path in halves:
        put(path, "")
    found = unfinished(yard)
    assert found == sorted(halves)


def test_a_file_that_cannot_be_looked_up_is_not_called_missing(tmp_path: Path) -> None:
    directory = package(Yard(tmp_path)).parent
    (directory / "tool").unlink()
    assert audit(Yard(tmp_path)) == [f"{directory / 'tool'} is missing"]
    directory.rmdir()
    directory.symlink_to(directory)
    (problem,) = audit(Yard(tmp_path))
    assert problem.startswith(f"{directory.parent} cannot be checked: ") and "symbolic links" in problem


def test_a_yard_is_recognised_before_and_after_its_first_deploy(tmp_path: Path) -> None:
    assert not is_yard(tmp_path)
    for number, sign in enumerate(("leases", "cache/uv", "cache/repodata")):
        put(tmp_path / str(number) / sign / "file", "")
        assert is_yard(tmp_path / str(number))
    (tmp_path / "stacks").mkdir()
    assert not is_yard(tmp_path)
    (tmp_path / "generations").mkdir()
    assert is_yard(tmp_path)


def test_each_account_but_the_caches_owner_has_a_part_of_its_own(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna"), accounts.user("bert")
    yard = Yard(common / "yard")
    code = (
        "import sys; from pathlib import Path; "
        "from stackyard.yard.layout import Yard, own_part; print(own_part(Yard(Path(sys.argv[1]))).conda)"
    )

    def directory(account: Account) -> str:
        return account.python(code, yard.root).out.strip()

    assert directory(anna) == str(yard.conda), "no cache yet"
    yard.conda.mkdir(parents=True)
    os.chown(yard.cache, anna.uid, anna.gid)
    assert directory(anna) == str(yard.conda)
    assert directory(bert) == f"{yard.cache}/accounts/{bert.uid}/conda"
    assert own_part(yard).conda == yard.cache / "accounts/0/conda", "staff could not link what root writes there"
    for name in ("0", str(bert.uid)):
        (yard.cache / "accounts" / name).mkdir(parents=True)
    child = Yard(common / "child", yard)
    assert [each.cache for each in searched(child)] == [
        child.cache, yard.cache, yard.cache / "accounts/0", yard.cache / f"accounts/{bert.uid}",
    ]  # fmt: skip
    assert next(iter(searched(own_part(yard)))).cache == yard.cache / "accounts/0", "one's own first"


def test_a_cache_that_an_account_may_not_read_is_not_searched(accounts: Accounts, common: Path) -> None:
    site = Yard(common / "site")
    for part in (site, replace(site, account="1"), replace(site, account="2")):
        part.conda.mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path; from stackyard.yard.cache.caches import searched;"
        "from stackyard.yard.layout import Yard;"
        "print(*(part.account or part.root.name for part in searched(Yard(Path('own'), Yard(Path(sys.argv[1]))))))"
    )

    def found() -> str:
        return accounts.user("anna").python(code, site.root).out.strip()

    assert found() == "own site 1 2"
    replace(site, account="1").cache.chmod(0o700)
    assert found() == "own site 2"
    site.cache.chmod(0o700)
    assert found() == "own"
