"""Checking an image: each way in which the host's MPI is silently not used is found, with one remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from images.elfbed import build, loaded_by_system
from images.mpibed import mpi
from stackyard.core.findings import Finding
from stackyard.host.machine.probe import machine
from stackyard.images.bindings.check import BindingReport, BindingRequest, check, drivers_of
from stackyard.images.bindings.drivers import Driver, Toolkit, check_driver, newest, numbers, of_machine, toolkit_of
from stackyard.images.bindings.elf.versions import read_versions
from stackyard.images.bindings.repair import to_runpath
from stackyard.images.bindings.written import bindings_text
from stackyard.inputs.sites.bindings import Bind, BoundOption, BoundPath, HostBindings, HostMpi, load_bindings
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site
from support import programs
from support.cli import inside, stackyard

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _gcc() -> None:
    programs.need("gcc")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image with an MPICH of its own, a program, and this machine's C library."""
    root = tmp_path / "image"
    own = mpi(root / "usr/lib64/libmpi.so.12", "mpich", "4.3.2")
    app = build(root / "app", needs=(own,), program=True)
    for path in loaded_by_system(app).values():
        if path.startswith("/") and "libmpi" not in path:
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.lstrip("/"))
    return root


def bindings(library: Path, *, bound: bool = True, **more: object) -> HostBindings:
    """The bindings of a host's MPICH in a directory of the system."""
    rows = (BoundPath(path=str(library), why="the MPI"),) if bound else ()
    values = {"libraries": rows, "mpi": HostMpi(family="mpich", library=str(library), pmi=("pmi2",)), **more}
    return HostBindings.model_validate(values)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2")


def one(done: BindingReport) -> Finding:
    assert len(done.findings) == 1, done.findings
    return done.findings[0]


def test_what_works_has_no_findings(image: Path, host: Path) -> None:
    done = check(image, BindingRequest(bindings(host), pmi="pmi2"))
    assert done.findings == () and done.users == ("/app",)
    assert done.loads == {"/app": "host:/.singularity.d/libs/libmpi.so.12"}
    over = HostBindings(binds=(Bind(path=str(host.parent), to="/usr/lib64"),), mpi=bindings(host).mpi)
    assert check(image, BindingRequest(over)).loads == {"/app": "host:/usr/lib64/libmpi.so.12"}


def test_resolved_names_in_containlibs(image: Path, host: Path) -> None:
    """The file is bound as libmpi.so.12.5.2, which nothing asks for: the image's own runs, and exits with 0."""
    real = host.rename(host.with_name("libmpi.so.12.5.2"))
    host.symlink_to(real.name)
    wrong = bindings(host).model_copy(update={"libraries": (BoundPath(path=str(real)),)})
    done = check(image, BindingRequest(wrong))
    found = next(each for each in done.findings if each.rule == "library-name")
    assert "is bound as libmpi.so.12.5.2, and programs ask for libmpi.so.12" in found.message
    assert found.remedy == f"name the link instead: {host}"
    assert done.loads == {"/app": "image:/usr/lib64/libmpi.so.12"}
    both = bindings(host).model_copy(update={"libraries": (BoundPath(path=f"{host.parent}/libmpi.so*"),)})
    assert check(image, BindingRequest(both)).findings == ()


def test_an_rpath_inside_is_found_and_repaired(image: Path, host: Path, tmp_path: Path) -> None:
    """SnapML's: the library with the RPATH is not the program, but what the program is linked to."""
    (image / "opt/mpi").mkdir(parents=True)
    own = image / "usr/lib64/libmpi.so.12"
    own.rename(image / "opt/mpi/libmpi.so.12")
    snap = build(image / "opt/DL/libsnapmlmpi3.so", needs=(image / "opt/mpi/libmpi.so.12",), rpath="/opt/mpi")
    build(image / "app", needs=(snap,), program=True, rpath="/opt/DL")
    plan = tmp_path / "bindings.yaml"
    plan.write_text(
        f"format: 1\nmpi: {{family: mpich, library: {host}, pmi: [pmi2]}}\nlibraries:\n  - {{path: {host}, why: MPI}}\n"
    )
    done = check(image, BindingRequest(load_bindings(plan)))
    found = one(done)
    assert (
        found.rule == "rpath" and "/opt/DL/libsnapmlmpi3.so loads /opt/mpi/libmpi.so.12 of the image" in found.message
    )
    assert done.rpaths == ("/opt/DL/libsnapmlmpi3.so",)
    before = snap.read_bytes()
    words = ("bindings", "check", image, "--bindings", plan)
    refused = stackyard(*words, cwd=tmp_path, expect=3)
    assert (
        "error: /opt/DL/libsnapmlmpi3.so loads" in refused.out
        and "hint: stackyard bindings check --repair" in refused.out
    )
    fine = stackyard(*words, "--repair", tmp_path / "fixed", cwd=tmp_path)
    assert "no problem found; 1 of 1 programs and libraries load the host's MPI" in fine.out
    bind = load_bindings(plan).binds[0]
    assert bind.to == "/opt/DL/libsnapmlmpi3.so" and "sha256" in bind.why and snap.read_bytes() == before
    stackyard(*words, cwd=tmp_path)


