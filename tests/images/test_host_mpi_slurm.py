"""The host's MPI in an image over two Slurm nodes: right sums, and every rank's maps; and what fails with status 0."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from images import hostmpi
from stackyard.core.errors import MissingError
from stackyard.host.run.command import run
from stackyard.images.bindings.written import bindings_text
from stackyard.inputs.sites.bindings import Bind, BoundPath, BoundVariable, HostBindings, HostMpi, load_bindings
from support import images, programs, stuckmpi
from support.cli import Done, stackyard
from support.slurm import SlurmCluster

pytestmark = [pytest.mark.real, pytest.mark.long]

SRUN = "srun -N2 --ntasks-per-node=2"
RANKS = [f"rank {rank} of 4: sum 10, last 4" for rank in range(4)]
ALONE = ["rank 0 of 1: sum 1, last 1"] * 4


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    programs.need("gcc")
    try:
        images.apptainer()
        return hostmpi.image_with_mpich(tmp_path_factory.mktemp("image") / "root")
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


@pytest.fixture
def check(slurm: SlurmCluster, image: Path, tmp_path: Path) -> Any:
    """`stackyard bindings check` with the ranks of a program on two nodes."""

    def ranks(*words: str | Path, mpi: str = "pmi2", root: Path = image, expect: int = 0) -> Done:
        variables = slurm.environ(**{name: images.environ()[name] for name in ("PATH", "APPTAINER_USERNS")})
        site = ["--site", tmp_path / "site.yaml"] if (tmp_path / "site.yaml").exists() else []
        argv = [*site, "bindings", "check", root, "--json", *words, "--run", f"{SRUN} --mpi={mpi}"]
        return stackyard(*argv, "--", "/app", cwd=tmp_path, expect=expect, **variables)

    return ranks


def detected(directory: Path, prefix: Path | str) -> Path:
    """Also the directories of the cluster's PMIx servers, by SLURM_CONF."""
    stackyard("bindings", "detect", "--mpi", prefix, cwd=directory)
    return directory / "bindings.yaml"


def said(done: Done) -> list[str]:
    """What the ranks said, without their library."""
    return sorted(line.rpartition(",")[0] for line in done.err.splitlines() if line.startswith("rank "))


def libraries(done: Done) -> set[str]:
    return set(re.findall(r"last \d+, (.*)", done.err))


def rules(done: Done) -> set[str]:
    return {finding["rule"] for finding in done.value["findings"]}


