"""Short names: the default, the aliases, the alias modules and the hidden revisions, as run-command files.

An alias module such as ``pytorch/2.13.0`` is a second name of the stack that contains PyTorch, not a module of its own:
only the stack is ever loaded, so no alias can stay loaded without its stack.

Only commands that every Lmod 8 and every Environment Modules supports are written: an unknown command disables the
whole path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from stackyard.core import grammar
from stackyard.core.late import dataclass
from stackyard.expose.modulefiles import lua, tcl
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.inputs.models import Site


@dataclass
class Names:
    """The content of one run-command file: short versions by full name, aliases to full names, hidden full names."""

    versions: dict[str, list[str]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)


def short_names(
    entries: Sequence[Entry], records: Mapping[str, BuildRecord], site: Site, taken: Collection[str]
) -> dict[str, Names]:
    """The names for each directory of ``modules/`` (empty: the top, with the alias modules).

    A withdrawn or hidden revision has no short name: Lmod would not load it by that name.
    """
    result: dict[str, Names] = defaultdict(Names)
    for entry in entries:
        names = result[entry.module.rpartition("/")[0]]
        if not _visible(entry):
            names.hidden.append(entry.module)
            continue
        versions = [*entry.aliases, *(["default"] if entry.default else [])]
        if versions:
            names.versions[entry.module] = versions
    aliases = alias_modules(entries, records, site, taken)
    if aliases:
        result[""].aliases = aliases
    return {path: names for path, names in sorted(result.items()) if names.versions or names.aliases or names.hidden}


def alias_modules(
    entries: Sequence[Entry], records: Mapping[str, BuildRecord], site: Site, taken: Collection[str]
) -> dict[str, str]:
    """The full name that each alias module (``pytorch/2.13.0``, and ``pytorch`` for the newest) loads.

    If several revisions contain one version, the default of its stack wins, then one that is not superseded, then the
    one that was built last. The name of a stack (`taken`) is never an alias. A revision without a record has none.
    """
    aliases: dict[str, str] = {}
    shown = (e for e in entries if _visible(e))
    for entry in sorted(shown, key=lambda e: (e.default, not e.superseded, e.created, e.revision)):
        record = records.get(entry.module)
        if record is None:
            continue
        targets = {str(name): str(name) for name in record.settings.get("aliases") or ()} | dict(site.modules.aliases)
        versions = {package.name: package.version for package in record.own_packages}
        for package, template in targets.items():
            name = _of_variant(template, record.axes)
            if package in versions and name and name not in taken:
                aliases[f"{name}/{versions[package]}"] = entry.module
                aliases[name] = entry.module
    return dict(sorted(aliases.items()))


def _of_variant(template: str, axes: Mapping[str, str]) -> str:
    """``tensorflow-py{python}`` with the variant's axes filled in; empty if that is not a valid module name."""
    name = template
    for axis, value in axes.items():
        name = name.replace(f"{{{axis}}}", value)
    return name if grammar.LABEL.accepts(name) else ""


def rc_lua(names: Names) -> str:
    """The text of a ``.modulerc.lua``."""
    lines = ["-- written by stackyard; changes here are lost"]
    for module, versions in names.versions.items():
        lines.append(f"module_version({', '.join(lua.quote(text) for text in (module, *versions))})")
    lines += [f"module_alias({lua.quote(name)}, {lua.quote(module)})" for name, module in names.aliases.items()]
    lines += [f"hide_version({lua.quote(module)})" for module in names.hidden]
    return "\n".join(lines) + "\n"


def rc_tcl(names: Names) -> str:
    """The text of a ``.modulerc``; ``module-hide`` (since 4.6) is used if the module system has it."""
    lines = ["#%Module", "# written by stackyard; changes here are lost"]
    for module, versions in names.versions.items():
        lines.append(f"module-version {' '.join(tcl.quote(text) for text in (module, *versions))}")
    lines += [f"module-alias {tcl.quote(name)} {tcl.quote(module)}" for name, module in names.aliases.items()]
    if names.hidden:
        lines.append("if {[info commands module-hide] ne {}} {")
        lines += [f"    module-hide {tcl.quote(module)}" for module in names.hidden]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _visible(entry: Entry) -> bool:
    return entry.is_visible and not entry.hidden
