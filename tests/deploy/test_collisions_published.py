"""Packages that install the same path, as people meet them: deployed, chosen, refused, extended, repaired, adopted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from make import buildbed
from stackyard.make.hashes.tree import tree_hash
from stackyard.yard import disk
from stackyard.yard.revision.record import BuildRecord, read_record
from support.channel import Package, make_channel
from support.cli import Done, inside, stackyard

SITE = "lib/python3.11/site-packages"
STACK = """name: demo
version: '1.0'
python: '3.11'
interpreter: {{source: host, path: {python}}}
environment:
  dependencies:
    - pip: [{pip}]
{more}"""


@dataclass
class Bed:
    """A yard, a site without an index, and wheels beside it."""

    directory: Path

    def stack(self, pip: str, more: str = "", name: str = "stack.yaml") -> Path:
        file = self.directory / name
        python = Path(sys.executable).resolve()
        file.write_text(STACK.format(pip=pip, more=more, python=python))
        return file

    def run(self, *words: str | Path, expect: int | None = 0, site: str = "", **more: str) -> Done:
        file = self.directory / "site.yaml"
        file.write_text(f"pip: {{find_links: [{self.directory / 'wheels'}]}}\nmodules: {{formats: [tcl]}}\n{site}")
        variables = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "HOME": str(self.directory), **more}
        run = stackyard if words[0] == "run" or more else inside
        return run("--site", file, "--yard", self.directory / "yard", *words, expect=expect, **variables)

    def record(self, revision: str) -> BuildRecord:
        return read_record(self.directory / "yard" / "stacks" / revision / "record.json")


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    made = Bed(tmp_path)
    for name in ("ocv-full", "ocv-headless"):
        stem = name.replace("-", "_")
        files = {
            "cvx/__init__.py": f"who = {name!r}\n", "tests/__init__.py": f"of = {name!r}\n", f"{stem}.py": "",
            "ns/__init__.py": f"# {name}\n",
            f"{stem}-1.0.dist-info/entry_points.txt": f"[console_scripts]\ncvx = {stem}:__name__.strip\n",
        }  # fmt: skip
        buildbed.wheel(tmp_path / "wheels", stem, {path: text.encode() for path, text in files.items()})
    return made


def _content(done: Done) -> dict[str, str]:
    """The results of the checks of the content, by name."""
    checks = done.value["revisions"][0]["report"]["checks"]
    return {check["name"]: check["status"] for check in checks if check["kind"] == "content"}


def test_a_deploy_names_them_a_choice_silences_them_and_is_a_new_revision(bed: Bed) -> None:
    file = bed.stack("ocv-full, ocv-headless")
    done = bed.run("deploy", file)
    warning = "path collision: bin/cvx and 1 more of ocv-full, ocv-headless: ocv-headless wins"
    assert f"note: {warning}\n" in done.err and "1 warned" in done.out
    assert "path collision in licences, documentation or tests: " in done.err
    assert warning in bed.run("show", "demo").out
    groups = bed.run("show", "demo", "--json").value["collisions"]
    assert [(each["kind"], each["winner"]) for each in groups] == [
        ("note", "ocv-headless"),
        ("warning", "ocv-headless"),
    ]
    assert bed.run("verify", "demo").code == 0
    assert "nothing changed" in bed.run("deploy", file).out

    lock = (bed.directory / "stack.lock").read_text() if (bed.directory / "stack.lock").is_file() else None
    bed.stack("ocv-full, ocv-headless", "collisions: {'*': ocv-full}\n")
    done = bed.run("deploy", file, "--json")
    assert done.value["revisions"][0]["module"] == "demo/1.0-py311-2" and done.value["locks"] == []
    assert lock is None or lock == (bed.directory / "stack.lock").read_text()
    assert "path collision" not in done.err
    assert _content(done)["path collisions"] == "passed"
    record = bed.record("demo/1.0-py311-2")
    assert {each.kind for each in record.collisions} == {"chosen"} and {e.winner for e in record.collisions} == {
        "ocv-full"
    }
    assert (Path(record.prefix) / SITE / "cvx/__init__.py").read_text() == "who = 'ocv-full'\n"


def test_wrong_lines_are_errors_with_their_place(bed: Bed) -> None:
    for line, message, hint in (
        (
            "cvx/__init__.py: ocv-ful",
            "collisions: no such package in this stack: 'ocv-ful'",
            "did you mean 'ocv-full'?",
        ),
        ("cvx/init.py: ocv-full", "collisions: ocv-full does not install 'cvx/init.py'", "write a path of the package"),
        ("/cvx: ocv-full", "'/cvx' is not a path below another directory", "relative path"),
        ("../cvx: ocv-full", "'../cvx' is not a path below another directory", "relative path"),
        ("cvx: 'a b'", "'a b' is not a package", "name of a package"),
    ):
        file = bed.stack("ocv-full, ocv-headless", f"collisions:\n  {line}\n")
        done = bed.run("deploy", file, expect=None)
        assert done.code in (1, 2) and message in done.err + done.out and hint in done.err + done.out, done
        assert f"{file}:9" in done.err + done.out


def test_a_site_that_refuses_them_publishes_only_what_was_chosen(bed: Bed) -> None:
    file = bed.stack("ocv-full, ocv-headless")
    done = bed.run("deploy", file, expect=None, site="collisions: refuse\n")
    assert (
        done.code == 2
        and "packages install the same path, which the site refuses: bin/cvx and 1 more" in done.out + done.err
    )
    assert "collisions: {bin/cvx: PACKAGE}" in done.out + done.err
    bed.stack("ocv-full, ocv-headless", "collisions: {bin/cvx: ocv-full, cvx/: ocv-headless}\n")
    bed.run("deploy", file, site="collisions: refuse\n")


def test_a_layer_takes_the_place_of_modules_of_its_base_or_leaves_it_to_them(bed: Bed) -> None:
    bed.run("deploy", bed.stack("ocv-full"))
    layer = bed.directory / "layer.yaml"
    text = "name: mine\nversion: '1'\nbase: demo\nenvironment: {dependencies: [{pip: [ocv-headless]}]}\n"
    layer.write_text(text)
    done = bed.run("deploy", layer)
    assert "path collision: bin/cvx and 2 more of ocv_full (base), ocv-headless: ocv-headless wins" in done.err
    assert bed.run("run", "mine", "--", "python", "-c", "import cvx; print(cvx.who)").out == "ocv-headless\n"
    layer.write_text(text + "collisions: {cvx/: ocv-full, bin/cvx: ocv-full, tests/*: ocv-full, ns/*: ocv-full}\n")
    done = bed.run("deploy", layer, "--json")
    assert "path collision" not in done.err and _content(done)["path collisions"] == "passed"
    assert bed.run("run", "mine", "--", "python", "-c", "import cvx; print(cvx.who)").out == "ocv-full\n"
    record = bed.record("mine/1-py311-2")
    assert {each.winner for each in record.collisions} == {"ocv_full (base)"}
    assert not (Path(record.prefix) / SITE / "cvx/__init__.py").exists()
    rows = (Path(record.prefix) / SITE / "ocv_headless-1.0.dist-info/RECORD").read_text()
    assert "cvx" not in rows.replace("entry_points", "") and "ocv_headless.py" in rows
    assert bed.run("verify", "mine").code == 0


@pytest.mark.parametrize("line", ["", "collisions: {'*': ocv-full}\n"])
def test_what_was_damaged_is_restored_with_the_same_winner(bed: Bed, line: str) -> None:
    bed.run("deploy", bed.stack("ocv-full, ocv-headless", line))
    prefix = Path(bed.record("demo/1.0-py311-1").prefix)
    lists = [f"{SITE}/ocv_{n}-1.0.dist-info/RECORD" for n in ("full", "headless")]
    names = ["bin/cvx", f"{SITE}/cvx/__init__.py", *lists]
    before = {name: (prefix / name).read_bytes() for name in names}
    for name in names:
        (prefix / name).parent.chmod(0o755)
        (prefix / name).unlink()
        (prefix / name).write_text("damaged")
    shutil.rmtree(bed.directory / "yard" / "cache")
    assert "not that of" in bed.run("verify", "demo", expect=3).out
    done = bed.run("verify", "demo", "--repair", site="collisions: refuse\n", expect=None)
    assert {name: (prefix / name).read_bytes() for name in names} == before, done
    assert bed.run("verify", "demo").code == 0


@pytest.mark.slow
def test_a_deploy_that_is_killed_while_it_settles_leaves_the_next_one_the_same_tree(bed: Bed) -> None:
    files = {name: Package(name, "1.0", files={"share/one": name}) for name in ("aa", "bb")}
    channel = make_channel(bed.directory / "channel", files.values())
    file = bed.stack("ocv-full, ocv-headless", f"  channels: ['{channel.as_uri()}']\n")
    file.write_text(file.read_text().replace("    - pip:", "    - aa\n    - bb\n    - pip:"))
    trees = set()
    for point in ("", "collision:1", "collision:2"):
        if point:
            done = bed.run("deploy", file, expect=None, STACKYARD_FAULT=point)
            assert done.code == -9, (point, done)
        bed.run("deploy", file)
        record = bed.record("demo/1.0-py311-1")
        trees.add((tree_hash(Path(record.prefix)), repr(record.collisions)))
        assert not (Path(record.prefix) / "__clobbers__").exists()
        disk.remove_tree(bed.directory / "yard")
    assert len(trees) == 1 and len(record.collisions) == 3


def test_an_adopted_prefix_is_only_read(bed: Bed) -> None:
    prefix = bed.directory / "venv"
    uv = [Path(sys.executable).with_name("uv")]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, prefix], check=True)
    for name in ("ocv_headless", "ocv_full"):
        wheel = bed.directory / "wheels" / f"{name}-1.0-py3-none-any.whl"
        install = ["pip", "install", "-q", "--offline", "--python", prefix / "bin/python", wheel]
        subprocess.run([*uv, *install], check=True, env={**os.environ, "UV_CACHE_DIR": str(bed.directory / "uv")})
    before = {path: path.lstat().st_mtime_ns for path in prefix.rglob("*")}
    done = bed.run("adopt", prefix, "--name", "taken", site="collisions: refuse\n")
    assert "path collision: bin/cvx and 2 more of ocv_full, ocv_headless: ocv_full wins" in done.err
    assert {path: path.lstat().st_mtime_ns for path in prefix.rglob("*") if "__pycache__" not in str(path)} == {
        path: time for path, time in before.items() if "__pycache__" not in str(path)
    }
    groups = json.loads(bed.run("show", "taken", "--json").out)["collisions"]
    assert [(each["kind"], each["winner"]) for each in groups] == [("note", "ocv_full"), ("warning", "ocv_full")]
