"""Shared by the modulefiles of all formats: the order of operations, the messages, values on one line."""

from __future__ import annotations

import re
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
