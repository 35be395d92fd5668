"""An environment.yml or a requirements.txt as a stack: its name, its version, its one variant."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.host.run import clock
from stackyard.inputs.load import load_stack
from stackyard.inputs.sites.sitemodels import Overrides, Site

TODAY = date(2026, 2, 3)


@pytest.mark.parametrize(
    ("text", "options", "module"),
    [
        ("name: climate\ndependencies: [python=3.11]\n", {}, f"climate/{TODAY:%Y.%m.%d}-py311"),
        ("name: null\ndependencies: [python=3.11]\n", {}, f"project/{TODAY:%Y.%m.%d}-py311"),
        ("dependencies: [python]\n", {}, f"project/{TODAY:%Y.%m.%d}-py3"),
        ("name: climate\ndependencies: [python=3.11]\n", {"name": "other", "version": "2"}, "other/2-py311"),
        ("name: my env\ndependencies: [r-base]\n", {}, f"my-env/{TODAY:%Y.%m.%d}-default"),
    ],
)
def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text, options, module) -> None:
    monkeypatch.setattr(clock, "today", lambda: TODAY)
    file = tmp_path / "project" / "environment.yml"
    file.parent.mkdir()
    file.write_text(text)
    stack = load_stack(file, Site(), **options)
    (variant,) = stack.variants
    assert f"{stack.name}/{variant.version}-{variant.name}" == module
    assert stack.kind == "environment"
    assert stack.dated == ("version" not in options)
    assert variant.files == (str(file),)


def test_requirements(tmp_path: Path) -> None:
    file = tmp_path / "tools" / "requirements.txt"
    file.parent.mkdir()
    file.write_text("-r more.txt\nnumpy\n")
    (file.parent / "more.txt").write_text("scipy\n")
    stack = load_stack(file, Site())
    (variant,) = stack.variants
    assert (stack.name, stack.kind, variant.name) == ("tools", "requirements", "py3")
    assert [p.line for p in variant.environment.pip] == ["scipy", "numpy"]
    assert {Path(f).name for f in variant.files} == {"requirements.txt", "more.txt"}


def test_python_2_with_pip(tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text("dependencies:\n  - python=2.7\n  - pip:\n      - six\n")
    with pytest.raises(InputError, match="py27 is for Python 2 and has pip packages") as error:
        load_stack(file, Site())
    assert (error.value.where and error.value.where.line) == 4


def test_platforms_that_cannot_be_built_for(tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text("dependencies: [python]\nplatforms: [linux-64, osx-arm64]\n")
    (variant,) = load_stack(file, Site()).variants
    assert variant.platforms == ("linux-64",)
    assert "not built for osx-arm64" in variant.notices


def test_what_the_site_says_holds_for_it_too(tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text("channels: [own]\ndependencies: [python=3.11]\n")
    overrides = Overrides(
        append={"environment": {"dependencies": ["site-tools"], "channels": ["site"]}},
        force={"modules": {"family": "site"}},
    )
    (variant,) = load_stack(file, Site(stacks=overrides)).variants
    assert [c.spec for c in variant.environment.conda] == ["python 3.11.*", "site-tools"]
    assert variant.environment.channels == ("own", "site")
    assert variant.modules.family == "site"


def test_every_real_environment_file_that_parses_makes_a_stack() -> None:
    """Real files of others: what `load_environment` understands, a stack can be made of."""
    directory = Path(__file__).parents[2] / ".." / "shared" / "corpus" / "env"
    if not directory.is_dir():
        pytest.skip("the folder of real inputs is not beside this repository")
    made = refused = 0
    for file in sorted(directory.iterdir()):
        try:
            stack = load_stack(file, Site())
        except InputError as error:
            refused += 1
            assert error.hint or getattr(error, "problems", None), file
        else:
            made += 1
            assert len(stack.variants) == 1
            assert stack.name
    assert made >= 12, (made, refused)
