"""What happens to a revision after its build: labels, permissions, roll back under a running shell, damage, Ctrl-C."""

from __future__ import annotations

import grp
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from support import modules
from support.cli import STACKYARD, Done, inside, stackyard, warm

STACK = """
name: tools
version: "1"
environment:
  channels: [{channel}]
  dependencies: [python=3.11, {six}]
modules: {{{modules}}}
"""


def write_stack(directory: Path, channel: Path, six: str = "six=1.16", modules: str = "") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "stack.yaml").write_text(STACK.format(channel=channel.as_uri(), six=six, modules=modules))
    return directory / "stack.yaml"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Path:
    """A yard with two revisions of one variant."""
    directory = tmp_path_factory.mktemp("life")
    os.environ["HOME"] = str(directory / "home")
    for six in ("six=1.16", "six=1.17"):
        stackyard("--yard", directory / "yard", "deploy", write_stack(directory / "stack", real_channel, six))
    return directory / "yard"


def typed(system: str, directory: Path, *lines: str) -> str:
    """What bash prints for these lines, with ``module`` of this system."""
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "TERM": "dumb", "USER": "user"}
    return modules.run("bash", "\n".join((modules.initialise(system, "bash"), *lines)) + "\n", environ, directory)


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_a_module_loaded_before_a_rollback_unloads_after_it(yard: Path, tmp_path: Path, system: str) -> None:
    back = f"{STACKYARD} --yard {yard} rollback tools/1-py311-1 > /dev/null"
    lines = (
        f"module use {yard}/modules",
        modules.snapshot("bash", tmp_path / "before"),
        "module load tools",
        "echo first=$CONDA_PREFIX",
        back,
        "module unload tools",
        modules.snapshot("bash", tmp_path / "after"),
        "module load tools; echo second=$CONDA_PREFIX",
    )
    out = typed(system, tmp_path, *lines)
    assert f"first={yard}/stacks/tools/1-py311-2/prefix" in out
    assert f"second={yard}/stacks/tools/1-py311-1/prefix" in out
    before, after = modules.take(tmp_path / "before"), modules.take(tmp_path / "after")
    assert before is not None and after is not None
    bookkeeping = re.compile("_?_?LMOD_|_ModuleTable|__MODULES_|LOADEDMODULES|_LMFILES_|_$")
    assert {k: v for k, v in after.environ.items() if not bookkeeping.match(k)} == {
        k: v for k, v in before.environ.items() if not bookkeeping.match(k)
    }
    assert (after.functions, after.aliases) == (before.functions, before.aliases)
    stackyard("--yard", yard, "rollback", "2")
    assert [r["module"] for r in stackyard("--yard", yard, "list", "--json").value if r["default"]] == [
        "tools/1-py311-2"
    ]


def test_labels_change_without_a_build_and_reach_all_revisions_of_the_variant(
    yard: Path, tmp_path: Path, real_channel: Path
) -> None:
    labels = "deprecated: 2027-01-31 use tools/2, notice: mind the step, help: ask the desk"
    file = write_stack(tmp_path / "stack", real_channel, "six=1.17", labels)
    told = stackyard("--yard", yard, "deploy", file, "--json").value
    assert [(r["module"], r["status"]) for r in told["revisions"]] == [("tools/1-py311-2", "updated")]
    again = stackyard("--yard", yard, "deploy", file, "--json").value
    assert (again["generation"], [r["status"] for r in again["revisions"]]) == (0, ["unchanged"])
    for system in modules.SYSTEMS:
        out = typed(system, tmp_path, f"module use {yard}/modules", "module load tools", "module help tools")
        assert "tools/1-py311-2 is deprecated: 2027-01-31 use tools/2" in out
        assert "mind the step" in out and "ask the desk" in out
        out = typed(system, tmp_path, f"module use {yard}/modules", "module load tools/1-py311-1")
        assert "tools/1-py311-1 is deprecated" in out
    assert "deprecated 2027-01-31" in stackyard("--yard", yard, "list").out
    stackyard("--yard", yard, "deploy", write_stack(tmp_path / "stack", real_channel, "six=1.17"))
    assert "deprecated" not in stackyard("--yard", yard, "list").out


