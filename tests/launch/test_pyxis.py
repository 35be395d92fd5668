"""Ranks that start inside an image by srun's options for Pyxis, on a real Slurm with a plug-in that has its grammar."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import oci_bed as bed
from stackyard.images.oci.sqsh import write
from support import programs, pyxis
from support.accounts import Accounts, common_directory
from support.slurm import SlurmCluster, unavailable
from support.slurmcli import Work, working

pytestmark = pytest.mark.real
SITE = """\
name: test
scheduler: {kind: slurm, exclusive: false}
launch: {container: {runtime: pyxis, %s}}
"""
EIGHT = ("-N", "4", "-r", "2", "-c", "1", "-g", "0")
TWO = ("-N", "2", "-r", "1", "-c", "1", "-g", "0")
BUSYBOX = ("--container", "docker://busybox")


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """What the plug-in takes for a registry: a directory per image, for every account."""
    with common_directory() as directory:
        yield directory


@pytest.fixture(scope="module")
def cluster(images: Path) -> Iterator[SlurmCluster]:
    """Four nodes, whose srun has Pyxis."""
    if why := unavailable():
        pytest.skip(why)
    with pyxis.cluster(images) as made:
        yield made


@pytest.fixture
def work(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    """A directory to work in."""
    with working(cluster, tmp_path / "work") as made:
        configure(made)
        yield made


def configure(work: Work, container: str = "binds: []") -> None:
    (work.directory.parent / "site.yaml").write_text(SITE % container)


def launched(work: Work, *words: str | Path, expect: int = 0, nodes: int = 2, each: int = 1) -> str:
    """``stackyard launch`` in an allocation; what it printed, and the logs of the launcher and of the agents."""
    salloc = (f"-N{nodes}", f"--ntasks-per-node={each}")
    done = work.allocated("launch", *map(str, words), expect=expect, salloc=salloc)
    return done.out + done.err


def logs(work: Work) -> list[str]:
    """The output of each rank."""
    return [file.read_text().strip() for file in sorted(work.last.glob("logs/rank-*.log"))]


def test_the_plug_in_has_the_options_and_the_errors_of_pyxis(cluster: SlurmCluster) -> None:
    text = cluster.run("srun", "--help").stdout
    assert text.count("[pyxis]") == 16
    for word in ("mounts=/a:/b,", "mounts=name:/b", "name=x:other"):
        assert cluster.run("srun", "--container-image=busybox", f"--container-{word}", "true", check=False).returncode
    ignored = cluster.run("srun", "-N1", "--container-mounts=/a:/b", "hostname")
    assert "ignoring --container-mounts because neither --container-image" in ignored.stderr
    assert cluster.run("srun", "-N1", "cat", "/marker", PYXIS_CONTAINER_IMAGE="busybox").stdout == "busybox\n"


@pytest.mark.parametrize("name", ["busybox", "hostile"])
def test_ranks_of_an_image_of_busybox_alone(
    work: Work, images: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the image's own variables are those of a rank, and Pyxis sets some for an image of PyTorch."""
    if name == "hostile":
        own = {"MASTER_PORT": "1", "RANK": "9", "LD_LIBRARY_PATH": "/its", "PYTORCH_VERSION": "2", "LANG": "xx"}
        pyxis.busybox(images / name, own)
    program = (
        'echo "RANK $RANK of $WORLD_SIZE, $LOCAL_RANK, $(cat /marker) $LD_LIBRARY_PATH"; pwd; test "$MASTER_PORT" -gt 1'
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", "/of/the/host")
    monkeypatch.setenv("PYXIS_CONTAINER_IMAGE", "docker://none")  # the agents' step would start in it
    launched(work, *EIGHT, "--container", f"docker://{name}", "sh", "-c", program, nodes=4, each=2)
    library = "/its" if name == "hostile" else ""
    expected = [f"RANK {rank} of 8, {rank % 2}, {name} {library}\n{work.directory}" for rank in range(8)]
    assert [log.replace(f"{name} \n", f"{name} \n") for log in logs(work)] == expected
    placement = (work.last / "placement.json").read_text()
    assert '"missing": 0' in placement
    assert not list(Path("/dev/shm").glob(f"stackyard-{os.getuid()}-*"))
    work.nothing_left()


def test_a_failed_rank_ends_all_and_is_named(work: Work) -> None:
    program = "if [ $RANK = 1 ]; then echo this is why; exit 3; fi; sleep 300"
    said = launched(work, *TWO, *BUSYBOX, "sh", "-c", program, expect=3)
    assert "rank 1 on n" in said
    assert "this is why" in said
    work.nothing_left()


def test_an_interrupt_ends_all_ranks(work: Work) -> None:
    process = work.start("launch", *TWO, *BUSYBOX, "sh", "-c", "echo up; sleep 300", salloc=("-N2",))
    work.up()
    os.kill(work.watcher(), signal.SIGINT)
    assert process.wait(60) == 130
    process.communicate()
    work.nothing_left()


def test_an_agent_that_dies_ends_the_launch(work: Work, cluster: SlurmCluster) -> None:
    process = work.start("launch", *TWO, *BUSYBOX, "sh", "-c", "echo up; sleep 300", salloc=("-N2",))
    work.up()
    agent = str(work.last / "agent.py")
    for pid in [pid for pid, line in cluster.processes("n2").items() if agent in line]:
        os.kill(pid, signal.SIGKILL)
    assert process.wait(60)
    assert "lost connection to the agent on n2" in process.communicate()[1]
    work.nothing_left()


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("docker://registry.example/none:1", "pyxis could not import the container image"),
        ("docker://registry.example/login:1", "pyxis could not import the container image"),
        ("docker://nosh", "no sh in the image"),
    ],
)
def test_an_image_that_does_not_start(work: Work, images: Path, image: str, said: str) -> None:
    (images / "nosh/etc").mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    output = launched(work, *TWO, "--container", image, "true", expect=1)
    assert "the image did not start: 2 of 2 tasks did not start" in output
    assert said in output
    assert time.monotonic() - began < 60  # not the time in which nodes may pull an image
    work.nothing_left()


