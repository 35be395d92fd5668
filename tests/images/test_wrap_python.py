"""Wrapped programs find their files by their own path: Pythons, environments of the image and on top, MPICH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.basebed import oci, of_directory
from images.python_bed import ENV, MPI, PY, VENV, VERSION, python_bed
from images.wrap_bed import Wrapped, need
from stackyard.images.inventory import Inventory, InventoryEntry
from stackyard.images.wrap.starts import starts, with_parts

pytestmark = pytest.mark.real
WHERE = "import sys; print(sys.prefix, sys.base_prefix, sys.executable)"
COMMANDS = f"python,pybase={PY}/bin/python3,tool,again=tool,mpiexec,sh"


@pytest.fixture(scope="module")
def module_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapped]:
    need("mpiexec.hydra")
    made = python_bed(tmp_path_factory.mktemp("py"), mpi=True)
    made.wrap("--version", "1", "--commands", COMMANDS)
    made.end()
    yield made
    made.end()


@pytest.fixture
def py(module_bed: Wrapped) -> Iterator[Wrapped]:
    yield module_bed
    module_bed.end()


def test_a_python_of_a_virtual_environment_is_in_it(py: Wrapped) -> None:
    code = f"import below, inbase; print(inbase.x, below.x, sep='\\n'); {WHERE}"
    for words in ([py.command("python")], [str(py.root / "launch"), "python"], [str(py.root / "launch"), "sh", "-c",
                  'exec python "$@"', "sh"]):  # fmt: skip
        lines = py.run(*words, "-c", code).stdout.splitlines()
        assert lines[:2] == ["of the environment", "of the interpreter"]
        assert lines[2].split()[0::2] == [VENV, f"{VENV}/bin/python"]


def test_an_interpreter_keeps_a_path_that_is_valid_outside(py: Wrapped) -> None:
    prefix, base, executable = py.run(py.command("pybase"), "-c", WHERE).stdout.split()
    assert (prefix, base) == (PY, PY)
    assert py.run(executable, "-c", WHERE).stdout.split() == [PY, PY, executable]


@pytest.mark.parametrize("name", ["python", "pybase"])
def test_an_environment_on_top_starts_outside_and_inside(py: Wrapped, tmp_path: Path, name: str) -> None:
    """Though the interpreter was moved from where it was compiled for: it finds its library beside itself only."""
    venv = tmp_path / name
    py.run(py.command(name), "-m", "venv", "--without-pip", "--system-site-packages", str(venv))
    code = f"import below; print(below.x); {WHERE}"
    if name == "python":  # as docs/howto/wrap.md has it
        site = "import site; print(*site.getsitepackages(), sep='\\n')"
        (venv / f"lib/{VERSION}/site-packages/image.pth").write_text(py.run(py.command(name), "-c", site).stdout)
        assert py.run(f"{venv}/bin/python", "-c", "import inbase; print(inbase.x)").stdout == "of the environment\n"
    own = tmp_path / "own"
    own.write_text(f"#!{venv}/bin/python\n{code}\n")
    own.chmod(0o755)
    for words in ([f"{venv}/bin/python", "-c", code], [str(own)],
                  [str(py.root / "launch"), f"{venv}/bin/python", "-c", code]):  # fmt: skip
        first, second = py.run(*words).stdout.splitlines()
        assert first == "of the interpreter"
        assert second.split()[0::2] == [str(venv), f"{venv}/bin/python"]


def test_what_an_environment_of_the_image_takes_for_its_interpreter_is_valid_outside(py: Wrapped) -> None:
    """uv, virtualenv and scripts of the image's environment make further ones of it."""
    base = "import sys; print(sys._base_executable)"
    for words in ([py.command("python")], [str(py.root / "launch"), f"{VENV}/bin/python3"]):
        path = py.run(*words, "-c", base).stdout.strip()
        assert py.run(path, "-c", WHERE).stdout.split()[0] == PY
    link = py.directory / "mine"
    link.symlink_to(py.command("python"))
    assert py.run(str(link), "-c", WHERE).stdout.split()[0] == VENV


def test_scripts_and_links_find_what_is_beside_them(py: Wrapped) -> None:
    assert py.run(py.command("tool")).stdout == py.run(py.command("again")).stdout == "beside it\n"
    link = py.directory / "linked"
    link.symlink_to(py.command("tool"))
    assert py.run(str(link)).stdout == "beside it\n"
    assert py.sh(f"tool; cd /; {link}; {VENV}/bin/tool") == "beside it\n" * 3


def test_mpiexec_brings_its_parts(py: Wrapped) -> None:
    assert py.record["container"]["commands"]["hydra_pmi_proxy"] == f"{MPI}/bin/hydra_pmi_proxy"
    words = ["-n", "2", "sh", "-c", "echo $PMI_RANK; cat /etc/os-release"]
    done = py.run(py.command("mpiexec"), *words, PATH=f"{py.root}/prefix/bin:{os.environ['PATH']}")
    assert sorted(done.stdout.splitlines()) == ["0", "1", "ID=small", "ID=small"]
    assert Path(py.command("hydra_pmi_proxy")).is_symlink(), "as it is started on other nodes"


