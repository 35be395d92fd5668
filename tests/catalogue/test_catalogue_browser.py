"""A catalogue in a real browser, from ``file://``: search, tables, on a phone, in the dark, by keyboard, by axe."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalogue import yards
from stackyard.catalogue.publish import write_catalogue
from stackyard.core.errors import MissingError
from stackyard.inputs.workspace import Workspace
from support import testbed
from support.browser import Browser, browser

pytestmark = [pytest.mark.real, pytest.mark.slow]
EVIL = "<img src=x onerror=alert(1)>"
PAGES = ("index.html", "pytorch/index.html", "pytorch/2.6.0-py312-1.html", "rapids/24.10-py312-1.html")
WIDE = """return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') &&
  !e.matches('.hidden, .skip') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("catalogue")
    yard = yards.demo(place / "yard")
    long = yards.revision(yard, "zz-" + "long" * 20, "1.0", [yards.package(EVIL, "1.0"), yards.package("x" * 90, "1")])
    yards.publish(yard, [yards.entry(long)])
    write_catalogue(Workspace(yards.SITE, yard), place / "out", "site", pytest.fail)
    return place / "out"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser"), (1280, 900)) as window:
        yield window


@pytest.fixture(scope="module")
def axe() -> str:
    """The text of axe-core."""
    try:
        wheels = testbed.wheels(testbed.HERE / "wheels-axe.txt")
    except MissingError as error:
        pytest.skip(f"axe-core: {error}")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as bundle:
        return bundle.read("axe_playwright_python/axe.min.js").decode()


def phone(page: Browser, *, is_phone: bool = True) -> None:
    """A screen of 360 x 740 px."""
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.devtools("Emulation.setDeviceMetricsOverride" if is_phone else "Emulation.clearDeviceMetricsOverride",
                  **(size if is_phone else {}))  # fmt: skip


def colours(page: Browser, scheme: str) -> None:
    page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def look_for(page: Browser, text: str) -> list[list[Any]]:
    """The rows that the search shows for a text, as typed by a person."""
    page.script("const q = document.getElementById('q'); q.focus(); q.value = ''")
    page.until("return window.stackyardPackages && document.activeElement.id === 'q'")
    page.devtools("Input.insertText", text=text)
    page.until("return document.getElementById('hits').textContent.match(/package|stack/i)", within_s=20)
    page.until("return new Promise(done => setTimeout(() => done(true), 150))")
    return page.script(
        "return [...document.querySelectorAll('#results tbody tr')].map(r => [...r.cells].map(c => c.innerText.trim()))"
    )


def test_the_search_finds_parts_of_names_and_versions(site: Path, page: Browser) -> None:
    page.open((site / "index.html").as_uri())
    assert page.script("return [...document.scripts].some(s => s.src.includes('packages.js'))") is False
    assert look_for(page, "ORCH") == [
        ["pytorch", "2.6.0", "pytorch/2.6.0-py312-1"], ["2.5.1", "pytorch/2.5.1-py312-1"],
        ["2.4.1", "pytorch/2.4.1-py312-1"],
    ]  # fmt: skip
    assert page.script("return document.getElementById('results').innerText").startswith("Stacks: pytorch")
    assert look_for(page, "torch 2.5") == [["pytorch", "2.5.1", "pytorch/2.5.1-py312-1"]]
    assert look_for(page, "horovod==0.28")[0][:2] == ["horovod", "0.28.1"]
    assert look_for(page, "pytroch")[0][:2] == ["pytorch", "2.6.0"], "two letters exchanged"
    assert look_for(page, "torch 9") == []
    assert page.script("return document.getElementById('hits').textContent") == "No package of this name and version"
    assert look_for(page, "<img")[0][0] == EVIL and page.script("return document.images.length") == 0
    assert look_for(page, "numpy")[0][0] == "numpy"
    assert page.until("return document.querySelector('#results details')")
    page.click("#results summary", "more")
    assert page.until("return document.querySelectorAll('#results details a').length") == 4
    assert page.script("return getComputedStyle(document.querySelector('.cards')).display !== 'none' && "
                       "document.querySelector('.cards').getClientRects().length") == 0  # fmt: skip
    look_for(page, "torch 2.5")
    page.click("#results a", "pytorch/2.5.1-py312-1")
    assert page.until("return document.querySelector('h1').innerText.startsWith('pytorch/2.5.1-py312-1')")
    assert look_for(page, "flax")[0][2] == "jax/0.4.35-py312-1"
    page.click("#results a", "jax/0.4.35-py312-1")
    assert page.until("return document.title.startsWith('jax/0.4.35')")
    assert page.console() == []


