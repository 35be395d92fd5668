"""Modulefiles for Lmod, in Lua: static operations only, safe with unset variables, fast for the spider.

The modulefile contains the helper functions that it uses, so that it works wherever it is copied. They depend only on
``mode()`` and the environment; no program is run and no file is read. One test at load: whether the directory of
the revision exists, which a yard that was renamed has elsewhere.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from stackyard.core.change import (
    Alias,
    Append,
    Default,
    EnvironmentChange,
    Flags,
    Function,
    Join,
    Notice,
    OnUnload,
    Prepend,
    Rules,
    SaveValue,
    Set,
    SetRestorable,
    UserPath,
    left_out,
    rendered,
)
from stackyard.expose.limits import quoted, unquotable_in
from stackyard.expose.page import Page, page
from stackyard.expose.rendering import messages, missing, one_line, ordered, refusal
from stackyard.yard.revision.record import BuildRecord, Entry

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
    record: BuildRecord, site: Site, *, entry: Entry | None = None, change: EnvironmentChange | None = None
) -> str:
    """The Lua modulefile of one revision."""
    return render_page(page(record, site, entry=entry, change=change))


def render_page(content: Page) -> str:
    """The Lua text of a page."""
    body = "\n".join(rendered(ordered(content.change), RULES))
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
    """A literal for a text of several lines, in readable form where possible."""
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


def _value(text: str) -> str:
    return quote(one_line(text))


def _barred(operation: Set | SetRestorable | Default | Flags | Join | UserPath, line: str) -> list[str]:
    """The line, skipped in shells for which Lmod cannot quote the value (see `limits`)."""
    tests = {"csh": 'shell ~= "csh"', "zsh": 'myShellName() ~= "zsh"', "fish": 'shell ~= "fish"'}
    test = " and ".join(tests[shell] for shell in unquotable_in(quoted(operation), "lua"))
    return [f"if {test} then {line} end" if test else line]


# --------------------------------------------------------------------------- a rule for every operation


def _prepend(operation: Prepend) -> list[str]:
    word = "prepend_keeping" if operation.keep_system else "prepend_path"
    return [f"{word}({quote(operation.variable)}, {quote(operation.directory)})"]


def _append(operation: Append) -> list[str]:
    return [f"append_path({quote(operation.variable)}, {quote(operation.directory)})"]


def _set(operation: Set) -> list[str]:
    return _barred(operation, f"setenv({quote(operation.variable)}, {_value(operation.value)})")


def _set_restorable(operation: SetRestorable) -> list[str]:
    value = operation.value
    return _barred(operation, f"borrow({quote(operation.variable)}, {'nil' if value is None else _value(value)})")


def _default(operation: Default) -> list[str]:
    return _barred(operation, f"offer({quote(operation.variable)}, {_value(operation.value)})")


def _save_value(operation: SaveValue) -> list[str]:
    return [f"setenv({quote(operation.variable)}, plain({quote(operation.source)}))"]


def _flags(operation: Flags) -> list[str]:
    variable = quote(operation.variable)
    return _barred(operation, f"borrow({variable}, extended({variable}, {_value(operation.text)}))")


def _join(operation: Join) -> list[str]:
    variable = quote(operation.variable)
    texts = (operation.front, operation.back, operation.separator, operation.otherwise)
    return _barred(operation, f"borrow({variable}, joined({variable}, {', '.join(map(_value, texts))}))")


def _user_path(operation: UserPath) -> list[str]:
    bases = ", ".join(quote(base) for base in operation.bases)
    words = ", ".join(_value(text) for text in (operation.suffix, operation.fallback, operation.rest))
    return _barred(operation, f"offer({quote(operation.variable)}, place({{{bases}}}, {words}))")


def _function(operation: Function) -> list[str]:
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


def _alias(operation: Alias) -> list[str]:
    return [f"set_alias({quote(operation.name)}, {quote(operation.value)})"]


def _on_unload(operation: OnUnload) -> list[str]:
    assignments = {"sh": "{0}='\" .. plain({1}) .. \"'", "fish": "set -g {0} '\" .. plain({1}) .. \"'"}
    lines: list[str] = []
    for shell, body in operation.bodies.items():
        form = assignments.get(shell, "set {0}='\" .. plain({1}) .. \"'")
        given = "".join('"' + form.format(name, quote(name)) + '\\n" .. ' for name in operation.carry)
        lines.append(f"{'elseif' if lines else 'if'} shell == {quote(shell)} then")
        lines.append(f'   execute{{cmd={given}{block(body)}, modeA={{"unload"}}}}')
    return [*lines, "end"] if lines else []


RULES: Rules = {
    Prepend: _prepend,
    Append: _append,
    Set: _set,
    SetRestorable: _set_restorable,
    Default: _default,
    SaveValue: _save_value,
    Flags: _flags,
    Join: _join,
    UserPath: _user_path,
    Function: _function,
    Alias: _alias,
    OnUnload: _on_unload,
    Notice: left_out,  # all messages stand together at the end
}
"""Operation to Lua. The order of operations is that of the change (`rendering.ordered`)."""


def _comment(text: str) -> str:
    return " ".join(text.split())
