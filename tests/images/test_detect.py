"""Detection: the MPIs of this machine and of a made one, each path with its reason; and the file that is written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from images.elfbed import build
from images.mpibed import mpi
from stackyard.core.errors import InputError, MissingError
from stackyard.images.bindings.detect import DetectedBindings, detect, library, required
from stackyard.images.bindings.families import families, known_mpi
from stackyard.images.bindings.loader import Loader, own_hwcaps
from stackyard.images.bindings.profiles import expanded, of_this_machine, profile_names, read_profile
from stackyard.images.bindings.trace import opened_paths, with_opened
from stackyard.images.bindings.tree import Tree
from stackyard.images.bindings.written import bindings_text
from stackyard.inputs.sites.bindings import Bind, BoundPath, BoundVariable, Family, HostBindings, load_bindings
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from support import programs
from support.cli import inside, stackyard

pytestmark = pytest.mark.real


def names(rows: tuple[BoundPath, ...]) -> set[str]:
    return {Path(row.path).name for row in rows}


def detected_in(root: Path, mpi: str, *library_path: str) -> DetectedBindings:
    """What another root needs."""
    loader = Loader(Tree((root,)), library_path)
    return required(loader, *library(loader, {}, mpi), {})


def test_open_mpi_of_this_machine() -> None:
    """What runs Debian's Open MPI in another system's image, as found by hand: libraries and four directories."""
    programs.need("mpirun.openmpi")
    library = next(Path("/usr/lib").glob("*/libmpi.so.40"))
    found = detect({"PATH": os.environ["PATH"]}, mpi=str(library)).bindings
    assert (found.mpi.family, found.mpi.library, found.mpi.pmi) == ("openmpi", str(library), ("pmix",))
    assert found.mpi.version == subprocess.run(
        ["mpirun.openmpi", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[2]  # fmt: skip
    assert {"libmpi.so.40", "libopen-pal.so.40", "libpmix.so.2", "libhwloc.so.15"} <= names(found.libraries)
    assert {"libmca_common_ucx.so.40", "libucp.so.0"} <= names(
        found.libraries
    )  # beside a compiler's link in openmpi/lib
    assert not {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"} & names(found.libraries)
    directory = library.parent
    assert {f"{directory}/openmpi", f"{directory}/pmix2", "/etc/openmpi", "/usr/share/openmpi"} <= {
        b.path for b in found.binds
    }
    assert all(row.why for row in (*found.libraries, *found.binds))
    assert {v.name for v in found.variables} == {"OMPI_MCA_btl_vader_single_copy_mechanism", "UCX_POSIX_USE_PROC_LINK"}


def test_an_mpi_with_a_directory_of_its_own_is_bound_with_it(tmp_path: Path) -> None:
    """Its RUNPATH and its components hold only there; what it takes from the system goes in alone."""
    prefix = tmp_path / "opt/mpich-5"
    fabric = build(tmp_path / "usr/lib64/libfabric.so.1")
    inner = build(prefix / "lib/mpich/libucp.so.0")
    provider_needs = build(tmp_path / "usr/lib64/libcxi.so.1")
    build(tmp_path / "usr/lib64/libfabric/libcxi-fi.so", needs=(provider_needs,))
    mpi(prefix / "lib/libmpi.so.12", "mpich", "5.0.2", needs=(inner, fabric), runpath="$ORIGIN:$ORIGIN/mpich")
    bindings = detected_in(tmp_path, "", "/opt/mpich-5/lib").bindings
    assert bindings.mpi.model_dump() == {
        "family": "mpich", "version": "5.0.2", "library": "/opt/mpich-5/lib/libmpi.so.12", "pmi": ("pmi2",),
    }  # fmt: skip
    assert [row.path for row in bindings.binds] == ["/opt/mpich-5", "/usr/lib64/libfabric"]
    assert [row.path for row in bindings.library_path] == ["/opt/mpich-5/lib"]
    libraries = {row.path: row.why for row in bindings.libraries}
    assert libraries == {
        "/usr/lib64/libfabric.so.1": "required by libmpi.so.12",
        "/usr/lib64/libcxi.so.1": "required by libcxi-fi.so",
    }


def test_a_library_is_bound_that_every_node_can_run(tmp_path: Path) -> None:
    """Not the build for the processor of the node on which the bindings are detected, if there is another."""
    fabric = build(tmp_path / "usr/lib64/libfabric.so.1")
    build(tmp_path / "usr/lib64/libc.so.6", version="GLIBC_2.33")
    for level in ("x86-64-v2", "power9"):
        build(tmp_path / f"usr/lib64/glibc-hwcaps/{level}/libfabric.so.1")
    mpi(tmp_path / "usr/lib64/libmpi.so.12", "mpich", "5.0.2", needs=(fabric,))
    assert Loader(Tree((tmp_path,))).hwcaps == own_hwcaps()
    found = detected_in(tmp_path, "/usr/lib64/libmpi.so.12").bindings
    assert [row.path for row in found.libraries] == ["/usr/lib64/libmpi.so.12", "/usr/lib64/libfabric.so.1"]


def test_what_is_not_found_is_noted(tmp_path: Path) -> None:
    lost = build(tmp_path / "usr/lib64/liblost.so.1")
    mpi(tmp_path / "usr/lib64/libmpi.so.12", "mpich", "4.3.2", needs=(lost,))
    lost.unlink()
    found = detected_in(tmp_path, "/usr/lib64/libmpi.so.12")
    assert "liblost.so.1, required by libmpi.so.12, not found" in found.notes
    with pytest.raises(InputError, match="no MPI found in /usr/lib64/none"):
        detected_in(tmp_path, "/usr/lib64/none")
    with pytest.raises(MissingError, match="no MPI found"):
        detected_in(tmp_path / "usr", "")


@pytest.mark.parametrize(("family", "name"), [("openmpi", "openmpi"), ("mpich", "mpich"), ("cray", "cray-mpich")])
def test_families(tmp_path: Path, family: str, name: str) -> None:
    known = known_mpi(mpi(tmp_path / "libmpi.so.12", family, "8.1.29"))
    assert known is not None and (known.family.name, known.version) == (name, "8.1.29")
    assert known_mpi(build(tmp_path / "libz.so.1")) is None


def test_a_file_of_bindings_knows_the_families_that_are_detected() -> None:
    assert {*get_args(Family)} == {"none", *(each.name for each in families())}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    programs.need("mpirun.openmpi")
    found = detect({"PATH": os.environ["PATH"]}).bindings
    odd = BoundVariable(name="X", value="a: 'b' # \"c\" ${D}", why="no: [yes]")
    found = found.model_copy(update={"variables": (odd,), "binds": (Bind(path="/a", to="/b", why="x"),)})
    (tmp_path / "b.yaml").write_text(bindings_text(found, ("a comment",)))
    assert load_bindings(tmp_path / "b.yaml") == found


@pytest.mark.parametrize("name", profile_names())
def test_profiles_have_reasons_and_sources(name: str) -> None:
    environ = {
        "CRAY_MPICH_DIR": "/opt/cray/pe/mpich/9.0.1/ofi/gnu/12.3",
        "CRAY_MPICH_ROOTDIR": "/opt/cray/pe/mpich/9.0.1",
    }
    profile = read_profile(name, environ)
    assert profile.sources and all(source.startswith("https://") for source in profile.sources)
    assert all(row.why for row in (*profile.libraries, *profile.binds, *profile.preload, *profile.library_path))
    applied = profile.applied(ContainerPolicy())
    assert applied.binds or applied.libraries
    if name != "lumi-ai":
        with pytest.raises(MissingError, match="does not exist on this machine"):
            of_this_machine(profile)


def test_a_profile_needs_its_modules() -> None:
    with pytest.raises(InputError, match="profile frontier: CRAY_MPICH_DIR is not set"):
        read_profile("frontier", {})
    with pytest.raises(InputError, match="no such profile: hal"):
        read_profile("hal", {})


def test_summit_preloads_the_hook_from_the_libraries() -> None:
    """IBM's page copies the file to a directory that images see; among CONTAINLIBS it is seen without."""
    policy = read_profile("summit", {}).applied(ContainerPolicy())
    assert policy.variables["LD_PRELOAD"] == "/.singularity.d/libs/libpami_cudahook.so"
    assert "/opt/ibm/spectrum_mpi/lib/libpami_cudahook.so" in policy.libraries


