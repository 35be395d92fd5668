"""The host's libraries in an image: a bindings.yaml becomes the words and variables of a launch."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import InputError, ManyErrors
from stackyard.inputs.sites.bindings import load_bindings
from stackyard.inputs.sites.site import load_site
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.containers import wrap
from stackyard.launch.request.intent import Intent
from stackyard.launch.shim import shell

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
    assert made.needed == ("/scratch", "/opt/cray", "/host/x", "/opt/mpi/libpami_cudahook.so")
    assert made.shared == (str(site.parent), str(site.parent / "x.sif"))


def test_stars_are_expanded_on_the_node(tmp_path: Path) -> None:
    for name in ("liba.so", "liba.so.1", "it's.so"):
        (tmp_path / name).touch()
    text = shell.lists({"X": (f"{tmp_path}/liba*", f"{tmp_path}/none*", f"{tmp_path}/it's.so"), "Y": ("/none/*.so",)})
    done = subprocess.run(["bash", "-p", "-c", text + 'echo "$X"; echo "[$Y]"; env | grep -c ^X='], capture_output=True,
                          text=True, check=True)  # fmt: skip
    expected = f"{tmp_path}/liba.so,{tmp_path}/liba.so.1,{tmp_path}/it's.so"
    assert done.stdout.splitlines() == [expected, "[]", "1"]


def test_the_sources_of_a_sites_binds(tmp_path: Path) -> None:
    """As the runtimes read them: several with commas, in options too; what is relative to a directory is theirs."""
    policy = {"runtime": "apptainer", "binds": ["/a:/b:ro,/c", "d"], "options": ["-B", "/e:/f", "--bind=/g,/a", "--nv"]}
    (tmp_path / "x.sif").touch()
    site = Site.model_validate({"launch": {"container": policy}})
    made = wrap(Intent(program=("app",), container="x.sif", cwd=str(tmp_path)), site, LAYOUT, EnvironmentChange())
    assert made.needed == ("/a", "/c", "/e", "/g")


def test_the_first_thing_that_a_node_lacks_is_noted(tmp_path: Path) -> None:
    """The runtime would stop every rank with a message of its own, on a node that nothing names."""
    text = shell.needed((str(tmp_path), "/none/libcxi.so.1"), ("/none/y",))
    begun = f"sy_start_s=60 sy_lacks=\nsy_lack() {{ [[ -n $sy_lacks ]] || sy_lacks=$*; }}\n{shell.LOOK}"
    words = begun.replace("%", "%%") + '%secho "[$sy_lacks]"'
    done = subprocess.run(["bash", "-p", "-c", words % text], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[cannot bind /none/libcxi.so.1 into the image: it does not exist on this node;")
    fine = subprocess.run(["bash", "-c", words % shell.needed((str(tmp_path),), ())], capture_output=True, check=True)
    assert fine.stdout == b"[]\n"


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
