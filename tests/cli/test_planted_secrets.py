"""Secrets of a dozen kinds, planted where users and sites write them: a deploy and a launch use all and show none.

Real servers want the logins and tokens; what was asked of them proves that every secret was used.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest

from support.channel import Package, make_channel
from support.cli import Done, stackyard
from support.guardedserver import Guarded, guarded
from support.planted import Planted
from support.tinywheel import project, wheel

SECRETS = {
    "variable in a site's mirror": "mirr0r-variable-token",
    "login of a channel": "chann3l-passw0rd",
    "/t/TOKEN/ of a channel": "c0nda-literal-token",
    "login in pip.conf": "pipc0nf-passw0rd",
    "login in the site's index": "sitez-index-passw0rd",
    "token in an index's path": "Zz9aXyQ1bB7dKk3T",
    "special characters": "s=p:e;c/i@l",
    "four characters": "q7Zk",
    "login in netrc": "netrc-passw0rd-11",
    "variable in a requirement's URL": "wh33l-url-token",
    "variable in an included URL": "includ3d-url-token",
    "login of a repository": "g1t-passw0rd",
    "GitHub's token in an error": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "--env of a launch": "wandb-api-key-0815",
    "variable of the shell": "h0rovod-secret-4711",
}
VARIABLES = {
    "MIRROR_TOKEN": "variable in a site's mirror",
    "SPECIAL": "special characters",
    "PIN": "four characters",
    "WHEEL_TOKEN": "variable in a requirement's URL",
    "INCLUDED_TOKEN": "variable in an included URL",
    "WANDB_API_KEY": "--env of a launch",
    "HOROVOD_SECRET_KEY": "variable of the shell",
    "TORCH_HUB_TOKEN": "variable of the shell",
}
LOGINS = {
    "/c2/": "login of a channel",
    "/conf/": "login in pip.conf",
    "/site/": "login in the site's index",
    "/netrc/": "login in netrc",
    "/git/": "login of a repository",
}


@dataclass
class Scene:
    directory: Path
    server: Guarded
    planted: Planted
    environ: dict[str, str]

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    @property
    def sources(self) -> list[Path]:
        """The files in which secrets are planted; they are their owner's."""
        names = ("site.yaml", "work/environment.yml", "home/.netrc", "work/broken.txt", "home/.config/pip/pip.conf")
        return [self.directory / name for name in names]

    def run(self, *words: str | Path, expect: int | None = 0) -> Done:
        with self.planted.watching(self.directory / "tmp"):
            done = stackyard("--yard", self.yard, *words, expect=expect, cwd=self.directory / "work", **self.environ)
        self.planted.search(f"output of {words[0]}", (done.out + done.err).encode())
        return done


def index(directory: Path, package: str, files: Path) -> None:
    """An index with one package, whose file lies elsewhere on the server."""
    page = directory / package / "index.html"
    page.parent.mkdir(parents=True)
    made = wheel(files, package, "1.0")
    page.write_text(f'<a href="/{files.parent.name}/{files.name}/{made.name}">{made.name}</a>')


def repository(directory: Path) -> None:
    source = project(directory.parent.parent / f"source-{directory.stem}", directory.stem)
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "x")):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *identity, *words], cwd=source, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(source), str(directory)], check=True)


