"""Extensions, the whole way: made from a loaded base, loaded, drifted, recorded, rebased, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from extendbed import Bed
from extendbed import bed as new_bed

from stackyard.lock.lockfile.text import read as read_lock
from stackyard.yard.revision.record import BuildRecord, read_record
from support import programs

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Iterator[Bed]:
    programs.need("lmod")
    made = new_bed(tmp_path_factory.mktemp("extend"), real_channel)
    made.publish()
    made.loaded("sci", "stackyard extend --name mine --pip 'rich>=14'")
    yield made


def _record(bed: Bed, name: str = "mine") -> BuildRecord:
    return read_record(Path(bed.user("show", name, "--json").value["path"]) / "record.json")


def test_an_extension_has_what_its_base_has_and_installs_only_what_is_new(published: Bed) -> None:
    record = _record(published)
    assert record.module == "mine/1.0-py311-1" and record.base is not None
    base = json.loads((published.site_yard / "stacks/sci/1.0-py311-1/record.json").read_text())
    assert (record.base.id, record.base.hash) == ("sci/1.0-py311-1", base["input_hash"])
    assert record.base.yard == str(published.site_yard)
    assert [p.name for p in record.own_packages] == ["markdown-it-py", "mdurl", "rich"]  # pygments is the base's
    assert {"python", "pytest", "pygments", "idna"} <= {p.name for p in record.packages if p.of_base}
    use = record.disk
    assert use.inodes_new + use.inodes_shared < sum(base["disk"][k] for k in ("inodes_new", "inodes_shared")) / 4


@pytest.mark.parametrize("system", ["lmod", "em"])
def test_its_module_loads_the_layer_over_the_base_and_unloads(published: Bed, system: str) -> None:
    if system == "em":
        programs.need("tclsh8.6")
    code = "import pluggy, rich, pygments, sys; print(pluggy.__file__, rich.__file__, sys.prefix)"
    shown = published.loaded(
        "mine", f"python -c '{code}'", "module unload mine", "echo left=[$CONDA_PREFIX$MANPATH$PYTHONNOUSERSITE]",
        "case $PATH in *stacks/*) echo still there;; esac", system=system,
    )  # fmt: skip
    prefix = f"{published.yard}/stacks/mine/1.0-py311-1/prefix"
    assert f"{published.site_yard}/stacks/sci/1.0-py311-1/prefix/lib/python3.11/site-packages/pluggy/" in shown
    assert f"{prefix}/lib/python3.11/site-packages/rich/" in shown and shown.count(prefix) == 2
    assert "left=[]" in shown and "still there" not in shown


def test_a_command_of_the_base_sees_the_layer(published: Bed) -> None:
    (published.directory / "test_layer.py").write_text("import rich, idna\n\n\ndef test_it(): assert rich and idna\n")
    shown = published.loaded("mine", "pytest -q -p no:cacheprovider test_layer.py", "head -c 2 $(command -v pytest)")
    assert "1 passed" in shown and shown.rstrip().endswith("#!")


def test_the_verbs_know_it(published: Bed) -> None:
    assert published.user("diff", "sci", "mine").out.splitlines() == [
        "+ markdown-it-py 3.0.0 (pip)", "+ mdurl 0.1.2 (pip)", "+ rich 14.0.0 (pip)",
    ]  # fmt: skip
    why = published.user("why", "mine", "pygments").out
    assert "pygments 2.19.1 <- rich 14.0.0" in why
    assert "on sci/1.0-py311-1" in published.user("status").out
    assert published.user("verify", "mine").code == 0
    assert published.user("run", "mine", "--", "python", "-c", "import rich, idna").code == 0
    launched = published.user("launch", "--with", "mine", "-r", "1", "python", "-c", "import rich; print(rich)")
    assert f"{published.yard}/stacks/mine/" in launched.out + launched.err
    assert "mine/1.0-py311-1" in published.user("list").out


def test_its_damaged_files_are_restored(published: Bed) -> None:
    prefix = Path(_record(published).prefix)
    lost = [prefix / "bin/markdown-it", next(prefix.glob("lib/python3.11/site-packages/_stackyard_base.pth"))]
    before = [path.read_bytes() for path in lost]
    for path in lost:
        path.parent.chmod(0o755)
        path.unlink()
    assert "4 faults found, 0 left" in published.user("fsck", "mine", "--repair").out
    assert [path.read_bytes() for path in lost] == before
    assert "nothing is wrong" in published.user("fsck", "--deep").out


def test_packages_that_its_python_does_not_find_are_no_met_requirements(published: Bed) -> None:
    """The base's Python was replaced by one of another minor version: it looks into another directory."""
    (packages,) = Path(_record(published).prefix).glob("lib/python3.11")
    other = packages.with_name("python3.99")
    packages.rename(other)
    try:
        shown = published.user("verify", "mine", expect=3)
    finally:
        other.rename(packages)
    assert f"does not search {other}/site-packages: it is not on its sys.path" in shown.out + shown.err
    published.user("verify", "mine")


