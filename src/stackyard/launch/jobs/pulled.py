"""image.json of a run: which bytes the name of its image stood for, where the nodes pull it from a registry.

A launch does not wait for the registry: the answer is written when it comes. Before a submission it is waited for,
since compute nodes often cannot ask.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from stackyard.core.errors import StackyardError
from stackyard.inputs.reading.imagename import image_name
from stackyard.launch.records.paths import RunPaths
from stackyard.yard.write.atomic import write_json

LIMIT_S = 15.0


def note_digest(container: str, paths: RunPaths, *, waits: bool) -> None:
    """Write image.json: the name, and its digest or why it is unknown. Nothing of a login is in it."""
    if waits:
        _note(container, paths)
    else:
        threading.Thread(target=_note, args=(container, paths), daemon=True).start()


def _note(container: str, paths: RunPaths) -> None:
    from stackyard.images.api import Registry
    from stackyard.images.oci.transfer import digest_of

    name = image_name(container)
    value = {"format": 1, "image": name.docker, "digest": "", "unknown": ""}
    try:
        value["digest"] = digest_of(container, Registry(limit_s=LIMIT_S))
    except StackyardError as error:
        value["unknown"] = error.message
    with suppress(OSError):  # a full disk must not stop a job
        write_json(paths.image, value)
