"""The door of `catalogue`: writing the catalogue of a yard."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.catalogue.gather import published_state as published_state
    from stackyard.catalogue.publish import refresh_catalogues as refresh_catalogues
    from stackyard.catalogue.publish import write_catalogue as write_catalogue
else:
    __getattr__, __dir__ = door(__file__, __name__)
