"""Shared by the modulefiles of all formats: the order of operations, the messages, values on one line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stackyard.core import change as ops
from stackyard.expose.limits import Format, quoted, unquotable_in
from stackyard.expose.modulefiles.page import Page

_BREAK = re.compile(r"\r\n|[\r\n]")


def ordered(change: ops.EnvironmentChange) -> list[ops.Operation]:
    """Operations in order: unload commands come first, since they read saved values that later lines remove."""
    return sorted(change, key=lambda operation: not isinstance(operation, ops.OnUnload))


def messages(content: Page) -> list[str]:
    """The messages on load: the deprecation, the notice of the generation, the notices of the revision."""
    texts = [f"{content.module} is deprecated: {content.deprecated}"] if content.deprecated else []
    texts += [content.notice] if content.notice else []
    return texts + [operation.text for operation in content.change if isinstance(operation, ops.Notice)]


def refusal(content: Page) -> str:
    """The message shown instead of loading it; empty if it can be loaded."""
    return one_line(content.removed)


def missing(content: Page) -> str:
    """The message shown instead of loading it if its required directory does not exist."""
    why = "not found: its files were moved or removed; restore them, or choose another: stackyard list"
    return one_line(f"{content.module}: {content.needs} {why}")


def one_line(text: str) -> str:
    """A value with spaces for line breaks, because module systems hand those to the shell unquoted (see `limits`)."""
    return _BREAK.sub(" ", text)


def prompt_commands(operation: ops.Prompt) -> dict[str, tuple[str, str]]:
    """The commands at load and at unload by kind of shell: builtins only, since a prompt is not in the environment.

    The text is removed wherever it is in the prompt: an environment that was activated on top, or the new member of a
    family, has put its own in front. In csh, which reads a line before it runs it, ``eval`` keeps a prompt that is not
    set from being an error; Environment Modules needs the semicolon. fish has a function as its prompt: it is left out.
    """
    text = f'"{operation.text}"'
    inside = f'*{text}*) PS1="${{PS1%%{text}*}}${{PS1#*{text}}}" ;;'
    return {
        "sh": (
            f'if [ -n "${{PS1-}}" ]; then PS1={text}"$PS1"; fi',
            f'case "${{PS1-}}" in {inside} esac',
        ),
        "csh": (
            f"if ( $?prompt ) eval 'set prompt = {text}\"$prompt:q\"';",
            f'if ( $?prompt ) eval \'if ( "$prompt:q" =~ *{text}* ) set prompt = "$prompt:s/{operation.text}//"\';',
        ),
    }


def completion_commands(operation: ops.Complete) -> dict[str, tuple[str, str]]:
    """The commands at load and at unload by shell, which start no program and read no script before a TAB, but in tcsh.

    bash and fish ask a small function, which reads the script and asks again (in bash by status 124); zsh loads a
    function when it is called, if the user's start files have set up its completion. After an unload each finds what
    the system has for the same command: bash-completion by itself, zsh and fish because they are told where to look.
    """
    if not operation.share:
        return {}
    name, stem = operation.name, operation.stem
    bash, other, zsh, fish, tcsh = (shlex.quote(str(path)) for path in operation.scripts)
    ours = f"string match -r -- '^_(?:shtab_)?{stem}_.*'"
    return {
        "bash": (
            f"_{stem}_load() {{ . {bash} 2>/dev/null || . {other} 2>/dev/null && return 124; }}; "
            f"complete -F _{stem}_load {name}",
            f"_{stem}_unload() {{ local IFS; unset -v IFS; complete -r {name} 2>/dev/null; "
            f"unset -f $(compgen -A function _{stem}_; compgen -A function _shtab_{stem}); "
            f"unset -v ${{!_{stem}_@}} ${{!_shtab_{stem}_@}}; }}; _{stem}_unload || :",
        ),
        "zsh": (
            f"if (( $+functions[compdef] )); then autoload -Uz {zsh}; compdef _{name} {name}; fi",
            f"if (( $+functions[compdef] )); then compdef -d {name}; "
            f"unfunction -m '_{name}' '_{stem}_*' '_shtab_{stem}*' || :; unset -m '_{stem}_*' '_shtab_{stem}*' || :; "
            f"() {{ if (( $# )); then autoload -Uz _{name}; compdef _{name} {name}; fi; }} $^fpath/_{name}(N); fi",
        ),
        "fish": (
            f"function _{stem}_load; complete -e -c {name}; source {fish}; complete -C (commandline -cp); end; "
            f"complete -e -c {name}; complete -c {name} -f -a '(_{stem}_load)'",
            f"complete -e -c {name}; for f in (functions -an | {ours}); functions -e $f; end; "
            f"for v in (set -gn | {ours}); set -eg $v; end; "
            f"for d in $fish_complete_path; if test -r $d/{name}.fish; source $d/{name}.fish; break; end; end",
        ),
        "csh": (
            f"if ( $?tcsh && -r {tcsh} ) source {tcsh};",
            f"if ( $?tcsh ) uncomplete {name}; unset _{stem}_*;",
        ),
    }


class Syntax(NamedTuple):
    """The syntax of one language for operations on variables; both languages have the same commands and helpers.

    Attributes:
        quote: renders a text as a word.
        call, inner: render a command as a line, and as a word inside another command.
        listed: renders a list of words as one word.
        append: the command that appends to a list of directories.
        only: renders a line that runs only if these tests hold.
        tests: render the test that the shell is not this one, for which the module system cannot quote a value (see
            `limits`).
        this: the first words of a helper that keeps a value of the user.
        unset: its words for no value.
        spread: the prefix of a word that expands to several.
    """

    format: Format
    quote: Callable[[str], str]
    call: Callable[..., str]
    inner: Callable[..., str]
    listed: Callable[[Sequence[str]], str]
    append: str
    only: Callable[[Sequence[str], str], str]
    tests: Mapping[str, str]
    this: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    spread: str = ""

    def rules(self) -> ops.Rules:
        """The rendering rules for these operations. Messages are left out: they are rendered together at the end."""
        return {
            ops.Append: self._append, ops.Set: self._set, ops.SetRestorable: self._set_restorable,
            ops.Default: self._default, ops.SaveValue: self._save_value, ops.Flags: self._flags, ops.Join: self._join,
            ops.UserPath: self._user_path, ops.Notice: ops.left_out,
        }  # fmt: skip

    def _append(self, o: ops.Append) -> list[str]:
        return [self.call(self.append, self.quote(o.variable), self.quote(o.directory))]

    def _set(self, o: ops.Set) -> list[str]:
        return self._barred(o, "setenv", self.quote(o.variable), self._value(o.value))

    def _set_restorable(self, o: ops.SetRestorable) -> list[str]:
        return self._kept("borrow", o, *(self.unset if o.value is None else (self._value(o.value),)))

    def _default(self, o: ops.Default) -> list[str]:
        return self._kept("offer", o, self._value(o.value))

    def _save_value(self, o: ops.SaveValue) -> list[str]:
        return [self.call("setenv", self.quote(o.variable), self.inner("plain", self.quote(o.source)))]

    def _flags(self, o: ops.Flags) -> list[str]:
        return self._kept("borrow", o, self.inner("extended", self.quote(o.variable), self._value(o.text)))

    def _join(self, o: ops.Join) -> list[str]:
        texts = map(self._value, (o.front, o.back, o.separator, o.otherwise))
        return self._kept("borrow", o, self.inner("joined", self.quote(o.variable), *texts))

    def _user_path(self, o: ops.UserPath) -> list[str]:
        bases, texts = self.listed([*map(self.quote, o.bases)]), map(self._value, (o.suffix, o.fallback, o.rest))
        return self._kept("offer", o, self.spread + self.inner("place", bases, *texts))

    def _value(self, text: str) -> str:
        return self.quote(one_line(text))

    def _kept(self, helper: str, o: Any, *words: str) -> list[str]:
        return self._barred(o, helper, *self.this, self.quote(o.variable), *words)

    def _barred(self, o: Any, *words: str) -> list[str]:
        tests = [self.tests[shell] for shell in unquotable_in(quoted(o), self.format)]
        return [self.only(tests, self.call(*words)) if tests else self.call(*words)]
