"""The moving picture of README: a recorded shell as a strip of frames, each line drawn once."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("moving_picture", ROOT / "scripts" / "moving_picture.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["moving_picture"] = module
    spec.loader.exec_module(module)
    return module


def frames(picture: str) -> list[float]:
    """The tops of the frames, in the order in which they are shown."""
    ElementTree.fromstring(picture)
    steps = re.findall(r"([\d.]+)%\{transform:translateY\((-?\d+)px\)\}", picture)
    assert [float(at) for at, _ in steps] == sorted(float(at) for at, _ in steps)
    return [-float(top) for _, top in steps]


def test_a_shell_is_recorded(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "TYPED_S", 0.001)
    recording = script.Recording()
    recording.prepare("red='\\e[31mred\\e[0m'")
    recording.type('printf "$red <b>\\n"')
    recording.close()
    picture = script.svg(recording.frames())
    tops = frames(picture)
    assert tops == sorted(tops) and len(tops) == len(recording.frames()) > 2
    texts = [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert "red" in texts and texts.count('$ printf "$red <b>\\n"') == 1, "a line that stays is drawn once"
    assert (
        any(text.startswith("<b>") for text in texts) and f"fill='{script.NAMES['red']}'".replace("'", '"') in picture
    )


def test_what_takes_long_is_played_faster(script: ModuleType) -> None:
    rows = [((f"{n}",),) for n in range(100)]
    played = script.played([script.Frame(row, 1.0) for row in rows])
    assert sum(frame.seconds for frame in played) == pytest.approx(script.MOST_S)
    assert min(frame.seconds for frame in played) >= script.LEAST_S
    assert played[-1].rows == rows[-1]
    short = [script.Frame(rows[0], 1.0), script.Frame(rows[1], 2.0)]
    assert script.played(short) == short


def test_the_picture_of_readme_is_whole() -> None:
    """The heat map has every line: the last frame shows as many with colours as the program draws."""
    picture = (ROOT / "docs/images/quickstart.svg").read_text()
    tops = frames(picture)
    coloured = set(re.findall(r'<g id="(r\d+)"><g transform', picture))
    shown = re.findall(r'<use href="#(r\d+)" y="([\d.]+)"/>', picture)
    assert len([name for name, y in shown if float(y) >= tops[-1] and name in coloured]) == 44 / 2
