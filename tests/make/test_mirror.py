"""A mirror: what locks need, in one directory, from which the same revision is built where no server can be reached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.host.files.hashing import sha256_file
from stackyard.host.tools.pipconf import PipSettings
from stackyard.make.mirror.read import opened
from support import programs
from support.channel import Package, make_channel
from support.cli import STACKYARD, Done, inside
from support.guardedserver import guarded
from support.tinywheel import BACKEND, project, wheel
from support.webserver import served

ASKING = BACKEND.format(name="made").replace("import zipfile", "import helper, zipfile", 1)
ASKS = """
def get_requires_for_build_wheel(settings=None):
    return ["helper>=1"]

def build_wheel(*words, **more):
    import madeby
    return madeby.build_wheel(*words, **more)
"""
"""A backend that asks for one more package, which is not there yet when it is asked."""


@dataclass(frozen=True)
class Bed:
    """A stack whose packages lie on one web server: conda, a wheel, an archive with its backend; and a commit."""

    directory: Path
    file: Path

    @property
    def mirror(self) -> Path:
        return self.directory / "mirror"

    def run(self, *words: str | Path, expect: int | None = 0, yard: str = "yard") -> Done:
        return inside("--yard", self.directory / yard, *words, expect=expect)

    def make(self, expect: int = 0) -> Done:
        return self.run("mirror", self.file, "--to", self.mirror, expect=expect)

    def lose_servers(self) -> None:
        for name in ("web", "repository"):
            shutil.move(self.directory / name, self.directory / f"former {name}")

    def built(self, yard: Path) -> tuple[str, dict[str, str | bytes]]:
        """The input hash of the one revision, and the files of its prefix."""
        (root,) = (yard / "stacks" / "demo").iterdir()
        paths = {str(path.relative_to(root)): path for path in sorted((root / "prefix").rglob("*"))}
        files = {n: os.readlink(p) if p.is_symlink() else p.read_bytes() for n, p in paths.items() if not p.is_dir()}
        return json.loads((root / "record.json").read_text())["input_hash"], files


def _source(directory: Path) -> None:
    """A source archive, its backend as a wheel, and what that asks for."""
    with zipfile.ZipFile(wheel(directory, "maker", "1.0"), "a") as archive:
        archive.writestr("making.py", ASKS)
        archive.writestr("madeby.py", ASKING)
    wheel(directory, "helper", "1.2")
    root = directory / "made-1.0"
    root.mkdir()
    system = '[build-system]\nrequires = ["maker"]\nbuild-backend = "making"\n'
    (root / "pyproject.toml").write_text(f'{system}[project]\nname = "made"\nversion = "1.0"\n')
    (root / "PKG-INFO").write_text("Metadata-Version: 2.2\nName: made\nVersion: 1.0\n")
    with tarfile.open(directory / "made-1.0.tar.gz", "w:gz") as archive:
        archive.add(root, "made-1.0")
    shutil.rmtree(root)


def _commit(directory: Path) -> str:
    """A repository with one project, and its commit, which only a reference of its own names, as pull requests do."""
    project(directory, "kept")
    git = ["git", "-C", directory, "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    for words in (["update-ref", "refs/pull/1/head", commit], ["commit", "-q", "--amend", "-m", "b"]):
        subprocess.run([*git, *words], check=True)
    return commit


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    programs.need("git")
    files = tmp_path / "web" / "files"
    make_channel(tmp_path / "web" / "channel", [Package("tool", "1.0", files={"share/tool": "a tool\n"})])
    wheel(files, "leaf", "1.0")
    _source(files)
    commit = _commit(tmp_path / "repository")
    made = Bed(tmp_path, tmp_path / "demo" / "stack.yaml")
    made.file.parent.mkdir()
    with served(tmp_path / "web") as url:
        pip = [
            f"--no-index --find-links={url}/files/",
            "leaf",
            "made",
            f"kept @ git+file://{tmp_path}/repository@{commit}",
        ]
        environment = {"channels": [f"{url}/channel"], "dependencies": ["tool", {"pip": pip}]}
        stack = {"name": "demo", "version": "1", "interpreter": {"source": "host", "path": sys.executable}}
        made.file.write_text(json.dumps({**stack, "environment": environment}))
        yield made


def test_the_same_revision_is_built_from_a_mirror_where_no_server_can_be_reached(bed: Bed) -> None:
    bed.run("deploy", bed.file)
    (bed.directory / "yard").rename(bed.directory / "first")
    told = bed.make()
    assert "fetched 6 files" in told.out and "not in it: Python 3" in told.out
    assert "fetched 0 files" in bed.make().out
    bed.lose_servers()
    apart = ["unshare", "--net"] if os.geteuid() == 0 else []
    words = ["--yard", bed.directory / "yard", "deploy", bed.file, "--locked", "--mirror", "mirror"]
    done = subprocess.run(
        [*apart, STACKYARD, *words], cwd=bed.directory, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert bed.built(bed.directory / "yard") == bed.built(bed.directory / "first")
    record = "cache/conda/tool-1.0-0/info/repodata_record.json"  # of its channel, which users' conda asks for it
    urls = {json.loads((bed.directory / name / record).read_text())["url"] for name in ("yard", "first")}
    assert len(urls) == 1 and urls.pop().startswith("http://127.0.0.1:")


def test_a_web_server_gives_out_a_mirror_and_a_site_names_it(bed: Bed) -> None:
    bed.make()
    bed.lose_servers()
    site = bed.directory / "site.yaml"
    with served(bed.mirror) as url:
        site.write_text(f"mirror: {url}\n")
        bed.run("--site", site, "deploy", bed.file, "--locked")
    assert "share/tool" in str(bed.built(bed.directory / "yard")[1])


def test_the_login_of_a_mirror_is_nowhere_but_in_what_is_sent(bed: Bed) -> None:
    bed.make()
    bed.lose_servers()
    site = bed.directory / "site.yaml"
    with guarded(bed.directory, {"/": "anna:verysecretword"}) as server:
        site.write_text(f"mirror: {server.url('mirror', 'anna:verysecretword')}\n")
        told = bed.run("--site", site, "deploy", bed.file, "--locked")
        listed = json.loads((bed.mirror / "mirror.json").read_text())
        listed["files"] = {k: v for k, v in listed["files"].items() if "leaf" not in v}
        (bed.mirror / "mirror.json").write_text(json.dumps(listed))
        lacks = bed.run("--site", site, "--yard", bed.directory / "other", "deploy", bed.file, "--locked", expect=1)
    assert "is not in the mirror http://127.0.0.1" in lacks.err
    assert "verysecretword" not in told.out + told.err + lacks.out + lacks.err
    files = [path for path in (bed.directory / "yard").rglob("*") if path.is_file()]
    assert not [path for path in files if b"verysecretword" in path.read_bytes()]


def test_licences_are_read_in_the_mirror(bed: Bed) -> None:
    """Where no server can be reached the site's rule is held against what lies there."""
    wheel(bed.directory / "web" / "files", "leaf", "1.0", licence="AGPL-3.0-only")
    bed.make()
    bed.lose_servers()
    site = bed.directory / "site.yaml"
    site.write_text(f"mirror: {bed.mirror}\nlicences: {{deny: [AGPL-3.0-only]}}\n")
    told = bed.run("--site", site, "deploy", bed.file, "--locked", expect=2).err
    assert "leaf 1.0" in told and "AGPL-3.0-only" in told


