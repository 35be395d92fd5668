"""Runtimes of a scheduler other than Pyxis: EDF and uenv by plug-ins of srun, Shifter, and a real podman-hpc."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core.change import EnvironmentChange, Prepend
from stackyard.core.errors import InputError
from stackyard.inputs.sites.jobmodels import ContainerPolicy, LaunchPolicy
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.containers import wrap
from stackyard.launch.plan.model import Wrapper
from stackyard.launch.request.intent import Intent
from support import programs, pyxis, venvs
from support.cli import stackyard
from support.slurm import SlurmCluster, unavailable
from support.slurmcli import Work, working

TWO = ("-N", "2", "-r", "1", "-c", "1", "-g", "0")
STANDINS = Path(__file__).parents[1] / "standins"
SHOWS = 'echo "$RANK of $WORLD_SIZE"; cat /marker; pwd'
DIGEST = "sha256:" + "0" * 64


@pytest.fixture(scope="module", params=["edf", "uenv"])
def plugged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Two nodes, whose srun has a plug-in; and where it finds images."""
    if why := unavailable():
        pytest.skip(why)
    with pyxis.cluster(tmp_path_factory.mktemp("images"), request.param, nodes=2) as made:
        yield made


def configured(work: Work, runtime: str, more: str = "binds: []") -> None:
    container = f"{{runtime: {runtime}, {more}}}"
    site = f"name: t\nscheduler: {{kind: slurm, exclusive: false}}\nlaunch: {{container: {container}}}"
    (work.directory.parent / "site.yaml").write_text(f"{site}\n")


def logs(work: Work) -> list[str]:
    return [file.read_text().strip() for file in sorted(work.last.glob("logs/rank-*.log"))]


@pytest.mark.real
def test_ranks_by_a_plug_in_of_srun(plugged: SlurmCluster, tmp_path: Path) -> None:
    """EDF: inside by a file with blanks and a $ in a path. uenv: the root stays the host's, with what is mounted."""
    name = "edf" if "environment=" in plugged.run("srun", "--help").stdout else "uenv"
    place = tmp_path / "user-environment"
    place.mkdir()
    with working(plugged, tmp_path / 'a "$b"' if name == "edf" else tmp_path / "w") as work:
        image = "docker://busybox" if name == "edf" else f"busybox:{place}"
        configured(work, name, "options: ['--view=default']" if name == "uenv" else "binds: []")
        program = SHOWS if name == "edf" else f'echo "$RANK of $WORLD_SIZE $UENV_VIEW"; cat {place}/marker; pwd'
        work.allocated("launch", *TWO, "--container", image, "sh", "-c", program)
        view = " default" if name == "uenv" else ""
        assert logs(work) == [f"{rank} of 2{view}\nbusybox\n{work.directory}" for rank in range(2)]
        assert (work.last / "rank.sh").exists() == (name == "uenv")
        assert not list(place.iterdir())
        wrong = work.allocated("launch", *TWO, "--container", image.replace("busybox", "none"), "true", expect=None)
        assert wrong.code
        assert ("failed to import" if name == "edf" else "no uenv matches") in wrong.err
        work.nothing_left()


