"""What other interpreters run: files that are sent or started, and programs within texts. They need no package here."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "stackyard"
MODULES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCES.rglob("*.py"))}
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
LISTED = {
    ROOT / "src" / f"{name.replace('.', '/')}.py" for each in CONTRACTS if each["id"] == "programs"
    for name in each["modules"]
}  # fmt: skip
BESIDES = {
    "launch/jobs/calling.py": {"cloudpickle"},  # a stack without it is told so
    "launch/preflight/trial.py": {"stackyard_preflight"},  # copied beside it
    "lint/rules/gpus.py": {"torch"},  # a line for a user's own program
}
"""What texts import besides the standard library."""


def imported(tree: ast.AST) -> set[str]:
    """The top packages that a program imports, wherever it does."""
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def programs(tree: ast.AST) -> list[ast.Module]:
    """The texts of a module that are programs of Python with imports."""
    found = []
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if re.search(r"^(from \S+ )?import ", text, re.MULTILINE):
            try:
                found.append(ast.parse(text))
            except SyntaxError:  # prose, or a template
                continue
    return found


def test_programs_within_texts_import_the_standard_library() -> None:
    found = {path.relative_to(SOURCES).as_posix(): programs(tree) for path, tree in MODULES.items()}
    assert sum(map(len, found.values())) >= 15
    for name, each in found.items():
        outside = {module for tree in each for module in imported(tree)} - sys.stdlib_module_names
        assert outside == BESIDES.get(name, set()), name


def test_every_file_that_is_started_or_sent_is_in_the_contract() -> None:
    started = set()
    for path in MODULES:
        if path.is_relative_to(SOURCES / "launch"):
            continue  # has contracts of its own
        text = path.read_text(encoding="utf-8")
        started |= {path.with_name(name) for name in re.findall(r"""with_name\(['"](\w+\.py)['"]\)""", text)}
        for module in re.findall(r"\b(\w+)\.__file__", text):
            place = re.search(rf"^from (stackyard\S*) import {module}$", text, re.MULTILINE)
            started |= {ROOT / "src" / place[1].replace(".", "/") / f"{module}.py"} if place else set()
    started |= {SOURCES / "host/run/readonly.py"}  # imported by the guard, beside it
    # by contracts of their own these have py-rattler, TensorBoard, Optuna, and modules of launch.node packed with it
    names = (
        "images/recipe/install.py", "study/metrics/events_program.py", "board/socket_server.py",
        "study/tune/programs/asker.py", "study/tune/programs/worker.py",
    )  # fmt: skip
    elsewhere = {SOURCES / name for name in names}
    assert started - LISTED == elsewhere
    assert started >= LISTED


@pytest.mark.parametrize("path", sorted(LISTED), ids=lambda path: path.stem)
def test_a_program_starts_without_site_packages(path: Path) -> None:
    code = f"import runpy, sys; sys.path.insert(0, {str(path.parent)!r}); runpy.run_path({str(path)!r}, run_name='x')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