PROFILE = """format: 1
name: hal
mpi: {family: openmpi, library: "${MPI_ROOT}/lib/libmpi.so.40"}
libraries: [{path: "${MPI_ROOT}/lib/libmpi.so.40", why: the MPI}]
"""


def test_a_site_has_profiles_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("profiles: [machines/hal.yaml]\n")
    file = tmp_path / "machines" / "hal.yaml"
    file.parent.mkdir()
    file.write_text(PROFILE)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.40").touch()
    site = ("--site", tmp_path / "site.yaml", "bindings")
    assert stackyard(*site, "show", "--profiles").out.split() == sorted([*profile_names(), "hal"])
    made = stackyard(*site, "detect", "--profile", "hal", "--json", MPI_ROOT=str(tmp_path)).value
    assert made["mpi"]["library"] == made["libraries"][0]["path"] == f"{tmp_path}/lib/libmpi.so.40"
    assert "profile hal: MPI_ROOT is not set" in stackyard(*site, "detect", "--profile", "hal", expect=2).err
    file.write_text(PROFILE.replace("why", "wy"))
    told = stackyard(*site, "detect", "--profile", "hal", expect=2, MPI_ROOT="/opt").err
    assert f"{file}:4:52: unknown key 'wy' in libraries.0" in told
    file.write_text(PROFILE.replace("format: 1", "format: 7"))
    assert (
        f"{file}:1:9: unknown format '7'"
        in stackyard(*site, "detect", "--profile", "hal", expect=2, MPI_ROOT="/opt").err
    )


