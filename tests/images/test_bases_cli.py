"""Bases and SIF files from the command line: imported, licences accepted by a person, shown, checked, built on, run."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from images.basebed import docker_archive, layer, oci, of_directory, system
from images.registry_bed import registry, trust
from support import images, programs, testbed
from support.cli import STACKYARD, Done, inside, stackyard

pytestmark = [pytest.mark.real, pytest.mark.slow]

TEXT = "You shall be kind.\n"
SITE = """
bases:
  powerai:
    source: docker-archive:powerai.tar
    licences: [{name: PowerAI, text: /opt/DL/license/text, file: /opt/DL/license/status.dat, line: Status=9}]
  old: {source: docker-archive:powerai.tar, successor: powerai}
  pinned: {source: docker-archive:powerai.tar, digest: "sha256:%s"}
"""


@dataclass
class Bed:
    """A site's file, an image with a licence, a yard."""

    directory: Path

    def run(self, *words: str | Path, expect: int = 0, **variables: str) -> Done:
        own = {"HOME": str(self.directory / "home"), "STACKYARD_SITE": str(self.directory / "site.yaml")}
        return inside("--yard", self.directory / "yard", "image", *words, expect=expect, **own, **variables)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    programs.need("mksquashfs")
    (tmp_path / "home").mkdir()
    data = layer([("opt/DL/license/text", TEXT), ("opt/DL/license/status.dat", "Status=1\n"), ("opt/x", "1")])
    docker_archive(tmp_path / "powerai.tar", [data])
    (tmp_path / "site.yaml").write_text(SITE % ("0" * 64))
    return Bed(tmp_path)


def held(bed: Bed, base: str, file: str) -> str:
    words = ["unsquashfs", "-cat", bed.directory / "yard/bases" / base / "root.sqsh", file]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_a_licence_is_accepted_by_a_person(bed: Bed) -> None:
    """Without a terminal it says what to type, and shows the text; nothing is kept. Once accepted it stays so."""
    done = bed.run("from", "--name", "powerai", expect=4)
    assert "licence not accepted by" in done.err and TEXT.strip() in done.err
    assert "hint: read it, then type: stackyard --yard" in done.err
    assert "image from --name powerai --accept-licence PowerAI" in done.err
    assert list((bed.directory / "yard/bases").iterdir()) == []
    done = bed.run("from", "--name", "powerai", "--accept-licence", "Another", expect=2)
    assert "the base powerai has no licence 'Another'" in done.err and "declares them: PowerAI" in done.err
    value = bed.run("from", "--name", "powerai", "--accept-licence", "PowerAI", "--json").value
    (accepted,) = value["licences"]
    assert accepted["name"] == "PowerAI" and accepted["uid"] == os.getuid() and len(accepted["sha256"]) == 64
    assert held(bed, "powerai", "opt/DL/license/status.dat") == "Status=1\nStatus=9\n"
    assert len(value["layers"]) == 2, "the line is a layer of its own, for OCI images on it"
    shutil.rmtree(bed.directory / "yard/bases/powerai")
    bed.run("from", "--name", "powerai")


def test_the_line_is_in_the_layers_too(bed: Bed) -> None:
    value = bed.run("from", "--name", "powerai", "--accept-licence", "PowerAI", "--json").value
    again = bed.run("from", f"oci:{value['path']}/oci:powerai", "--name", "again", "--json").value
    assert again["root"]["sha256"] == value["root"]["sha256"] and again["manifest"] == value["manifest"]


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 4)])
def test_at_a_terminal_you_are_asked(bed: Bed, answer: bytes, code: int) -> None:
    main, side = pty.openpty()
    words = [
        STACKYARD,
        "--yard",
        bed.directory / "yard",
        "--site",
        bed.directory / "site.yaml",
        "image",
        "from",
        "--name",
        "powerai",
    ]
    env = {**os.environ, "PAGER": "cat", "TERM": "dumb"}
    with subprocess.Popen(words, stdin=side, stdout=side, stderr=side, env=env) as process:
        os.close(side)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(main, 4096)
        assert TEXT.strip().encode() in shown
        os.write(main, answer)
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:  # the terminal is closed by its last process
                break
            if not part:
                break
    os.close(main)
    assert process.returncode == code
    assert (bed.directory / "yard/bases/powerai").exists() == (code == 0)


def test_what_the_sites_file_says_counts(bed: Bed) -> None:
    done = bed.run("from", "--name", "old", expect=2)
    assert "the base old is retired" in done.err and "hint: use powerai" in done.err
    done = bed.run("from", "--name", "pinned", expect=1)
    assert "wrong digest: docker-archive:" in done.err and "expected sha256:000000" in done.err
    done = bed.run("from", "--name", "pinned", "--digest", f"sha256:{'1' * 64}", expect=2)
    assert "differs from" in done.err
    done = bed.run("from", "--name", "new", expect=2)
    assert "no SOURCE given" in done.err
    done = bed.run("from", "docker-archive:none.tar", "--name", "new", expect=2)
    assert "no such file" in done.err
    assert "unknown platform: mips" in bed.run("from", "--name", "pinned", "--platform", "mips", expect=2).err
    assert "would import" in bed.run("from", f"docker-archive:{bed.directory}/x", "--name", "new", "--dry-run").out
    assert not (bed.directory / "yard/bases/new").exists()


