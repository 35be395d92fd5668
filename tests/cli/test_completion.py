"""Completion in real shells: what it offers is what the commands have, and hostile names stay inert."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

import stackyard as package
from stackyard.cli.begin.completion import FILES
from support import programs, terminals
from support.cli import inside

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(package.__file__).parent / "completions"
HOSTILE = ("$(touch pwned)", "`touch pwned`", "a;touch pwned", "\x1b[2Jx", "zz'q", 'zz"q', "zz!q", "-rf", "x y", "*")
"""What another account may write where names are read."""
EMPTY = '""'


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("completions", ROOT / "scripts" / "completions.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with runs, with a user's yard and the site's, each with hostile names too."""
    for name in ("2026-11-26-001", *HOSTILE):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "record.json").touch()
    for yard, stack in (("mine", "torch"), ("site's", "jax")):
        (tmp_path / yard).mkdir()
        names = [f"r {stack}/2.9-py313-1", f"r {stack}/2.10-py313-1", f"s {stack}", *(f"r {name}" for name in HOSTILE)]
        (tmp_path / yard / "names").write_text("\n".join(names) + "\n")
    (tmp_path / "site's").rename(tmp_path / "site")
    (tmp_path / "site.yaml").write_text(f'name: x\nyard: "{tmp_path}/site"  # of all\n')
    return tmp_path


def environ(place: Path) -> dict[str, str]:
    yards = {"STACKYARD_HOME": str(place / "mine"), "STACKYARD_SITE": str(place / "site.yaml")}
    return {"PATH": "/usr/bin:/bin", "HOME": str(place), "TERM": "xterm", "LC_ALL": "C.UTF-8", **yards}


def bash(place: Path, lines: dict[str, str]) -> list[list[str]]:
    """What bash offers for each line."""
    calls = "\n".join(
        f"COMP_WORDS=({line}{EMPTY if line.endswith(' ') else ''}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); "
        '_shtab_stackyard 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}" =='
        for line in lines
    )
    return _lists(place, ["bash", "--norc"], f". {SCRIPTS}/stackyard.bash\n{calls}\n")


def fish(place: Path, lines: dict[str, str]) -> list[list[str]]:
    calls = "\n".join(f"complete -C '{line}'; echo ==" for line in lines)
    shown = _lists(place, ["fish", "--no-config"], f"source {SCRIPTS}/stackyard.fish\n{calls}\n")
    return [[line.partition("\t")[0] for line in lines] for lines in shown]


def _lists(place: Path, argv: list[str], script: str) -> list[list[str]]:
    done = subprocess.run(
        argv, input=script, env=environ(place), cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [[line for line in part.split("\n") if line] for part in done.stdout.split("==\n")[:-1]]


def zsh(place: Path, lines: dict[str, str]) -> list[list[str]]:
    begin = (
        f"fpath=({SCRIPTS} $fpath); autoload -Uz compinit; compinit -u -d {place}/.dump; bindkey '^I' complete-word; "
        "stty cols 200; unsetopt beep zle_bracketed_paste"
    )
    shown = terminals.typed(["zsh", "-f"], environ(place), place, begin, list(lines.items()))
    return [words for words, _ in shown]


def tcsh(place: Path, lines: dict[str, str]) -> list[list[str]]:
    begin = f"source {SCRIPTS}/stackyard.tcsh; set autolist"
    return [words for words, _ in terminals.typed(["tcsh", "-f"], environ(place), place, begin, list(lines.items()))]


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish, "tcsh": tcsh}


WANTED = {
    "stackyard sh": ["shell", "show", "share"],
    "stackyard launch --no-ch": ["--no-check"],
    "stackyard launch --backend horo": ["horovod"],
    "stackyard show torch/2.1": ["torch/2.10-py313-1"],
    "stackyard show jax/2.1": ["jax/2.10-py313-1"],
    "stackyard default torch": ["torch/2.9-py313-1", "torch"],
    "stackyard profile 20": ["2026-11-26-001"],
    "stackyard launch --with torch/2.9": ["torch/2.9-py313-1"],
}
OFFERED = {line: words[0] for line, words in WANTED.items()}


def test_the_scripts_are_fresh(made: ModuleType) -> None:
    assert {name: (SCRIPTS / name).read_text() for name in FILES.values()} == made.texts(), "run scripts/completions.py"


def test_every_option_of_every_command_is_offered(made: ModuleType, tmp_path: Path) -> None:
    """Asked from the bash that is running, and read in the texts of the others, where each command has a block."""
    programs.need("bash")
    root = made.whole(made.cli, click.Context(made.cli, info_name="stackyard"))
    commands = list(made.walk(root))
    offered = bash(tmp_path, {" ".join(["stackyard", *path, "-"]): "-h" for path, _ in commands})
    texts = {shell: (SCRIPTS / name).read_text() for shell, name in FILES.items()}
    assert len(commands) > 65
    for (path, command), of_bash in zip(commands, offered, strict=True):
        options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        wanted = {"-h", "--help", *(name for o in options for name in (*o.opts, *o.secondary_opts))}
        assert set(of_bash) == wanted, path
        start = "_".join(["_shtab_stackyard", *path]).replace("-", "_")
        block = re.search(rf"^{start}_options=\((.*?)^\)", texts["zsh"], re.M | re.S)
        assert block and wanted <= set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", block[1])), path
        key = f"'_shtab_stackyard_using {' '.join(path)}'" if path else "_shtab_stackyard_using"
        lines = [line for line in texts["fish"].splitlines() if line.startswith(f"complete -c stackyard -n {key} ")]
        of_fish = {f"-{d if len(d) == 1 else '-' + d}" for line in lines for d in re.findall(r" -[ls] (\S+)", line)}
        assert wanted <= of_fish, path
        of_tcsh = set(" ".join(re.findall(r"'c/--?/\((.*?)\)/'", texts["tcsh"])).split())
        assert {name.lstrip("-") for name in wanted} <= of_tcsh, path


@pytest.mark.parametrize("shell", SHELLS)
def test_it_offers_verbs_options_choices_and_names(shell: str, place: Path) -> None:
    programs.need(shell)
    for (line, _), words in zip(OFFERED.items(), SHELLS[shell](place, OFFERED), strict=True):
        assert set(WANTED[line]) <= set(words), (line, words)


@pytest.mark.parametrize("shell", SHELLS)
def test_names_that_others_wrote_are_inert(shell: str, place: Path) -> None:
    programs.need(shell)
    lines = {"stackyard show ": "jax/2.9-py313-1", "stackyard runs logs ": "last", "stackyard default ": "torch"}
    for words in SHELLS[shell](place, lines):
        text = " ".join(words)
        assert not [bad for bad in ("pwned", "zz", "-rf", "[2Jx", "*") if bad in text], text
    assert not list(place.rglob("pwned"))


def test_a_pipe_and_a_huge_file_in_its_place_do_not_hold_the_shell_up(place: Path) -> None:
    programs.need("bash")
    (place / "mine" / "names").unlink()
    os.mkfifo(place / "mine" / "names")
    with (place / "site" / "names").open("ab") as file:
        file.truncate(1 << 32)
    assert "jax/2.9-py313-1" in bash(place, {"stackyard show jax/": "jax"})[0]


@pytest.mark.parametrize("shell", FILES)
def test_the_verb_prints_the_script(shell: str) -> None:
    assert inside("completion", shell).out == (SCRIPTS / FILES[shell]).read_text()


def test_nothing_imports_shtab_at_run_time() -> None:
    code = "import sys, stackyard.cli.main, stackyard.cli.begin.completion; sys.exit('shtab' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