def serve_everything(directory: Path) -> None:
    path_of = {name: SECRETS[VARIABLES[name]] for name in VARIABLES}
    for number, place in enumerate(
        (f"m/{path_of['MIRROR_TOKEN']}/c1", "c2", f"t/{SECRETS['/t/TOKEN/ of a channel']}/c3",
         f"sp/{path_of['SPECIAL']}/c4", f"pin/{path_of['PIN']}/c5"), 1
    ):  # fmt: skip
        make_channel(directory / place, [Package(f"tool{number}", "1.0", files={f"share/tool{number}": b"x"})])
    index(directory / "conf/simple", "conf-package", directory / "conf/files")
    index(directory / "site/simple", "site-package", directory / "site/files")
    index(directory / SECRETS["token in an index's path"] / "simple", "path-package", directory / "open/files")
    index(directory / f"special/{path_of['SPECIAL']}/simple", "special-package", directory / "open/files")
    index(directory / f"short/{path_of['PIN']}/simple", "short-package", directory / "open/files")
    index(directory / "netrc/simple", "netrc-package", directory / "netrc/files")
    wheel(directory / "dl" / path_of["WHEEL_TOKEN"], "direct-package", "1.0")
    included = directory / "inc" / path_of["INCLUDED_TOKEN"]
    included.mkdir(parents=True)
    (included / "more.txt").write_text("short-package  # [win]\n")
    for name in ("fromgit", "fromssh"):
        repository(directory / f"git/{name}.git")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> object:
    directory = tmp_path_factory.mktemp("planted")
    for name in ("work", "tmp", "home/.config/pip"):
        (directory / name).mkdir(parents=True)
    serve_everything(directory / "served")
    logins = {begin: f"user:{SECRETS[kind]}" for begin, kind in LOGINS.items()}
    with guarded(directory / "served", logins) as server:
        write_inputs(directory, server)
        environ = {
            **{name: SECRETS[kind] for name, kind in VARIABLES.items()},
            "HOME": str(directory / "home"), "TMPDIR": str(directory / "tmp"),
            "STACKYARD_SITE": str(directory / "site.yaml"),
            "NETRC": str(directory / "home/.netrc"), "STACKYARD_TMP": str(directory / "tmp"), "NO_PROXY": "*",
            "XDG_CACHE_HOME": str(directory / "home/cache"), "GIT_SSH_COMMAND": str(directory / "ssh"),
        }  # fmt: skip
        yield Scene(directory, server, Planted(SECRETS), environ)


def write_inputs(directory: Path, server: Guarded) -> None:
    ssh = directory / "ssh"
    ssh.write_text('#!/bin/sh\neval "last=\\${$#}"\nexec sh -c "$last"\n')  # what a host runs for git, here
    ssh.chmod(0o755)

    def login(kind: str) -> str:
        return f"user:{SECRETS[kind]}"

    (directory / "site.yaml").write_text(f"""
interpreter: {{source: host}}
channels:
  mirrors: {{corp: "{server.url("m/$MIRROR_TOKEN/c1")}"}}
pip:
  extra_index_urls:
    - {server.url("site/simple", login("login in the site's index"))}
    - {server.url(SECRETS["token in an index's path"] + "/simple")}
    - {server.url("netrc/simple", host="localhost")}
""")
    (directory / "site.yaml").chmod(0o600)
    (directory / "home/.netrc").write_text(f"machine localhost login user password {SECRETS['login in netrc']}\n")
    (directory / "home/.netrc").chmod(0o600)
    (directory / "home/.config/pip/pip.conf").write_text(
        f"[global]\nindex-url = {server.url('conf/simple', login('login in pip.conf'))}\n"
    )
    (directory / "work/environment.yml").write_text(f"""
name: planted
channels:
  - corp
  - {server.url("c2", login("login of a channel"))}
  - {server.url("t/" + SECRETS["/t/TOKEN/ of a channel"] + "/c3")}
  - {server.url("sp/$SPECIAL/c4")}
  - {server.url("pin/${PIN}/c5")}
dependencies:
  - tool1
  - tool2
  - tool3
  - tool4
  - tool5
  - pip:
    - --extra-index-url {server.url("special/${SPECIAL}/simple")}
    - --extra-index-url {server.url("short/${PIN}/simple")}
    - conf-package
    - site-package
    - path-package
    - special-package
    - netrc-package
    - direct-package @ {server.url("dl/${WHEEL_TOKEN}/direct_package-1.0-py3-none-any.whl")}
    - fromgit @ git+{server.url("git/fromgit.git", login("login of a repository"))}
    - fromssh @ git+ssh://git@host.invalid{directory}/served/git/fromssh.git
    - -r {server.url("inc/${INCLUDED_TOKEN}/more.txt")}
""")
    token = SECRETS["GitHub's token in an error"]
    (directory / "work/broken.txt").write_text(f"nothing @ git+{server.url('git/nothing.git', token)}\n")


