"""All ranks wait while `launch` starts: what the way to its launcher does not need is imported later, or never."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

UNNEEDED = (
    "pydantic", "pydantic_core", "ruamel.yaml", "rattler", "rich", "jinja2", "asyncio", "ssl", "email",
    "multiprocessing", "importlib.metadata", "http.client", "concurrent.futures", "argparse",
    "stackyard.launch.preflight.run", "stackyard.launch.run.hub", "stackyard.launch.run.placement",
    "stackyard.launch.records.follow", "stackyard.lint", "stackyard.inputs.reading.validate",
    "stackyard.inputs.reading.yamlfile",
    "stackyard.expose", "stackyard.deploy", "stackyard.make",
)  # fmt: skip
STOPPED = """
import sys
from stackyard.host.run import process
process.start = lambda argv, **_: sys.exit("\\n".join(sys.modules))
sys.argv = ["stackyard", *sys.argv[1:]]
from stackyard.cli.main import main
main()
"""


def test_launch_imports_little_before_its_launcher_is_started(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("name: a\nnodes: {cpu: {platform: linux-64, cores: 2}}\nscheduler: {kind: none}\n")
    argv = [sys.executable, "-c", STOPPED, "--yard", tmp_path / "yard", "--site", site, "launch", "-r", "2", "-c", "1"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):  # the first one reads the site's file, and keeps its compiled form
        done = subprocess.run(
            [*argv, "--backend", "any", "--", "true"],
            cwd=tmp_path,
            env=env,
            text=True,
            capture_output=True,
            check=False,
        )
    seen = done.stderr.splitlines()
    assert "stackyard.launch.plan.make" in seen, done.stderr[-2000:]
    assert [name for name in UNNEEDED if name in seen] == []


def test_a_run_that_ends_well_does_not_import_what_explains_failures(tmp_path: Path) -> None:
    """Many short runs, as those of a map, wait for the processors that their launchers import with."""
    site = tmp_path / "site.yaml"
    site.write_text("name: a\nnodes: {cpu: {platform: linux-64, cores: 2}}\nscheduler: {kind: none}\n")
    words = ["--yard", tmp_path / "yard", "--site", site, "launch", "-r", "1", "-c", "1", "--backend", "any", "true"]
    argv = [sys.executable, "-X", "importtime", "-m", "stackyard.cli.main", *words]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, text=True, capture_output=True, check=False)
    seen = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.returncode == 0 and "stackyard.launch.run.seen" in seen, done.stderr[-2000:]
    assert {"stackyard.launch.run.causes.table", "statistics"} & seen == set()
