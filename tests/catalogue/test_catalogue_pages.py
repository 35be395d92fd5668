"""What the pages of a catalogue say, and that no name or text of a user is obeyed in any of its formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from catalogue import yards
from stackyard.catalogue.markdown import escaped
from stackyard.catalogue.packages import runs
from stackyard.catalogue.publish import refresh_catalogues, write_catalogue
from stackyard.inputs.sites.sitemodels import CataloguePolicy
from stackyard.inputs.workspace import Workspace
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard

EVIL = "<img src=x onerror=alert(1)>\"'&amp;</script><!-- `x` {{ 7*7 }} [a](javascript:alert(1)) | \u2028 \u202e"
TABLE = ("table", "thead", "tbody", "tr", "th", "td")


def write(yard: Yard, out: Path, form: str = "site") -> Path:
    write_catalogue(Workspace(yards.SITE, yard), out, form, pytest.fail)
    return out


class Page(HTMLParser):
    """The elements, texts and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def links(self) -> Iterator[str]:
        yield from (a[name] or "" for _, a in self.elements for name in ("href", "src") if name in a)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    return write(yards.demo(place / "yard"), place / "out")


def text_of(file: Path) -> str:
    return " ".join(" ".join(Page(file.read_text()).texts).split())


def test_every_link_leads_somewhere_and_no_page_asks_for_anything_else(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) == 1 + 4 + 7
    for file in pages:
        page = Page(file.read_text())
        assert page.open == []
        for link in page.links():
            target, _, part = link.partition("#")
            if link != "https://pytorch.org":
                assert "//" not in target and (file.parent / target).exists(), (file, link)
            if part:
                assert any(a.get("id") == part for _, a in page.elements)
        assert "default-src 'none'" in next(str(a["content"]) for t, a in page.elements if a.get("http-equiv"))


def test_a_page_says_what_is_asked_of_it(site: Path) -> None:
    text = text_of(site / "pytorch" / "2.5.1-py312-1.html")
    for part in (
        "module load pytorch/2.5.1-py312-1", "stackyard launch --with pytorch/2.5.1-py312-1 train.py",
        "stackyard extend --base pytorch/2.5.1-py312-1", "6.2 GiB in 85,411 files", "All checks passed on 2026-",
        "Packages import 61", "accelerator cu126, python 3.12", "tqdm 4.67.0 h1_0 conda MPL-2.0 AND MIT",
        "libblas 3.9.0 h1_0 conda not known", "Compared with pytorch/2.4.1-py312-1 :",
        "pytorch 2.4.1 2.5.1", "ray - 2.39.0", "lock sha256", "@misc{pytorch/2.5.1-py312-1,",
    ):  # fmt: skip
        assert part in text, part
    old = text_of(site / "pytorch" / "2.4.1-py312-1.html")
    assert "Retired from 2027-03-01; use pytorch/2.6.0." in old and "What changed" not in old
    bad = text_of(site / "rapids" / "24.10-py312-1.html")
    assert "A check failed when it was verified last." in bad and "2 1 failed" in bad
    first = text_of(site / "index.html")
    assert "4 stacks, 7 versions" in first and "2027-03-01 pytorch/2.4.1-py312-1 : use pytorch/2.6.0" in first


def test_versions_are_side_by_side(site: Path) -> None:
    for name, columns in (("index.html", 7), ("pytorch/index.html", 3)):
        text = (site / name).read_text()
        row = re.search(r'<tr><th scope="row">pytorch</th>(.*?)</tr>', text)
        cells = re.findall(r"<td>(?:<b>)?(.*?)(?:</b>)?</td>", row[1] if row else "")
        assert len(cells) == columns and [cell for cell in cells if cell] == ["2.6.0", "2.5.1", "2.4.1"]


def test_descriptions_for_search_engines_say_what_is_known_and_no_more(site: Path) -> None:
    text = (site / "pytorch" / "2.6.0-py312-1.html").read_text()
    found = re.search(r'<script type="application/ld\+json">(.*?)</script>', text)
    value = json.loads(found[1] if found else "")
    assert value["@type"] == "SoftwareApplication" and value["softwareVersion"] == "2.6.0-py312-1"
    assert value["sameAs"] == "https://pytorch.org" and "url" not in value
    assert not value.keys() & {"review", "offers", "aggregateRating"}


