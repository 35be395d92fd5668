"""Write the completion scripts of the package from the commands themselves, with shtab; ``--check`` compares only.

The scripts are data of the package, so that no Python starts at a TAB and shtab is needed by developers only. Names of
revisions and stacks come from ``<yard>/names``, names of runs from ``runs/*``: one POSIX program reads them for every
shell, and passes only names without a character that a shell would interpret.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import shtab
import shtab.click

from stackyard.cli.begin.completion import FILES
from stackyard.cli.main import VERBS, cli
from stackyard.cli.study import bench

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "stackyard" / "completions"
NAMES = (
    "f=${STACKYARD_SITE:-/etc/stackyard/site.yaml}; "
    '[ -f "$f" ] || f=${XDG_CONFIG_HOME:-$HOME/.config}/stackyard/site.yaml; '
    'y=; [ -f "$f" ] && y=$(head -c 1000000 "$f" | sed -n "s,^yard: *[\\"]*\\(/[^ \\"]*\\).*,\\1,p"); '
    '{ case $1 in *j*) echo "j last"; for d in runs/*/record.json; do '
    'd=${d#runs/}; echo "j ${d%/record.json}"; done;; esac; '
    'for d in "${STACKYARD_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/stackyard}" "$y"; do '
    'case $1 in *[rs]*) [ -f "$d/names" ] && head -c 2000000 "$d/names";; esac; done; } 2>/dev/null | '
    'LC_ALL=C sed -n "s,^[$1] \\([A-Za-z0-9_+][A-Za-z0-9_.+/-]*\\)\\$,\\1,p"'
)
"""Prints the names of the kinds in ``$1``: r revisions, s stacks, j runs. It has no ' and !, for tcsh's sake."""
CALL = "sh -c $_stackyard_names{} names {}"
KINDS = {"r": "r", "rs": "rs", "j": "j", "rFile": "r", "jFile": "j"}
"""What a word can be, as the end of a function's name, with its letters for `NAMES`; bash quotes ``File``."""
SCAN = "\n  _shtab_stackyard_scan\n"
"""fish asks for each of our commands whether it is the one on the line; shtab reads the line anew each time."""
SCAN_ONCE = """
  set -l line (commandline -opc)
  if not set -q _stackyard_line; or test "$line" != "$_stackyard_line"
    _shtab_stackyard_scan
    set -g _stackyard_line "$line"
  end
"""
ALSO = {
    ("diff", "a"): "rFile", ("diff", "b"): "rFile", ("retire", "use"): "r", ("extend", "base"): "r",
    ("default", "rev"): "rs", ("withdraw", "rev"): "rs", ("retire", "rev"): "rs", ("share", "rev"): "rs",
}  # fmt: skip
"""Words whose metavar does not tell, by verb and parameter."""


def whole(command: click.Command, context: click.Context) -> click.Command:
    """A command with all commands below it, where click has them: our groups import each when it is used."""
    if isinstance(command, click.Group):
        below = {n: command.get_command(context, n) for n in command.list_commands(context)}
        kept = command.params
    elif isinstance(command, bench._Bench):
        below = {n: importlib.import_module(f"stackyard.cli.study.{n}").command for n in bench.PARTS}
        kept = [param for param in command.params if isinstance(param, click.Option)]
    else:
        return command
    inner = {n: whole(c, click.Context(c, info_name=n, parent=context)) for n, c in below.items() if c and not c.hidden}
    return click.Group(command.name, commands=inner, params=kept, help=command.help)


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below one, with its words."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


def parser() -> argparse.ArgumentParser:
    """The command line as argparse knows it, with what shtab's conversion leaves out."""
    root = whole(cli, click.Context(cli, info_name="stackyard"))
    made = shtab.click.click2argparse(root)
    made.prog = "stackyard"
    for path, command in walk(root):
        inner = _at(made, path)
        _complete(inner, command, path)
        inner.description = VERBS.get(" ".join(path)) or (command.help or "").strip().split(". ")[0]
    return made


def _at(made: argparse.ArgumentParser, path: tuple[str, ...]) -> argparse.ArgumentParser:
    for name in path:
        groups = (action for action in made._actions if isinstance(action, argparse._SubParsersAction))
        made = next(groups).choices[name]
    return made


