"""Predicts the changes of a deploy to published revisions that need no build. Writes nothing."""

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
    """The predicted changes of a deploy to published revisions that need no build.

    `status` is from `kept_status`; `changes` lists what users would see; `policy`: whether all modules would be written
    again because they differ from those that this program and the site produce now. `texts` has the modulefiles
    rendered for that comparison, most of which the next generation reuses.
    """

    status: Mapping[str, str]
    changes: Changes
    policy: bool
    texts: Texts


def outlook(request: Request, tasks: Sequence[Task]) -> Outlook:
    """The outlook for a request."""
    return looked_at(request, [task for task in tasks if task.is_kept], generations.current(request.yard))


def looked_at(request: Request, tasks: Sequence[Task], manifest: Manifest | None) -> Outlook:
    """The outlook for given tasks of published revisions and one generation."""
    now = manifest.entries if manifest else ()
    after, texts = entries_after(now, request.site, tasks), Texts()
    same = manifest is None or generation.is_as_the_site_wants(request, manifest, texts)
    return Outlook(kept_status(now, after), compare(now, after), not same, texts)
