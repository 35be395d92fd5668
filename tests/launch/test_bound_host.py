"""The host's libraries in an image: a bindings.yaml becomes the words and variables of a launch."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from stackyard.change import EnvironmentChange
from stackyard.errors import InputError, ManyErrors
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.containers import wrap
from stackyard.launch.plan.model import Wrapper
from stackyard.launch.request.intent import Intent
from stackyard.launch.shim import programs, shell
from stackyard.spec.bindings import load_bindings
from stackyard.spec.site import load_site

LAYOUT = Layout(Node("n", (NodeDomain(0, (0,), ()),), 1), (Block(0, 1, (Slot(0, (0,), ()),)),))
BINDINGS = """\
format: 1
name: spectrum
mpi: {family: spectrum-mpi, version: "10.3", library: /opt/mpi/libmpi_ibm.so.3, pmi: [pmix]}
libraries:
  - {path: /usr/lib64/libucp.so*, why: fabric}
binds:
  - {path: /opt/cray, why: MPI}
  - {path: /host/x, to: /inside/x, why: repaired}
preload:
  - {path: /opt/mpi/libpami_cudahook.so, why: GPU buffers}
  - {path: /opt/cray/libgtl.so, why: GPU buffers}
library_path:
  - {path: /opt/cray/lib, why: MPI}
variables:
  - {name: UCX_POSIX_USE_PROC_LINK, value: n, why: one namespace per rank}
options:
  - {option: --sharens, why: shared memory}
"""
INSIDE = "/opt/cray/lib:/.singularity.d/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "bindings.yaml").write_text(BINDINGS)
    text = "launch: {container: {runtime: apptainer, binds: [/scratch], bindings: bindings.yaml}}"
    (tmp_path / "site.yaml").write_text(text)
    (tmp_path / "x.sif").touch()
    return tmp_path / "site.yaml"


def test_a_launch_has_the_bindings(site: Path) -> None:
    intent = Intent(program=("app",), container="x.sif", cwd=str(site.parent))
    made = wrap(intent, load_site(site), LAYOUT, EnvironmentChange())
    words = made.argv
    binds = [after for word, after in pairwise(words) if word == "--bind"]
    assert binds[:3] == ["/scratch", "/opt/cray", "/host/x:/inside/x"]
    assert "--sharens" in words
    assert made.variables == {
        "APPTAINERENV_UCX_POSIX_USE_PROC_LINK": "n",
        "APPTAINERENV_LD_LIBRARY_PATH": INSIDE,
        "APPTAINERENV_LD_PRELOAD": "/.singularity.d/libs/libpami_cudahook.so:/opt/cray/libgtl.so",
    }
    assert made.lists == {"APPTAINER_CONTAINLIBS": ("/usr/lib64/libucp.so*", "/opt/mpi/libpami_cudahook.so")}
    assert made.needed == ("/opt/cray", "/host/x", "/opt/mpi/libpami_cudahook.so")


def test_stars_are_expanded_on_the_node(tmp_path: Path) -> None:
    for name in ("liba.so", "liba.so.1", "it's.so"):
        (tmp_path / name).touch()
    text = shell.lists({"X": (f"{tmp_path}/liba*", f"{tmp_path}/none*", f"{tmp_path}/it's.so"), "Y": ("/none/*.so",)})
    done = subprocess.run(["bash", "-p", "-c", text + 'echo "$X"; echo "[$Y]"; env | grep -c ^X='], capture_output=True,
                          text=True, check=True)  # fmt: skip
    expected = f"{tmp_path}/liba.so,{tmp_path}/liba.so.1,{tmp_path}/it's.so"
    assert done.stdout.splitlines() == [expected, "[]", "1"]


def test_a_node_without_a_source_says_so(tmp_path: Path) -> None:
    """The runtime would stop every rank with a message of its own, on a node that nothing names."""
    text = (
        'sy_unfit() { echo "$*"; exit 71; }\n'
        + programs.wrapped(
            Wrapper(("run", "x"), needed=(str(tmp_path), "/none/libcxi.so.1"), lists={"X": (f"{tmp_path}/*",)})
        )
        + 'echo on "$X"'
    )
    done = subprocess.run(["bash", "-p", "-c", text], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 71 and "cannot bind /none/libcxi.so.1 into the image" in done.stdout
    fine = text.replace("/none/libcxi.so.1", str(tmp_path))
    (tmp_path / "a.so").touch()
    said = subprocess.run(["bash", "-c", fine], capture_output=True, text=True, check=True).stdout
    assert said == f"on {tmp_path}/a.so\n"


def test_what_is_wrong_in_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("format: 1\nlibraries:\n  - {path: lib.so, why: x}\nbind: []\nmpi: {family: lam}\n")
    with pytest.raises(ManyErrors) as caught:
        load_bindings(file)
    said = [f"{each.where} {each.message}" for each in caught.value.problems]
    assert len(said) == 3 and "b.yaml:3" in said[0] and "absolute path" in said[0]
    file.write_text("- a\n")
    with pytest.raises(InputError, match="must be a mapping"):
        load_bindings(file)
    file.write_text("name: x\n")
    with pytest.raises(InputError, match="missing key 'format'"):
        load_bindings(file)