def test_the_feed_is_atom(site: Path) -> None:
    atom = "{http://www.w3.org/2005/Atom}"
    root = ElementTree.parse(site / "@catalogue" / "feed.xml").getroot()
    entries = root.findall(f"{atom}entry")
    assert root.tag == f"{atom}feed" and len(entries) == 8  # seven revisions and an end
    ids = [entry.findtext(f"{atom}id") or "" for entry in entries]
    assert len(set(ids)) == 8 and all(each.startswith("urn:uuid:") for each in ids)
    for entry in entries:
        link = entry.find(f"{atom}link")
        assert link is not None and (site / "@catalogue" / link.get("href", "")).is_file()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", entry.findtext(f"{atom}updated") or "")
    titles = [entry.findtext(f"{atom}title") for entry in entries]
    assert titles[-1] == "pytorch/2.4.1-py312-1 is retired from 2027-03-01"


def test_software_is_listed_as_eessi_lists_it(tmp_path: Path) -> None:
    yard = yards.demo(tmp_path / "yard")
    value = json.loads((write(yard, tmp_path / "out", "json") / "software.json").read_text())
    assert set(value) == {
        "timestamp", "architectures_map", "gpu_architectures_map", "category_details", "software"
    }  # fmt: skip
    assert list(value["software"]) == ["jax", "pytorch", "rapids", "tensorflow"]
    version = value["software"]["pytorch"]["versions"][0]
    assert version["module"]["full_module_name"] == "pytorch/2.6.0-py312-1" and version["cpu_arch"] == ["x86_64"]
    assert {"type": "pip", "name": "horovod", "version": "0.28.1", "license": "Apache-2.0"} in version["extensions"]


def test_markdown_pages_link_to_each_other(tmp_path: Path) -> None:
    out = write(yards.demo(tmp_path / "yard"), tmp_path / "out", "markdown")
    for file in out.rglob("*.md"):
        text = file.read_text()
        assert text.startswith('---\ntitle: "')
        for target in re.findall(r"\]\(([^)]+)\)", text):
            assert (file.parent / target).is_file(), (file, target)
    text = (out / "pytorch" / "2.6.0-py312-1.md").read_text()
    assert "- ray 2.39.0 -> 2.40.0" in text.replace("\\", "") and "| MPL-2.0 AND MIT |" in text


