"""Modulefiles for Environment Modules, in Tcl, from the same page as the Lua ones.

Words that only newer releases know (``family``, ``depends-on``: 5.1) are used where they exist. ``pushenv`` is not
used: it splits values at colons and cannot push "unset"; `borrow` keeps the user's value in a variable of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stackyard.change import (
    Alias,
    Borrow,
    Default,
    EnvironmentChange,
    Flags,
    Function,
    Notice,
    OnUnload,
    Operation,
    Prepend,
    Remember,
    Set,
    UserPath,
)
from stackyard.expose.page import Page, page
from stackyard.yard.record import BuildRecord, Entry

if TYPE_CHECKING:
    from stackyard.spec.models import Site

_PROCEDURES: dict[str, str] = {
    # Refuses what cannot be loaded beside this module, with the line that does what was meant.
    "alone": """\
proc alone {this stack family} {
    if {![module-info mode load] || ![info exists ::env(LOADEDMODULES)]} { return }
    set holder {}
    set variable MODULES_FAMILY_[string toupper $family]
    if {$family ne {} && [info exists ::env($variable)]} { set holder $::env($variable) }
    foreach loaded [split $::env(LOADEDMODULES) :] {
        set name [join [lrange [split $loaded /] 0 end-1] /]
        if {$loaded ne $this && ($name eq $stack || ($holder ne {} && ($name eq $holder || $loaded eq $holder)))} {
            puts stderr "$loaded is loaded and $this takes its place; to change over:\\n    module switch $loaded $this"
            conflict $loaded
        }
    }
}
proc belong {this family} {
    if {[info commands family] ne {}} { return [family $family] }
    setenv MODULES_FAMILY_[string toupper $family] $this
}""",
    "require": """\
proc require {name} {
    if {[info commands depends-on] ne {}} { depends-on $name } else { module load $name }
}""",
    "prepend_keeping": """\
proc prepend_keeping {name directory} {
    set now [expr {[info exists ::env($name)] ? $::env($name) : {}}]
    if {([module-info mode load] && $now eq {}) || ([module-info mode remove] && $now eq "$directory:")} {
        setenv $name "$directory:"
    } else {
        prepend-path $name $directory
    }
}""",
    # The user's value waits in __STACKYARD_KEPT_NAME, with a mark in front so that an empty one is a value too.
    "borrow": """\
proc borrow {name args} {
    set kept __STACKYARD_KEPT_$name
    if {[module-info mode remove]} {
        if {[info exists ::env($kept)]} {
            set old [string range $::env($kept) 1 end]
            setenv $kept {}
            unsetenv $name $old
        } elseif {[llength $args]} {
            setenv $name [lindex $args 0]
        }
        return
    }
    if {[module-info mode load] && [info exists ::env($name)]} { setenv $kept "=$::env($name)" }
    if {[llength $args]} { setenv $name [lindex $args 0] } else { unsetenv $name }
}""",
    "extended": """\
proc extended {name text} {
    if {[info exists ::env($name)] && $::env($name) ne {}} { return "$::env($name) $text" }
    return $text
}""",
    "offer": """\
proc offer {this name value} {
    set mark __STACKYARD_$name
    if {[module-info mode remove]} {
        if {[info exists ::env($mark)] && [string first "$this=" $::env($mark)] == 0} {
            set given [string range $::env($mark) [string length "$this="] end]
            setenv $mark {}
            if {[info exists ::env($name)] && $::env($name) eq $given} { setenv $name {} }
        }
    } elseif {![info exists ::env($name)] && $value ne {}} {
        setenv $name $value
        if {[module-info mode load]} { setenv $mark "$this=$value" }
    }
}""",
    "place": """\
proc place {bases inner home tail} {
    foreach base $bases {
        if {[info exists ::env($base)] && $::env($base) ne {}} { return "$::env($base)/$inner$tail" }
    }
    if {[info exists ::env(HOME)] && $::env(HOME) ne {}} { return "$::env(HOME)/$home$tail" }
}""",
    "plain": """\
