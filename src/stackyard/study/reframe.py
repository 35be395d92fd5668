"""References of a study as a ReFrame test: Python text for ``reframe -c FILE``.

The test runs the study anew for one size, in ReFrame's stage directory, and takes the medians from its table. A study
submits its own jobs, so the test itself is local.

Source: ReFrame 4.10, Regression Test API: a reference is (value, lower, upper, unit), a lower limit is negative, and
None means unlimited.
"""

from __future__ import annotations

import pprint
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.inputs.sites.references import StudyReference
from stackyard.study.references import Expected, expected
from stackyard.study.request import load_study
from stackyard.study.store import StudyPaths

_TEST = '''\
"""The references of {study}, for `reframe -c THIS_FILE -r`; made by `stackyard report --reframe`."""

import csv
import os
import statistics

import reframe as rfm
import reframe.utility.sanity as sn

STUDY = {study!r}
STACKYARD = {stackyard!r}
POINTS = {points}
"""By nodes and name: the metric, the variant, and (value, lower limit, upper limit, unit)."""


@rfm.simple_test
class {name}(rfm.RunOnlyRegressionTest):
    size = parameter(sorted(POINTS))
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    local = True
    executable = STACKYARD

    @run_after("init")
    def ask(self):
        points = POINTS[self.size]
        self.descr = f"{{os.path.basename(os.path.dirname(STUDY))}} for {{self.size}} node(s)"
        self.executable_opts = ["bench", STUDY, "--nodes", str(self.size), "--directory", "study", "--yes"]
        self.reference = {{"*": {{name: reference for name, (_, _, reference) in points.items()}}}}
        self.perf_variables = {{
            name: sn.make_performance_function(self.middle(metric, variant), reference[3])
            for name, (metric, variant, reference) in points.items()
        }}

    @deferrable
    def middle(self, metric, variant):
        with open(os.path.join(self.stagedir, "study", "table.csv"), newline="") as table:
            rows = [row for row in csv.DictReader(table) if row["state"] == "done" and row["warmup"] == "0"]
        own = [row for row in rows if (row["metric"], row["variant"]) == (metric, variant) and row["value"]]
        return statistics.median(float(row["value"]) for row in own)

    @sanity_function
    def ended(self):
        return sn.assert_found(r",done$", os.path.join("study", "table.csv"))
'''


def reframe_test(root: Path, of_site: Iterable[StudyReference] = (), stackyard: str = "stackyard") -> str:
    """The test of a study in a directory; arguments and errors as of `reframe_text`."""
    paths = StudyPaths(root.absolute())
    return reframe_text(paths.request, paths.root.name, expected(load_study(paths.request), of_site), stackyard)


def reframe_text(study: Path, name: str, references: Sequence[Expected], stackyard: str = "stackyard") -> str:
    """The test of a study.

    Args:
        study: its ``study.yaml``, absolute.
        name: of the test class; what a Python name cannot have is left out.
        stackyard: the command, on the machine that ReFrame runs on.

    Raises:
        InputError: none of the references is for a size and variant of this study.
    """
    if not references:
        raise InputError(
            f"no references for {study}: nothing to test",
            hint="add `references` to it, or `bench: references:` to site.yaml",
        )
    points: dict[int, dict[str, tuple[str, str, tuple[float, float | None, float | None, str]]]] = {}
    for each in references:
        reference, known = each.reference, points.setdefault(each.nodes, {})
        key = re.sub(r"\W+", "_", f"{reference.metric}_{each.variant}", flags=re.ASCII).strip("_") or "value"
        while key in known:
            key += "_"
        limits = (-reference.low if reference.low else None, reference.high or None)
        known[key] = (reference.metric, each.variant, (reference.value, *limits, reference.unit or "1"))
    shown = pprint.pformat(points, width=110, sort_dicts=False)
    return _TEST.format(study=str(study), stackyard=stackyard, points=shown, name=_class_name(name))


def _class_name(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name)
    return "Study" + "".join(word[:1].upper() + word[1:] for word in words)