@pytest.mark.parametrize(("text", "shown"), [
    ("1. x", "1\\. x"), ("2.13-py3", "2.13-py3"), ("- x", "\\- x"), ("a|b\nc", "a\\|b c"),
    ("{{ x }}", "\\{\\{ x \\}\\}"),
])  # fmt: skip
def test_markdown_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_hostile_names_and_texts_are_inert(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    old, new = (
        yards.revision(
            yard, "tool", version, [yards.package(EVIL, version, EVIL), yards.package("good", "1")], asked=[EVIL],
            summary=EVIL, axes={EVIL: EVIL}, checks=yards.passed(),
        )
        for version in ("1.0", "2.0")
    )  # fmt: skip
    texts = {"deprecated": EVIL, "notice": EVIL, "category": EVIL, "url": "javascript:alert(1)", "help": EVIL}
    yards.publish(yard, [yards.entry(old), yards.entry(new, **texts)])
    hostile = yards.SITE.model_copy(update={"name": EVIL, "summary": EVIL})
    for form in ("site", "markdown", "json"):
        write_catalogue(Workspace(hostile, yard), tmp_path / form, form, pytest.fail)
    for file in (tmp_path / "site").rglob("*.html"):
        text = file.read_text()
        page = Page(text)
        assert page.open == [] and not any(tag in ("img", "iframe", "object") for tag, _ in page.elements)
        assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
        assert not any(link.startswith("javascript") for link in page.links())
        assert len(re.findall("<script", text)) == len(re.findall("</script>", text)) <= 2 and "<!--" not in text
        for found in re.findall(r'<script type="application/ld\+json">(.*?)</script>', text):
            assert json.loads(found)["description"] == EVIL
    script = (tmp_path / "site/@catalogue/packages.js").read_text()
    assert "<" not in script and "\u2028" not in script
    names = [name for name, _ in json.loads(script.partition("(")[2].rpartition(")")[0])["p"]]
    assert names == [EVIL, "good"]
    ElementTree.parse(tmp_path / "site/@catalogue/feed.xml")
    for file in (tmp_path / "markdown").rglob("*.md"):
        body = file.read_text().partition("---\n\n")[2]
        shown = Page(MarkdownIt("commonmark", {"html": True}).enable("table").render(body))
        tags = {tag for tag, _ in shown.elements}
        assert tags <= {"h1", "h2", "p", "a", "ul", "li", "pre", "code", "strong", *TABLE} and shown.open == [], file
        assert not any("javascript" in link for link in shown.links()) and EVIL.split(" |", maxsplit=1)[0] in "".join(
            shown.texts
        )
        assert not re.search(r"(?<!\\)[<{]", re.sub(r"```.*?```", "", body, flags=re.S)), "no role, no template"
    assert json.loads((tmp_path / "json/software.json").read_text())["software"]["tool"]["description"] == EVIL


def test_stacks_and_versions_with_names_of_the_sites_own_files(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    entries = []
    for stack in ("index", "index.html", "_", "+x", "catalogue.css", "c++.tools_1"):
        record = yards.revision(yard, stack, "1.0", [yards.package("one", "1")])
        entries.append(yards.entry(record))
    yards.publish(yard, entries)
    for version in ("index", "index.html"):
        paths = yard.revision("tool", version)
        record = yards.revision(yard, "tool", version, [yards.package("one", "1")])
        (tmp_path / "yard/stacks/tool" / f"{version}-py311-1").rename(paths.root)
        moved = yards.replace(record, module=f"tool/{version}", path=str(paths.root), prefix=str(paths.prefix))
        yards.revisions.mark(moved)
        entries.append(yards.entry(moved))
    yards.publish(yard, entries)
    out = write(yard, tmp_path / "out")
    for file in out.rglob("*.html"):
        for link in Page(file.read_text()).links():
            assert (file.parent / link.partition("#")[0]).exists(), (file, link)
    first = text_of(out / "index.html")
    assert "7 stacks, 8 versions" in first
    assert "tool/index" in text_of(out / "tool" / "index@.html")
    assert "module load tool" in text_of(out / "tool" / "index.html")
    script = json.loads((out / "@catalogue/packages.js").read_text().partition("(")[2].rpartition(")")[0])
    odd = {module: script["a"][str(n)] for n, module in enumerate(script["r"]) if str(n) in script["a"]}
    assert odd == {"tool/index": "tool/index@.html", "index.html/1.0-py311-1": "index.html@/1.0-py311-1.html"}


def test_private_extensions_and_hidden_revisions_are_nowhere(tmp_path: Path) -> None:
    yard = yards.demo(tmp_path / "yard", "jax")
    other = Yard(tmp_path / "other")
    below = yards.revision(other, "theirs", "1.0", [yards.package("below", "1")])
    base = BaseRevision(id=below.module, yard=str(other.root), prefix=below.prefix, hash="0")
    private = yards.revision(yard, "mine", "1.0", [yards.package("secretlib", "1")], base=base)
    hidden = yards.revision(yard, "beta", "1.0", [yards.package("betalib", "1")])
    here = BaseRevision(
        id="jax/0.4.35-py312-1", yard=str(yard.root), prefix=str(yard.root / "stacks/jax/0.4.35-py312-1/prefix"),
        hash="0",
    )  # fmt: skip
    public = yards.revision(yard, "jaxplus", "1.0", [yards.package("plus", "1")], base=here)
    yards.publish(yard, [yards.entry(private), yards.entry(hidden, hidden=True), yards.entry(public)])
    for form in ("site", "markdown", "json"):
        out = write(yard, tmp_path / form, form)
        files = [path for path in out.rglob("*") if path.is_file() and ".stackyard-catalogue" not in path.parts]
        everything = "".join(f"{path}\n{path.read_text()}" for path in files)
        assert not re.search("secretlib|betalib|/mine|beta", everything) and "plus" in everything
    users = Yard(tmp_path / "users", parent=yard)
    own = yards.revision(users, "own", "1.0", [yards.package("ownlib", "1")])
    yards.publish(users, [yards.entry(own)])
    out = write(users, tmp_path / "of-user")
    assert "ownlib" not in (out / "@catalogue/packages.js").read_text() and not (out / "own").exists()


def test_withdrawn_and_removed_revisions_keep_their_address(tmp_path: Path) -> None:
    yard = yards.demo(tmp_path / "yard", "pytorch")
    old = {e.version: e for e in yards.generation.generations.entries(yard)}
    yards.publish(yard, [
        yards.replace(old["2.5.1"], state="withdrawn"),
        yards.replace(old["2.4.1"], state="removed", retired="", successor="pytorch/2.6.0"),
    ])  # fmt: skip
    out = write(yard, tmp_path / "out")
    assert "Withdrawn: it loads by its full name only." in text_of(out / "pytorch/2.5.1-py312-1.html")
    gone = text_of(out / "pytorch/2.4.1-py312-1.html")
    assert "Removed; use pytorch/2.6.0." in gone and "module load" not in gone
    assert "2.5.1" not in text_of(out / "index.html") + (out / "@catalogue/packages.js").read_text()


def test_an_empty_yard_has_a_catalogue(tmp_path: Path) -> None:
    out = write(Yard(tmp_path / "none"), tmp_path / "out")
    assert "Nothing is published yet." in text_of(out / "index.html")


def test_runs_of_numbers() -> None:
    assert runs([3, 4, 5, 9, 35, 36, 1296]) == "3-5,9,z-10,100"


def test_verbs_write_the_catalogue_that_the_site_asks_for(tmp_path: Path) -> None:
    yard, out = yards.demo(tmp_path / "yard", "pytorch"), tmp_path / "www"
    file = tmp_path / "site.yaml"
    file.write_text(f"modules: {{formats: [tcl]}}\nyard: {yard.root}\ncatalogue: {{directories: {{site: {out}}}}}\n")

    def stackyard(*words: str) -> str:
        from stackyard.cli.main import cli

        options = ["--site", str(file), "--yard", str(yard.root)]
        done = CliRunner().invoke(cli, [*options, *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    stackyard("retire", "pytorch/2.5.1", "--on", "2028-01-01", "--use", "pytorch/2.6.0")
    assert "Retired from 2028-01-01" in text_of(out / "pytorch/2.5.1-py312-1.html")
    before = (out / "index.html").stat().st_ino
    stackyard("retire", "pytorch/2.5.1", "--on", "2028-01-01", "--use", "pytorch/2.6.0")
    stackyard("retire", "pytorch/2.5.1", "--undo", "--dry-run")
    assert (out / "index.html").stat().st_ino == before, "nothing was published"
    stackyard("remove", "pytorch/2.4.1")
    assert "Removed" in text_of(out / "pytorch/2.4.1-py312-1.html")
    (out / "pytorch" / "2.4.1-py312-1.html").unlink()
    (out / ".stackyard-catalogue" / "made.json").write_text("damaged")
    said = stackyard("withdraw", "pytorch/2.5.1")
    assert f"the catalogue in {out} is as before: cannot read" in said and "withdraw pytorch/2.5.1" in said


def test_only_the_sites_own_yard_is_written_for_the_site(tmp_path: Path) -> None:
    yard = yards.demo(tmp_path / "yard", "jax")
    policy = CataloguePolicy(directories={"site": str(tmp_path / "www")})
    elsewhere = yards.SITE.model_copy(update={"catalogue": policy, "yard": str(tmp_path / "other")})
    refresh_catalogues(Workspace(elsewhere, yard), pytest.fail)
    assert not (tmp_path / "www").exists()
    here = elsewhere.model_copy(update={"yard": str(yard.root)})
    refresh_catalogues(Workspace(here, yard), pytest.fail)
    assert (tmp_path / "www/index.html").is_file()