def test_it_is_exported_with_its_base(published: Bed) -> None:
    environment = published.user("export", "mine").out
    assert "- rich==14.0.0" in environment and "- idna==3.10" in environment and "- python=3.11.7=" in environment
    requirements = published.user("export", "mine", "--as", "requirements").out.splitlines()
    assert "rich==14.0.0" in requirements and "# conda: python 3.11.7 0_cpython" in requirements
    assert "rich-14.0.0-py3-none-any.whl" in published.user("export", "mine", "--as", "pylock").out
    assert "/python-3.11.7-0_cpython." in published.user("export", "mine", "--as", "explicit").out
    assert published.user("export", "sci", "--as", "pixi").out.startswith("# sci 1.0 py311 for linux-64: pixi.lock")
    assert "known: pixi" in published.user("export", "sci", "--as", "conda", expect=2).err
    assert published.user("export", "sci", "-o", "/proc/x.yml", expect=1).err.startswith(
        "error: cannot write /proc/x.yml: "
    )
    file = published.directory / "exported" / "stack.yaml"
    published.user("export", "mine", "--as", "stack", "-o", file, "--dry-run")
    assert not file.exists()
    published.user("export", "mine", "--as", "stack", "-o", file)
    published.user("lock", file)
    refused = published.user("export", file, "--as", "pixi", expect=2).err
    assert f"{file} is a file, not a revision\n" in refused and f"stackyard lock {file} --export pixi" in refused
    assert "stackyard export sci --as pixi" in published.user("lock", "sci", "--export", "pixi", expect=2).err
    same = {(p.name, p.version) for p in _record(published).packages}
    (locked,) = read_lock(file.with_name("stack.yaml.lock")).variants
    assert {(p.name, p.version) for p in locked.packages} == same


def test_what_contradicts_the_base_is_refused_and_nothing_changes(published: Bed) -> None:
    before = (published.yard / "extensions/mine/requirements.txt").read_text()
    refused = published.user("extend", "--name", "mine", "--pip", "pygments<2", expect=2)
    assert "the base sci/1.0-py311-1 has pygments 2.19.1" in refused.err and "pygments<2" in refused.err
    assert "--full" in refused.err
    refused = published.user("extend", "--base", "sci", "--name", "other", "--pip", "pygments<2", expect=2)
    assert (published.yard / "extensions/mine/requirements.txt").read_text() == before
    assert not (published.yard / "extensions/other").exists() and not (published.yard / "stacks/other").exists()


@pytest.mark.parametrize("name", ["with space", "../up", "line\nbreak", "ünï", "", "-x", "sci"])
def test_names_that_cannot_be_a_modules_are_refused(published: Bed, name: str) -> None:
    refused = published.user("extend", "--base", "sci", "--name", name, "--pip", "mdurl", expect=2)
    assert "error: " in refused.err and "Traceback" not in refused.err
    assert not (published.yard / "stacks/up").exists() and not (published.directory / "up").exists()


@pytest.mark.parametrize("text", ["", " ", "mdurl\nidna", "--index-url=http://x"])
def test_requirements_that_are_none_are_refused(published: Bed, text: str) -> None:
    refused = published.user("extend", "--name", "mine", f"--pip={text}", expect=2)
    assert "is not a requirement" in refused.err


def test_a_layer_is_never_kept_in_an_image(published: Bed) -> None:
    file = published.yard / "extensions/mine/stack.yaml"
    refused = published.user("deploy", file, "--image", "squashfs", expect=2).err
    assert "a stack with a `base:` has files of its own, not an image" in refused and "leave out --image" in refused
    site = published.site.read_text()
    published.site.write_text(f"{site}fs: {{max_inodes: 10}}\n")
    done = published.user("extend", "--name", "small", "--base", "sci", "--pip", "mdurl")
    published.site.write_text(site)
    assert "the site's limit is 10; a stack with a `base:` has files of its own, not an image" in done.out + done.err
    assert _record(published, "small").form.kind == "prefix"


def test_nothing_loaded_and_nothing_named(published: Bed) -> None:
    refused = published.user("extend", "--name", "other", "--pip", "mdurl", expect=2)
    assert "none is loaded" in refused.err and "--base REV" in refused.err


def test_pip_in_a_base_says_what_to_type(published: Bed) -> None:
    shown = published.loaded("sci", "pip install mdurl && exit 1", "python -m pip install mdurl && exit 1", "exit 0")
    assert shown.count("stackyard extend --base sci/1.0-py311-1 --name mine --pip NAME") == 2


