"""The inputs of a compiled package that are part of its wheel's cache key, as name and value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stackyard.core.names import canonical
from stackyard.host.files.hashing import sha256_once
from stackyard.inputs.models import BuildSpec, PackageBuild, PipRequirement
from stackyard.inputs.reading.paths import require_file


def package_build(build: BuildSpec, name: str) -> PackageBuild | None:
    """A stack's settings for compiling one package, for any spelling of its name; None without any."""
    target = canonical(name)
    return next((value for key, value in build.packages.items() if canonical(key) == target), None)


def build_inputs(build: BuildSpec, name: str, requirement: PipRequirement | None = None) -> dict[str, str]:
    """All inputs in the spec that influence the compilation of one package, sorted by name.

    Keys are a word and a name: ``variable NAME``, ``tool NAME`` (its version range), ``module NAME``, ``patch FILE``
    (its sha256), ``config KEY``, ``requires``, ``isolation``. Values of variables keep their ``{prefix}``.

    Raises:
        InputError: a patch does not exist.
    """
    own = package_build(build, name)
    variables: Mapping[str, str] = {**build.variables, **(own.variables if own else {})}
    inputs = {f"variable {key}": value for key, value in variables.items()}
    inputs |= {f"tool {tool.name}": f"{tool.version} {tool.variable}".strip() for tool in build.tools}
    inputs |= {f"module {module}": str(n) for n, module in enumerate(build.modules)}
    if own is not None:
        inputs |= {f"patch {n} {Path(patch).name}": patch_hash(patch) for n, patch in enumerate(own.patches)}
        inputs |= {f"config {key}": value for key, value in own.config_settings.items()}
        inputs["requires"] = " ".join(own.requires)
    for text in requirement.config_settings if requirement else ():
        key, _, value = text.partition("=")
        inputs[f"config {key}"] = value
    inputs["isolation"] = str(own.isolation if own else True).lower()
    return dict(sorted(inputs.items()))


def patch_hash(path: str) -> str:
    """sha256 of a patch file. Raises InputError if it does not exist."""
    file = Path(path)
    require_file(file, "paths in `patches:` are relative to the stack's directory", kind="patch")
    return sha256_once(file)
