"""`explain` for every example site: true to what `submit` does, every word explained, readable on 80 columns."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from stackyard.inputs.sites.site import load_site
from support.cli import Done, inside, stackyard

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SITES = sorted(path.parent.name for path in EXAMPLES.glob("*/site.yaml"))
KINDS = [(site, kind) for site in SITES for kind in load_site(EXAMPLES / site / "site.yaml").nodes]
PROGRAM = ("import torch\n", "train.py", "--epochs", "3")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRATCH", str(tmp_path))  # the users' yard on Longhorn
    return tmp_path


def explain(site: str, *words: str, expect: int = 0, **variables: str) -> Done:
    file = EXAMPLES / site / "site.yaml"
    return inside("--site", file, "explain", *words, *PROGRAM[1:], expect=expect, COLUMNS="80", **variables)


def nodes_of(site: str) -> str:
    """As many as the site's queue takes."""
    scheduler = load_site(EXAMPLES / site / "site.yaml").scheduler
    least = [row.min_nodes for row in scheduler.queues if row.name == scheduler.queue]
    return "1" if scheduler.kind == "none" else str(max(2, min(least, default=2)))


@pytest.mark.parametrize(("site", "kind"), KINDS)
def test_it_says_what_submit_does(site: str, kind: str) -> None:
    words = ("-N", nodes_of(site), "--node-kind", kind, "-t", "60", "-A", "PROJ")
    told = explain(site, *words, "--json").value
    assert next(iter(told["launchers"])) == told["own"]
    for line in told["launchers"].values():
        if "cannot" not in line:
            _every_word_is_explained(line)
    if told["own"] == "local":
        assert told["head"] == []
        return
    file = EXAMPLES / site / "site.yaml"
    plan = inside("--site", file, "submit", *words, "--dry-run", "--json", *PROGRAM[1:]).value
    script = [line for line in plan["script"].splitlines() if line.startswith("#") and line[1] in "SBPf"]
    assert [shlex.split(line["line"]) for line in told["head"]] == [
        shlex.split(line.replace('"', "'")) for line in script
    ]
    start = plan["command"].rsplit(" ", 1)[0]
    ours = told["launchers"][told["own"]]["command"].removesuffix(" python train.py --epochs 3")
    if told["own"] in ("srun", "jsrun", "flux"):
        assert ours.split() == re.sub(r"\S*/(?=erf\b)", "", start).split()
    assert told["rank"]["program"] == plan["program"] == "python train.py --epochs 3"
    assert {r["words"][0] for r in told["rank"]["reasons"]} >= {f"{n}={v}" for n, v in plan["variables"].items()}


def _every_word_is_explained(line: dict[str, Any]) -> None:
    words = [word for reason in line["reasons"] for word in reason["words"]]
    assert shlex.split(line["command"])[: len(words)] == words
    assert all(reason["reason"] and reason["reason"][-1] != "." for reason in line["reasons"])


@pytest.mark.parametrize(("site", "kind"), KINDS)
def test_it_is_readable(site: str, kind: str) -> None:
    text = explain(site, "-N", nodes_of(site), "--node-kind", kind, "--picture").out
    for line in text.splitlines():
        longest = max(map(len, line.split()), default=0)
        assert len(line) <= 80 or longest > 40 or "/spawn.py" in line, line
    assert "{step}" not in text
    assert ("node1" in text) == ("for the hosts of the allocation" in text)
    assert "socket 0" in text


def test_the_image_and_the_profiler_are_explained(here: Path) -> None:
    (here / "x.sif").touch()
    told = explain("summit-containers", "-N", "2", "--container", "x.sif", "--profile", "nsys:ranks=0", "--json").value
    assert told["launchers"]["jsrun"]["command"].endswith(" rank.sh")
    assert told["rank"]["program"].startswith("singularity exec --nv ")
    assert told["rank"]["program"].count("--nv") == 1
    assert {"singularity", "--nv", "--bind", "nsys"} <= {r["words"][0] for r in told["rank"]["reasons"]}


def test_several_kinds_of_node(here: Path) -> None:
    """Two kinds with GPUs: nobody can know which is meant."""
    kinds = "".join(f"  {name}: {{cores: 8, gpu: {{count: 2, vendor: nvidia}}}}\n" for name in ("a100", "h100"))
    (here / "site.yaml").write_text(f"nodes:\n{kinds}scheduler: {{kind: slurm}}\n")
    done = stackyard("--site", "site.yaml", "explain", "-N", "2", "train.py", expect=2)
    assert "several node kinds: a100, h100" in done.err
    assert "--node-kind" in done.err
    assert "of kind h100" in stackyard("--site", "site.yaml", "explain", "--node-kind", "h100", "train.py").out


def test_without_any_site() -> None:
    """On a laptop: two nodes that are not there, and the program need not be there either."""
    told = stackyard("explain", "-N", "2", "--json", "nowhere.py").value
    assert "cannot" in told["launchers"]["local"]
    assert told["launchers"]["srun"]["command"].startswith("srun -N 2")


def test_only_some_launchers() -> None:
    told = explain("lumi", "-N", "2", "--as", "flux,srun", "--json").value
    assert list(told["launchers"]) == ["srun", "flux"]
    assert "no such launcher: aprun" in explain("lumi", "--as", "aprun", expect=2).err


def test_the_page_about_launching_shows_what_is_printed(here: Path) -> None:
    """docs/explanation/launching.md; STACKYARD_WRITE_GOLDEN=1 puts in what is printed now."""
    page = EXAMPLES.parent / "docs" / "explanation" / "launching.md"
    text = page.read_text(encoding="utf-8")
    match = re.search(r"```console\n\$ stackyard --site examples/(\S+)/site.yaml explain (.*)\n((?:.*\n)*?)```", text)
    assert match is not None
    words = shlex.split(match[2])
    printed = stackyard("--site", EXAMPLES / match[1] / "site.yaml", "explain", *words, COLUMNS="100").out
    printed = re.sub(r"\d{4}-\d\d-\d\d-001", "2026-11-21-001", printed.replace(str(here), "/home/user/work"))
    if os.environ.get("STACKYARD_WRITE_GOLDEN"):
        page.write_text(
            text.replace(match[3], printed) if match[3] else text[: match.start(3)] + printed + text[match.start(3) :]
        )
    assert page.read_text(encoding="utf-8")[match.start(3) :].startswith(printed + "```")
