"""The door of `inputs`: reading and validating users' files, and the site and yard of a command."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.inputs.load import load_stack as load_stack
    from stackyard.inputs.models import Bind as Bind
    from stackyard.inputs.models import Licence as Licence
    from stackyard.inputs.models import PipOptions as PipOptions
    from stackyard.inputs.models import Stack as Stack
    from stackyard.inputs.models import Wrap as Wrap
    from stackyard.inputs.parsed import parsed_json as parsed_json
    from stackyard.inputs.pip.settings import settings as pip_settings
    from stackyard.inputs.reading.paths import with_home as with_home
    from stackyard.inputs.schema import schema as input_schema
    from stackyard.inputs.sites.bindings import HostBindings as HostBindings
    from stackyard.inputs.sites.bindings import load_bindings as load_bindings
    from stackyard.inputs.sites.jobmodels import ContainerPolicy as ContainerPolicy
    from stackyard.inputs.sites.settings import SYSTEM_SITE as SYSTEM_SITE
    from stackyard.inputs.sites.settings import Settings as Settings
    from stackyard.inputs.sites.settings import require_own_site as require_own_site
    from stackyard.inputs.sites.settings import scratch_yard as scratch_yard
    from stackyard.inputs.sites.sitemodels import BaseImage as BaseImage
    from stackyard.inputs.sites.sitemodels import BaseLicence as BaseLicence
    from stackyard.inputs.sites.sitemodels import PipPolicy as PipPolicy
    from stackyard.inputs.sites.sitemodels import Site as Site
    from stackyard.inputs.sites.siteyard import site_root as site_root
    from stackyard.inputs.stacks.naming import given as given_name
    from stackyard.inputs.stacks.selection import choose as choose_variants
    from stackyard.inputs.workspace import Workspace as Workspace
else:
    __getattr__, __dir__ = door(__file__, __name__)
