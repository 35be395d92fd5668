"""Plug-ins: which are found, and what is said of those that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lock.helpers_lock import wheel
from stackyard.core import plugins
from stackyard.core.errors import StackyardError
from stackyard.inputs.sites.site import load_site
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan import launchers, schedulers
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.request.intent import Intent
from stackyard.launch.shim.rank_sh import shim_text
from stackyard.lock.lockfile.export import GROUP
from support.pluginvenv import install, venv_with_plugins

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Site-packages of Stackyard's own, for one test."""
    directory = tmp_path / "site-packages"
    directory.mkdir()
    monkeypatch.setattr(plugins, "directories", lambda: [directory])
    monkeypatch.setattr(plugins, "_FOUND", {})
    monkeypatch.syspath_prepend(directory)
    return directory


def test_entries_of_the_group_are_found_and_loaded(site: Path) -> None:
    install(
        site,
        "one_mine",
        "[console_scripts]\nurls = one_mine:no\n\n# ours\n[stackyard.exports]\nurls=one_mine:text [x]\n",
    )
    assert {name: str(point) for name, point in plugins.installed(GROUP).items()} == {"urls": "urls (one_mine 1.0)"}
    plugin = plugins.load(GROUP, "urls")
    assert plugin is not None and plugin.object(None) == "x"
    assert plugins.load(GROUP, "other") is None and plugins.load("stackyard.checks", "urls") is None


