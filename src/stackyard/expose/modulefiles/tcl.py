"""Modulefiles for Environment Modules, in Tcl, from the same page as the Lua ones.

Commands that only newer releases have (``family``, ``depends-on``: 5.1) are used if they exist. ``pushenv`` is not
used: it splits values at colons and cannot push "unset"; `borrow` saves the user's value in a variable of its own.
"""

from __future__ import annotations

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

_MODES = "set loading [module-info mode load]\nset unloading [module-info mode remove]"
"""Queried once: each query costs as much as setting a variable."""

_PROCEDURES: dict[str, str] = {
    # Rejects modules that conflict with this one, and shows the command that replaces them.
    "alone": """\
proc alone {this stack family} {
    if {!$::loading || ![info exists ::env(LOADEDMODULES)]} { return }
    set holder {}
    set variable MODULES_FAMILY_[string toupper $family]
    if {$family ne {} && [info exists ::env($variable)]} { set holder $::env($variable) }
    foreach loaded [split $::env(LOADEDMODULES) :] {
        set name [join [lrange [split $loaded /] 0 end-1] /]
        if {$loaded ne $this && ($name eq $stack || ($holder ne {} && ($name eq $holder || $loaded eq $holder)))} {
            puts stderr "$loaded is loaded and conflicts with $this; to replace it:\\n    module switch $loaded $this"
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
    # The present value of a variable. After an unload within the same command (`switch`) Environment Modules leaves a
    # cleared variable in ::env with an empty value; its own getenv returns the default, if it takes one. It costs as
    # much as setting a variable, so it is asked only then, and where it returns the variable's name (`module show`).
    "current": """\
proc current {name {unset {}}} {
    if {$::loading || $::unloading} {
        if {![info exists ::env($name)]} { return $unset }
        if {$::env($name) ne {} || $unset eq {}} { return $::env($name) }
    }
    if {[catch {getenv $name $unset} value]} {
        set value [expr {[info exists ::env($name)] ? $::env($name) : $unset}]
    }
    return $value
}""",
    # prepend-path does not move a directory that the list contains already; a stack's programs must come first.
    "lead": """\
proc lead {name directory} {
    set mark __STACKYARD_LEAD_$name
    set entries [split [current $name] :]
    if {$::loading && [lsearch -exact $entries $directory] > 0} {
        setenv $mark $directory
        prepend-path --duplicates $name $directory
        return
    }
    if {$::unloading && [current $mark] eq $directory} {
        setenv $mark {}
        if {[lindex $entries 0] eq $directory} { return [unsetenv $name [join [lrange $entries 1 end] :]] }
    }
    prepend-path $name $directory
}""",
    # Two directories of a module on one list: Lmod shows neither as removed while it unloads; the list is empty once
    # all of them are. It doubles the colon at the end of a list.
    "prepend_keeping": """\
proc prepend_keeping {name directory} {
    lappend ::own($name) $directory
    set others {}
    foreach entry [split [current $name] :] {
        if {$entry ne {} && [lsearch -exact $::own($name) $entry] < 0} { lappend others $entry }
    }
    if {$::loading && [current $name] eq {}} {
        setenv $name "$directory:"
    } elseif {$::unloading && $others eq {}} {
        setenv $name {}
    } else {
        prepend-path $name $directory
    }
}""",
    # The user's value is saved in __STACKYARD_KEPT_NAME, with a mark in front so that an empty value is saved too. Line
    # breaks are not quoted for the shell, so a value with one is not saved, and a message is shown.
    "borrow": """\
proc borrow {this name args} {
    set kept __STACKYARD_KEPT_$name
    if {$::unloading} {
        set saved [current $kept]
        if {$saved ne {}} {
            setenv $kept {}
            unsetenv $name [string range $saved 1 end]
        } elseif {[llength $args]} {
            setenv $name {}
        }
        return
    }
    set old [current $name \\x01]
    if {$::loading && [string first "\\n" $old] >= 0} {
        puts stderr "$this: $name contains a line break; it is not restored when this module is unloaded"
    } elseif {$::loading && $old ne "\\x01"} {
        setenv $kept "+$old"
    }
    if {[llength $args]} { setenv $name [lindex $args 0] } elseif {!$::loading || $old ne "\\x01"} { unsetenv $name }
}""",
    "extended": """\
proc extended {name text} {
    set old [string map {"\\n" { }} [current $name]]
    if {$old eq {}} { return $text }
    return "$old $text"
}""",
    "joined": """\
proc joined {name front back separator otherwise} {
    set old [string map {"\\n" { }} [current $name]]
    if {$old eq {}} { set old $otherwise }
    set parts {}
    foreach text [list $front $old $back] {
        if {$text ne {}} { lappend parts $text }
    }
    return [join $parts $separator]
}""",
    "offer": """\
proc offer {this name args} {
    set mark __STACKYARD_$name
    if {$::unloading} {
        set kept [current $mark]
        if {[string first "$this=" $kept] == 0} {
            setenv $mark {}
            if {[current $name] eq [string range $kept [string length "$this="] end]} { setenv $name {} }
        }
    } elseif {[current $name \\x01] eq "\\x01" && [llength $args]} {
        setenv $name [lindex $args 0]
        if {$::loading} { setenv $mark "$this=[lindex $args 0]" }
    }
}""",
    "place": """\
proc usable {text} { expr {$text ne {} && [string first "\\n" $text] < 0} }
proc place {bases inner home tail} {
    if {$::unloading} { return }
    foreach base $bases {
        if {[usable [current $base]]} { return [list "[current $base]/$inner$tail"] }
    }
    if {[usable [current HOME]]} { return [list "[current HOME]/$home$tail"] }
}""",
    "plain": """\
proc plain {name} {
    if {[regexp {^[A-Za-z0-9._/-]*$} [current $name]]} { return [current $name] }
}""",
}


def render(
    record: BuildRecord, site: Site, *, entry: Entry | None = None, change: ops.EnvironmentChange | None = None
) -> str:
    """The Tcl modulefile of one revision."""
    return render_page(page(record, site, entry=entry, change=change))


def render_page(content: Page) -> str:
    """The Tcl text of a page."""
    body = "\n".join((*_relations(content), *ops.rendered(ordered(content.change), RULES)))
    parts = [
        "#%Module\n# " + " ".join(content.module.split())
        + ": written by stackyard from the record of its build; changes here are lost",
        _help(content),
        f"set this {quote(content.module)}\n{_MODES}",
        _refusal(content),
        *_procedures(body),
        body,
        _messages(content),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _procedures(body: str) -> list[str]:
    """The helper procedures that the body calls, directly or indirectly."""
    content = body
    for name, text in reversed(_PROCEDURES.items()):
        if f"{name} " in content:
            content += text
    return [text for name, text in _PROCEDURES.items() if f"proc {name} " in content]


_ESCAPED = {
    **{number: f"\\u{number:04x}" for number in range(ord(" "))},
    **str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", **{c: "\\" + c for c in '\\"$[]{}'}}),
}


def quote(text: str) -> str:
    """A Tcl word for exactly `text`: in double quotes, with everything that Tcl would substitute escaped."""
    return f'"{text.translate(_ESCAPED)}"'


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
    lines = "".join(f"    puts stderr {quote(text)}\n" for text in messages(content))
    first, text = content.retired
    if first:
        today = "[clock format [clock seconds] -format %Y%m%d]"
        lines += f"    if {{{today} >= {first}}} {{ puts stderr {quote(text)} }}\n"
    return f"if {{$::loading}} {{\n{lines}}}" if lines else ""


def _refusal(content: Page) -> str:
    if content.removed:
        return f"if {{$::loading}} {{ puts stderr {quote(refusal(content))}; break }}"
    if content.needs:
        test = f"$::loading && ![file isdirectory {quote(content.needs)}]"
        return f"if {{{test}}} {{ puts stderr {quote(missing(content))}; break }}"
    return ""


# --------------------------------------------------------------------------- a rule for every operation


def _prepend(operation: ops.Prepend) -> list[str]:
    word = "prepend_keeping" if operation.keep_system else "lead" if operation.variable == "PATH" else "prepend-path"
    return [f"{word} {quote(operation.variable)} {quote(operation.directory)}"]


def _function(operation: ops.Function) -> list[str]:
    """Functions for sh and fish; in csh, which has none, the body is an alias."""
    words = {"sh": "set-function", "fish": "set-function", "csh": "set-alias"}
    known = {shell: body for shell, body in operation.bodies.items() if shell in words}
    if not known:
        return []
    name = quote(operation.name)
    cases = [f"    {shell} {{ {words[shell]} {name} {quote(body)} }}" for shell, body in known.items()]
    return ["switch -- [module-info shelltype] {", *cases, "}"]


def _alias(operation: ops.Alias) -> list[str]:
    return [f"set-alias {quote(operation.name)} {quote(operation.value)}"]


def _on_unload(operation: ops.OnUnload) -> list[str]:
    forms = {"sh": "{0}='[plain {1}]'\\n", "fish": "set -g {0} '[plain {1}]'\\n"}
    lines = ["if {$::unloading} {", "    switch -- [module-info shelltype] {"]
    for shell, body in operation.bodies.items():
        form = forms.get(shell, "set {0}='[plain {1}]'\\n")
        prefix = "".join(form.format(name, name) for name in operation.carry)
        lines.append(f'        {shell} {{ puts stdout "{prefix}{quote(body)[1:]} }}')
    return [*lines, "    }", "}"]


def _prompt(operation: ops.Prompt) -> list[str]:
    return _at_both(prompt_commands(operation), "shelltype")


def _at_both(commands: Mapping[str, tuple[str, str]], asked: str) -> list[str]:
    """Commands at load and at unload, by what `asked` tells: the kind of shell, or the shell."""
    lines = [f"switch -- [module-info {asked}] {{"]
    for shell, (load, unload) in commands.items():
        lines.append(f"    {shell} {{")
        lines.append(f"        if {{$::loading}} {{ puts stdout {quote(load)} }}")
        lines.append(f"        if {{$::unloading}} {{ puts stdout {quote(unload)} }}")
        lines.append("    }")
    return [*lines, "}"]


def _complete(operation: ops.Complete) -> list[str]:
    commands = completion_commands(operation)
    return _at_both({{"csh": "tcsh"}.get(shell, shell): both for shell, both in commands.items()}, "shell")


RULES: ops.Rules = {
    ops.Prepend: _prepend,
    ops.Function: _function,
    ops.Alias: _alias,
    ops.OnUnload: _on_unload,
    ops.Prompt: _prompt,
    ops.Complete: _complete,
    **Syntax(
        "tcl", quote, call=lambda *words: " ".join(words), inner=lambda *words: f"[{' '.join(words)}]",
        listed=lambda words: f"[list {' '.join(words)}]", append="append-path", this=("$this",), spread="{*}",
        only=lambda tests, line: f"if {{{' && '.join(tests)}}} {{ {line} }}",
        tests={
            "csh": "[module-info shelltype] ne {csh}", "zsh": "[module-info shell] ne {zsh}",
            "fish": "[module-info shelltype] ne {fish}",
        },
    ).rules(),
}  # fmt: skip
"""Operation to Tcl. The order of operations is that of the change (`rendering.ordered`)."""