def test_verify_compares_what_a_python_is_with_what_it_is_in_its_image(py: Wrapped) -> None:
    assert f"python: sys.prefix {VENV}" in py.stackyard("verify", "py", "--json").out
    own, command = (py.root / "prefix/.inside" / name / "python" for name in (".own", "bin"))
    kept = {path: os.readlink(path) for path in (own, command)}
    for path in kept:
        path.parent.chmod(0o755)
    try:
        own.unlink()
        _replace(command, f"{VENV}/bin/python")
        said = py.stackyard("verify", "py", "--json", expect=3).out
        assert "python has sys.prefix and sys.executable" in said
        assert f", and {VENV} {VENV}/bin/python" in said and "deploy --rebuild" in said
    finally:
        for path, target in kept.items():
            _replace(path, target)


def _replace(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def test_what_it_was_is_again_after_a_move(py: Wrapped, tmp_path: Path) -> None:
    made = Wrapped(tmp_path, "py")
    shutil.copytree(py.directory / "layout", tmp_path / "layout")
    made.wrap("--version", "1", "--commands", COMMANDS)
    made.stackyard("move", tmp_path / "new")
    shutil.move(made.yard, tmp_path / "gone")
    command = str(tmp_path / "new/stacks/py/1-1/prefix/bin/python")
    try:
        assert made.run(command, "-c", WHERE).stdout.split()[0] == VENV
        made.run(command, "-m", "venv", "--without-pip", "v")
        assert made.run(f"{tmp_path}/v/bin/python", "-c", WHERE).stdout.split()[0] == f"{tmp_path}/v"
    finally:
        made.end()


def test_a_script_before_a_python_leaves_it_in_its_environment(py: Wrapped, tmp_path: Path) -> None:
    made = Wrapped(tmp_path, "py")
    shutil.copytree(py.directory / "layout", tmp_path / "layout")
    (tmp_path / "before.sh").write_text("export MADE=1\n")
    made.wrap("--commands", f"python,pybase={PY}/bin/python3", "--before", "before.sh")
    code = "import os, sys; print(os.environ['MADE'], sys.prefix)"
    try:
        assert made.run(made.command("python"), "-c", code).stdout == f"1 {VENV}\n"
        assert made.run(made.command("pybase"), "-c", code).stdout == f"1 {PY}\n"
        made.run(made.command("pybase"), "-m", "venv", "--without-pip", "v")
        assert made.run(f"{tmp_path}/v/bin/python", "-c", code).stdout == f"1 {tmp_path}/v\n"
    finally:
        made.end()


def test_an_isolated_container_of_it(py: Wrapped, tmp_path: Path) -> None:
    made = Wrapped(tmp_path, "py")
    oci(tmp_path / "layout", [of_directory(py.directory / "system")], packed=False, Env=ENV)
    venv = tmp_path / "mine"
    venv.mkdir()
    made.wrap("--commands", "python", "--mode", "isolated", "--bind", str(venv))
    try:
        made.run(made.command("python"), "-m", "venv", "--without-pip", str(venv / "v"))
        assert made.run(f"{venv}/v/bin/python", "-c", WHERE).stdout.split()[0] == f"{venv}/v"
    finally:
        made.end()


def _entries(**links: str) -> Inventory:
    names = {"/usr/bin/python3.11": InventoryEntry("-", "rwxr-xr-x"), "/bin": InventoryEntry("l", "", "usr/bin"),
             "/usr/bin/mpirun.openmpi": InventoryEntry("-", "rwxr-xr-x"), "/v/pyvenv.cfg": InventoryEntry("-", "rw-"),
             "/usr/bin/orted": InventoryEntry("-", "rwxr-xr-x"), "/usr/lib/a": InventoryEntry("d", "")}  # fmt: skip
    for path in ("/", "/usr", "/usr/bin", "/usr/lib", "/v", "/v/bin"):
        names[path] = InventoryEntry("d", "rwxr-xr-x")
    return Inventory({**names, **{path: InventoryEntry("l", "", to) for path, to in links.items()}})


def test_how_commands_start_is_told_by_the_image_alone() -> None:
    listed = _entries(**{"/v/bin/python": "/bin/python3.11", "/usr/bin/mpirun": "mpirun.openmpi"})
    programs = with_parts({"python": "/v/bin/python", "p": "/bin/python3.11", "mpirun": "/bin/mpirun"}, listed)
    assert programs["orted"] == "/bin/orted"
    how = starts(programs, listed, lambda _: "home = /bin\nversion = 3.11\n")
    (tree,) = how.trees
    assert (tree.directory, dict(tree.environments)) == ("/usr/bin", {"/v/pyvenv.cfg": "version = 3.11\n"})
    assert dict(tree.links) == {"/v/bin/python": "/usr/bin/python3.11"}
    assert (dict(how.own), dict(how.makers)) == ({"python": "/v/bin/python"}, {"python": ".base/0/bin/python"})
    moved = how.with_files(tree, programs, listed)
    assert moved.own["p"] == ".base/0/bin/python3.11"
    assert dict(moved.trees[0].files) == {"lib": "/usr/lib"}


def test_settings_of_an_environment_that_lead_nowhere() -> None:
    listed = _entries(**{"/v/bin/python": "/bin/python3.11"})
    for text in ("", "home = bin\n", "home = /none\n", "home\n", "\0"):
        how = starts({"python": "/v/bin/python"}, listed, lambda _, text=text: text)  # type: ignore[misc]
        assert (dict(how.own), list(how.trees)) == ({"python": "/v/bin/python"}, [])