@pytest.mark.parametrize(("rule", "default"), [("newest", "b"), ("first", "a")])
def test_the_sites_rule_says_which_variant_the_bare_name_means(
    rule: str, default: str, yard: Path, tmp_path: Path, real_channel: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(f"modules: {{default: {rule}}}\n")
    file = write_stack(tmp_path / "s", real_channel)
    file.write_text(file.read_text() + "matrix: {letter: [a, b]}\n")
    stackyard("--yard", warm(tmp_path / "y", yard), "--site", site, "deploy", file)
    rows = stackyard("--yard", tmp_path / "y", "list", "--json").value
    assert {r["variant"]: "tools/1" in r["aliases"] and r["default"] for r in rows} == {
        letter: letter == default for letter in "ab"
    }


def test_the_sites_root_permissions_and_group(tmp_path: Path, real_channel: Path) -> None:
    group = next((g.gr_name for g in grp.getgrall() if g.gr_gid != os.getgid() and _may_give(g.gr_gid)), None)
    root, site = tmp_path / "sw" / "modules", tmp_path / "site.yaml"
    root.mkdir(parents=True)
    given = f"group: {group}, " if group else ""
    site.write_text(f"yard: {tmp_path}/y\nmodules: {{root: {root}}}\npermissions: {{{given}umask: '0027'}}\n")
    words = ("--yard", tmp_path / "y", "--site", site, "deploy", write_stack(tmp_path / "s", real_channel))
    refused = stackyard(*words, expect=2)
    assert "not a symlink" in refused.err and "modules: root:" in refused.err
    root.rmdir()
    assert f"module use {root} &&" in stackyard(*words).out
    assert root.readlink() == tmp_path / "y" / "modules"
    paths = [tmp_path / "y", *(tmp_path / "y").rglob("*")]
    if group:
        assert {p.lstat().st_gid for p in paths} == {grp.getgrnam(group).gr_gid}
    directories = [p for p in paths if p.is_dir() and not p.is_symlink()]
    readable = [p for p in directories if p.stat().st_mode & 0o007 and tmp_path / "y/generations" not in p.parents]
    assert readable == []
    for system in modules.SYSTEMS:
        out = typed(system, tmp_path, f"module use {root}; module load tools; python -c 'import six; print(six)'")
        assert str(tmp_path / "y" / "stacks") in out


def _may_give(gid: int) -> bool:
    return os.geteuid() == 0 or gid in os.getgroups()


def test_an_unverified_revision_becomes_verified(yard: Path, tmp_path: Path, real_channel: Path) -> None:
    site = tmp_path / "site.yaml"
    nodes = "nodes: {{big: {{platform: linux-64, gpu: {{count: {}}}}}}}\n"
    site.write_text(nodes.format(4000))
    file = write_stack(tmp_path / "s", real_channel)
    file.write_text(file.read_text() + "checks: [{name: on a big node, run: [true], needs: {node_kind: big}}]\n")
    words = ("--yard", warm(tmp_path / "y", yard), "--site", site)
    stackyard(*words, "deploy", file, "--allow-unverified")
    assert [r["state"] for r in stackyard(*words, "list", "--json").value] == ["unverified"]
    assert "skipped: on a big node" in stackyard(*words, "verify", "tools", expect=3).out
    stackyard(*words, "rollback", "1")  # what was unverified stays so
    assert [r["state"] for r in stackyard(*words, "list", "--json").value] == ["unverified"]
    site.write_text(nodes.format(0))
    assert "is now verified" in stackyard(*words, "verify").out
    assert [r["state"] for r in stackyard(*words, "list", "--json").value] == ["published"]


@pytest.mark.long
def test_damage_is_found_named_and_mended(yard: Path, tmp_path: Path, real_channel: Path) -> None:
    file = write_stack(tmp_path / "s", real_channel)
    file.write_text(file.read_text().replace("six=1.16", "numpy"))
    stackyard("--yard", warm(tmp_path / "y", yard), "deploy", file)
    directory = tmp_path / "y/stacks/tools/1-py311-1"
    next(directory.rglob("_multiarray_umath*.so")).unlink()
    told = stackyard("--yard", tmp_path / "y", "verify", expect=3).out
    assert "_multiarray_umath" in told and "`stackyard verify --repair tools/1-py311-1`" in told
    directory.rename(tmp_path / "out of the yard")
    stackyard("--yard", tmp_path / "y", "deploy", file)
    assert "passed" in stackyard("--yard", tmp_path / "y", "verify", "tools/1-py311-1").out


def test_ctrl_c_leaves_the_yard_usable(yard: Path, tmp_path: Path, real_channel: Path) -> None:
    file = write_stack(tmp_path / "s", real_channel)
    file.write_text(file.read_text().replace("name: tools", "name: broken").replace("six=1.16", "numpy, rich"))
    before = os.readlink(yard / "modules")
    process = subprocess.Popen(
        [STACKYARD, "--yard", yard, "deploy", file], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    seen = ""
    while "broken/1-py311-1: " not in seen:
        seen += process.stderr.readline()
        assert process.poll() is None, seen
    os.killpg(process.pid, signal.SIGINT)
    _, rest = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "interrupted" in rest and "run the same command again to continue" in rest and "Traceback" not in rest
    assert not list(yard.glob("leases/*/*/owner.json")) and os.readlink(yard / "modules") == before
    stackyard("--yard", yard, "deploy", file)
    stackyard("--yard", yard, "run", "broken", "--", "python", "-c", "import rich, numpy")


def wheel(directory: Path, name: str, modules: dict[str, str], script: str) -> Path:
    """A wheel with these modules and one console script of its own name."""
    path = directory / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for module, text in modules.items():
            archive.writestr(module, text)
        archive.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}-1.dist-info/entry_points.txt", f"[console_scripts]\n{name} = {script}\n")
        archive.writestr(f"{name}-1.dist-info/RECORD", "".join(f"{each},,\n" for each in archive.namelist()))
    return path


def test_a_newcomer_is_told_what_to_write_for_an_exception(yard: Path, tmp_path: Path, real_channel: Path) -> None:
    odd = wheel(tmp_path, "odd", {"odd.py": "import absent_thing\n"}, "odd:main")
    file = tmp_path / "environment.yml"
    file.write_text(
        f"name: newcomer\nchannels: [{real_channel.as_uri()}]\ndependencies: [python=3.11, pip, {{pip: ['{odd}']}}]\n"
    )
    words = ("--yard", warm(tmp_path / "y", yard), "deploy")
    told = stackyard(*words, file, "--version", "1.0", expect=3).out
    block = told.partition("and deploy that:\n")[2].partition("    investigate")[0]
    assert "environment: environment.yml" in block and 'imports: ["odd"]' in block and 'commands: ["odd"]' in block
    (tmp_path / "stack.yaml").write_text("\n".join(line[8:] for line in block.splitlines()) + "\n")
    assert "published" in stackyard(*words, tmp_path / "stack.yaml").out


def test_a_command_that_does_not_import_does_not_keep_a_newcomer_from_publishing(tmp_path: Path) -> None:
    """As `fabric` of lightning, which needs an extra; a stack.yaml and a site can require all commands."""
    modules = {"lightning/__init__.py": "", "lightning/cli.py": "import absent_thing\n"}
    file, site = tmp_path / "requirements.txt", tmp_path / "site.yaml"
    file.write_text(f"{wheel(tmp_path, 'lightning', modules, 'lightning.cli:main')}\n")
    host = "interpreter: {source: host}\nmodules: {formats: [tcl]}\n"
    site.write_text(host)

    def deploy(name: Path, expect: int) -> Done:
        return inside("--yard", tmp_path / "y", "--site", site, "deploy", "--name", "p", name, expect=expect)

    told = deploy(file, 0).out
    assert "published" in told and "warned: lightning: lightning.cli:main" in told and "1 warned" in told
    (report,) = (tmp_path / "y/stacks/p").glob("*/report.json")
    (check,) = (c for c in json.loads(report.read_text())["checks"] if c["kind"] == "command")
    assert (check["status"], check["name"]) == ("warned", "lightning")
    (tmp_path / "stack.yaml").write_text('version: "2"\nenvironment: requirements.txt\n')
    assert "failed: lightning" in deploy(tmp_path / "stack.yaml", 3).out
    site.write_text(host + "stacks: {defaults: {exceptions: {broken_commands: fail}}}\n")
    file.write_text(file.read_text() + "# another day\n")
    shutil.rmtree(tmp_path / "y")
    assert "failed: lightning" in deploy(file, 3).out
    site.write_text(host)
    assert "warned: lightning" in deploy(file, 0).out, "the same build, judged by the present file"


def test_a_terminal_gets_lines_that_stay_and_a_pipe_plain_text(yard: Path, tmp_path: Path, real_channel: Path) -> None:
    file = write_stack(tmp_path / "s", real_channel, "idna=3.9")
    plain = stackyard("--yard", yard, "deploy", file)
    assert "\x1b" not in plain.out + plain.err and "passed" in plain.err
    file.write_text(file.read_text().replace("idna=3.9", "idna=3.10"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [STACKYARD, "--yard", yard, "deploy", file], stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    text = _drained(ours)
    assert process.wait(timeout=240) == 0
    stays = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in text.splitlines()]
    assert any(re.search(r"✔ tools/1-py311-\d: built [\d.]+ s", line) for line in stays), text
    assert any(re.search(r"✔ tools/1-py311-\d: passed \(\d+ checks\)", line) for line in stays), text
    assert any("module use" in line for line in stays)


def _drained(terminal: int) -> str:
    """All that was written to a terminal until its last writer left."""
    found = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux's way of saying that nobody has it open any more
            break
        if not part:
            break
        found += part
    return found.decode("utf-8", "replace")
