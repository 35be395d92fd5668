"""A study's directory as an RO-Crate: what its metadata says, and what others' validators say of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from study.handmade import make_study
from support import venvs
from support.cli import stackyard

LICENCE = "https://spdx.org/licenses/CC-BY-4.0"


def study(root: Path) -> Path:
    return make_study(root, lambda point: "no GPU" if point.nodes == 4 and point.repeat == 2 else 100.0, repeat=2,
                      variants=["native", "image"])  # fmt: skip


def entities(root: Path) -> dict[str, dict[str, Any]]:
    value = json.loads((root / "ro-crate-metadata.json").read_text())
    assert value["@context"] == "https://w3id.org/ro/crate/1.1/context"
    found = {each["@id"]: each for each in value["@graph"]}
    assert len(found) == len(value["@graph"]), "each entity has a name of its own"
    return found


def test_it_says_what_ran_with_what_by_whom_and_when(tmp_path: Path) -> None:
    root = study(tmp_path / "train")
    kept = root / "runs" / "2026-11-21-001"
    kept.mkdir(parents=True)
    assert "an RO-Crate" in stackyard("report", root, "--crate", "--license", LICENCE).out
    found = entities(root)
    top = found["./"]
    assert (
        top["conformsTo"] == {"@id": "https://w3id.org/ro/wfrun/process/0.5"} and top["datePublished"] == "2026-11-21"
    )
    assert top["license"] == {"@id": LICENCE} and found[top["author"]["@id"]]["name"] == "ada"
    actions = [each for each in found.values() if each["@type"] == "CreateAction"]
    assert [each["@id"] for each in top["mentions"]] == [each["@id"] for each in actions]
    assert len(actions) == 3 * 2 * 3  # sizes, variants, two runs and a warm-up
    assert {each["actionStatus"].rpartition("/")[2] for each in actions} == {
        "CompletedActionStatus", "FailedActionStatus"
    }  # fmt: skip
    failed = [each for each in actions if "error" in each]
    assert len(failed) == 2 and all(each["error"] == "no GPU" for each in failed)
    for each in actions:
        software = found[each["instrument"]["@id"]]
        assert software["softwareVersion"] == "2.13" and software["identifier"] == "sha256:4f1d0c"
        assert software["name"].partition("/")[0] in each["name"] and each["object"] == {"@id": "study.yaml"}
        assert each["startTime"] < each["endTime"] and each["description"].startswith("srun ")
    parts = {each["@id"] for each in top["hasPart"]}
    assert parts == {"study.yaml", "study.json", "table.csv", "runs/2026-11-21-001/"}
    with_directory = [each for each in actions if each["result"] != {"@id": "table.csv"}]
    assert len(with_directory) == 1, "run directories that are gone are not named"
    assert all((root / part).exists() for part in parts)


def test_without_a_licence_it_says_that_none_is_stated(tmp_path: Path) -> None:
    root = study(tmp_path / "train")
    stackyard("report", root, "--crate")
    assert "No licence is stated" in entities(root)["./"]["license"]
    failed = stackyard("report", tmp_path, "--crate", expect=2)
    assert not (tmp_path / "ro-crate-metadata.json").exists() and str(tmp_path) in failed.err


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.long
def test_validators_of_others_accept_it(tmp_path: Path) -> None:
    """roc-validator with the rules of RO-Crate 1.1 and of Process Run Crate 0.5, and rocrate as a reader."""
    root = study(tmp_path / "train")
    stackyard("report", root, "--crate", "--license", LICENCE)
    script = Path(__file__).with_name("validate_crate.py")

    def validated(directory: Path, severity: str) -> str:
        words = [venvs.python("roc-validator"), script, directory, severity]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert not done.returncode, done.stderr
        return done.stdout

    assert validated(root, "REQUIRED") == "PASSED\n"
    open_rules = {line.split()[1] for line in validated(root, "RECOMMENDED").splitlines()[:-1]}
    unknown = {"process-run-crate-0.5_3.2", "process-run-crate-0.5_5.1"}  # the web address of a stack
    unknown |= {"ro-crate-1.1_22.3", "ro-crate-1.1_30.2", "ro-crate-1.1_30.3"}  # a publisher, an affiliation
    assert open_rules == unknown
    broken = tmp_path / "broken"
    shutil.copytree(root, broken)
    text = (broken / "ro-crate-metadata.json").read_text()
    (broken / "ro-crate-metadata.json").write_text(text.replace('"instrument"', '"tool"'))
    assert validated(broken, "REQUIRED").endswith("FAILED\n"), "the rules are in force"
    read = "import sys; from rocrate.rocrate import ROCrate; print(len(list(ROCrate(sys.argv[1]).get_entities())))"
    done = subprocess.run([venvs.python("rocrate"), "-c", read, root], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(entities(root))
