"""Renders `HostBindings`: as a bindings.yaml, one path a line with its reason; and as an environment change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from stackyard.core.change import EnvironmentChange, Operation, SetRestorable
from stackyard.inputs.sites.bindings import FORMAT, HostBindings
from stackyard.inputs.sites.jobmodels import ContainerPolicy

_PLAIN = re.compile(r"[A-Za-z/][\w/.*+-]*(?: [\w/.'()-]+)*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_HEADS = {
    "libraries": "files that are added to the image's library path, each under its own name (CONTAINLIBS)",
    "binds": "directories and files at their own path, or at `to`; over the image's, where it has them",
    "preload": "LD_PRELOAD",
    "library_path": "directories that are searched for libraries before the image's",
    "variables": "",
    "options": "options of the runtime's exec command",
}


def bindings_text(bindings: HostBindings, comments: Iterable[str] = ()) -> str:
    """The text of a bindings.yaml.

    Args:
        comments: lines for the top, without ``#``.
    """
    data = bindings.model_dump()
    lines = [f"# {line}".rstrip() for line in comments]
    lines += [f"format: {FORMAT}", *(f"{key}: {_scalar(data[key])}" for key in ("name", "summary") if data[key])]
    lines += [f"{key}: {_flow(data[key])}" for key in ("mpi",) if any(data[key].values())]
    for key, head in _HEADS.items():
        if data[key]:
            lines += ["", f"{key}:" + (f"  # {head}" if head else "")]
            lines += [f"  - {_flow(row)}" for row in data[key]]
    if data["sources"]:
        lines += ["", "sources:", *(f"  - {_scalar(source)}" for source in data["sources"])]
    if any(data["tested"].values()):
        lines += ["", f"tested: {_flow(data['tested'])}"]
    return "\n".join(lines) + "\n"


def container_text(policy: ContainerPolicy) -> str:
    """The section of site.yaml with the same content as the bindings."""
    data = policy.model_dump(exclude_defaults=True)
    lines = ["launch:", "  container:"]
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += [f"    {key}:", *(f"      {name}: {_scalar(text)}" for name, text in value.items())]
        elif isinstance(value, str):
            lines.append(f"    {key}: {_scalar(value)}")
        else:
            lines += [f"    {key}:", *(f"      - {_scalar(item)}" for item in value)]
    return "\n".join(lines) + "\n"


def as_change(bindings: HostBindings, runtime: str = "apptainer") -> EnvironmentChange:
    """The environment change of the module ``stackyard-bindings``, for users who call the runtime themselves.

    It is for runs only: an image that is built with these variables set would include parts of this machine.
    """
    prefix, policy = runtime.upper(), bindings.applied(ContainerPolicy())
    operations: list[Operation] = []
    if policy.binds:
        operations.append(SetRestorable(f"{prefix}_BIND", ",".join(policy.binds)))
    if policy.libraries:
        operations.append(SetRestorable(f"{prefix}_CONTAINLIBS", ",".join(policy.libraries)))
    for name, value in policy.variables.items():
        operations.append(SetRestorable(f"{prefix}ENV_{name}", value))
    return EnvironmentChange(tuple(operations))


def stack_text(bindings: HostBindings, runtime: str) -> str:
    """A stack.yaml without packages, which deploys the module `as_change` for all users of a yard."""
    change = as_change(bindings, runtime)
    rows = [
        f"    {operation.variable}: {json.dumps(operation.value)}"
        for operation in change
        if isinstance(operation, SetRestorable)
    ]
    version = re.sub(r"[^\w.+-]", "-", bindings.name) or "1"
    lines = [
        f"# For those who call {runtime} themselves: stackyard deploy publishes it as a module.",
        "name: stackyard-bindings",
        f"version: {json.dumps(version)}", f"summary: {json.dumps(module_summary(bindings, runtime))}",
        "modules:", "  variables:", *rows,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def module_summary(bindings: HostBindings, runtime: str) -> str:
    """The summary line of the module."""
    of = bindings.summary or bindings.name or "The host's libraries"
    return f"{of}, for images that are run with {runtime}. Unload it before you build an image."


def _flow(row: Mapping[str, object]) -> str:
    filled = {key: value for key, value in row.items() if value not in ("", (), [])}
    return "{" + ", ".join(f"{key}: {_value(value)}" for key, value in filled.items()) + "}"


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_scalar(str(item)) for item in value) + "]"
    return _scalar(str(value))


def _scalar(text: str) -> str:
    """A text as a YAML scalar: plain if possible, else in double quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
