"""Any name and value that the grammars accept arrives in every shell as it is, or the limits of the module say so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from stackyard.core import grammar, posix
from stackyard.core.change import Alias, Default, EnvironmentChange, Flags, Function, Join, Set, SetRestorable, UserPath
from stackyard.expose.condarc import condarc_text
from stackyard.expose.limits import Format, Shell, limits
from stackyard.expose.modulefiles import lua, tcl
from stackyard.inputs.sites.sitemodels import CondaRc, Site
from stackyard.launch.shim import shell as shim
from stackyard.yard.layout import Yard
from support import modules, stackrecords

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: grammar.SETTABLE.accepts(name) and name not in KEPT and not name.startswith(("LMOD", "MODULE", "_"))
)
KEPT = {"PATH", "HOME", "SHLVL", "PWD", "OLDPWD", "IFS", "TERM", "LANG", "MODULEPATH", "TZ", "TMOUT", "GLOBIGNORE"}
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
NASTY = (
    "$(touch P)", "`touch P`", "; touch P;", "'; touch P; '", '"; touch P; "', "\\'; touch P #", "a\ntouch P\n",
    "a\r\nb",
    "[exec touch P]", "[[exec touch P]]", "]] ]=] ]==] os.execute('touch P')", '"..os.execute("touch P").."', "{", "}",
    "$env(HOME)", "${HOME}", "%HOME%", "!!", "a!b", "~", "~root", "=ls", "*", "?", "\\", "\\\\", "\\n",
    "\x01\x07\x1b[0m",
    "\x7f", "\x80\x85\x9f", "\u2028\u2029", "\ufeff", "\U0001f600", "e\u0301", " lead", "trail ", "\t", "#c", "-n", "",
    "a" * 3000, "a;b&c|d<e>f(g)h", "\x0b\x0c\x1c\x1d\x1e", "{a,b}", "a=b=c", ":a::b:", "'", '"', "it's \"q\"", "$", "`",
)  # fmt: skip
Variable = SetRestorable | Flags | Join | Default | UserPath
FORMATS: dict[str, Format] = {"lmod": "lua", "em": "tcl"}
PAIRS = [(system, shell) for system in modules.SYSTEMS for shell in modules.SHELLS]
SHELL: dict[str, Shell] = {"bash": "bash", "zsh": "zsh", "tcsh": "tcsh", "fish": "fish"}


def load(change: EnvironmentChange, system: str, shell: str, place: Path) -> modules.Shot:
    """What a shell holds once a module that makes this change is loaded."""
    record = stackrecords.record(Yard(place / "yard"), "odd", "1", change=change)
    render = lua.render if system == "lmod" else tcl.render
    file = place / "modules" / "odd" / ("1.lua" if system == "lmod" else "1")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(record, Site(), change=change), newline="")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(place), "LANG": "C.UTF-8", "MODULEPATH": str(place / "modules")}
    lines = (modules.initialise(system, shell), "module load odd/1", modules.snapshot(shell, place / "loaded"))
    (place / "loaded.env").unlink(missing_ok=True)
    output = modules.run(shell, "\n".join(lines) + "\n", environ, place)
    shot = modules.take(place / "loaded")
    assert shot, output[-2000:]
    assert not list(place.rglob("P")), output[-2000:]
    return shot


def wrong(
    operations: Iterable[Variable], shot: modules.Shot, system: str, shell: str
) -> dict[str, tuple[str, str | None]]:
    """The variables with another value than they were given, unless a limit says so."""
    found = {}
    for operation in operations:
        name, change = operation.variable, EnvironmentChange((operation,))
        value = change.apply({"HOME": shot.environ["HOME"]})[name]
        told = [text for text in limits(change, FORMATS[system], SHELL[shell]) if "does not restore" not in text]
        if shot.environ.get(name) != value and not told:
            found[name] = (value, shot.environ.get(name))
    return found


def nasty() -> Iterator[Variable]:
    """Every operation that sets a variable, with every nasty value."""
    for number, value in enumerate(NASTY):
        yield SetRestorable(f"NASTY_{number}", value)
        yield Flags(f"FLAGS_{number}", value)
        yield Join(f"JOINED_{number}", value, "x", ";", value)
        yield Default(f"DEFAULT_{number}", value)
        yield UserPath(f"FOLDER_{number}", ("NOWHERE",), "", value)


COMMANDS = ("tool", "a-b", "a.b", "a+b", "a@b", "a:b", "1st", "_own", "__deep", "A9")


@pytest.mark.real
@pytest.mark.parametrize(("system", "shell"), PAIRS)
def test_names_and_values_arrive_or_are_reported(tmp_path: Path, system: str, shell: str) -> None:
    """One module with all nasty values, functions and aliases of every kind of name, and what hypothesis makes up."""
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    bodies = {"sh": "echo in sh", "fish": "echo in fish", "csh": "echo in csh"}
    functions = [Function(name, bodies) for name in COMMANDS]
    named = (*functions, *(Alias(f"{name}-alias", "echo aliased") for name in COMMANDS))

    @settings(
        max_examples=2, derandomize=True, phases=[Phase.generate], deadline=None, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    @given(st.lists(st.tuples(NAMES, VALUES), min_size=60, max_size=60))
    def holds(pairs: list[tuple[str, str]]) -> None:
        variables = (*nasty(), *(SetRestorable(name, value) for name, value in dict(pairs).items()))
        shot = load(EnvironmentChange((*variables, *named)), system, shell, tmp_path)
        assert wrong(variables, shot, system, shell) == {}
        defined = shot.aliases if shell == "tcsh" else shot.functions
        assert {operation.name for operation in functions} <= defined.keys()
        aliases = shot.functions if shell == "fish" else shot.aliases
        assert {f"{name}-alias" for name in COMMANDS} <= aliases.keys()

    holds()


@pytest.mark.parametrize("program", ["bash", "sh"])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, VALUES, max_size=20))
def test_the_environment_of_a_rank_is_exact(tmp_path: Path, program: str, drawn: dict[str, str]) -> None:
    """rank.sh and batch scripts quote every value once, in any POSIX shell; ``${RANK}`` and the like are filled in."""
    drawn = {name: shim.FILLED.sub("", value) for name, value in drawn.items()}  # hypothesis knows the sources' words
    values = {**{f"NASTY_{number}": value for number, value in enumerate(NASTY)}, **drawn}
    text = posix.change_text(EnvironmentChange(tuple(Set(name, value) for name, value in values.items())))
    more = {f"MORE_{name}"[:250]: f"{value}${{RANK}}" for name, value in values.items()}
    script = tmp_path / "rank.sh"
    script.write_text(f"RANK=7\n{text}{shim.exports(more)}/usr/bin/env -0\n", newline="")
    environ = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([program, str(script)], cwd=tmp_path, capture_output=True, env=environ, check=True)
    found = dict(pair.split("=", 1) for pair in done.stdout.decode().split("\0") if pair)
    wanted = {**values, **{name: value.replace("${RANK}", "7") for name, value in more.items()}}
    assert {name: found.get(name) for name in wanted} == wanted
    assert not (tmp_path / "P").exists()


def test_the_condarc_holds_what_the_site_says() -> None:
    extra = {f"nasty_{number}": value for number, value in enumerate(NASTY)}
    text = condarc_text(Site(condarc=CondaRc(extra=extra)))
    assert {key: value for key, value in YAML(typ="safe").load(text).items() if key in extra} == extra


def test_a_help_text_with_every_bracket_is_a_literal() -> None:
    text = "\n".join(f"]{'=' * count}]" for count in range(30))
    assert lua.block(text).startswith(f"[{'=' * 30}[")