@pytest.mark.real
def test_shifter(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.need("busybox")
    pyxis.busybox(tmp_path / "images/registry.example_busybox_1")
    monkeypatch.setenv("STANDIN_IMAGES", str(tmp_path / "images"))
    monkeypatch.setenv("PATH", f"{STANDINS}/shifter:{os.environ['PATH']}")
    with working(slurm, tmp_path / "work") as work:
        configured(work, "shifter", "variables: {A: 'a b'}")
        program = f'{SHOWS}; echo "$A"; test $RANK = 0 || {{ sleep 2; exit 4; }}'
        words = (*TWO, "--container", "docker://registry.example/busybox:1", "sh", "-c", program)
        done = work.allocated("launch", *words, expect=4)
        assert "rank 1 on n" in done.err
        assert logs(work) == [
            f"{rank} of 2\nbusybox_1\n{work.directory}\na b".replace("busybox_1", "registry.example_busybox_1")
            for rank in range(2)
        ]
        wrong = work.allocated("launch", *TWO, "--container", "docker://busybox:2", "true", expect=None)
        assert "pull it first with shifterimg" in wrong.err


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory for the sockets of containers, in whose name podman allows 50 characters."""
    with tempfile.TemporaryDirectory(prefix="podman-", dir="/tmp", ignore_cleanup_errors=True) as place:
        yield Path(place)


@pytest.mark.real
@pytest.mark.slow
def test_a_real_podman_hpc(tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine: two ranks, each in a container of Debian's podman; their variables, mounts and statuses."""
    programs.need("podman", "runc", "fuse-overlayfs", "busybox", "mksquashfs")
    if os.geteuid():
        pytest.skip("needs root: podman of an account without subordinate ids cannot be had here")
    place = venvs.python("podman-hpc==1.1.4").parent
    root = pyxis.busybox(tmp_path / "root")
    (tmp_path / "conf.yaml").write_text(f"modules_dir: {tmp_path}/none\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "site.yaml").write_text("name: t\nlaunch: {container: {runtime: podman-hpc, variables: {A: 'a b'}}}\n")
    monkeypatch.setenv("PATH", f"{STANDINS}/podman:{place}:{os.environ['PATH']}")
    for name, value in {
        "USER": "root", "SQUASH_DIR": str(tmp_path / "squash"), "PODMANHPC_CONFIG_FILE": str(tmp_path / "conf.yaml"),
        "PODMANHPC_RUN_ROOT": str(short), "PODMANHPC_GRAPH_ROOT": str(tmp_path / "graph"), "HIDDEN": "no",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    words = (
        "launch",
        *[
            "-r",
            "2",
            "-c",
            "1",
            "-g",
            "0",
            "--oversubscribe",
            "--env",
            "SEEN=yes",
            "--launcher",
            "local",
            "--container",
        ],
        root,
    )
    program = f'{SHOWS}; echo "$A $SEEN $HIDDEN $MASTER_PORT" | grep "a b yes  [1-9]" && exit $((RANK * 5))'
    done = stackyard(
        "--site", tmp_path / "site.yaml", *words, "sh", "-c", program, cwd=tmp_path, expect=5, timeout_s=300
    )
    assert "rank 1" in done.err
    last = sorted((tmp_path / "runs").iterdir())[-1]
    for rank in range(2):
        lines = (last / f"logs/rank-0000{rank}.log").read_text().splitlines()
        assert lines[:3] == [f"{rank} of 2", "root", str(tmp_path)]
        assert len(lines) == 4


def made(tmp_path: Path, image: str, runtime: str, gpu: str = "", stack: bool = False, **policy: object) -> Wrapper:
    """The words of a runtime for one rank."""
    node = Node("n", (NodeDomain(0, (0,), (0,) if gpu else ()),), 1, gpu_vendor=gpu)
    layout = Layout(node, (Block(0, 1, (Slot(0, (0,), (0,) if gpu else ()),)),))
    site = Site(launch=LaunchPolicy(container=ContainerPolicy.model_validate({"runtime": runtime, **policy})))
    change = EnvironmentChange((Prepend("PATH", "/yard/bin"),)) if stack else EnvironmentChange()
    intent = Intent(program=("x",), container=image, cwd=str(tmp_path), passed=("TOKEN",))
    return wrap(intent, site, layout, change, environ={"PATH": ""}, passed=("TOKEN", "MINE"))


def test_podman_hpc_passes_names_and_no_secret_values(tmp_path: Path) -> None:
    words = made(
        tmp_path, "docker://ghcr.io/a/b:1", "podman-hpc", "nvidia", binds=("/d:/e:ro",), variables={"A": "1"}
    ).argv
    text = " ".join(words)
    assert text.startswith("podman-hpc run --rm --gpu --network=host --ipc=host --pid=host -v /d:/e:ro")
    for part in ("-e RANK", "-e STACKYARD_*", "-e TOKEN", "-e MINE", "-e A=1", f"-w {tmp_path}", "--entrypoint="):
        assert part in text
    assert words[-1] == "ghcr.io/a/b:1"
    with pytest.raises(InputError, match="no environment of a stack"):
        made(tmp_path, "docker://ghcr.io/a/b:1", "podman-hpc", stack=True)


def test_shifter_takes_tags_and_its_modules_of_gpus(tmp_path: Path) -> None:
    wrapper = made(tmp_path, "nvcr.io#nvidia/pytorch", "shifter", "nvidia")
    assert wrapper.argv[:2] == ("shifter", "--image=docker:nvcr.io/nvidia/pytorch:latest")
    assert [finding.rule for finding in wrapper.findings] == ["shifter-gpu"]
    assert made(tmp_path, "docker://a/b:2", "shifter", "nvidia", options=("--module=gpu",)).findings == ()
    for image, said in ((f"docker://a.b/c@{DIGEST}", "tags, not digests"), (str(tmp_path), "does not read")):
        with pytest.raises(InputError, match=said):
            made(tmp_path, image, "shifter")


def test_a_digest_is_what_enroot_gets(tmp_path: Path) -> None:
    wrapper = made(tmp_path, f"docker://nvcr.io/nvidia/x:1@{DIGEST}", "pyxis")
    assert wrapper.launcher[0].words == (f"--container-image=nvcr.io#nvidia/x@{DIGEST}",)
    assert "may be another image" not in wrapper.findings[0].message
    assert "tag 1 may be another image" in made(tmp_path, "docker://nvcr.io/nvidia/x:1", "pyxis").findings[0].message


def test_uenv_has_no_binds_of_its_own(tmp_path: Path) -> None:
    assert made(tmp_path, "prgenv-gnu/24.11:v1", "uenv").launcher[0].words == ("--uenv=prgenv-gnu/24.11:v1",)
    with pytest.raises(InputError, match="has the root of the host"):
        made(tmp_path, "prgenv-gnu/24.11:v1", "uenv", binds=("/d",))
    with pytest.raises(InputError, match="image not found"):
        made(tmp_path, "./none.squashfs", "uenv")


def test_an_unknown_runtime_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="podmn") as caught:
        made(tmp_path, "docker://a/b", "podmn")
    assert "podman-hpc" in f"{caught.value} {caught.value.hint}"
