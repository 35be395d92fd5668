"""Short names, alias modules, swaps and refusals, as the real module systems understand them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.inputs.sites.sitemodels import ModulePolicy, Site
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import PackageRecord
from support import modules, stackrecords
from support.stackrecords import entry, record

pytestmark = pytest.mark.real
SWAP = {"lmod": "swap", "em": "switch"}
TENSORFLOW = (PackageRecord("tensorflow", "2.16.1", "conda"), PackageRecord("numpy", "1.26.4", "conda"))


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """Two versions of powerai (one with two revisions), flow, a stack called horovod, one withdrawn, one hidden."""
    yard = Yard(tmp_path_factory.mktemp("names") / "yard")
    aliases = {"aliases": ["pytorch", "horovod"]}
    old, new, newest = (
        record(yard, "powerai", v, r, settings=aliases) for v, r in (("1.6", 1), ("1.7", 1), ("1.7", 2))
    )
    flow = record(yard, "flow", "3", packages=TENSORFLOW, settings={"deprecated": "2026-12-01 use powerai instead"})
    other = record(yard, "horovod", "0.1")
    gone = record(yard, "powerai", "1.5", settings=aliases)
    secret = record(yard, "secret", "1", settings={"hidden": True})
    entries = [
        entry(old, "1.6", "1.6-py311"),
        entry(new),
        entry(newest, "1.7", "1.7-py311", default=True),
        entry(flow, "3", "3-py311", default=True, deprecated="2026-12-01 use powerai instead"),
        entry(other, default=True),
        entry(gone, state="withdrawn"),
        entry(secret, hidden=True),
    ]
    site = Site(modules=ModulePolicy(aliases={"tensorflow": "tensorflow-py3"}))
    stackrecords.publish(yard, entries, [old, new, newest, flow, other, gone, secret], site=site)
    return yard


def typed(yard: Yard, tmp_path: Path, system: str, *lines: str) -> str:
    """What bash prints for these lines after ``module use``; stops with a skip where the system is missing."""
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    text = [modules.initialise(system, "bash"), f"module use {yard.modules}", *lines]
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "TERM": "dumb"}
    return modules.run("bash", "\n".join(text) + "\n", environ, tmp_path)


LOADED = 'echo "loaded=[$LOADEDMODULES] prefix=[$CONDA_PREFIX]"'


@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("powerai", "powerai/1.7-py311-2"),
        ("powerai/1.7", "powerai/1.7-py311-2"),
        ("powerai/1.7-py311", "powerai/1.7-py311-2"),
        ("powerai/1.7-py311-1", "powerai/1.7-py311-1"),
        ("powerai/1.6", "powerai/1.6-py311-1"),
        ("powerai/1.5-py311-1", "powerai/1.5-py311-1"),
        ("secret/1-py311-1", "secret/1-py311-1"),
        ("pytorch", "powerai/1.7-py311-2"),
        ("pytorch/2.13.0", "powerai/1.7-py311-2"),
        ("tensorflow-py3", "flow/3-py311-1"),
        ("tensorflow-py3/2.16.1", "flow/3-py311-1"),
        ("horovod", "horovod/0.1-py311-1"),
    ],
)
def test_names_mean_what_they_say(yard: Yard, tmp_path: Path, system: str, name: str, module: str) -> None:
    stack, _, version = module.partition("/")
    out = typed(yard, tmp_path, system, f"module load {name}", LOADED, f"module unload {stack}", LOADED)
    loaded, unloaded = (line for line in out.splitlines() if line.startswith("loaded="))
    assert loaded == f"loaded=[{module}] prefix=[{yard.stacks / stack / version / 'prefix'}]"
    assert unloaded == "loaded=[] prefix=[]"


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_withdrawn_and_hidden_ones_are_not_listed(yard: Yard, tmp_path: Path, system: str) -> None:
    out = typed(yard, tmp_path, system, "module -t avail 2>&1")
    assert "powerai/1.7-py311-2" in out
    assert "powerai/1.5" not in out
    assert "secret" not in out


@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize(
    ("first", "second"),
    [("pytorch/2.13.0", "tensorflow-py3"), ("powerai", "tensorflow-py3/2.16.1"), ("powerai/1.6", "powerai/1.7")],
    # Lmod finds a loaded module by the stack's name, not by an alias
)
def test_no_alias_outlives_its_stack(yard: Yard, tmp_path: Path, system: str, first: str, second: str) -> None:
    """After a swap by hand only the second stack is there, and its unload leaves nothing."""
    lines = (f"module load {first}", f"module {SWAP[system]} powerai {second}", LOADED, "module purge", LOADED)
    out = typed(yard, tmp_path, system, *lines)
    swapped, purged = (line for line in out.splitlines() if line.startswith("loaded="))
    assert ("flow/3-py311-1" if "tensorflow" in second else "powerai/1.7-py311-2") in swapped
    assert swapped.count(":") == 0, "one module is loaded"
    assert purged == "loaded=[] prefix=[]"


def test_lmod_changes_over_by_itself(yard: Yard, tmp_path: Path) -> None:
    out = typed(yard, tmp_path, "lmod", "module load pytorch", "module load tensorflow-py3", LOADED)
    assert "loaded=[flow/3-py311-1]" in out


@pytest.mark.parametrize(("first", "second"), [("pytorch", "flow"), ("powerai/1.6", "powerai")])
def test_environment_modules_shows_the_switch_line(yard: Yard, tmp_path: Path, first: str, second: str) -> None:
    lines = (f"module load {first}", f"module load {second}", "echo rc=$?", LOADED)
    out = typed(yard, tmp_path, "em", *lines)
    line = next(line.strip() for line in out.splitlines() if "module switch" in line)
    assert "rc=1" in out
    again = typed(yard, tmp_path, "em", f"module load {first}", line, "echo rc=$?", LOADED)
    assert "rc=0" in again
    assert again.rsplit("loaded=[", 1)[1].startswith("flow/3" if second == "flow" else "powerai/1.7-py311-2]")


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_deprecation_is_said_at_load_only(yard: Yard, tmp_path: Path, system: str) -> None:
    out = typed(yard, tmp_path, system, "module load flow", "echo -----", "module unload flow")
    before, _, after = out.partition("-----")
    assert "flow/3-py311-1 is deprecated: 2026-12-01 use powerai instead" in before
    assert "is deprecated" not in after


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_help_says_what_is_inside(yard: Yard, tmp_path: Path, system: str) -> None:
    out = typed(yard, tmp_path, system, "module help powerai")
    assert "pytorch 2.13.0" in out
    assert "stackyard show powerai/1.7-py311-2" in out
    assert "--system-site-packages" in out


def test_spider_finds_a_package(yard: Yard, tmp_path: Path) -> None:
    assert "powerai/1.7-py311-2" in typed(yard, tmp_path, "lmod", "module spider numpy/1.26.4")


def test_the_spider_cache_belongs_to_the_generation(yard: Yard, tmp_path: Path) -> None:
    """Read through the link, from a tree whose modulefiles Lmod could not list: so it is the cache that is read."""
    cache = yard.modules / "__spider"
    text = (cache / "spiderT.lua").read_text()
    assert str(yard.modules) in text
    assert str(yard.generation(1).root) not in text
    lines = (
        f"export LMOD_RC={cache / 'lmodrc.lua'} LMOD_CACHED_LOADS=yes",
        "module -t avail 2>&1",
        "module load pytorch",
    )
    out = typed(yard, tmp_path, "lmod", *lines, LOADED, "module --config 2>&1 | grep -A3 'Cache Dir'")
    assert "loaded=[powerai/1.7-py311-2]" in out
    assert str(cache) in out


@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_host_modules_come_and_go_with_the_stack(tmp_path: Path, system: str) -> None:
    own = Yard(tmp_path / "yard")
    made = record(own, "hvd", "1", settings={"depends_on": ["openmpi/4"], "conflict": ["intel"]})
    stackrecords.publish(own, [entry(made, default=True)], [made])
    host = tmp_path / "host"
    for name in ("openmpi/4", "intel/1"):
        (host / name).parent.mkdir(parents=True)
        (host / name).write_text(f"#%Module\nsetenv {name.partition('/')[0].upper()} there\n")
    show = 'echo "loaded=[$LOADEDMODULES] mpi=[$OPENMPI]"'
    lines = (
        f"module use {host}",
        "module load hvd",
        show,
        "module unload hvd",
        show,
        "module load intel hvd",
        "echo $?",
    )
    out = typed(own, tmp_path, system, *lines)
    loaded, unloaded = (line for line in out.splitlines() if line.startswith("loaded="))
    assert "openmpi/4" in loaded and loaded.endswith("mpi=[there]")
    assert unloaded == "loaded=[] mpi=[]"
    assert out.rstrip().splitlines()[-1] == "1"
    assert any(word in out.lower() for word in ("conflicting", "cannot load module"))