proc plain {name} {
    if {[info exists ::env($name)] && [regexp {^[A-Za-z0-9._/-]*$} $::env($name)]} { return $::env($name) }
}""",
}


def render(
    record: BuildRecord, site: Site, *, entry: Entry | None = None, change: EnvironmentChange | None = None
) -> str:
    """The Tcl modulefile of one revision."""
    return render_page(page(record, site, entry=entry, change=change))


def render_page(content: Page) -> str:
    """The Tcl text of a page."""
    body = "\n".join((*_relations(content), *(line for op in _ordered(content.change) for line in _operation(op))))
    used = [text for name, text in _PROCEDURES.items() if f"{name} " in body]
    parts = [
        "#%Module\n# " + " ".join(content.module.split())
        + ": written by stackyard from the record of its build; changes here are lost",
        _help(content),
        f"set this {quote(content.module)}",
        *used,
        body,
        _messages(content),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def quote(text: str) -> str:
    """A Tcl word that means exactly `text`: in double quotes, with everything that Tcl would replace escaped."""
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", **{c: "\\" + c for c in '\\"$[]{}'}}
    return '"' + "".join(special.get(c, c if c >= " " else f"\\x{ord(c):02x}") for c in text) + '"'


def _help(content: Page) -> str:
    lines = "\n".join(f"    puts stderr {quote(line)}" for line in content.help.split("\n"))
    facts = "\n".join(f"module-whatis {quote(f'{key}: {value}')}" for key, value in content.whatis)
    return f"proc ModulesHelp {{}} {{\n{lines}\n}}\n{facts}"


def _relations(content: Page) -> list[str]:
    lines = [f"alone $this {quote(content.stack)} {quote(content.family)}"]
    if content.family:
        lines.append(f"belong $this {quote(content.family)}")
    lines += [f"conflict {quote(name)}" for name in content.conflict]
    return lines + [f"require {quote(name)}" for name in content.depends_on]


def _messages(content: Page) -> str:
    texts = [f"{content.module} is deprecated: {content.deprecated}"] if content.deprecated else []
    texts += [operation.text for operation in content.change if isinstance(operation, Notice)]
    if not texts:
        return ""
    return "if {[module-info mode load]} {\n" + "\n".join(f"    puts stderr {quote(text)}" for text in texts) + "\n}"


def _ordered(change: EnvironmentChange) -> Iterable[Operation]:
    """Unload commands come first: they read remembered variables, which later lines take away."""
    last = [operation for operation in change if not isinstance(operation, OnUnload)]
    return [operation for operation in change if isinstance(operation, OnUnload)] + last


def _operation(operation: Operation) -> list[str]:
    match operation:
        case Prepend(variable, directory, keep_system):
            word = "prepend_keeping" if keep_system else "prepend-path"
            return [f"{word} {quote(variable)} {quote(directory)}"]
        case Set(variable, value):
            return [f"setenv {quote(variable)} {quote(value)}"]
        case Borrow(variable, lent):
            return [f"borrow {quote(variable)}" + ("" if lent is None else f" {quote(lent)}")]
        case Default(variable, value):
            return [f"offer $this {quote(variable)} {quote(value)}"]
        case Remember(variable, source):
            return [f"setenv {quote(variable)} [plain {quote(source)}]"]
        case Flags(variable, text):
            return [f"borrow {quote(variable)} [extended {quote(variable)} {quote(text)}]"]
        case UserPath():
            return [_user_path(operation)]
        case Function(name, bodies):
            return _function(name, bodies)
        case Alias(name, value):
            return [f"set-alias {quote(name)} {quote(value)}"]
        case OnUnload(bodies, carry):
            return _on_unload(bodies, carry)
        case Notice():
            return []


def _user_path(operation: UserPath) -> str:
    bases = " ".join(quote(base) for base in operation.bases)
    tail = "".join(operation.separator + entry for entry in operation.tail)
    words = " ".join(quote(text) for text in (operation.suffix, operation.fallback, tail))
    return f"offer $this {quote(operation.variable)} [place [list {bases}] {words}]"


def _function(name: str, bodies: Mapping[str, str]) -> list[str]:
    """Functions for sh and fish; csh has none, its body is an alias there."""
    words = {"sh": "set-function", "fish": "set-function", "csh": "set-alias"}
    known = {shell: body for shell, body in bodies.items() if shell in words}
    if not known:
        return []
    cases = [f"    {shell} {{ {words[shell]} {quote(name)} {quote(body)} }}" for shell, body in known.items()]
    return ["switch -- [module-info shelltype] {", *cases, "}"]


def _on_unload(bodies: Mapping[str, str], carry: tuple[str, ...]) -> list[str]:
    forms = {"sh": "{0}='[plain {1}]'\\n", "fish": "set -g {0} '[plain {1}]'\\n"}
    lines = ["if {[module-info mode remove]} {", "    switch -- [module-info shelltype] {"]
    for shell, body in bodies.items():
        form = forms.get(shell, "set {0}='[plain {1}]'\\n")
        given = "".join(form.format(name, name) for name in carry)
        lines.append(f'        {shell} {{ puts stdout "{given}{quote(body)[1:]} }}')
    return [*lines, "    }", "}"]