def test_the_keyboard_is_enough(site: Path, page: Browser) -> None:
    page.open((site / "index.html").as_uri())
    page.press("Tab")
    assert page.script("return document.activeElement.textContent") == "To the content"
    page.press("/")
    assert page.script("return document.activeElement.id") == "q"
    look_for(page, "jax")
    page.press("Escape")
    assert page.script(
        "return [document.getElementById('q').value, document.querySelectorAll('#results *').length]"
    ) == ["", 0]
    assert page.script("return document.querySelector('.cards').getClientRects().length") == 1


def test_tables_and_differences_are_there_without_scripts(site: Path, page: Browser) -> None:
    page.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open((site / "pytorch" / "2.6.0-py312-1.html").as_uri())
        text = page.text()
        assert "The search needs JavaScript" in text and "Compared with pytorch/2.5.1-py312-1" in text
        assert "deepspeed\t0.15.4\t0.16.2" in text and "MPL-2.0 AND MIT" in text and "Copy" not in text
    finally:
        page.devtools("Emulation.setScriptExecutionDisabled", value=False)


def test_nothing_is_wider_than_a_phone_and_nothing_else_is_asked_for(site: Path, page: Browser) -> None:
    phone(page)
    try:
        for name in (*PAGES, *(str(path.relative_to(site)) for path in site.glob("zz-*/*.html"))):
            page.open((site / name).as_uri())
            assert page.script("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360], name
            assert page.script(WIDE) == [], name
            asked = page.script("return performance.getEntriesByType('resource').map(e => e.name)")
            assert all(each.startswith(site.as_uri()) for each in asked), asked
        look_for(page, "x" * 20)
        assert page.script("return document.documentElement.scrollWidth") == 360
        assert page.console() == []
    finally:
        phone(page, is_phone=False)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(site: Path, page: Browser, axe: str, scheme: str) -> None:
    colours(page, scheme)
    for name in PAGES:
        page.open((site / name).as_uri())
        if name == "index.html":
            look_for(page, "p")
            page.script(
                "document.querySelector('body').classList.remove('searching')"
            )  # all of the page, and the results
        background = page.script("return getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
        page.script(axe + "; window.axe = axe")
        page.script("document.querySelectorAll('details').forEach(e => { e.open = true })")
        found = page.script(
            "return axe.run({preload: false}).then(r => r.violations.map(v => [v.id, v.nodes[0].html]))"
        )
        assert found == [], name
    page.console()


def test_it_prints_without_what_paper_has_no_use_for(site: Path, page: Browser) -> None:
    page.open((site / "pytorch" / "2.6.0-py312-1.html").as_uri())
    page.devtools("Emulation.setEmulatedMedia", media="print", features=[])
    try:
        hidden = (
            "return ['form', 'button', '.skip'].every(s => document.querySelector(s).getClientRects().length === 0)"
        )
        assert page.script(hidden)
        whole = "return [...document.querySelectorAll('.tall')].every(e => e.scrollHeight <= e.clientHeight + 1)"
        assert page.script(whole), "no row of a table is left out"
    finally:
        page.devtools("Emulation.setEmulatedMedia", media="", features=[])