def test_every_account_can_read_it_and_what_a_killed_process_left_is_no_strange_file(bed: Bed) -> None:
    bed.run("lock", bed.file)
    bed.mirror.mkdir(mode=0o755)
    (bed.mirror / ".mirror.json.ab12.tmp").touch()
    (bed.mirror / "lost+found").mkdir(mode=0o700)
    words = [STACKYARD, "--yard", bed.directory / "yard", "mirror", bed.file, "--to", bed.mirror]
    subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", *words], check=True, capture_output=True)
    (bed.mirror / "lost+found").rmdir()
    closed = [p for p in bed.mirror.rglob("*") if ".leases" not in p.parts and (p.stat().st_mode & 0o444) != 0o444]
    assert not closed
    assert not (bed.mirror / ".mirror.json.ab12.tmp").exists()


def test_other_tools_use_the_mirror(bed: Bed) -> None:
    bed.make()
    bed.lose_servers()
    places = (
        ["--find-links", bed.mirror / "pip/files", "--no-index"],
        ["--index-url", f"{bed.mirror.as_uri()}/pip/simple"],
    )
    for number, place in enumerate(places):
        target = bed.directory / f"target{number}"
        words = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--no-config",
            "--target",
            target,
            *place,
            "leaf",
            "made",
        ]
        subprocess.run(
            words, check=True, capture_output=True, env={**os.environ, "UV_CACHE_DIR": str(bed.directory / "uv")}
        )
        assert (target / "made" / "__init__.py").is_file()
    other = bed.directory / "other" / "environment.yml"
    other.parent.mkdir()
    (channel,) = bed.mirror.glob("conda/*/channel")
    other.write_text(json.dumps({"name": "other", "channels": [channel.as_uri()], "dependencies": ["tool"]}))
    assert "published" in bed.run("deploy", other, "--version", "1").out