def test_no_profile_of_the_program_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=f"cannot use the profile {tmp_path}/summit.yaml: another profile has its name"
    ):
        read_profile("summit", {}, [str(tmp_path / "summit.yaml")])


def test_the_example_of_summit_has_the_profile() -> None:
    example = Path(__file__).parents[2] / "examples/summit-containers/bindings.yaml"
    assert load_bindings(example) == read_profile("summit", {})


def test_only_what_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / "libx.so.1").touch()
    bindings = HostBindings(
        libraries=(BoundPath(path=f"{tmp_path}/libx*"), BoundPath(path=f"{tmp_path}/liby*")),
        binds=(Bind(path=str(tmp_path)), Bind(path="/none")),
    )
    kept, left = of_this_machine(bindings)
    assert [row.path for row in kept.binds] == [str(tmp_path)] and left == (f"{tmp_path}/liby*", "/none")
    assert [row.path for row in expanded(kept).libraries] == [f"{tmp_path}/libx.so.1"]
    assert kept.tested.host and kept.tested.time.endswith("Z")


def test_what_a_trace_shows_is_added() -> None:
    fabric = next(Path("/usr/lib").glob("*/libudev.so.1"))
    lines = [
        f'12 openat(AT_FDCWD, "{fabric}", O_RDONLY|O_CLOEXEC) = 3',
        'openat(AT_FDCWD, "/etc/shells", O_RDONLY) = 4',
        'openat(AT_FDCWD, "/etc/hosts", O_RDONLY) = 4',
        'openat(AT_FDCWD, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = 3',
        'openat(AT_FDCWD, "/etc/none", O_RDONLY) = -1 ENOENT (No such file or directory)',
        'openat(AT_FDCWD, "/etc/openmpi/x", O_RDONLY) = 4',
    ]
    paths = opened_paths(lines)
    assert paths == [str(fabric), "/etc/shells", "/etc/hosts", "/etc/ld.so.cache", "/etc/openmpi/x"]
    more = with_opened(HostBindings(binds=(Bind(path="/etc/openmpi"),)), paths, "app")
    assert [row.path for row in more.libraries] == [str(fabric)]
    assert [(row.path, row.why) for row in more.binds] == [("/etc/openmpi", ""), ("/etc/shells", "opened by app")]


