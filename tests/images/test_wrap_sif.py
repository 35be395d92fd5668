"""SIF files that are wrapped: their partitions become one tree, and their scripts the environment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.oci_bed import copy_program
from images.wrap_bed import Wrapped, image
from stackyard.images.sif import file as sif
from support import programs
from support.cli import STACKYARD

pytestmark = pytest.mark.real


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Wrapped]:
    for name in ("mksquashfs", "squashfuse", "unshare", "gcc"):
        programs.need(name)
    image(tmp_path / "system")
    made = Wrapped(tmp_path)
    yield made
    made.end()


def _sif(tool: Wrapped, *trees: Path) -> Path:
    """A SIF file of a system and what lies over it."""
    given = []
    for tree in trees:
        packed = tool.directory / f"{tree.name}.sqsh"
        subprocess.run(["mksquashfs", tree, packed, "-quiet", "-noappend"], check=True, stdout=subprocess.DEVNULL)
        part = sif.OVERLAY if given else sif.SYSTEM
        given.append(sif.PartSource(sif.PARTITION, tree.name, packed, part))
    return sif.write(tool.directory / "tool.sif", "amd64", given).file


def _wrap_with_the_rights_of_files(tool: Wrapped, file: Path) -> None:
    """As an ordinary user, who may do what the modes of the own files say."""
    words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", STACKYARD, "--yard", tool.yard, "wrap", file]
    more = ["--name", tool.name, "--commands", "/opt/tool/bin/*"]
    subprocess.run([*words, *more], env=tool.env(), cwd=tool.directory, check=True)


def _put(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        place = root / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def test_links_of_the_system_do_not_lead_what_lies_over_it_out_of_the_image(tool: Wrapped) -> None:
    victim, over = tool.directory / "victim", tool.directory / "over"
    victim.mkdir()
    (tool.directory / "system/share").symlink_to(victim)
    (tool.directory / "system/file").symlink_to(victim / "made")
    _put(over, share__bashrc="harm", file="harm")
    tool.wrap("--mode", "isolated", image=_sif(tool, tool.directory / "system", over))
    assert not list(victim.iterdir())
    assert tool.sh("cat /share/bashrc /file") == "harmharm"


def test_what_lies_over_a_system_replaces_it_and_directories_are_joined(tool: Wrapped) -> None:
    below, over = tool.directory / "system", tool.directory / "over"
    _put(below, data__kind__x="below", data__link__x="below", data__same="below", opt__kept="below")
    _put(over, data__new="over", data__kind="over", data__same="over", data__deep__er__x="over", etc__conf__x="over")
    (over / "data/link").symlink_to("own")
    for place in (over / "data/deep/er", over / "data/deep", over / "data", below / "data/kind", below / "data"):
        place.chmod(0o555)
    file = _sif(tool, below, over)
    _wrap_with_the_rights_of_files(tool, file)
    script = "cat /data/own /data/new /data/kind /data/link /data/same /data/deep/er/x /etc/conf/x /opt/kept"
    assert tool.sh(script) == "of the image\noverover" + "of the image\n" + "over" * 3 + "below"
    assert tool.sh("stat -c %a /data /data/deep /data/deep/er /tmp /opt").split() == [
        "555",
        "555",
        "555",
        "1777",
        "755",
    ]


def test_commands_of_partitions_that_are_added_later(tool: Wrapped) -> None:
    over = tool.directory / "over"
    _put(over, data__new="over")
    file = _sif(tool, tool.directory / "system", over)
    tool.wrap("--commands", "/opt/tool/bin/say", "--version", "1", image=file)
    file.unlink()
    tool.stackyard("wrap", "tool", "--add", "/bin/cat")
    first, second = (root / "image.sqsh" for root in tool.roots)
    assert first.stat().st_ino == second.stat().st_ino
    assert tool.run(str(tool.roots[1] / "prefix/bin/cat"), "/data/own", "/data/new").stdout == "of the image\nover"


def test_a_shell_that_quotes_in_a_way_of_its_own_gives_the_same_environment(tool: Wrapped) -> None:
    root = tool.directory / "system"
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    copy_program(Path("/bin/bash"), root)
    (root / "bin/sh").unlink()
    (root / "bin/sh").symlink_to("/usr/bin/bash")
    script = "export COST='a$b' TICKS='`x` \"q\" \\n' TAB=$'a\\tb' PATH=/opt/tool/bin:$PATH LD_LIBRARY_PATH=/x:\n"
    _put(root, **{".singularity.d/env/90-environment.sh": f"{script}echo noise\nf() {{ :; }}\nexport -f f\n"})
    tool.wrap(image=_sif(tool, root))
    shown = tool.sh('printf "%s|" "$COST" "$TICKS" "$TAB" "$LD_LIBRARY_PATH"; echo "$PATH"')
    assert shown.startswith(f'a$b|`x` "q" \\n|a\tb|/x|{tool.root}/prefix/bin:/opt/tool/bin:')
    assert "STACKYARD_IMAGE_IDLE_S" not in (tool.root / "prefix/.inside/.container").read_text()


def test_scripts_without_a_program_that_shows_what_they_set(tool: Wrapped) -> None:
    root = tool.directory / "system"
    _put(root, **{".singularity.d/env/90-environment.sh": "export A=1\n"})
    (root / "bin/cat").unlink()
    done = tool.wrap(image=_sif(tool, root), expect=2)
    assert "cannot tell what the scripts in /.singularity.d/env set: no cat in the image" in done.err