def test_what_a_mirror_lacks_and_what_changed_in_it_are_named(bed: Bed) -> None:
    bed.run("lock", bed.file)
    missing = bed.run("deploy", bed.file, "--mirror", bed.mirror, expect=2).err
    assert f"no mirror in {bed.mirror}: mirror.json not found" in missing
    bed.make()
    (file,) = bed.mirror.glob("conda/*/channel/*/tool-1.0-0*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    assert "hash mismatch" in bed.run("deploy", bed.file, "--mirror", bed.mirror, expect=1).err
    file.unlink()
    assert "fetched 1 file," in bed.make().out and file.read_bytes() == whole
    listed = json.loads((bed.mirror / "mirror.json").read_text())
    listed["files"] = {k: v for k, v in listed["files"].items() if "leaf" not in v}
    (bed.mirror / "mirror.json").write_text(json.dumps(listed))
    told = bed.run("deploy", bed.file, "--mirror", bed.mirror, expect=1).err
    assert "leaf 1.0" in told and "is not in the mirror" in told and "stackyard mirror FILE... --to" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": 1, "files": {"00": "../../etc/passwd"}, "commits": {}}', "leads out of the mirror"),
        ('{"format": 1, "files": {"00": 1}, "commits": {}}', "files"),
        ('{"format": 9}', "upgrade stackyard"),
        ("{", "cannot read"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_damaged_list_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mirror.json").write_text(text)
    with pytest.raises(StackyardError) as raised:
        opened(str(tmp_path), PipSettings())
    assert said in f"{raised.value.message} {raised.value.hint}"


def test_another_directory_is_left_alone(bed: Bed) -> None:
    bed.mirror.mkdir()
    (bed.mirror / "thesis.tex").write_text("mine")
    assert "has other files: thesis.tex" in bed.make(expect=2).err
    assert [path.name for path in bed.mirror.iterdir()] == ["thesis.tex"]


def test_a_dry_run_writes_nothing(bed: Bed) -> None:
    bed.run("lock", bed.file)
    told = bed.run("mirror", bed.file, "--to", bed.mirror, "--dry-run")
    assert "would fetch 4 files" in told.out and "leaf-1.0-py3-none-any.whl" in told.out
    assert not bed.mirror.exists()
    bed.file.with_name("stack.yaml.lock").unlink()
    bed.run("mirror", bed.file, "--to", bed.mirror, "--dry-run")
    assert not bed.file.with_name("stack.yaml.lock").exists()


@pytest.mark.parametrize("point", ["cache:1", "mirror:1"])
def test_killed_while_it_is_made_it_is_finished_by_the_same_command(bed: Bed, point: str) -> None:
    bed.run("lock", bed.file)
    words = [STACKYARD, "--yard", bed.directory / "yard", "mirror", bed.file, "--to", bed.mirror]
    killed = subprocess.run(words, capture_output=True, check=False, env={**os.environ, "STACKYARD_FAULT": point})
    assert killed.returncode == -9
    bed.make()
    bed.lose_servers()
    bed.run("deploy", bed.file, "--locked", "--mirror", bed.mirror)
    left = [path.name for path in bed.mirror.rglob(".*") if path.name not in (".leases", ".tmp")]  # rattler's index
    assert not left, "what was half written is gone"


def test_a_full_disk_is_named_and_what_was_fetched_stays(bed: Bed) -> None:
    bed.run("lock", bed.file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STACKYARD_FAULT", "cache:3:enospc")
        told = bed.make(expect=1).err
    assert "no space left while writing" in told
    assert "fetched 6 files" not in bed.make().out


def test_a_file_of_the_same_name_and_other_content_gets_a_place_of_its_own(bed: Bed) -> None:
    """A project may give out a wheel again under its old name: who locked the former one still finds it."""
    bed.make()
    first = json.loads((bed.mirror / "mirror.json").read_text())["files"]
    (former,) = [sha256 for sha256, path in first.items() if path == "pip/files/leaf-1.0-py3-none-any.whl"]
    web = next((bed.directory / "web").rglob("leaf-1.0-py3-none-any.whl"))
    with zipfile.ZipFile(web, "a") as archive:
        archive.comment = b"built again"
    bed.file.with_name("stack.yaml.lock").unlink()
    bed.make()
    files = json.loads((bed.mirror / "mirror.json").read_text())["files"]
    again = sha256_file(web)
    assert files[former] == first[former]
    assert files[again] == f"pip/files/{again[:12]}/leaf-1.0-py3-none-any.whl"
    assert all(sha256_file(bed.mirror / path) == sha256 for sha256, path in files.items())
    assert "fetched 0 files" in bed.make().out


def test_two_at_once_fetch_each_file_once(bed: Bed) -> None:
    bed.run("lock", bed.file)
    words = [STACKYARD, "--yard", bed.directory / "yard", "mirror", bed.file, "--to", bed.mirror, "--json"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [json.loads(each.communicate(timeout=240)[0]) for each in both]
    assert sorted(path for each in told for path in each["fetched"]) == sorted({p for t in told for p in t["fetched"]})
