"""Bare systems: a minimal Debian or Ubuntu in a directory, entered by chroot in namespaces of its own.

The packages come from where this machine's own come from; a system is made once as an archive in ``.cache/testbed`` and
unpacked for each use. What a machine's administrator sets up is set up there too: apt's and pip's configuration,
proxies, certificates, name servers. All mounts end with the command that is run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import MissingError
from stackyard.host.run.command import CommandError, Result, run
from support import programs, suites
from support.testbed import kept
from support.torchstack import HOME

REPOSITORY = Path(__file__).resolve().parents[2]
CHECKOUT = "/work/stackyard"
UNPACKED = ".unpacked-"
PASSED = re.compile(r"(?i)(pip_.*|(https?|ftp|no|all)_proxy|ssl_cert_file)")
PIP_FILES = {Path("/etc/pip.conf"): "etc/pip.conf", Path(HOME, ".config/pip/pip.conf"): "root/.config/pip/pip.conf"}
MAKE_S, UNPACK_S = 900, 300

ENTER = """set -e
mount --make-rprivate /
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
for path in $bound; do mount --rbind -o ro "$path" "$root$path"; done
[ -z "$offline" ] || ip link set lo up
exec chroot "$root" /bin/sh -c "cd '$folder' && $script"
"""


@dataclass(frozen=True)
class System:
    """An unpacked system.

    Attributes:
        environ: all variables of what is run in it.
        bound: paths of this machine that pip's configuration names; they are seen there too, read-only.
    """

    root: Path
    environ: dict[str, str]
    bound: tuple[str, ...]

    def run(
        self,
        script: str,
        *,
        offline: bool = False,
        check: bool = True,
        directory: str = CHECKOUT,
        timeout_s: float = 600,
    ) -> Result:
        """Run a script as root in it; `offline` leaves no network but the loopback interface.

        Raises:
            CommandError: it failed (with `check`), or timed out.
        """
        given = {"root": str(self.root), "bound": " ".join(self.bound), "folder": directory, "script": script}
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *(["--net"] if offline else [])]
        environ = {**self.environ, **given, "offline": "1" if offline else ""}
        return run([*argv, "sh", "-c", ENTER], env=environ, check=check, timeout_s=timeout_s)

    def succeeds(self, script: str, **options: object) -> str:
        """As `run`, in a test: a failure shows all that was printed. Returns what was printed."""
        done = self.run(script, check=False, **options)  # type: ignore[arg-type]
        assert done.returncode == 0, f"$ {script}\n{done.output[-6000:]}"
        return done.output


@contextmanager
def debian(suite: str, *packages: str) -> Iterator[System]:
    """A system of a suite of Debian with apt, these packages, and this checkout's files in `CHECKOUT`.

    Raises:
        MissingError: this machine cannot make one.
    """
    with _unpacked(_archive(suite, packages, suites.debian(suite))) as system:
        yield system


def archive(suite: str, *packages: str) -> Path:
    """The same system as a tar file, to be unpacked as an image.

    Raises:
        MissingError: this machine cannot make one.
    """
    return _archive(suite, packages, suites.debian(suite))


@contextmanager
def ubuntu(suite: str, *packages: str) -> Iterator[System]:
    """The same for Ubuntu."""
    keys = kept("ubuntu-keyring", [], _fetch_keys) / suites.UBUNTU_KEYS
    with _unpacked(_archive(suite, packages, suites.ubuntu(suite, keys))) as system:
        yield system


def _fetch_keys(directory: Path) -> None:
    suites.download("trixie", ("ubuntu-keyring",), directory)
    for package in directory.glob("*.deb"):
        run(["dpkg-deb", "-x", package, directory])


def _archive(suite: str, packages: tuple[str, ...], source: str) -> Path:
    """The system as an archive, made once; without the access data of this machine."""
    programs.require("mmdebstrap")
    if os.geteuid() != 0:
        raise MissingError("making a system needs root")

    def make(scratch: Path) -> None:
        (scratch / "it.sources").write_text(source)
        include = [f"--include={','.join(packages)}"] if packages else []
        argv = ["mmdebstrap", "--variant=apt", "--mode=root", *include, suite, scratch / "system.tar"]
        try:
            run([*argv, scratch / "it.sources"], timeout_s=MAKE_S)
        except CommandError as error:
            raise MissingError(f"a system of {suite} cannot be made", detail=error.detail) from error

    digest = hashlib.sha256(f"{source} {packages}".encode()).hexdigest()
    return kept(f"system-{suite}-{digest[:12]}", [], make) / "system.tar"


@contextmanager
def _unpacked(archive: Path) -> Iterator[System]:
    """Unpacked beside its archive, and removed at the end."""
    _remove_leftovers(archive.parents[1])
    place = Path(tempfile.mkdtemp(prefix=f"{UNPACKED}{os.getpid()}-", dir=archive.parents[1]))
    try:
        root = place / "root"
        root.mkdir()
        run(["tar", "-xf", archive, "--numeric-owner", "-C", root], timeout_s=UNPACK_S)
        _configure(root)
        _copy_checkout(root)
        yield System(root, *_settings(root))
    finally:
        shutil.rmtree(place)


def _remove_leftovers(directory: Path) -> None:
    """Systems of test runs that were killed."""
    for place in directory.glob(f"{UNPACKED}*"):
        if not Path("/proc", place.name.split("-")[1]).exists():
            shutil.rmtree(place, ignore_errors=True)


def _configure(root: Path) -> None:
    """What an administrator sets up: name servers, how apt reaches its mirrors; and no waiting for the disk."""
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    lines = run(["apt-config", "dump", "--format", "%f %v;%n", "Acquire"]).stdout.splitlines()
    kept_lines = [line for line in lines if re.match(r"Acquire::(https?|Check)\S* .", line)]
    quoted = [re.sub(r"^(\S+) (.*);$", r'\1 "\2";', line) for line in kept_lines]
    (root / "etc/apt/apt.conf.d/90machine").write_text("\n".join(quoted) + "\n")
    (root / "etc/dpkg/dpkg.cfg.d/speed").write_text("force-unsafe-io\npath-exclude=/usr/share/doc/*\n")


def _copy_checkout(root: Path) -> None:
    target = root / CHECKOUT.lstrip("/")
    target.mkdir(parents=True)
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout
    present = b"\0".join(name for name in listed.split(b"\0") if name and (REPOSITORY / os.fsdecode(name)).exists())
    packed = subprocess.run(
        ["tar", "-cf-", "--null", "-T-"], cwd=REPOSITORY, input=present, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-xf-", "--no-same-owner", "-C", target], input=packed.stdout, check=True)


def _settings(root: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of programs in the system, and the paths of this machine that pip's configuration names."""
    environ = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
    texts = {target: source.read_text() for source, target in PIP_FILES.items() if source.exists()}
    named = re.findall(r"(?<![/:\w])(?:file://)?(/[\w./+-]+)", "\n".join([*environ.values(), *texts.values()]))
    directories = (Path(path) for path in named if Path(path).is_dir())
    bound = sorted(
        {str(path.parent if path.name == "simple" else path) for path in directories}
    )  # its files are beside
    certificates = {path: f"/etc/machine-{Path(path).name}" for path in named if Path(path).is_file()}
    for path, copy in certificates.items():
        shutil.copy(path, root / copy.lstrip("/"))
    for target, text in texts.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        (root / target).write_text(_moved(text, certificates))
        (root / target).chmod(0o600)
    for path in bound:
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    own = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    return {**{name: _moved(value, certificates) for name, value in environ.items()}, **own}, tuple(bound)


def _moved(text: str, places: dict[str, str]) -> str:
    for path, copy in places.items():
        text = text.replace(path, copy)
    return text