def test_a_program_needs_a_launcher(tmp_path: Path) -> None:
    done = inside("bindings", "check", tmp_path, "--", "/app", expect=2)
    assert "error: cannot run PROGRAM: no launcher given" in done.err


def test_a_repaired_file_is_loaded(tmp_path: Path) -> None:
    """By this machine's own loader: with RPATH LD_LIBRARY_PATH loses, with RUNPATH it wins."""
    for directory in ("in", "out"):
        build(tmp_path / directory / "libdeep.so.1")
    app = build(tmp_path / "app", needs=(tmp_path / "in/libdeep.so.1",), rpath=str(tmp_path / "in"), program=True)
    given = {"LD_LIBRARY_PATH": str(tmp_path / "out")}
    assert loaded_by_system(app, **given)["libdeep.so.1"] == str(tmp_path / "in/libdeep.so.1")
    to_runpath(app)
    assert loaded_by_system(app, **given)["libdeep.so.1"] == str(tmp_path / "out/libdeep.so.1")
    assert "RUNPATH" in subprocess.run(["readelf", "-d", app], capture_output=True, text=True, check=True).stdout


def test_another_family(image: Path, tmp_path: Path) -> None:
    host = mpi(tmp_path / "host/libmpi.so.40", "openmpi", "4.1.4")
    found = one(check(image, BindingRequest(bindings(host))))
    assert found.rule == "mpi-family"
    assert found.message == "/app is linked to MPICH 4.3.2 (libmpi.so.12), and the host's MPI is Open MPI 4.1.4"


def test_another_name_of_the_same_abi(image: Path, tmp_path: Path) -> None:
    """Debian's MPICH is called libmpich.so.12, everybody else's libmpi.so.12."""
    host = mpi(tmp_path / "host/libmpich.so.12", "mpich", "4.0.2")
    found = one(check(image, BindingRequest(bindings(host))))
    assert found.rule == "mpi-own"
    assert found.remedy == f"bind it under that name: {{path: {host}, to: /.singularity.d/libs/libmpi.so.12}}"
    renamed = Bind(path=str(host), to="/.singularity.d/libs/libmpi.so.12")
    fine = check(image, BindingRequest(bindings(host, binds=(renamed,))))
    assert fine.findings == () and fine.loads["/app"].startswith("host:")


@pytest.mark.parametrize(("given", "found"), [("none", True), ("pmix", True), ("pmi2", False), ("", False)])
def test_another_kind_of_pmi(image: Path, host: Path, given: str, found: bool) -> None:
    done = check(image, BindingRequest(bindings(host), pmi=given))
    assert [each.rule for each in done.findings] == (["pmi"] if found else [])
    if found:
        assert done.findings[0].message == f"MPI programs are started with --mpi={given}, and the host's MPI needs pmi2"
        assert "rank 0 of 1" in done.findings[0].reason


def test_pmix_with_its_version(image: Path, host: Path) -> None:
    own = bindings(host).model_copy(update={"mpi": HostMpi(family="mpich", library=str(host), pmi=("pmix",))})
    assert check(image, BindingRequest(own, pmi="pmix_v4")).findings == ()


def test_options_that_remove_the_launchers_variables(image: Path, host: Path) -> None:
    done = check(image, BindingRequest(bindings(host, options=(BoundOption(option="--cleanenv"),))))
    assert one(done).rule == "cleanenv"


def test_versions_that_the_image_does_not_define(image: Path, tmp_path: Path) -> None:
    """Not only the C library's: each version that a bound library needs, of what will provide it."""
    new = build(tmp_path / "new/libhwloc.so.15", version="HWLOC_2.9")
    build(image / "usr/lib64/libhwloc.so.15", version="HWLOC_2.1")
    host = mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2", needs=(new,))
    found = one(check(image, BindingRequest(bindings(host))))
    assert found.rule == "symbol-version"
    assert found.message == (
        "libmpi.so.12 needs HWLOC_2.9 of libhwloc.so.15, which the image's does not define (it has HWLOC_2.1)"
    )
    more = bindings(host).model_copy(update={"libraries": (*bindings(host).libraries, BoundPath(path=str(new)))})
    assert check(image, BindingRequest(more)).findings == ()


