"""site.yaml: where it is found, what it says, how it meets a stack, and what is wrong with it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, ManyErrors
from stackyard.inputs.models import Site
from stackyard.inputs.reading.validate import plain
from stackyard.inputs.reading.yamlfile import parse_yaml
from stackyard.inputs.sites.settings import Settings
from stackyard.inputs.sites.site import load_site, merged
from stackyard.inputs.sites.sitefiles import load_checks
from stackyard.inputs.stacks.stack import stack_from_file
from stackyard.launch.run.causes.table import FACTS, site_rules


def write(directory: Path, text: str, name: str = "site.yaml") -> Path:
    file = directory / name
    file.write_text(text)
    return file


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    site = Settings().site()
    assert site == Site()
    assert site.modules.first_revision == 1
    assert not site.file


def test_environment_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_SITE", str(write(tmp_path, "name: here\n")))
    assert Settings().site().name == "here"
    assert Settings(site_option=write(tmp_path, "name: there\n", "other.yaml")).site().name == "there"


@pytest.mark.parametrize("named", ["option", "variable"])
def test_the_file_may_be_named_by_your_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """As a batch script names it, where no shell replaces ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = write(tmp_path, "name: here\nyard: /yards/site\n")
    if named == "variable":
        monkeypatch.setenv("STACKYARD_SITE", "~/site.yaml")
    settings = Settings(site_option=Path("~/site.yaml") if named == "option" else None)
    assert settings.site_file() == file
    assert settings.site().name == "here"
    with pytest.raises(InputError, match=f"no such site file: {tmp_path}/gone.yaml"):
        Settings(site_option=Path("~/gone.yaml")).site_file()


def test_the_file_is_named_absolutely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(site_option=write(Path(), "name: here\n")).site_file() == tmp_path / "site.yaml"


def test_values_are_as_written(tmp_path: Path) -> None:
    site = load_site(
        write(
            tmp_path,
            """
name: 007
nodes:
  gpu: {cores: 48, memory_gib: 192.5, glibc: 2.10, gpu: {count: 4, driver: 550.50, cuda: 12.10}}
permissions: {umask: 0027, group: hpc}
run_variables: {OMP_NUM_THREADS: 1, YES: yes}
condarc: {threads: 2, extra: {auto_activate_base: false, remote_max_retries: 5}}
scheduler: {kind: slurm, rack_nodes: 18}
pip: {find_links: [wheels, "https://x/links"]}
pins:
""",
        )
    )
    node = site.nodes["gpu"]
    assert (site.name, node.cores, node.memory_gib, node.glibc) == ("007", 48, 192.5, "2.10")
    assert (node.gpu.driver, node.gpu.cuda) == ("550.50", "12.10")
    assert site.permissions.umask == "0027"
    assert site.run_variables == {"OMP_NUM_THREADS": "1", "YES": "yes"}
    assert site.condarc.extra == {"auto_activate_base": False, "remote_max_retries": 5}
    assert (site.scheduler.kind, site.scheduler.rack_nodes) == ("slurm", 18)
    assert site.pip.find_links == (str(tmp_path / "wheels"), "https://x/links")
    assert site.pins == ()


def test_every_problem_at_once_with_its_place(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """name: s
chanels: {}
nodes:
  gpu: {platform: linux-32, cores: many, memory: 3}
channels: {priority: strickt}
permissions: {umask: 99}
""",
    )
    with pytest.raises(ManyErrors) as error:
        load_site(file)
    found = [str(p).removeprefix(str(file)) + f" | {p.hint}" for p in error.value.problems]
    assert found == [
        ":2:1: unknown key 'chanels' | did you mean 'channels'?",
        ":4:19: nodes.gpu.platform: 'linux-32' is not one of linux-64, linux-aarch64, linux-ppc64le"
        " | did you mean 'linux-64'?",
        ":4:36: nodes.gpu.cores: expected a whole number, found 'many' | write it in digits without a unit",
        ":4:42: unknown key 'memory' in nodes.gpu | did you mean 'memory_gib'?",
        ":5:22: channels.priority: 'strickt' is not one of strict, flexible, disabled | did you mean 'strict'?",
        ":6:22: permissions.umask: '99' does not match ^0?[0-7]{3}$ | write three octal digits, e.g. 0027",
    ]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("name: s\nmodules: {naming: '{version}-{variant}'}\n", "lacks {revision}", 2),
        ("name: s\nmodules: {naming: '{stack}-{version}-{revision}'}\n", "unknown field {stack}", 2),
        ("name: s\nmodules: {naming: '{version}/{revision}'}\n", "is not a valid name", 2),
        ("name: s\npins:\n  - numpy <2\n  - 'cuda [oops'\n", "is not a conda package spec", 4),
        ("name: s\nyard: yards/main\n", "is not an absolute path", 2),
        ("name: s\nfile: x\n", "unknown key 'file'", 2),
        ("name: s\nstacks:\n  append:\n    chekcs: [a]\n", "unknown key 'chekcs'", 4),
        ("name: s\nstacks:\n  force: {name: x}\n", "'name' cannot be set for every stack", 3),
        ("name: s\nstacks:\n  defaults: {modules: {family: [a]}}\n", "expected text, found a list", 3),
        ("- a\n", "a site must be a mapping", 1),
        ("name: {{ jinja }}\n", "Jinja", 1),
    ],
)
def test_wrong_site(tmp_path: Path, text, message, line) -> None:
    with pytest.raises(InputError) as error:
        load_site(write(tmp_path, text))
    found = error.value.problems if isinstance(error.value, ManyErrors) else (error.value,)
    assert any(message in each.message for each in found), [str(each) for each in found]
    assert found[0].where and found[0].where.line == line
    assert all(each.hint for each in found)


