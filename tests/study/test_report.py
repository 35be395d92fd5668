"""`stackyard report` of studies made by hand: what it prints and writes, in each format."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stackyard.core.errors import InputError
from stackyard.study.report import files
from stackyard.study.report.content import study_document
from stackyard.study.report.html import html_text
from stackyard.study.report.load import study_results
from stackyard.study.report.svg import BACK, COLOURS, Drawing, dash_of
from stackyard.study.report.words import number, percent
from stackyard.study.schedule import Point
from study.handmade import RATE, make_study, noisy
from support import programs
from support.accounts import Accounts
from support.cli import stackyard

TWO = ("native", "image")
EVIL = """<script>alert(1)</script>"><img src=http://evil.invalid/x onerror=1>&amp;'`|*_[a](http://evil.invalid)\x1b[2J\u202e"""
GOLDEN = Path(__file__).parent / "golden"


def steady(point: Point) -> float:
    """A speed without noise that a drawing does not change: the second variant is 5 % faster, and scaling is linear."""
    speed = 100.0 * point.nodes * (1.05 if point.variant == "image" else 1) + point.repeat % 3
    return speed * (0.5 if point.warmup else 1)


def failing(point: Point) -> Any:
    """The same, with two runs that failed and one that has not run."""
    if (point.nodes, point.variant, point.repeat) in ((2, "native", 3), (2, "image", 5)):
        return "rank 3 on node014: CUDA out of memory"
    return None if (point.nodes, point.variant, point.repeat) == (2, "image", 7) else steady(point)


def written(study: Path, suffix: str) -> str:
    file = study.parent / f"out{suffix}"
    files.write_report(study_results(study), file)
    return file.read_text(encoding="utf-8")


def test_the_summary_on_a_terminal(tmp_path: Path) -> None:
    done = stackyard("report", make_study(tmp_path / "resnet", failing, variants=TWO, nodes=(1, 2)), expect=3)
    assert done.out == (GOLDEN / "report.txt").read_text()


def test_three_runs_have_no_verdict_in_text_csv_and_exit_status(tmp_path: Path) -> None:
    study = make_study(tmp_path / "few", noisy(), variants=TWO, repeat=3)
    done = stackyard("report", study, expect=3)
    assert done.out.count("range of 3 pairs; no verdict") == 6
    rows = list(csv.DictReader(io.StringIO(written(study, ".csv"))))
    assert {row["verdict"] for row in rows if row["against"]} == {"range of 3 pairs; no verdict"}
    assert {row["ratio_is"] for row in rows if row["against"]} == {"range"}
    assert stackyard("report", study, "-o", tmp_path / "x.html", expect=3).out == ""
    assert stackyard("report", study, "--json", expect=3).value["undecided"] is True
    stackyard("report", make_study(tmp_path / "sizes", noisy(), repeat=3), expect=0)  # is not a comparison


def test_a_study_before_its_first_run(tmp_path: Path) -> None:
    study = make_study(tmp_path / "new", lambda point: None)
    done = stackyard("report", study)
    assert "No run has a value yet" in done.out and "18 missing" in done.out and "18 runs not started yet" in done.out
    for suffix in (".html", ".md", ".csv", ".json"):
        assert written(study, suffix)
    error = stackyard("report", study, "-o", tmp_path / "x.svg", expect=2).err
    assert "this report has no figure" in error and not (tmp_path / "x.svg").exists()


