"""The door of `make`: mirrors."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.make.mirror.collect import Collection as MirrorContents
    from stackyard.make.mirror.write import missing as missing_from_mirror
else:
    __getattr__, __dir__ = door(__file__, __name__)
