"""Modulefiles are a pure function of a record: their text, what it may never hold, and that it loads."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from stackyard.core.change import (
    Default,
    EnvironmentChange,
    Flags,
    Function,
    Notice,
    OnUnload,
    Operation,
    Prepend,
    Set,
    SetRestorable,
    UserPath,
)
from stackyard.core.errors import StackyardError
from stackyard.expose.base import base_change, full_change, merged
from stackyard.expose.condarc import condarc_text
from stackyard.expose.generation import module_texts
from stackyard.expose.limits import limits, unquotable_in
from stackyard.expose.modulefiles import lua, tcl
from stackyard.expose.names import alias_modules
from stackyard.expose.published import change_of, freeze
from stackyard.inputs.sites.sitemodels import ChannelPolicy, CondaRc, LicencePolicy, ModulePolicy, Site, UserPaths
from stackyard.inputs.workspace import Workspace
from stackyard.make.seal import pinned_text
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import Activation, BuildRecord
from support import modules, stackrecords
from support.hostile import CHANGE
from support.stackrecords import CONDA, entry, record

GOLDEN = Path(__file__).parent / "golden"
RENDER = {"lua": lua.render, "tcl": tcl.render}
ODD = ["a b", 'say "x"', "it's", "$HOME", "[x]", "{y}", "back\\slash", "`id`", "a;b&c|d", "* ?", "ü", "]] ]=]", "#x",
       "a!b", "~", "=x", "", "%1", "a\\nb", "(z)", "<>", "trailing\\"]  # fmt: skip


def fixed(module_path: str = "/yard") -> BuildRecord:
    """A record whose paths are the same on every machine."""
    made = stackrecords.PYTORCH
    settings = {
        "conflict": ["anaconda"],
        "notice": 'Uses "all" [cores] of $HOSTNAME',
        "variables": {"HVD_HOME": "{prefix}"},
    }
    return BuildRecord(
        stack="pytorch", version="2.13", variant="py311", revision=1, module="pytorch/2.13-py311-1", input_hash="0",
        platform="linux-64", path=f"{module_path}/stacks/pytorch/2.13-py311-1",
        prefix=f"{module_path}/stacks/pytorch/2.13-py311-1/prefix", created="2026-01-01T00:00:00+00:00",
        summary="PyTorch and Horovod for jobs on many nodes", packages=made, settings=settings,
        activation=Activation(CHANGE),
    )  # fmt: skip


@pytest.mark.parametrize("format", ["lua", "tcl"])
def test_the_golden_file_is_what_is_rendered_and_loads(tmp_path: Path, format: str) -> None:
    text = RENDER[format](fixed(), Site(), change=full_change(fixed(), Site()))
    golden = GOLDEN / ("module.lua" if format == "lua" else "module")
    if os.environ.get("REWRITE_GOLDEN"):
        golden.write_text(text)
    assert golden.read_text() == text
    system = "lmod" if format == "lua" else "em"
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    (tmp_path / "pytorch").mkdir()
    there = dataclasses.replace(fixed(), path=str(tmp_path))  # a module whose directory is missing does not load
    loaded = RENDER[format](there, Site(), change=full_change(fixed(), Site()))
    (tmp_path / "pytorch" / f"2.13-py311-1{golden.suffix}").write_text(loaded)
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "MODULEPATH": str(tmp_path)}
    lines = (modules.initialise(system, "bash"), "module load pytorch", "echo $? $CONDA_PREFIX $HVD_HOME; greet you")
    out = modules.run("bash", "\n".join(lines), environ, tmp_path)
    prefix = fixed().prefix
    assert out.splitlines()[-2:] == [f"0 {prefix} {prefix}", "hello you"]
    assert 'Uses "all" [cores] of $HOSTNAME' in out


@pytest.mark.real
@pytest.mark.parametrize("shell", modules.SHELLS)
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_any_value_reaches_the_shell_or_is_announced(tmp_path: Path, system: str, shell: str) -> None:
    """A value is exact while loaded, or `limits` says beforehand that it is not."""
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    format = "lua" if system == "lmod" else "tcl"
    change = EnvironmentChange(tuple(Set(f"ODD{number}", value) for number, value in enumerate(ODD)))
    made = dataclasses.replace(fixed(), packages=(), path=str(tmp_path))
    (tmp_path / "pytorch").mkdir()
    suffix = ".lua" if format == "lua" else ""
    (tmp_path / "pytorch" / f"1{suffix}").write_text(RENDER[format](made, Site(), change=change))
    shot = modules.snapshot(shell, tmp_path / "now")
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "MODULEPATH": str(tmp_path)}
    out = modules.run(shell, f"{modules.initialise(system, shell)}\nmodule load pytorch\n{shot}\n", environ, tmp_path)
    now = modules.take(tmp_path / "now")
    assert now, out
    wrong = {f"ODD{n}" for n, value in enumerate(ODD) if now.environ.get(f"ODD{n}") != value}
    announced = {sentence.partition(":")[0].split()[0] for sentence in limits(change, format, shell)}
    assert wrong <= announced, {name: now.environ.get(name) for name in wrong - announced}
    if shell == "bash" and system == "lmod":
        assert not wrong


@pytest.mark.parametrize("format", ["lua", "tcl"])
def test_nothing_is_run_and_one_directory_is_looked_at(format: str) -> None:
    text = RENDER[format](fixed(), Site(), change=full_change(fixed(), Site()))
    forbidden = r"subprocess|capture\(|popen|isFile|exec |file exists|source_sh|source-sh|LD_LIBRARY_PATH"
    assert not re.search(forbidden, text)
    assert len(re.findall(r"isDir|isdirectory", text)) == 1
    for command in re.findall(r"execute\{cmd=(.*?), modeA", text):
        assert command.startswith('"export -f ')


def test_the_stacks_own_part() -> None:
    change = base_change(fixed(), Site())
    assert Prepend("PATH", f"{fixed().prefix}/bin") in change.operations
    assert {SetRestorable("PYTHONPATH", None), SetRestorable("PYTHONHOME", None)} <= set(change.operations)
    assert not any(getattr(op, "variable", "") == "LD_LIBRARY_PATH" for op in change)
    assert not any(isinstance(op, Function | OnUnload) for op in change)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/h", "SCRATCH": "/s"}, "/s/own/conda/pkgs,{yard}/cache/conda"),
        ({"HOME": "/h", "SCRATCH": ""}, "/h/.x/conda/pkgs,{yard}/cache/conda"),
        ({"HOME": "/h", "CONDA_PKGS_DIRS": "/mine"}, "/mine"),
    ],
)
def test_the_users_directories(tmp_path: Path, environ: dict[str, str], expected: str) -> None:
    made = record(Yard(tmp_path), "base", "1", packages=CONDA)
    site = Site(user_paths=UserPaths(suffix="own", fallback=".x"))
    assert base_change(made, site).apply(environ)["CONDA_PKGS_DIRS"] == expected.format(yard=tmp_path)


def test_a_variable_is_borrowed_once() -> None:
    operations: list[Operation] = [
        SetRestorable("A", "1"),
        Flags("C", "-x"),
        SetRestorable("A", "2"),
        Flags("C", "-y"),
        Flags("A", "3"),
    ]
    assert merged(EnvironmentChange(tuple(operations))).operations == (SetRestorable("A", "2 3"), Flags("C", "-x -y"))


def test_a_licences_variable_is_set_only_where_it_was_accepted(tmp_path: Path) -> None:
    plain = record(Yard(tmp_path), "a", "1")
    agreed = dataclasses.replace(plain, licences=({"name": "IBM", "variable": "IBM_ACCEPT", "who": "me"},))
    assert "IBM_ACCEPT" not in full_change(plain, Site()).apply({})
    assert full_change(agreed, Site()).apply({})["IBM_ACCEPT"] == "yes"
    text = module_texts([entry(agreed)], {agreed.module: agreed}, Workspace(Site(), Yard(tmp_path)))
    assert not any("to accept it" in each for each in text.values())


def test_a_module_of_the_sites_yard_accepts_for_users_only_if_the_site_says_so(tmp_path: Path) -> None:
    plain = record(Yard(tmp_path), "a", "1")
    agreed = dataclasses.replace(plain, licences=({"name": "IBM", "variable": "IBM_ACCEPT", "who": "me"},))
    silent = Site(yard=str(tmp_path))
    spoken = Site(yard=str(tmp_path), licences=LicencePolicy(on_behalf_of_users=("IBM",)))
    assert full_change(agreed, spoken).apply({})["IBM_ACCEPT"] == "yes"
    withheld = full_change(agreed, silent)
    assert "IBM_ACCEPT" not in withheld.apply({}) and "set IBM_ACCEPT=yes" in str(withheld)
    texts = [lua.render(agreed, site, change=withheld) for site in (silent, spoken)]  # as it was published
    assert texts[0] == texts[1] and texts[0].count("or set IBM_ACCEPT=yes") == 2, "help and notice"


def test_published_operations_stay_when_the_site_changes(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    made = record(yard, "a", "1")
    entries, records = [entry(made, default=True)], {made.module: made}
    before = module_texts(entries, records, Workspace(Site(), yard))
    assert not (Path(made.path) / "module.json").exists(), "looking writes nothing"
    freeze(made, Site())
    moved = Site(user_paths=UserPaths(suffix="elsewhere"))
    after = module_texts([dataclasses.replace(entries[0], default=False)], records, Workspace(moved, yard))
    assert after["a/1-py311-1.lua"] == before["a/1-py311-1.lua"]
    assert after["a/1-py311-1"] == before["a/1-py311-1"]
    assert "elsewhere" not in str(change_of(made, moved))
    assert "elsewhere" in str(full_change(made, moved))


def test_a_damaged_freeze_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    made = record(Yard(tmp_path), "a", "1")
    freeze(made, Site())
    (Path(made.path) / "module.json").write_text("{")
    with pytest.raises(StackyardError, match=r"module\.json"):
        change_of(made, Site())


def test_an_entry_without_a_record_is_an_error(tmp_path: Path) -> None:
    made = record(Yard(tmp_path), "a", "1")
    with pytest.raises(StackyardError, match="cannot read the build record"):
        module_texts([entry(made)], {}, Workspace(Site(), Yard(tmp_path)))


def test_only_words_that_every_module_system_knows(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    shown = record(yard, "a", "1", settings={"aliases": ["pytorch"]})
    gone = record(yard, "a", "2")
    entries = [entry(shown, "1", default=True), entry(gone, state="withdrawn")]
    texts = module_texts(entries, {r.module: r for r in (shown, gone)}, Workspace(Site(), yard))
    words = {m for name, text in texts.items() if name.endswith(".lua") and "modulerc" in name
             for m in re.findall(r"^(\w+)\(", text, re.M)}  # fmt: skip
    assert words == {"module_version", "module_alias", "hide_version"}
    assert "module_version" not in texts["a/.modulerc.lua"].split(gone.module)[-1]
    assert "if {[info commands module-hide] ne {}}" in texts["a/.modulerc"]


def test_the_default_revision_wins_an_alias_and_stacks_keep_their_names(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    settings = {"aliases": ["pytorch", "horovod"]}
    first, second = (record(yard, "a", "1", revision, settings=settings) for revision in (1, 2))
    records = {r.module: r for r in (first, second)}
    found = alias_modules([entry(first, default=True), entry(second)], records, Site(), {"horovod"})
    assert found == {"pytorch": first.module, "pytorch/2.13.0": first.module}
    assert alias_modules([entry(first, state="withdrawn")], records, Site(), set()) == {}


@pytest.mark.parametrize("format", [".lua", ""])
def test_whatis_has_the_category_and_the_url_of_the_labels(tmp_path: Path, format: str) -> None:
    made, url = record(Yard(tmp_path), "a", "1"), "https://a.example/docs"
    texts = [
        module_texts([entry(made, **labels)], {made.module: made}, Workspace(Site(), Yard(tmp_path)))[
            f"{made.module}{format}"
        ]
        for labels in ({"category": "machine learning", "url": url}, {})
    ]
    lines = [re.findall(r"whatis.*\b(?:Category|URL): (.*?)[\"}\])]", text) for text in texts]
    assert lines == [["machine learning", url], []]


def test_an_alias_can_name_the_axes_of_its_variant(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    made = [dataclasses.replace(record(yard, "a", "1", number), axes={"python": str(number)}) for number in (2, 3)]
    made += [dataclasses.replace(record(yard, "a", "1", 4), axes=axes) for axes in ({}, {"python": "a b"})]
    site = Site(modules=ModulePolicy(aliases={"pytorch": "pytorch-py{python}"}))
    found = alias_modules([entry(r) for r in made], {r.module: r for r in made}, site, set())
    targets = {name: made[int(name.partition("-py")[2][0]) - 2].module for name in found}
    assert found == targets and set(found) == {"pytorch-py2", "pytorch-py2/2.13.0", "pytorch-py3", "pytorch-py3/2.13.0"}


def test_each_channel_stands_once_in_the_policy_under_its_mirror() -> None:
    vendor, mirror = "https://vendor.example/conda/", "https://m.example/vendor"
    policy = ChannelPolicy(
        prepend=(vendor,), default=(vendor, "defaults", "https://x.example/$TOKEN/c"), mirrors={vendor: mirror,
        "https://repo.anaconda.com/pkgs/main": "https://m.example/main"},
    )  # fmt: skip
    lines = condarc_text(Site(channels=policy)).splitlines()
    assert f'channels: ["{mirror}", "defaults", "https://x.example/$TOKEN/c"]' in lines
    assert 'default_channels: ["https://m.example/main", "https://repo.anaconda.com/pkgs/r"]' in lines
    plain = condarc_text(Site(channels=ChannelPolicy(default=("conda-forge", "defaults")))).splitlines()
    assert 'channels: ["conda-forge", "defaults"]' in plain and not any("default_channels" in line for line in plain)


def test_the_policy_for_what_users_solve() -> None:
    site = Site(
        pins=("cudatoolkit <10.3",),
        channels=ChannelPolicy(mirrors={"conda-forge": "https://m.example/cf"}, denied=("main",)),
        condarc=CondaRc(threads=2, extra={"offline": True}),
    )  # fmt: skip
    lines = condarc_text(site).splitlines()
    assert 'channels: ["https://m.example/cf"]' in lines
    assert {'channel_priority: "strict"', "default_threads: 2", "auto_update_conda: false", "offline: true"} <= set(
        lines
    )
    assert 'pinned_packages: ["cudatoolkit <10.3"]' in lines
    assert pinned_text(site) == "cudatoolkit <10.3\n"


@pytest.mark.parametrize(
    ("operation", "format", "shell", "words"),
    [
        (Function("f", {"sh": ":"}), "lua", "fish", "f is not defined in fish"),
        (Function("f", {"sh": ":"}), "tcl", "zsh", "child shells"),
        (Function("f", {"csh": ":"}), "lua", "tcsh", "alias"),
        (OnUnload({"sh": ":"}), "tcl", "tcsh", "before an unload in tcsh"),
        (Set("A", "a\nb"), "lua", "bash", "line breaks"),
        (Set("A", "{b}"), "lua", "tcsh", "not set in tcsh"),
        (Set("A", "=b"), "tcl", "zsh", "not set in zsh"),
        (Set("A", "~/b"), "tcl", "bash", "another value"),
        (SetRestorable("A", "b"), "lua", "bash", "empty value"),
    ],
)
def test_limits_name_what_cannot_be_said(operation: Operation, format: str, shell: str, words: str) -> None:
    sentences = limits(EnvironmentChange((operation,)), format, shell)  # type: ignore[arg-type]
    assert len(sentences) == 1
    assert words in sentences[0]


def test_what_can_be_said_has_no_limits() -> None:
    change = EnvironmentChange(
        (Prepend("PATH", "/p"), Set("A", "b c"), Default("D", "e"), Notice("n"), UserPath("U", ("S",), "s", "f"))
    )
    assert limits(change, "lua") == limits(change, "tcl", "fish") == []
    assert unquotable_in("plain", "lua") == ()


def test_operations_survive_json() -> None:
    change = full_change(fixed(), Site()) + EnvironmentChange((OnUnload({"sh": ":"}, carry=("A",)),))
    assert EnvironmentChange.from_json(change.to_json()) == change
