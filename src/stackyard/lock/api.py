"""The door of `lock`: reading, comparing, explaining and exporting locks."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.lock.base.extension import whole as with_base
    from stackyard.lock.conda.selection import select_packages as select_packages
    from stackyard.lock.explain.changes import moves as package_moves
    from stackyard.lock.explain.diff import compare as compare_packages
    from stackyard.lock.explain.why import chains as requirement_chains
    from stackyard.lock.licences import PackageLicence as PackageLicence
    from stackyard.lock.lockfile.export import EXPORTS as EXPORTS
    from stackyard.lock.lockfile.export import writer_of as writer_of
    from stackyard.lock.lockfile.model import LockedInterpreter as LockedInterpreter
    from stackyard.lock.lockfile.model import LockedVariant as LockedVariant
    from stackyard.lock.lockfile.text import read as read_lock
    from stackyard.lock.renewal import Update as Update
    from stackyard.lock.renewal import former as former_variant
    from stackyard.lock.solve import site_platforms as site_platforms
    from stackyard.lock.stackfiles import load_stacks as load_stacks
    from stackyard.lock.stackfiles import tell_notices as tell_notices
else:
    __getattr__, __dir__ = door(__file__, __name__)
