"""The first screens: the bare command, `help`, `config`, and words that other tools have."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.cli.main import VERBS
from support.cli import imported, inside, stackyard

EVERY_DAY = ("deploy", "list", "show", "diff", "run", "extend", "launch", "submit", "runs", "lint", "init", "config")


@pytest.mark.parametrize("words", [(), ("help",), ("--yard", "y")], ids=" ".join)
def test_the_bare_command_shows_what_is_typed_every_day(tmp_path: Path, words: tuple[str, ...]) -> None:
    shown = stackyard(*words, cwd=tmp_path, STACKYARD_HOME=str(tmp_path / "yard"), STACKYARD_SITE="").out
    assert all(f" {verb}" in shown for verb in EVERY_DAY) and str(len(VERBS)) in shown
    assert max(len(line) for line in shown.splitlines() if not line.startswith(("yard:", "site:"))) <= 80
    assert f"yard: {tmp_path}/{'y' if '--yard' in words else 'yard'}\n" in shown
    assert not list(tmp_path.iterdir()), "no yard is made"


def test_a_site_file_that_is_missing_is_named_there(tmp_path: Path) -> None:
    assert f"site: no such site file: {tmp_path}/x.yaml" in inside(STACKYARD_SITE=str(tmp_path / "x.yaml")).out


def test_help_of_a_verb_is_that_of_the_verb() -> None:
    assert inside("help", "runs", "show").out == inside("runs", "show", "--help").out
    assert "withdraw" in inside("help", "--all").out
    shown = inside("help", "visibility").out
    assert all(f"  {verb} " in shown for verb in ("share", "default", "withdraw", "retire", "remove", "rollback"))
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(("words", "same"), [
    (("info", "nothing"), ("show", "nothing")), (("logs", "nothing"), ("runs", "logs", "nothing")),
    (("cancel", "nothing"), ("runs", "cancel", "nothing")),
])  # fmt: skip
def test_words_of_other_tools_mean_the_verb(tmp_path: Path, words: tuple[str, ...], same: tuple[str, ...]) -> None:
    yard = ("--yard", str(tmp_path / "yard"))
    first, second = inside(*yard, *words, expect=None), inside(*yard, *same, expect=None)
    assert first.code == second.code != 0 and first.err == second.err and "no such command" not in first.err
    assert words[0] not in VERBS


def test_config_names_what_counts_and_from_where(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "yard: /apps/yard\nuser_yard: $SCRATCH/own\nchannels: {default: [ours]}\n"
        "nodes: {gpu: {cores: 64, gpu: {count: 4}}}\nscheduler: {kind: slurm}\npip: {torch_backend: cu128}\n"
    )
    more = {"SCRATCH": str(tmp_path), "PIP_INDEX_URL": "https://ada:secret@index.example/simple", "STACKYARD_HOME": ""}
    found = inside("config", "--json", STACKYARD_SITE=str(site), **more).value
    assert found["site"] == {"value": str(site), "from": "$STACKYARD_SITE"}
    assert found["yard"] == {"value": f"{tmp_path}/own", "from": "user_yard of the site"}
    assert found["channels"] == {"value": ["ours"], "from": str(site)}
    assert found["nodes"]["value"] == ["gpu (64 cores, 4 GPUs)"] and found["torch"]["value"] == "cu128"
    assert found["indexes"]["from"] == "pip's configuration" and "secret" not in str(found)
    assert inside("--yard", "y", "config", "--json", **more).value["yard"]["from"] == "--yard"
    shown = inside("config", STACKYARD_SITE=str(site), **more).out
    assert "scheduler    slurm" in shown and "secret" not in shown


@pytest.mark.parametrize("words", [("help",), ("help", "visibility")], ids=" ".join)
def test_these_start_without_the_models(words: tuple[str, ...]) -> None:
    assert imported(*words, among=("pydantic", "ruamel.yaml", "rattler", "rich", "socket")) == []


def test_status_of_a_run_and_without_extensions(tmp_path: Path) -> None:
    yard = ("--yard", str(tmp_path / "yard"))
    stackyard(*yard, "launch", "-r", "1", "true", cwd=tmp_path)
    shown = stackyard(*yard, "status", cwd=tmp_path).out
    assert "no extensions in" in shown and "done" in shown
    assert stackyard(*yard, "status", "last", cwd=tmp_path).out == stackyard(*yard, "runs", "show", cwd=tmp_path).out
    assert "no such extension" in stackyard(*yard, "status", "nothing", cwd=tmp_path, expect=2).err


@pytest.mark.parametrize(("kind", "mark"), [("slurm", "#SBATCH --nodes=2"), ("pbs", "#PBS -l select=2"),
                                            ("lsf", "#BSUB -n"), ("flux", "#flux: --nodes=2")])  # fmt: skip
def test_a_laptop_shows_the_script_of_a_cluster(tmp_path: Path, kind: str, mark: str) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    words = ("submit", "-N", "2", "--scheduler", kind, "train.py")
    environ = {"PATH": "/usr/bin:/bin", "STACKYARD_SITE": ""}
    assert mark in stackyard(*words[:3], "--dry-run", *words[3:], cwd=tmp_path, **environ).out
    refused = stackyard(*words, cwd=tmp_path, expect=2, **environ).err
    assert "--scheduler needs --dry-run" in refused and not (tmp_path / "runs").exists()
