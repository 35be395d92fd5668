"""The settings of an OCI image: its environment, from the module's change, and its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stackyard.core import change as ops
from stackyard.images.bases.blobs import EPOCH
from stackyard.images.labels import DEFAULT_PATH
from stackyard.images.labels import labels as revision_labels
from stackyard.images.oci import layers
from stackyard.images.relocation.paths import Moves
from stackyard.yard.kinds.payload import IMAGES
from stackyard.yard.revision.record import BuildRecord

_KEPT = (ops.Prepend, ops.Append, ops.Set, ops.SetRestorable, ops.Default, ops.Flags, ops.Join)
"""Operations with a meaning where nothing is ever unloaded and the user is not known."""
COMPRESSOR = "io.stackyard.compressor"
"""The note on what the compressed bytes depend on besides the files."""


def environment(
    change: ops.EnvironmentChange, moves: Moves, yard: str, base: Sequence[str]
) -> tuple[list[str], list[str]]:
    """``NAME=value`` for each variable of a container; and sentences about the parts that it lacks.

    Args:
        yard: the root; a variable that names another of its directories is left out.
        base: the variables of the base.
    """
    environ = {"PATH": DEFAULT_PATH, **dict(line.partition("=")[::2] for line in base)}
    operations: list[ops.Operation] = []
    lost: dict[str, list[str]] = {}
    for operation in change:
        moved = moves.operation(operation)
        name = getattr(operation, "variable", getattr(operation, "name", ""))
        if name == IMAGES or isinstance(operation, ops.Notice):
            continue
        if not isinstance(operation, _KEPT):
            lost.setdefault(operation.op.replace("_", " "), []).append(name)
        elif any(f"{yard}/" in str(value) for value in vars(moved).values()):
            lost.setdefault("it names a file of the yard", []).append(name)
        else:
            operations.append(moved)
    variables = ops.EnvironmentChange(tuple(operations)).apply(environ)
    return [f"{name}={value}" for name, value in sorted(variables.items())], [
        f"{', '.join(names)} ({why})" for why, names in lost.items()
    ]


def labels(
    record: BuildRecord, prefix: str, base: str, digest: str, compression: layers.Compression = "gzip"
) -> dict[str, str]:
    """The labels of a revision's image: OCI's annotations, and our own.

    Args:
        base, digest: the name of the base, and its manifest's digest; empty without one.
    """
    return {**revision_labels(record, prefix, base, digest), COMPRESSOR: layers.compressor(compression)}


def configuration(
    architecture: str, base: Mapping[str, Any], config: Mapping[str, Any], packed: Sequence[layers.PackedLayer]
) -> dict[str, Any]:
    """The configuration of an image: the base's, extended by our layers.

    Args:
        base: the configuration of the base; empty without one.
        config: the settings of the containers.
    """
    below = base.get("rootfs", {}).get("diff_ids", [])
    history = [{"created": EPOCH, "created_by": f"stackyard: {layer.layer.title}"} for layer in packed]
    return {
        "architecture": architecture,
        "os": "linux",
        "created": EPOCH,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [*below, *(layer.diff_id for layer in packed)]},
        "history": [*base.get("history", []), *history],
    }