def test_the_csv_and_the_json_have_all_numbers(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", noisy(), variants=TWO, nodes=(1, 2))
    rows = list(csv.DictReader(io.StringIO(written(study, ".csv"))))
    found = study_results(study)
    assert [(int(row["nodes"]), row["variant"]) for row in rows] == [each.key for each in found.series]
    four = found.series[3]
    assert four.median and four.scaling and four.scaling.efficiency and found.versus[1].comparison
    assert float(rows[3]["median"]) == four.median.value and float(rows[3]["low"]) == four.median.low
    assert float(rows[3]["efficiency_high"]) == four.scaling.efficiency.high
    assert float(rows[3]["ratio"]) == found.versus[1].comparison.ratio.value and rows[3]["scaling_is"] == "range"
    value = json.loads(written(study, ".json"))
    assert value["series"][3]["values"] == list(four.values) and len(value["runs"]) == len(found.records)
    assert value["comparisons"][1]["p"] == found.versus[1].comparison.p


class Page(HTMLParser):
    """What a page consists of; an element that is not closed fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "path", "polyline", "rect") or not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open += [] if tag == "meta" else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]


def test_a_page_needs_nothing_else_and_can_be_read_aloud(tmp_path: Path) -> None:
    text = written(make_study(tmp_path / "s", failing, variants=TWO, nodes=(1, 2)), ".html")
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "base", "form"}
    others = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.findall(r"(?:src|href)\s*=(?!\"#)|url\(|@import|://", others)
    assert page.of("html")[0]["lang"] == "en" and len(page.of("h1")) == 1 and len(page.of("main")) == 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert all(attributes["href"][1:] in ids for attributes in page.of("a") if attributes["href"])
    for svg in page.of("svg"):
        assert svg["role"] == "img" and set((svg["aria-labelledby"] or "").split()) <= set(ids)
    assert all(head.get("scope") in ("col", "row") for head in page.of("th"))
    assert len(page.of("caption")) == len(page.of("table")) and len(page.of("figcaption")) == len(page.of("svg")) == 4
    assert "stackyard launch --again" in text and "runs/2026-11-21-" in text and "CUDA out of memory" in text
    assert "sha256:4f1d0c" in text
    assert text.count("--export=ALL RUN/rank.sh</code>") == 4  # said once for each size and variant


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2, 1.4.3."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_have_enough_contrast_by_day_and_in_the_dark() -> None:
    from stackyard.study.report import html
    from stackyard.study.report.svg import FAINT, INK

    assert all(contrast(colour, BACK) >= 4.5 for colour in (*COLOURS, INK, FAINT))
    style = html._style()
    dark = style[style.index("prefers-color-scheme") :]
    shown = set(re.findall(r"#[0-9a-f]{6}", dark)) - {"#0d1117", "#161b22", "#30363d", "#7d8590"}
    assert len(shown) >= 10 and all(contrast(colour, "#0d1117") >= 4.5 for colour in shown)
    assert contrast("#7d8590", "#0d1117") >= 3  # lines


@pytest.mark.parametrize("name", ["efficiency", "speedup", "comparison", "runs"])
def test_figures_are_well_formed_and_name_what_they_show(tmp_path: Path, name: str) -> None:
    study = make_study(tmp_path / "s", noisy(), variants=TWO)
    stackyard("report", study, "-o", tmp_path / "f.svg", "--figure", name)
    root = ElementTree.parse(tmp_path / "f.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    ids = {root.findtext(f"{space}title"), root.findtext(f"{space}desc")}
    assert root.tag == f"{space}svg" and all(ids) and "native" in "".join(filter(None, ids))
    words = [element.text for element in root.iter(f"{space}text")]
    box = [float(part) for part in root.attrib["viewBox"].split()]
    for path in root.iter(f"{space}polyline"):
        for x, y in (map(float, point.split(",")) for point in path.attrib["points"].split()):
            assert -1 <= x <= box[2] + 1 and -1 <= y <= box[3] + 1
    if name in ("efficiency", "speedup"):
        assert "ideal" in words and any("baseline: 1 node" in (word or "") for word in words)
    if name == "runs":
        dots = [element for element in root.iter(f"{space}path") if element.find(f"{space}title") is not None]
        assert len(dots) == len(study_results(study).records)


def test_the_main_figure_of_a_comparison_and_of_sizes(tmp_path: Path) -> None:
    make_study(tmp_path / "two", noisy(), variants=TWO)
    make_study(tmp_path / "sizes", noisy())
    assert "how many times as fast as native" in written(tmp_path / "two", ".svg")
    assert "Strong efficiency" in written(tmp_path / "sizes", ".svg")


def test_words_of_other_people_are_text_in_every_format(tmp_path: Path) -> None:
    metric = {**RATE, "name": f"=cmd{EVIL}", "unit": EVIL}
    study = make_study(
        tmp_path / "evil", lambda p: EVIL if p.repeat == 2 else [{**metric, "value": 9.0 + p.repeat}], variants=TWO,
        hosts=lambda point: (EVIL, "n1"), remarks=[EVIL], command=f"srun {EVIL}",
    )  # fmt: skip
    html = written(study, ".html")
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "b"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    markdown = written(study, ".md")
    assert not re.findall(r"(?<!\\)<|(?<!\\)\]\(|(?<!\\)\*", re.sub(r"(?s)```.*?```", "", markdown))
    svg = tmp_path / "evil.svg"
    stackyard("report", study, "-o", svg, "--figure", "runs", expect=None)
    assert {element.tag.rpartition("}")[2] for element in ElementTree.parse(svg).iter()} <= {
        "svg", "title", "desc", "rect", "text", "polyline", "path"}  # fmt: skip
    out = stackyard("report", study, expect=None).out
    for text in (html, markdown, svg.read_text(), out):
        assert "\x1b" not in text and "\u202e" not in text
    cells = [cell for row in csv.reader(io.StringIO(written(study, ".csv"))) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@"))]
    assert any(cell.startswith("'=cmd") for cell in cells)


@pytest.mark.parametrize("name", ["../../../etc/x", "a/b", "<b>", "", "=cmd", "a" * 81])
def test_names_of_variants_that_would_leave_the_study_are_refused(tmp_path: Path, name: str) -> None:
    study = make_study(tmp_path / "s", noisy(), variants=TWO)
    job = study / "jobs/n0001-a01.json"
    job.write_text(job.read_text().replace('"image"', json.dumps(name)))
    error = stackyard("report", study, expect=2).err
    assert "n0001-a01.json" in error and "not a run of a variant" in error


@pytest.mark.parametrize("change", [
    {"hosts": [7]}, {"run": 3}, {"measured": []}, {"seconds": float("nan")}, {"seconds": 10**400}, {"ranks": "4"},
    {"place": None}, {"code": "x"}, {"state": ["done"]},
])  # fmt: skip
def test_a_record_with_a_wrong_value_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    study = make_study(tmp_path / "s", noisy(), variants=TWO)
    point = study / "points/n0001-image-a01-r01.json"
    value = json.loads(point.read_text())
    value["attempts"][0] |= change
    point.write_text(json.dumps(value))
    with pytest.raises(InputError, match=re.escape(point.name)):
        study_results(study)


def test_a_study_of_the_first_format_is_read(data: Path) -> None:
    found = study_results(data / "formats/study-1")
    assert [each.values for each in found.series] == [(101.0, 102.0), (106.0, 107.0), (201.0, 202.0), (211.0,)]
    assert "rank 1 on n2: exited with status 1" in html_text(study_document(found))


def test_unknown_suffixes_are_refused_with_the_list(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", noisy())
    for name in ("x.png", "x"):
        error = stackyard("report", study, "-o", tmp_path / name, expect=2).err
        assert "not a format of reports" in error and ".html, .md, .csv, .json, .svg, .pdf" in error
    assert "--figure and --metric need -o" in stackyard("report", study, "--figure", "runs", expect=2).err
    assert "--license needs --crate" in stackyard("report", study, "--license", "MIT", expect=2).err
    for words, named, other in (("--crate -o r.html", "--crate", "-o"), ("--crate --json", "--crate", "--json"),
                                ("--timeline t.json --crate", "--timeline", "--crate")):  # fmt: skip
        said = stackyard("report", study, *words.split(), expect=2).err
        assert f"{named} writes a file of its own: give it without {other}" in said
        assert not (study / "ro-crate-metadata.json").exists()
    assert "is neither a study nor a run" in stackyard("report", tmp_path, expect=2).err
    error = stackyard("report", study, "-o", tmp_path / "x.svg", "--figure", "comparison", expect=2).err
    assert "this report has no comparison" in error and "--figure efficiency" in error


def test_a_pdf_needs_a_program_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(tmp_path / "s", noisy())
    empty = tmp_path / "bin"
    empty.mkdir()
    error = stackyard("report", study, "-o", tmp_path / "x.pdf", expect=4, PATH=str(empty)).err
    assert "weasyprint not found on PATH" in error and "print it from a browser" in error
    error = stackyard("report", study, "-o", tmp_path / "x.pdf", "--figure", "runs", expect=4, PATH=str(empty)).err
    assert "rsvg-convert" in error and not (tmp_path / "x.pdf").exists()


@pytest.mark.real
def test_a_figure_as_a_pdf(tmp_path: Path) -> None:
    programs.need("rsvg-convert")
    stackyard("report", make_study(tmp_path / "s", noisy()), "-o", tmp_path / "x.pdf", "--figure", "speedup")
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_two_studies_side_by_side(tmp_path: Path) -> None:
    before, after = make_study(tmp_path / "before", noisy(1)), make_study(tmp_path / "after", noisy(2), how="here")
    done = stackyard("report", before, after, expect=3)
    assert done.out.index("What differs") < done.out.index("about.how") < done.out.index("Summary")
    assert "range of 6 runs; no verdict" in done.out
    third = make_study(tmp_path / "third", lambda point: 1.1 * noisy(3)(point))
    assert re.search(r"third is [0-9.]+ % faster than before \(", stackyard("report", before, third).out)
    for suffix in (".html", ".md", ".csv", ".json", ".svg"):
        stackyard("report", before, third, "-o", tmp_path / f"two{suffix}")
        assert (tmp_path / f"two{suffix}").stat().st_size > 300
    assert ElementTree.parse(tmp_path / "two.svg").getroot().tag.endswith("svg")


def test_a_report_of_500_runs_is_small(tmp_path: Path) -> None:
    study = make_study(tmp_path / "big", noisy(), variants=TWO, repeat=49, nodes=(1, 2, 4, 8, 16))
    found = study_results(study)
    assert len(found.records) == 500
    start = time.process_time()
    files.write_report(found, tmp_path / "big.html")
    print(f"500 runs: {time.process_time() - start:.2f} s, {(tmp_path / 'big.html').stat().st_size:,} bytes")
    assert (tmp_path / "big.html").stat().st_size < 1_000_000


def test_a_study_of_another_account_is_read_and_not_written(common: Path, accounts: Accounts) -> None:
    study = make_study(common / "theirs", noisy(), variants=TWO)
    for path in (study, *study.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = {path: path.stat().st_mtime_ns for path in (study, *study.rglob("*"))}
    anna = accounts.user("anna")
    anna.stackyard("report", study, "-o", "report.html")
    assert (anna.home / "report.html").stat().st_uid == anna.uid
    assert {path: path.stat().st_mtime_ns for path in (study, *study.rglob("*"))} == before


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (1, "1.000"), (412.04, "412.0"), (12345.6, "12,346"), (0.0123456, "0.01235"), (9.99996, "10.00"),
    (-5.5, "-5.500"), (1e-9, "1e-09"), (3e15, "3e+15"),
])  # fmt: skip
def test_numbers_have_four_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0.0423, "4.2 %"), (0.12, "12 %"), (1.204, "120 %"), (0.0004, "0.040 %")])
def test_percentages_have_two_digits(share: float, text: str) -> None:
    assert percent(share) == text


def test_json_has_null_where_a_record_has_no_number(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", noisy(), variants=TWO)
    point = study / "points/n0001-image-a01-r01.json"
    value = json.loads(point.read_text())
    value["attempts"][0]["measured"]["memory"] = {"peak_bytes": float("nan")}
    point.write_text(json.dumps(value))
    runs = {run["id"]: run for run in json.loads(written(study, ".json"))["runs"]}
    assert runs["n0001-image-a01-r01"]["measured"]["memory"] == {"peak_bytes": None}
    assert written(study, ".html")


def test_the_energy_of_gpus_has_a_column_of_its_own(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", noisy(), variants=TWO)
    for point in (study / "points").glob("*.json"):
        value = json.loads(point.read_text())
        energy = {"joules": 36000, "source": "Slurm's ConsumedEnergyRaw"}
        gpus = {"joules": 7200, "source": "NVML's counters"}
        value["attempts"][0].get("measured", {}).update(energy=energy, gpu_energy=gpus)
        point.write_text(json.dumps(value))
    text = written(study, ".md")
    assert "| energy of a run's nodes (Wh) | energy of its GPUs alone (Wh) |" in text
    assert "| 10.00 | 2.000 |" in text
    assert "energy of the GPUs: NVML's counters" in text


def test_32_variants_are_told_apart_by_colour_shape_and_dashes() -> None:
    drawings = []
    for index in range(32):
        drawing = Drawing()
        drawing.mark((0, 0), index)
        drawings.append((drawing.rendered("x", "", "", 1), index % len(COLOURS), dash_of(index)))
    assert len({text for text, _, _ in drawings}) == len({(colour, dash) for _, colour, dash in drawings}) == 32
