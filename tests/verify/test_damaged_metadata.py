"""Damaged metadata of packages, and what stops a verification: reported, never a traceback, never passed in silence."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.host.machine.probe import machine
from stackyard.inputs.workspace import Workspace
from stackyard.verify.checks.consistency import check_consistency
from stackyard.verify.checks.distributions import distributions
from stackyard.verify.checks.yardfiles import modulefiles
from stackyard.verify.context import Context, Exceptions, Python
from stackyard.verify.expectations import Expectations, in_force, keep
from stackyard.verify.report import stopped, without_record
from stackyard.yard import formats
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from support import stackrecords


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A prefix with one record of conda and one distribution, without an interpreter."""
    record = stackrecords.record(Yard(tmp_path / "yard"), "s", "1")
    meta, info = Path(record.prefix) / "conda-meta", Path(record.prefix) / "site" / "demo-1.0.dist-info"
    meta.mkdir(parents=True)
    info.mkdir(parents=True)
    (meta / "six-1-0.json").write_text(json.dumps({"name": "six", "version": "1", "files": []}))
    (info / "RECORD").write_text("demo/__init__.py,,\n")
    (info / "entry_points.txt").write_text("[console_scripts]\ndemo = demo:main\n")
    (info / "top_level.txt").write_text("demo\n")
    python = Python(Path("/usr/bin/python3"), "3.11", (info.parent,))
    return Context(record, None, machine(), {}, tmp_path, Exceptions(), python)


@pytest.mark.parametrize("content", [b"", b'{"name": "si', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_record_of_conda_is_reported_and_stops_no_other_check(context: Context, content: bytes) -> None:
    (context.prefix / "conda-meta" / "bad-1-0.json").write_bytes(content)
    assert [record["name"] for record in context.conda_records()] == ["six"]
    found = check_consistency(replace(context, python=None))
    assert [(check.name, check.status) for check in found if check.status == "failed"] == [("conda", "failed")]


def test_a_conda_meta_that_cannot_be_read_is_not_passed_in_silence(context: Context) -> None:
    (context.prefix / "conda-meta" / "six-1-0.json").unlink()
    (context.prefix / "conda-meta").rmdir()
    assert check_consistency(replace(context, python=None)) == []
    (context.prefix / "conda-meta").write_text("")  # for root, who may enter every directory
    with pytest.raises(NotADirectoryError):  # `stopped` reports it: another account may be able to read it
        check_consistency(replace(context, python=None))


@pytest.mark.parametrize("name", ["RECORD", "entry_points.txt", "top_level.txt"])
@pytest.mark.parametrize("content", [b"\xff\xfe,,\n", b"\0,,\n", b'"' + b"x" * 200_000])
def test_damaged_metadata_of_a_wheel_is_no_traceback(context: Context, name: str, content: bytes) -> None:
    info = context.prefix / "site" / "demo-1.0.dist-info"
    (info / name).write_bytes(content)
    assert "demo" in {one.name for one in distributions(context)}


def test_a_report_says_what_stopped_the_verification(tmp_path: Path) -> None:
    entry = stackrecords.entry(stackrecords.record(Yard(tmp_path), "s", "1"))
    full = OSError(errno.ENOSPC, "No space left on device", "/tmp/x")
    denied = OSError(errno.EACCES, "Permission denied", "/yard/x")
    (check,) = stopped(entry, StackyardError("cannot read module.json", hint="restore it")).checks
    assert (check.status, check.detail, check.remedy) == ("skipped", "cannot read module.json", "restore it")
    assert [stopped(entry, error).checks[0].remedy for error in (full, denied, OSError(errno.EIO, "x", "y"))] == [
        "free some space and verify it again",
        "verify it as an account that can read all its files",
        "verify it again once the file system answers",
    ]


def test_a_record_that_the_file_system_does_not_give_is_not_a_damaged_one(tmp_path: Path) -> None:
    entry = stackrecords.entry(stackrecords.record(Yard(tmp_path), "s", "1"))
    path, kind = RevisionPaths.of(entry.folder).record, formats.Kind(1, lambda value: value)
    for found, expected in ((tmp_path, "skipped"), (path, "failed")):
        with pytest.raises(StackyardError) as caught:
            formats.load(found, kind)
        assert without_record(entry, caught.value).checks[0].status == expected


def test_a_modulefile_that_cannot_be_read_is_a_problem_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stackyard.deploy.generation import Step
    from stackyard.deploy.published.rollback import publish
    from stackyard.inputs.models import Site
    from stackyard.inputs.sites.sitemodels import ModulePolicy
    from stackyard.yard.revision import revisions

    yard, site = Yard(tmp_path / "yard"), Site(modules=ModulePolicy(formats=("tcl",)))
    record = stackrecords.record(yard, "s", "1")
    revisions.mark(record)
    publish(Workspace(site, yard), lambda _: Step((stackrecords.entry(record),), "deploy"))

    def fail(path: Path) -> str:
        raise StackyardError(f"cannot read {path}: Input/output error")

    monkeypatch.setattr("stackyard.verify.checks.yardfiles.sha256_file", fail)
    assert all("Input/output error" in problem for problem in modulefiles(yard)) and list(modulefiles(yard))


def test_a_script_of_a_check_is_kept_once_and_readable(tmp_path: Path) -> None:
    record = stackrecords.record(Yard(tmp_path / "yard"), "s", "1")
    script = tmp_path / "probe.sh"
    script.write_text("exit 0\n")
    for mode, kept_mode in ((0o500, 0o755), (0o600, 0o755)):
        script.chmod(mode)
        keep(record, Expectations(({"name": "probe", "script": str(script)},)))
        (kept,) = RevisionPaths.of(record.path).check_scripts.iterdir()
        assert kept.stat().st_mode & 0o777 == kept_mode & ~_umask(), "the first copy stays"
    assert in_force(record).checks[0]["script"] == str(kept)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
