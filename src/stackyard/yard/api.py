"""The door of `yard`: its revisions, records, generations, uses and signatures."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.yard.catalogue import listing as listing
    from stackyard.yard.catalogue import loaded as loaded_revisions
    from stackyard.yard.catalogue import record_of as record_of
    from stackyard.yard.catalogue import resolve as find_revision
    from stackyard.yard.catalogue import size as revision_size
    from stackyard.yard.catalogue import size_of as size_of_row
    from stackyard.yard.disk import is_directory as is_directory
    from stackyard.yard.generation.changes import Changes as Changes
    from stackyard.yard.generation.changes import compare as compare_generations
    from stackyard.yard.generation.generations import Base as StepBase
    from stackyard.yard.generation.generations import current as current_manifest
    from stackyard.yard.generation.generations import current_number as current_number
    from stackyard.yard.generation.generations import entries as current_entries
    from stackyard.yard.generation.generations import numbers as generation_numbers
    from stackyard.yard.generation.generations import read as read_manifest
    from stackyard.yard.generation.origin import origin as origin
    from stackyard.yard.layout import Yard as Yard
    from stackyard.yard.others.usage import Usage as Usage
    from stackyard.yard.others.usage import count as count_use
    from stackyard.yard.others.usage import read as read_usage
    from stackyard.yard.others.uses import hold as hold_revision
    from stackyard.yard.others.uses import require_files as require_files
    from stackyard.yard.revision.collision import sentences as collision_sentences
    from stackyard.yard.revision.directories import RevisionPaths as RevisionPaths
    from stackyard.yard.revision.manifest import Entry as Entry
    from stackyard.yard.revision.manifest import Manifest as Manifest
    from stackyard.yard.revision.record import BuildRecord as BuildRecord
    from stackyard.yard.revision.record import read_record as read_record
    from stackyard.yard.revision.revisions import readable as readable_record
    from stackyard.yard.revision.signatures import Signature as Signature
    from stackyard.yard.revision.signatures import demand_of as signature_demand
    from stackyard.yard.revision.signatures import require as require_signed
    from stackyard.yard.revision.signatures import signatures as signatures_of
    from stackyard.yard.write.atomic import write_text as write_text
    from stackyard.yard.write.idleleases import DAYS as IDLE_LEASE_DAYS
    from stackyard.yard.write.trash import Item as TrashItem
else:
    __getattr__, __dir__ = door(__file__, __name__)
