"""The image of an adopted prefix is seen at its original path too, and nowhere else, whatever becomes of that path."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_bed import Revision, make

from support import images, programs, usernsroot
from support.processes import wait_for

pytestmark = pytest.mark.real


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The original prefix: what is in it now is another account's."""
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    found = tmp_path / "conda" / "climate"
    (found / "share").mkdir(parents=True)
    (found / "share" / "data").write_text("planted\n")
    return found


@pytest.fixture
def demo(tmp_path: Path, place: Path) -> Iterator[Revision]:
    made = make(tmp_path, original=f"{place}\n{place}\n")
    yield made
    made.end()


def seen(revision: Revision, place: Path, expect: int = 0, **variables: str) -> str:
    """What a command of a revision finds at a path; or its error."""
    done = revision.run(str(revision.paths.launcher), "cat", f"{place}/share/data", expect=expect, **variables)
    return done.stdout or done.stderr


def test_the_same_mount_is_at_both(demo: Revision, place: Path) -> None:
    assert seen(demo, place) == "data\n" == seen(demo, demo.paths.prefix)
    stat = demo.run(str(demo.paths.launcher), "stat", "-c", "%d %i", str(place), str(demo.paths.prefix)).stdout
    assert len(set(stat.splitlines())) == 1 and len(demo.servers()) == 1
    assert (place / "share/data").read_text() == "planted\n", "only commands see it there"


def test_a_directory_that_was_removed(demo: Revision, place: Path) -> None:
    """Also while other commands of the step have it mounted: the kernel then takes that mount away."""
    for _ in range(2):
        assert seen(demo, place) == "data\n"
        shutil.rmtree(place)
        told = seen(demo, place, expect=4)
        assert f"cannot mount {demo.paths.image} on {place}, by which its files name each other: not found" in told
        assert "hint: make the directory, which can be empty: mkdir -p" in told
        place.mkdir()
    assert seen(demo, place) == "data\n" and len(demo.servers()) == 1


def test_none_from_the_start(demo: Revision, place: Path) -> None:
    shutil.rmtree(place)
    assert "not found" in seen(demo, place, expect=4)
    wait_for(lambda: not demo.servers())


@pytest.mark.parametrize("part", ["itself", "above"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_link_in_its_place_is_not_followed(
    demo: Revision, place: Path, tmp_path: Path, part: str, joined: bool
) -> None:
    if joined:
        seen(demo, place)
    other = tmp_path / "victim" / place.name
    (other / "share").mkdir(parents=True)
    (other / "share/data").write_text("of the victim\n")
    moved, leads = (place, other) if part == "itself" else (place.parent, other.parent)
    moved.rename(tmp_path / "away")
    moved.symlink_to(leads)
    told = seen(demo, place, expect=4)
    assert "the path now leads elsewhere" in told and "stackyard adopt --image" in told
    inner = f"{demo.command('pick')}; cat {other}/share/data"
    assert demo.run("sh", "-c", inner, expect=0).stdout == "of the victim\n"


def test_a_path_with_a_link(tmp_path: Path, place: Path) -> None:
    link = tmp_path / "sw"
    link.symlink_to(place.parent)
    demo = make(tmp_path, original=f"{link}/climate\n{place}\n")
    try:
        assert seen(demo, link / "climate") == "data\n" == seen(demo, place)
        link.unlink()
        (tmp_path / "other/climate").mkdir(parents=True)
        link.symlink_to(tmp_path / "other")
        told = seen(demo, place, expect=4)
        assert f"on {link}/climate, by which its files name each other: the path now leads elsewhere" in told
    finally:
        demo.end()


def test_its_server_is_killed(demo: Revision, place: Path, tmp_path: Path) -> None:
    """Also where the namespace lives on, by the server of another image: the mount that is left is taken away."""
    two = make(tmp_path, "two")
    try:
        assert seen(demo, place, STACKYARD_IMAGES=str(two.paths.root)) == "data\n"
        (before,) = two.servers()
        demo.end()
        assert seen(demo, place) == "data\n" and two.servers() == [before]
        count = (str(demo.paths.launcher), "grep", "-c", f" {place} ", "/proc/self/mountinfo")
        assert demo.run(*count).stdout == "1\n"
    finally:
        two.end()


@pytest.mark.parametrize("script", [False, True])
def test_beside_another_image(demo: Revision, place: Path, tmp_path: Path, script: bool) -> None:
    """It has a namespace of its own, also within that of another; or says why not, and the other works as before."""
    two = make(tmp_path, "two", data="of two\n", script=script)
    try:
        loaded = f"{two.paths.root}:{demo.paths.root}"
        inner = f"{two.command('pick')}; {demo.command('pick')}; {demo.paths.launcher} cat {place}/share/data"
        outside = "planted\n"
        done = two.run(str(two.paths.launcher), "sh", "-c", f"{inner}; cat {place}/share/data", STACKYARD_IMAGES=loaded)
        assert done.stdout == "of two\ndata\ndata\n" + outside
        done = demo.run(str(demo.paths.launcher), "sh", "-c", inner, STACKYARD_IMAGES=loaded)
        assert done.stdout == "of two\ndata\ndata\n"
        two.end()
        demo.end()
        shutil.rmtree(place)
        done = two.run(str(two.paths.launcher), "sh", "-c", inner, STACKYARD_IMAGES=loaded, expect=4)
        assert done.stdout == "of two\n" and f"on {place}" in done.stderr
    finally:
        two.end()


def test_two_revisions_of_one_prefix(demo: Revision, place: Path, tmp_path: Path) -> None:
    """Each sees its own files there, at the same time, whichever modules are loaded."""
    new = make(tmp_path, "new", data="newer\n", original=f"{place}\n{place}\n")
    loaded = f"{new.paths.root}:{demo.paths.root}"
    words = (str(demo.paths.launcher), "sh", "-c", f"read -r go; cat {place}/share/data")
    env = demo.env(STACKYARD_IMAGES=loaded)
    try:
        with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waiting:
            wait_for(demo.servers)
            assert seen(new, place, STACKYARD_IMAGES=loaded) == "newer\n"
            assert seen(demo, place, STACKYARD_IMAGES=loaded) == "data\n"
            assert waiting.communicate("go\n")[0] == "data\n"
        inner = f"cat {place}/share/data; {new.paths.launcher} cat {place}/share/data; {new.command('pick')}"
        assert demo.run(*words[:2], "-c", inner, STACKYARD_IMAGES=loaded).stdout == "data\nnewer\nnewer\n"
    finally:
        new.end()


def test_a_launcher_that_is_a_script_refuses_it(tmp_path: Path, place: Path) -> None:
    demo = make(tmp_path, original=f"{place}\n{place}\n", script=True)
    assert "has to be compiled" in demo.run(demo.command("pick"), expect=4).stderr


def test_apptainer_mounts_it_at_both(demo: Revision, place: Path) -> None:
    demo.environ = {"PATH": images.environ()["PATH"]}
    shutil.chown(demo.paths.prefix, "nobody")
    off = [sys.executable, usernsroot.__file__, "sh", "-ec"]
    off += ['echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"', "sh"]
    words = (*off, str(demo.paths.launcher), "cat", f"{place}/share/data", f"{demo.paths.prefix}/share/data")
    assert demo.run(*words).stdout == "data\ndata\n"
    place.rename(place.with_name("away"))
    place.symlink_to("away")
    assert f"not a directory where the image can be mounted, by which its files name each other: {place}" in (
        demo.run(*words, expect=4).stderr
    )
