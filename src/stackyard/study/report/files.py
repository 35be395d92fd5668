"""A report as a file: the format is that of its suffix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stackyard.core.errors import InputError, MissingError
from stackyard.host.files.scratch import scratch
from stackyard.host.run import command
from stackyard.study.analysis import Results
from stackyard.study.profiles.content import overview_csv, overview_document, overview_json
from stackyard.study.profiles.overview import Overview
from stackyard.study.report.content import study_document
from stackyard.study.report.data import json_text, results_csv, results_json, two_csv, two_json
from stackyard.study.report.document import Figure, ReportDocument
from stackyard.study.report.html import html_text
from stackyard.study.report.markdown import markdown_text
from stackyard.study.report.twocontent import two_document
from stackyard.study.tune.content import search_csv, search_document, search_json
from stackyard.study.tune.results import SearchResults
from stackyard.study.twostudies import TwoStudies
from stackyard.yard.write import atomic

SUFFIXES = (".html", ".md", ".csv", ".json", ".svg", ".pdf")
PDF_S = 120.0
Reported = Results | TwoStudies | Overview | SearchResults


class _Kind(NamedTuple):
    """A kind of report: how what was found becomes each format."""

    document: Callable[[Any], ReportDocument]
    json: Callable[[Any], dict[str, object]]
    csv: Callable[[Any], str]


_KINDS: dict[type, _Kind] = {
    Results: _Kind(study_document, results_json, results_csv),
    TwoStudies: _Kind(two_document, two_json, two_csv),
    Overview: _Kind(overview_document, overview_json, overview_csv),
    SearchResults: _Kind(search_document, search_json, search_csv),
}


def require_suffix(path: Path) -> None:
    """Refuse a name without a known format. Raises InputError."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: not a format of reports: {path.suffix or 'no suffix'}",
                         hint=f"the suffixes are {', '.join(SUFFIXES)}")  # fmt: skip


def document_of(found: Reported) -> ReportDocument:
    """The report before it has a format."""
    return _KINDS[type(found)].document(found)


def write_report(found: Reported, path: Path, figure: str = "", metric: str = "") -> None:
    """Write a report, or one figure of it.

    Args:
        figure, metric: which figure a ``.svg`` or ``.pdf`` has. A ``.svg`` without `figure` has the main one.

    Raises:
        InputError: the suffix is unknown, or the study has no such figure.
        MissingError: a program that makes a PDF is missing.
        StackyardError: it cannot be written.
    """
    require_suffix(path)
    if path.suffix == ".pdf":
        atomic.write_bytes(path, _pdf(found, figure, metric))
    elif path.suffix == ".svg":
        atomic.write_text(path, _chosen(found, figure, metric).svg + "\n")
    else:
        atomic.write_text(path, _text(found, path.suffix))


def as_json(found: Reported) -> dict[str, object]:
    """All results as JSON values."""
    return _KINDS[type(found)].json(found)


def _text(found: Reported, suffix: str) -> str:
    if suffix == ".json":
        return json_text(as_json(found))
    if suffix == ".csv":
        return _KINDS[type(found)].csv(found)
    return (html_text if suffix == ".html" else markdown_text)(document_of(found))


def _chosen(found: Reported, name: str, metric: str) -> Figure:
    have = document_of(found).figures()
    match = [each for each in have if name in ("", each.name) and metric in ("", each.metric)]
    if not match:
        what = " of ".join(filter(None, [name or "figure", metric]))
        names = ", ".join(dict.fromkeys(f"--figure {each.name} --metric '{each.metric}'" for each in have))
        raise InputError(f"this report has no {what}", hint=f"it has {names or 'none: no run has a value'}")
    return match[0]


def _pdf(found: Reported, figure: str, metric: str) -> bytes:
    """A PDF of one figure, by rsvg-convert or weasyprint; of the whole report by weasyprint."""
    rsvg, weasyprint = command.which("rsvg-convert"), command.which("weasyprint")
    one = _chosen(found, figure, metric) if figure or metric else None
    if weasyprint is None and (one is None or rsvg is None):
        other = "rsvg-convert (librsvg2-bin) or weasyprint" if one else "weasyprint"
        others = "" if one else "; or write .html and print it from a browser; or use --figure NAME"
        raise MissingError(f"cannot make a PDF: {other} not found on PATH", hint=f"install {other}{others}")
    with scratch("report") as directory:
        source, target = directory / ("in.svg" if one else "in.html"), directory / "out.pdf"
        source.write_text(one.svg if one else html_text(document_of(found)), encoding="utf-8")
        argv = [rsvg, "-f", "pdf", "-o", target, source] if one and rsvg else [weasyprint, source, target]
        command.run([str(word) for word in argv], timeout_s=PDF_S, cwd=directory)
        return target.read_bytes()
