"""Images around the program: the words per runtime, and a real run in an image."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stackyard.core.change import EnvironmentChange, Prepend, Set
from stackyard.core.errors import InputError, MissingError
from stackyard.images.bindings.families import families
from stackyard.inputs.sites.jobmodels import ContainerPolicy, LaunchPolicy
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.containers import APART, wrap
from stackyard.launch.plan.model import RankProgram, Wrapper
from stackyard.launch.request.intent import Intent
from stackyard.launch.shim import shell
from stackyard.launch.shim.programs import wrapped
from support import programs

STACK = EnvironmentChange((Prepend("PATH", "/yard/base/bin"), Set("X", "1"), Prepend("PATH", "/yard/stack/bin")))


def layout(vendor: str = "") -> Layout:
    node = Node("n", (NodeDomain(0, (0,), (0,)),), 1, gpu_vendor=vendor)
    return Layout(node, (Block(0, 1, (Slot(0, (0,), (0,) if vendor else ()),)),))


def site(**policy: object) -> Site:
    return Site(launch=LaunchPolicy(container=ContainerPolicy.model_validate(policy)))


@pytest.fixture
def intent(tmp_path: Path) -> Intent:
    (tmp_path / "x.sif").touch()
    return Intent(program=("train.py",), container="x.sif", cwd=str(tmp_path))


def test_apptainer(intent: Intent, tmp_path: Path) -> None:
    there = site(
        runtime="apptainer", binds=("/opt/cray", "/var/spool/slurmd:/spool:ro"), options=("--fakeroot",),
        variables={"LD_LIBRARY_PATH": "/opt/cray/lib", "LD_PRELOAD": "/opt/gtl.so"}, libraries=("/l/a.so", "/l/b.so"),
    )  # fmt: skip
    made = wrap(intent, there, layout("amd"), STACK, stack_root="/yard")
    binds = ["/opt/cray", "/var/spool/slurmd:/spool:ro", str(tmp_path), "/yard", "${STACKYARD_WIRED}"]
    flat = [word for bind in binds for word in ("--bind", bind)]
    assert made.argv == (
        "apptainer", "exec", "--rocm", *flat, "--pwd", str(tmp_path), "--fakeroot", f"{tmp_path}/x.sif",
    )  # fmt: skip
    assert made.variables == {
        "APPTAINERENV_LD_LIBRARY_PATH": "/opt/cray/lib",
        "APPTAINERENV_LD_PRELOAD": "/opt/gtl.so",
        "APPTAINERENV_PREPEND_PATH": "/yard/stack/bin:/yard/base/bin",
        "APPTAINER_CONTAINLIBS": "/l/a.so,/l/b.so",
    }
    assert made.tasks is None
    assert made.findings == ()


def test_singularity_has_its_own_names(intent: Intent) -> None:
    made = wrap(intent, site(runtime="singularity", variables={"A": "1"}), layout("nvidia"), STACK)
    assert made.argv[:3] == ("singularity", "exec", "--nv")
    assert sorted(made.variables) == ["SINGULARITYENV_A", "SINGULARITYENV_PREPEND_PATH"]


def test_without_gpus_no_flag(intent: Intent) -> None:
    assert not {"--nv", "--rocm"} & set(wrap(intent, site(runtime="apptainer"), layout(), STACK).argv)


def test_helpers_are_bound_where_they_are_run(intent: Intent) -> None:
    from stackyard.launch.plan.backends import HELPERS

    program = RankProgram(layout(), ("python", f"{HELPERS}/ray_node.py"))
    assert str(HELPERS) in wrap(intent, site(runtime="apptainer"), layout(), STACK, program=program).argv
    assert str(HELPERS) not in wrap(intent, site(runtime="apptainer"), layout(), STACK).argv


@pytest.mark.parametrize(("place", "bound"), [("elsewhere", True), ("cwd/below", False), ("image-only", False)])
def test_a_script_of_another_directory_is_bound(tmp_path: Path, place: str, bound: bool) -> None:
    script = tmp_path / place / "train.py"
    if place != "image-only":
        script.parent.mkdir(parents=True)
        script.touch()
    (tmp_path / "cwd").mkdir(exist_ok=True)
    (tmp_path / "cwd" / "x.sif").touch()
    asked = Intent(program=("python", "-u", str(script)), container="x.sif", cwd=str(tmp_path / "cwd"))
    argv = wrap(asked, site(runtime="apptainer"), layout(), STACK).argv
    assert (str(script.parent) in argv) == bound


@pytest.mark.parametrize("option", ["--cleanenv", "-e"])
def test_cleanenv_never_silently(intent: Intent, option: str) -> None:
    made = wrap(intent, site(runtime="apptainer", options=(option,)), layout(), STACK)
    assert [finding.rule for finding in made.findings] == ["container-cleanenv"]


def test_unknown_image(intent: Intent) -> None:
    with pytest.raises(InputError, match=r"image not found: .*/y\.sif"):
        wrap(intent.model_copy(update={"container": "y.sif"}), site(), layout(), STACK)
    with pytest.raises(InputError, match="every rank would pull") as caught:
        wrap(intent.model_copy(update={"container": "docker://a/b"}), site(), layout(), STACK)
    assert "apptainer build" in (caught.value.hint or "")


def test_no_runtime_here(intent: Intent, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="none of apptainer, singularity, ch-run found on PATH"):
        wrap(intent, site(), layout(), STACK, environ={"PATH": str(tmp_path)})


def test_the_runtime_found_reads_the_image(intent: Intent, tmp_path: Path) -> None:
    for program in ("ch-run", "singularity"):
        (tmp_path / program).touch()
        (tmp_path / program).chmod(0o755)
    found = {"PATH": str(tmp_path)}
    assert wrap(intent, site(), layout(), STACK, environ=found).argv[0] == "singularity"
    (tmp_path / "singularity").unlink()
    with pytest.raises(MissingError):
        wrap(intent, site(), layout(), STACK, environ=found)
    with pytest.raises(InputError, match="of this site, charliecloud, does not read"):
        wrap(intent, site(runtime="charliecloud"), layout(), STACK)


def image(directory: Path, *mounts: str) -> Path:
    """A small image that has its programs from the host's /usr."""
    for name in ("usr", "etc", "dev", "proc", "sys", "tmp", "home", "root", *mounts):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (directory / "etc" / name).touch()
    for name in ("bin", "lib", "lib64", "sbin"):
        (directory / name).symlink_to(f"usr/{name}")
    return directory