@pytest.mark.long
def test_a_deploy_uses_every_secret_and_shows_none(scene: Scene) -> None:
    scene.run("lock", "environment.yml", "--version", "1")
    scene.run("deploy", "environment.yml", "--locked", "--version", "1")
    shown = [scene.run(*words) for words in (("show", "planted", "--json"), ("show", "--parsed", "environment.yml"))]
    assert "planted" in shown[0].out
    assert '"git+ssh://git@host.invalid/' in (scene.directory / "work/environment.yml.lock").read_text()
    used = {path for path, _ in scene.server.seen}
    assert all(any(unquote(path).startswith(begin) for path in used) for begin in (*LOGINS, "/dl/", "/inc/", "/t/"))
    done = scene.run("deploy", "broken.txt", "--version", "1", expect=None)
    assert done.code != 0 and "nothing" in done.err
    nothing_leaked(scene)


def nothing_leaked(scene: Scene) -> None:
    for place in ("yard", "home", "tmp", "work"):
        scene.planted.search_files(scene.directory / place, scene.sources)
    assert not scene.planted.leaks, "\n".join(sorted(set(scene.planted.leaks)))


def test_a_launch_passes_every_secret_and_shows_none(scene: Scene) -> None:
    """The ranks get the values; while they run, these are in one file, which only its owner can read."""
    program = """
import hashlib, os, pathlib, stat
folder = pathlib.Path(os.environ["STACKYARD_STEP"])
value = os.environ["WANDB_API_KEY"]
print("digest", hashlib.sha256(value.encode()).hexdigest())
files = [p for p in sorted(folder.iterdir()) if p.is_file()]
print("holding", [(p.name, oct(stat.S_IMODE(p.stat().st_mode))) for p in files if value.encode() in p.read_bytes()])
print("readable", [p.name for p in files if p.suffix in (".sh", ".json") and p.stat().st_mode & 0o077])
"""
    (scene.directory / "work/train.py").write_text(program)
    launch = ("launch", "--launcher", "local", "-r", "1", "--env", "WANDB_API_KEY")
    value = SECRETS["--env of a launch"]
    digest = hashlib.sha256(value.encode()).hexdigest()
    done = scene.run(*launch, "--dry-run", "train.py")
    assert "private.sh" in done.out
    done = scene.run(*launch, "train.py")
    assert f"digest {digest}" in done.out
    assert "holding [('private.sh', '0o600')]" in done.out and "readable ['status.json']" in done.out
    words = ("--yard", scene.yard, *launch[:-1], f"WANDB_API_KEY={value}", "train.py")
    given = stackyard(*words, cwd=scene.directory / "work", **scene.environ)
    assert f"digest {digest}" in given.out and "use --env WANDB_API_KEY" in given.err
    scene.planted.search("output of launch", (given.out + given.err).encode())
    nothing_leaked(scene)


def test_a_run_is_repeated_with_the_values_of_the_shell(scene: Scene) -> None:
    [record, *_] = sorted((scene.directory / "work/runs").glob("*/record.json"), reverse=True)
    kept = json.loads(record.read_text())
    assert kept["intent"]["passed"] == ["WANDB_API_KEY"] and kept["environment"]["ranks"]["WANDB_API_KEY"] == "***"
    assert "WANDB_API_KEY" in kept["command"] and "HOROVOD_SECRET_KEY" not in kept["environment"]["shell"]
    assert "digest" in scene.run("launch", "--again", "last").out
    without = {name: value for name, value in scene.environ.items() if name != "WANDB_API_KEY"}
    done = stackyard("launch", "--again", "last", expect=2, cwd=scene.directory / "work", **without)
    assert "WANDB_API_KEY is not set" in done.err and "export WANDB_API_KEY=" in done.err
