"""The name of a loaded stack in the prompt: in front, restored exactly, and nowhere a shell has no prompt."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from stackyard.core.change import EnvironmentChange, Prompt
from stackyard.core.grammar import GrammarError
from stackyard.expose.base import full_change
from stackyard.expose.limits import limits
from stackyard.expose.modulefiles import lua, tcl
from stackyard.inputs.models import Site, Variant
from stackyard.inputs.sites.sitemodels import ModulePolicy
from stackyard.make.builder import module_settings
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord
from support import modules, stackrecords

PROMPTS = {
    "bash": r"\[\e[1m\]\u@\h \w (pytorch \$(date) $((1+1))%\$ ",
    "zsh": "%B%n@%m%b %~ (pytorch $(date) %# ",
    "tcsh": "%B%n@%m%b:%~ (pytorch [`x`] $HOME> ",
}
SET = {"bash": "PS1={}", "zsh": "PS1={}", "tcsh": "set prompt = {}"}
SHOWN = {
    "bash": "printf '%s|\\n' \"${PS1-none}\"",
    "zsh": "printf '%s|\\n' \"${PS1-none}\"",
    "tcsh": "printf '%s|\\n' \"$prompt:q\"",
}


def made(directory: Path, stack: str, **settings: object) -> BuildRecord:
    return stackrecords.record(Yard(directory / "yard"), stack, "1", settings={"prompt": True, **settings})


def written(directory: Path, record: BuildRecord) -> None:
    """Its modulefiles for both systems."""
    change = full_change(record, Site())
    for render, suffix in ((lua.render, ".lua"), (tcl.render, "")):
        file = directory / render.__module__.rpartition(".")[2] / record.stack / f"1{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(render(record, Site(), change=change))


def shown(tmp_path: Path, system: str, shell: str, lines: list[str]) -> str:
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    place = tmp_path / ("lua" if system == "lmod" else "tcl")
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "MODULEPATH": str(place)}
    return modules.run(shell, "\n".join([modules.initialise(system, shell), *lines]) + "\n", environ, tmp_path)


def quoted(shell: str, text: str) -> str:
    return "'" + text.replace("!", "\\!") + "'" if shell == "tcsh" else f"'{text}'"


@pytest.mark.real
@pytest.mark.parametrize("shell", PROMPTS)
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_it_is_in_front_while_loaded_and_restored_exactly(tmp_path: Path, system: str, shell: str) -> None:
    for stack in ("pytorch", "tool-2.x"):
        written(tmp_path, made(tmp_path, stack, family=""))
    show, prompt = SHOWN[shell], PROMPTS[shell]
    steps = ["load pytorch", "load tool-2.x", "unload pytorch", "load pytorch", "unload tool-2.x", "unload pytorch",
             "unload pytorch"]  # fmt: skip
    lines = [SET[shell].format(quoted(shell, prompt)), show]
    lines += [line for step in steps for line in (f"module {step}", show)]
    if shell != "tcsh":
        lines += ["unset PS1", "module load pytorch", show, "module unload pytorch", show]
    out = [line.removesuffix("|") for line in shown(tmp_path, system, shell, lines).splitlines() if line.endswith("|")]
    p, t = "(pytorch) ", "(tool-2.x) "
    expected = ["", p, t + p, t, p + t, p, "", ""]
    none = [] if shell == "tcsh" else ["none", "none"]
    assert out == [*(f"{front}{prompt}" for front in expected), *none], out


@pytest.mark.real
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_a_csh_script_has_no_prompt_and_no_error(tmp_path: Path, system: str) -> None:
    written(tmp_path, made(tmp_path, "pytorch"))
    lines = ["unset prompt", "module load pytorch", "echo load=$status $?prompt", "module unload pytorch",
             "echo unload=$status $?prompt"]  # fmt: skip
    out = shown(tmp_path, system, "tcsh", lines)
    assert re.findall(r"^(?:un)?load=.*$", out, re.MULTILINE) == ["load=0 0", "unload=0 0"], out


@pytest.mark.real
@pytest.mark.parametrize("shell", modules.SHELLS)
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_condas_variable_has_it(tmp_path: Path, system: str, shell: str) -> None:
    written(tmp_path, made(tmp_path, "pytorch"))
    lines = ["module load pytorch", 'echo "[$CONDA_PROMPT_MODIFIER]"', "module unload pytorch"]
    after = "env | grep -c '^CONDA_PROMPT_MODIFIER=.'"
    assert shown(tmp_path, system, shell, [*lines, after]).splitlines()[-2:] == ["[(pytorch) ]", "0"]


def test_it_is_set_only_where_it_is_asked_for(tmp_path: Path) -> None:
    record = made(tmp_path, "pytorch")
    plain = dataclasses.replace(record, settings={})
    assert [op for op in full_change(record, Site()) if isinstance(op, Prompt)] == [Prompt("pytorch")]
    assert not [op for op in full_change(plain, Site()) if isinstance(op, Prompt) or "CONDA_PROMPT" in str(op)]
    layer = EnvironmentChange((Prompt("pytorch"), Prompt("mine")))
    from stackyard.expose.base import merged

    assert merged(layer).operations == (Prompt("mine"),)


@pytest.mark.parametrize(("own", "site", "expected"), [
    (None, False, False), (None, True, True), (True, False, True), (False, True, False),
])  # fmt: skip
def test_the_stack_decides_and_then_the_site(own: bool | None, site: bool, expected: bool) -> None:
    from stackyard.inputs.models import CondaRequirement, Environment, ModuleSettings

    environment = Environment(conda=(CondaRequirement(text="python", spec="python"),))
    variant = Variant(stack="s", version="1", name="", environment=environment, modules=ModuleSettings(prompt=own))
    assert module_settings(variant, Site(modules=ModulePolicy(prompt=site)))["prompt"] is expected


def test_what_cannot_be_is_said_or_refused() -> None:
    assert limits(EnvironmentChange((Prompt("a"),)), "lua", "fish") == [
        "the prompt is not changed in fish: it is a function there"
    ]
    for text in ("$(x)", "a b", "a'", 'a"', "a\\", "!x", "%x", ""):
        with pytest.raises(GrammarError):
            Prompt(text)
