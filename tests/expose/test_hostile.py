"""Real Lmod and real Environment Modules give the user's environment back, in every shell and many environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import hostile, modules

pytestmark = pytest.mark.real
PAIRS = [(system, shell) for system in modules.SYSTEMS for shell in modules.SHELLS]
OFTEN = [("lmod", "bash"), ("lmod", "zsh"), ("em", "bash"), ("em", "tcsh")]
"""In `make test`; all pairs, with every scenario, in `make test-long`."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> hostile.Bench:
    return hostile.bench(tmp_path_factory.mktemp("hostile"))


@pytest.mark.slow
@pytest.mark.parametrize(("system", "shell"), OFTEN)
def test_the_environment_is_given_back(bench: hostile.Bench, system: str, shell: str) -> None:
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    assert len(hostile.cases(bench.first.prefix)) >= 30
    assert hostile.examine(bench, system, shell) == []


@pytest.mark.long
@pytest.mark.parametrize(("system", "shell"), PAIRS)
def test_the_environment_is_given_back_in_every_scenario(bench: hostile.Bench, system: str, shell: str) -> None:
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    assert hostile.examine(bench, system, shell, scenarios=hostile.SCENARIOS) == []


def test_the_shells_together_try_every_scenario_with_each_case() -> None:
    for number in range(7):
        assert {hostile.chosen(number, shell) for shell in modules.SHELLS} == set(hostile.SCENARIOS)


@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize(
    ("leak", "case", "found"),
    [
        ({".lua": 'execute{cmd="export LEAK=1", modeA={"load"}}', "": 'puts stdout "export LEAK=1;"'}, "plain", "LEAK"),
        ({".lua": 'setenv("PIP_CACHE_DIR", "/x")', "": "setenv PIP_CACHE_DIR /x"}, "condarc set", "PIP_CACHE_DIR"),
        ({".lua": 'execute{cmd="left() { :; }", modeA={"load"}}', "": 'puts stdout "left() { :; };"'}, "plain", "left"),
        ({".lua": 'execute{cmd="alias lost=x", modeA={"load"}}', "": 'puts stdout "alias lost=x;"'}, "plain", "lost"),
    ],
)
def test_a_module_that_leaks_is_found(
    bench: hostile.Bench, tmp_path: Path, system: str, leak: dict[str, str], case: str, found: str
) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    tree = tmp_path / "leaking"
    for record in (bench.first, bench.second):
        for suffix, text in hostile.control_texts(record).items():
            file = tree / f"{record.module}{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}{leak[suffix]}\n")
    sentences = hostile.examine(bench, system, "bash", tree, case, scenarios=("unload",))
    assert any(f"] {found}" in text or f": {found} " in text for text in sentences), sentences
