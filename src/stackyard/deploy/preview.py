"""What a deploy would change about published revisions without a build. Reads, never writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stackyard.core.late import dataclass
from stackyard.deploy import generation
from stackyard.deploy.entries import entries_after, kept_status
from stackyard.deploy.plan import Task
from stackyard.expose.generation import Texts
from stackyard.yard.generation import generations
from stackyard.yard.generation.changes import Changes, compare
from stackyard.yard.revision.manifest import Manifest

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request


@dataclass(frozen=True)
class Outlook:
    """What a deploy would change about published revisions without a build.

    `status` is what `kept_status` says of them, `changes` what users would see, `policy` whether all modules would be
    written again because they differ from what this program and the site now give. `texts` are the modulefiles that
    were rendered for that: the next generation has most of them too.
    """

    status: Mapping[str, str]
    changes: Changes
    policy: bool
    texts: Texts


def outlook(request: Request, tasks: Sequence[Task]) -> Outlook:
    """Look at what is published."""
    return looked_at(request, [task for task in tasks if task.is_kept], generations.current(request.yard))


def looked_at(request: Request, kept: Sequence[Task], manifest: Manifest | None) -> Outlook:
    """The same for the tasks of published revisions, and one generation."""
    now = manifest.entries if manifest else ()
    after, texts = entries_after(now, request.site, kept), Texts()
    same = manifest is None or generation.is_as_the_site_wants(request, manifest, texts)
    return Outlook(kept_status(now, after), compare(now, after), not same, texts)
