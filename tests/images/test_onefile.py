"""From a file of packages to a container in one command: nothing is prepared, and nothing is left but the image."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from images.basebed import system
from images.image_bed import confined
from support import images, programs
from support.channel import Package, make_channel
from support.cli import STACKYARD, stackyard

pytestmark = pytest.mark.real


@pytest.fixture
def file(tmp_path: Path) -> Path:
    programs.need("mksquashfs")
    tool = Package("tool", "1.0", files={"bin/tool": ("#!/bin/sh\necho tool of $0\n", 0o755)})
    channel = make_channel(tmp_path / "channel", [tool])
    made = tmp_path / "environment.yml"
    made.write_text(f"name: demo\nchannels: [{channel.as_uri()}]\ndependencies: [tool]\n")
    system(tmp_path / "root")
    (tmp_path / "out").mkdir()
    (tmp_path / "home").mkdir()
    return made


def test_an_environment_file_becomes_a_sif(file: Path) -> None:
    images.apptainer()
    at, sif = file.parent, file.parent / "out/demo.sif"
    words = ("image", "build", file, "--base", f"folder:{at / 'root'}", "--format", "sif", "-o", sif)
    done = stackyard(*words, HOME=str(at / "home"))
    assert "passed" in done.err and f"to {sif}" in done.out
    assert [path.name for path in sif.parent.iterdir()] == ["demo.sif"] and not list((at / "home").iterdir())
    assert (at / "environment.yml.lock").exists()
    run = ["apptainer", "-q", "exec", sif, "tool"]
    said = subprocess.run(run, capture_output=True, text=True, env=images.environ(), timeout=120, check=True).stdout
    assert said == "tool of /opt/stackyard/demo/bin/tool\n"


def test_a_named_base_is_that_of_the_yard(file: Path) -> None:
    at, layout = file.parent, file.parent / "out/images"
    yard = ("--yard", at / "yard")
    stackyard(*yard, "image", "from-folder", at / "root", "--name", "small", HOME=str(at / "home"))
    words = ("image", "build", file, "--base", "small", "--format", "oci", "-o", layout, "--name", "demo")
    assert "oci" in stackyard(*yard, *words, HOME=str(at / "home")).out
    assert not (at / "yard/stacks").exists() and [path.name for path in layout.parent.iterdir()] == ["images"]


def test_a_stack_that_asks_for_an_image_is_packed_once(file: Path) -> None:
    """Also where nothing can be mounted: a revision of its own yard needs no image."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    at, layout = file.parent, file.parent / "out/images"
    stack = at / "stack.yaml"
    stack.write_text("name: one\nversion: '1'\nimage: squashfs\nenvironment: environment.yml\n")
    words = ("image", "build", stack, "--base", f"folder:{at / 'root'}", "--format", "oci", "-o", layout)
    argv = confined("mount --bind /dev/null /dev/fuse", *map(str, (STACKYARD, *words)))
    subprocess.run(argv, env={**os.environ, "HOME": str(at / "home")}, timeout=300, check=True)
    assert (layout / "index.json").exists()


def test_what_cannot_be_one_image(file: Path) -> None:
    at, sif = file.parent, file.parent / "out/demo.sif"
    source = ("--base", f"folder:{at / 'root'}", "--format", "sif", "-o", sif)
    stack = at / "stack.yaml"
    stack.write_text("name: two\nversion: '1'\nmatrix: {kind: [a, b]}\nenvironment: environment.yml\n")
    said = stackyard("image", "build", stack, *source, expect=2, HOME=str(at / "home")).err
    assert "has 2 variants, and an image has one" in said
    said = stackyard("image", "build", file, *source, "--dry-run", expect=2, HOME=str(at / "home")).err
    assert "--dry-run takes a revision" in said
    words = ("--base", "base.tar", "--format", "sif", "-o", sif)
    done = stackyard("image", "build", file, *words, expect=2, HOME=str(at / "home"))
    assert "no such base" in done.err and "verify" not in done.out + done.err, "said before the build"
    stack.write_text(
        "name: one\nversion: '1'\nenvironment: environment.yml\nchecks: [{name: fails, run: exit 1, required: true}]\n"
    )
    done = stackyard("image", "build", stack, *source, expect=3, HOME=str(at / "home"))
    assert "fails" in done.out and not list(sif.parent.iterdir())
