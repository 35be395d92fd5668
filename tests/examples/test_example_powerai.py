"""The page about IBM's PowerAI image on Summit, step by step: the commands of the example's README.

The image is a stand-in for this machine of the same structure (`poweraibed`), the machine's Spectrum MPI a newer MPICH
than the image's, and the ranks run on four Slurm nodes. What is for jsrun is compared with the page.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import poweraibed
import pytest
from readmes import lines
from ruamel.yaml import YAML
from sitebed import EXAMPLES

from stackyard.core.errors import MissingError
from stackyard.images.bases.compile import of_variant
from stackyard.inputs.load import load_stack
from stackyard.inputs.sites.bindings import load_bindings
from stackyard.inputs.sites.site import load_site
from support import images, modules, programs, stuckmpi
from support.cli import Done, inside
from support.slurm import SlurmCluster, unavailable
from support.slurmcli import Work, working
from support.wheelpkg import host_subdir

DIRECTORY = EXAMPLES / "summit-containers"
PAGE_DIRECTORIES = (
    "/opt/ibm/spectrum_mpi/lib", "/opt/ibm/spectrum_mpi/lib/spectrum_mpi", "/opt/ibm/spectrum_mpi/jsm_pmix/lib",
    "/opt/ibm/spectrum_mpi/lib/pami_port", "/opt/mellanox/hcoll/lib", "/opt/mellanox/sharp/lib",
    "/opt/mellanox/mxm/lib",
)  # fmt: skip
PAGE_LIBRARIES = (
    "libucp", "libuct", "libucs", "libucm", "libnl-route-3", "librdmacm", "libibumad", "libibverbs", "libosmcomp",
    "libnl-3", "librxe-rdmav2", "libmlx4-rdmav2", "libmlx5-rdmav2",
)  # fmt: skip
PAGE_JSRUN = "jsrun -n 1 -a 6 -c 42 -g 6 -r 1 singularity exec --nv"
SNAPML = "/opt/DL/snap-ml-mpi/lib/snap_ml_mpi/libsnapmlmpi3.so"
HOST, OWN = "MPICH Version: 5.0.2", "MPICH Version: 4.3.2"
SNAP = """\
import sys
sys.path.insert(0, "/opt/DL/snap-ml-mpi/lib")
import snap_ml_mpi
print("snap rank %d of %d, %s" % snap_ml_mpi.world(), flush=True)
snap_ml_mpi.end()
"""


def the(*words: str) -> str:
    """The only line with these words."""
    (line,) = [each for each in lines("summit-containers") if all(word in each for word in words)]
    return line


def test_the_bindings_are_the_script_of_the_page() -> None:
    bindings = load_bindings(DIRECTORY / "bindings.yaml")
    wanted = {f"{directory}/*.so*" for directory in PAGE_DIRECTORIES} | {
        f"/usr/lib64/{name}.so*" for name in PAGE_LIBRARIES
    }
    assert {each.path for each in bindings.libraries} == wanted
    assert [Path(each.path).name for each in bindings.preload] == ["libpami_cudahook.so"]
    assert all(each.why for each in (*bindings.libraries, *bindings.preload))


def test_horovod_is_compiled_with_the_variables_of_the_page() -> None:
    site = load_site(DIRECTORY / "site.yaml")
    (variant,) = load_stack(DIRECTORY / "horovod.yaml", site).variants
    packages = of_variant(variant, "linux-ppc64le")
    assert packages.requirements == ("horovod",)
    assert packages.of(packages.build.packages["horovod"]) == {
        "HOROVOD_WITH_PYTORCH": "1", "HOROVOD_GPU_ALLREDUCE": "NCCL",
        "HOROVOD_NCCL_HOME": "/usr/lib/powerpc64le-linux-gnu",
        "CPATH": "{env:CUDA_DIR}/targets/ppc64le-linux/include",
    }  # fmt: skip
    (licence,) = site.bases["powerai"].licences
    assert (licence.file, licence.line) == ("/opt/DL/license/lap_se/license/status.dat", "Status=9")
    assert "/opt/anaconda2/bin:$PATH" in site.bases["powerai"].activate.splitlines()[0]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example's files, with an image and a program whose content does not matter."""
    shutil.copytree(DIRECTORY, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    for name in ("powerai.sif", "tf_cnn_benchmarks.py"):
        Path(name).touch()
    return tmp_path / "here"


def test_the_line_of_the_page_with_its_reasons(here: Path) -> None:
    words = shlex.split(the("explain", "--model=resnet50"))[1:]
    told = inside(*words, "--json").value if "--json" in words else inside(*words[:-3], "--json", *words[-3:]).value
    line = told["launchers"]["jsrun"]
    assert same_words(line["command"]) >= same_words(PAGE_JSRUN.partition(" singularity")[0])
    assert told["rank"]["program"].startswith("singularity exec --nv")
    assert told["rank"]["program"].endswith("python tf_cnn_benchmarks.py --variable_update=horovod --model=resnet50")
    reasons = {reason["words"][0]: reason["reason"] for reason in line["reasons"]}
    assert reasons["-a6"] == "ranks per set" and reasons["--smpiargs=-gpu"] == "MPI accepts GPU pointers"


def same_words(line: str) -> set[str]:
    """Its words, where ``-n 1`` is ``-n1``."""
    return set(re.sub(r" (-\w) ", r" \1", line).split())


def test_options_of_spectrum_mpi_timeline_and_nsys(here: Path) -> None:
    assert "'--smpiargs=-gpu -tcp'" in inside(*shlex.split(the("explain", "-tcp"))[1:]).out
    out = inside(*shlex.split(the("explain", "nsys"))[1:]).out
    assert re.search(r"^    nsys profile +a timeline of CUDA", out, re.MULTILINE)
    assert "HOROVOD_TIMELINE" in out


def test_the_script_of_the_job_in_the_image(here: Path) -> None:
    script = inside(*shlex.split(the("submit", "--dry-run"))[1:]).out
    assert "#BSUB -nnodes 1" in script and "jsrun -n1 -r1 -g6 -a6 -c42" in script
    assert "singularity exec --nv" in script


# --------------------------------------------------------------------------- the whole, on real parts


@dataclass(frozen=True)
class Machine:
    """A copy of the example on four nodes: ``here.yaml`` is its site for this machine."""

    work: Work
    variables: Mapping[str, str]

    def run(self, line: str, *more: str, expect: int = 0, site: str = "here.yaml") -> Done:
        """A command of the README."""
        words = [site if word == "site.yaml" else word for word in shlex.split(line)[1:]]
        given = ("--yard", self.work.directory / "yard", *words, *more)
        run = partial(self.work.run, *given, expect=expect, **self.variables)
        return stuckmpi.again(run, self.work.directory) if words[0] == "launch" else run()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Four nodes, the stand-in image, a module ``cuda``, and an MPI in the place of Spectrum MPI."""
    programs.need("gcc", "mksquashfs", "squashfuse")
    if why := unavailable() or modules.missing("lmod", "bash"):
        pytest.skip(why)
    try:
        outside = {name: images.environ()[name] for name in ("PATH", "APPTAINER_USERNS")}
        archive, sources = poweraibed.archive(), poweraibed.sources()
        with SlurmCluster.own(4) as cluster, working(cluster, tmp_path) as work:
            shutil.copytree(DIRECTORY, work.directory, dirs_exist_ok=True)
            (work.directory / "powerai.tar").symlink_to(archive)
            for_this_machine(work.directory)
            (work.directory / "modules").mkdir()
            cuda = poweraibed.cuda(work.directory / "cuda")
            (work.directory / "modules/cuda.lua").write_text(f'setenv("CUDA_DIR", "{cuda}")\n')
            given = {"MODULEPATH": str(work.directory / "modules"), "STACKYARD_TMP": str(work.directory / "disk")}
            given |= stuckmpi.ONE_KERNEL
            yield Machine(work, {**outside, **given, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(sources)})
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


def for_this_machine(directory: Path) -> None:
    """``here.yaml``: the site with the nodes, the scheduler and the platform of this machine, and where its MPI is."""
    library = poweraibed.spectrum(directory / "machine")
    text = (directory / "bindings.yaml").read_text().replace("/opt/ibm/spectrum_mpi/lib", str(library))
    for old, new in (("spectrum-mpi", "mpich"), ("libmpi_ibm.so.3", "libmpi.so.12"), ("[pmix]", "[pmi2]")):
        assert old in text
        text = text.replace(old, new)
    (directory / "here-bindings.yaml").write_text(text)
    site = YAML().load(directory / "site.yaml")
    site["platforms"] = [host_subdir()]
    site["bases"]["powerai"]["platform"] = host_subdir()
    site["nodes"] = {"n": {"cores": 8, "sockets": 1}}
    site["scheduler"] = {"kind": "slurm", "exclusive": False, "mpi": "pmi2"}
    site["launch"]["container"] = {"runtime": "apptainer", "bindings": "here-bindings.yaml"}
    with (directory / "here.yaml").open("w") as stream:
        YAML().dump(site, stream)


def said(done: Done, start: str) -> list[str]:
    """What the ranks said, sorted."""
    lines = (line[line.find(start) :] for line in done.out.splitlines() if f" {start}" in f" {line}")
    return sorted(line.strip() for line in lines if re.match(rf"{start} \d", line))


@pytest.mark.real
@pytest.mark.long
def test_every_step_of_the_page(machine: Machine) -> None:
    licence = the("image from")
    refused = machine.run(licence.partition(" --accept-licence")[0], expect=4)
    assert "licence not accepted" in refused.err and "International License Agreement" in refused.err
    machine.run(licence)
    shown = machine.run(the("image inspect")).out
    assert "Python: conda /opt/anaconda2" in shown and "licences: IBM PowerAI (accepted by " in shown
    refused = machine.run(the("image extend").partition(" --before")[0], expect=4)
    assert "cannot build on the base powerai: mpicxx not found on PATH" in refused.err
    extended = machine.run(the("image extend"), "--json").value
    assert "horovod=0.15.2" in extended["defaults"]["labels"]["io.stackyard.packages"].split()
    assert [each["name"] for each in extended["licences"]] == ["IBM PowerAI"]
    machine.run(the("image build"))
    the_hosts_mpi(machine)
    the_jobs(machine)


def the_hosts_mpi(machine: Machine) -> None:
    """SnapML runs on the image's own MPI, with status 0, until it is repaired."""
    launch = "stackyard --site site.yaml launch -N 2 --backend mpi --stream all --container powerai.sif snap.py"
    (machine.work.directory / "snap.py").write_text(SNAP)
    assert said(machine.run(launch), "snap rank") == [f"snap rank {rank} of 2, {OWN}" for rank in range(2)]
    check, repair = (line for line in lines("summit-containers") if "bindings check" in line)
    found = machine.run(check, "--json", expect=3).value
    assert [each["rule"] for each in found["findings"]] == ["rpath"] and found["rpaths"] == [SNAPML]
    horovod = next(path for path in found["users"] if "/horovod/" in path)
    assert found["loads"][horovod].startswith("host:") and found["loads"][SNAPML].startswith("image:/opt/ibm/")
    assert "2 of 2 programs and libraries load the host's MPI" in machine.run(repair).out
    (bind,) = load_bindings(machine.work.directory / "here-bindings.yaml").binds
    assert bind.to == SNAPML and re.search(r"the original has sha256 [0-9a-f]{64}", bind.why)
    assert said(machine.run(launch), "snap rank") == [f"snap rank {rank} of 2, {HOST}" for rank in range(2)]


def the_jobs(machine: Machine) -> None:
    """The benchmarks, on four nodes; jsrun's line; TensorBoard."""
    machine.run(the("tensorflow-install-models"))
    assert "jsrun -n1 -r1 -g6 -a6 -c42" in machine.run(the("explain", "--model=resnet50"), site="site.yaml").out
    assert "#BSUB" in machine.run(the("submit", "--dry-run"), site="site.yaml").out
    done = machine.run(the("launch -N 4"))
    end = f"sum 10.0, tensorflow 1.10.0, {HOST}, hook True, --variable_update=horovod --model=resnet50"
    assert said(done, "rank") == [f"rank {rank} of 4: {end}" for rank in range(4)], done.out + done.err
    assert "TensorBoard 1.10.0 --logdir=runs" in machine.run(the("tensorboard")).out
    machine.work.nothing_left()