def test_versions_that_the_host_does_not_define(image: Path, tmp_path: Path) -> None:
    """The other way round: a bound library is older than what the image's programs were built with."""
    new = build(image / "usr/lib64/libz.so.1", version="ZLIB_1.3")
    old = build(tmp_path / "host/libz.so.1", version="ZLIB_1.2")
    host = mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2")
    build(image / "app", needs=(image / "usr/lib64/libmpi.so.12", new), program=True)
    rows = (BoundPath(path=str(host)), BoundPath(path=str(old)))
    found = one(check(image, BindingRequest(bindings(host).model_copy(update={"libraries": rows}))))
    assert found.message.startswith(
        "app needs ZLIB_1.3 of libz.so.1, which the host's does not define (it has ZLIB_1.2)"
    )
    assert found.remedy == "remove libz.so.1 from `libraries`: the image's own is newer"


def test_an_older_c_library(image: Path, tmp_path: Path) -> None:
    """A library of the host that calls what glibc 2.34 brought, in an image whose libc.so.6 has only GLIBC_2.2.5."""
    source = "#include <pthread.h>\nint libnew_f(void) { return pthread_create(0, 0, 0, 0); }"
    new = build(tmp_path / "host/libnew.so.1", source=source)
    host = mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2", needs=(new,))
    rows = (BoundPath(path=str(host)), BoundPath(path=str(new)))
    asked = BindingRequest(bindings(host).model_copy(update={"libraries": rows}))
    assert check(image, asked).findings == ()
    libc = next(image.rglob("libc.so.6"))
    build(libc, version="GLIBC_2.2.5", soname="libc.so.6")
    read_versions.cache_clear()
    found = one(check(image, asked))
    wanted = max(read_versions(new).needed["libc.so.6"], key=numbers)
    assert found.message.startswith(f"libnew.so.1 needs {wanted} of libc.so.6, which the image's does not define")
    assert found.remedy.startswith(f"use an image with glibc {wanted.removeprefix('GLIBC_')} or newer")


def test_a_library_that_is_nowhere(image: Path, tmp_path: Path) -> None:
    lost = build(tmp_path / "host/libcxi.so.1")
    host = mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2", needs=(lost,))
    found = one(check(image, BindingRequest(bindings(host))))
    assert (found.rule, found.remedy) == ("library-missing", "add the host's libcxi.so.1 to `libraries`")
    gone = bindings(
        host, binds=(Bind(path="/none/cxi", why="x"),), libraries=(BoundPath(path=str(host)), BoundPath(path=str(lost)))
    )
    assert one(check(image, BindingRequest(gone))).rule == "bind-source"


def test_a_component_that_cannot_be_opened(image: Path, tmp_path: Path) -> None:
    """MPI leaves it out without a word: the ranks speak TCP over the management network."""
    lost = build(tmp_path / "host/libucp.so.0")
    build(tmp_path / "host/openmpi/mca_pml_ucx.so", needs=(lost,))
    host = mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2")
    place = Bind(path=f"{tmp_path}/host/openmpi", to="/usr/lib64/openmpi")
    found = one(check(image, BindingRequest(bindings(host, binds=(place,)))))
    assert (found.rule, found.severity) == ("component-missing", "warning")
    assert found.message.endswith("what the image does not have: libucp.so.0") and "slower" in found.reason
    rows = (BoundPath(path=str(host)), BoundPath(path=str(lost)))
    assert check(image, BindingRequest(bindings(host, binds=(place,), libraries=rows))).findings == ()


def test_an_image_without_an_mpi(image: Path, host: Path) -> None:
    (image / "app").unlink()
    assert one(check(image, BindingRequest(bindings(host)))).severity == "note"


def test_programs_with_the_same_problem_are_one_finding(image: Path, tmp_path: Path) -> None:
    for name in ("b", "c"):
        shutil.copy(image / "app", image / name)
    host = mpi(tmp_path / "host/libmpi.so.40", "openmpi", "4.1.4")
    assert "; so do /b, /c" in one(check(image, BindingRequest(bindings(host)))).message


