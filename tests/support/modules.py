"""Real Lmod and real Environment Modules in bash, zsh, tcsh and fish, and what a shell looks like before and after.

Environment Modules cannot be installed beside Lmod (the packages conflict), so its package is downloaded once and
unpacked into ``.cache/testbed/em`` of the repository; without apt or a network, tests that need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from support import programs

REPOSITORY = Path(__file__).resolve().parents[2]
SHELLS = ("bash", "zsh", "tcsh", "fish")
SYSTEMS = ("lmod", "em")
_EM = REPOSITORY / ".cache" / "testbed" / "em"
_QUIET = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "tcsh": ["-f"], "fish": ["--no-config"]}


@dataclass(frozen=True)
class Shot:
    """A shell's state: exported variables, functions and aliases by name."""

    environ: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


def missing(system: str, shell: str) -> str | None:
    """Why this pair cannot be tested here, or None."""
    if system == "em":
        return programs.missing(shell) or _em_problem()
    return programs.missing(shell) or (None if lmod_init(shell) else programs.missing("lmod"))


def lmod_init(shell: str) -> Path | None:
    """Lmod's initialisation file for a shell."""
    name = "csh" if shell == "tcsh" else shell
    for directory in ("/usr/share/lmod/lmod/init", "/opt/apps/lmod/lmod/init", "/usr/local/lmod/lmod/init"):
        if (Path(directory) / name).is_file():
            return Path(directory) / name
    return None


@cache
def _em_problem() -> str | None:
    if missing := programs.missing("tclsh8.6"):
        return missing
    if modulecmd() is not None:
        return None
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "Environment Modules can only be fetched with apt-get and dpkg-deb"
    _EM.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="em-", dir=_EM.parent) as work:  # other processes unpack it now too
            command = ["apt-get", "download", "environment-modules"]
            subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=240)
            for package in Path(work).glob("environment-modules_*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, f"{work}/em"], check=True, capture_output=True, timeout=240)
            if modulecmd() is None:
                os.rename(f"{work}/em", _EM)
    except (subprocess.SubprocessError, OSError) as error:
        if modulecmd() is None:
            return f"Environment Modules could not be fetched: {error}"
    return None if modulecmd() else "the package environment-modules holds no modulecmd.tcl"


def modulecmd() -> Path | None:
    """The unpacked ``modulecmd.tcl``."""
    return next(iter(sorted(_EM.glob("usr/lib/*/modulecmd.tcl"))), None)


def initialise(system: str, shell: str) -> str:
    """The line that makes ``module`` a command of this shell."""
    if system == "lmod":
        return f"{'source' if shell in ('tcsh', 'fish') else '.'} {lmod_init(shell)}"
    assert _em_problem() is None, _em_problem()  # also unpacks it
    line = f"tclsh8.6 {modulecmd()} {shell} autoinit"
    return {"tcsh": f"eval `{line}`", "fish": f"{line} | source -"}.get(shell, f'eval "$({line})"')


def snapshot(shell: str, stem: Path | str) -> str:
    """The line that writes this shell's state to ``stem.env``, ``stem.fn`` and ``stem.al``; `take` reads it."""
    if shell == "tcsh":
        return f"env -0 > {stem}.env; alias > {stem}.al"
    functions = {"bash": "declare -f", "zsh": "functions", "fish": "functions --names --all | string split ', '"}[shell]
    return f"command env -0 > {stem}.env; {functions} > {stem}.fn; alias > {stem}.al"


def take(stem: Path) -> Shot | None:
    """Read what `snapshot` wrote; None where the shell did not get so far."""
    if not stem.with_suffix(".env").exists():
        return None
    pairs = stem.with_suffix(".env").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    functions = stem.with_suffix(".fn")
    return Shot(environ, _functions(functions.read_text() if functions.exists() else ""), _aliases(stem))


def run(shell: str, script: str, environ: dict[str, str], cwd: Path, timeout_s: float = 120) -> str:
    """Run a script in a shell that reads no start files, with exactly `environ`; both streams come back."""
    file = cwd / f"script.{shell}"
    file.write_text(script)
    program = shutil.which(shell)
    assert program
    done = subprocess.run(
        [program, *_QUIET[shell], str(file)], env=environ, cwd=cwd, stdin=subprocess.DEVNULL, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


def _functions(text: str) -> dict[str, str]:
    """Functions by name: a definition of bash and zsh starts at the margin, fish gives one name per line."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line and not line[0].isspace() and line not in "{}" and not line.startswith("}"):
            name = line.partition(" ")[0].rstrip("()")
            found[name] = []
        elif name:
            found[name].append(line)
    return {key: "\n".join(body) for key, body in found.items()}


def _aliases(stem: Path) -> dict[str, str]:
    lines = stem.with_suffix(".al").read_text(errors="replace").splitlines()
    pairs = (line.removeprefix("alias ").replace("\t", "=", 1).partition("=") for line in lines)
    return {name: value for name, _, value in pairs}
