"""The software of a yard in the JSON that EESSI's list of available software has, for tools that read that.

Keys that EESSI has and that nothing here tells (toolchains, GPU architectures) are there and empty.
"""

from __future__ import annotations

import json
from typing import Any

from stackyard.catalogue.model import Catalogue, Facts, Revision, Stack

_ARCHITECTURES = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-ppc64le": "ppc64le"}


def software_json(catalogue: Catalogue) -> bytes:
    """The file. It has the time of the generation, so that it differs only where something was published."""
    platforms = sorted({r.facts.platform for r in catalogue.listed if r.facts})
    value = {
        "timestamp": catalogue.updated,
        "architectures_map": {_ARCHITECTURES.get(p, p): [_ARCHITECTURES.get(p, p)] for p in platforms},
        "gpu_architectures_map": {},
        "category_details": {},
        "software": {stack.name: _stack(stack) for stack in catalogue.stacks},
    }
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _stack(stack: Stack) -> dict[str, Any]:
    entry = stack.newest.entry
    return {
        "homepage": entry.url,
        "license": [],
        "image": "",
        "categories": [entry.category] if entry.category else [],
        "identifier": stack.name,
        "description": stack.summary,
        "versions": [_version(revision, revision.facts) for revision in stack.listed if revision.facts],
    }


def _version(revision: Revision, facts: Facts) -> dict[str, Any]:
    return {
        "version": revision.label,
        "module": {
            "full_module_name": revision.module,
            "module_name": revision.entry.stack,
            "module_version": revision.label,
        },
        "required_modules": [],
        "extensions": [
            {"type": p.kind, "name": p.name, "version": p.version, "license": p.licence} for p in facts.packages
        ],
        "toolchain": "",
        "cpu_arch": [_ARCHITECTURES.get(facts.platform, facts.platform)],
        "gpu_arch": {},
    }
