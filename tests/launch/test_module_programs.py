"""``-m package.module``: the program of every backend, found and read like a script, and run on a real Slurm."""

from __future__ import annotations

import ast
import json
import time
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.launch.plan.backends import TABLE, BackendContext, choose, get
from stackyard.launch.plan.make import check_program, job_name
from stackyard.launch.records.origin import code_state
from stackyard.launch.request.intent import Intent
from support import watched
from support.cli import stackyard
from support.slurmcli import SHAPE, Work

MODULE = ("-m", "pkg.train", "--epochs", "3")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of which a module imports torch, two relative imports away from the one that runs."""
    directory = tmp_path / "pkg"
    (directory / "data").mkdir(parents=True)
    (directory / "__init__.py").write_text("")
    (directory / "train.py").write_text("import sys\nfrom . import step\nprint('argv', *sys.argv[1:], flush=True)\n")
    (directory / "step.py").write_text("from .data.loader import load\n")
    (directory / "data" / "__init__.py").write_text("")
    (directory / "data" / "loader.py").write_text("try:\n    import torch\nexcept ImportError:\n    pass\nload = 1\n")
    (directory / "__main__.py").write_text("import deepspeed\n")
    return tmp_path


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("before", [(), ("python",)], ids=["-m", "python -m"])
def test_every_backend_runs_a_module(name: str, before: tuple[str, ...]) -> None:
    intent = Intent(program=(*before, *MODULE), nodes=2)
    program = get(name).program(intent, watched.layout(2, 2), BackendContext())
    assert program.argv[-5:] == ("python", *MODULE)


@pytest.mark.parametrize("before", [(), ("python3",)], ids=["-m", "python3 -m"])
def test_torchrun_itself_runs_a_module(before: tuple[str, ...]) -> None:
    intent = Intent(program=(*before, *MODULE), direct=False)
    argv = get("torchrun").program(intent, watched.layout(1, 2), BackendContext()).argv
    assert argv[-5:] == ("--max-restarts=0", *MODULE)


READ = {
    ("-m", "pkg.train"): ("torchrun", "pkg/data/loader.py:2 imports torch"),
    ("python", "-u", "-m", "pkg"): ("deepspeed", "pkg/__main__.py:1 imports deepspeed"),
    ("-m", "pkg.data"): ("any", "module pkg.data not found in "),
    ("./solver", "-m", "pkg"): ("any", "the program is not a *.py file"),
}


@pytest.mark.parametrize("program", READ)
def test_a_module_is_read_with_what_it_imports(package: Path, program: tuple[str, ...]) -> None:
    name, (reason,) = choose(Intent(program=program, cwd=str(package)))
    assert name == READ[program][0]
    assert READ[program][1] in reason.reason


def test_the_job_and_its_record_name_the_module(package: Path) -> None:
    assert job_name(Intent(program=MODULE)) == "train"
    assert job_name(Intent(program=("-m", "pkg.__main__"))) == "pkg"
    assert code_state(package, MODULE)["program"] == str(package / "pkg" / "train.py")


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        (("-m",), "use -m package.module, or give a script"),
        (("-m", "pkg/train.py"), "use -m pkg.train, or give a script"),
        (("-m", "train.py"), "use -m train, or give a script"),
    ],
)
def test_what_is_no_module(program: tuple[str, ...], hint: str) -> None:
    with pytest.raises(InputError, match=r"^-m: ") as caught:
        check_program(Intent(program=program))
    assert hint in (caught.value.hint or "")


def test_a_module_that_starts_ranks_itself() -> None:
    intent = Intent(program=("-m", "torch.distributed.run", "train.py"))
    findings = get("any").program(intent, watched.layout(1, 2), BackendContext()).findings
    assert [f.rule for f in findings] == ["launcher-in-launch"]


@pytest.mark.parametrize("verb", ["launch", "submit", "explain"])
@pytest.mark.parametrize("words", [("-m", "pkg.train"), ("-mpkg.train",)], ids=["-m", "-mMODULE"])
def test_all_words_after_the_module_are_its_own(package: Path, verb: str, words: tuple[str, ...]) -> None:
    """Also those that are options of the verb, and ``--``."""
    site = package / "site.yaml"
    site.write_text("name: t\nnodes: {n: {cores: 4}}\nscheduler: {kind: slurm}\n")
    dry = () if verb == "explain" else ("--dry-run",)
    done = stackyard(
        "--site", site, verb, "-r", "2", *dry, "--json", *words, "--", "-N", "7", "--json", cwd=package,
        expect=0, timeout_s=240,
    )  # fmt: skip
    found = json.loads(done.out)
    text = found["rank"]["program"] if verb == "explain" else found["program"]
    assert text == "python -m pkg.train -- -N 7 --json"


def test_a_job_file_names_a_module(package: Path) -> None:
    (package / "job.yaml").write_text("format: 1\nprogram: [-m, pkg.train, --epochs, '3']\nlauncher: local\n")
    done = stackyard("launch", "--job", "job.yaml", "-r", "1", "--backend", "any", cwd=package, expect=0, timeout_s=240)
    assert "argv --epochs 3" in done.out


@pytest.mark.real
def test_a_module_on_two_nodes(work: Work) -> None:
    (work.directory / "pkg").mkdir()
    (work.directory / "pkg" / "__init__.py").write_text("")
    (work.directory / "pkg" / "main.py").write_text(
        "import os, sys\nfrom pkg import __name__ as own\nprint(own, os.environ['RANK'], *sys.argv[1:], flush=True)\n"
    )
    work.allocated("launch", *SHAPE, "-m", "pkg.main", "-N", "x")
    logs = sorted((work.last / "logs").glob("rank-*.log"))
    assert [log.read_text() for log in logs] == ["pkg 0 -N x\n", "pkg 1 -N x\n"]


def test_a_file_is_parsed_once_for_all_that_is_asked_about_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start plans more than once, and each plan asks for the imports, the options and the DataLoaders."""
    parsed, parse = list[str](), ast.parse
    train = tmp_path / "train.py"
    train.write_text("import mpi4py\n")
    intent = Intent(program=("train.py",), cwd=str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", lambda text, file: (parsed.append(file), parse(text, file))[1])
        chosen = [choose(intent)[0] for _ in range(2)]
        argv = get("mpi").program(intent, watched.layout(1, 1), BackendContext()).argv
    assert chosen == ["mpi", "mpi"] and "mpi4py" in argv
    assert parsed == [str(train)]
    train.write_text("import deepspeed\n")
    assert choose(intent)[0] == "deepspeed"


def test_a_long_program_is_read_quickly(tmp_path: Path) -> None:
    """In proportion to its length: 40,000 statements took minutes."""
    (tmp_path / "train.py").write_text("value = 1\n" * 40_000 + "import torch\n")
    began = time.process_time()
    assert choose(Intent(program=("train.py",), cwd=str(tmp_path)))[0] == "torchrun"
    assert time.process_time() - began < 20
