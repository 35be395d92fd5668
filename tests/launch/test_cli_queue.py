"""`-q` and `-p` mean what they mean to the scheduler's own commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from sitesubmit import EXAMPLES, submit

from support.cli import stackyard


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("site", "kind", "words", "directive"),
    [
        ("perlmutter", "gpu", ("-q", "debug"), "#SBATCH --qos=debug"),
        ("perlmutter", "gpu", ("-p", "debug"), "#SBATCH --partition=debug"),
        ("perlmutter", "gpu", ("--queue", "debug"), "#SBATCH --partition=debug"),
        ("summit-open-ce", "batch", ("-q", "debug"), "#BSUB -q debug"),
        ("polaris", "compute", ("-q", "debug"), "#PBS -q debug"),
        ("polaris", "compute", ("-p", "debug"), "#PBS -q debug"),
    ],
)
def test_a_queue_by_its_short_name(site: str, kind: str, words: tuple[str, ...], directive: str) -> None:
    script = submit(site, "-N", "2", "--node-kind", kind, *words).out.splitlines()
    assert directive in script
    assert sum("debug" in line for line in script if line.startswith(("#SBATCH", "#BSUB", "#PBS"))) == 1


def test_a_deploy_as_a_job_reads_it_likewise() -> None:
    Path("environment.yml").write_text("name: x\ndependencies: [python]\n")
    site = EXAMPLES / "perlmutter" / "site.yaml"
    script = stackyard("--site", site, "deploy", "--on", "cpu", "-q", "debug", "--dry-run", "environment.yml").out
    assert "#SBATCH --qos=debug" in script
    assert "-q debug" not in script


def test_two_names_are_refused() -> None:
    done = submit("lumi", "-N", "2", "-q", "debug", "--qos", "normal", expect=2)
    assert "-q debug contradicts --qos normal" in done.err
