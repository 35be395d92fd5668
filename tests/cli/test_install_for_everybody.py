"""Stackyard for all users of a machine, as docs/howto/install-for-everybody.md says.

It is installed from a wheel into a site's path, then published by its own yard as a module, used by an account that
cannot read the installer's home, and upgraded while that account runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard import __version__
from support import modules, programs
from support.accounts import Account, Accounts
from support.cli import Done
from support.torchstack import HOME

pytestmark = [pytest.mark.long, pytest.mark.real]

REPOSITORY = Path(__file__).parents[2]
INSTALL = REPOSITORY / "scripts" / "install-site.sh"
OLD, NEW = __version__, "99.0"


@dataclass
class Installed:
    """A site: where Stackyard is installed, its yard, and the wheels of two versions."""

    place: Path

    @property
    def command(self) -> Path:
        return self.place / "opt" / "current" / "commands" / "stackyard"

    @property
    def yard(self) -> Path:
        return self.place / "yard"

    def wheel(self, version: str) -> Path:
        return self.place / f"stackyard-{version}-py3-none-any.whl"

    def install(self, version: str, expect: int = 0, **variables: str) -> Done:
        environ = {**os.environ, "HOME": HOME, "PYTHON": "/usr/bin/python3", **variables}
        argv = [INSTALL, self.place / "opt", self.wheel(version)]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == expect, done.stdout + done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def publish(self, version: str) -> None:
        """Deploy the example in the site's yard, as staff, with what is installed."""
        example = self.place / "example"
        shutil.copytree(REPOSITORY / "examples" / "stackyard", example, dirs_exist_ok=True)
        for path in example.iterdir():
            path.write_text(path.read_text().replace(OLD, version)) if path.suffix in (".yaml", ".txt") else None
        shutil.copy(self.wheel(version), example)
        environ = {**os.environ, "HOME": HOME, "STACKYARD_SITE": str(self.place / "site.yaml")}
        argv = [self.command, "--yard", self.yard, "deploy", example / "stack.yaml"]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def typed(self, account: Account, system: str, *lines: str) -> list[str]:
        """What bash prints to an account that types these lines with a module system, one entry per line."""
        path = "/usr/local/bin:/usr/bin:/bin"
        shown = [modules.initialise(system, "bash"), f"module use {self.yard}/modules", "set -e", *lines]
        trap = {"PYTHONPATH": str(self.place / "trap"), "STACKYARD_SITE": str(self.place / "site.yaml")}
        script = "\n".join(shown)
        return account.run("bash", "--norc", "-c", script, PATH=path, **trap).out.splitlines()


@pytest.fixture(scope="module")
def site() -> Iterator[Installed]:
    made = Installed(Path(tempfile.mkdtemp(prefix="stackyard-everybody-")))
    made.place.chmod(0o755)
    for version in (OLD, NEW):
        build(version, made.place)
    (made.place / "trap").mkdir()
    (made.place / "trap" / "click.py").write_text("raise RuntimeError('the user has another click')\n")
    (made.place / "site.yaml").write_text(f"name: here\nyard: {made.yard}\n")
    made.install(OLD)
    made.publish(OLD)
    yield made
    shutil.rmtree(made.place)


@pytest.fixture
def anna(accounts: Accounts) -> Account:
    return accounts.user("anna", umask=0o077)


def build(version: str, directory: Path) -> None:
    """The wheel of this checkout, under a version."""
    copy = directory / f"checkout-{version}"
    copy.mkdir()
    shutil.copytree(REPOSITORY / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy)
    shutil.copytree(REPOSITORY / "docs" / "man", copy / "docs" / "man")
    path = copy / "src" / "stackyard" / "__init__.py"
    text = path.read_text()
    assert f'"{OLD}"' in text
    path.write_text(text.replace(f'"{OLD}"', f'"{version}"'))
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, copy]
    subprocess.run(argv, check=True, env={**os.environ, "HOME": HOME}, timeout=300)


