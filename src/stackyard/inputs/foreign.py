"""Recognises files of other tools that are passed as FILE by mistake, and suggests what to use instead.

They are recognised before they are parsed. Otherwise a lock or a script would be read as a requirements file, with a
misleading error for each of its lines.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

from stackyard.core.errors import InputError, Where

GIVE = "use a stack.yaml, an environment.yml or a requirements.txt"
_MADE_FROM = "use the environment.yml that it was made from"

_KEYS = (
    ({"package", "metadata", "version"}, "a conda-lock lock file", _MADE_FROM),
    ({"environments", "packages", "version"}, "a pixi.lock", "use an environment.yml or a stack.yaml"),
    ({"imported_envs"}, "an Open-CE environment file", "write a stack.yaml with `imports:`"),
    ({"git_tag_for_env"}, "an Open-CE environment file", "write a stack.yaml with `imports:`"),
    ({"packages", "builder_version"}, "an Open-CE environment file", "write a stack.yaml with `imports:`"),
    ({"package", "requirements"}, "a conda-build recipe", "use an environment.yml or a stack.yaml"),
    ({"jobs", "on"}, "a CI workflow", "use an environment.yml or a stack.yaml"),
    ({"services"}, "a compose file", "use an environment.yml or a stack.yaml"),
    ({"conda_file"}, "an environment of Azure ML", "use the file that `conda_file:` names"),
    ({"conda_env"}, "an MLproject", "use the file that `conda_env:` names"),
    ({"python", "build_dependencies"}, "a python_env.yaml of MLflow", "use the requirements.txt beside it"),
    ({"spack"}, "an environment of Spack", "write a stack.yaml; what Spack built is loaded with `build: modules:`"),
)
_NAMES = {
    "pipfile": ("a Pipfile", "use what `pipenv requirements` prints"),
    "pipfile.lock": ("a lock of pipenv", "use what `pipenv requirements` prints"),
    "uv.lock": ("a lock of uv", "use what `uv export` prints"),
    "poetry.lock": ("a lock of Poetry", "use what `poetry export` prints"),
    "pixi.toml": ("a manifest of pixi", "use what `pixi workspace export conda-environment` prints"),
    "pyproject.toml": ("a Python project", "write a stack.yaml that begins with it: stackyard init --stack"),
    "setup.py": ("a Python project", "write `.` in a requirements.txt beside it, or `- .` below `pip:`"),
    "setup.cfg": ("a Python project", "write `.` in a requirements.txt beside it, or `- .` below `pip:`"),
    "meta.yaml": ("a conda-build recipe", "use an environment.yml or a stack.yaml"),
    "mlmodel": ("a model of MLflow", "use the requirements.txt beside it"),
    **dict.fromkeys(("dockerfile", "containerfile"), ("a Containerfile", GIVE)),
}
_SUFFIXES = {
    ".toml": "a TOML file",
    ".ipynb": "a notebook",
    ".py": "a Python program",
    ".sh": "a script",
    ".sbatch": "a batch script",
    ".lua": "a modulefile",
    ".eb": "an easyconfig",
    ".def": "an Apptainer definition",
    **dict.fromkeys((".md", ".rst"), "a text with markup"),
    **dict.fromkeys((".cfg", ".ini"), "a configuration file"),
}
_BEGINNINGS = (
    (
        re.compile(r"version https://git-lfs\.github\.com/spec/"),
        "a pointer of Git LFS, not the file itself",
        "fetch the file with `git lfs pull`",
    ),
    (
        re.compile(r"\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE),
        "a web page",
        "download the file itself, which GitHub and GitLab show as Raw",
    ),
    (
        re.compile(r"\s*404\b[ :]*(?:page |file )?not found", re.IGNORECASE),
        "a server's answer, 404 Not Found",
        "check the URL that it was downloaded from",
    ),
)
_LMOD = re.compile(
    r"^(?:help|whatis|family|load|depends_on|prereq|conflict|setenv|pushenv|(?:prepend|append)_path)\s*\(", re.MULTILINE
)
_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS|BSUB|COBALT)\s+-", re.MULTILINE)
_PROJECT = re.compile(r"^\s*\[\s*(?:project|build-system|tool\.(?:poetry|flit|pdm|setuptools))\b", re.MULTILINE)
_CONDA_LIST = re.compile(r"# packages in environment at |# Name +Version +Build")
_EXPORTED = re.compile(r"[\w.-]+=[^=\s]+=[^=\s]+")
_PIP_LIST = re.compile(r"Package +Version\b[^\n]*\n-+ -+")
_TOP_KEY = re.compile(r"^([A-Za-z_]\w*):(?:\s|$)", re.MULTILINE)
_LARGE = 100_000
"""Characters from which only the first keys of a file are looked at: a lock can be larger than what is parsed."""


def refuse(path: Path, text: str) -> None:
    """Raise InputError for a file of another tool, recognised by name or content."""
    if path.suffix == ".lock" and "[[variant]]" in text:
        raise _error(path, "a lock", f"use the file that it was made from: {str(path).removesuffix('.lock')}")
    for mark, what, hint in _BEGINNINGS:
        if mark.match(text):
            raise _error(path, what, hint, 1)
    if path.name.lower() == "pyproject.toml" and not _PROJECT.search(text):
        raise _error(path, "a TOML file with settings of tools, and no Python project", GIVE)
    if path.name.lower() in _NAMES:
        raise _error(path, *_NAMES[path.name.lower()])
    if path.suffix.lower() in _SUFFIXES:
        raise _error(path, _SUFFIXES[path.suffix.lower()], GIVE)
    if path.name.startswith("conda_build_config"):
        raise _error(path, "a list of variants of conda-build", "write its axes below `matrix:` of a stack.yaml")
    if text.startswith("#%Module"):
        raise _error(path, "a modulefile", GIVE, 1)
    if text.startswith("#!") and path.suffix not in (".txt", ".in", ".yml", ".yaml"):
        raise _error(path, "a script", GIVE, 1)
    _refuse_programs(path, text)
    _refuse_lists(path, text)
    if len(text) > _LARGE:
        refuse_keys(path, set(_TOP_KEY.findall(text)))


def refuse_keys(path: Path, keys: Set[str]) -> None:
    """Raise InputError for a YAML file with another tool's keys. A list of `dependencies:` is conda's, though."""
    if "dependencies" in keys and "build_dependencies" not in keys:
        return
    for marks, what, hint in _KEYS:
        if marks <= keys:
            raise _error(path, what, hint)


def _refuse_programs(path: Path, text: str) -> None:
    """Reject modulefiles and batch scripts without a telling name."""
    if len(_LMOD.findall(text)) > 1:
        raise _error(path, "a modulefile", GIVE, _line_of(text, _LMOD))
    if _DIRECTIVE.search(text):
        hint = f"{GIVE}; `stackyard lint` checks batch scripts"
        raise _error(path, "a batch script", hint, _line_of(text, _DIRECTIVE))


def _line_of(text: str, mark: re.Pattern[str]) -> int:
    match = mark.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else 0


def _refuse_lists(path: Path, text: str) -> None:
    """Reject readable listings of conda and pip, and files for conda's --file."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() == "@EXPLICIT":
            hint = f"{_MADE_FROM}; explicit lists contain no requirements"
            raise _error(path, "an @EXPLICIT list of conda", hint, number)
    if _PIP_LIST.match(text.lstrip()):
        raise _error(path, "the output of `pip list`", "use that of `pip freeze`")
    written = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if _CONDA_LIST.search(text) and all(len(line.split()) > 1 for line in written):
        raise _error(path, "the output of `conda list`", "use that of `conda env export`")
    if written and all(map(_EXPORTED.fullmatch, written)):
        hint = "write its lines below `dependencies:` of an environment.yml; those with `=pypi_0` belong below `- pip:`"
        raise _error(path, "a package list of conda (`conda list --export`)", hint)


def _error(path: Path, what: str, hint: str, line: int = 0) -> InputError:
    return InputError(f"this is {what}", where=Where(str(path), line), hint=hint)
