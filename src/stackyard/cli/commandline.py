"""Reports a command line that click rejects in the form of other errors, with a hint."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import takewhile

import click

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.hints import did_you_mean, nearest

SYNONYMS = {
    "build": "deploy", "create": "deploy", "install": "deploy", "publish": "deploy", "ls": "list", "avail": "list",
    "rm": "remove", "delete": "remove", "uninstall": "remove", "undo": "rollback", "clean": "gc", "check": "verify",
    "exec": "run", "activate": "shell", "log": "history", "add": "extend", "srun": "launch",
    "sbatch": "submit", "job": "runs", "jobs": "runs", "queue": "runs", "hide": "withdraw",
    "diagnose": "doctor", "setup": "init", "configure": "init", "settings": "config", "version": "--version",
    "freeze": "export", "follow": "attach", "watch": "attach", "tail": "logs", "kill": "cancel", "stop": "cancel",
}  # fmt: skip
"""What people type who know another tool, and the verb or option that does it here."""
_RANKS = "ranks are counted per node: -r RANKS on each of -N NODES"
OPTIONS = {
    "-n": _RANKS, "--np": _RANKS, "--ntasks": _RANKS, "--ntasks-per-node": "--ranks-per-node",
    "--nproc-per-node": "--ranks-per-node", "--nproc_per_node": "--ranks-per-node", "--nnodes": "--nodes",
    "--cpus-per-task": "--cores-per-rank", "--gpus-per-task": "--gpus-per-rank", "--gres": "--gpus-per-rank",
    "--mem": "--memory", "--walltime": "--time", "--image": "--container",
}  # fmt: skip
"""Options of launchers and schedulers, and what does the same for a job here."""
ALIASES = {"info": ("show",), "logs": ("runs", "logs"), "cancel": ("runs", "cancel")}
"""Words that other tools have for a verb and that mean the same here; the help does not list them."""
_UNREADABLE = r"\w+ '(.*)' is not readable\.$"
"""What click says of a path that cannot be opened."""
GLOBAL = ("--yard", "--site", "--debug")
"""The options of the program itself."""


class SuggestingGroup(click.Group):
    """A group that suggests commands for misspelt words and for words of other tools."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's method, with a suggestion."""
        names = self.list_commands(ctx)
        if ctx.parent is None and args and args[0] in ALIASES:
            args = [*ALIASES[args[0]], *args[1:]]
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise _UsageErrorWithHint(
                f"no such command: {ctx.command_path} {args[0]}", _suggestion(ctx.command_path, args, names)
            )
        return super().resolve_command(ctx, args)


def _suggestion(path: str, args: Sequence[str], names: Sequence[str]) -> str:
    same = SYNONYMS.get(args[0], "")
    near = [same] if same in names else nearest(args[0], names)
    more = f"`{path} --help` lists all"
    if same.startswith("--"):
        return f"type `{path} {same}`"
    return f"did you mean `{path} {near[0]}`? {more}" if near else more


def as_error(error: click.ClickException) -> StackyardError:
    """A click error in the form of this program's own errors."""
    if not isinstance(error, click.UsageError):
        return InputError(_plain(error.format_message()))
    path = error.ctx.command_path if error.ctx else " ".join(["stackyard", *takewhile(_is_word, sys.argv[1:])])
    hint = error.hint if isinstance(error, _UsageErrorWithHint) else _hint(error, path)
    return InputError(_message(error, path), hint=hint)


class _UsageErrorWithHint(click.UsageError):
    """With a hint of its own."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _message(error: click.UsageError, path: str) -> str:
    if isinstance(error, click.NoSuchOption):
        return f"no such option: {error.option_name}"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        return f"missing argument {error.param.make_metavar(error.ctx) if error.ctx else error.param.name}"
    if isinstance(error, click.MissingParameter) and error.param and isinstance(error.param.type, click.Choice):
        return f"missing option '{_name(error.param)}': {' or '.join(map(str, error.param.type.choices))}"
    if unreadable := re.match(_UNREADABLE, error.message):
        return f"cannot read {unreadable[1]}: permission denied"
    if isinstance(error, click.BadParameter) and error.param is not None and error.message:
        return f"{_name(error.param)}: {_plain(error.message)}"
    return _plain(error.format_message())


def _hint(error: click.UsageError, path: str) -> str:
    if isinstance(error, click.NoSuchOption):
        if error.option_name in GLOBAL:
            return f"it comes before the verb: stackyard {error.option_name} ... {path.removeprefix('stackyard ')}"
        theirs = OPTIONS.get(error.option_name, "")
        known = {option for param in error.ctx.command.params for option in param.opts} if error.ctx else set()
        if theirs == _RANKS and "--ranks-per-node" in known:
            return f"{theirs}; `{path} --help` lists all"
        names = {option.lstrip("-"): option for option in known}  # dashes make all options alike
        near = did_you_mean(error.option_name.lstrip("-"), names, shown=names.__getitem__)
        question = f"use {theirs};" if theirs in known else near
        return f"{question} `{path} --help` lists all".lstrip()
    if re.match(_UNREADABLE, error.message):
        return "ask its owner for read permission, or use a copy"
    examples = getattr(error.ctx.command, "examples", ()) if error.ctx else ()
    unclear = isinstance(error, click.MissingParameter) or "unexpected extra argument" in error.message
    like = f"for example: {examples[0][1]}; " if unclear and examples else ""
    return f"{like}`{path} --help` shows how it is used"


def _is_word(word: str) -> bool:
    return not word.startswith("-")


def _name(param: click.Parameter) -> str:
    """The longest name of an option; the metavar of an argument."""
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name.strip("[].")


def _plain(text: str) -> str:
    """A sentence of click, turned into the second half of one of our messages."""
    text = text.rstrip(".").replace("integer range", "integer").replace("float range", "number")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
