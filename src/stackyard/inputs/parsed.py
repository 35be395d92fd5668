"""The parsed content of a file as plain JSON values: ``stackyard show --parsed FILE --json``.

For users and tests that check that nothing was dropped: every requirement with its text, its place and the
platforms that its selector selects; the keys that were ignored with their content; every notice and every file read.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from stackyard.core.errors import Where
from stackyard.inputs.conda.environment import KEYS, load_environment
from stackyard.inputs.conda.selectors import selected
from stackyard.inputs.load import kind_of, load_stack
from stackyard.inputs.models import CondaRequirement, Environment, PipRequirement, Site
from stackyard.inputs.reading.validate import plain
from stackyard.inputs.reading.yamlfile import read_yaml


def parsed_json(path: Path, site: Site | None = None) -> dict[str, Any]:
    """The complete parsed content of a stack.yaml, an environment.yml or a requirements.txt.

    Included requirement files that do not exist are listed under ``missing``; that is an error only when
    the file is locked. Variables in URLs stay unexpanded. A stack.yaml is shown twice: its
    variants as they will be locked and built, and under ``written`` the file itself, with matrix and conditions.

    Args:
        site: its values for every stack are merged; without a site none.

    Raises:
        InputError: the file is invalid; `ManyErrors` for several problems.
    """
    kind = kind_of(path)
    if kind == "stack":
        stack = load_stack(path, site or Site())
        variants = [
            variant.model_dump(mode="json", exclude={"environment"})
            | {"environment": environment_json(variant.environment)}
            for variant in stack.variants
        ]
        written = plain(read_yaml(path).root)
        return {"kind": kind, "file": str(path), **stack.model_dump(mode="json"), "variants": variants,
                "written": written}  # fmt: skip
    environment = load_environment(path, strict=False)
    ignored = _ignored(path) if kind == "environment" else {}
    return {"kind": kind, "file": str(path), **environment_json(environment), "ignored": ignored}


def environment_json(environment: Environment) -> dict[str, Any]:
    """One environment; channels, conda and pip entries have their selected platforms."""
    data = environment.model_dump(mode="json", exclude={"channel_selectors", "variable_selectors", "channel_places"})
    data["channels"] = [_channel(environment, name) for name in environment.channels]
    data["conda"] = [_requirement(requirement) for requirement in environment.conda]
    data["pip"] = [_requirement(requirement) for requirement in environment.pip]
    data["constraints"] = [_requirement(requirement) for requirement in environment.constraints]
    data["variables"] = {
        name: {"value": value, **_selection(environment.variable_selectors.get(name, ""))}
        for name, value in environment.variables.items()
    }
    return data


def _channel(environment: Environment, name: str) -> dict[str, Any]:
    place = asdict(environment.channel_places.get(name, Where()))
    return {"channel": name, **_selection(environment.channel_selectors.get(name, "")), "place": place}


def _requirement(requirement: CondaRequirement | PipRequirement) -> dict[str, Any]:
    return requirement.model_dump(mode="json") | _selection(requirement.selector)


def _selection(selector: str) -> dict[str, Any]:
    """The selector and its platforms; ``all`` without a selector."""
    return {"selector": selector, "platforms": list(selected(selector)) if selector else "all"}


def _ignored(path: Path) -> dict[str, Any]:
    root = read_yaml(path).root
    return {key.text: value.value for key, value in root.entries if key.text not in KEYS} if root else {}
