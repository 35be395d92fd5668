"""Modulefiles for Lmod, in Lua: static operations only, safe with unset variables, fast for the spider.

The modulefile contains the helper functions that it uses, so that it works wherever it is copied. They depend only on
``mode()`` and the environment; no program is run and no file is read. One test runs at load: whether the directory of
the revision exists, since the yard may have been renamed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stackyard.core import change as ops
from stackyard.expose.modulefiles.page import Page, page
from stackyard.expose.modulefiles.rendering import (
    Syntax,
    completion_commands,
    messages,
    missing,
    ordered,
    prompt_commands,
    refusal,
)
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.inputs.models import Site

_HELPERS: dict[str, str] = {
    # man without MANPATH searches the system's pages, with it only what it names; an empty entry is the system's. Lmod
    # loads the new member of a family before it unloads the old one, and doubles the colon at the end of a list.
    "prepend_keeping": """\
local function prepend_keeping(name, directory)
   local now = os.getenv(name) or ""
   local alone = now == directory .. ":" or now == directory .. "::"
   if (loading and now == "") or (unloading and alone) then
      setenv(name, directory .. ":")
   else
      prepend_path(name, directory)
   end
end""",
    # Lmod keeps a popped value in __LMOD_STACK_NAME and would restore it the next time. Lmod does not quote line breaks
    # for the shell, so a value with one is not pushed, and a message is shown.
    "borrow": """\
local function borrow(name, value)
   local stack, old = "__LMOD_STACK_" .. name, os.getenv(name)
   local kept = os.getenv(stack)
   if loading and old and old:find("\\n") then
      LmodMessage(this .. ": " .. name .. " contains a line break; it is not restored when this module is unloaded")
      if kept then unsetenv(stack) end
      if value then setenv(name, value) else unsetenv(name) end
      return
   end
   if unloading and not kept then
      if value then setenv(name, value) end
      return
   end
   if loading and kept and old and not kept:find(":") then
      unsetenv(stack)
      pushenv(name, old)
   end
   pushenv(name, value or false)
end""",
    "extended": """\
local function extended(name, text)
   local old = (os.getenv(name) or ""):gsub("\\n", " ")
   return old == "" and text or old .. " " .. text
end""",
    "joined": """\