def run(made: Wrapper, *program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A wrapper around a program, rendered as the shim does."""
    text = shell.exports(made.variables) + shell.array("words", program)
    text += shell.array("words", made.argv, '"${words[@]}"') + '"${words[@]}"'
    return subprocess.run(
        ["/bin/bash", "-c", text], env={"USER": "root", **os.environ, **environ}, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("kind", ["folder", "squashfs"])
def test_charliecloud(tmp_path: Path, kind: str) -> None:
    needed = ("ch-run", "mksquashfs", "squashfuse") if kind == "squashfs" else ("ch-run",)
    programs.need(*needed)
    name = image(tmp_path / "image")
    if kind == "squashfs":
        name = tmp_path / "image.sqfs"
        subprocess.run(["mksquashfs", tmp_path / "image", name, "-quiet"], check=True, stdout=subprocess.DEVNULL)
    step = tmp_path / "a step"
    step.mkdir()
    intent = Intent(program=("x",), container=str(name), cwd=str(step))
    there = site(runtime="charliecloud", binds=("/usr",), variables={"A": "it's $HOME"})
    made = wrap(intent, there, layout(), EnvironmentChange())
    environ = {"RANK": "3", "STACKYARD_STEP": str(step), "STACKYARD_WIRED": str(step)}
    done = run(made, "sh", "-c", 'pwd; echo "$A|$RANK"; touch here; exit 9', **environ)
    assert (done.returncode, done.stderr) == (9, "")
    assert done.stdout.splitlines() == [str(step), "it's $HOME|3"]
    assert (step / "here").exists()


def test_charliecloud_needs_a_place_to_bind(tmp_path: Path) -> None:
    intent = Intent(program=("x",), container=str(image(tmp_path / "image")), cwd="/tmp")
    with pytest.raises(InputError, match="cannot bind /scratch/x") as caught:
        wrap(intent, site(runtime="charliecloud", binds=("/usr", "/scratch/x")), layout(), STACK)
    assert caught.value.hint == f"mkdir -p {tmp_path}/image/scratch/x"
    image(tmp_path / "other", "scratch")
    other = intent.model_copy(update={"container": str(tmp_path / "other")})
    made = wrap(
        other, site(runtime="charliecloud", binds=("/usr", "/scratch", "/scratch/x:/scratch/y")), layout(), STACK
    )
    assert made.argv[0] == "ch-run"


def test_what_charliecloud_cannot(tmp_path: Path) -> None:
    intent = Intent(program=("x",), container=str(image(tmp_path / "image")), cwd="/tmp")
    made = wrap(intent, site(runtime="charliecloud"), layout("nvidia"), STACK)
    assert [finding.rule for finding in made.findings] == ["charliecloud-gpu"]


def test_bindings_with_charliecloud_are_where_it_has_them(tmp_path: Path) -> None:
    (tmp_path / "bindings.yaml").write_text(
        "format: 1\nlibraries: [{path: /l/liba.so}]\npreload: [{path: /l/libhook.so}]\nlibrary_path: [{path: /l}]\n"
    )
    intent = Intent(program=("x",), container=str(image(tmp_path / "image")), cwd="/tmp")
    there = site(runtime="charliecloud", bindings=str(tmp_path / "bindings.yaml"))
    made = wrap(intent, there, layout(), STACK)
    assert made.linked == ("/l/liba.so", "/l/libhook.so")
    assert "--set-env=LD_LIBRARY_PATH=/l:${STACKYARD_DIR}/libs${STACKYARD_LIBRARY_PATH}" in made.argv
    assert "--set-env=LD_PRELOAD=${STACKYARD_DIR}/libs/libhook.so" in made.argv


@pytest.mark.real
@pytest.mark.parametrize("given", ["", "/own"])
def test_charliecloud_adds_libraries(tmp_path: Path, given: str) -> None:
    """Each under its own name, the host's files themselves, at the end of the path. Outside they stay empty."""
    programs.need("ch-run")
    name, step, node = image(tmp_path / "image"), tmp_path / "step", tmp_path / "node"
    for directory in (step, node, tmp_path / "host"):
        directory.mkdir()
    (tmp_path / "host/liba.so.1").write_text("a")
    (tmp_path / "host/liba.so").symlink_to("liba.so.1")
    variables = {"LD_LIBRARY_PATH": given} if given else {}
    libraries = (f"{tmp_path}/host/liba.so*", f"{tmp_path}/host/libnone*")
    there = site(runtime="charliecloud", binds=("/usr",), libraries=libraries, variables=variables)
    made = wrap(Intent(program=("x",), container=str(name), cwd=str(step)), there, layout(), EnvironmentChange())
    text = shell.array(
        "sy_words", ("sh", "-c", 'cat "$1"/libs/*; ls "$1/libs"; echo "$LD_LIBRARY_PATH"', "sh", str(node))
    )
    text += wrapped(made) + '"${sy_words[@]}"'
    environ = {"USER": "root", **os.environ, "STACKYARD_STEP": str(step), "STACKYARD_DIR": str(node)}
    environ["LD_LIBRARY_PATH"] = "/hosts"
    for _ in range(2):  # another rank of the node has made the same
        argv = ["bash", "-c", text]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=240)
        path = f"{given}:{node}/libs" if given else f"{node}/libs:/hosts"
        assert done.stdout.splitlines() == ["aaliba.so", "liba.so.1", path]
    assert [file.read_text() for file in (node / "libs").iterdir()] == ["", ""]