def test_findings_that_are_about_no_file_are_not_joined(image: Path, host: Path) -> None:
    """Two node kinds whose drivers the table does not have: the same reason, and two findings."""
    (image / "usr/lib64/libcudart.so.14").touch()
    drivers = tuple(Driver("nvidia", "600.1", f"node kind {name}") for name in "ab")
    messages = [each.message for each in check(image, BindingRequest(bindings(host), drivers=drivers)).findings]
    assert messages == [f"unknown whether the driver 600.1 of node kind {name} runs CUDA 14" for name in "ab"]


def test_programs_that_lack_one_library_are_one_finding(image: Path, tmp_path: Path) -> None:
    lost = build(tmp_path / "host/libcxi.so.1")
    host = mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2", needs=(lost,))
    shutil.copy(image / "app", image / "b")
    found = one(check(image, BindingRequest(bindings(host))))
    assert found.message == f"libcxi.so.1 not found in the image, required by {host}"


@pytest.mark.parametrize(
    ("library", "why"), [("", "its library is not named"), ("libnone.so", "not found"), ("libz.so", "is not an MPI")]
)
def test_an_mpi_that_is_not_known(image: Path, host: Path, library: str, why: str) -> None:
    """Nothing could be said of what the programs load, so it is no "no problem found"."""
    build(host.with_name("libz.so"))
    unknown = HostMpi(family="mpich", library=str(host.with_name(library)) if library else "")
    found = one(check(image, BindingRequest(HostBindings(mpi=unknown))))
    assert (found.rule, found.severity) == ("mpi-unknown", "refused") and why in found.message
    assert check(image, BindingRequest(HostBindings())).findings == ()  # bindings that are for no MPI


