"""A module whose command TAB completes: in real shells, under both module systems, and nothing is left behind."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import stackyard
from stackyard.core.change import Complete
from stackyard.core.errors import InputError
from stackyard.expose.base import full_change
from stackyard.expose.commands import write_commands
from stackyard.expose.limits import notable
from stackyard.expose.modulefiles import lua, tcl
from stackyard.expose.modulefiles.rendering import completion_commands
from stackyard.inputs.models import Site
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord
from support import modules, programs, stackrecords, terminals

SCRIPTS = Path(stackyard.__file__).parent / "completions"
PLACES = {
    "stackyard.bash": "bash-completion/completions/stackyard.bash",
    "_stackyard": "zsh/site-functions/_stackyard",
    "stackyard.fish": "fish/vendor_completions.d/stackyard.fish",
    "stackyard.tcsh": "tcsh/completions/stackyard.tcsh",
}
BEGIN = {
    "bash": "bind 'set bell-style none'",
    "zsh": "autoload -Uz compinit; compinit -u -d $HOME/.dump; bindkey '^I' complete-word; stty cols 200; "
    "unsetopt beep zle_bracketed_paste",
    "tcsh": "set autolist",
}
KINDS = {"tcsh": "csh"}
ARGV = {"bash": ["bash", "--norc", "--noprofile"], "zsh": ["zsh", "-f"], "tcsh": ["tcsh", "-f"]}
TYPED = "stackyard launch --no-ch"
SHELLS = ("bash", "zsh", "tcsh", "fish")


@pytest.fixture
def made(tmp_path: Path) -> BuildRecord:
    """A stack that offers `stackyard`, whose scripts are where its wheel installs them; and its modulefiles."""
    settings = {"commands": ["stackyard"], "completions": ["stackyard"]}
    record = stackrecords.record(Yard(tmp_path / "it's a yard"), "stackyard", "1", settings=settings)
    for name, place in PLACES.items():
        (Path(record.prefix) / "share" / place).parent.mkdir(parents=True)
        shutil.copy(SCRIPTS / name, Path(record.prefix) / "share" / place)
    change = full_change(record, Site())
    for render, name in ((lua.render, "lmod/stackyard/1.lua"), (tcl.render, "em/stackyard/1")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(render(record, Site(), change=change))
    return record


def environ(place: Path, system: str) -> dict[str, str]:
    there = {"HOME": str(place), "MODULEPATH": str(place / system)}
    return {"PATH": "/usr/bin:/bin", "TERM": "xterm", "LC_ALL": "C.UTF-8", **there}


STEPS = ("true", "module load stackyard", "module load stackyard; module unload stackyard")


def offered(place: Path, system: str, shell: str, step: str) -> list[str]:
    """The words that a shell shows for a TAB behind an option's first letters, after a step."""
    begin = f"{modules.initialise(system, shell)}\n{step}"  # tcsh replaces aliases before it runs a line
    if shell == "fish":
        return modules.run(shell, f"{begin}\ncomplete -C '{TYPED}'\n", environ(place, system), place).split()
    lines = [("unam", "uname"), (TYPED, "--no-ch")]  # after the first one the shell reads letter by letter
    shown = terminals.typed(ARGV[shell], environ(place, system), place, f"{BEGIN[shell]}; {begin}", lines)
    return shown[1][0]


@pytest.mark.real
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_tab_completes_while_it_is_loaded(tmp_path: Path, system: str, shell: str) -> None:
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    assert ["--no-check" in offered(tmp_path, system, shell, step) for step in STEPS] == [False, True, False]


USED = {
    "bash": "_stackyard_load; complete -p stackyard",
    "zsh": "autoload -Uz compinit; compinit -u -d $HOME/.dump; module unload stackyard; module load stackyard; "
    "_stackyard 2>/dev/null; echo $_comps[stackyard]",
    "tcsh": "complete stackyard",
    "fish": f"complete -C '{TYPED}'",
}
NAMES = {
    "bash": "compgen -A function _; compgen -v _; complete -p stackyard 2>/dev/null || echo none",
    "zsh": "print -l ${(ok)functions} ${(ok)parameters} $fpath; echo ${_comps[stackyard]-none}",
    "tcsh": "complete; set",
    "fish": "functions -an; set -gn; echo $fish_complete_path; complete -c stackyard",
}


