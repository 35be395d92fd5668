"""A name that a shell or a module system would evaluate is refused where it enters, with file and line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from stackyard.core import grammar
from stackyard.core.change import EnvironmentChange, Function, OnUnload, Set, UserPath
from stackyard.core.errors import InputError, ManyErrors, StackyardError
from stackyard.expose.published import MODULE
from stackyard.inputs.load import load_stack
from stackyard.inputs.models import Site
from stackyard.inputs.sites.site import load_site
from stackyard.inputs.stacks.naming import safe
from stackyard.launch.plan.model import Allocation
from stackyard.launch.plan.schedulers import TABLE
from stackyard.launch.request.intent import Intent, made, recorded_intent
from stackyard.launch.request.job_file import load_job
from stackyard.make.activation.capture import environment_variables
from stackyard.yard import formats
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import MANIFEST
from stackyard.yard.revision.record import RECORD
from support import stackrecords

BAD_NAMES = ("X;touch P;Y", "X Y", "X$(touch P)", "X`touch P`", "X\\nY", "1X", "é", "X-Y", "", "UID", "BASH_FUNC_f%%")
"""As they stand inside double quotes in YAML and JSON."""

STACK = {
    "variables": 'variables: {{"{}": v}}',
    "run": 'run: {{variables: {{"{}": v}}}}',
    "build": 'build: {{variables: {{"{}": v}}}}',
    "package": 'build: {{packages: {{six: {{variables: {{"{}": v}}}}}}}}',
    "module": 'modules: {{variables: {{"{}": v}}}}',
    "environment": 'environment: {{dependencies: [python], variables: {{"{}": v}}}}',
    "licence": 'licences: [{{name: x, variable: "x{}"}}]',
    "keep": 'build: {{keep: ["{}"]}}',
}
SITE = {
    "run": 'run_variables: {{"{}": v}}',
    "launch": 'launch: {{variables: {{"{}": v}}}}',
    "container": 'launch: {{container: {{variables: {{"{}": v}}}}}}',
    "node": 'nodes: {{gpu: {{variables: {{"{}": v}}}}}}',
    "stacks": 'stacks: {{force: {{variables: {{"{}": v}}}}}}',
}
WORDS = {
    "modules: {family: 'x;touch P'}": "stack",
    "modules: {conflict: ['a b']}": "stack",
    "modules: {depends_on: [-x]}": "stack",
    "build: {modules: ['a;b']}": "stack",
    "build: {tools: [{name: 'nvcc;x'}]}": "stack",
    'modules: {notice: "a\\0b"}': "stack",
    'variables: {A: "a\\0b"}': "stack",
    'variables: {A: "a\\ud800b"}': "stack",
    "modules: {family: a-b}": "site",
    "modules: {aliases: {pytorch: 'x y'}}": "site",
    "modules: {aliases: {pytorch: 'x{python}.lua'}}": "site",
    "modules: {aliases: ['a;b']}": "stack",
    "user_paths: {suffix: ../x}": "site",
    "user_paths: {bases: ['SCRATCH;x']}": "site",
    "nodes: {gpu: {local_disk: '/tmp/$(touch P)'}}": "site",
    "nodes: {gpu: {nics: ['hsn0;x']}}": "site",
    "nodes: {gpu: {queue: '-x'}}": "site",
    "launch: {interface: 'a b'}": "site",
    'scheduler: {queue: "a\\nb"}': "site",
    "variables: {'A B': v}": "job",
    'batch: {account: "a\\n#SBATCH --wrap=x"}': "job",
    "batch: {name: 'a[1-9]'}": "job",
    "batch: {array: '1;x'}": "job",
    'container: "a\\nb"': "job",
}


def refused(path: Path, kind: str, text: str) -> list[StackyardError]:
    """The errors of a file whose second line is `text`."""
    head = {
        "stack": "name: s\n{}\n", "site": "name: s\n{}\n", "job": "format: 1\n{}\nprogram: [x]\n",
    }[kind]  # fmt: skip
    more = "environment: {dependencies: [python]}\nversion: '1'\n" if kind == "stack" else ""
    more = more if "environment:" not in text else "version: '1'\n"
    path.write_text(head.format(text) + more, encoding="utf-8")
    read = {"stack": lambda: load_stack(path, Site()), "site": lambda: load_site(path), "job": lambda: load_job(path)}
    try:
        read[kind]()
    except ManyErrors as error:
        return list(error.problems)
    except InputError as error:
        return [error]
    return []


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_of_a_variable_is_refused_wherever_it_is_written(tmp_path: Path, name: str) -> None:
    for kind, table in (("stack", STACK), ("site", SITE)):
        for key, text in table.items():
            if key == "licence" and name in ("1X", "", "UID"):
                continue  # with an x before it, it is one
            found = refused(tmp_path / f"{kind}.yaml", kind, text.format(name))
            assert found, f"{kind} {key}: {name!r} was accepted"
            assert all(error.where and error.where.line == 2 for error in found), (key, found)
            assert "is not a variable name" in found[0].message
            assert found[0].hint


@pytest.mark.parametrize(("text", "kind"), WORDS.items())
def test_other_words_are_refused_with_their_line(tmp_path: Path, text: str, kind: str) -> None:
    found = refused(tmp_path / f"{kind}.yaml", kind, text)
    assert found, "it was accepted"
    assert all(error.where and error.where.line == 2 for error in found), found


@pytest.mark.parametrize("name", ["PATH", "MODULEPATH"])
def test_path_is_not_replaced_for_users(tmp_path: Path, name: str) -> None:
    doors = [("stack", "variables"), ("stack", "run"), ("stack", "module"), ("site", "run")]
    doors += [("stack", "environment")] if name != "PATH" else []  # there conda ignores it, with a notice
    for kind, key in doors:
        text = (STACK if kind == "stack" else SITE)[key].format(name)
        found = refused(tmp_path / f"{kind}.yaml", kind, text)
        assert [error.where.line for error in found if error.where] == [2], (key, found)
        assert "it is reserved" in found[0].message
    assert refused(tmp_path / "stack.yaml", "stack", STACK["build"].format(name)) == []
    assert refused(tmp_path / "site.yaml", "site", SITE["launch"].format(name)) == []


def test_names_of_axes_in_a_module_name_are_filled_in_before_they_are_judged(tmp_path: Path) -> None:
    file = tmp_path / "stack.yaml"
    text = (
        "name: s\nversion: '1'\nmatrix: {{cuda: ['12.4', '{}']}}\nmodules: {{depends_on: ['cuda/{{cuda}}']}}\n"
        "environment: {{dependencies: [python]}}\n"
    )
    file.write_text(text.format("11.8"))
    assert [v.modules.depends_on for v in load_stack(file, Site()).variants] == [("cuda/12.4",), ("cuda/11.8",)]
    file.write_text(text.format("1 1"))
    with pytest.raises(InputError, match="'cuda/1 1' is not a module name"):
        load_stack(file, Site())


def test_a_module_is_never_named_like_an_option_or_the_spider(tmp_path: Path) -> None:
    assert [safe(text) for text in (".-rf", "-x", "__spider", "a b", "1.lua")] == ["rf", "x", "", "a-b", ""]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_package_with_such_a_variable_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """conda would write the name into ``export NAME=...``."""
    file = tmp_path / "etc/conda/env_vars.d/evil.json"
    file.parent.mkdir(parents=True)
    file.write_text(f'{{"{name}": "v"}}')
    (tmp_path / "conda-meta").mkdir()
    meta = {"files": ["etc/conda/env_vars.d/evil.json"]}
    (tmp_path / "conda-meta/evil-1.0-0.json").write_text(json.dumps(meta))
    with pytest.raises(StackyardError, match=r"the package evil-1.0-0 sets an invalid variable in .*evil\.json"):
        environment_variables(tmp_path)


def test_no_operation_can_be_made_with_such_a_name() -> None:
    for make in (
        lambda: Set("X;touch P", "v"), lambda: Set("X\n", "v"), lambda: Set("X", "a\0b"), lambda: Set("X", "\ud800"),
        lambda: Function("f g", {}), lambda: Function("if", {}), lambda: Function("f", {"s h": ""}),
        lambda: UserPath("U", ("S;x",), "s", "f"), lambda: OnUnload({}, ("A B",)),
    ):  # fmt: skip
        with pytest.raises(grammar.GrammarError):
            make()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("module", "s/-rf"), ("module", "s/../../x"), ("module", "s/1.lua"),
        ("settings", {"variables": {"X;touch P": "v"}}), ("settings", {"variables": {"X": "a\0"}}),
        ("settings", {"family": "x;touch P"}), ("settings", {"depends_on": ["a b"]}),
        ("settings", {"conflict": ["-x"]}),
        ("licences", [{"variable": "X Y"}]),
        ("activation", {"change": [{"op": "set", "variable": "X;touch P", "value": "v"}]}),
        ("activation", {"change": [{"op": "alias", "name": "a b", "value": "v"}]}),
    ],
)  # fmt: skip
def test_a_record_on_disk_with_such_a_name_is_refused_with_its_path(
    tmp_path: Path, data: Path, key: str, value: object
) -> None:
    file = tmp_path / "record.json"
    for old in ("record-1.json", "record-2.json"):  # an old file is no way round either
        file.write_text(json.dumps({**json.loads((data / "formats" / old).read_text()), key: value}))
        with pytest.raises(StackyardError, match=f"cannot read {file}: .* is not a"):
            formats.load(file, RECORD)
    new = {**stackrecords.record(Yard(tmp_path), "s", "1").to_json(), key: value}
    with pytest.raises(StackyardError, match=r"cannot read FILE: .* is not a"):
        formats.read(new, "FILE", RECORD)


def test_a_manifest_and_frozen_operations_with_such_a_name_are_refused_with_their_path(
    tmp_path: Path, data: Path
) -> None:
    file = tmp_path / "file.json"
    manifest = json.loads((data / "formats/manifest-1.json").read_text())
    manifest["entries"][0]["aliases"] = ["$(touch P)"]
    file.write_text(json.dumps(manifest))
    with pytest.raises(StackyardError, match=f"cannot read {file}: .* is not a module name"):
        formats.load(file, MANIFEST)
    file.write_text(json.dumps({"format": 2, "change": [{"op": "flags", "variable": "A B", "text": ""}]}))
    with pytest.raises(StackyardError, match=f"cannot read {file}: 'A B' is not a variable name"):
        formats.load(file, MODULE)


@pytest.mark.parametrize("host", ["n1;touch P", "-x", "$(touch P)", "n 1", "n1\n"])
def test_a_host_of_an_allocation_is_a_hostname(host: str) -> None:
    with pytest.raises(InputError, match="is not a hostname"):
        Allocation("slurm", "1", ("n1", host))
    with pytest.raises(InputError, match="is not a hostname"):
        TABLE["slurm"].allocation({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1,$(touch_P)"})


def test_options_and_recorded_runs_have_the_same_doors() -> None:
    with pytest.raises(InputError, match=r"--variables.A B: 'A B' is not a variable name"):
        made(Intent, {"variables": {"A B": "v"}}, lambda key: f"--{key}")
    with pytest.raises(InputError, match=r"record.json: intent.batch.queue: '-x' is not a word"):
        recorded_intent({"batch": {"queue": "-x"}}, Path("record.json"))


def test_an_operation_is_read_as_it_was_written() -> None:
    change = EnvironmentChange((Set("A", "x"), Function("a-b.c", {"sh": ":"}), OnUnload({"sh": ":"}, ("A",))))
    assert EnvironmentChange.from_json(change.to_json()) == change


def test_a_value_is_as_long_as_linux_takes_it_in_bytes() -> None:
    for text, bytes_each in (("a", 1), ("é", 2), ("\U0001f600", 4)):
        value = text * (grammar.VALUE.most_bytes // bytes_each)
        assert grammar.VALUE(value) == value
        assert subprocess.run(["/bin/true"], env={"V" * 255: value}, check=False).returncode == 0
        with pytest.raises(grammar.GrammarError):
            grammar.VALUE(value + text)