def test_missing_site(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_site(tmp_path / "gone.yaml")


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "site.yaml")
    settings = Settings(site_option=tmp_path / "site.yaml")
    for look in (settings.site, settings.yard_root):
        with pytest.raises(OSError, match="not a regular file"):
            look()


# --------------------------------------------------------------------------- a site's values in a stack


@pytest.mark.parametrize(
    ("part", "values", "stack", "expected"),
    [
        ("defaults", "{summary: site}", "{summary: own}", {"summary": "own"}),
        ("defaults", "{summary: site}", "{}", {"summary": "site"}),
        ("defaults", "{summary: site}", "{summary: }", {"summary": "site"}),
        ("defaults", "{variables: {A: f, B: h}}", "{variables: {B: own}}", {"variables": {"A": "f", "B": "own"}}),
        ("force", "{summary: site}", "{summary: own}", {"summary": "site"}),
        ("force", "{modules: {family: f}}", "{modules: {help: own}}", {"modules": {"help": "own", "family": "f"}}),
        ("append", "{build: {modules: [s]}}", "{build: {modules: [a, b]}}", {"build": {"modules": ["a", "b", "s"]}}),
        ("prepend", "{build: {modules: [s]}}", "{build: {modules: [a, b]}}", {"build": {"modules": ["s", "a", "b"]}}),
        ("append", "{checks: [s]}", "{checks: own}", {"checks": ["own", "s"]}),
        ("append", "{build: {modules: [s]}}", "{}", {"build": {"modules": ["s"]}}),
        ("append", "{environment: {name: s}}", "{environment: e.yml}", {"environment": ["e.yml", {"name": "s"}]}),
        ("force", "{environment: {channels: [s]}}", "{environment: e.yml}", {"environment": [{"channels": ["s"]}]}),
    ],
)  # fmt: skip
def test_merged(tmp_path: Path, part, values, stack, expected) -> None:
    site = load_site(write(tmp_path, f"stacks:\n  {part}: {values}\n"))
    node = parse_yaml(stack, "stack.yaml").root
    assert node is not None
    assert plain(merged(node, site)) == expected


def test_force_comes_last(tmp_path: Path) -> None:
    site = load_site(write(tmp_path, "stacks: {append: {checks: [a]}, force: {checks: [f]}}\n"))
    node = parse_yaml("{checks: [own]}", "stack.yaml").root
    assert node is not None
    assert plain(merged(node, site))["checks"] == ["f"]


def test_problem_of_a_sites_value_names_the_site(tmp_path: Path) -> None:
    site = load_site(write(tmp_path, "stacks: {append: {environment: {dependencies: ['x{nothing}']}}}\n"))
    with pytest.raises(InputError, match=r"\{nothing\} is not an axis") as error:
        stack_from_file(write(tmp_path, "environment: {dependencies: [a]}\n", "stack.yaml"), site)
    assert error.value.where and os.path.basename(error.value.where.file) == "site.yaml"


def test_stack_takes_its_interpreter_from_the_site(tmp_path: Path) -> None:
    site = load_site(write(tmp_path, "interpreter: {source: uv, version: 3.12}\n"))
    file = write(tmp_path, "environment: {dependencies: [{pip: [numpy]}]}\n", "stack.yaml")
    (variant,) = stack_from_file(file, site).variants
    assert (variant.interpreter.source, variant.interpreter.version, variant.name) == ("uv", "3.12", "py312")


def test_files_of_checks_and_causes_are_named_relative_to_the_site(tmp_path: Path) -> None:
    site = load_site(
        write(tmp_path, "checks: [a.yaml, {plugin: quota}, {file: /b.yaml}]\ncauses: [c.yaml, ../d.yaml]\n")
    )
    assert [(each.file, each.plugin) for each in site.checks] == [
        (f"{tmp_path}/a.yaml", ""), ("", "quota"), ("/b.yaml", ""),
    ]  # fmt: skip
    assert site.causes == (f"{tmp_path}/c.yaml", f"{tmp_path}/../d.yaml")
    assert Site.model_validate_json(site.model_dump_json(exclude_unset=True)).checks == site.checks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checks: [{}]", "write the path of a file of checks, or {plugin: NAME}"),
        ("checks: [{file: a, plugin: b}]", "write the path of a file of checks, or {plugin: NAME}"),
        ("checks: [{plug-in: b}]", "unknown key 'plug-in' in checks.0"),
        ("checks: a.yaml", "checks: expected a list"),
    ],
)
def test_wrong_entries_of_checks(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_site(write(tmp_path, f"{text}\n"))
    assert message in str(caught.value) and f"{tmp_path}/site.yaml:1" in str(caught.value)


def test_the_examples_of_the_page_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/site-checks.md").read_text()
    site, checks, causes = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[:3]
    for name, text in (("site.yaml", site), ("checks.yaml", checks), ("causes.yaml", causes)):
        write(tmp_path, text, name)
    (tmp_path / "checks").mkdir()
    write(tmp_path / "checks", "true\n", "licence.sh")
    found = load_site(tmp_path / "site.yaml")
    assert [check.name for check in load_checks(Path(found.checks[0].file))][1:] == ["sees the GPU", "licence server"]
    assert [rule.name for rule in site_rules(found.causes)] == ["licence-server", "container-across-racks"]
    assert [name for name in FACTS if f"`{name}`" not in page] == []
