"""A path for which conda packages have no room is refused before anything is solved; the longest one works."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import channel
from support.channel import PLACEHOLDER, Package, make_channel
from support.cli import stackyard

TOOL = ("#!/bin/sh\n", 0o755)
BINARY = f"\0{PLACEHOLDER}/lib\0".encode()
PREFIX = "/stacks/long/1-default-1/prefix"


def bed(directory: Path, *, pip_only: bool = False) -> Path:
    """A file with a package that has its prefix in a binary file, and no channel where it must not be looked for."""
    made = make_channel(directory / "c", [Package("tool", "1", files={"bin/tool": TOOL, "lib/x.bin": BINARY})])
    links = directory / "links"
    links.mkdir()
    file = directory / "environment.yml"
    rest = f"  - pip: ['--no-index', '--find-links {links}', six]\n" if pip_only else "  - tool\n"
    file.write_text(f"name: long\nchannels: [{made.as_uri()}, nodefaults]\ndependencies:\n{rest}")
    return file


def place(directory: Path, length: int) -> Path:
    """A yard in which the prefix of the revision has a path of this length."""
    wanted = length - len(PREFIX) - len(str(directory)) - 1
    assert wanted > 0
    parts = "y" * wanted
    path = (
        directory / "/".join(part.strip("/") for part in (parts[:100], parts[101:]))
        if wanted > 101
        else directory / parts
    )
    assert len(f"{path}{PREFIX}") == length
    return path


def test_the_longest_path_works(tmp_path: Path) -> None:
    yard = place(tmp_path, 255)
    stackyard("--yard", yard, "deploy", bed(tmp_path), "--version", "1")
    written = (yard / "stacks/long/1-default-1/prefix/lib/x.bin").read_bytes()
    assert f"{yard}{PREFIX}/lib".encode() in written


@pytest.mark.parametrize("words", [("deploy",), ("deploy", "--dry-run")])
def test_a_longer_one_is_refused_before_the_solve(tmp_path: Path, words: tuple[str, ...]) -> None:
    yard, file = place(tmp_path, 268), bed(tmp_path)
    file.write_text(file.read_text().replace("/c,", "/gone,"))  # a solve would name the channel
    error = stackyard("--yard", yard, *words, file, "--version", "1", expect=2).err
    assert "the path of long/1-default-1 is 13 characters too long: conda packages hold 255, and it has 268" in error
    assert "--yard" in error and "naming" in error and not (yard / "stacks").exists()


def test_a_package_for_shorter_paths_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = "/opt/anaconda1anaconda2anaconda3" + "x" * 48
    monkeypatch.setattr(channel, "PLACEHOLDER", old)
    directory = make_channel(tmp_path / "c", [Package("old", "1", files={"lib/x.bin": f"\0{old}/lib\0".encode()})])
    file = tmp_path / "environment.yml"
    file.write_text(f"name: long\nchannels: [{directory.as_uri()}, nodefaults]\ndependencies: [old]\n")
    error = stackyard("--yard", place(tmp_path, 200), "deploy", file, "--version", "1", expect=2).err
    assert "the path of long/1-default-1 is 120 characters too long: old-1-0 holds 80, and it has 200" in error
    assert "a newer build of old" in error


def test_a_number_with_more_digits_is_refused_too(tmp_path: Path) -> None:
    yard, file = place(tmp_path, 255), bed(tmp_path)
    site = tmp_path / "site.yaml"
    site.write_text("modules: {first_revision: 9}\n")
    words = ("--yard", yard, "--site", site, "deploy")
    stackyard(*words, file, "--version", "1")
    assert "long/1-default-10 is 1 characters" not in stackyard(*words, file, "--version", "1").err
    error = stackyard(*words, file, "--version", "1", "--rebuild", expect=2).err
    assert "the path of long/1-default-10 is 1 character too long" in error


def test_a_move_to_a_longer_path_is_refused(tmp_path: Path) -> None:
    stackyard("--yard", tmp_path / "short", "deploy", bed(tmp_path), "--version", "1")
    new = place(tmp_path, 256)
    error = stackyard("--yard", tmp_path / "short", "move", new, expect=2).err
    assert "the path of long/1-default-1 is 1 character too long" in error and not new.exists()


def test_pip_packages_on_a_python_of_the_machine_have_no_such_limit(tmp_path: Path) -> None:
    yard, file = place(tmp_path, 268), tmp_path / "requirements.txt"
    file.write_text("--no-index\nsix\n")
    site = tmp_path / "site.yaml"
    site.write_text("interpreter: {source: host}\n")
    error = stackyard("--yard", yard, "--site", site, "deploy", file, "--name", "long", "--version", "1", expect=2).err
    assert "too long" not in error and "no package named six" in error
