"""A stand-in for conda where conda cannot be had: the part of its protocol that shells and modulefiles use.

It speaks ``conda shell.posix|csh|fish activate|deactivate|reactivate|hook`` (text for the shell to evaluate),
``create --prefix|--name`` for empty environments, ``info --envs`` and ``--version``. Everything else is refused.
The protocol is described in conda's developer documentation, "conda activate".
"""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from pathlib import Path

VERSION = "@VERSION@"
ROOT = Path(sys.prefix)
OWN = {"CONDA_EXE": f"{ROOT}/bin/conda", "_CE_M": "", "_CE_CONDA": "", "CONDA_PYTHON_EXE": f"{ROOT}/bin/python"}


def environments() -> list[Path]:
    """The directories that hold named environments, the user's first."""
    named = os.environ.get("CONDA_ENVS_PATH") or os.environ.get("CONDA_ENVS_DIRS") or ""
    return [Path(part) for part in named.split(os.pathsep) if part] + [ROOT / "envs"]


def find(name: str) -> Path:
    """The prefix that a name or path means."""
    if "/" in name:
        candidates = [Path(name).absolute()]
    else:
        candidates = [ROOT] if name == "base" else [directory / name for directory in environments()]
    for prefix in candidates:
        if (prefix / "conda-meta").is_dir():
            return prefix
    sys.exit(f"EnvironmentNameNotFound: Could not find conda environment: {name}")


def default_name(prefix: Path) -> str:
    """What the prompt and CONDA_DEFAULT_ENV call a prefix."""
    if prefix == ROOT:
        return "base"
    return prefix.name if prefix.parent in environments() else str(prefix)


def with_prefix(path: str, prefix: Path) -> str:
    """PATH with a prefix's programs in front."""
    return os.pathsep.join([f"{prefix}/bin", path] if path else [f"{prefix}/bin"])


def without_prefix(path: str, prefix: str | None) -> str:
    """PATH without the first mention of a prefix's programs."""
    parts = path.split(os.pathsep)
    if prefix and f"{prefix}/bin" in parts:
        parts.remove(f"{prefix}/bin")
    return os.pathsep.join(parts)


def activated(prefix: Path) -> tuple[dict[str, str | None], list[str]]:
    """Variables and scripts to run so that `prefix` lies on top of what is active."""
    level = int(os.environ.get("CONDA_SHLVL") or 0)
    before = os.environ.get("CONDA_PREFIX") if level else None
    change: dict[str, str | None] = {
        "PATH": with_prefix(without_prefix(os.environ.get("PATH", ""), before), prefix),
        "CONDA_PREFIX": str(prefix),
        "CONDA_SHLVL": str(level + 1),
        "CONDA_DEFAULT_ENV": default_name(prefix),
        "CONDA_PROMPT_MODIFIER": f"({default_name(prefix)}) ",
    }
    if before:
        change[f"CONDA_PREFIX_{level}"] = before
    return change, scripts(before, "deactivate.d")[::-1] + scripts(prefix, "activate.d")


def deactivated() -> tuple[dict[str, str | None], list[str]]:
    """Variables and scripts to run so that the prefix below is active again, or none."""
    level, prefix = int(os.environ.get("CONDA_SHLVL") or 0), os.environ.get("CONDA_PREFIX", "")
    if not level:
        return {}, []
    below = os.environ.get(f"CONDA_PREFIX_{level - 1}") if level > 1 else None
    path = without_prefix(os.environ.get("PATH", ""), prefix)
    change: dict[str, str | None] = {
        "PATH": with_prefix(path, Path(below)) if below else path,
        "CONDA_PREFIX": below,
        "CONDA_SHLVL": str(level - 1),
        "CONDA_DEFAULT_ENV": default_name(Path(below)) if below else None,
        "CONDA_PROMPT_MODIFIER": f"({default_name(Path(below))}) " if below else None,
    }
    if below:
        change[f"CONDA_PREFIX_{level - 1}"] = None
    return change, scripts(prefix, "deactivate.d")[::-1] + scripts(below, "activate.d")


def scripts(prefix: str | Path | None, directory: str) -> list[str]:
    """A prefix's activation scripts in their order."""
    return sorted(str(path) for path in Path(prefix, "etc/conda", directory).glob("*.sh")) if prefix else []


def text(shell: str, change: dict[str, str | None], sourced: list[str]) -> str:
    """The change in the words of one shell."""
    give = {"posix": "export {}={}", "csh": "setenv {} {};", "fish": "set -gx {} {};"}[shell]
    take = {"posix": "unset {}", "csh": "unsetenv {};", "fish": "set -e {};"}[shell]
    change = {**change, **OWN} if change else {}
    lines = [
        take.format(name) if value is None else give.format(name, shlex.quote(value)) for name, value in change.items()
    ]
    if shell == "posix" and change:
        lines.append("PS1=" + shlex.quote(prompt(os.environ.get("PS1", ""), change.get("CONDA_PROMPT_MODIFIER"))))
    before = [f". {shlex.quote(path)}" for path in sourced if "/deactivate.d/" in path] if shell == "posix" else []
    after = [f". {shlex.quote(path)}" for path in sourced if "/activate.d/" in path] if shell == "posix" else []
    return "\n".join([*before, *lines, *after])


def prompt(current: str, modifier: str | None) -> str:
    """The prompt with the name of the environment in front, and without the name that was there."""
    return (modifier or "") + current.removeprefix(os.environ.get("CONDA_PROMPT_MODIFIER", "") or "")


def shell_command(shell: str, arguments: list[str]) -> str:
    """What ``conda shell.<shell> <command>`` prints."""
    command, rest = arguments[0], [word for word in arguments[1:] if word and not word.startswith("-")]
    if command == "activate":
        return text(shell, *activated(find(rest[0] if rest else "base")))
    if command == "deactivate":
        return text(shell, *deactivated())
    if command == "reactivate":
        return ""
    if command == "hook":
        return (ROOT / "etc/profile.d/conda.sh").read_text() if shell == "posix" else ""
    sys.exit(f"CommandNotFoundError: this stand-in has no shell.{shell} {command}")


def create(arguments: list[str]) -> str:
    """Make an empty environment."""
    option, value = next(
        pair for pair in itertools.pairwise(arguments) if pair[0] in ("-n", "--name", "-p", "--prefix")
    )
    prefix = environments()[0] / value if option in ("-n", "--name") else Path(value).absolute()
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "conda-meta" / "history").write_text("")
    (prefix / "bin").mkdir()
    return str(prefix)


def envs() -> str:
    """What ``conda info --envs`` prints."""
    found = [
        p
        for directory in environments()
        if directory.is_dir()
        for p in sorted(directory.iterdir())
        if (p / "conda-meta").is_dir()
    ]
    return "\n".join(["# conda environments:", "#", f"base  {ROOT}", *(f"{p.name}  {p}" for p in found)])


def main() -> int:
    """The program ``conda``."""
    arguments = sys.argv[1:]
    first = arguments[0] if arguments else "--version"
    if first.startswith("shell."):
        print(shell_command(first.removeprefix("shell."), arguments[1:]))
    elif first in ("--version", "-V"):
        print(f"conda {VERSION}")
    elif first == "create":
        print(create(arguments[1:]))
    elif first in ("info", "env"):
        print(envs())
    else:
        sys.exit(f"CommandNotFoundError: this stand-in has no command {first}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