def test_a_traced_plugin_in_a_directory_of_its_own_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackyard.images.bindings.trace._is_library", lambda path, real: True)  # not as the user's own
    plugin = build(tmp_path / "hwloc/hwloc_xml.so")
    assert [row.path for row in with_opened(HostBindings(), [str(plugin)], "app").binds] == [str(plugin)]


def test_a_traced_program(tmp_path: Path) -> None:
    programs.need("strace", "gcc")
    source = '#include <stdio.h>\nint main(void) { return fopen("/etc/shells", "r") == 0; }'
    app = build(tmp_path / "app", source=source, program=True)
    made = stackyard(
        "bindings", "detect", "--dry-run", "--trace", "env", "--", app, cwd=tmp_path, expect=None
    )  # fmt: skip
    assert made.code == 0, made.err
    assert "{path: /etc/shells, why: opened by app}" in made.out


def test_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detected, shown in each form, refused to be overwritten; a module that Lmod loads and unloads."""
    programs.need("mpirun.openmpi", "lmod")
    monkeypatch.chdir(tmp_path)
    made = inside("bindings", "detect")
    assert "wrote bindings.yaml: Open MPI" in made.out
    again = inside("bindings", "detect", expect=2)
    assert "error: cannot write bindings.yaml: it exists" in again.err
    inside("bindings", "detect", "--replace")
    shown = inside("bindings", "show", "--json").value
    assert shown["mpi"]["family"] == "openmpi" and shown["missing"] == []
    site = inside("bindings", "show", "--as", "site").out
    (tmp_path / "site.yaml").write_text(site)
    from stackyard.inputs.sites.site import load_site

    assert load_site(tmp_path / "site.yaml").launch.container == load_bindings(tmp_path / "bindings.yaml").applied(
        ContainerPolicy()
    )
    for kind, name in (("lua", "stackyard-bindings.lua"), ("tcl", "stackyard-bindings")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).write_text(inside("bindings", "show", "--as", kind).out)
        script = (
            f". /usr/share/lmod/lmod/init/bash; module use {tmp_path / kind}; module load stackyard-bindings;"
            'echo "$APPTAINER_CONTAINLIBS|$APPTAINERENV_LD_LIBRARY_PATH"; module unload stackyard-bindings;'
            'echo "${APPTAINER_CONTAINLIBS-unset}"'
        )
        done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
        loaded, unloaded = done.stdout.splitlines()
        assert "libmpi.so.40" in loaded and loaded.endswith(
            "|/.singularity.d/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        )
        assert unloaded == "unset"
    (tmp_path / "bindings.yaml").write_text("format: 1\noptions: [{option: --sharens}]\n")
    left = inside("bindings", "show", "--as", "lua")
    assert "no variable of apptainer holds `options`: give them to each command: --sharens" in left.err
    (tmp_path / "bindings.yaml").write_text("format: 1\nbinds:\n  - {path: /none/x, why: y}\n")
    gone = inside("bindings", "show", expect=4)
    assert "/none/x does not exist on this machine" in gone.err


def test_where_bindings_cannot_be_written_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ("bindings", "detect", "--profile", "lumi-ai", "-o", tmp_path / "file" / "b.yaml")
    said = stackyard(*words, expect=2).err
    assert f"error: cannot write {tmp_path}/file/b.yaml: " in said and "hint: -o names another file" in said
