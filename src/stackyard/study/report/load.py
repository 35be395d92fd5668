"""Reads a study for a report: nothing is written, and what other accounts put there is read by bounded readers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.inputs.sites.references import StudyReference
from stackyard.launch.api.runs import RunPaths, read_run
from stackyard.study import store
from stackyard.study.analysis import Results, analyse
from stackyard.study.references import expected, judged
from stackyard.study.request import load_study
from stackyard.study.store import StudyPaths


def study_results(root: Path, of_site: Iterable[StudyReference] = ()) -> Results:
    """The results of a study as far as it is, against its own references and those of the site.

    Raises:
        InputError: the directory is not a study, or a file of it is damaged.
    """
    paths = StudyPaths(root.absolute())
    about = store.read_about(paths)
    request = load_study(paths.request)
    records = list(store.read_points(paths))
    found = analyse(paths.root.resolve().name, records, request, about)
    judgements = judged(found.series, expected(request, of_site))
    return replace(found, typed=dict(_typed(paths, found)), judgements=judgements)


def _typed(paths: StudyPaths, found: Results) -> Iterator[tuple[tuple[int, str], str]]:
    """Of each size and variant, the ``stackyard launch`` that a run recorded; none if the run directories are gone."""
    seen = set()
    for record in found.records:
        key = record.point.nodes, record.point.variant
        if record.last is None or key in seen:
            continue
        seen.add(key)
        try:
            yield key, shlex.join(read_run(RunPaths(paths.root / record.last.run)).command)
        except StackyardError:
            continue
