"""A study's directory as an RO-Crate: a JSON file describes its runs, the software that ran, and the account.

Each attempt of a run is a CreateAction of the Process Run Crate profile, with its run directory and the table as
results, study.yaml as its object, and the stack, image or environment of its variant as its instrument.

Source: RO-Crate 1.1 (https://w3id.org/ro/crate/1.1), Process Run Crate 0.5 (https://w3id.org/ro/wfrun/process/0.5).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stackyard.study import store
from stackyard.study.request import StudyRequest, load_study
from stackyard.study.store import About, Attempt, PointRecord, StudyPaths
from stackyard.yard.write import atomic

METADATA = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CRATE = "https://w3id.org/ro/crate/1.1"
UNSTATED = "No licence is stated for these data: ask the account that measured them before you use them."
_STATES = {"done": "Completed", "running": "Active"}
"""All others have failed, as schema.org has it: a run that was interrupted did not reach its goal either."""
_KINDS = {".csv": "text/csv", ".html": "text/html", ".json": "application/json", ".md": "text/markdown",
          ".pdf": "application/pdf", ".svg": "image/svg+xml", ".yaml": "application/yaml"}  # fmt: skip

Entity = dict[str, Any]


def write_crate(root: Path, licence: str = "") -> None:
    """Write the table and the metadata: the study's directory is a crate then.

    Args:
        licence: the address of the licence of the data. RO-Crate asks for one; without it the crate says so.

    Raises:
        InputError: it is not a study.
        StackyardError: it cannot be written.
    """
    paths = StudyPaths(root.absolute())
    about, request = store.read_about(paths), load_study(paths.request)
    records = list(store.read_points(paths))
    store.write_table(paths)
    files = sorted(path.name for path in paths.root.iterdir() if path.is_file() and path.suffix in _KINDS)
    runs = {each.run for record in records for each in record.attempts if (paths.root / each.run).is_dir()}
    graph = crate(about, request, records, [name for name in files if name != METADATA], runs, licence)
    atomic.write_json(paths.root / METADATA, graph)


def crate(
    about: About, request: StudyRequest, records: Sequence[PointRecord], files: Sequence[str],
    runs: Iterable[str], licence: str = "",
) -> Entity:  # fmt: skip
    """The metadata.

    Args:
        files: the names of the study's own files.
        runs: the run directories that still exist.
    """
    kept = set(runs)
    actions = [_action(about, record, attempt, kept) for record in records for attempt in record.attempts]
    parts = [{"@id": quote(name)} for name in files] + [{"@id": _directory(run)} for run in sorted(kept)]
    root: Entity = {
        "@id": "./", "@type": "Dataset", "name": _title(request), "description": _description(request, about, records),
        "datePublished": about.created[:10], "conformsTo": {"@id": PROFILE}, "author": {"@id": _person(about)},
        "hasPart": _plain(parts), "mentions": _plain([{"@id": action["@id"]} for action in actions]),
        "license": {"@id": licence} if licence else UNSTATED,
    }  # fmt: skip
    about_itself = {"@id": METADATA, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": {"@id": CRATE}}
    graph = [about_itself, root, *_context(about, licence), *map(_file, files), *map(_run, sorted(kept)), *actions]
    return {"@context": f"{CRATE}/context", "@graph": graph}


def _title(request: StudyRequest) -> str:
    return f"Study of {request.name or ' '.join(request.job.program)}"


def _description(request: StudyRequest, about: About, records: Sequence[PointRecord]) -> str:
    done = sum(record.state == "done" for record in records)
    sizes = ", ".join(map(str, sorted(request.nodes)))
    where = about.site or about.host
    return (f"{done} of {len(records)} runs of `{' '.join(request.job.program)}` on {sizes} nodes in "
            f"{len(request.all_variants)} variants, measured by `{' '.join(about.command)}` on {where}")  # fmt: skip


def _context(about: About, licence: str) -> Iterator[Entity]:
    """Who, and with what: the account, the profile, the licence, Stackyard and the software of each variant."""
    yield {"@id": _person(about), "@type": "Person", "name": about.user, "description": f"account on {about.host}"}
    yield {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    if licence:
        name = licence.rstrip("/").rpartition("/")[2]
        yield {"@id": licence, "@type": "CreativeWork", "name": name, "description": "the licence of these data"}
    version = about.versions.get("stackyard", "unknown")
    yield {
        "@id": f"urn:stackyard:{quote(version)}",
        "@type": "SoftwareApplication",
        "name": "Stackyard",
        "softwareVersion": version,
    }
    for name, identity in about.variants.items():
        yield _software(name, identity)


def _software(variant: str, identity: Mapping[str, str]) -> Entity:
    """The stack of a variant by its module and lock, its image by path, size and time, or its environment."""
    named = identity.get("module") or identity.get("container") or identity.get("plain") or "the programs on PATH"
    found: Entity = {"@id": _instrument(variant, identity), "@type": "SoftwareApplication", "name": named}
    _, _, version = identity.get("module", "").partition("/")
    if version:
        found["softwareVersion"] = version
    if "lock" in identity:
        found["identifier"] = f"sha256:{identity['lock'].removeprefix('sha256:')}"
    told = "; ".join(f"{key}: {value}" for key, value in identity.items() if key not in ("module", "lock"))
    return {**found, "description": f"variant {variant}" + (f" ({told})" if told else "")}


def _instrument(variant: str, identity: Mapping[str, str]) -> str:
    """An absolute URI, which the profile asks for: of the variant as it was, not of its name."""
    digest = hashlib.sha256(repr(sorted(identity.items())).encode()).hexdigest()[:16]
    return f"urn:stackyard:variant:{quote(variant)}:{digest}"


def _plain(values: list[Entity]) -> Entity | list[Entity]:
    """The values; a single one as itself, as RO-Crate has it."""
    return values[0] if len(values) == 1 else values


def _person(about: About) -> str:
    return f"#account-{quote(about.user)}"


def _directory(run: str) -> str:
    return f"{quote(run)}/"


def _file(name: str) -> Entity:
    kind = next(kind for suffix, kind in _KINDS.items() if name.endswith(suffix))
    return {"@id": quote(name), "@type": "File", "name": name, "encodingFormat": kind}


def _run(run: str) -> Entity:
    return {"@id": _directory(run), "@type": "Dataset", "name": run, "description": "a run directory: record, logs"}


def _action(about: About, record: PointRecord, attempt: Attempt, kept: set[str]) -> Entity:
    point = record.point
    state = _STATES.get(attempt.state, "Failed")
    number = hashlib.sha256(attempt.run.encode()).hexdigest()[:8]
    action: Entity = {
        "@id": f"#{quote(point.id)}-{number}", "@type": "CreateAction",
        "name": f"{point.id}{' (warm-up)' if point.warmup else ''}", "description": attempt.command,
        "instrument": {"@id": _instrument(point.variant, about.variants.get(point.variant, {}))},
        "object": {"@id": "study.yaml"},
        "agent": {"@id": _person(about)}, "actionStatus": f"http://schema.org/{state}ActionStatus",
        "result": _plain([{"@id": "table.csv"}] + [{"@id": _directory(attempt.run)}] * (attempt.run in kept)),
    }  # fmt: skip
    if attempt.started:
        action["startTime"] = _moment(attempt.started)
        if attempt.state != "running":
            action["endTime"] = _moment(attempt.started + attempt.seconds)
    if attempt.message and state == "Failed":
        action["error"] = attempt.message
    return action


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds))
