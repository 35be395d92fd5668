"""Checks the requirements of an extension's distributions against those that its Python finds in layer and base.

`uv pip check` examines one environment only. The base's own requirements are not checked again: it was verified, and a
layer never replaces a package of the base. A distribution counts if the Python of the loaded module finds it where it
was installed: metadata in a directory that this Python does not search satisfies nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.host.run import question
from stackyard.verify.context import Context

_QUESTION = """
import json, re
own, present, texts = [], {}, []
for folder, head in heads(sys.argv[1:]):
    fields = [line.partition(": ")[::2] for line in head]
    one = dict(reversed(fields))
    if one.get("Name"):
        needs = [v for k, v in fields if k == "Requires-Dist"]
        texts += needs
        own.append([one["Name"], one.get("Version", ""), needs, folder, first(one["Name"])[0]])
for name in (re.match(r"[\\w.-]*", text)[0] for text in texts):
    version = first(name)[1] if name else ""
    if version:  # none where its metadata is lost
        present[name] = version
markers = {}
if any(";" in text for text in texts):
    import platform
    markers = {
        "implementation_name": sys.implementation.name, "os_name": os.name, "sys_platform": sys.platform,
        "platform_machine": platform.machine(), "platform_release": platform.release(),
        "platform_system": platform.system(), "platform_version": platform.version(),
        "platform_python_implementation": platform.python_implementation(),
        "python_full_version": platform.python_version(), "implementation_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]), "extra": "",
    }
searched = sorted(set(map(os.path.realpath, sys.path)))
sys.stdout.write(json.dumps({"own": own, "searched": searched, "present": present, "markers": markers}))
"""


@dataclass(frozen=True)
class Finding:
    """The distributions of an extension: their number, and the problems.

    Attributes:
        unsearched: directories with distributions of the layer that are not on its sys.path.
        problems: for each unmet requirement and each distribution that is hidden by another: a package, a sentence.
    """

    count: int
    unsearched: tuple[str, ...]
    problems: list[tuple[str, str]]


def find(context: Context) -> Finding:
    """Query the Python of the loaded module.

    Raises:
        StackyardError: the interpreter does not run.
    """
    assert context.python is not None
    directories = dict.fromkeys([*context.python.site_packages, *context.payload.package_directories])
    argv = [str(context.python.path), "-c", question.about_distributions(_QUESTION), *map(str, directories)]
    done = context.run(argv, env=context.environ, cwd=context.work, timeout_s=120)
    answer = json.loads(done.stdout)
    present = {canonical(name): version for name, version in answer["present"].items()}
    used = {directory for _, _, _, directory, _ in answer["own"]}
    unsearched = {directory for directory in used if os.path.realpath(directory) not in answer["searched"]}
    problems = []
    for name, version, needs, directory, path in answer["own"]:
        texts = [*_hidden(directory, path, unsearched), *_problems(needs, present, answer["markers"])]
        problems += [(name, f"{name} {version} {text}") for text in texts]
    return Finding(len(answer["own"]), tuple(sorted(unsearched)), problems)


def _hidden(directory: str, path: str, unsearched: Collection[str]) -> Iterator[str]:
    if directory not in unsearched and os.path.realpath(directory) != os.path.realpath(path):
        yield f"is in {directory}, but Python finds the one in {path or 'none of its directories'}"


def _problems(needs: list[str], present: Mapping[str, str], markers: Mapping[str, Any]) -> Iterator[str]:
    for line in needs:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # uv has resolved it, and the import proves it
        if requirement.marker is not None and not requirement.marker.evaluate(dict(markers)):
            continue
        version = present.get(canonical(requirement.name))
        if version is None:
            yield f"requires {requirement}, but it is not installed"
        elif not _accepts(requirement, version):
            yield f"requires {requirement}, but {requirement.name} {version} is installed"


def _accepts(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True
