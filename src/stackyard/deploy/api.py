"""The door of `deploy`: deploys of files, and changes to published revisions without a build."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.deploy.deploy import USABLE as USABLE
    from stackyard.deploy.deploy import Outcome as Outcome
    from stackyard.deploy.deploy import Request as Request
    from stackyard.deploy.deploy import Result as Result
    from stackyard.deploy.deploy import lock_all as lock_all
    from stackyard.deploy.described.cite import bibtex as bibtex
    from stackyard.deploy.described.cite import cff as cff
    from stackyard.deploy.described.cite import citation_of as citation_of
    from stackyard.deploy.described.formats import FORMATS as BILL_FORMATS
    from stackyard.deploy.described.formats import bill_of as bill_of
    from stackyard.deploy.described.notebook import Revision as Revision
    from stackyard.deploy.described.notebook import Revisions as Revisions
    from stackyard.deploy.fetching import fetch_stacks as fetch_stacks
    from stackyard.deploy.generation import Step as Step
    from stackyard.deploy.licence_policy import of_revision as licences_of_revision
    from stackyard.deploy.licence_policy import of_variant as licences_of_variant
    from stackyard.deploy.licences import NeededLicence as NeededLicence
    from stackyard.deploy.licences import accept as accept_licence
    from stackyard.deploy.licences import accepted as accepted_licence
    from stackyard.deploy.licences import me as account_here
    from stackyard.deploy.licences import mine as my_acceptances
    from stackyard.deploy.licences import needed as needed_licences
    from stackyard.deploy.licences import require as require_licences
    from stackyard.deploy.licences import text_of as licence_text
    from stackyard.deploy.licences import variables as licence_variables
    from stackyard.deploy.locking import write_lock as write_lock
    from stackyard.deploy.memo import memo_path as memo_path
    from stackyard.deploy.memo import recall as recall_deploy
    from stackyard.deploy.plan import Task as Task
    from stackyard.deploy.preview import Outlook as Outlook
    from stackyard.deploy.published.describe import revision_json as revision_json
    from stackyard.deploy.published.rollback import only_from as only_from
    from stackyard.deploy.published.rollback import publish as publish_step
    from stackyard.deploy.published.rollback import step_to as step_to
    from stackyard.deploy.published.rollback import target as rollback_target
    from stackyard.deploy.published.share import Group as SharingGroup
    from stackyard.deploy.published.share import modules_of as shared_modules
    from stackyard.deploy.published.share import require_shareable as require_shareable
    from stackyard.deploy.published.share import share as share
    from stackyard.deploy.published.share import shut_out as shut_out_group
    from stackyard.deploy.published.share import unshare as unshare
    from stackyard.deploy.published.share_later import begin as share_later
    from stackyard.deploy.published.share_later import end as end_sharing_later
    from stackyard.deploy.published.share_later import stacks as stacks_shared_later
    from stackyard.deploy.published.states import Make as MakeStep
    from stackyard.deploy.published.states import changes_something as changes_something
    from stackyard.deploy.published.states import default as make_default
    from stackyard.deploy.published.states import retire as retire
    from stackyard.deploy.published.states import withdraw as withdraw
    from stackyard.deploy.requests import deploy_request as deploy_request
    from stackyard.deploy.requests import deploy_stacks as deploy_stacks
    from stackyard.deploy.requests import lock_files as lock_files
    from stackyard.deploy.requests import preview_deploy as preview_deploy
    from stackyard.deploy.signing import NAME_ONE as NAME_A_KEY
    from stackyard.deploy.signing import key_of as signing_key
    from stackyard.deploy.signing import republish as republish_signed
    from stackyard.deploy.writing import building as building
    from stackyard.deploy.writing import solving as solving
    from stackyard.deploy.writing import writing as writing
else:
    __getattr__, __dir__ = door(__file__, __name__)