def _complete(made: argparse.ArgumentParser, command: click.Command, path: tuple[str, ...]) -> None:
    actions: dict[str, Any] = {name: a for a in made._actions for name in a.option_strings or [a.dest]}
    first = True
    for param in command.params:
        is_option = isinstance(param, click.Option)
        action = actions.get(param.opts[0] if is_option else str(param.name))
        if action is None:  # hidden
            continue
        for name in param.secondary_opts:
            made.add_argument(name, action="store_true", help=f"The opposite of {param.opts[0]}.")
        action.help = action.help and action.help.replace("%", "%%")
        action.metavar = "value" if is_option else action.metavar
        context = click.Context(command, info_name=path[-1] if path else "stackyard")
        if not getattr(param, "is_flag", False) and not action.choices and not isinstance(param.type, click.Path):
            action.choices = [item.value for item in param.type.shell_complete(context, param, "")] or None
        if kind := ALSO.get(((path or ("",))[0], str(param.name))) or _kind(param):
            action.complete = _words(kind, first or is_option)
        first = first and is_option


def _kind(param: click.Parameter) -> str:
    """What a parameter's word is: one of `KINDS`, ``file``, ``directory``, or empty."""
    metavar = param.metavar or ""
    letter = "r" if "REV" in metavar else "j" if "RUN" in metavar else ""
    if letter:
        return f"{letter}File" if any(word in metavar for word in ("FILE", "DIR", "LOG", "STUDY")) else letter
    if param.name == "yard":
        return "directory"
    return "file" if param.type is click.UNPROCESSED or metavar.startswith("FILE...") else ""


def _words(kind: str, is_first: bool) -> dict[str, str]:
    if kind in shtab.CHOICE_FUNCTIONS:
        return shtab.CHOICE_FUNCTIONS[kind]
    files = f"; {shtab.FILE['fish'][1:-1]}" if kind.endswith("File") else ""
    found = {
        "bash": f"_stackyard_{kind}",
        "zsh": f"_stackyard_{kind}",
        "fish": f"(_stackyard_list {KINDS[kind]}{files})",
    }
    # tcsh has a rule for the word behind another one, and none for the second word of a verb
    return {**found, "tcsh": f"`{CALL.format(':q', KINDS[kind])}`"} if is_first else found


def preamble(shell: str) -> str:
    """The functions that print names, in one shell's language."""
    if shell == "tcsh":
        return f"set _stackyard_names = '{NAMES}'"
    if shell == "fish":
        return f"function _stackyard_list\n  sh -c '{NAMES}' names $argv[1]\nend"
    lines = [f"_stackyard_names='{NAMES}'"]
    for kind, letters in KINDS.items():
        call = CALL.format("", letters).replace("$_stackyard_names", '"$_stackyard_names"')
        if shell == "bash":
            body = f'compgen -W "$({call})" -- "$1"' + ('; compgen -f -- "$1"' if kind.endswith("File") else "")
        else:
            body = f'local -a found; found=(${{(f)"$({call})"}}); compadd -a found' + (
                "; _files" if kind.endswith("File") else ""
            )
        lines.append(f"_stackyard_{kind}() {{ {body}; }}")
    return "\n".join(lines)


def texts() -> dict[str, str]:
    """The scripts by their file's name."""
    made = parser()
    found = {name: shtab.complete(made, shell, preamble=preamble(shell)) for shell, name in FILES.items()}
    if SCAN not in found[FILES["fish"]]:
        sys.exit("shtab writes another script for fish: see SCAN")
    found[FILES["fish"]] = found[FILES["fish"]].replace(SCAN, SCAN_ONCE)
    return {name: "".join(f"{line.rstrip()}\n" for line in text.splitlines()) for name, text in found.items()}


def main() -> None:
    """Write the scripts, or with ``--check`` exit with status 1 if one is stale."""
    for name, text in texts().items():
        path = TARGET / name
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                sys.exit(f"{path} is stale: run {sys.argv[0]}")
        else:
            path.write_text(text)


if __name__ == "__main__":
    main()