def test_an_image_that_one_node_lacks(work: Work, cluster: SlurmCluster, images: Path) -> None:
    programs.need("mksquashfs")
    there = work.directory / "there"
    there.mkdir()
    words = ["mksquashfs", images / "busybox", there / "x.sqsh", "-quiet"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    launched(work, *TWO, "--container", there / "x.sqsh", "cat", "/marker")
    assert logs(work) == ["busybox", "busybox"]
    cluster.on("n2", "mount", "-t", "tmpfs", "none", there)
    try:
        asked = ("launch", *TWO, "--container", str(there / "x.sqsh"), "true")
        done = work.allocated(*asked, expect=71, salloc=("-N2", "-w", "n1,n2"))
    finally:
        cluster.on("n2", "umount", "--lazy", there)
    assert f"n2: {there}/x.sqsh does not exist on this node" in done.err


@pytest.mark.parametrize(("options", "why"), [("size=4k,nr_inodes=1", "cannot create"), ("size=4k", "No space left")])
def test_a_full_directory_of_shared_memory(work: Work, cluster: SlurmCluster, options: str, why: str) -> None:
    cluster.on("n1", "mount", "-t", "tmpfs", "-o", options, "none", "/dev/shm")
    try:
        if "inodes" not in options:
            cluster.on("n1", "dd", "if=/dev/zero", "of=/dev/shm/full", "bs=4k", "count=1")
        done = work.allocated("launch", *TWO, *BUSYBOX, "true", expect=None, salloc=("-N2", "-w", "n1,n2"))
    finally:
        cluster.on("n1", "umount", "--lazy", "/dev/shm")
    assert done.code
    assert why in done.err
    assert "/dev/shm" in done.err
    work.nothing_left()


def test_mounts_options_and_libraries_of_the_site(work: Work, tmp_path: Path) -> None:
    for name in ("data", "libs"):
        (tmp_path / name).mkdir()
    (tmp_path / "libs/libx.so.1").write_text("of the host")
    configure(
        work, f"binds: ['{tmp_path}/data:/data:ro', /dev/shm], libraries: ['{tmp_path}/libs/libx.so*'], "
        "variables: {A: it's}, options: [--container-readonly, --container-mount-home]".replace("it's", "'it''s'")
    )  # fmt: skip
    program = 'cat ${LD_LIBRARY_PATH%%:*}/libx.so.1; echo " $A"; touch /data/x; touch /y; pwd; test -d "$HOME"'
    launched(work, *TWO, *BUSYBOX, "sh", "-c", program)
    lines = logs(work)[0].splitlines()
    assert lines[0] == "of the host it's"
    refused = [line for line in lines if "Read-only" in line]
    assert refused == [f"touch: /{name}: Read-only file system" for name in ("data/x", "y")]
    assert lines[-1] == str(work.directory)


def test_pmi2_reaches_ranks_in_an_image(work: Work) -> None:
    """The descriptor of PMI2 is inherited, so that an MPI of the image finds its world."""
    program = 'echo "$PMI_RANK of $PMI_SIZE"; printf "cmd=init pmi_version=1 pmi_subversion=1\\n" >&$PMI_FD; '
    program += "read -r x <&$PMI_FD; echo $x"
    words = ("--backend", "mpi", "--launcher-arg=--mpi=pmi2", "sh", "-c", program)
    launched(work, *TWO, *BUSYBOX, *words)
    for rank, text in enumerate(logs(work)):
        assert text.startswith(f"{rank} of 2\ncmd=response_to_init")


def test_explain_names_each_mount(work: Work) -> None:
    done = work.run("explain", *TWO, *BUSYBOX, "sh", "-c", "true")
    pull = "stackyard image pull docker://docker.io/library/busybox --format sqsh"
    own = "your own account inside"
    for text in (
        "--container-image=busybox",
        "the working directory",
        "the run directory",
        "the agents, in a step of their own",
        pull,
        own,
    ):
        assert text in " ".join(done.out.split()), text
    assert "{step}" not in done.out


def test_what_cannot_start_inside(work: Work) -> None:
    outside = work.run("launch", *TWO, *BUSYBOX, "true", expect=2)
    assert "need an allocation" in outside.err
    assert "salloc" in outside.err
    stage = work.run("submit", "--dry-run", *TWO, *BUSYBOX, "--stage", "exit.py", "true", expect=2)
    assert "--stage: an image of pyxis" in stage.err
    folder = work.run("submit", "--dry-run", *TWO, "--container", str(work.directory), "true", expect=2)
    assert "is a directory" in folder.err
    debug = work.run("submit", "--dry-run", *TWO, *BUSYBOX, "--debug-rank", "0", "true", expect=None)
    assert debug.code == 2
    mpirun = work.run("submit", "--dry-run", *TWO, *BUSYBOX, "--launcher", "mpirun", "true", expect=2)
    assert "--container-image is an option of srun, and the launcher is mpirun" in mpirun.err


def test_a_cluster_without_pyxis_says_so_before_a_job_is_queued(slurm: SlurmCluster, tmp_path: Path) -> None:
    with working(slurm, tmp_path / "work") as work:
        configure(work)
        for verb in ("explain", "submit"):
            said = work.run(verb, *TWO, *BUSYBOX, "true", expect=4).err
            assert "Pyxis not found on this cluster: srun has no option --container-image" in said
        assert "--runtime apptainer" in said


def test_a_batch_job(work: Work) -> None:
    work.run("submit", *TWO, *BUSYBOX, "sh", "-c", "echo $RANK; cat /marker")
    work.until(lambda: work.status()["state"] == "done")
    noted = json.loads((work.last / "image.json").read_text())
    assert noted["image"] == "docker://docker.io/library/busybox"
    assert noted["digest"] or "docker.io" in noted["unknown"]
    assert logs(work) == ["0\nbusybox", "1\nbusybox"]


def test_a_script_for_pyxis_and_its_job_see_the_same(work: Work, images: Path) -> None:
    """The image, the mounts, the account and the directory of each rank: of the script, and of its job file."""
    own = work.directory.parent / "own"
    own.mkdir()
    (own / "seen").write_text("mounted\n")
    (images / "busybox" / "w").mkdir(exist_ok=True)
    program = 'echo "$(cat /marker) $(cat /mnt/seen) $(pwd) $(id -u) $(touch /mnt/x 2>/dev/null || echo read-only)"'
    for words in ("--container-workdir=/w --no-container-remap-root", "--container-remap-root"):
        script = work.directory / "job.sh"
        line = f"srun --container-image=busybox --container-mounts={own}:/mnt:ro {words} sh -c '{program}'"
        script.write_text(f"#!/bin/bash\n#SBATCH -t 5 -N 2 --ntasks-per-node=1 -c 1\n{line}\n")
        done = work.cluster.run("salloc", "-Q", "-N2", "--ntasks-per-node=1", "bash", script)
        work.run("lint", "--fix", "job.sh", expect=None)
        launched(work, "--job", "job.sh.job.yaml", "-g", "0")
        assert logs(work) == done.stdout.splitlines() and "mounted" in logs(work)[0]


def test_gpus_of_ranks_and_another_attempt(work: Work) -> None:
    site = "name: t\nnodes: {gpu: {cores: 32, sockets: 2, gpu: {count: 4, vendor: nvidia}}}\n"
    site += "scheduler: {kind: slurm, exclusive: false}\nlaunch: {container: {runtime: pyxis}}\n"
    (work.directory.parent / "site.yaml").write_text(site)
    program = 'echo "$RANK $CUDA_VISIBLE_DEVICES $STACKYARD_DEVICE $STACKYARD_ATTEMPT"; test $STACKYARD_ATTEMPT = 2'
    words = ("-N", "2", "-r", "2", "-c", "1", "-g", "1", "--gpu-visibility", "own", "--restarts", "1")
    salloc = ("-N2", "--ntasks-per-node=2", "--gpus-per-node=2")
    work.allocated("launch", *words, *BUSYBOX, "sh", "-c", program, salloc=salloc)
    assert logs(work) == [f"{rank} {rank % 2} 0 2" for rank in range(4)]
    assert (work.last / "attempts/1/inside.sh").exists()


def test_a_revision_in_one_file_has_its_environment(work: Work, tmp_path: Path) -> None:
    programs.need("mksquashfs")
    built = bed.oci(bed.revision(tmp_path), tmp_path / "layout", bed.base(tmp_path / "base"))
    write(built.reference, work.directory / "demo.sqsh")
    launched(work, *TWO, "--container", "demo.sqsh", "sh", "-c", f'echo "$PATH"; cat {bed.PLACE}/share/data')
    for log in logs(work):
        path, data = log.splitlines()
        assert path.startswith(f"{bed.PLACE}/bin:")
        assert data == "data"


def test_another_account(cluster: SlurmCluster, images: Path, accounts: Accounts) -> None:
    """Its own images and no others; neither its home nor an account of root is in the image."""
    anna = accounts.user("anna")
    work = anna.home / "work"
    work.mkdir()
    os.chown(work, anna.uid, anna.gid)
    (images / "site.yaml").write_text(SITE % "binds: []")
    private = images / "private.sqsh"
    private.write_bytes(b"hsqs")
    private.chmod(0o600)
    words = (anna.bin / "stackyard", "--site", images / "site.yaml", "launch", *TWO, "--container")
    alone = ("salloc", "-Q", "-N2", *words)
    refused = anna.run(*alone, private, "true", cwd=work, expect=2, **cluster.env)
    assert f"cannot read {private}: permission denied" in refused.err
    program = 'id -u; pwd; ls -d "$HOME"; test -w /etc || echo image is read only for it'
    anna.run(*alone, "docker://busybox", "sh", "-c", program, cwd=work, expect=None, **cluster.env)
    last = sorted((work / "runs").iterdir())[-1]
    for rank in range(2):
        lines = (last / f"logs/rank-0000{rank}.log").read_text().splitlines()
        assert lines[:2] == [str(anna.uid), str(work)]
    assert not list(Path("/dev/shm").glob(f"stackyard-{anna.uid}-*"))


@pytest.fixture(autouse=True)
def _nothing_of_mine_in_shared_memory() -> Iterator[None]:
    yield
    for left in Path("/dev/shm").glob(f"stackyard-{os.getuid()}-*"):
        shutil.rmtree(left, ignore_errors=True)
