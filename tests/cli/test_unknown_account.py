"""A number that no account of the machine has, as containers run with: an error where a home is needed, and work
where none is."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.cli.main import VERBS
from study.handmade import make_study
from support.accounts import SYSTEM_PATH, Account, Accounts
from support.channel import Package, make_channel

WORDS = {
    "init": ("init", "-o", "-"), "completion": ("completion", "bash"),
    "catalogue": ("catalogue", "-o", "site"), "sbom": ("sbom", "x"),
    "deploy": ("deploy", "six.yml"), "lock": ("lock", "six.yml"), "mirror": ("mirror", "six.yml", "--to", "m"),
    "adopt": ("adopt", "prefix", "--name", "x", "--version", "1"), "wrap": ("wrap", "oci:none", "--commands", "sh"),
    "push": ("push", "x", "oci:out"), "pull": ("pull", "oci:none"), "run": ("run", "x", "true"),
    "kernel": ("kernel", "list"), "licences": ("licences", "list"), "share": ("share", "x", "--with", "group:x"),
    "extend": ("extend", "--name", "mine", "--pip", "six", "--base", "x"), "export": ("export", "x"),
    "launch": ("launch", "-N", "1", "-r", "1", "true"), "submit": ("submit", "-N", "1", "true"),
    "explain": ("explain", "-N", "1", "true"), "lint": ("lint", "job.sh"), "image": ("image", "list"),
    "report": ("report", "study"), "board": ("board", "run"), "profile": ("profile", "run"),
    "recipe": ("recipe", "x", "--as", "def", "--base", "docker://debian", "-o", "r"),
    "bindings": ("bindings", "detect"), "default": ("default", "x"),
    "schema": ("schema", "site"), "move": ("move", "elsewhere"), "diff": ("diff", "x", "y"), "why": ("why", "x", "y"),
    "retire": ("retire", "x", "--on", "2030-01-01"),
}  # fmt: skip
NAMING_ONE = ("verify", "show", "shell", "withdraw", "sign", "remove")
EACH = {verb: WORDS.get(verb, (verb, "x") if verb in NAMING_ONE else (verb,)) for verb in VERBS}
NOT_IN_A_YARD = {"bindings", "completion", "help", "init", "doctor", "lint", "report", "runs", "schema"}
"""Verbs that need neither a yard nor a home."""

DRIVER = """
import os, sys
from stackyard.cli import main
import stackyard.inputs.stacks.stackfile, stackyard.inputs.sites.site  # once, for all verbs
import stackyard.deploy.deploy, stackyard.launch.api.jobs
for line in sys.stdin.read().splitlines():
    print("==", line, file=sys.stderr, flush=True)
    child = os.fork()
    if not child:
        sys.argv = ["stackyard", *line.split("\\t")]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        main.main()
    print("-- exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr, flush=True)
"""
"""Every line of standard input as a command line in a process of its own, without starting Python again for each."""


@dataclass(frozen=True)
class Unknown(Account):
    """A process that runs as a number without an account, and without HOME."""

    def environment(self, **variables: str) -> dict[str, str]:
        """What a container gives."""
        return {"PATH": f"{self.bin}:{SYSTEM_PATH}", "LANG": "C.UTF-8", **variables}


@pytest.fixture
def unknown(accounts: Accounts, common: Path) -> Unknown:
    """A number that the machine does not know, with a directory that is its own."""
    known = {entry.pw_uid for entry in pwd.getpwall()}
    uid = next(number for number in range(54321, 60000) if number not in known)
    directory = common / "work"
    directory.mkdir()
    os.chown(directory, uid, uid)
    return Unknown(str(uid), uid, uid, (), directory, 0o022, accounts.bin)


@pytest.fixture
def small(unknown: Unknown, common: Path) -> Unknown:
    """The same, with a small file to deploy in its directory."""
    channel = make_channel(
        common / "channel", [Package("tool", "1.0", files={"bin/tool": ("#!/bin/sh\necho hi\n", 0o755)})]
    )
    text = f"name: six\nchannels: [{channel.as_uri()}, nodefaults]\ndependencies: [tool]\n"
    (unknown.home / "six.yml").write_text(text)
    (unknown.home / "job.sh").write_text("#!/bin/sh\n#SBATCH -n1\nsrun true\n")
    (unknown.home / "site.yaml").write_text("name: s\nyard: ~/yard\n")
    make_study(unknown.home / "study", lambda point: 100.0 * point.nodes, nodes=(1,))
    return unknown


def all_verbs(account: Unknown, **variables: str) -> dict[str, tuple[int, str]]:
    """Exit status and standard error of every verb."""
    text = "\n".join("\t".join(words) for words in EACH.values())
    script = account.home / "words"
    script.write_text(text)
    done = account.run("sh", "-c", f"python -c '{DRIVER}' < {script}", expect=0, **variables)
    parts = done.err.split("== ")[1:]
    assert len(parts) == len(EACH), done.err
    found = {}
    for verb, part in zip(EACH, parts, strict=True):
        text, _, code = part.rpartition("-- exit ")
        found[verb] = (int(code), text)
    return found


def test_every_verb_says_that_there_is_no_home(small: Unknown) -> None:
    found = all_verbs(small)
    assert [text for _, text in found.values() if "Traceback" in text] == []
    needing = {verb: shown for verb, shown in found.items() if verb not in NOT_IN_A_YARD}
    said = {verb for verb, (code, text) in needing.items() if code in (2, 4) and "HOME is not set" in text}
    assert {verb: shown for verb, shown in needing.items() if verb not in said} == {}
    assert f"error: cannot choose a yard: HOME is not set, and user {small.uid} has no account" in found["list"][1]
    assert "hint: name one: --yard DIRECTORY, or export STACKYARD_HOME=DIRECTORY" in found["list"][1]
    assert {verb: shown for verb, shown in found.items() if verb in NOT_IN_A_YARD and shown[0] not in (0, 3)} == {}


def test_every_verb_works_with_a_yard(small: Unknown) -> None:
    found = all_verbs(small, STACKYARD_HOME=str(small.home / "yard"))
    assert [text for _, text in found.values() if "Traceback" in text] == []
    assert [verb for verb, (_, text) in found.items() if "HOME is not set" in text] == ["kernel"]


def test_a_stack_is_built_and_run_without_a_home(small: Unknown) -> None:
    yard = {"STACKYARD_HOME": str(small.home / "yard")}
    small.stackyard("deploy", "six.yml", **yard)
    assert "six" in small.stackyard("list", **yard).out
    assert small.stackyard("run", "six", "tool", **yard).out == "hi\n"


def test_a_tilde_of_the_site_without_a_home(small: Unknown) -> None:
    site = {"STACKYARD_SITE": str(small.home / "site.yaml"), "STACKYARD_HOME": str(small.home / "yard")}
    error = small.stackyard("list", expect=4, **site).err
    assert "cannot resolve ~/yard: HOME is not set" in error
    assert "hint: set HOME: export HOME=DIRECTORY" in error
    assert small.stackyard("list", HOME=str(small.home), **site).code == 0


def test_a_variable_that_names_the_home_of_nobody(small: Unknown) -> None:
    error = small.stackyard("list", expect=2, STACKYARD_HOME="~nosuchaccount/x").err
    assert "cannot resolve $STACKYARD_HOME, ~nosuchaccount/x: no such account" in error
