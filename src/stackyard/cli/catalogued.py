"""Verbs that publish: afterwards the catalogues that the site asks for are written again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from stackyard.cli.output import show_notice

if TYPE_CHECKING:
    from stackyard.cli.context import Context
    from stackyard.inputs.api import Workspace


def catalogued(function: Callable[..., None]) -> Callable[..., None]:
    """The function of a verb, after which the site's catalogues are written if it published anything, even if it fails.

    A catalogue that cannot be written is a notice: what was published stays published.
    """

    @wraps(function)
    def run(context: Context, *arguments: Any, **options: Any) -> None:
        if not context.site().catalogue.directories:
            function(context, *arguments, **options)
            return
        from stackyard.catalogue.api import published_state

        workspace = context.workspace()
        before = published_state(workspace)
        try:
            function(context, *arguments, **options)
        except Exception:  # but not after an interrupt
            _refresh(workspace, before)
            raise
        _refresh(workspace, before)

    return run


def _refresh(workspace: Workspace, before: object) -> None:
    from stackyard.catalogue.api import published_state, refresh_catalogues

    if published_state(workspace) != before:
        refresh_catalogues(workspace, show_notice)