def test_a_newer_mpich_takes_the_place_of_the_images(check: Any, tmp_path: Path) -> None:
    prefix = hostmpi.mpich("of-host")
    detected(tmp_path, prefix)
    done = check()
    assert said(done) == RANKS
    assert {" ".join(text.split()) for text in libraries(done)} == {"MPICH Version: 5.0.2"}
    ranks = done.value["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3] and len({rank["node"] for rank in ranks}) == 2
    assert all(rank["is_host"] and rank["library"] == f"{prefix}/lib/libmpi.so.12" for rank in ranks)


def test_the_images_own_without_bindings(check: Any, tmp_path: Path) -> None:
    """The control: the image runs by itself, and the ranks' maps say whose MPI it is."""
    library = hostmpi.mpich("of-host") / "lib/libmpi.so.12"
    variables = (
        "variables:\n  - {name: MPIR_CVAR_CH4_CMA_ENABLE, value: '0'}\n  - {name: UCX_POSIX_USE_PROC_LINK, value: n}\n"
    )
    (tmp_path / "bindings.yaml").write_text(f"format: 1\nmpi: {{family: mpich, library: {library}}}\n{variables}")
    done = check(expect=3)
    assert said(done) == RANKS, done.err
    assert {" ".join(text.split()) for text in libraries(done)} == {"MPICH Version: 4.3.2"}
    assert rules(done) == {"mpi-own", "rank-mpi"}
    assert all(rank["library"] == "/opt/mpich/lib/libmpi.so.12" and not rank["is_host"] for rank in done.value["ranks"])


def test_without_pmi_every_rank_is_alone(check: Any, tmp_path: Path) -> None:
    """Status 0 four times; the finding says why."""
    detected(tmp_path, hostmpi.mpich("of-host"))
    done = check(mpi="none", expect=3)
    assert said(done) == ALONE
    assert rules(done) == {"pmi"} and all(rank["code"] == 0 for rank in done.value["ranks"])
    assert "rank 0 of 1" in done.value["findings"][0]["reason"]


def test_an_rpath_beats_the_bound_library_until_it_is_repaired(check: Any, image: Path, tmp_path: Path) -> None:
    app = image / "app"
    kept = app.read_bytes()
    try:
        hostmpi.compiled(app, hostmpi.mpich("of-image"), "-Wl,-rpath,/opt/mpich/lib", "-Wl,--disable-new-dtags")
        detected(tmp_path, hostmpi.mpich("of-host"))
        done = check(expect=3)
        assert said(done) == RANKS, done.err
        assert rules(done) == {"rpath", "rank-mpi"}
        fine = check("--repair", tmp_path / "fixed")
        assert said(fine) == RANKS and all(rank["is_host"] for rank in fine.value["ranks"])
    finally:
        app.write_bytes(kept)


def with_places(image: Path, target: Path, bindings: HostBindings) -> Path:
    """The image with what ch-run does not make: the directories of the daemons, which no image has."""
    shutil.copytree(image, target, symlinks=True, copy_function=os.link)
    for bind in bindings.binds:
        if Path(bind.path).is_dir():
            Path(f"{target}{bind.path}").mkdir(parents=True, exist_ok=True)
    return target


@pytest.mark.parametrize("runtime", ["apptainer", "charliecloud"])
def test_an_older_open_mpi_takes_the_place_of_a_newer_one(check: Any, tmp_path: Path, runtime: str) -> None:
    """Open MPI 4.1 of this machine in an image with 5.0: libraries, components, parameters, PMIx."""
    programs.need("mpirun.openmpi")
    try:
        root = hostmpi.image_with_openmpi()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    library = next(Path("/usr/lib").glob("*/libmpi.so.40"))
    bindings = load_bindings(detected(tmp_path, library))
    site_of(tmp_path, runtime)
    if runtime == "charliecloud":
        programs.need("ch-run")
        root = with_places(root, tmp_path / "root", bindings)
    done = check(mpi="pmix", root=root)
    assert said(done) == RANKS, done.err
    assert {text.split()[2] for text in libraries(done)} == {"v4.1.4"}
    assert rules(done) <= {"component-missing"}  # libatomic, a compiler's run time, which this image does not have
    assert all(rank["is_host"] for rank in done.value["ranks"])


def test_resolved_names_in_containlibs_use_the_images(check: Any, tmp_path: Path) -> None:
    """Status 0, right sums, and the image's own MPICH: the file is bound under a name that nothing asks for."""
    prefix = hostmpi.mpich("of-host")
    (tmp_path / "lib").mkdir()
    for path in (prefix / "lib").rglob("*.so*"):
        if path.is_file() and path.name != "libmpi.so":
            (tmp_path / "lib" / path.name).hardlink_to(path)
    real = (tmp_path / "lib/libmpi.so.12").rename(tmp_path / "lib/libmpi.so.12.9.9")
    (tmp_path / "lib/libmpi.so.12").symlink_to(real.name)
    own = "MPIR_CVAR_CH4_CMA_ENABLE, value: '0'}\n  - {name: UCX_POSIX_USE_PROC_LINK, value: n}\n"
    text = f"format: 1\nmpi: {{family: mpich, library: {tmp_path}/lib/libmpi.so.12, pmi: [pmi2]}}\n"
    text += f"libraries:\n  - {{path: {real}}}\nvariables:\n  - {{name: {own}"
    (tmp_path / "bindings.yaml").write_text(text)
    done = check(expect=3)
    assert said(done) == RANKS, done.err
    assert {" ".join(text.split()) for text in libraries(done)} == {"MPICH Version: 4.3.2"}
    assert all(rank["code"] == 0 for rank in done.value["ranks"]), done.value["ranks"]
    assert rules(done) == {"library-name", "mpi-own", "rank-mpi"}


def test_another_family_uses_the_images(check: Any, tmp_path: Path) -> None:
    """MPICH given to a program of Open MPI: it runs its own, with status 0."""
    programs.need("mpirun.openmpi")
    try:
        root = hostmpi.image_with_openmpi()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    file = detected(tmp_path, hostmpi.mpich("of-host"))
    loud = check(mpi="pmix", root=root, expect=3)
    assert "EFA_1.3' not found" in loud.err, loud.err  # the image's libfabric is newer than the host's libefa
    found = next(each for each in loud.value["findings"] if each["rule"] == "symbol-version")
    assert "EFA_1.3 of libefa.so.1" in found["message"] and found["better"].startswith("remove libefa.so.1")
    alone = load_bindings(file).model_copy(update={"libraries": ()})
    file.write_text(bindings_text(alone))
    done = check(mpi="pmix", root=root, expect=3)
    assert said(done) == RANKS, done.err
    assert {text.split()[2][:2] for text in libraries(done)} == {"v5"}
    assert all(rank["code"] == 0 for rank in done.value["ranks"]), done.value["ranks"]
    assert rules(done) == {"mpi-family", "pmi", "rank-mpi"}


def test_a_traced_run_adds_what_no_table_has(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Debian's hwloc opens plug-ins and Slurm's PMIx sockets; what every image has of its own is left out."""
    programs.need("strace", "mpicc.openmpi")
    run(["mpicc.openmpi", hostmpi.RING, "-o", tmp_path / "ring"])
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = ("--mpi", next(Path("/usr/lib").glob("*/libmpi.so.40")), "--trace", "srun -N1 -n2 --mpi=pmix")
    done = stackyard(
        "bindings", "detect", "--json", *words, "--", tmp_path / "ring", cwd=tmp_path, **slurm.environ(**as_root)
    )
    rows = [*done.value["libraries"], *done.value["binds"]]
    traced = [row["path"] for row in rows if row["why"] == "opened by ring"]
    assert traced and "/etc/ld.so.cache" not in traced and not any("libc.so.6" in path for path in traced)


def site_of(directory: Path, runtime: str, policy: str = "bindings: bindings.yaml") -> None:
    site = "name: test\nnodes: {n: {cores: 32}}\nscheduler: {kind: slurm, exclusive: false, mpi: pmi2}\n"
    container = f"{{runtime: {runtime}, {policy}}}"
    (directory / "site.yaml").write_text(f"{site}launch: {{container: {container}}}\n")


def launched(
    slurm: SlurmCluster, directory: Path, image: Path, *, expect: int, policy: str = "bindings: bindings.yaml",
    runtime: str = "apptainer", program: str = "/app", **more: str,
) -> Done:  # fmt: skip
    """The ring program of an image by `stackyard launch`, with what site.yaml names."""
    site_of(directory, runtime, policy)
    if runtime == "apptainer":
        more |= {name: images.environ()[name] for name in ("PATH", "APPTAINER_USERNS")}
    variables = slurm.environ(**more)
    words = ("--site", directory / "site.yaml", "launch", "-N", "2", "-r", "2", "-c", "1", "--backend", "mpi")

    def once() -> Done:
        shutil.rmtree(directory / "runs", ignore_errors=True)
        given = (*words, "--container", image, program)
        return stackyard(*given, cwd=directory, expect=expect, timeout_s=240, **variables)

    return stuckmpi.again(once, directory)


def test_a_launch_uses_the_bindings_of_its_site(slurm: SlurmCluster, image: Path, tmp_path: Path) -> None:
    detected(tmp_path, hostmpi.mpich("of-host"))
    all_ranks_with_5_0_2(tmp_path, launched(slurm, tmp_path, image, expect=0))


def all_ranks_with_5_0_2(directory: Path, done: Done) -> None:
    text = "".join(file.read_text() for file in directory.glob("runs/*/**/rank-*.log")) or done.out
    assert sorted(re.findall(r"rank \d of 4: sum 10, last 4", text)) == RANKS, done.out + done.err
    assert len(re.findall(r"MPICH Version:\s+5\.0\.2", text)) == 4


def test_an_image_that_brings_its_own_mpich(slurm: SlurmCluster, tmp_path: Path) -> None:
    """MPICH 5 reads its neighbours' memory, which ranks in namespaces of their own may not: it would stop."""
    try:
        images.apptainer()
        root = hostmpi.image_with_mpich(tmp_path / "root", "of-host")
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    all_ranks_with_5_0_2(tmp_path, launched(slurm, tmp_path, root, expect=0, policy="options: []"))


@pytest.fixture(scope="module")
def own_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image for Charliecloud, with what ch-run does not make: a place for each directory that is bound."""
    programs.need("gcc", "ch-run")
    return hostmpi.image_with_mpich(tmp_path_factory.mktemp("charliecloud") / "root")


def mpich_as_libraries(directory: Path) -> HostBindings:
    """MPICH 5.0.2 as a distribution has it: files of one directory, that go into an image one by one."""
    prefix = hostmpi.mpich("of-host") / "lib"
    (directory / "lib").mkdir()
    for path in prefix.rglob("*.so*"):
        if path.is_file() and path.name != "libmpi.so":
            (directory / "lib" / path.name).hardlink_to(path)
    rows = tuple(BoundPath(path=f"{directory}/lib/{name}") for name in ("*.so.*", "*.so"))
    variables = [("MPIR_CVAR_CH4_CMA_ENABLE", "0"), ("UCX_POSIX_USE_PROC_LINK", "n")]
    return HostBindings(
        mpi=HostMpi(family="mpich", library=f"{directory}/lib/libmpi.so.12", pmi=("pmi2",)),
        libraries=rows, variables=tuple(BoundVariable(name=name, value=value) for name, value in variables),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["folder", "squashfs"])
def test_charliecloud(slurm: SlurmCluster, own_image: Path, tmp_path: Path, kind: str) -> None:
    """Checked and run: the host's files in every rank; and the image's own without the libraries."""
    root = own_image
    if kind == "squashfs":
        programs.need("mksquashfs", "squashfuse")
        root = tmp_path / "image.sqfs"
        run(["mksquashfs", own_image, root, "-quiet", "-comp", "zstd", "-Xcompression-level", "1"])
    bindings = mpich_as_libraries(tmp_path)
    (tmp_path / "bindings.yaml").write_text(bindings_text(bindings))
    site_of(tmp_path, "charliecloud")
    words = ("bindings", "check", root, "--json", "--run", f"{SRUN} --mpi=pmi2", "--", "/app")
    done = stackyard("--site", tmp_path / "site.yaml", *words, cwd=tmp_path, **slurm.environ())
    assert said(done) == RANKS, done.err
    assert {" ".join(text.split()) for text in libraries(done)} == {"MPICH Version: 5.0.2"}
    ranks = done.value["ranks"]
    assert all(rank["is_host"] and rank["library"].endswith("/libs/libmpi.so.12") for rank in ranks), ranks
    own = bindings.model_copy(update={"libraries": ()})
    (tmp_path / "bindings.yaml").write_text(bindings_text(own))
    other = stackyard("--site", tmp_path / "site.yaml", *words, cwd=tmp_path, expect=3, **slurm.environ())
    assert {" ".join(text.split()) for text in libraries(other)} == {"MPICH Version: 4.3.2"}
    assert rules(other) == {"mpi-own", "rank-mpi"}


def test_charliecloud_in_a_launch(slurm: SlurmCluster, own_image: Path, tmp_path: Path) -> None:
    (tmp_path / "bindings.yaml").write_text(bindings_text(mpich_as_libraries(tmp_path)))
    (tmp_path / "nodes").mkdir()
    done = launched(slurm, tmp_path, own_image, expect=0, runtime="charliecloud", STACKYARD_TMP=str(tmp_path / "nodes"))
    assert [*(tmp_path / "nodes").iterdir()] == []  # of the libraries' places nothing is left
    text = "".join(file.read_text() for file in tmp_path.glob("runs/*/**/rank-*.log")) or done.out
    assert sorted(re.findall(r"rank \d of 4: sum 10, last 4", text)) == RANKS, done.out + done.err
    assert len(re.findall(r"MPICH Version:\s+5\.0\.2", text)) == 4


@pytest.mark.parametrize("runtime", ["charliecloud", "apptainer"])
def test_the_run_keeps_what_its_ranks_loaded(
    slurm: SlurmCluster, own_image: Path, tmp_path: Path, runtime: str
) -> None:
    """The host's with the libraries; without them the image's, with exit status 0, and this the run says."""
    slow = tmp_path / "slow.h"
    slow.write_text(
        "#include <unistd.h>\nstatic int slow(int us) { (void)us; return sleep(8); }\n#define usleep slow\n"
    )
    hostmpi.compiled(own_image / "slow", hostmpi.mpich("of-image"), "-include", str(slow))
    bindings = mpich_as_libraries(tmp_path)
    for whose in (bindings, bindings.model_copy(update={"libraries": ()})):
        (tmp_path / "bindings.yaml").write_text(bindings_text(whose))
        done = launched(slurm, tmp_path, own_image, expect=0, runtime=runtime, program="/slow")
        shown = stackyard("runs", "show", cwd=tmp_path).out
        usage = stackyard("runs", "show", "--json", cwd=tmp_path).value["usage"]
        is_host = bool(whose.libraries)
        assert [one["mpi_is_host"] for one in usage["ranks"]] == [is_host] * 4, usage
        own = (
            "" if is_host else "4 of 4 ranks loaded /opt/mpich/lib/libmpi.so.12, which is not the host's (rank 0 on n1)"
        )
        assert usage["mpi"] == own and ("note: MPI: 4 of 4 ranks" in done.err) != is_host
        assert (f"MPI        {own}" in shown) != is_host


def test_a_launch_names_a_source_that_a_node_lacks(slurm: SlurmCluster, image: Path, tmp_path: Path) -> None:
    file = detected(tmp_path, hostmpi.mpich("of-host"))
    bindings = load_bindings(file)
    gone = Bind(path="/usr/lib64/libcxi.so.1", why="Slingshot")
    file.write_text(bindings_text(bindings.model_copy(update={"binds": (*bindings.binds, gone)})))
    done = launched(slurm, tmp_path, image, expect=71)
    assert "cannot bind /usr/lib64/libcxi.so.1 into the image: it does not exist on this node" in done.out + done.err
