"""A study as a regression test: its references and the site's, in words, as exit status, and as a ReFrame test."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.sites.references import StudyReference
from stackyard.study.references import Judgement, expected
from stackyard.study.reframe import reframe_text
from stackyard.study.report.load import study_results
from stackyard.study.request import StudyRequest, load_study
from study.handmade import make_study
from support import venvs
from support.cli import STACKYARD, stackyard

RATES = {1: 100.0, 2: 195.0, 4: 370.0}
MET = {"metric": "images/s", "nodes": 4, "value": 380, "low": 0.05, "unit": "images/s"}


def study(root: Path, *references: dict[str, Any], **more: Any) -> Path:
    return make_study(root, lambda point: RATES[point.nodes] + point.repeat / 10, references=references, **more)


def judgements(root: Path, *of_site: dict[str, Any]) -> tuple[Judgement, ...]:
    return study_results(root, [StudyReference(**each) for each in of_site]).judgements


@pytest.mark.parametrize(("changed", "problem"), [
    ({}, ""), ({"low": 0.02}, "below 372.4"), ({"value": 300, "low": 0, "high": 0.1}, "above 330"),
    ({"value": 300, "low": 0.5, "high": 0}, ""),
    ({"unit": "samples/s"}, "measured in images/s, but the reference is in samples/s"),
    ({"unit": ""}, ""), ({"metric": "loss"}, "not measured"),
])  # fmt: skip
def test_a_median_is_within_its_limits_or_the_reason_is_named(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    (found,) = judgements(study(tmp_path / "s", {**MET, **changed}))
    assert found.problem == problem and found.is_met == (not problem)
    if problem != "not measured":
        assert found.median is not None and found.median.value == pytest.approx(370.35)


def test_a_size_without_a_value_has_not_met_its_reference(tmp_path: Path) -> None:
    root = make_study(tmp_path / "s", lambda point: "no GPU" if point.nodes == 4 else 100.0, references=[MET])
    assert [each.problem for each in judgements(root)] == ["not measured"]


def test_references_of_the_site_are_for_studies_of_their_name_and_their_sizes(tmp_path: Path) -> None:
    root = study(tmp_path / "s", variants=["native", "image"])
    site = [
        {**MET, "nodes": 0, "value": 100, "study": "train"},  # the program's name
        {**MET, "nodes": 4, "variant": "image", "value": 370},
        {**MET, "nodes": 144, "value": 9000}, {**MET, "study": "resnet"}, {**MET, "variant": "other"},
    ]  # fmt: skip
    found = judgements(root, *site)
    assert [(each.expected.nodes, each.expected.variant) for each in found] == [
        (1, "native"), (1, "image"), (2, "native"), (2, "image"), (4, "native"), (4, "image"), (4, "image"),
    ]  # fmt: skip
    assert all(each.is_met for each in found)


@pytest.mark.parametrize(("changed", "why"), [
    ({"low": 0}, "needs `low` or `high`"), ({"value": 0}, "a `value` above 0"), ({"low": 5}, "low"),
])  # fmt: skip
def test_a_reference_that_tests_nothing_is_refused(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps({"format": 1, "job": {"program": ["a.py"]}, "references": [{**MET, **changed}]}))
    with pytest.raises(InputError) as error:
        load_study(file)
    assert why in error.value.message


def test_report_shows_them_and_ends_with_status_3(tmp_path: Path) -> None:
    root = study(tmp_path / "train", MET)
    assert "1 of 1 reference met" in stackyard("report", root).out
    site = tmp_path / "site.yaml"
    site.write_text(
        "name: here\nbench:\n  references:\n    - {metric: images/s, nodes: 1, value: 200, low: 0.1, high: 0.1}\n"
    )
    shown = stackyard("--site", site, "report", root, expect=3).out
    assert "1 of 2 references met" in shown
    assert "images/s  1      job      200.0 -10 % +10 %  100.3   100.1 to 100.6  below 180" in shown
    value = stackyard("--site", site, "report", root, "--json", expect=3).value
    assert [(each["nodes"], each["met"], each["problem"]) for each in value["references"]] == [
        (4, True, ""), (1, False, "below 180")
    ]  # fmt: skip
    page = tmp_path / "page.html"
    stackyard("--site", site, "report", root, "-o", page, expect=3)
    assert "below 180" in page.read_text()


def test_a_study_without_references_is_no_test(tmp_path: Path) -> None:
    failed = stackyard("report", study(tmp_path / "s"), "--reframe", tmp_path / "t.py", expect=2)
    assert "no references for" in failed.err and "bench: references:" in failed.err
    assert not (tmp_path / "t.py").exists()


def test_the_text_of_a_reframe_test_is_python_whatever_the_names_are() -> None:
    references = [{"metric": "a b", "value": 1, "low": 0.1}, {"metric": "a-b", "value": 2, "high": 0.1, "unit": 'x"'}]
    request = StudyRequest(job={"program": ["it's.py"]}, nodes=(1, 2), references=references)
    text = reframe_text(Path('/tmp/it\'s "here"/study.yaml'), "9 lives!", expected(request))
    compile(text, "test", "exec")
    assert "class Study9Lives(" in text
    assert "'a_b_job': ('a b', 'job', (1.0, -0.1, None, '1'))" in text
    assert "'a_b_job_': ('a-b', 'job', (2.0, None, 0.1, 'x\"'))" in text


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.long
def test_reframe_lists_dry_runs_and_runs_it(tmp_path: Path) -> None:
    """A real ReFrame: it runs the study anew, takes the median, and fails where that is below the reference."""
    reframe = venvs.python("ReFrame-HPC").with_name("reframe")
    (tmp_path / "speed.py").write_text("import os\nprint('images/s:', os.environ['SPEED'])\n")
    (tmp_path / "study.yaml").write_text(json.dumps({
        "format": 1, "name": "speed", "repeat": 2, "warmup_runs": 0, "references": [{**MET, "nodes": 1, "value": 100}],
        "job": {"program": ["speed.py"], "ranks_per_node": 1, "cores_per_rank": 1, "cwd": str(tmp_path)},
        "measure": [{"name": "images/s", "pattern": r"images/s: (\S+)", "unit": "images/s"}],
    }))  # fmt: skip
    site = tmp_path / "site.yaml"
    site.write_text("name: here\nscheduler: {kind: none}\n")
    own = {"STACKYARD_SITE": str(site), "STACKYARD_HOME": str(tmp_path / "yard"), "SPEED": "100"}
    stackyard("bench", tmp_path / "study.yaml", "-o", tmp_path / "speed", cwd=tmp_path, **own)
    worse = stackyard("bench", tmp_path / "study.yaml", "-o", tmp_path / "worse", cwd=tmp_path, expect=3,
                      **{**own, "SPEED": "90"})  # fmt: skip
    assert "0 of 1 reference met" in worse.out and "below 95" in worse.out
    stackyard("report", tmp_path / "speed", "--reframe", tmp_path / "speed_test.py", **own)

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = f"{STACKYARD.parent}:{os.environ['PATH']}"
        env = {**os.environ, **own, "HOME": str(tmp_path), "PATH": path, "TMPDIR": str(tmp_path), **variables}
        return subprocess.run([reframe, "-c", tmp_path / "speed_test.py", "--nocolor", *words], env=env, cwd=tmp_path,
                              capture_output=True, text=True, timeout=120, check=False)  # fmt: skip

    listed = run("--list")
    assert listed.returncode == 0 and "StudySpeed %size=1" in listed.stdout and "Found 1 check(s)" in listed.stdout
    for done in (listed, run("--dry-run")):
        assert done.returncode == 0 and "warning" not in (done.stdout + done.stderr).lower(), done.stdout + done.stderr
    good = run("-r")
    assert good.returncode == 0, good.stdout
    assert "images_s_job: 100.0 images/s (r:100.0, l:-0.05, u:None)" in good.stdout
    slow = run("-r", SPEED="90")
    assert slow.returncode == 1, slow.stdout
    assert "images_s_job=90.0 images/s, expected 100.0 (l=95.0, u=inf)" in slow.stdout
