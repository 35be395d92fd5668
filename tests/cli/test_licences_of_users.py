"""A licence that each user accepts: asked once, by whichever command of the stack comes first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from stackyard.yard.write import atomic
from support.atterminal import answered
from support.cli import STACKYARD, Done, stackyard
from support.tinywheel import wheel

SHOWS = ("--", "sh", "-c", "echo accepted=$DEMO_ACCEPT")


@dataclass(frozen=True)
class Bed:
    """The site's yard, in which staff published a stack with a licence, and a user's yard below it."""

    directory: Path

    def run(self, *words: str | Path, expect: int = 0, yard: str = "mine", **variables: str) -> Done:
        given = ("--site", self.directory / "site.yaml", "--yard", self.directory / yard)
        return stackyard(*given, *words, expect=expect, **variables)

    def on_terminal(self, *words: str | Path, says: str, out: IO[str] | None = None, yard: str = "mine") -> str:
        """What a person sees who types this and answers; `out`: where they sent the output."""
        argv = [STACKYARD, "--site", self.directory / "site.yaml", "--yard", self.directory / yard, *words]
        environ = {**os.environ, "PAGER": "cat"}
        return answered(lambda at: subprocess.Popen(argv, stdin=at, stdout=out or at, stderr=at, env=environ), says)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    bed = Bed(tmp_path_factory.mktemp("licences"))
    (bed.directory / "site.yaml").write_text(f"yard: {bed.directory}/site\nmodules: {{formats: [tcl]}}\n")
    stack = bed.directory / "demo" / "stack.yaml"
    stack.parent.mkdir()
    (stack.parent / "terms.txt").write_text("You may, if you say so.\n")
    licence = {"name": "Terms", "text": "terms.txt", "variable": "DEMO_ACCEPT"}
    value = {"name": "demo", "version": "1", "interpreter": {"source": "host", "path": sys.executable}}
    pip = ["--no-index", f"--find-links={wheel(bed.directory / 'wheels', 'leaf', '1.0').parent}", "leaf"]
    stack.write_text(json.dumps({**value, "environment": {"dependencies": [{"pip": pip}]}, "licences": [licence],
                                 "checks": [{"run": ["python", "-c", "import leaf"]}]}))  # fmt: skip
    bed.run("deploy", stack, "--accept-licence", "Terms", yard="site", HOME=str(bed.directory))  # not that of the tests
    ledger = bed.directory / "site" / "licences.json"
    others = [{**each, "uid": 12345, "who": "anna"} for each in json.loads(ledger.read_text())["acceptances"]]
    atomic.write_json(ledger, {"format": 2, "acceptances": others}, checked=True)
    return bed


@pytest.fixture
def bed(site: Bed) -> Bed:
    (site.directory / "mine" / "licences.json").unlink(missing_ok=True)
    return site


def test_without_a_terminal_the_first_command_says_what_to_type(bed: Bed) -> None:
    told = bed.run("run", "demo", *SHOWS, expect=4).err
    assert "licence not accepted by" in told and "Terms, of demo/1-py3-1" in told
    assert "stackyard licences accept Terms --of demo/1-py3-1" in told
    assert "licence not accepted" in bed.run("launch", "--with", "demo", "-N", "1", "-r", "1", "true", expect=4).err


def test_what_is_accepted_once_holds_for_every_command(bed: Bed) -> None:
    accepted = bed.run("licences", "accept", "Terms", "--of", "demo")
    assert "You may, if you say so." in accepted.err and "Terms of demo/1-py3-1" in accepted.out
    assert "accepted=yes" in bed.on_terminal("run", "demo", *SHOWS, says="")
    launched = subprocess.run(
        [STACKYARD, "--site", bed.directory / "site.yaml", "--yard", bed.directory / "mine", "launch", "--with", "demo",
         "-N", "1", "-r", "1", *SHOWS[1:]], capture_output=True, text=True, check=False, cwd=bed.directory,
    )  # fmt: skip
    assert launched.returncode == 0 and "accepted=yes" in launched.stdout, launched.stderr
    assert "Terms" in bed.run("licences", "list").out


def test_at_a_terminal_the_text_is_shown_and_the_answer_counts(bed: Bed) -> None:
    shown = bed.on_terminal("run", "demo", *SHOWS, says="n")
    assert "You may, if you say so." in shown and "licence not accepted" in shown and "accepted=" not in shown
    assert "accepted=yes" in bed.on_terminal("run", "demo", *SHOWS, says="y")
    assert "Do you accept" not in bed.on_terminal("run", "demo", *SHOWS, says="")


def test_a_yard_that_begins_with_an_answer_is_as_closed_as_any(bed: Bed) -> None:
    assert "accepted=yes" in bed.on_terminal("run", "demo", *SHOWS, says="y", yard="new")
    made = [bed.directory / "new", bed.directory / "new" / "licences.json"]
    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o750", "0o640"]


def test_a_question_is_not_in_the_output_that_a_program_reads(bed: Bed) -> None:
    with (bed.directory / "out").open("w") as out:
        shown = bed.on_terminal("run", "demo", *SHOWS, says="y", out=out)
    assert "You may, if you say so." in shown and "Do you accept" in shown
    assert (bed.directory / "out").read_text() == "accepted=yes\n"


def test_a_run_is_started_again_with_the_revision_that_it_had(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no name leads to it any more."""
    monkeypatch.chdir(bed.directory)
    bed.run("licences", "accept", "Terms", "--of", "demo")
    bed.run("launch", "--with", "demo", "-N", "1", "-r", "1", *SHOWS[1:])
    bed.run("withdraw", "demo/1-py3-1", yard="site")
    try:
        assert "accepted=yes" in bed.run("launch", "--again", "last").out
    finally:
        bed.run("withdraw", "demo/1-py3-1", "--undo", yard="site")


def test_another_name_is_refused_and_a_dry_run_accepts_nothing(bed: Bed) -> None:
    assert "its licences: Terms" in bed.run("licences", "accept", "Other", "--of", "demo", expect=2).err
    bed.run("licences", "accept", "Terms", "--of", "demo", "--dry-run")
    assert "you have accepted no licence" in bed.run("licences", "list").out


def test_a_user_who_sets_the_variable_is_not_asked(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_ACCEPT", "yes")
    assert "accepted=yes" in bed.on_terminal("run", "demo", *SHOWS, says="")


def test_verify_says_which_licence_to_accept_and_no_check_fails_for_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = bed.run("verify", "demo", expect=3)
    shown = refused.out + refused.err
    assert "licence not accepted by" in shown and "Terms; without it nothing of the revision is run" in shown
    assert "read and accept it: stackyard licences accept Terms --of demo/1-py3-1" in shown
    assert "failed" not in shown.replace("0 failed", "") and "PATH" not in shown
    report = bed.run("verify", "demo", "--json", expect=3).value["demo/1-py3-1"]
    assert report["state"] == "unverified"
    assert {check["kind"]: check["status"] for check in report["checks"]} == {
        "load": "passed", "symmetry": "passed", "content": "passed", "own": "skipped",
    }  # fmt: skip
    monkeypatch.setenv("DEMO_ACCEPT", "yes")
    assert "demo/1-py3-1: passed" in bed.run("verify", "demo").out
    monkeypatch.delenv("DEMO_ACCEPT")
    bed.run("licences", "accept", "Terms", "--of", "demo")
    assert "demo/1-py3-1: passed" in bed.run("verify", "demo").out