def test_a_full_disk_leaves_nothing_behind(published: Bed) -> None:
    words = ("extend", "--base", "sci", "--name", "full", "--pip", "zipp")
    failed = published.user(*words, expect=1, STACKYARD_FAULT="link:1:enospc")
    assert "no space" in failed.err.lower()
    assert not (published.yard / "extensions/full").exists()
    assert not list((published.yard / "stacks/full").glob("*/prefix"))
    assert published.user(*words).code == 0


def _pip_installs_and_status_shows_it(published: Bed) -> None:
    shown = published.loaded(
        "mine", "pip install -q six idna || exit 3", "python -c 'import six; print(six.__file__)' || exit 4",
        "stackyard status", "python -m pip list",
    )  # fmt: skip
    assert "/drift/lib/python3.11/site-packages/six.py" in shown
    assert "+ six 1.17.0 (pip)" in shown and "+ idna" not in shown  # the base has idna
    assert "stackyard update mine" in shown and "pluggy" in shown
    record = _record(published)
    assert "six" not in {p.name for p in record.packages}
    assert published.user("verify", "mine").code == 0  # what is recorded is untouched
    told = published.user("fsck", "--deep")
    assert "nothing is wrong" in told.out and "mine/1.0-py311-1: 1 package not in its record: + six" in told.err


def _update_records_it(published: Bed) -> None:
    shown = published.loaded("mine", "stackyard update", "module load mine", "python -c 'import six; print(six)'")
    assert "+ six 1.17.0 (pip)" in shown and "mine/1.0-py311-2/prefix" in shown
    assert [p.name for p in _record(published).own_packages][-1] == "six"
    status = published.user("status", "mine", "--json").value[0]
    assert (status["module"], status["drift"]) == ("mine/1.0-py311-2", [])


def _reset_removes_it(published: Bed) -> None:
    shown = published.loaded(
        "mine", "pip install -q zipp || exit 3", "stackyard update --reset --dry-run", "stackyard update --reset",
        "python -c 'import zipp' 2>/dev/null || echo gone", "pip install -q zipp && python -c 'import zipp, rich'",
        "stackyard update --reset",
    )  # fmt: skip
    assert "would remove zipp" in shown and "removed zipp 3.22.0" in shown and "gone" in shown


def _list_and_status_say_that_it_is_behind(published: Bed) -> None:
    assert "mine/" not in "".join(x for x in published.user("list").out.splitlines() if "behind" in x)
    published.publish(version="1.1")
    assert "mine/1.0-py311-2 is behind its base: sci/1.1-py311-1" in published.user("list").out
    assert "behind: sci/1.1-py311-1" in published.user("status", "mine").out


def _a_dry_run_changes_nothing(published: Bed) -> None:
    shown = published.user("rebase", "mine", "--dry-run").out
    assert "on sci/1.1-py311-1 (before: sci/1.0-py311-1)" in shown
    assert "base: sci/1.0-py311-1" in (published.yard / "extensions/mine/stack.yaml").read_text()


def _rebase_switches_and_the_former_one_stays(published: Bed) -> None:
    shown = published.user("rebase", "mine").out
    assert "mine/1.0-py311-2 -> mine/1.1-py311-1" in shown
    record = _record(published)
    assert record.base is not None and record.base.id == "sci/1.1-py311-1"
    assert published.user("run", "mine/1.0-py311-2", "--", "python", "-c", "import rich, six, idna").code == 0
    assert "newest revision" in published.user("rebase", "mine").out
    assert "mine/" not in "".join(x for x in published.user("list").out.splitlines() if "behind" in x)


@pytest.mark.long
def test_what_pip_installs_is_seen_and_recorded_or_removed_and_a_new_base_is_taken(published: Bed) -> None:
    """The life of one extension, in this order."""
    _pip_installs_and_status_shows_it(published)
    _update_records_it(published)
    _reset_removes_it(published)
    _list_and_status_say_that_it_is_behind(published)
    _a_dry_run_changes_nothing(published)
    _rebase_switches_and_the_former_one_stays(published)


def test_it_starts_without_what_a_layer_of_wheels_does_not_need(published: Bed) -> None:
    words = ("extend", "--base", "sci", "--name", "quick", "--pip", "six")
    err = published.user(*words, PYTHONPROFILEIMPORTTIME="1").err
    imported = {line.rpartition("|")[2].strip() for line in err.splitlines() if line.startswith("import time:")}
    assert "stackyard.make.layer" in imported
    unneeded = {"pydantic", "rattler", "asyncio", "elftools", "stackyard.images.form", "stackyard.images.sif.file"}
    unneeded |= {"ssl", "http.server", "urllib.request", "importlib.metadata"}
    assert imported & unneeded == set()
