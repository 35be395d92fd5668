"""The door of `upkeep`: collection, removal, repair, transfer, extensions."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.upkeep.extensions.base_status import of_extension as extension_standing
    from stackyard.upkeep.extensions.base_status import standing as base_standing
    from stackyard.upkeep.extensions.deploying import Change as ExtensionChange
    from stackyard.upkeep.extensions.deploying import deploy_changed as deploy_changed
    from stackyard.upkeep.extensions.deploying import extended as extended
    from stackyard.upkeep.extensions.deploying import preview_changed as preview_changed
    from stackyard.upkeep.extensions.drift import drifted as drifted
    from stackyard.upkeep.extensions.drift import reset as reset_to_record
    from stackyard.upkeep.extensions.file import ExtensionRequest as ExtensionRequest
    from stackyard.upkeep.extensions.file import Files as ExtensionFiles
    from stackyard.upkeep.extensions.file import checked as checked_packages
    from stackyard.upkeep.extensions.file import checked_name as new_extension_name
    from stackyard.upkeep.extensions.file import chosen as chosen_extension
    from stackyard.upkeep.extensions.file import names as extension_names
    from stackyard.upkeep.extensions.file import on_base as on_base
    from stackyard.upkeep.extensions.file import used as used_extension
    from stackyard.upkeep.extensions.file import with_more as with_more_packages
    from stackyard.upkeep.gc.collect import Plan as CollectionPlan
    from stackyard.upkeep.gc.collect import Rules as CollectionRules
    from stackyard.upkeep.gc.collect import collect as collect
    from stackyard.upkeep.gc.collect import last_batch as last_put_aside
    from stackyard.upkeep.gc.collect import plan as plan_collection
    from stackyard.upkeep.gc.full_disk import despite_full as despite_full
    from stackyard.upkeep.gc.inuse import Watch as Watch
    from stackyard.upkeep.gc.remove import Outcome as RemovalOutcome
    from stackyard.upkeep.gc.remove import bring_back as bring_back
    from stackyard.upkeep.gc.remove import kept_error as kept_error
    from stackyard.upkeep.gc.remove import own_revision as own_revision
    from stackyard.upkeep.gc.remove import remove_unused as remove_unused
    from stackyard.upkeep.gc.remove import removed as removed_revision
    from stackyard.upkeep.gc.remove import size_of as removal_size
    from stackyard.upkeep.gc.remove import watch_yard as watch_yard
    from stackyard.upkeep.gc.unused import unused_for as why_unused
    from stackyard.upkeep.health.fsck.check import check as check_files
    from stackyard.upkeep.health.fsck.fault import Report as FaultReport
    from stackyard.upkeep.health.fsck.mend import listed as listed_entries
    from stackyard.upkeep.health.fsck.mend import note_lost_images as note_lost_images
    from stackyard.upkeep.health.fsck.mend import require_owner as require_repairable
    from stackyard.upkeep.health.fsck.mend import rest as repair_rest
    from stackyard.upkeep.health.repair import repair_yard as repair_yard
    from stackyard.upkeep.health.restore_record import restore_revisions as restore_revisions
    from stackyard.upkeep.health.verifying import modules_to_verify as modules_to_verify
    from stackyard.upkeep.health.verifying import publish_results as publish_results
    from stackyard.upkeep.health.verifying import revisions_to_verify as revisions_to_verify
    from stackyard.upkeep.health.verifying import verify_again as verify_again
    from stackyard.upkeep.sign import sign_again as sign_again
    from stackyard.upkeep.transfer.adopt import AdoptionOptions as AdoptionOptions
    from stackyard.upkeep.transfer.adopt import adopt as adopt
    from stackyard.upkeep.transfer.adopt import look as look_at_prefix
    from stackyard.upkeep.transfer.adopt import request as adoption_request
    from stackyard.upkeep.transfer.adopt import tasks as adoption_tasks
    from stackyard.upkeep.transfer.arrival import arrive as arrive
    from stackyard.upkeep.transfer.arrival import require_fit as require_fit
    from stackyard.upkeep.transfer.move import MoveResult as MoveResult
    from stackyard.upkeep.transfer.move import move as move_yard
    from stackyard.upkeep.transfer.moveplan import Plan as MovePlan
    from stackyard.upkeep.transfer.moveplan import Request as MoveRequest
    from stackyard.upkeep.transfer.moveplan import plan as plan_move
else:
    __getattr__, __dir__ = door(__file__, __name__)