@pytest.mark.real
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_unloading_leaves_nothing_of_it(tmp_path: Path, system: str, shell: str) -> None:
    """Also not what the scripts defined when they were used."""
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    lines = [modules.initialise(system, shell), "module load stackyard", USED[shell], "echo @@", NAMES[shell],
             "echo @@", "module unload stackyard", NAMES[shell]]  # fmt: skip
    used, loaded, end = modules.run(shell, "\n".join(lines) + "\n", environ(tmp_path, system), tmp_path).split("@@\n")
    assert "stackyard" in used + loaded and "check" in used + loaded
    left = [line for line in end.splitlines() if "stackyard" in line and not line.startswith(("argv", "_LM", "_\t"))]
    assert left == [], end


LEFT = {"bash": "compgen -A function _s || :"}
STRICT = {"bash": "set -eu\nIFS=_:", "zsh": "setopt errexit nounset warncreateglobal", "tcsh": "", "fish": ""}


@pytest.mark.real
@pytest.mark.parametrize("shell", SHELLS)
def test_no_program_is_started_and_a_strict_shell_goes_on(made: BuildRecord, tmp_path: Path, shell: str) -> None:
    """The shell finds no program at all; and it unloads twice, as where a user removed the completion."""
    programs.need(shell)
    load, unload = completion_commands(Complete("stackyard", f"{made.prefix}/share"))[KINDS.get(shell, shell)]
    begin = "autoload -Uz compinit; compinit -D -u" if shell == "zsh" else ""
    lines = [begin, STRICT[shell], load, unload, unload, LEFT.get(shell, ""), "echo end"]
    there = {"PATH": "/nonexistent", "HOME": str(tmp_path)}
    assert modules.run(shell, "\n".join(lines) + "\n", there, tmp_path) == "end\n"


@pytest.mark.real
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_what_the_system_has_is_found_again(tmp_path: Path, system: str) -> None:
    """In zsh, whose list of completions is made once; bash and fish look when TAB is pressed."""
    if reason := modules.missing(system, "zsh"):
        pytest.skip(reason)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "_stackyard").write_text("#compdef stackyard\ncompadd -- ofthesite\n")
    lines = [modules.initialise(system, "zsh"), f"fpath=({tmp_path}/site $fpath)",
             "autoload -Uz compinit; compinit -u -d $HOME/.dump", "module load stackyard; module unload stackyard",
             "autoload +X _stackyard; functions _stackyard"]  # fmt: skip
    assert "ofthesite" in modules.run("zsh", "\n".join(lines) + "\n", environ(tmp_path, system), tmp_path)


def test_it_is_asked_for_by_the_stack(made: BuildRecord) -> None:
    assert [op for op in full_change(made, Site()) if isinstance(op, Complete)] == [
        Complete("stackyard", f"{made.prefix}/share")
    ]
    plain = replace(made, settings={"commands": ["stackyard"]})
    assert not [op for op in full_change(plain, Site()) if isinstance(op, Complete)]


def test_in_an_image_no_shell_can_read_the_scripts() -> None:
    from stackyard.core.change import EnvironmentChange

    change = EnvironmentChange((Complete("stackyard", ""),))
    assert notable(change, ("lua", "tcl")) == [
        "TAB does not complete stackyard: its scripts are in the image, where no shell can read them"
    ]
    for rules in (lua.RULES, tcl.RULES):
        assert not [line for line in rules[Complete](change.operations[0]) if "stackyard" in line]


def test_a_command_that_no_package_completes(made: BuildRecord) -> None:
    for place in PLACES.values():
        (Path(made.prefix) / "share" / place).unlink()
    with pytest.raises(InputError, match=r"has no script that completes stackyard: .*bash-completion/completions"):
        write_commands(replace(made, settings={"completions": ["stackyard"]}))
