"""What `host.run.heads` finds is what `importlib.metadata` finds, without its imports."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from stackyard.host.run.question import about_distributions

_BOTH = """
import json
def ours():
    return [[folder, head] for folder, head in heads(sys.argv[1:])], [list(first(name)) for name in NAMES]
found = ours()
quick = "importlib.metadata" not in sys.modules
import importlib.metadata as m
def theirs():
    for one in m.distributions(path=sys.argv[1:]):
        text = one.read_text("METADATA") or one.read_text("PKG-INFO") or ""
        yield [str(one.locate_file("")), text.split("\\n\\n", 1)[0].splitlines()]
def of(name):
    one = next(iter(m.distributions(name=name)), None)
    return [str(one.locate_file("")), one.version or ""] if one else ["", ""]
sys.stdout.write(json.dumps([quick, found, [list(theirs()), list(map(of, NAMES))]]))
"""
_NAMES = ["One", "one", "two.parts", "Two__Parts", "old", "flat", "lost", "none", "inside"]


def _info(directory: Path, name: str, *lines: str, file: str = "METADATA") -> None:
    (directory / name).mkdir(parents=True)
    (directory / name / file).write_text("\n".join([*lines, "", "Name: not-a-field"]), encoding="utf-8")


def _compared(*directories: Path | str) -> bool:
    """Compare both on these directories; whether it was done without `importlib.metadata`."""
    code = f"NAMES = {_NAMES!r}\nimport sys\nsys.path[:] = sys.argv[1:] + sys.path\n" + about_distributions(_BOTH)
    words = [sys.executable, "-I", "-c", code, *map(str, directories)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    quick, ours, theirs = json.loads(done.stdout)
    for each in (ours, theirs):
        each[0] = sorted(each[0])
    assert ours[0] == theirs[0]
    assert dict(zip(_NAMES, ours[1], strict=True)) == dict(zip(_NAMES, theirs[1], strict=True))
    return bool(quick)


def test_the_same_is_found_in_plain_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _info(first, "One-1.0.dist-info", "Metadata-Version: 2.1", "Name: One", "VERSION:  1.0 ", "Summary: ä")
    _info(first, "two_parts-2.0.dist-info", "Name: Two.Parts", "Version: 2.0", "Requires-Dist: one; extra == 'x'")
    _info(first, "old-3.0-py3.9.egg-info", "Name: old", "Version: 3.0", file="PKG-INFO")
    (first / "flat-4.0-py3.9.egg-info").write_text("Name: flat\nVersion: 4.0\n")
    (first / "lost-5.0.dist-info").mkdir()
    _info(second, "one-1.5.dist-info", "Name: one", "Version: 1.5")
    _info(second, "lost-6.0.dist-info", "Name: lost", "Version: 6.0")
    assert _compared(first, second, tmp_path / "absent")


def test_the_same_is_found_of_all_that_is_installed_here() -> None:
    assert _compared(*(directory for directory in sys.path if directory.endswith("-packages")))


def test_eggs_and_archives_are_left_to_importlib(tmp_path: Path) -> None:
    egg = tmp_path / "inside-1.0.egg"
    _info(egg, "EGG-INFO", "Name: inside", "Version: 1.0", file="PKG-INFO")
    assert not _compared(egg)
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("inside-2.0.dist-info/METADATA", "Name: inside\nVersion: 2.0\n")
    assert not _compared(archive)
