"""The door of `study`: studies, their table, their statistics and reports."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.study.analysis import Results as Results
    from stackyard.study.begin import Outlook as Outlook
    from stackyard.study.begin import created as create_study
    from stackyard.study.begin import default_root as default_root
    from stackyard.study.begin import opened as open_study
    from stackyard.study.begin import outlook as study_outlook
    from stackyard.study.collectives.report import collectives_result as collectives_result
    from stackyard.study.collectives.request import collectives_request as collectives_request
    from stackyard.study.control import Watcher as StudyWatcher
    from stackyard.study.control import run_here as run_study_here
    from stackyard.study.control import run_inside as run_study_inside
    from stackyard.study.control import run_jobs as run_study_jobs
    from stackyard.study.crate import write_crate as write_crate
    from stackyard.study.execute import Study as Study
    from stackyard.study.imports.measure import ImportRequest as ImportRequest
    from stackyard.study.imports.measure import Storm as Storm
    from stackyard.study.imports.measure import launches as import_launches
    from stackyard.study.imports.measure import measure as import_storms
    from stackyard.study.imports.model import Fit as QueueFit
    from stackyard.study.metrics.model import measured_by as measured_by
    from stackyard.study.metrics.read import read_run as measure_run
    from stackyard.study.profiles.load import is_profile as is_profile
    from stackyard.study.profiles.load import overview as profile_overview
    from stackyard.study.profiles.load import run_overview as run_overview
    from stackyard.study.profiles.merge import merge as merge_timeline
    from stackyard.study.profiles.overview import Overview as Overview
    from stackyard.study.reframe import reframe_test as reframe_test
    from stackyard.study.report.document import Commands as Commands
    from stackyard.study.report.document import Prose as Prose
    from stackyard.study.report.document import ReportDocument as ReportDocument
    from stackyard.study.report.document import ReportTable as ReportTable
    from stackyard.study.report.files import as_json as report_as_json
    from stackyard.study.report.files import document_of as report_document
    from stackyard.study.report.files import require_suffix as require_report_suffix
    from stackyard.study.report.files import write_report as write_report
    from stackyard.study.report.load import study_results as study_results
    from stackyard.study.request import StudyRequest as StudyRequest
    from stackyard.study.request import compared as compared_variants
    from stackyard.study.request import load_study as load_study
    from stackyard.study.request import varied as varied_values
    from stackyard.study.schedule import JobPlan as JobPlan
    from stackyard.study.store import PointRecord as PointRecord
    from stackyard.study.tune.allocations import SearchOutlook as SearchOutlook
    from stackyard.study.tune.allocations import carry_out as carry_out_search
    from stackyard.study.tune.allocations import nodes_here as nodes_here
    from stackyard.study.tune.allocations import place_now as place_of_search
    from stackyard.study.tune.allocations import run_as_jobs as run_as_jobs
    from stackyard.study.tune.allocations import run_inside_allocation as run_inside_allocation
    from stackyard.study.tune.allocations import search_outlook as search_outlook
    from stackyard.study.tune.allocations import steps_left as steps_left
    from stackyard.study.tune.export import export_journal as export_journal
    from stackyard.study.tune.request import SearchRequest as SearchRequest
    from stackyard.study.tune.request import load_space as load_space
    from stackyard.study.tune.results import SearchResults as SearchResults
    from stackyard.study.tune.results import search_results as search_results
    from stackyard.study.tune.search import SearchWatcher as SearchWatcher
    from stackyard.study.tune.store import StoredSearch as StoredSearch
    from stackyard.study.tune.store import create_search as create_search
    from stackyard.study.tune.store import default_root as default_search_root
    from stackyard.study.tune.store import is_search as is_search
    from stackyard.study.tune.store import open_search as open_search
    from stackyard.study.tune.verify import verify_search as verify_search
    from stackyard.study.twostudies import TwoStudies as TwoStudies
    from stackyard.study.twostudies import compare_studies as compare_studies
else:
    __getattr__, __dir__ = door(__file__, __name__)
