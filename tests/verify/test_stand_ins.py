"""No other program stands in for ours beside a prefix: commands on PATH, what asks for licences, checks' scripts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stackyard.expose.published import present_change, write_beside, write_change
from stackyard.host.files.hashing import sha256_file
from stackyard.images.squashfs.launcher import compare
from stackyard.inputs.models import Site
from stackyard.upkeep.health import restore_record as repairing
from stackyard.verify import expectations
from stackyard.verify.checks import revisionfiles as beside
from stackyard.verify.expectations import Expectations
from stackyard.yard.generation import generations
from stackyard.yard.kinds.payload import Form
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from support import smallyard
from support.cli import inside

LICENCE = {"name": "EULA", "variable": "EULA_ACCEPTED", "sha256": "a" * 64}


@dataclass
class Bed:
    """A published revision that offers a command, whose licence each user accepts."""

    yard: Yard
    site: Site
    record: BuildRecord

    @property
    def paths(self) -> RevisionPaths:
        return RevisionPaths.of(self.record.path)

    def found(self) -> dict[str, str]:
        """What is wrong, by file."""
        lines = (line.partition(": ") for line in beside.problems(self.record))
        return {os.path.relpath(path, self.record.path): text for path, _, text in lines}


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    yard, site = Yard(tmp_path / "yard"), Site(yard=str(tmp_path / "yard"))
    record = smallyard.build(yard, "tool", "1.0")
    record = replace(record, settings={"commands": ["hello"]}, licences=(LICENCE,))
    revisions.mark(record)
    made = Bed(yard, site, record)
    write_beside(record, site)
    write_change(record, present_change(record, site))
    assert made.found() == {} and sorted(os.listdir(made.paths.asking)) == [".ask", "hello"]
    return made


def another_command(paths: RevisionPaths) -> None:
    """First on PATH for everybody who loads the module."""
    shutil.copy("/bin/true", paths.commands / "ls")


def another_that_asks(paths: RevisionPaths) -> None:
    (paths.asking / "ls").symlink_to(".ask")


def a_link_to_the_same_text(paths: RevisionPaths) -> None:
    (paths.commands / "hello").rename(paths.root.parent / "hello")
    (paths.commands / "hello").symlink_to(paths.root.parent / "hello")


def a_program_that_others_may_write(paths: RevisionPaths) -> None:
    (paths.commands / "hello").chmod(0o777)


def another_program(paths: RevisionPaths) -> None:
    (paths.commands / "hello").unlink()
    shutil.copy("/bin/true", paths.commands / "hello")
    (paths.commands / "hello").chmod(0o555)


def a_pipe(paths: RevisionPaths) -> None:
    (paths.commands / "hello").unlink()
    os.mkfifo(paths.commands / "hello")


def one_that_does_not_ask(paths: RevisionPaths) -> None:
    (paths.asking / "hello").unlink()
    (paths.asking / "hello").symlink_to("/bin/true")


def a_program_in_place_of_the_link(paths: RevisionPaths) -> None:
    (paths.asking / "hello").unlink()
    shutil.copy("/bin/true", paths.asking / "hello")


def nothing_that_asks(paths: RevisionPaths) -> None:
    """Then the command behind it starts, and no licence was accepted."""
    shutil.rmtree(paths.asking)


HARMS: dict[Callable[[RevisionPaths], None], tuple[str, str]] = {
    another_command: ("commands/ls", "was added"),
    another_that_asks: ("asking/ls", "was added"),
    a_link_to_the_same_text: ("commands/hello", "is a link to "),
    a_program_that_others_may_write: ("commands/hello", "mode 0777 instead of 0555"),
    another_program: ("commands/hello", "the file was changed"),
    a_pipe: ("commands/hello", "is not a file"),
    one_that_does_not_ask: ("asking/hello", "is a link to /bin/true"),
    a_program_in_place_of_the_link: ("asking/hello", "is not a link to .ask"),
    nothing_that_asks: ("asking/hello", "No such file"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_it_is_found_and_mended(bed: Bed, harm: Callable[[RevisionPaths], None]) -> None:
    harm(bed.paths)
    name, text = HARMS[harm]
    assert text in bed.found()[name]
    assert repairing.restore_rest(bed.record, bed.site)
    assert bed.found() == {} and not (bed.paths.commands / "ls").exists()
    assert (bed.paths.asking / "hello").readlink() == Path(".ask")


def test_a_file_that_is_being_written_is_none(bed: Bed) -> None:
    (bed.paths.commands / ".hello.0a0a0a-4d2-1e240-0b0b0b.tmp").touch()
    assert bed.found() == {}


def test_a_script_of_a_check_that_lets_everything_pass(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "check.sh").write_text("#!/bin/sh\nexit 1\n")
    check = {"name": "it works", "script": str(tmp_path / "check.sh")}
    expectations.keep(bed.record, Expectations((check,), {}))
    (script,) = bed.paths.check_scripts.iterdir()
    assert bed.found() == {}
    script.write_text("#!/bin/sh\nexit 0\n")
    assert "was changed after it was kept" in bed.found()[f"checks/{script.name}"]
    script.unlink()
    script.symlink_to(tmp_path / "check.sh")
    assert "was changed after it was kept" in bed.found()[f"checks/{script.name}"]


def test_the_interpreter_of_the_yard_is_the_one_that_it_was_built_with(bed: Bed) -> None:
    """That uv installed, and each revision on it runs."""
    program = bed.yard.pythons / "cpython-3.12.1/bin/python3.12"
    program.parent.mkdir(parents=True)
    shutil.copy("/bin/false", program)
    (bed.yard.pythons / "cpython-3.12").symlink_to("cpython-3.12.1")
    path = bed.yard.pythons / "cpython-3.12/bin/python3.12"
    uv = {"source": "uv", "path": str(path), "version": "3.12.1", "sha256": sha256_file(program)}
    bed.record = replace(bed.record, interpreter=uv)
    assert bed.found() == {}
    shutil.copy("/bin/true", program)
    assert list(bed.found().values()) == ["is another program than the one that the record names"]
    program.unlink()
    assert "No such file" in next(iter(bed.found().values()))
    bed.record = replace(bed.record, interpreter={**uv, "source": "host"})
    assert bed.found() == {}, "that of the machine gets updates"


def test_nothing_is_read_through_a_launcher_that_is_another_program(bed: Bed, tmp_path: Path) -> None:
    """What a command's script must hold is read in the image, by its launcher."""
    form = Form("squashfs", "image.sqsh", launcher="0" * 64)
    record = replace(bed.record, form=form)
    bed.paths.launcher.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    bed.paths.launcher.chmod(0o555)
    assert compare.problem(record) is not None
    list(beside.problems(record))
    assert not (tmp_path / "was-run").exists()


def test_a_modulefile_that_is_a_link_to_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns what it leads to decides later what loading does."""
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    yard = smallyard.make(tmp_path / "yard", "1.0")
    file = yard.generation(generations.current_number(yard)).modules / "tool/1.0-py311-1"
    shutil.copy(file, tmp_path / "copy")
    file.unlink()
    file.symlink_to(tmp_path / "copy")
    for words in (("fsck",), ("verify", "--json")):
        said = inside("--yard", yard.root, *words, expect=3).out
        assert f"is a link to {tmp_path}/copy" in said
    inside("--yard", yard.root, "fsck", "--repair")
    inside("--yard", yard.root, "fsck")
