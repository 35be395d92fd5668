"""Yards of root, a service account, a group and a user, and what a hostile account puts into every place of them.

All lie at one path, so that what was really built once is copied and given to whom the kind of yard says. `Sentinel`
is a tree that no command may touch; links, hard links and mounts lead into it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hostilejudge import changed, judged, regular_files
from hostiletable import BESIDE, ODD, RUN, Place
from hostilethings import MANY, TOKEN, Hostility, Sentinel, deep, digest, make_deep, many

from stackyard.core.errors import MissingError, StackyardError
from stackyard.yard import checksum
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from support import programs, testbed
from support.accounts import SYSTEM_PATH, Account, Accounts, common_directory
from support.cli import Done, inside, stackyard

KINDS = ("root", "service", "group", "user")
KEPT = ("tool/3.0-py3-1", "mine/3.0-py3-1")
"""What is published, and named by no command that changes something."""
FORMATS = Path(__file__).parents[1] / "data" / "formats"
SLOWER = 40
"""How many times as long as in a clean yard a command may take; reading what closed accounts wrote has 5 s of it."""


# --------------------------------------------------------------------------- the bed


@dataclass
class Bed:
    """A yard of one kind at the path of all, and what is beside it."""

    accounts: Accounts
    place: Path
    kind: str = ""
    findings: list[str] = field(default_factory=list)
    runs: int = 0
    _mounts: list[Path] = field(default_factory=list)
    _controls: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stacks = self.accounts.user("stacks")
        self.anna, self.bert = self.accounts.user("anna", "staff"), self.accounts.user("bert", "staff")
        self.carl, self.dora = self.accounts.user("carl"), self.accounts.user("dora")
        self.other = self.accounts.user("other")
        self.sentinel = Sentinel(self.place / "roots", 0)
        self.sentinel.make()
        self.own_sentinel = self.sentinel

    @property
    def yard(self) -> Yard:
        return Yard(self.place / "yard")

    @property
    def beside(self) -> Path:
        return self.place / "beside"

    @property
    def owner(self) -> Account | None:
        """Who owns the yard; None: root."""
        return {"root": None, "service": self.stacks, "group": self.anna, "user": self.carl}[self.kind]

    @property
    def people(self) -> dict[str, Account | None]:
        """Who runs commands, by the role."""
        found: dict[str, Account | None] = {"root": None, "user": self.dora}
        if self.kind != "root":
            found["owner"] = self.owner
        if self.kind == "group":
            found["staff"] = self.bert
        return found

    def attacker(self, place: Place) -> Account | None:
        """The hostile account that may write to a place; None: only root may."""
        if (place.is_open and self.kind != "user") or place.name in BESIDE:
            return self.dora
        return {"root": None, "service": self.stacks, "group": self.bert, "user": self.carl}[self.kind]

    def attacker_of(self, is_open: bool) -> Account:
        """The hostile account that may write to places of any account, or of the yard's writers."""
        if is_open and self.kind != "user":
            return self.dora
        return {"root": self.dora, "service": self.stacks, "group": self.bert, "user": self.carl}[self.kind]

    # ------------------------------------------------------------------ making

    def build(self) -> None:
        """What every yard holds: three revisions, really built, and an extension of the last one."""
        wheels = self.accounts.readable(testbed.wheels(testbed.HERE / "wheels.txt"))
        self.site.write_text(
            f"modules: {{formats: [tcl]}}\nusage: {{count: true}}\npip: {{find_links: [{wheels}]}}\n"
            "removal: {grace_days: 7}\n"
        )
        for version in ("1.0", "2.0", "3.0"):
            self.stack_file.write_text(
                f"name: tool\nversion: '{version}'\ninterpreter: {{source: host, path: {self.accounts.bin}/python}}\n"
                f"environment: {{dependencies: [{{pip: [--no-index, '--find-links={wheels}', idna]}}]}}\n"
            )
            self._build("deploy", self.stack_file)
        (self.place / "more.txt").write_text(f"--no-index\n--find-links={wheels}\niniconfig\n")
        self._build("extend", "--base", "tool/3.0", "--name", "mine", "-r", self.place / "more.txt")
        words = ("launch", "-r", "1", "-c", "1", "/bin/true")
        run = ("--site", self.site, "--yard", self.yard.root, *words)
        stackyard(*run, cwd=self.place, HOME=str(self.place))
        next((self.place / "runs").iterdir()).rename(self.place / "runs" / RUN)
        measured = ("--repeat", "1", "--measure", "n=(.)", "-o", self.place / "study", "--", "/bin/echo", "1")
        run = ("--site", self.site, "--yard", self.yard.root, "bench", "-r", "1", "-c", "1", *measured)
        stackyard(*run, cwd=self.place, HOME=str(self.place))
        self._build("push", "tool/3.0", f"oci:{self.place}/layout:real")
        self._build("catalogue", "-o", self.place / "catalogue")
        for name in ("uses", "children", "usage"):
            (self.yard.root / name).mkdir(exist_ok=True)
        self.yard.root.rename(self.place / "template")
        subprocess.run(["chmod", "-R", "a+rX", self.place / "template"], check=True)
        self.published = {name: self._files(self.place / "template", name) for name in KEPT}

    def _build(self, *words: str | Path) -> None:
        inside("--site", self.site, "--yard", self.yard.root, *words, HOME=str(self.place))

    @property
    def site(self) -> Path:
        return self.place / "site.yaml"

    @property
    def stack_file(self) -> Path:
        return self.place / "stack.yaml"

    def fresh(self, kind: str) -> None:
        """A clean yard of a kind, and clean places beside it."""
        self.clear()
        self.kind, self.own_sentinel = kind, self.sentinel
        subprocess.run(["cp", "-a", self.place / "template", self.yard.root], check=True)
        self._furnish_beside()
        if self.owner:
            self._give(self.owner)
        bits = {"root": 0o3773, "service": 0o3773, "group": 0o3773, "user": 0o700}[kind]
        for name in ("uses", "children", "usage"):
            (self.yard.root / name).chmod(bits)
        self.yard.root.chmod(0o2775 if kind == "group" else 0o755)

    def _give(self, owner: Account) -> None:
        group = self.anna.groups[0] if self.kind == "group" else owner.gid
        subprocess.run(["chown", "-hR", f"{owner.uid}:{group}", self.yard.root], check=True)
        if self.kind == "group":
            subprocess.run(["find", self.yard.root, "-type", "d", "-not", "-path", "*/prefix*",
                            "-exec", "chmod", "2775", "{}", "+"], check=True)  # fmt: skip
        root = self.place / f"sentinel-{owner.name}"
        if not root.exists():
            Sentinel(root, owner.uid).make()
        self.own_sentinel = Sentinel(root, owner.uid)

    def _furnish_beside(self) -> None:
        """Good files in every place beside the yard, the hostile account's."""
        (self.place / "new").mkdir()
        (self.place / "new").chmod(0o1777)
        shutil.copytree(self.place / "runs" / RUN, self.beside / "runs" / RUN)
        for name in ("own", "tmp", "jupyter/kernels", "prefix/conda-meta", "prefix/bin", "home"):
            (self.beside / name).mkdir(parents=True)
        shutil.copytree(self.place / "layout", self.beside / "layout")
        shutil.copytree(self.place / "study", self.beside / "study")
        shutil.copytree(FORMATS / "search-1", self.beside / "search")
        shutil.copytree(self.place / "catalogue", self.beside / "catalogue")
        shutil.copyfile(self.stack_file, self.beside / "stack.yaml")
        (self.beside / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 1\n#SBATCH -t 10\nsrun true\n")
        (self.beside / "job.yaml").write_text("format: 1\nprogram: [/bin/true]\n")
        (self.beside / "bindings.yaml").write_text("{}\n")
        subprocess.run(["chown", "-hR", f"{self.dora.uid}:{self.dora.gid}", self.beside], check=True)
        (self.beside / "tmp").chmod(0o1777)

    def mount(self, path: Path, *words: str) -> None:
        subprocess.run(["mount", *words, path], check=True, capture_output=True)
        self._mounts.append(path)

    def clear(self) -> None:
        """Remove the yard and what is beside it, with what is mounted there."""
        for path in reversed(self._mounts):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        self._mounts.clear()
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{self.place}/"):  # moved with the directory that it is in
                subprocess.run(["umount", "-l", line.split()[1].encode().decode("unicode_escape")], check=False)
        self._save()
        doomed = [self.yard.root, self.beside, self.place / "new", *self.place.glob("out-*")]
        subprocess.run(["rm", "-rf", "--one-file-system", *doomed], check=True)

    def many(self, uid: int) -> Path:
        """A directory with 100,000 names, made once as long as no command removes it."""
        pool = self.place / "many"
        if not pool.exists():
            pool.mkdir()
            for number in range(MANY):
                os.close(os.open(pool / f"h.{number}.2020-01.log", os.O_CREAT | os.O_WRONLY))
        os.chown(pool, uid, -1)
        return pool

    def deep(self, uid: int) -> Path:
        """A directory with 3,000 directories in each other, of an earlier time if no command removed that."""
        pool = next(self.place.glob(f"deep-{uid}-*"), None)
        if pool is None:
            pool = self.place / f"deep-{uid}-{os.urandom(3).hex()}"
            make_deep(pool, uid)
        return pool

    def _save(self) -> None:
        """Take back what is costly to make, where it still is: before all is removed."""
        for path, name in self._costly:
            with suppress(OSError):
                if name == "many" and len(os.listdir(path)) == MANY and not path.is_symlink():
                    path.rename(self.place / "many")
                if name == "deep" and os.listdir(path) == ["d"] and not path.is_symlink():
                    path.rename(self.place / f"deep-{path.lstat().st_uid}-{os.urandom(3).hex()}")
        self._costly.clear()

    _costly: list[tuple[Path, str]] = field(default_factory=list)

    # ------------------------------------------------------------------ hostile

    def plant(self, place: Place, spots: list[tuple[str, Hostility]]) -> None:
        """Put something hostile at each of these paths of a place, where it is not yet."""
        attacker = self.attacker(place)
        uid = attacker.uid if attacker else 0
        planted = 0
        for spot, hostility in spots:
            root = self.beside if place.name in BESIDE else self.yard.root
            known = {"{uid}": str(uid), "{host}": os.uname().nodename, "{boot}": _boot()}
            planted += self._put(root / _filled(spot, known), hostility, uid)
        assert planted, f"nothing hostile in {place.name}"
        self._notes(place, uid)

    def _put(self, path: Path, hostility: Hostility, uid: int) -> bool:
        """Put something at a path, in place of what is there; not below what is hostile itself."""
        if _is_below_hostile(path, self.place) or path.is_mount():
            return False
        missing = [each for each in path.parents if not each.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for each in missing:
            os.chown(each, uid, -1)
        if os.path.lexists(path):
            aside = self.place / f"out-{os.urandom(4).hex()}"
            path.rename(aside)
        hostility.put(self, path, uid)
        if hostility.put in (deep, many) and path.is_dir():
            self._costly.append((path, "deep" if hostility.put is deep else "many"))
        if not path.is_mount() and path.lstat().st_nlink == 1 and "another" not in hostility.name:
            os.chown(path, uid, -1, follow_symlinks=False)
        return True

    def _notes(self, place: Place, uid: int) -> None:
        """Notes by which what is hostile is found: a user's yard, the content of a thing in the trash."""
        if place.name == "users' yards" and self.kind != "user":
            note = self.yard.root / "children" / f"{'ef' * 16}.json"
            if not note.exists():
                note.write_text(f'{{"yard": "{self.beside}/own"}}')
                os.chown(note, uid, -1)
        if place.name == "trash/":
            for name in ("20200101T000000-cccccccccccc", "20200101T000000-dddddddddddd"):
                self.make_trash(uid, name)

    def make_trash(self, uid: int, name: str) -> None:
        """The note of a thing in the trash that has long been due; what it says has control characters."""
        what = {
            "format": 1, "sort": "leftover", "path": "stacks/x", "when": "2020-01-01T00:00:00+00:00", "who": ODD,
            "batch": "b", "reason": ODD,
        }  # fmt: skip
        directory, trash = self.yard.thrown(name), self.yard.trash
        if os.path.lexists(trash) and (trash.is_symlink() or not trash.is_dir()):
            return  # what is hostile is the trash itself
        if not os.path.lexists(directory):
            directory.mkdir(parents=True)
            os.chown(directory, uid, -1)
        file = directory / "what.json"
        if directory.is_dir() and not directory.is_symlink() and not os.path.lexists(file):
            file.write_text(checksum.add(json.dumps(what)))
            os.chown(file, uid, -1)

    # ------------------------------------------------------------------ running and judging

    def run(self, role: str, *words: str, timeout_s: float = 300) -> tuple[Done | None, float]:
        """One command of a role, in the directory beside the yard; None: it had to be killed."""
        account = self.people[role]
        own = {"TMPDIR": str(self.beside / "tmp"), "JUPYTER_DATA_DIR": str(self.beside / "jupyter"), "LANG": "C.UTF-8"}
        roots = {"HOME": str(self.place), "PATH": f"{self.accounts.bin}:{SYSTEM_PATH}", "SHELL": "/bin/sh"}
        env = account.environment(**own) if account else {**roots, **own}
        given = ["--site", self.site, "--yard", self.yard.root, *words]
        argv = [str(word) for word in (self.accounts.bin / "stackyard", *given)]
        who = {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups)} if account else {}
        began = time.monotonic()
        process = subprocess.Popen(
            argv, cwd=self.beside, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, **who)  # type: ignore[call-overload]  # fmt: skip
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, time.monotonic() - began
        self.runs += 1
        seconds = time.monotonic() - began
        return Done(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")), seconds

    def words(self, line: str) -> list[str]:
        """The words of a line of `VERBS`; `{new}` is a directory that does not exist."""
        new = f"{self.place}/new/{os.urandom(3).hex()}"
        known = {"{beside}": str(self.beside), "{new}": new, "{group}": self.accounts.group("staff"), "{run}": RUN}
        return [_filled(word, known) for word in line.split()]

    def control(self, line: str) -> float:
        """How long a line takes as root in a clean yard; wrong words fail the test."""
        if line not in self._controls:
            done, seconds = self.run("root", *self.words(line))
            assert done and not judged(done), f"{line}: {done}"
            self._controls[line] = seconds
        return self._controls[line]

    def attack(
        self,
        role: str,
        line: str,
        what: str,
        *,
        meanwhile: AbstractContextManager[None] | None = None,
        published: bool = True,
    ) -> list[str]:
        """Run a line over what is planted; what is wrong afterwards, which is also kept in `findings`."""
        before = [(each, each.state(), each.links()) for each in {id(s): s for s in self.sentinels}.values()]
        limit = SLOWER * max(self._controls.values())
        with meanwhile or nullcontext():
            done, seconds = self.run(role, *self.words(line), timeout_s=limit)
        wrong = [f"hung: killed after {seconds:.0f} s"] if done is None else judged(done)
        for sentinel, state, links in before:
            wrong += [f"changed: {sentinel.root}/{each}" for each in changed(state, sentinel.state())]
            wrong += [f"new name for {path}" for path, count in sentinel.links().items() if count > links.get(path, 0)]
        wrong += self._copies() + (self._lost() if published else [])
        found = [f"{self.kind}: {role}: stackyard {line}: over {what}: {each}" for each in wrong]
        self.findings += found
        return found

    @property
    def sentinels(self) -> list[Sentinel]:
        return [self.sentinel, self.own_sentinel]

    def _copies(self) -> list[str]:
        """Files of the yard and beside it with what only the sentinel's owner may read."""
        own = set[tuple[int, int]]().union(*(each.inodes() for each in self.sentinels))
        return [
            f"copied: {str(path)!a}"
            for top in (self.yard.root, self.beside, self.place / "new")
            for path, status in regular_files(top)
            if (status.st_dev, status.st_ino) not in own and status.st_size < 1 << 20 and TOKEN in path.read_bytes()
        ]

    def _lost(self) -> list[str]:
        """What of the published revisions is not as it was."""
        try:
            there = {entry.module for entry in generations.entries(self.yard) if entry.state == "published"}
        except StackyardError as error:
            return [f"nothing is published any more: {error}"]
        wrong = [f"not published any more: {name}" for name in KEPT if name not in there]
        return wrong + [
            f"published files changed: {name}"
            for name in KEPT
            if self._files(self.yard.root, name) != self.published[name]
        ]

    def _files(self, yard: Path, module: str) -> dict[str, tuple[int, str]]:
        prefix = yard / "stacks" / module / "prefix"
        found = (path for path in sorted(prefix.rglob("*")) if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(prefix)): (path.stat().st_mode & 0o6777, digest(path)) for path in found}


@contextmanager
def hostile_bed(accounts: Accounts) -> Iterator[Bed]:
    """A bed that is built, or a skip with what is missing; in memory, where deep trees go in no time."""
    programs.need("mount")
    with common_directory() as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "none", place], check=True)
        made = Bed(accounts, place)
        try:
            made.build()
            yield made
            made.clear()
        except MissingError as error:
            pytest.skip(f"{error}; {error.hint}")
        finally:
            subprocess.run(["umount", "-l", place], check=True)


def _is_below_hostile(path: Path, top: Path) -> bool:
    """Whether a directory above a path is itself something hostile."""
    return any(
        os.path.lexists(each) and (not each.is_dir() or each.is_symlink() or each.is_mount())
        for each in path.parents
        if each.is_relative_to(top) and each != top
    )


def _filled(word: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        word = word.replace(name, value)
    return word


def _boot() -> str:
    from stackyard.host.run.identity import boot

    return str(boot())
