"""A revision that one yard pushes, and another one at the same path publishes without building it: the same, or not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from images import oci_bed
from images.registry_bed import registry
from stackyard.core.errors import ChecksFailed, InputError, MissingError, StackyardError
from stackyard.deploy import licences
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.host.machine.probe import machine
from stackyard.images.oci import artefact
from stackyard.images.oci.artefact import Fit
from stackyard.images.oci.layout import MANIFEST, Reference, blob, image
from stackyard.images.oci.writer import writer
from stackyard.images.squashfs import launcher
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.make.hashes.tree import tree_hash
from stackyard.make.seal import PARTS
from stackyard.upkeep.transfer import arrival
from stackyard.upkeep.transfer.arrival import require_fit
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import read_record
from stackyard.yard.revision.signatures import Demand, keep_demand
from support import programs, stackrecords, testbed
from support.accounts import Accounts
from support.cli import Done, inside, stackyard
from support.processes import wait_for

pytestmark = [pytest.mark.real, pytest.mark.slow]
CODE = "import idna; print(idna.encode('ö.de').decode())"


@dataclass
class Bed:
    """A yard that is put aside once its revisions are pushed, and a new one at its path for each test."""

    directory: Path
    forms: tuple[str, ...] = ("prefix", "squashfs")

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    def paths(self, form: str, yard: str = "yard") -> RevisionPaths:
        return RevisionPaths(self.directory / yard / f"stacks/{form}/1-py3-1")

    def entry(self, form: str, yard: str) -> Any:
        manifest = json.loads(
            (self.directory / yard / "modules").resolve().parent.joinpath("manifest.json").read_text()
        )
        return next(each for each in manifest["entries"] if each["stack"] == form)

    def source(self, form: str) -> str:
        return f"oci:{self.directory}/layout:{form}"

    def stackyard(self, *words: str | Path, expect: int | None = 0, **variables: Any) -> Done:
        own = {
            "HOME": str(self.directory / "home"),
            "STACKYARD_TMP": str(self.directory),
            "STACKYARD_IMAGE_IDLE_S": "5",
        }
        run = stackyard if words[0] in ("deploy", "run") or variables else inside
        return run("--yard", self.yard, *words, expect=expect, **own, **variables)

    def build(self) -> None:
        (self.directory / "home").mkdir()
        wheels = testbed.wheels(testbed.HERE / "wheels.txt")
        for form in self.forms:
            file = self.directory / f"{form}.yaml"
            file.write_text(
                f"name: {form}\nversion: '1'\nimage: {form}\nmodules: {{aliases: [latest]}}\nenvironment:\n"
                f"  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
                "checks: [{name: it encodes, run: [python, -c, 'import idna']}]\n"
            )
            self.stackyard("deploy", file)
            self.stackyard("push", form, self.source(form))
        (self.directory / "more.txt").write_text(f"--no-index\n--find-links={wheels}\niniconfig\n")
        self.stackyard("extend", "--base", "prefix", "--name", "mine", "-r", self.directory / "more.txt")
        self.stackyard("push", "mine", self.source("mine"))
        self.put_aside()

    def put_aside(self) -> None:
        """A server unmounts the path when it ends, whatever yard is there by then: so it ends before."""
        self.end_servers()
        self.yard.rename(self.directory / "away")

    def end_servers(self) -> None:
        for each in self._servers():
            with suppress(ProcessLookupError):
                os.kill(int(each.parent.name), signal.SIGTERM)
        wait_for(lambda: not self._servers(), 60, self._servers)

    def _servers(self) -> list[Path]:
        return [each for each in Path("/proc").glob("[0-9]*/cmdline") if self._serves(each)]

    def _serves(self, cmdline: Path) -> bool:
        with suppress(OSError):
            return b"squashfuse_ll" in (words := cmdline.read_bytes()) and os.fsencode(f"{self.directory}/") in words
        return False


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    for name in ("mksquashfs", "squashfuse", "unshare", "skopeo"):
        programs.need(name)
    bed = Bed(tmp_path_factory.mktemp("push"))
    bed.build()
    yield bed
    bed.end_servers()


@pytest.fixture
def bed(made: Bed) -> Iterator[Bed]:
    yield made
    made.end_servers()
    shutil.rmtree(made.yard, ignore_errors=True)


@pytest.mark.parametrize("form", ["prefix", "squashfs"])
def test_another_yard_at_the_same_path_has_the_same_revision(bed: Bed, form: str) -> None:
    fits = bed.stackyard("pull", bed.source(form), "--dry-run")
    assert f"{form}/1-py3-1 fits {bed.yard}" in fits.out and not bed.yard.exists()
    assert bed.stackyard("pull", bed.source(form)).out == f"{form}/1-py3-1: published\n"
    here, there = bed.paths(form), bed.paths(form, "away")
    assert json.loads(here.record.read_text()) == json.loads(there.record.read_text())
    assert here.files.read_bytes() == there.files.read_bytes()
    if form == "prefix":
        assert tree_hash(here.prefix) == tree_hash(there.prefix)
    else:
        assert here.image.read_bytes() == there.image.read_bytes()
        assert here.launcher.read_bytes() == there.launcher.read_bytes() and os.access(here.launcher, os.X_OK)
    assert bed.stackyard("run", form, "--", "python", "-c", CODE).out == "xn--nda.de\n"
    assert bed.entry(form, "yard") == bed.entry(form, "away"), "with its labels"
    assert "passed" in bed.stackyard("verify", form, "--deep").out
    assert "nothing is wrong" in bed.stackyard("fsck", "--deep").out
    assert bed.stackyard("pull", bed.source(form)).out == f"{form}/1-py3-1: unchanged\n"
    assert len(bed.stackyard("history", "--json").value) == 1
    assert not list((bed.yard / "stacks" / form).rglob(".work"))
    again = bed.stackyard("deploy", bed.directory / f"{form}.yaml", "--json").value["revisions"][0]
    assert again["status"] == "unchanged", "its file finds it, and builds nothing"


def test_an_extension_needs_its_base(bed: Bed) -> None:
    done = bed.stackyard("pull", bed.source("mine"), expect=2)
    assert f"is a layer on prefix/1-py3-1 in {bed.paths('prefix').prefix}, which is not there" in done.err
    assert "pull its base first" in done.err
    bed.stackyard("pull", bed.source("prefix"))
    assert bed.stackyard("pull", bed.source("mine")).out == "mine/1-py3-1: published\n"
    assert bed.stackyard("run", "mine", "--", "python", "-c", f"import iniconfig; {CODE}").out == "xn--nda.de\n"
    fit = artefact.read(Reference(bed.directory / "layout", "mine")).fit
    with pytest.raises(InputError, match="where another build of it is"):
        require_fit(replace(fit, base_hash="0" * 64), Yard(bed.yard))


def test_by_a_registry(bed: Bed, tmp_path: Path) -> None:
    with registry(tmp_path / "registry") as here:
        (bed.directory / "away").rename(bed.yard)
        bed.stackyard("push", "squashfs", f"docker://{here.place}/squashfs:1", "--plain-http")
        bed.put_aside()
        place = (f"docker://{here.place}/squashfs:1", "--plain-http")
        assert "published" in bed.stackyard("pull", *place).out
        assert bed.stackyard("run", "squashfs", "--", "python", "-c", CODE).out == "xn--nda.de\n"
        bed.end_servers()
        shutil.rmtree(bed.yard)
        large = max(here.blobs, key=lambda path: path.stat().st_size)
        large.write_bytes(large.read_bytes()[:-9] + b"x" * 9)
        assert "damaged" in bed.stackyard("pull", *place, expect=1).err
        assert not bed.paths("squashfs").root.exists()


@pytest.mark.long
def test_a_pull_that_is_killed_is_finished_by_the_next(bed: Bed) -> None:
    for point in ("arrival-unpacked:1", "marker-before:1", "before-flip:1"):
        done = bed.stackyard("pull", bed.source("prefix"), expect=None, STACKYARD_FAULT=point)
        assert done.code == -signal.SIGKILL
        assert bed.stackyard("list", "--json").value == [], "nothing is published"
    assert bed.stackyard("pull", bed.source("prefix")).out == "prefix/1-py3-1: published\n"
    assert tree_hash(bed.paths("prefix").prefix) == tree_hash(bed.paths("prefix", "away").prefix)


@pytest.mark.long
def test_two_pull_at_once(bed: Bed) -> None:
    words = [Path(sys.executable).with_name("stackyard"), "--yard", bed.yard, "pull", bed.source("prefix"), "--json"]
    env = {**os.environ, "HOME": str(bed.directory / "home")}
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True) for _ in range(2)]
    said = sorted(json.loads(each.communicate(timeout=200)[0])["status"] for each in both)
    assert said == ["published", "unchanged"]


def test_an_account_pulls_what_another_one_pushed(bed: Bed, accounts: Accounts, common: Path) -> None:
    """Into a yard of its own, at the path where the other one had it."""
    anna, bert = accounts.user("anna"), accounts.user("bert", umask=0o077)
    common.chmod(0o777)
    file = common / "stack.yaml"
    file.write_text("name: tools\nversion: '1'\nmodules: {variables: {TOOLS: here}}\n")
    anna.stackyard("--yard", common / "yard", "deploy", file)
    anna.stackyard("--yard", common / "yard", "push", "tools", f"oci:{common}/layout:tools")
    (common / "yard").rename(common / "away")
    bert.stackyard("--yard", common / "yard", "pull", f"oci:{common}/layout:tools")
    (row,) = json.loads(bert.stackyard("--yard", common / "yard", "list", "--json").out)
    record = RevisionPaths(common / "yard" / "stacks" / row["module"]).record
    assert record.stat().st_uid == bert.uid and row["state"] == "published"


def test_an_interpreter_of_uv_comes_with_it(tmp_path: Path) -> None:
    home = tmp_path / "yard/cache/python/cpython-3.11.9"
    (home / "bin").mkdir(parents=True)
    (home / "bin/python3.11").write_text("#!/bin/sh\necho three\n")
    (home / "bin/python3.11").chmod(0o755)
    (home.parent / "cpython-3.11").symlink_to(home.name)
    uv = {"source": "uv", "path": f"{home.parent}/cpython-3.11/bin/python3.11", "version": "3.11.9"}
    uv["sha256"] = sha256_file(home / "bin/python3.11")
    record = oci_bed.revision(tmp_path, interpreter=uv)
    noted = contents.note(Path(record.path), contents.scan(Path(record.path), PARTS)).to_text()
    RevisionPaths.of(record.path).files.write_text(noted)
    record = replace(record, files_sha256=sha256_text(noted))
    entry = {"stack": "demo", "version": "1", "variant": "py3", "revision": 1, "module": record.module,
             "folder": record.path, "created": record.created}  # fmt: skip
    artefact.pack(record, entry, Reference(tmp_path / "layout", "x"))
    yard, paths = Yard(tmp_path / "yard"), RevisionPaths.of(record.path)
    shutil.rmtree(yard.cache)
    paths.work.mkdir()
    artefact.unpack(artefact.read(Reference(tmp_path / "layout")), paths.work)
    came = paths.work / artefact.INTERPRETER / "cache/python"
    (came / "cpython-3.12.1").mkdir()
    (came / "cpython-3.12").symlink_to("cpython-3.12.1")
    (came / "cpython-3.13").symlink_to("/usr")
    keep_demand(yard, Demand("signers", require=("pull",)))
    with pytest.raises(ChecksFailed, match="which no signature covers") as refused:
        arrival._require_no_interpreter(record, yard)
    assert f"uv python install -i {home.parent} 3.11.9" in str(refused.value.hint)
    arrival._interpreter(record, paths, yard)
    arrival._require_no_interpreter(record, yard)
    assert sorted(each.name for each in home.parent.iterdir()) == ["cpython-3.11", "cpython-3.11.9"]
    assert subprocess.run([uv["path"]], capture_output=True, check=True).stdout == b"three\n"
    (home / "bin/python3.11").write_text("#!/bin/sh\necho other\n")
    with pytest.raises(StackyardError, match="is not the interpreter that demo/1-py3-1 was built with"):
        arrival._interpreter(record, paths, yard)


def test_a_licence_is_accepted_by_who_pulls(tmp_path: Path) -> None:
    yard, site = Yard(tmp_path), Site()
    record = replace(stackrecords.record(yard, "demo", "1", 1), licences=({"name": "EULA", "sha256": "a" * 64},))
    (tmp_path / "leases").mkdir()
    with pytest.raises(MissingError, match=r"licence not accepted by .*: EULA"):
        licences.require_of_record(Workspace(site, yard), record, ())
    licences.require_of_record(Workspace(site, yard), record, ("EULA",))
    licences.require_of_record(Workspace(site, yard), record, ())


# --------------------------------------------------------------------------- what does not fit


FIT = Fit("demo/1-py3-1", "/yard/stacks/demo/1-py3-1", machine().platform)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"path": "/other/stacks/demo/1-py3-1"}, InputError, "its files name their path"),
        ({"module": "demo/../1", "path": "/yard/stacks/demo/../1"}, InputError, "its files name their path"),
        ({"platform": "linux-s390x"}, InputError, "is for linux-s390x, and this machine is"),
        (
            {"glibc": "9.99", "glibc_file": "bin/x"},
            InputError,
            r"needs glibc 9.99 \(bin/x\), and this machine has glibc",
        ),
        ({"host_python": "/no/such/python"}, MissingError, "uses the interpreter /no/such/python"),
        ({"host_python": sys.executable, "host_sha256": "0" * 64}, MissingError, "does not have the same"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    change: dict[str, str], error: type[Exception], said: str
) -> None:
    assert require_fit(FIT, Yard(Path("/yard"))).root == Path(FIT.path)
    with pytest.raises(error, match=said):
        require_fit(Fit(**{**vars(FIT), **change}), Yard(Path("/yard")))


def test_a_yard_elsewhere_is_told_before_anything_is_fetched(bed: Bed, tmp_path: Path) -> None:
    done = stackyard("--yard", tmp_path / "yard", "pull", bed.source("prefix"), expect=2)
    assert f"is for {bed.paths('prefix').root}, and in this yard it would be {tmp_path}" in done.err
    assert not (tmp_path / "yard").exists()
    container = bed.directory / "layout"
    assert "is not a revision" in stackyard("pull", f"oci:{empty(tmp_path / 'i')}", expect=2).err
    assert {each.name for each in container.iterdir()} == {"blobs", "index.json", "oci-layout", ".lock"}


def empty(directory: Path) -> Path:
    """An image that is not a revision."""
    with writer(directory) as into:
        config = into.add_json("application/vnd.oci.image.config.v1+json", {"rootfs": {"diff_ids": []}})
        value = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.to_json(), "layers": []}
        into.publish("x", into.add_json(MANIFEST, value))
    return directory


def test_another_revision_of_its_name_stays(bed: Bed) -> None:
    """Built here from other inputs."""
    text = (bed.directory / "prefix.yaml").read_text().replace("it encodes", "it is another")
    (bed.directory / "other.yaml").write_text(
        text.replace("aliases: [latest]", "aliases: [other]") + "run: {variables: {A: b}}\n"
    )
    bed.stackyard("deploy", bed.directory / "other.yaml")
    before = bed.paths("prefix").record.read_bytes()
    assert "is the name of another revision" in bed.stackyard("pull", bed.source("prefix"), expect=2).err
    assert bed.paths("prefix").record.read_bytes() == before


def test_files_that_are_not_those_of_the_record_are_refused(bed: Bed, tmp_path: Path) -> None:
    """The digests are right, as who makes an artefact computes them; the hashes of the files are not."""

    def changed(tree: Path) -> None:
        file = next((tree / "prefix").rglob("idna/core.py"))
        file.write_bytes(file.read_bytes() + b"# more\n")

    def added(tree: Path) -> None:
        (tree / "record.json").write_text("{}")

    for number, (harm, said) in enumerate(((changed, "does not hold what was built"), (added, "it has record.json"))):
        done = bed.stackyard("pull", harmed(bed, tmp_path / str(number), harm), expect=1)
        assert said in done.err
        assert not bed.paths("prefix").root.exists() or not any(bed.paths("prefix").root.iterdir())


def harmed(bed: Bed, directory: Path, harm: Callable[[Path], None]) -> str:
    """An artefact whose only archive holds a changed tree."""
    from stackyard.images.oci import layers

    found = artefact.read(Reference(bed.directory / "layout", "prefix"))
    (directory / "tree").mkdir(parents=True)
    artefact.unpack(found, directory / "tree")
    tree = directory / "tree" / artefact.BESIDE
    harm(tree)
    with writer(directory / "layout") as into:
        whole = layers.Layer("all", tuple(artefact._entries(tree, contents.scan(tree))))
        made = [artefact._layer(into, 0, artefact.BESIDE, whole, "gzip")]
        noted = hashlib.sha256((tree / "files.json").read_bytes()).hexdigest()  # as whoever harms it would
        record = replace(found.record, files_sha256=noted)
        artefact._publish(into, "x", record, found.entry, made, found.image.annotations)
    return f"oci:{directory}/layout:x"


def test_names_that_lead_out_of_a_revision_change_nothing_there(bed: Bed, tmp_path: Path) -> None:
    """Its record has the hash of its files.json, so what that says is as its maker wants it to be."""
    victim = tmp_path / "victim"
    victim.write_text("root's own")
    victim.chmod(0o600)
    os.utime(victim, (1, 1))
    leads_up = "/".join([r"\\x2e\\x2e"] * 9)

    def noted(tree: Path, directory: str, file: str) -> None:
        digest = hashlib.sha256(victim.read_bytes()).hexdigest()
        row = f'"{directory}": {{"{file}": [{0o4777}, {victim.stat().st_size}, 2000000000, "{digest}"]}},\n'
        text = (tree / "files.json").read_text()
        (tree / "files.json").write_text(text.replace('"files": {\n', f'"files": {{\n{row}'))

    def by_link(tree: Path) -> None:
        (tree / "prefix" / "way").symlink_to(tmp_path)
        noted(tree, "prefix/way", "victim")

    harms: list[Callable[[Path], None]] = [
        lambda tree: noted(tree, str(tmp_path), "victim"),
        lambda tree: noted(tree, f"{leads_up}{tmp_path}", "victim"),
        lambda tree: noted(tree, "prefix/none", f"{leads_up}{victim}"),
        by_link,
    ]
    for number, harm in enumerate(harms):
        done = bed.stackyard("pull", harmed(bed, tmp_path / str(number), harm), expect=1)
        assert (
            "not a path below" in done.err
            or "not a file name" in done.err
            or "does not hold what was built" in done.err
        )
        assert (victim.stat().st_mode & 0o7777, victim.stat().st_mtime) == (0o600, 1), number
        assert not bed.paths("prefix").root.exists() or not any(bed.paths("prefix").root.iterdir())


def with_launcher(bed: Bed, directory: Path, program: bytes, recorded: str | None = None) -> str:
    """An artefact of the image whose launcher is this program, with its hash in the record, or another one there."""
    from stackyard.images.oci import layers

    found = artefact.read(Reference(bed.directory / "layout", "squashfs"))
    (directory / "tree").mkdir(parents=True)
    artefact.unpack(found, directory / "tree")
    tree = directory / "tree" / artefact.BESIDE
    (tree / artefact.LAUNCHER).unlink()
    if program:
        (tree / artefact.LAUNCHER).write_bytes(program)
    digest = hashlib.sha256(program).hexdigest() if recorded is None else recorded
    record = replace(found.record, form=replace(found.record.form, launcher=digest))
    with writer(directory / "layout") as into:
        whole = layers.Layer("all", tuple(artefact._entries(tree, contents.scan(tree))))
        made = [artefact._layer(into, 0, artefact.BESIDE, whole, "gzip")]
        made.append(artefact._image(into, bed.paths("squashfs", "away"), record))
        artefact._publish(into, "x", record, found.entry, made, found.image.annotations)
    return f"oci:{directory}/layout:x"


def test_a_launcher_that_does_not_run_here_is_made_here_and_recorded(bed: Bed, tmp_path: Path) -> None:
    """As one that is linked with a newer C library than this machine has."""
    bed.stackyard("pull", with_launcher(bed, tmp_path, b"#!/no/such/interpreter\n"))
    assert launcher.works(bed.paths("squashfs").launcher)
    record = read_record(bed.paths("squashfs").record)
    assert record.form.launcher == sha256_file(bed.paths("squashfs").launcher)
    assert record == replace(read_record(bed.paths("squashfs", "away").record), form=record.form)
    assert bed.stackyard("fsck").code == 0


def test_a_launcher_of_an_earlier_version_is_made_here_and_not_recorded(bed: Bed, tmp_path: Path) -> None:
    bed.stackyard("pull", with_launcher(bed, tmp_path, b"", recorded=""))
    assert read_record(bed.paths("squashfs").record).form.launcher == ""
    assert "launcher not recorded" in bed.stackyard("fsck").err


@pytest.mark.parametrize(
    ("program", "recorded", "said"),
    [
        (b"#!/bin/true\n", "0" * 64, "it is another program"),
        (b"", "0" * 64, "launch is missing"),
        (b"#!/bin/true\n", "", "it has launch"),
    ],
)
def test_a_launcher_that_is_not_that_of_the_record_is_refused(
    bed: Bed, tmp_path: Path, program: bytes, recorded: str, said: str
) -> None:
    assert said in bed.stackyard("pull", with_launcher(bed, tmp_path, program, recorded), expect=1).err
    assert not disk.entries(bed.paths("squashfs").root)


def test_a_signed_launcher_that_does_not_run_here_is_refused(bed: Bed, tmp_path: Path) -> None:
    bed.stackyard("pull", with_launcher(bed, tmp_path, b"#!/no/such/interpreter\n"))
    found = artefact.read(Reference(tmp_path / "layout", "x"))
    signed = replace(found, signed=artefact.SignedRecord("", "", ()))
    paths = bed.paths("squashfs")
    paths.launcher.chmod(0o755)
    paths.launcher.write_bytes(b"#!/no/such/interpreter\n")
    with pytest.raises(MissingError, match="was signed with does not run on this machine"):
        arrival._with_launcher(signed, paths)


def test_a_damaged_blob_of_a_layout(bed: Bed, tmp_path: Path) -> None:
    shutil.copytree(bed.directory / "layout", tmp_path / "copy")
    large = max(image(Reference(tmp_path / "copy", "squashfs")).layers, key=lambda layer: layer.size)
    place = blob(tmp_path / "copy", large.digest)
    place.write_bytes(place.read_bytes()[:-9] + b"x" * 9)
    assert "is damaged" in bed.stackyard("pull", f"oci:{tmp_path}/copy:squashfs", expect=1).err
    assert not bed.yard.exists()
