"""What is around jobs on this machine: the module system, sources of packages, and file systems for yards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.core.secrets import shown
from stackyard.host.files import home
from stackyard.host.machine.modules import module_systems
from stackyard.host.tools.pipconf import read_config
from stackyard.init.here import Here
from stackyard.init.model import Told
from stackyard.inputs.reading.yamlfile import read_yaml

_CONDARC = (Path("/etc/conda/.condarc"), Path("/etc/conda/condarc"), Path("/var/lib/conda/.condarc"))


@dataclass(frozen=True)
class Surroundings:
    """Sections of a site.yaml, and what has no key in it.

    Attributes:
        shared: file systems that nodes share.
        scratch: where users' large files are, in words.
    """

    shared: tuple[str, ...]
    scratch: str
    sections: Mapping[str, Mapping[str, Told]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def look(here: Here, environ: Mapping[str, str]) -> Surroundings:
    """Look at the module system, pip's and conda's configuration and the places for yards."""
    sections: dict[str, dict[str, Told]] = {}
    remarks = []
    try:
        systems = module_systems(environ)
    except StackyardError as error:
        systems, broken = (), f"The module system: {error.message}"
        remarks.append(broken)
    if systems:
        formats = ["lua" if system.kind == "lmod" else "tcl" for system in systems]
        seen = f"seen on {here.host}: {', '.join(system.title for system in systems)}"
        sections["modules"] = {"formats": Told(formats, seen)}
    if path := environ.get("MODULEPATH", ""):
        remarks.append(f"MODULEPATH on {here.host}: {path}; users need <yard>/modules in it")
    for file in (*_CONDARC, *_of_user(environ)):
        sections.setdefault("channels", {}).update(_channels(file))
    if not sections.get("channels"):
        sections.pop("channels", None)
    remarks += _pip(environ)
    scratch = environ.get("SCRATCH", "")
    return Surroundings(
        here.shared, f"SCRATCH is {scratch}" if scratch else "SCRATCH is not set here", sections, tuple(remarks)
    )


def _of_user(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The account's own files; those of root are no policy of the site."""
    if os.geteuid() == 0:
        return ()
    named, own = environ.get("CONDARC", ""), home.find()
    return (*((own / ".condarc",) if own else ()), *((Path(named),) if named else ()))


def _channels(file: Path) -> dict[str, Told]:
    """``channels:`` of a condarc, as far as it has such keys."""
    found: dict[str, Told] = {}
    if not file.is_file():
        return found
    with suppress(StackyardError):
        document = read_yaml(file)
        origin = f"seen in {file}"
        for key, own in (("channels", "default"), ("channel_alias", "alias"), ("channel_priority", "priority")):
            node = document.at(key)
            if node is None or node.is_null:
                continue
            value = [str(item.value) for item in node.items] if node.kind == "sequence" else str(node.value)
            shows = [shown(each, base=True) for each in ([value] if isinstance(value, str) else value)]
            if shows == ([value] if isinstance(value, str) else value):  # a channel with a token stays in its file
                found[own] = Told(value, origin)
    return found


def _pip(environ: Mapping[str, str]) -> list[str]:
    try:
        config = read_config(environ)
    except StackyardError as error:
        return [f"pip's configuration cannot be read: {error.message}"]
    index = config.get("index-url", "")
    return [f"pip's own configuration counts too: index-url {shown(index, base=True)}"] if index else []