@pytest.mark.parametrize(("launcher", "how"), [("false", "exited with status 1"), ("true", "exited with status 0")])
def test_a_launcher_that_starts_no_rank(image: Path, host: Path, tmp_path: Path, launcher: str, how: str) -> None:
    (tmp_path / "bindings.yaml").write_text(bindings_text(bindings(host)))
    (tmp_path / "apptainer").touch(mode=0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = stackyard("bindings", "check", image, "--run", launcher, "--", "/app", cwd=tmp_path, expect=1, PATH=path)
    assert f"error: cannot see what the ranks load: {launcher} {how}, and no rank has started" in done.err


def test_the_images_own_library_path_counts(image: Path, host: Path) -> None:
    """Its scripts put its own MPI first; a directory that is bound is not searched by itself."""
    (image / ".singularity.d/env").mkdir(parents=True)
    (image / ".singularity.d/env/90-environment.sh").write_text('export LD_LIBRARY_PATH="/opt/own:$LD_LIBRARY_PATH"\n')
    (image / "opt/own").mkdir(parents=True)
    (image / "usr/lib64/libmpi.so.12").rename(image / "opt/own/libmpi.so.12")
    assert check(image, BindingRequest(bindings(host))).loads["/app"].startswith("host:")
    bare = HostBindings(binds=(Bind(path=str(host.parent)),), mpi=bindings(host).mpi)
    found = one(check(image, BindingRequest(bare)))
    assert found.rule == "mpi-own" and found.reason.startswith("it was found by LD_LIBRARY_PATH")


def test_what_charliecloud_has_nothing_to_bind_to(image: Path, host: Path) -> None:
    """Apptainer makes what is missing; ch-run starts nothing. Below /tmp it has the host's."""
    binds = tuple(Bind(path=str(host.parent), to=to) for to in ("/opt/mpi", "/tmp/x", "/usr/lib64/mpi", "/usr/lib64"))
    asked = BindingRequest(bindings(host, binds=binds), ContainerPolicy(runtime="charliecloud"))
    found = one(check(image, asked))
    assert (found.rule, found.message) == ("mount-point", "/opt/mpi not found in the image")
    (image / "opt/mpi").mkdir(parents=True)
    assert check(image, asked).findings == ()


def test_charliecloud_always_searches_what_it_adds(image: Path, host: Path) -> None:
    asked = BindingRequest(bindings(host, bound=False), ContainerPolicy(runtime="charliecloud", libraries=(str(host),)))
    done = check(image, asked)
    assert done.findings == () and done.loads["/app"].startswith("host:")


def test_libraries_of_a_site_that_an_image_does_not_search(image: Path, host: Path) -> None:
    """`libraries` without bindings sets no LD_LIBRARY_PATH: only Apptainer's own scripts in the image do."""
    only = BindingRequest(bindings(host, bound=False), ContainerPolicy(libraries=(str(host),)))
    assert one(check(image, only)).rule == "libraries-not-searched"
    (image / ".singularity.d/env").mkdir(parents=True)
    (image / ".singularity.d/env/99-base.sh").touch()
    assert check(image, only).findings == ()


def test_a_library_without_versions_is_taken(image: Path, tmp_path: Path) -> None:
    """The loader warns ("no version information available") and goes on."""
    new = build(tmp_path / "new/libhwloc.so.15", version="HWLOC_2.9")
    build(image / "usr/lib64/libhwloc.so.15")
    host = mpi(tmp_path / "host/libmpi.so.12", "mpich", "5.0.2", needs=(new,))
    assert check(image, BindingRequest(bindings(host))).findings == ()


CUDA = [
    ("11.8", "450.80.02", ""), ("11.8", "450.79", "refused"), ("12.4", "525.60.13", ""), ("12.4", "520.61", "refused"),
    ("12", "550.54", ""), ("13.0", "580.65", ""), ("13.0", "575.51", "refused"), ("10.2", "440.33", ""),
    ("10.2", "418.39", "refused"), ("10", "440.33", "note"), ("14.0", "600.1", "note"),
]  # fmt: skip
ROCM = [
    ("6.2", "6.0", ""),
    ("6.3", "6.0", "refused"),
    ("7.0", "30.10.1", ""),
    ("6.0", "30.10", "refused"),
    ("6.2", "6.7.8", "note"),
]


@pytest.mark.parametrize(
    ("vendor", "toolkit", "driver", "expected"), [*(("nvidia", *row) for row in CUDA), *(("amd", *row) for row in ROCM)]
)
def test_drivers(vendor: str, toolkit: str, driver: str, expected: str) -> None:
    found = check_driver(Toolkit(vendor, toolkit, "/x"), Driver(vendor, driver, "node kind gpu"))
    assert (found.severity if found else "") == expected
    if expected == "refused":
        assert found is not None and "https://" in found.reason and "node kind gpu" in found.message


def test_a_toolkit_newer_than_its_driver_is_limited() -> None:
    found = check_driver(Toolkit("nvidia", "12.8", "/x"), Driver("nvidia", "550.54", "node kind gpu", "12.4"))
    assert found is not None and found.severity == "note" and "limited set of features" in found.message
    assert check_driver(Toolkit("nvidia", "12.2", "/x"), Driver("nvidia", "550.54", "this machine", "12.4")) is None


def test_a_driver_from_before_there_were_ranges_has_its_own_source() -> None:
    old = check_driver(Toolkit("nvidia", "10.2", "/x"), Driver("nvidia", "418.39", "x"))
    new = check_driver(Toolkit("nvidia", "11.8", "/x"), Driver("nvidia", "418.39", "x"))
    assert old is not None and "cuda-toolkit-release-notes" in old.reason
    assert new is not None and "minor-version-compatibility" in new.reason


@pytest.mark.parametrize(("module", "severity"), [("6.3.6", "refused"), ("6.10.5", ""), ("5.18.2", "note")])
def test_the_amd_driver_of_this_machine(module: str, severity: str) -> None:
    """The kernel's module 6.3.6 is of the driver 6.0, whose table ends with ROCm 6.2."""
    here = replace(machine(), nvidia_driver="", amd_driver=module)
    [driver] = of_machine(here)
    found = check_driver(Toolkit("amd", "6.3", "/x"), driver)
    assert (found.severity if found else "") == severity
    both = of_machine(replace(here, nvidia_driver="550.54"))
    assert [each.vendor for each in both] == ["nvidia", "amd"] and drivers_of(Site(), both) == both


def test_toolkits_of_an_image(image: Path, host: Path) -> None:
    (image / "opt/rocm-6.3.0/.info").mkdir(parents=True)
    (image / "opt/rocm-6.3.0/.info/version").write_text("6.3.0-15\n")
    for name in ("libcudart.so.12", "libcudart.so.12.4.127", "libcudart.so.11.0"):
        (image / "usr/lib64" / name).touch()
    site = Site(
        nodes={
            "gpu": NodeKind(gpu=Gpu(count=8, vendor="amd", driver="6.0")),
            "a": NodeKind(gpu=Gpu(vendor="nvidia", driver="450.80.02")),
        }
    )
    done = check(image, BindingRequest(bindings(host), drivers=drivers_of(site)))
    assert [each.message.split(" is ")[0] for each in done.findings] == [
        "ROCm 6.3 (/opt/rocm-6.3.0/.info/version)", "the NVIDIA driver 450.80.02 of node kind a",
    ]  # fmt: skip
    assert toolkit_of("/x/libcudart.so") is None
    assert newest([Toolkit("nvidia", "9.0", "a"), Toolkit("nvidia", "12", "b")])[0].path == "b"
