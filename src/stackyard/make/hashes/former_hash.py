"""The input hash of earlier versions, which also covered checks, exceptions and the policy for users.

It is computed with the checks and exceptions of their records to recognise such revisions, so that changed checks do
not cause new builds. The covered settings are listed one by one, without later ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stackyard.host.files.hashing import sha256_values
from stackyard.make.hashes.inputs import (
    accepted_licences,
    conda_inputs,
    file_inputs,
    interpreter_inputs,
    pip_inputs,
    with_contents,
)
from stackyard.yard.revision.directories import RevisionPaths

if TYPE_CHECKING:
    from stackyard.inputs.models import Site, Variant
    from stackyard.lock.lockfile.model import LockedVariant
    from stackyard.yard.revision.record import BuildRecord

_ALL = "__all__"
_VARIANT: dict[str, Any] = {
    **dict.fromkeys(("stack", "version", "name", "axes", "summary", "run_variables", "post"), True),
    "build": {
        **dict.fromkeys(("variables", "modules", "keep"), True),
        "tools": {_ALL: {"name", "version", "variable"}},
        "packages": {_ALL: {"no_binary", "requires", "isolation", "patches", "variables", "config_settings"}},
    },
    "licences": {_ALL: {"name", "text", "variable"}},
    "modules": {
        "family", "conflict", "depends_on", "aliases", "variables", "notice", "hidden", "deprecated", "conda_base",
        "help",
    },
}  # fmt: skip
_EXCEPTIONS = ("imports", "commands", "libraries", "distributions")
_SITE: dict[str, Any] = {
    "run_variables": True,
    "permissions": {"group", "umask"},
    "user_paths": {"bases", "suffix", "fallback", "envs", "pkgs"},
    "condarc": {"threads", "channels", "auto_update", "extra"},
    "pins": True,
    "channels": {"alias", "default", "prepend", "mirrors", "priority", "denied"},
    "modules": {"naming", "family", "depends_on"},
}


def former_hash(variant: Variant, locked: LockedVariant, site: Site, record: BuildRecord) -> str:
    """The former hash of these inputs, with the checks and exceptions in a record."""
    from stackyard.inputs.conda.environment import variables_for

    value = with_contents(variant.model_dump(mode="json", include=_VARIANT))
    exceptions = {key: value for key, value in record.exceptions.items() if key in _EXCEPTIONS}
    checks = [{**check, "script": _script(record, check)} for check in record.checks]
    described = {
        "format": 1,
        "platform": locked.platform,
        "packages": sorted([*map(conda_inputs, locked.conda), *map(pip_inputs, locked.pip)]),
        "interpreter": interpreter_inputs(locked),
        "variant": {**value, "checks": checks, "exceptions": exceptions},
        "environment_variables": variables_for(variant.environment, locked.platform, variant.axes),
        "site": site.model_dump(mode="json", include=_SITE) | accepted_licences(variant, site),
    }
    return sha256_values(described)


def _script(record: BuildRecord, check: Mapping[str, Any]) -> list[str]:
    """A check's script in the former format: the name and the hash of its copy; empty without one."""
    name = str(check.get("script") or "")
    return file_inputs(str(RevisionPaths.of(record.path).recipe / name)) if name else []