def test_another_account_uses_what_is_installed(site: Installed, anna: Account) -> None:
    trap = {"PYTHONPATH": str(site.place / "trap"), "STACKYARD_SITE": str(site.place / "site.yaml")}
    assert anna.run(site.command, "--version", **trap).out == f"stackyard, version {OLD}\n"
    assert f"stackyard/{OLD}-py3-1" in anna.run(site.command, "list", **trap).out
    unreadable = ["find", site.place / "opt", "!", "-perm", "-o+r", "!", "-type", "l"]
    assert anna.run(*unreadable).out == ""


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_another_account_deploys_with_the_module(site: Installed, anna: Account, system: str) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    (anna.home / "stack.yaml").write_text(
        "name: mine\nversion: '1'\ninterpreter: {source: host, path: /usr/bin/python3}\n"
        "environment: {dependencies: [{pip: [idna]}]}\n"
    )
    lines = site.typed(
        anna, system, "module load stackyard", "stackyard --version", "command -v python3",
        "stackyard deploy stack.yaml", "module use ~/.local/share/stackyard/modules", "module load mine",
        "python -c 'import idna, sys; print(sys.prefix)'", "module unload mine stackyard",
        "command -v stackyard || echo gone",
    )  # fmt: skip
    assert lines[:2] == [f"stackyard, version {OLD}", "/usr/bin/python3"]
    assert lines[-2:] == [f"{anna.home}/.local/share/stackyard/stacks/mine/1-py3-1/prefix", "gone"]


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_man_finds_the_pages_of_the_commands(site: Installed, anna: Account, system: str) -> None:
    programs.need("man")
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    found = anna.run("man", "-w", "stackyard-launch", PATH=f"{site.command.parent}:/usr/bin:/bin").out
    assert found == f"{site.place}/opt/current/share/man/man1/stackyard-launch.1\n"
    lines = site.typed(
        anna, system, "unset MANPATH", "module load stackyard", "man -w stackyard-launch", "echo $MANPATH"
    )
    assert lines[0] == f"{site.yard}/stacks/stackyard/{OLD}-py3-1/prefix/share/man/man1/stackyard-launch.1"
    assert lines[1].endswith("prefix/share/man:"), "an empty entry is the system's pages"


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_the_module_completes_the_command(site: Installed, anna: Account, system: str) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    lines = site.typed(
        anna,
        system,
        "module load stackyard",
        "complete -p stackyard",
        "_stackyard_load || true",
        "complete -p stackyard",
        "module unload stackyard",
        "complete -p stackyard || echo gone",
    )
    used = "complete -o bashdefault -F _shtab_stackyard stackyard"
    assert lines == ["complete -F _stackyard_load stackyard", used, "gone"]


def test_an_upgrade_leaves_those_who_run_the_old_version_alone(site: Installed, anna: Account) -> None:
    programs.need("lmod")
    late = "import sys, stackyard; input(); from stackyard.deploy import deploy; print(stackyard.__version__)"
    prefixes = site.place / "opt" / OLD, site.yard / f"stacks/stackyard/{OLD}-py3-1/prefix"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = [anna.popen(prefix / "bin" / "python", "-I", "-c", late, **pipes) for prefix in prefixes]
    site.install(NEW)
    site.publish(NEW)
    versions = [process.communicate("\n", timeout=240)[0] for process in running]
    assert versions == [f"{OLD}\n", f"{OLD}\n"]
    assert anna.run(site.command, "--version").out == f"stackyard, version {NEW}\n"
    for name, version in (("stackyard", NEW), (f"stackyard/{OLD}-py3-1", OLD)):
        assert site.typed(anna, "lmod", f"module load {name}", "stackyard --version") == [
            f"stackyard, version {version}"
        ]
    subprocess.run([site.command, "--yard", site.yard, "rollback"], check=True, capture_output=True)
    assert site.typed(anna, "lmod", "module load stackyard", "stackyard --version") == [f"stackyard, version {OLD}"]


def test_an_installed_version_never_changes(site: Installed) -> None:
    said = site.install(OLD).out
    assert "version" in said
    site.wheel(OLD).write_bytes(site.wheel(NEW).read_bytes())
    assert "was installed from another wheel" in site.install(OLD, expect=1).err


def test_a_killed_installation_is_done_again(site: Installed) -> None:
    (site.place / "opt" / NEW / ".complete").unlink()
    (site.place / "opt" / NEW / "bin" / "stackyard").write_text("")
    site.install(NEW)
    assert subprocess.run([site.command, "--version"], check=True, capture_output=True).stdout


def test_a_python_that_others_cannot_read_is_refused(site: Installed, tmp_path: Path) -> None:
    if Path(HOME).stat().st_mode & 0o001 or HOME not in os.path.realpath(sys.executable):
        pytest.skip("runs with a Python that all can read")
    refused = site.install(NEW, expect=4, PYTHON=sys.executable)
    assert "error: other users cannot read" in refused.err and "hint: set PYTHON" in refused.err