def test_bases_are_listed_shown_and_checked(bed: Bed) -> None:
    directory = oci(bed.directory / "o", [of_directory(system(bed.directory / "root"))], Env=["A=b"])
    out = bed.run("from", f"oci:{directory}", "--name", "small").out
    assert "without set-user-ID: bin/su" in out and "platform: linux-64" in out
    (row,) = bed.run("list", "--json").value
    assert (row["base"], row["platform"]) == ("small", "linux-64")
    assert "base small" in bed.run("list").out
    value = bed.run("inspect", "small", "--json").value
    assert value["defaults"]["env"] == ["A=b"] and value["digests"][0] == row["digest"]
    assert "the base is as it was imported" in bed.run("check", "small").out
    blob = max((bed.directory / "yard/bases/small/oci/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    blob.chmod(0o600)
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    assert "has changed" in bed.run("check", "small", expect=3).err


def test_from_a_registry(bed: Bed) -> None:
    """By skopeo; the digest that the registry has is one to pin by."""
    programs.need("skopeo")
    directory = oci(bed.directory / "o", [layer([("a", "1")])])
    with registry(bed.directory / "registry") as found:
        place = f"docker://{found.place}/small:1"
        words = ["skopeo", "copy", "-q", "--insecure-policy", "--dest-tls-verify=false", f"oci:{directory}:1", place]
        subprocess.run(words, check=True)
        trust(bed.directory / "home", found.place)
        value = bed.run("from", place, "--name", "small", "--json").value
        digest = json.loads((directory / "index.json").read_text())["manifests"][0]["digest"]
        assert value["manifest"] == digest
        again = f"docker://{found.place}/small@{digest}"
        assert bed.run("from", again, "--name", "again", "--digest", digest, "--json").value["manifest"] == digest
        done = bed.run("from", f"docker://{found.place}/none:1", "--name", "none", expect=1)
        assert f"cannot fetch docker://{found.place}/none:1: {found.place} does not have it" in done.err
        assert "manifest unknown" in done.err and "hint: see its tags: skopeo list-tags" in done.err


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stack on this interpreter, whose yard is not below /tmp, which a runtime hides."""
    programs.need("mksquashfs", "squashfuse")
    work = tmp_path_factory.mktemp("stack")
    yard = Path("/srv" if os.access("/srv", os.W_OK) else work) / f"bases-{os.getpid()}"
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    (work / "stack.yaml").write_text(
        "name: demo\nversion: '1'\nimage: squashfs\nvariables: {GREETING: it's me}\n"
        f"environment:\n  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
    )
    stackyard("--yard", yard, "deploy", work / "stack.yaml", HOME=str(work), STACKYARD_IMAGE_IDLE_S="5")
    yield yard
    subprocess.run(["chmod", "-R", "u+w", yard], check=True)
    shutil.rmtree(yard)


CODE = "import idna, os, sys; print(idna.encode('ö.de').decode(), sys.executable, os.environ['GREETING'])"


@pytest.mark.long
def test_a_stack_runs_where_nothing_of_the_site_is(deployed: Path, tmp_path: Path) -> None:
    """A SIF of a deployed stack and of a system with its interpreter, run without its yard."""
    images.apptainer()
    stackyard("--yard", deployed, "image", "from-folder", images.image_directory(), "--name", "system")
    file = tmp_path / "demo.sif"
    value = stackyard("--yard", deployed, "image", "build", "demo", "--base", "system", "--format", "sif", "-o", file,
                      "--json").value  # fmt: skip
    assert value["bytes"] == file.stat().st_size and value["labels"]["io.stackyard.packages"].startswith("idna=")
    hidden = deployed.with_name(f"{deployed.name}.hidden")
    deployed.rename(hidden)
    try:
        words = ["apptainer", "-q", "exec", "--no-home", file, "python", "-c", CODE]
        done = subprocess.run(words, capture_output=True, text=True, env=images.environ(), check=False)
    finally:
        hidden.rename(deployed)
    assert done.stdout == "xn--nda.de /opt/stackyard/demo/bin/python it's me\n", done.stderr
    assert "are as they were written" in stackyard("--yard", deployed, "image", "check", file).out
    assert "org.opencontainers.image.title: demo/1-py3-1" in stackyard("--yard", deployed, "image", "inspect", file).out


@pytest.mark.long
def test_what_does_not_run_on_a_base_is_refused(deployed: Path, tmp_path: Path) -> None:
    """A base without this interpreter; an option of another format."""
    root = system(tmp_path / "root")
    stackyard("--yard", deployed, "image", "from-folder", root, "--name", "small")
    words = ("--yard", deployed, "image", "build", "demo", "--format", "sif", "-o", tmp_path / "x.sif")
    done = stackyard(*words, "--base", "small", expect=2)
    assert "uses the interpreter" in done.err and "`interpreter: {source: uv}`" in done.err
    assert "error: no such base in " in stackyard(*words, "--base", "other", expect=2).err
    assert "are for --format oci" in stackyard(*words, "--base", "small", "--name", "x", expect=2).err
    assert not (tmp_path / "x.sif").exists()