@pytest.mark.parametrize(
    ("module", "code", "says"),
    [
        ("bad_import", "import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("bad_name", "STACKYARD_PROTOCOL = 1", "AttributeError"),
        ("bad_protocol", "STACKYARD_PROTOCOL = 2\ndef text(_): pass", "its module bad_protocol has protocol 2, not 1"),
        ("bad_silence", "def text(_): pass", "its module bad_silence does not say its protocol, not 1"),
    ],
)
def test_one_that_cannot_be_used_is_named(site: Path, module: str, code: str, says: str) -> None:
    install(site, module, f"[stackyard.exports]\nurls = {module}:text\n", code)
    with pytest.raises(StackyardError, match=rf"plug-in urls \({module} 1.0\)") as caught:
        plugins.load(GROUP, "urls")
    assert says in str(caught.value) and caught.value.hint


def test_two_of_one_name_are_refused(site: Path) -> None:
    for name in ("first_one", "second_one"):
        install(site, name, f"[stackyard.exports]\nurls = {name}:text\n")
    with pytest.raises(StackyardError, match=r"two plug-ins are called urls: first_one 1.0 and second_one 1.0"):
        plugins.load(GROUP, "urls")


SCHEDULER = """
from stackyard.launch.plan.schedulers.directives import DirectiveScheduler
STACKYARD_PROTOCOL = 1
class Short(DirectiveScheduler):
    name, prefix, submit_program, job_variable = "short", "#S", "short", "SHORT_ID"
    options, state_words, state_pattern, states = {}, (), "", {}
short = Short()
"""


def test_a_scheduler_without_a_required_attribute_is_refused_by_name(site: Path) -> None:
    """Without them, the job's id would be run as a program at the first cancel."""
    install(site, "short_one", "[stackyard.schedulers]\nshort = short_one:short\n", SCHEDULER)
    with pytest.raises(StackyardError, match=r"short_one:short does not set job_id_pattern, cancel_words$"):
        schedulers.get("short")


def test_what_a_plugin_raises_is_reported_as_its_failure(site: Path) -> None:
    install(
        site, "failing", "[stackyard.exports]\nurls = failing:text\n", "STACKYARD_PROTOCOL = 1\ndef text(_): 1 / 0\n"
    )
    plugin = plugins.load(GROUP, "urls")
    assert plugin is not None
    with pytest.raises(StackyardError, match=r"the export urls failed in the plug-in urls \(failing 1.0\): Zero"), \
            plugins.calling(plugin, "the export urls"):  # fmt: skip
        plugin.object(None)


STACK = (
    "name: demo\nversion: '1'\nenvironment: {dependencies: [{pip: [--no-index, leaf]}]}\ninterpreter: {source: host}\n"
)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stackyard in a virtual environment of its own, with the example's distribution."""
    return venv_with_plugins(tmp_path_factory.mktemp("plugins"))


def lock(python: Path, directory: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """``stackyard lock`` of a stack with one wheel."""
    wheel(directory / "links", "leaf", "1.0")
    (directory / "stack.yaml").write_text(STACK)
    (directory / "site.yaml").write_text(f"pip: {{read_pip_conf: false, find_links: ['{directory}/links']}}\n")
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(directory), **variables}
    argv = [
        python,
        "-m",
        "stackyard",
        "--site",
        "site.yaml",
        "--yard",
        directory / "yard",
        "lock",
        "stack.yaml",
        *words,
    ]
    return subprocess.run(argv, cwd=directory, env=environ, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.real
def test_the_example_is_installed_and_used(venv: Path, tmp_path: Path) -> None:
    done = lock(venv / "bin/python", tmp_path, "--export", "urls")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.endswith("leaf-1.0-py3-none-any.whl") and len(line.split()[0]) == 64
    wrong = lock(venv / "bin/python", tmp_path, "--export", "url")
    assert wrong.returncode == 2 and "no such export format: url" in wrong.stderr
    assert "did you mean urls?" in wrong.stderr


@pytest.mark.real
def test_what_pythonpath_has_is_not_found(venv: Path, tmp_path: Path) -> None:
    """As the modules of a loaded stack set it."""
    other = next(venv.glob("lib/python*/site-packages"))
    done = lock(Path(sys.executable), tmp_path, "--export", "urls", PYTHONPATH=str(other))
    assert done.returncode == 2 and "no such export format: urls" in done.stderr
    assert "known: pixi, pylock, explicit, environment" in done.stderr and not (tmp_path / "stack.yaml.lock").exists()
    shadow = tmp_path / "shadow" / "stackyard_site"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise SystemExit('this one is not to be imported')")
    done = lock(venv / "bin/python", tmp_path, "--export", "urls", PYTHONPATH=str(shadow.parent))
    assert done.returncode == 0 and "leaf-1.0" in done.stdout, done.stderr


KINDS = """
STACKYARD_PROTOCOL = 1
from dataclasses import dataclass
from stackyard.launch.plan.launchers.words import Words
from stackyard.launch.plan.model import LaunchLine, RankNames, RankProgram, Wrapper
from stackyard.launch.plan.profilers import Profiler
from stackyard.launch.plan.runtimes.base import Runtime


class Ibrun:
    name = "ibrun"

    def line(self, request):
        words = Words("ibrun", reason="starts the ranks")
        ranks = RankNames(("IB_RANK",), ("IB_SIZE",), ("IB_LOCAL",))
        return LaunchLine(words.words, self.name, words.reasons, ranks=ranks)


class Dask:
    name = "dask"

    def program(self, intent, layout, context):
        return RankProgram(layout, ("dask-mpi", *intent.program))


class Podman(Runtime):
    name, program = "podman", "podman"

    def wrapper(self, inside):
        return Wrapper(("podman", "run", inside.image))


ibrun, dask, podman = Ibrun(), Dask(), Podman()
perf = Profiler("perf", "counters", "perf", ("perf", "stat"))
misnamed = Ibrun()
"""


def test_a_launcher_a_backend_a_profiler_and_a_runtime(site: Path, tmp_path: Path) -> None:
    groups = {"launchers": "ibrun", "backends": "dask", "profilers": "perf", "runtimes": "podman"}
    text = "".join(f"[stackyard.{group}]\n{name} = kinds:{name}\n" for group, name in groups.items())
    install(site, "kinds", text.replace("= kinds:ibrun\n", "= kinds:ibrun\nother = kinds:misnamed\n"), KINDS)
    (tmp_path / "image.sif").touch()
    (tmp_path / "site.yaml").write_text("launch: {container: {runtime: podman}}\n")
    job = Intent(program=("work",), launcher="ibrun", backend="dask", profile=("perf",), container="image.sif",
                 cwd=str(tmp_path))  # fmt: skip
    plan = make_plan(job, load_site(tmp_path / "site.yaml"), PlanContext())
    assert plan.line.words == ("ibrun",)
    assert plan.program.argv == ("dask-mpi", "work")
    assert [wrapper.argv[0] for wrapper in plan.wrappers] == ["podman", "perf"]
    file = StepFile("r", "secret", "id", (), plan.line.family, 1, plan.layout.ranks)
    assert "sy_task=${IB_RANK:-}" in shim_text(StepPaths(tmp_path), file, plan)
    assert plugins.used().items() >= {f"{group} {name}": "kinds 1.0" for group, name in groups.items()}.items()
    with pytest.raises(StackyardError, match=r"use the plug-in other \(kinds 1.0\): .* not a launcher of this name"):
        launchers.get("other")
