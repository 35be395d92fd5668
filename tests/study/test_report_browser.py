"""A report in a real browser: nothing is requested, nothing is wider than a phone, no word of a figure is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.study.profiles.load import overview
from stackyard.study.report.files import write_report
from stackyard.study.report.load import study_results
from study.handmade import make_study, noisy
from study.handtraces import each_step, file_of, steps, write
from support.browser import browser

pytestmark = [pytest.mark.real, pytest.mark.slow]
WIDE = """return [...document.querySelectorAll('body *')].filter(e => !e.closest('svg') && !e.closest('.scroll') &&
  !e.closest('pre') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 200))"""
SMALL = """return [...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height)
  .filter(height => height < 9).length"""
HIDDEN = """return [...document.querySelectorAll('svg text')].filter(e => {
  const own = e.getBoundingClientRect(), box = e.closest('svg').getBoundingClientRect();
  return own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1
}).map(e => e.textContent)"""


def test_a_profile_is_readable_on_a_phone_and_in_the_dark(tmp_path: Path) -> None:
    for rank in range(24):
        parts = [("cpu_op", "aten::" + "mm" * 60, 0, 5 - rank % 3), ("user_annotation", "gloo:all_reduce", 5, 9),
                 ("cpu_op", "aten::copy_", 7, 7.05)]  # fmt: skip
        write(file_of(tmp_path / "traces", rank), [*steps(6), *each_step(6, *parts)], rank, 24, host="node" * 20)
    write_report(overview(tmp_path / "traces", lambda *_: None), tmp_path / "profile.html")
    with browser(tmp_path, (500, 850)) as page:
        page.open((tmp_path / "profile.html").as_uri())
        assert page.script("return document.title") == "Profile of traces"
        assert page.script("return performance.getEntriesByType('resource').length") == 0
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")
        assert page.script(WIDE) == [] and page.script(SMALL) == 0 and page.script(HIDDEN) == []
        assert page.script("return document.querySelectorAll('figure svg polyline').length") > 24 * 2
        described = "return document.querySelector('svg desc').textContent"
        assert "rank 23: computation 30 %" in page.script(described)
        assert "svg polyline.c2" in page.script("return document.querySelector('style').textContent"), "in the dark"


def test_a_report_is_readable_on_a_phone(tmp_path: Path) -> None:
    study = make_study(tmp_path / "resnet", noisy(), variants=("native", "a-container-image-with-a-long-name.sif"))
    write_report(study_results(study), tmp_path / "report.html")
    with browser(tmp_path, (500, 850)) as page:  # the least width that Chromium gives a window
        page.open((tmp_path / "report.html").as_uri())
        assert page.script("return document.title") == "Study resnet"
        assert page.script("return performance.getEntriesByType('resource').length") == 0
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")
        assert page.script(WIDE) == [] and page.script(SMALL) == 0 and page.script(HIDDEN) == []
        assert page.script("return document.querySelectorAll('figure svg').length") == 4
        page.picture(tmp_path / "phone.png")
        page.click("nav a", "Methods")
        title = "return [...document.querySelectorAll('h2')].find(e => '#' + e.id === location.hash)?.textContent"
        assert page.until(title) == "Methods"
