"""A record's payload knows where programs are and how they are run; nothing else spells the inside of a prefix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stackyard
from stackyard.core.errors import MissingError
from stackyard.yard.kinds.payload import STUB, Form, Image, Prefix, payload_of

SPELLED = re.compile(r"""prefix\}?/bin|prefix(\}|"?\))? / "bin"|"bin" /|/ "bin" """)


def test_a_prefix() -> None:
    payload = payload_of(Form(), "/sw/p")
    assert payload == Prefix(Path("/sw/p"))
    assert [str(p) for p in payload.program_directories] == ["/sw/p/bin"]
    assert str(payload.python) == "/sw/p/bin/python"
    assert str(payload.program("conda")) == "/sw/p/bin/conda"
    assert str(payload.manuals) == "/sw/p/share/man"
    assert str(payload.site_packages("3.11.4")) == "/sw/p/lib/python3.11/site-packages"
    assert payload.search_path("/usr/bin:/bin") == "/sw/p/bin:/usr/bin:/bin"
    assert payload.command(("python", "-V"), {"PATH": "/x"}) == (["python", "-V"], {"PATH": "/x"})


def test_an_image_is_used_at_the_same_paths(tmp_path: Path) -> None:
    prefix = tmp_path / "r" / "prefix"
    payload = payload_of(Form("squashfs"), str(prefix))
    assert isinstance(payload, Image)
    assert payload.program_directories == Prefix(prefix).program_directories
    with pytest.raises(MissingError, match=f"{tmp_path}/r/launch not found: the files of this revision were removed"):
        payload.command(("python", "-V"), {})
    payload.launcher.parent.mkdir()
    payload.launcher.touch()
    assert payload.command(("python", "-V"), {}) == ([f"{tmp_path}/r/launch", "python", "-V"], {})
    assert payload.listed == (tmp_path / "r",)
    assert Prefix(prefix).listed == ()
    prefix.mkdir()
    assert payload.is_visible, "as where it is mounted"
    (prefix / STUB).touch()
    assert not payload.is_visible


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown form 'tape'"):
        payload_of(Form("tape"), "/sw/p")  # type: ignore[arg-type]


def test_only_the_payload_knows_the_inside_of_a_prefix() -> None:
    """And recipe/install.py, which runs without Stackyard, and images/wrap, which writes what stands for an image's."""
    source = Path(stackyard.__file__).parent
    found = [
        f"{file.relative_to(source)}: {line.strip()}"
        for file in source.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if file.name not in ("payload.py", "install.py") and file.parent.name != "wrap" and SPELLED.search(f"{line} ")
    ]
    assert found == []
