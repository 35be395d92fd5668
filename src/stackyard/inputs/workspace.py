"""`Workspace`: a site and a yard, which nearly every step of a deploy, a launch or the upkeep needs together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackyard.core.late import dataclass
from stackyard.yard.layout import Yard

if TYPE_CHECKING:
    from stackyard.inputs.sites.sitemodels import Site


@dataclass(frozen=True)
class Workspace:
    """Where something is done: by the policy of `site`, in `yard`. A class with more fields extends it."""

    site: Site
    yard: Yard
