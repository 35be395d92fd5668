"""A conda prefix that is adopted into an image: its files stay as they were, whatever becomes of the directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from adoptbed import ACTIVATE, Bed, conda_prefix, tree_of

from stackyard.core.errors import StackyardError
from stackyard.upkeep.transfer import adopt as adopting
from stackyard.yard.kinds.payload import Image
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import read_record
from support import programs
from support.accounts import Account, Accounts
from support.cli import STACKYARD, Done, inside, stackyard
from support.plainwheel import write_wheel
from support.processes import end_image_servers
from support.pythonpkg import FULL_VERSION

pytestmark = [pytest.mark.real, pytest.mark.slow]
LIBRARY = f"lib/python{FULL_VERSION.rpartition('.')[0]}/site-packages"
SOURCE = "import sys\ndef main():\n    print('greeting from', __file__, sys.prefix)\n"


def installed(prefix: Path, wheels: Path) -> None:
    """Install a package with a console script, as pip does: its first line has the path of the prefix."""
    from uv import find_uv_bin

    wheel = write_wheel(wheels, "greet", SOURCE, "greet = greet:main")
    words = [find_uv_bin(), "pip", "install", "-q", "--offline", "--no-index", "--no-cache", "--break-system-packages"]
    subprocess.run([*words, "--python", prefix / "bin/python", wheel], check=True)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Iterator[Bed]:
    for name in ("lmod", "mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    directory = tmp_path_factory.mktemp("adopt")
    own = {"STACKYARD_TMP": str(directory), "STACKYARD_IMAGE_IDLE_S": "60"}
    made = Bed(directory, conda_prefix(directory / "envs" / "climate", real_channel, "python", "six"), own)
    (made.prefix / "etc/conda/activate.d").mkdir(parents=True)
    (made.prefix / "etc/conda/activate.d/climate.sh").write_text(ACTIVATE + f'export FLAGS_OF="-L{made.prefix}/lib"\n')
    installed(made.prefix, directory)
    subprocess.run([made.prefix / "bin/python", "-m", "compileall", "-q", made.prefix / LIBRARY], check=True)
    before = tree_of(made.prefix)
    made.run("adopt", "--image", made.prefix, "--version", "1.0")
    assert {name: at for name, at in tree_of(made.prefix).items() if not name.endswith(".pyc")} == {
        name: at for name, at in before.items() if not name.endswith(".pyc")
    }
    yield made
    end_image_servers(directory)


def test_its_record(bed: Bed) -> None:
    record, paths = bed.record(), RevisionPaths.of(bed.record().path)
    assert isinstance(record.payload, Image) and record.prefix == str(paths.prefix)
    assert record.adopted is not None and record.adopted.prefix == str(bed.prefix)
    assert record.origin.owns_files and record.origin.outside == () and record.disk.inodes_new < 60
    assert paths.original.read_text() == f"{bed.prefix}\n{bed.prefix}\n"
    assert record.interpreter["path"] == str(paths.prefix / "bin/python")


WHERE = "import six, sys; print(six.__file__, sys.prefix)"


def ran(bed: Bed, *words: str, yard: Path | None = None, expect: int = 0) -> str:
    """What a command prints that `stackyard run` becomes."""
    own = {"HOME": str(bed.directory), **bed.variables}
    done = stackyard("--yard", yard or bed.yard, "run", "climate", "--", *words, expect=expect, **own)
    return done.out + done.err


def ours(bed: Bed) -> None:
    """Whether commands see the files that were packed, at both paths."""
    prefix = bed.record().prefix
    assert ran(bed, "python", "-c", WHERE) == f"{prefix}/{LIBRARY}/six.py {prefix}\n"
    assert ran(bed, "greet") == f"greeting from {bed.prefix}/{LIBRARY}/greet/__init__.py {bed.prefix}\n"


def test_its_module_has_the_stubs(bed: Bed) -> None:
    prefix = bed.record().prefix
    out = bed.loaded(
        "module load climate", "echo $CLIMATE_DATA $FLAGS_OF; command -v python",
        f"python -c '{WHERE}'; greet; ls -A $CONDA_PREFIX", "module unload climate; echo left=[$CONDA_PREFIX]",
    )  # fmt: skip
    assert f"{prefix}/share/climate -L{bed.prefix}/lib\n{prefix}/bin/python\n" in out
    assert f"{prefix}/{LIBRARY}/six.py {prefix}\n" in out
    assert f"greeting from {bed.prefix}/{LIBRARY}/greet/__init__.py {bed.prefix}\n" in out
    assert ".stub\n" in out and "left=[]" in out


def test_ranks_see_it(bed: Bed) -> None:
    (bed.directory / "rank.py").write_text(f"import greet; {WHERE}; greet.main()\n")
    prefix, program = bed.record().prefix, f"greet && exec python {bed.directory}/rank.py"
    words = (
        "launch",
        "--with",
        "climate",
        "-r",
        "2",
        "-c",
        "1",
        "--oversubscribe",
        "--backend",
        "any",
        "--stream",
        "all",
    )
    for stage in ((), ("--stage", "stack")):
        own = {"HOME": str(bed.directory), **bed.variables}
        done = stackyard("--yard", bed.yard, *words, *stage, "sh", "-c", program, cwd=bed.directory, **own)
        assert done.out.count(f"{prefix}/{LIBRARY}/six.py {prefix}\n") == 2, done.out + done.err
        assert done.out.count(f"greeting from {bed.prefix}/{LIBRARY}/greet/__init__.py {bed.prefix}\n") == 2
        assert done.out.count(f"greeting from {prefix}/{LIBRARY}/greet/__init__.py {prefix}\n") == 2


def test_the_verbs_say_what_it_is(bed: Bed) -> None:
    record = bed.record()
    assert f"published, adopted: {bed.prefix}" in bed.run("list").out
    told = bed.run("show", "climate").out
    assert f"prefix     {record.prefix}  (adopted from {bed.prefix}, conda)" in told and "in 1 file (squashfs)" in told
    for words in (("image", "build", "climate", "--format", "sif", "--base", "x", "-o", str(bed.directory / "x")),
                  ("push", "climate", f"oci:{bed.directory}/oci:a"), ("image", "mount", "climate")):  # fmt: skip
        assert f"it was adopted, and its files name each other by {bed.prefix}" in bed.run(*words, expect=2).err
    done = bed.run("image", "autofs", expect=3)
    assert "cannot be mounted for all processes" in done.err and str(record.prefix) not in done.out
    assert "image.sqsh is as it was packed" in bed.run("image", "check", "climate").out
    bed.run("verify", "--deep", "climate")
    bed.run("fsck", "--deep")


def test_what_it_says(bed: Bed) -> None:
    (note,) = [text for text in bed.record().notices if "bytecode" in text]
    assert f"`{bed.prefix}/bin/python -m compileall -q {bed.prefix}/lib`" in note


def test_the_same_prefix_again_publishes_nothing_and_without_an_image_it_is_another_revision(bed: Bed) -> None:
    again = json.loads(bed.run("adopt", "--image", bed.prefix, "--json").out)
    assert [r["status"] for r in again["revisions"]] == ["unchanged"]
    plan = json.loads(bed.run("adopt", bed.prefix, "--dry-run", "--json").out)
    assert [(row["module"].endswith("-2"), row["action"]) for row in plan["revisions"]] == [(True, "adopt")]


def test_a_limit_of_files_packs_no_plain_adoption(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("name: site\nfs: {max_inodes: 10}\n")
    words = ("--site", tmp_path / "site.yaml", "--yard", tmp_path / "yard", "adopt")
    done = inside(*words, bed.prefix, HOME=str(bed.directory), **bed.variables)
    (record,) = (read_record(file) for file in tmp_path.glob("yard/stacks/*/*/record.json"))
    assert record.form.kind == "prefix" and record.prefix == str(bed.prefix), done.err
    inside(*words, "--image", bed.prefix, HOME=str(bed.directory), **bed.variables)
    assert len(list(tmp_path.glob("yard/stacks/*/*-2/image.sqsh"))) == 1, "it is the next revision"


def test_a_move_copies_it(bed: Bed, tmp_path: Path) -> None:
    """What cannot be built again is copied, and refers to its new place; the old yard is only read."""
    new = tmp_path / "new"
    bed.run("move", new)
    record = read_record(next(new.glob("stacks/climate/*-1/record.json")))
    assert record.form.sha256 == bed.record().form.sha256
    try:
        out = ran(bed, "sh", "-c", "echo $CLIMATE_DATA $FLAGS_OF; greet", yard=new)
        lines = [f"{record.prefix}/share/climate -L{bed.prefix}/lib", f"greeting from {bed.prefix}/{LIBRARY}/greet"]
        assert [out.startswith(lines[0]), lines[1] in out] == [True, True], out
        assert inside("--yard", new, "fsck", "--deep", HOME=str(bed.directory), **bed.variables).code == 0
        again = inside(
            "--yard", new, "adopt", "--image", bed.prefix, "--json", HOME=str(bed.directory), **bed.variables
        )
        assert [row["status"] for row in json.loads(again.out)["revisions"]] == ["unchanged"]
    finally:
        end_image_servers(tmp_path)


def test_an_extension_on_top(bed: Bed) -> None:
    wheel = write_wheel(bed.directory, "layer", "import greet, six\nprint('of the layer', greet.__file__)\n")
    bed.run("extend", "--base", "climate", "--name", "mine", "--pip", wheel)
    own = {"HOME": str(bed.directory), **bed.variables}
    done = stackyard("--yard", bed.yard, "run", "mine", "--", "python", "-c", "import layer", **own)
    assert done.out == f"of the layer {bed.record().prefix}/{LIBRARY}/greet/__init__.py\n"
    done = stackyard("--yard", bed.yard, "run", "mine", "--", "sh", "-c", "greet", **own)
    assert done.out.startswith(f"greeting from {bed.prefix}/")
    bed.run("verify", "mine")
    bed.run("remove", "mine")


def test_its_launcher_is_made_again_and_its_image_is_not(bed: Bed) -> None:
    paths = RevisionPaths.of(bed.record().path)
    before = paths.launcher.read_bytes()
    paths.launcher.unlink()
    bed.run("fsck", "--repair", "climate")
    assert paths.launcher.read_bytes() == before
    whole = paths.image.read_bytes()
    paths.image.chmod(0o644)
    paths.image.write_bytes(whole[:5000] + b"x" + whole[5001:])
    try:
        told = bed.run("fsck", "--deep", "--repair", "climate", expect=3).err
        assert f"cannot make its image again: `stackyard adopt --image {bed.prefix}` builds the next one" in told
    finally:
        paths.image.write_bytes(whole)
        paths.image.chmod(0o444)
        paths.damaged.unlink(missing_ok=True)
        end_image_servers(bed.directory)  # one that is idle may keep the damaged block, and give it to a later check
    ours(bed)


def test_a_virtual_environment(bed: Bed, tmp_path: Path) -> None:
    """Its Python is the host's, and stays outside of the image."""
    prefix = tmp_path / "venvs" / "tools"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    installed(prefix, tmp_path)
    done = adopted(tmp_path, prefix)
    assert "its Python is that of " in done.out + done.err
    shutil.rmtree(prefix)
    prefix.mkdir()
    (record,) = (read_record(file) for file in tmp_path.glob("yard/stacks/tools/*/record.json"))
    own = {"HOME": str(tmp_path), "STACKYARD_TMP": str(tmp_path), "STACKYARD_IMAGE_IDLE_S": "5"}
    words = (
        "--yard",
        tmp_path / "yard",
        "run",
        "tools",
        "--",
        "sh",
        "-c",
        "greet; python -c 'import greet; greet.main()'",
    )
    lines = stackyard(*words, **own).out.splitlines()
    inner = Path(LIBRARY) / "greet/__init__.py"
    assert lines == [f"greeting from {top / inner} {top}" for top in (prefix, Path(record.prefix))]