local function joined(name, front, back, separator, otherwise)
   local old, parts = (os.getenv(name) or ""):gsub("\\n", " "), {}
   for _, text in ipairs({front, old == "" and otherwise or old, back}) do
      if text ~= "" then parts[#parts + 1] = text end
   end
   return table.concat(parts, separator)
end""",
    # The user's own value stays; the value that this module sets is saved, so that only that one is removed again.
    "offer": """\
local function offer(name, value)
   local mark, mine = "__STACKYARD_" .. name, this .. "="
   if unloading then
      local kept = os.getenv(mark)
      if kept and kept:sub(1, #mine) == mine then
         setenv(mark, "")
         if os.getenv(name) == kept:sub(#mine + 1) then setenv(name, "") end
      end
   elseif os.getenv(name) == nil and value then
      setenv(name, value)
      if loading then setenv(mark, mine .. value) end
   end
end""",
    "place": """\
local function place(bases, inner, home, tail)
   local function usable(text) return text and text ~= "" and not text:find("\\n") end
   for _, base in ipairs(bases) do
      local folder = os.getenv(base)
      if usable(folder) then return folder .. "/" .. inner .. tail end
   end
   local folder = os.getenv("HOME")
   return usable(folder) and folder .. "/" .. home .. tail or nil
end""",
    "plain": """\
local function plain(name)
   local text = os.getenv(name) or ""
   return text:find("^[%w._/-]*$") and text or ""
end""",
}


def render(
    record: BuildRecord, site: Site, *, entry: Entry | None = None, change: ops.EnvironmentChange | None = None
) -> str:
    """The Lua modulefile of one revision."""
    return render_page(page(record, site, entry=entry, change=change))


def render_page(content: Page) -> str:
    """The Lua text of a page."""
    body = "\n".join(ops.rendered(ordered(content.change), RULES))
    used = [name for name in _HELPERS if f"{name}(" in body]
    parts = [
        f"-- {_comment(content.module)}: written by stackyard from the record of its build; changes here are lost",
        _head(content),
        f"local this = {quote(content.module)}\n"
        'local loading, unloading = mode() == "load", mode() == "unload"\nlocal shell = myShellType()',
        _refusal(content),
        *(_HELPERS[name] for name in used),
        body,
        _messages(content),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_ESCAPED = {
    **{number: f"\\{number:03d}" for number in range(ord(" "))},
    **str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}),
}


def quote(text: str) -> str:
    """A Lua string literal for exactly `text`."""
    return f'"{text.translate(_ESCAPED)}"'


def block(text: str) -> str:
    """A literal for a text of several lines, readable if possible."""
    if "\n" not in text or "\r" in text or "\0" in text:
        return quote(text)
    level = next("=" * n for n in itertools.count() if f"]{'=' * n}]" not in text and not text.endswith(f"]{'=' * n}"))
    return f"[{level}[\n{text}]{level}]"


def _head(content: Page) -> str:
    lines = [f"help({block(content.help)})"]
    lines += [f"whatis({quote(f'{key}: {value}')})" for key, value in content.whatis]
    if content.family:
        lines.append(f"family({quote(content.family)})")
    if content.conflict:
        lines.append(f"conflict({', '.join(quote(name) for name in content.conflict)})")
    lines += [f"depends_on({quote(name)})" for name in content.depends_on]
    if content.extensions:
        lines.append(f"extensions({quote(', '.join(content.extensions))})")
    return "\n".join(lines)


def _messages(content: Page) -> str:
    lines = "".join(f"   LmodMessage({quote(text)})\n" for text in messages(content))
    first, text = content.retired
    if first:
        lines += f"   if os.date('%Y%m%d') >= {quote(first)} then LmodMessage({quote(text)}) end\n"
    return f"if loading then\n{lines}end" if lines else ""


def _refusal(content: Page) -> str:
    if content.removed:
        return f"if loading then LmodError({quote(refusal(content))}) end"
    if content.needs:
        return f"if loading and not isDir({quote(content.needs)}) then LmodError({quote(missing(content))}) end"
    return ""


# --------------------------------------------------------------------------- a rule for every operation


def _prepend(operation: ops.Prepend) -> list[str]:
    word = "prepend_keeping" if operation.keep_system else "prepend_path"
    return [f"{word}({quote(operation.variable)}, {quote(operation.directory)})"]


def _function(operation: ops.Function) -> list[str]:
    name, lines = quote(operation.name), list[str]()
    for shell in ("sh", "fish", "csh"):
        if shell not in operation.bodies:
            continue
        body = block(operation.bodies[shell])
        lines.append(f"{'elseif' if lines else 'if'} shell == {quote(shell)} then")
        if shell == "csh":  # set_shell_function would leave an empty alias behind
            lines.append(f"   set_alias({name}, {body})")
        else:
            lines.append(f'   set_shell_function({name}, {body}, "")')
        if shell == "sh":
            command = quote(f"export -f {operation.name}")
            lines.append(f'   if myShellName() == "bash" then execute{{cmd={command}, modeA={{"load"}}}} end')
    return [*lines, "end"] if lines else []


def _alias(operation: ops.Alias) -> list[str]:
    return [f"set_alias({quote(operation.name)}, {quote(operation.value)})"]


def _on_unload(operation: ops.OnUnload) -> list[str]:
    assignments = {"sh": "{0}='\" .. plain({1}) .. \"'", "fish": "set -g {0} '\" .. plain({1}) .. \"'"}
    lines: list[str] = []
    for shell, body in operation.bodies.items():
        form = assignments.get(shell, "set {0}='\" .. plain({1}) .. \"'")
        prefix = "".join('"' + form.format(name, quote(name)) + '\\n" .. ' for name in operation.carry)
        lines.append(f"{'elseif' if lines else 'if'} shell == {quote(shell)} then")
        lines.append(f'   execute{{cmd={prefix}{block(body)}, modeA={{"unload"}}}}')
    return [*lines, "end"] if lines else []


def _prompt(operation: ops.Prompt) -> list[str]:
    return _at_both(prompt_commands(operation))


def _complete(operation: ops.Complete) -> list[str]:
    return _at_both(completion_commands(operation))


def _at_both(commands: Mapping[str, tuple[str, str]]) -> list[str]:
    """Commands at load and at unload, by kind of shell or by shell."""
    lines: list[str] = []
    for shell, both in commands.items():
        asked = "myShellName()" if shell in ("bash", "zsh") else "shell"
        lines.append(f"{'elseif' if lines else 'if'} {asked} == {quote(shell)} then")
        for command, mode in zip(both, ("load", "unload"), strict=True):
            lines.append(f'   execute{{cmd={quote(command)}, modeA={{"{mode}"}}}}')
    return [*lines, "end"] if lines else []


def _call(name: str, *words: str) -> str:
    return f"{name}({', '.join(words)})"


RULES: ops.Rules = {
    ops.Prepend: _prepend,
    ops.Function: _function,
    ops.Alias: _alias,
    ops.OnUnload: _on_unload,
    ops.Prompt: _prompt,
    ops.Complete: _complete,
    **Syntax(
        "lua", quote, call=_call, inner=_call, listed=lambda words: f"{{{', '.join(words)}}}", append="append_path",
        unset=("nil",), only=lambda tests, line: f"if {' and '.join(tests)} then {line} end",
        tests={"csh": 'shell ~= "csh"', "zsh": 'myShellName() ~= "zsh"', "fish": 'shell ~= "fish"'},
    ).rules(),
}  # fmt: skip
"""Operation to Lua. The order of operations is that of the change (`rendering.ordered`)."""


def _comment(text: str) -> str:
    return " ".join(text.split())