def test_ranks_in_namespaces_of_their_own_do_not_read_each_others_memory(intent: Intent) -> None:
    two = Layout(Node("n", (NodeDomain(0, (0, 1), ()),), 2), (Block(0, 1, (Slot(0, (0,)), Slot(1, (1,)))),))
    mpi = RankProgram(two, ("app",), mpi=True)
    cma = "MPIR_CVAR_CH4_CMA_ENABLE"
    made = wrap(intent, site(runtime="apptainer"), two, STACK, program=mpi)
    assert made.variables[f"APPTAINERENV_{cma}"] == "0"
    assert any(cma in reason.words and "namespaces" in reason.reason for reason in made.reasons)
    own = wrap(intent, site(runtime="apptainer", variables={cma: "1"}), two, STACK, program=mpi)
    assert own.variables[f"APPTAINERENV_{cma}"] == "1"
    for program in (RankProgram(two, ("app",)), RankProgram(layout(), ("app",), mpi=True)):
        one = wrap(intent, site(runtime="apptainer"), program.layout, STACK, program=program)
        assert f"APPTAINERENV_{cma}" not in one.variables


def test_the_variables_against_reading_each_others_memory_are_those_of_all_known_mpis() -> None:
    named: dict[str, str] = {}
    for family in families():
        named |= family.variables
    assert dict(APART) == named