def test_a_disk_that_is_too_small(bed: Bed, tmp_path: Path) -> None:
    """Said before it is packed; nothing is left."""
    (tmp_path / "yard").mkdir()
    words = [STACKYARD, "--yard", tmp_path / "yard", "adopt", "--image", bed.prefix]
    script = f"""mount -t tmpfs -o size=6m none {tmp_path}/yard
        "$@" || code=$?
        find {tmp_path}/yard -name image.sqsh
        exit $code"""
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *map(str, words)],
        env={**os.environ, "HOME": str(tmp_path), **bed.variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "no space left: about " in done.stderr, done.stderr
    assert "image.sqsh" not in done.stdout


def test_a_directory_whose_files_are_others_now_or_none(bed: Bed) -> None:
    """The last one: nothing is left of the prefix."""
    ours(bed)
    said = ran(bed, "python", "-v", "-c", "import six, greet")
    assert said.count(".pyc matches ") >= 2 and "bytecode is stale" not in said, "files have the times that they had"
    (bed.prefix / LIBRARY / "sitecustomize.py").write_text("print('planted')\n")
    (bed.prefix / LIBRARY / "six.py").write_text("print('planted')\n")
    ours(bed)
    assert bed.run("verify", "climate").code == 0, "the image is as it was"
    dry = json.loads(bed.run("adopt", "--image", bed.prefix, "--dry-run", "--json").out)
    assert [(row["module"].endswith("-2"), row["action"]) for row in dry["revisions"]] == [(True, "adopt")]
    end_image_servers(bed.directory)
    shutil.rmtree(bed.prefix)
    told = ran(bed, "python", "-c", WHERE, expect=4)
    assert f"on {bed.prefix}, by which its files name each other: not found" in told and "mkdir -p" in told
    assert "not found" in bed.loaded("module load climate; greet")
    bed.prefix.mkdir()
    ours(bed)
    assert bed.run("verify", "--deep", "climate").code == 0
    assert "neither a conda prefix" in bed.run("adopt", "--image", bed.prefix, expect=2).err


# --------------------------------------------------------------------------- refused, interrupted


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A prefix without Python: two files."""
    prefix = tmp_path / "envs" / "tools"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin/hello").write_text("#!/bin/sh\necho hello from $0\n")
    (prefix / "bin/hello").chmod(0o755)
    return prefix


def _pipe(prefix: Path) -> None:
    os.mkfifo(prefix / "bin/pipe")


def test_a_base_of_conda_has_more(small: Path, tmp_path: Path) -> None:
    (small / "envs" / "other").mkdir(parents=True)
    (small / "pkgs").mkdir()
    told = inside("--yard", tmp_path / "yard", "adopt", "--image", "--dry-run", small, HOME=str(tmp_path)).out
    assert f"would adopt {small} (conda) as tools/" in told and ", packed into an image: 0 conda" in told
    assert not (tmp_path / "yard/stacks").exists()
    warnings = adopting.look(small, Yard(tmp_path / "yard"), image=True).warnings
    assert warnings == (f"{small}/envs is packed too: other environments",)


def _set_user_id(prefix: Path) -> None:
    (prefix / "bin/hello").chmod(0o4755)


@pytest.mark.parametrize(
    ("damage", "said"),
    [(_pipe, "special file: bin/pipe"), (_set_user_id, "set-user-ID or set-group-ID: bin/hello")],
)
def test_what_cannot_be_packed(small: Path, tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(small)
    with pytest.raises(StackyardError, match=said) as caught:
        adopting.look(small, Yard(tmp_path / "yard"), image=True)
    assert "without --image" in (caught.value.hint or "")


def test_a_yard_in_the_prefix(small: Path) -> None:
    with pytest.raises(StackyardError, match="is in it"):
        adopting.look(small, Yard(small / "yard"), image=True)


def test_a_prefix_behind_a_link(small: Path, tmp_path: Path) -> None:
    """The path as it was given is in its scripts; the image is mounted where that leads, and seen at both."""
    link = tmp_path / "sw"
    link.symlink_to(small.parent)
    shutil.copy("/bin/sh", small / "bin/sh")
    (small / "bin/hello").write_text(f"#!{link}/tools/bin/sh\necho hello from $0\ncat {link}/tools/bin/hello\n")
    adopted(tmp_path, link / "tools")
    (paths,) = (RevisionPaths.of(record.parent) for record in tmp_path.glob("yard/stacks/tools/*/record.json"))
    assert paths.original.read_text() == f"{link}/tools\n{small}\n"
    subprocess.run(["find", small, "-mindepth", "1", "-delete"], check=True)
    own = {"HOME": str(tmp_path), "STACKYARD_TMP": str(tmp_path), "STACKYARD_IMAGE_IDLE_S": "5", "SHELL": "/bin/sh"}
    for verb in (("run", "tools", "--", "hello"), ("shell", "tools", "--", "-c", "hello")):
        done = stackyard("--yard", tmp_path / "yard", *verb, **own)
        assert done.out.startswith(f"hello from {paths.prefix}/bin/hello\n#!{link}/tools/bin/sh\n"), done.out
    assert stackyard("--yard", tmp_path / "yard", "run", "tools", "--", "ls", small / "bin", **own).out == "hello\nsh\n"


def packer(directory: Path, before: str) -> str:
    """A PATH with an mksquashfs that does something first, when it packs."""
    directory.mkdir()
    real = shutil.which("mksquashfs")
    (directory / "mksquashfs").write_text(f'#!/bin/sh\ncase $1 in */envs/*) {before} ;; esac\nexec {real} "$@"\n')
    (directory / "mksquashfs").chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def adopted(tmp_path: Path, prefix: Path, expect: int = 0, **variables: str) -> Done:
    own = {"HOME": str(tmp_path), "STACKYARD_TMP": str(tmp_path), "STACKYARD_IMAGE_IDLE_S": "5"}
    return stackyard("--yard", tmp_path / "yard", "adopt", "--image", prefix, expect=expect, **own, **variables)


def images_of(tmp_path: Path) -> list[Path]:
    return [*tmp_path.glob("yard/stacks/*/*/image.sqsh"), *tmp_path.glob("yard/stacks/*/*/prefix")]


@pytest.mark.parametrize(
    "change",
    [
        "echo more >> {}/bin/hello",
        "touch -r {0}/bin/hello {0}.time; sed -i.old s/hello/HELLO/ {0}/bin/hello; rm {0}/bin/hello.old; "
        "touch -r {0}.time {0}/bin/hello",
    ],
)
def test_files_that_change_meanwhile(small: Path, tmp_path: Path, change: str) -> None:
    """Also unseen, with the same size and time: the image is compared with what was read."""
    done = adopted(tmp_path, small, 1, PATH=packer(tmp_path / "own", change.format(small)))
    assert "its files are changing" in done.err or "does not hold what was packed" in done.err
    assert not images_of(tmp_path)
    adopted(tmp_path, small)
    out = stackyard(
        "--yard", tmp_path / "yard", "run", "tools", "--", "hello", HOME=str(tmp_path), STACKYARD_TMP=str(tmp_path)
    )
    assert out.out.lower().startswith("hello from ")


def test_an_adoption_that_was_killed_is_repeated(small: Path, tmp_path: Path) -> None:
    adopted(
        tmp_path, small, -signal.SIGKILL, PATH=packer(tmp_path / "own", "kill -9 $(ps -o ppid= -p $PPID) $PPID; exit 1")
    )
    assert not list(tmp_path.glob("yard/stacks/*/*/record.json"))
    adopted(tmp_path, small)
    assert [image.parent.name[-2:] for image in tmp_path.glob("yard/stacks/*/*/image.sqsh")] == ["-1"]


def test_another_user_runs_it_and_adopts_what_others_own(accounts: Accounts, common: Path) -> None:
    """A user adopts what root owns; another one, who can only read the yard, runs it."""
    anna, ben = accounts.user("anna"), accounts.user("ben")
    prefix, yard, fuse = common / "envs/tools", common / "yard", common / "fuse"
    yard.mkdir()
    shutil.chown(yard, anna.name)
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin/hello").write_text(f"#!{prefix}/bin/sh\necho hello from $0\n")
    shutil.copy("/bin/sh", prefix / "bin/sh")
    (prefix / "bin/hello").chmod(0o755)
    (prefix / "closed").write_text("x")
    (prefix / "closed").chmod(0o600)
    subprocess.run(["mknod", "-m", "666", fuse, "c", "10", "229"], check=True)

    def run(user: Account, *words: str | Path, expect: int = 0) -> str:
        as_user = ["setpriv", "--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups"]
        argv = [*as_user, str(user.bin / "stackyard"), "--yard", str(yard), *map(str, words)]
        script = f'mount --bind {fuse} /dev/fuse\nexec "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *argv],
            env=user.environment(STACKYARD_IMAGE_IDLE_S="2"), cwd=common, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    refused = run(anna, "adopt", "--image", prefix, expect=1)
    assert f"cannot pack {prefix}: permission denied: closed" in refused
    (prefix / "closed").unlink()
    run(anna, "adopt", "--image", prefix)
    shutil.rmtree(prefix)
    prefix.mkdir()
    for user in (anna, ben):
        assert run(user, "run", "tools", "--", "hello").startswith("hello from ")
