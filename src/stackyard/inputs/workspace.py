"""`Workspace`: a site and a yard, which nearly all steps of a deploy, a launch or maintenance use together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackyard.core.late import dataclass
from stackyard.yard.layout import Yard

if TYPE_CHECKING:
    from stackyard.inputs.sites.sitemodels import Site


@dataclass(frozen=True)
class Workspace:
    """The place of an operation: the yard, and the site whose policy applies. Extended by subclasses."""

    site: Site
    yard: Yard
